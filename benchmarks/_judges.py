"""How far the judges can be relied on: the offline judge on labelled cases, and against an LLM judge.

    python benchmarks/_judges.py                                     # results/judge-offline.json
    python benchmarks/_judges.py --llm openai:NAME@URL --label NAME  # results/judge-agreement.json

The offline judge's agreement is out of sample: every role is scored by coefficients fitted without it. The bundled
coefficients are rewritten with --write, when features or cases have changed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rolecraft._files import write_atomic
from rolecraft.measures import LLMJudge, OfflineJudge, calibrate, fit_offline_judge, load_cases
from rolecraft.measures._calibration import LABELS, compare_scores
from rolecraft.models import Embedder, LocalModel, load_model
from rolecraft.roles import load_inventory

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
BUNDLED = ROOT / "src/rolecraft/measures/data/offline-judge-v1.json"


def rounded(value: Any) -> Any:
    """Round floats to four digits, so that a result file stays readable."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return round(value, 4) if isinstance(value, float) else value


def record(name: str, content: dict[str, Any]) -> None:
    """Write one result file."""
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers", "numpy", "scipy")}
    write_atomic(RESULTS / name, json.dumps(rounded(content | {"versions": versions}), indent=1) + "\n")
    print(f"wrote {RESULTS / name}")


def show(title: str, numbers: dict[str, Any]) -> None:
    """Print one judge's numbers."""
    print(f"\n{title}")
    for name, value in numbers.items():
        print(f"  {name:22s} {value:.3f}" if isinstance(value, float) else f"  {name:22s} {value}")


def offline(model: LocalModel, embedder: Embedder, write: bool) -> None:
    """Fit the offline judge, measure it on roles left out of the fit, and record that."""
    started, cases = time.time(), load_cases()
    fit = fit_offline_judge(model, embedder, cases)
    if write:
        write_atomic(BUNDLED, fit.to_json())
    show("offline judge, roles left out of the fit", fit.out_of_sample)
    judge = OfflineJudge(model, embedder, load_inventory("core-v1"), fit)
    scored = judge.score([case.item for case in cases])
    dimensions = {
        name: {
            LABELS[label]: _mean([s.values[name] for s, case in zip(scored, cases, strict=True) if case.label == label])
            for label in LABELS
        }
        for name in judge.dimensions
    }
    print("\nmeans per label, in sample")
    for name, means in dimensions.items():
        print(f"  {name:22s} " + "  ".join(f"{label} {value:.1f}" for label, value in means.items()))
    record(
        "judge-offline.json",
        {
            "judge": judge.name,
            "rubric_hash": judge.rubric_hash,
            "cases": len(cases),
            "out_of_sample": fit.out_of_sample,
            "means_in_sample": dimensions,
            "made_with": fit.made_with,
            "seconds": time.time() - started,
        },
    )


def against(model: LocalModel, embedder: Embedder, spec: str, label: str) -> None:
    """Compare the offline judge with its bundled coefficients and an LLM judge on the labelled cases."""
    started, cases = time.time(), load_cases()
    items = [case.item for case in cases]
    llm = LLMJudge(load_model(spec, concurrency=1, timeout=600.0), "role-alignment-v1", allow_uncalibrated=True)
    calibration = calibrate(llm, cases)
    show(f"LLM judge {label}", asdict(calibration))
    judge = OfflineJudge(model, embedder, load_inventory("core-v1"))
    ours, theirs = ([score.values["overall"] for score in each.score(items)] for each in (judge, llm))
    sound = [place for place, case in enumerate(cases) if case.label]
    names = (judge.name, label or llm.name)
    agreement = compare_scores(ours, theirs, names)
    among_sound = compare_scores([ours[i] for i in sound], [theirs[i] for i in sound], names)
    show("agreement of the two", agreement.to_dict())
    show("agreement without broken text", among_sound.to_dict())
    record(
        "judge-agreement.json",
        {
            "rubric": {rubric.name: rubric.hash for rubric in llm.rubrics},
            "calibration": asdict(calibration) | {"judge": label or llm.name},
            "agreement": agreement.to_dict(),
            "agreement_without_broken": among_sound.to_dict(),
            "replies": dict(llm.counts),
            "scores": {case.id: [ours[i], theirs[i]] for i, case in enumerate(cases)},
            "seconds": time.time() - started,
        },
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llm", help="model string of an LLM judge to compare with, instead of fitting")
    parser.add_argument("--label", default="", help="what that model is called in the result file")
    parser.add_argument("--write", action="store_true", help="rewrite the bundled coefficients")
    arguments = parser.parse_args()
    model, embedder = LocalModel.load(), Embedder.load()
    if arguments.llm:
        against(model, embedder, arguments.llm, arguments.label)
    else:
        offline(model, embedder, arguments.write)


def _mean(values: list[float | None]) -> float:
    kept = [value for value in values if value is not None]
    return sum(kept) / len(kept) if kept else float("nan")


if __name__ == "__main__":
    main()

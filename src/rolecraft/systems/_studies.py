"""Running a study in a run directory, and recording what came out."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rolecraft._files import PACKAGE, read_mapping, write_atomic
from rolecraft._run import RunStore, plain
from rolecraft._run._record import commit, machine, versions
from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import StudyConfig, interval_row
from rolecraft.systems._registry import Entry

KIND = "study"
TIMER = "study"


@dataclass(frozen=True)
class Outcome:
    """A study that was run, as `results/` keeps it: plain JSON values."""

    study: str
    config: dict[str, Any]
    seeds: list[int]
    full: bool
    minutes: float
    effect: dict[str, Any]
    """`estimate, low, high, n`."""
    control: dict[str, Any]
    verdict: str
    note: str
    rows: dict[str, Any]
    """Per arm and metric: mean, low, high, n."""
    run: str
    """Id of the run."""
    commit: str | None
    """Of the checkout; `+` where files differed from it."""
    recorded: str
    """Start of the run, UTC."""
    versions: dict[str, str]
    machine: dict[str, Any]


def make_config(
    config: type[StudyConfig], *, full: bool = False, seeds: Sequence[int] = (), settings: Sequence[str] = ()
) -> StudyConfig:
    """Build a study's configuration from the command line.

    Args:
        config: The study's configuration class.
        full: Start from the paper's size.
        seeds: Instead of the configuration's.
        settings: `field=value` each; the items of a tuple are separated by commas.

    Raises:
        UserError: If a field is unknown, a value does not fit, or the configuration refuses itself.
    """
    base = config.full() if full else config()
    hints = typing.get_type_hints(config)
    changes: dict[str, Any] = {"seeds": tuple(seeds)} if seeds else {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().replace("-", "_")
        known = [field.name for field in fields(config)]
        if not equals or name not in known:
            raise UserError(
                f"--set {setting!r}: expected FIELD=VALUE with one of the fields {', '.join(known)}."
                + did_you_mean(name, known)
            )
        changes[name] = _parse(name, text.strip(), hints[name])
    return replace(base, **changes)


def _parse(name: str, text: str, hint: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    value: Any = text
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if text.lower() in ("none", "null") and type(None) in choices:
        value = None
    elif any(typing.get_origin(choice) is tuple for choice in choices):
        value = [part.strip() for part in text.strip("()[]").split(",") if part.strip()]
    try:
        found = TypeAdapter(hint, config={"allow_inf_nan": False}).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UserError(f"--set {name}={text}: {problem['msg']} (expected {_type_name(hint)}).") from None
    if name == "seeds" and not found:
        raise UserError("--set seeds: expected at least one seed, such as --seeds 1-3.")
    return found


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def run_study(
    entry: Entry, study: str, config: StudyConfig, directory: Path, *, full: bool = False, resume: bool = True
) -> Outcome:
    """Run a study, or what is missing of it, and return what came out; `outcome.json` in the directory keeps it.

    Raises:
        UserError: If the study is unknown, or the directory holds another run.
    """
    chosen = entry.study(study)
    asked = {"system": entry.system.id, "study": study, **plain(config)}
    with RunStore.open(directory, KIND, asked, resume=resume) as store:
        with store.timed(TIMER):
            result = chosen.run(config, store)
        verdict = chosen.verdict(result)
        outcome = Outcome(
            study=study,
            config=plain(config),
            seeds=list(config.seeds),
            full=full,
            minutes=round(store.timings()[TIMER]["seconds"] / 60, 2),
            effect=interval_row(verdict.effect),
            control=interval_row(verdict.control),
            verdict=verdict.verdict,
            note=verdict.note,
            rows=result.summary(),
            run=store.id,
            commit=commit(),
            recorded=str(store.record["created"]),
            versions=versions(),
            machine=machine(),
        )
        write_atomic(store.directory / "outcome.json", _json(vars(outcome)))
    return outcome


def results_folder() -> Path:
    """Return where recorded results lie: in the checkout, or in the installed package."""
    return PACKAGE / "systems" / "results"


def record(entry: Entry, outcome: Outcome, folder: Path | None = None) -> Path:
    """Write an outcome into `results/<number>-<name>.json`, beside those of the system's other studies."""
    folder = folder or results_folder().resolve()
    path = folder / f"{entry.system.id}.json"
    known: Mapping[str, Any] = read_mapping(path)["studies"] if path.exists() else {}
    studies = {**known, outcome.study: vars(outcome)}
    ordered = {name: studies[name] for name in [*entry.studies, *studies] if name in studies}
    write_atomic(path, _json({"system": vars(entry.system), "studies": ordered}))
    return path


def _json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

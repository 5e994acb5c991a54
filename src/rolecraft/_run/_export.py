"""Rows of a run as files that other programs read: JSONL, CSV, Parquet, Inspect logs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._files import write_atomic
from rolecraft.errors import MissingDependencyError, UserError, did_you_mean

if TYPE_CHECKING:
    from rolecraft._run._store import RunView

SUFFIXES = (".jsonl", ".csv", ".parquet", ".eval", ".json")


def export_rows(run: RunView, stage: str, path: str | Path) -> int:
    """Write the rows of a stage to a file; the suffix says the format.

    `.jsonl` keeps rows as they are; `.csv` and `.parquet` have one column per field, nested fields as `scores.overall`,
    lists as JSON text; `.eval` and `.json` are logs of Inspect, a sample per row.

    Returns:
        How many rows were written.

    Raises:
        UserError: If the stage has no rows or the suffix is unknown.
        MissingDependencyError: If the format's library is not installed.
    """
    rows = run.rows(stage)
    if not rows:
        known = [name for name, timing in run.timings().items() if timing["units"]]
        raise UserError(
            f"{run.directory}: stage {stage!r} has no rows (stages: {', '.join(known) or 'none yet'})."
            + did_you_mean(stage, known)
        )
    return write_rows(run, stage, rows, Path(path))


def write_rows(run: RunView, stage: str, rows: Mapping[str, Any], path: Path) -> int:
    """Write rows made from a run's; see `export_rows`.

    Args:
        run: Where they come from.
        stage: Their name.
        rows: Key to row.
        path: The suffix says the format.
    """
    if path.suffix == ".jsonl":
        write_atomic(
            path,
            "".join(json.dumps({"key": key, **_mapping(row)}, ensure_ascii=False) + "\n" for key, row in rows.items()),
        )
    elif path.suffix == ".csv":
        write_atomic(path, _csv(rows))
    elif path.suffix == ".parquet":
        _write_parquet(rows, path)
    elif path.suffix in (".eval", ".json"):
        _write_inspect(run, stage, rows, path)
    else:
        raise UserError(f"{path}: expected one of {', '.join(SUFFIXES)}, got {path.suffix or 'no suffix'!r}.")
    return len(rows)


def _mapping(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, dict) else {"value": row}


def flatten(row: Any, prefix: str = "") -> dict[str, Any]:
    """Return a row without nesting: `{"scores": {"overall": 1}}` becomes `{"scores.overall": 1}`, lists JSON text."""
    flat: dict[str, Any] = {}
    for name, value in _mapping(row).items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return flat


def _csv(rows: Mapping[str, Any]) -> str:
    flat = [{"key": key, **flatten(row)} for key, row in rows.items()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in flat for name in row)))
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _write_parquet(rows: Mapping[str, Any], path: Path) -> None:
    try:
        import pandas as pd

        content = pd.DataFrame([{"key": key, **flatten(row)} for key, row in rows.items()]).to_parquet(index=False)
    except ImportError:
        raise MissingDependencyError("Parquet needs pandas and pyarrow: pip install pandas pyarrow.") from None
    write_atomic(path, content)


def _write_inspect(run: RunView, stage: str, rows: Mapping[str, Any], path: Path) -> None:
    """Fields `prompt` or `question` are the input, `messages` the dialogue, `answer` the output, `scores` the scores.

    The rest is metadata.
    """
    try:
        from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log
        from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
        from inspect_ai.scorer import Score
    except ImportError:
        raise MissingDependencyError("Inspect logs need Inspect: pip install inspect_ai.") from None

    model = str(run.config.get("model", "unreported"))
    samples = []
    for key, row in rows.items():
        rest = dict(_mapping(row))
        prompt = rest.pop("prompt", None) or rest.pop("question", "")
        answer = rest.pop("answer", "")
        scores = {
            name: Score(value=value) for name, value in (rest.pop("scores", None) or {}).items() if value is not None
        }
        messages: list[Any] = [
            (ChatMessageAssistant if said["role"] == "assistant" else ChatMessageUser)(content=said["content"])
            for said in rest.pop("messages", ())
        ]
        output = ModelOutput.from_content(model, str(answer))
        samples.append(
            EvalSample(
                id=key,
                epoch=1,
                input=str(prompt),
                target="",
                messages=messages,
                output=output,
                scores=scores,
                metadata=rest,
            )
        )
    spec = EvalSpec(
        created=str(run.record["created"]),
        task=f"rolecraft/{run.kind}/{stage}",
        dataset=EvalDataset(name=run.id, samples=len(samples)),
        model=model,
        config=EvalConfig(),
        metadata=run.record,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_eval_log(EvalLog(eval=spec, status="success", samples=samples), str(path.resolve()))

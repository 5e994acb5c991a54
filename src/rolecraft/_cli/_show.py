"""`rolecraft show RUN`: what a run directory holds and where it stands, also while it runs."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import cell_text, print_json, print_table
from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft._run import RunView

VERDICT_COLUMNS = (
    "role", "verdict", "strength", "reason", "shape", "baseline", "prompted", "best", "gain", "gain_low", "gain_high",
    "control_low",
)  # fmt: skip
"""What is printed of a screen's verdicts; `--json` has all of it."""


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    export: Annotated[
        Path | None,
        typer.Option(help="Write the rows of --stage to this file: .jsonl, .csv, .parquet, .eval or .json."),
    ] = None,
    stage: Annotated[str, typer.Option(help="The stage to export.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: kind, configuration, stages with counts and times, where it stands, what it found."""
    from rolecraft._run import RunStore, export_rows

    with RunStore.read(run) as view:
        if export:
            if not stage:
                raise UserError(f"--export needs --stage, one of {', '.join(view.timings()) or 'none yet'}.")
            print(f"{export_rows(view, stage, export)} rows written to {export}")
            return
        found = _describe(view)
        if json:
            print_json(found)
        else:
            _print(found)


def _describe(view: RunView) -> dict[str, Any]:
    stages = [
        {"stage": stage, **timing, "per_second": timing["units"] / timing["seconds"] if all(timing.values()) else None}
        for stage, timing in view.timings().items()
    ]
    outcome = view.directory / "outcome.json"
    return {
        **view.record,
        "directory": str(view.directory),
        "running": view.holder,
        "stages": stages,
        "verdicts": _verdicts(view),
        "outcome": json_text.loads(outcome.read_text()) if outcome.exists() else None,
        "files": sorted(path.name for path in view.directory.iterdir() if not path.name.startswith((".", "run."))),
    }


def _verdicts(view: RunView) -> list[dict[str, Any]]:
    """The table of a screen that has scored answers."""
    if view.kind != "screen" or not view.count("scores0"):
        return []
    from rolecraft import screening

    return screening.verdict_table(view)


def _print(found: dict[str, Any]) -> None:
    state = f"running in process {found['running']}" if found["running"] else "not running"
    print(f"{found['directory']}: {found['kind']} {found['id']}, {state}")
    print(f"started {found['created']}, resumed {len(found['resumed'])} times, configuration {found['config_hash']}")
    print_table(
        [{"field": name, "value": value} for name, value in found["config"].items()], ["field", "value"], wrap=["value"]
    )
    print_table(found["stages"], ["stage", "units", "seconds", "per_second"])
    if found["verdicts"]:
        columns = [name for name in VERDICT_COLUMNS if name in found["verdicts"][0]]
        print_table(found["verdicts"], columns, wrap=["reason"])
    if found["outcome"]:
        outcome = found["outcome"]
        effect = outcome["effect"]
        figures = ", ".join(
            f"{name} {cell_text(effect[name])}" for name in ("estimate", "low", "high") if name in effect
        )
        print(f"verdict: {outcome['verdict']} ({figures}) {outcome['note']}".rstrip())
    if found["files"]:
        print(f"files: {', '.join(found['files'])}")

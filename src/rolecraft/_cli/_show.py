"""`rolecraft show RUN`: what a run directory holds and where it stands, also while it runs."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping
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
    episode: Annotated[str, typer.Option(help="Print the transcript of one episode, as in roles/0.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: kind, configuration, stages with counts and times, where it stands, what it found."""
    from rolecraft._run import RunStore, export_rows

    with RunStore.read(run) as view:
        if export and view.kind == "simulation" and not stage:
            from rolecraft.simulate import export_episodes

            print(f"{export_episodes(view, export)} rows written to {export}")
            return
        if export:
            if not stage:
                raise UserError(f"--export needs --stage, one of {', '.join(view.timings()) or 'none yet'}.")
            print(f"{export_rows(view, stage, export)} rows written to {export}")
            return
        if episode:
            _show_episode(view, episode, json)
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
        "simulation": _simulation(view),
        "outcome": json_text.loads(outcome.read_text()) if outcome.exists() else None,
        "files": sorted(path.name for path in view.directory.iterdir() if not path.name.startswith((".", "run."))),
    }


def _verdicts(view: RunView) -> list[dict[str, Any]]:
    """The table of a screen that has scored answers."""
    if view.kind != "screen" or not view.count("scores0"):
        return []
    from rolecraft import screening

    return screening.verdict_table(view)


def _simulation(view: RunView) -> dict[str, Any] | None:
    """What came out of a simulation so far."""
    if view.kind != "simulation":
        return None
    from rolecraft._cli._simulate import describe

    return describe(view)


def _show_episode(view: RunView, key: str, as_json: bool) -> None:
    from rolecraft.simulate import read_episode

    if view.kind != "simulation":
        raise UserError(f"{view.directory}: a run of kind {view.kind!r} has no episodes; --episode is for simulations.")
    episode = read_episode(view, key)
    if as_json:
        print_json(episode.row())
        return
    print(f"{key} in {episode.world}, seed {episode.seed}: {episode.ended}")
    for turn in episode.turns:
        role = f" ({episode.roles[turn.agent]})" if turn.agent in episode.roles else ""
        print(f"\n--- step {turn.step}, {turn.agent}{role} sees\n{turn.observation}")
        for receipt in turn.receipts:
            if not receipt.accepted:
                print(f"refused: {receipt.action!r}: {receipt.reason}")
        for line in _asides(turn.notes):
            print(line)
        print(f"--> {turn.action}" + (" (random: nothing tried was legal)" if turn.fallback else ""))
    print(f"\nrewards: {', '.join(f'{agent} {value:g}' for agent, value in episode.rewards.items())}")
    if episode.outcome:
        print(f"outcome: {', '.join(f'{name} {cell_text(value)}' for name, value in episode.outcome.items())}")


def _asides(notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield what came to an agent from outside its world, and what became of its reply."""
    for order in notes.get("interventions", {}).get("applied", ()):
        detail = next((f": {order[name]}" for name in ("text", "role", "factor", "action") if name in order), "")
        yield f"intervention {order['id']}, {order['what']}{detail}"
    if notes.get("held"):
        yield f"held to its role: {notes['held']}"
    for reason in notes.get("failures", ()):
        yield f"no reply: {reason}"
    drift = notes.get("drift")
    if drift and (drift["projection"] is not None or drift["score"] is not None):
        limit, drifted = (drift["state"] or {}).get("limit"), (drift["state"] or {}).get("drifted")
        yield (
            f"in role {drift['role']}: projection {cell_text(drift['projection'])}, score {cell_text(drift['score'])}, "
            f"limit {cell_text(limit)}" + (" DRIFTED" if drifted else "")
        )


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
    if found["simulation"]:
        from rolecraft._cli._simulate import print_summary

        print_summary(found["simulation"])
    if found["outcome"]:
        outcome = found["outcome"]
        effect = outcome["effect"]
        figures = ", ".join(
            f"{name} {cell_text(effect[name])}" for name in ("estimate", "low", "high") if name in effect
        )
        print(f"verdict: {outcome['verdict']} ({figures}) {outcome['note']}".rstrip())
    if found["files"]:
        print(f"files: {', '.join(found['files'])}")

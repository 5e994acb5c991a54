"""`rolecraft show RUN`: what a run directory holds and where it stands, also while it runs."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._marl import describe as describe_teams
from rolecraft._cli._marl import has_teams, print_team_episode, print_teams
from rolecraft._cli._output import cell_text, print_json, print_table
from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft._run import RunView
    from rolecraft.simulate import UnfinishedEpisode
    from rolecraft.worlds import Turn

VERDICT_COLUMNS = (
    "role", "verdict", "strength", "reason", "shape", "baseline", "prompted", "best", "gain", "gain_low", "gain_high",
    "control_low",
)  # fmt: skip
"""What is printed of a screen's verdicts; `--json` has all of it."""


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows of --stage to this file: .jsonl, .csv, .parquet, .eval or .json; or an episode: .gif."
        ),
    ] = None,
    stage: Annotated[str, typer.Option(help="The stage to export.")] = "",
    episode: Annotated[
        str, typer.Option(help="Print one episode, also an unfinished one: roles/0; of trained teams: ARM/SEED/NUMBER.")
    ] = "",
    checkpoint: Annotated[
        int | None,
        typer.Option(help="Of a training, also of teams: play an episode with these weights now; -1: the last."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a run: kind, configuration, stages with counts and times, where it stands, what it found."""
    from rolecraft._run import RunStore, export_rows

    with RunStore.read(run) as view:
        if (episode or checkpoint is not None) and has_teams(view):
            print_team_episode(view, checkpoint, episode, export, json)
            return
        if export and view.kind == "simulation" and not stage:
            from rolecraft.simulate import export_episodes

            print(f"{export_episodes(view, export)} rows written to {export}")
            return
        if export:
            if not stage:
                raise UserError(f"--export needs --stage, one of {', '.join(view.timings()) or 'none yet'}.")
            print(f"{export_rows(view, stage, export)} rows written to {export}")
            return
        if view.kind == "training" and (episode or checkpoint is not None):
            from rolecraft._cli._train import print_episodes

            print_episodes(view, checkpoint, episode, json)
            return
        if checkpoint is not None:
            raise UserError(
                f"{run}: a run of kind {view.kind!r} has no checkpoints; --checkpoint is for training runs."
            )
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
        "training": _training(view),
        "teams": describe_teams(view) if has_teams(view) else [],
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


def _training(view: RunView) -> dict[str, Any] | None:
    """The curves of a training run so far."""
    if view.kind != "training":
        return None
    from rolecraft._cli._train import describe

    return describe(view)


def _show_episode(view: RunView, key: str, as_json: bool) -> None:
    from rolecraft.simulate import read_episode, read_episodes, read_unfinished

    if view.kind != "simulation":
        raise UserError(f"{view.directory}: a run of kind {view.kind!r} has no episodes; --episode is for simulations.")
    if key not in read_episodes(view):
        _show_unfinished(view, read_unfinished(view, key), key, as_json)
        return
    episode = read_episode(view, key)
    if as_json:
        print_json(episode.row())
        return
    by = f" ({episode.limit})" if episode.limit else ""
    print(f"{key} in {episode.world}, seed {episode.seed}: {episode.ended}{by}")
    _print_turns(episode.turns, episode.roles)
    print(f"\nrewards: {', '.join(f'{agent} {value:g}' for agent, value in episode.rewards.items())}")
    if episode.outcome:
        print(f"outcome: {', '.join(f'{name} {cell_text(value)}' for name, value in episode.outcome.items())}")


def _show_unfinished(view: RunView, episode: UnfinishedEpisode, key: str, as_json: bool) -> None:
    """Show what was played so far, and why there is no more of it."""
    if as_json:
        print_json(episode.row())
        return
    steps = len({turn.step for turn in episode.turns})
    print(f"{key} in {episode.world}, seed {episode.seed}: UNFINISHED, {steps or 'no'} steps stored so far")
    _print_turns(episode.turns, episode.roles)
    for lost in episode.failures:
        print(f"\nno answer at step {lost['step']}, {lost['agent']}: {lost['reason']}")
    after = f"process {view.holder} works on it" if view.holder else "go on with rolecraft simulate --resume"
    print(f"\nunfinished: neither rewards nor outcome yet; {after}")


def _print_turns(turns: Sequence[Turn], roles: Mapping[str, str]) -> None:
    """Print who saw what and did what."""
    for turn in turns:
        role = f" ({roles[turn.agent]})" if turn.agent in roles else ""
        print(f"\n--- step {turn.step}, {turn.agent}{role} sees\n{turn.observation}")
        for receipt in turn.receipts:
            if not receipt.accepted:
                print(f"refused: {receipt.action!r}: {receipt.reason}")
        for line in _asides(turn.notes):
            print(line)
        print(f"--> {turn.action}" + (" (random: nothing tried was legal)" if turn.fallback else ""))


def _asides(notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield what came to an agent from outside its world, and what became of its reply."""
    for order in notes.get("interventions", {}).get("applied", ()):
        detail = next((f": {order[name]}" for name in ("text", "role", "factor", "action") if name in order), "")
        yield f"intervention {order['id']}, {order['what']}{detail}"
    yield from _refusals(notes.get("guard") or {})
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


def _refusals(said: Mapping[str, Any]) -> Iterator[str]:
    for row in said.get("decisions", ()):
        if row["effect"] != "allow":
            tried = cell_text(row.get("arguments", ""))
            yield f"guard, {row['effect']}: {row['tool']} {tried} by {row['rule']}: {row['reason']}"
    if said.get("passed"):
        yield "the guard let nothing pass that was tried: the turn was passed"


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
    if found["training"]:
        from rolecraft._cli._train import print_training

        print_training(found["training"])
    if found["teams"]:
        print_teams(found["teams"])
    if found["outcome"]:
        outcome = found["outcome"]
        effect = outcome["effect"]
        figures = ", ".join(
            f"{name} {cell_text(effect[name])}" for name in ("estimate", "low", "high") if name in effect
        )
        print(f"verdict: {outcome['verdict']} ({figures}) {outcome['note']}".rstrip())
    if found["files"]:
        print(f"files: {', '.join(found['files'])}")

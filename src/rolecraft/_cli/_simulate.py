"""`rolecraft simulate`: screened roles act in a world."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import print_json, print_table

if TYPE_CHECKING:
    from rolecraft.simulate import SimulationStudy

REWARD_COLUMNS = ("arm", "agent", "mean", "low", "high", "n", "gain", "gain_low", "gain_high")


def simulate(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file: world, lock, arms.")],
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the cast, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let screened roles act: the same casts and seeds in every arm, every step stored as it is taken."""
    from rolecraft.errors import UserError
    from rolecraft.simulate import Simulation, read_episodes, read_study, summarise

    if resume and out is None:
        raise UserError("--resume goes on with the run in --out; give --out RUN.")
    read = read_study(study)
    if dry_run:
        _forecast(read, json)
        return
    directory = out or Path("runs") / time.strftime(f"%Y%m%d-%H%M%S-{read.world.name}")
    with Simulation.open(read, directory, resume=resume or out is None) as simulation:
        simulation.run()
        found = summarise(read_episodes(simulation.store))
    if json:
        print_json({"run": str(directory), **found})
        return
    print_summary(found)
    print(f"run: {directory}   a transcript: rolecraft show {directory} --episode {next(iter(read.arms))}/0")


def print_summary(found: dict[str, Any]) -> None:
    """Print what `summarise` returns."""
    arms = [{**arm, **{name: _counts(arm[name]) for name in ("ended", "outcomes")}} for arm in found["arms"]]
    print_table(arms, ["arm", "episodes", "steps", "fallbacks", "ended", "outcomes"], wrap=["outcomes"])
    print_table(found["rewards"], REWARD_COLUMNS, title="reward per agent; gain over the last arm, paired by episode")
    if found["unscreened"]:
        print(f"NOT SCREENED, let in by allow_unscreened: {', '.join(found['unscreened'])}")


def _counts(counted: dict[str, int]) -> str:
    return "; ".join(f"{name}: {count}" for name, count in counted.items())


def _forecast(study: SimulationStudy, as_json: bool) -> None:
    from rolecraft.models import load_model
    from rolecraft.simulate import check_study

    cast, seatings = check_study(study, load_model(study.model))
    parts = [
        {
            "role": name,
            "played_by": part.conditioner,
            "strength": part.strength,
            "screened": part.screened,
            "note": part.note,
        }
        for name, part in cast.items()
    ]
    games = [{"episode": number, **seating} for number, seating in enumerate(seatings)]
    if as_json:
        print_json({"cast": parts, "episodes": games, "arms": dict(study.arms)})
        return
    print_table(parts, ["role", "played_by", "strength", "screened", "note"], wrap=["note"])
    print_table(games[:8], list(games[0]))
    print(f"{len(study.arms)} arms of {len(games)} episodes, at most {study.limit} steps each. Nothing was run.")

"""`rolecraft train`: language policies learn in worlds, under roles."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import cell_text, print_json, print_table
from rolecraft._cli._simulate import print_decisions

if TYPE_CHECKING:
    from rolecraft._run import RunView
    from rolecraft.learning.trainer import TrainStudy

MARKS = "▁▂▃▄▅▆▇█"
FIRST_CURVES = (
    "outcome/",
    "length",
    "entropy",
    "kl",
    "grad_norm",
    "advantage_square",
    "clipped",
    "value_loss",
    "guard_",
)
"""Which figures of the iterations are printed, by how their names begin (after a policy's name); `--json` has all."""


def train(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file: world, policy, credit, train.")],
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, show the sizes, and stop.")] = False,
    budget: Annotated[str, typer.Option(help="Stop at 100ktok or 10min.")] = "",
    workers: Annotated[str, typer.Option(help="Who plays: a number of processes, ray or ray://HOST:PORT.")] = "1",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train policies that act in a world: every iteration stored, a killed run goes on with the same numbers."""
    from rolecraft._run import Budget
    from rolecraft.errors import UserError
    from rolecraft.learning.trainer import TrainingRun, read_train_study

    if resume and out is None:
        raise UserError("--resume goes on with the run in --out; give --out RUN.")
    limit = Budget.parse(budget) if budget else None
    read = read_train_study(study)
    if dry_run:
        _describe_study(read, json)
        return
    directory = out or Path("runs") / time.strftime("%Y%m%d-%H%M%S-train")
    with TrainingRun.open(read, directory, budget=limit, resume=resume or out is None, workers=workers) as run:
        run.run()
        found = describe(run.store)
    if json:
        print_json({"run": str(directory), **found})
        return
    print_training(found)
    print(f"run: {directory}   an episode of the trained policy: rolecraft show {directory} --checkpoint -1")


def describe(run: RunView) -> dict[str, Any]:
    """Return the curves of a training run, and its checkpoints."""
    from rolecraft.guard import summarise_decisions
    from rolecraft.learning.trainer import checkpoints, read_curves, read_refusals
    from rolecraft.learning.trainer._run import FOLDER

    found = [int(folder.name) for folder in checkpoints(run.directory / FOLDER)]
    refused = summarise_decisions(read_refusals(run))
    return {**read_curves(run), "checkpoints": found, **({"guard": refused} if refused else {})}


def print_training(found: Mapping[str, Any]) -> None:
    """Print what `describe` returns: where each figure began, where it stands, and its course."""
    print_table(curves(found["iterations"], FIRST_CURVES), ["figure", "first", "last", "course"], title="training")
    if found["evaluations"]:
        print_table(curves(found["evaluations"]), ["figure", "first", "last", "course"], title="evaluation")
    if found.get("guard"):
        print_decisions(found["guard"], refused=True)
    for row in found["alarms"][-3:]:
        print(f"alarm in iteration {row['iteration']}: {'; '.join(row['alarms'])}" + (" STOPPED" * row["stopped"]))
    print(f"checkpoints: {', '.join(map(str, found['checkpoints'])) or 'none'}")


def curves(rows: Sequence[Mapping[str, Any]], begin: Sequence[str] = ("",), width: int = 40) -> list[dict[str, Any]]:
    """Return each figure's first and last value and its course in `width` marks, from its least to its largest."""
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name != "iteration"
        and any(name.startswith(one) or f"/{one}" in name for one in begin)
        and "credit/" not in name
    ]
    found = []
    for name in names:
        values = [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]
        if values:
            found.append({"figure": name, "first": values[0], "last": values[-1], "course": _course(values, width)})
    return found


def print_episodes(run: RunView, checkpoint: int | None, episode: str, as_json: bool) -> None:
    """Print an episode that was stored, as in `12/0`, or one played with a checkpoint's weights now."""
    from rolecraft.errors import UserError
    from rolecraft.learning.trainer import play_checkpoint
    from rolecraft.learning.trainer._run import EPISODES
    from rolecraft.worlds import Episode

    if checkpoint is not None:
        number = None if checkpoint < 0 else checkpoint
        found = play_checkpoint(run, number, seed=int(episode or 0))[0]
    else:
        row = run.get(EPISODES, episode)
        if row is None:
            raise UserError(
                f"{run.directory}: no episode {episode!r} is stored; give ITERATION/NUMBER, as in "
                f"{next(iter(run.rows(EPISODES)), '0/0')}, or --checkpoint N to play one."
            )
        found = Episode.from_row(row)
    if as_json:
        print_json(found.row())
        return
    print(f"{found.world}, seed {found.seed}: {found.ended}")
    for turn in found.turns:
        chance = sum(turn.notes.get("logp", ()))
        print(f"--- step {turn.step}, {turn.agent} sees\n{turn.observation}")
        print(f"--> {turn.action}   (log-probability {chance:.2f})")
    print(f"rewards: {', '.join(f'{agent} {value:g}' for agent, value in found.rewards.items())}")


def _course(values: Sequence[float], width: int) -> str:
    size = -(-len(values) // width)
    means = [sum(part) / len(part) for part in (values[at : at + size] for at in range(0, len(values), size))]
    low, high = min(means), max(means)
    return "".join(MARKS[int((value - low) / (high - low or 1) * (len(MARKS) - 1))] for value in means)


def _describe_study(study: TrainStudy, as_json: bool) -> None:
    from rolecraft.learning.trainer import make_trainer

    trainer = make_trainer(study)
    policies = [
        {"policy": name, "parameters": sum(each.numel() for each in policy.parameters().values()), "base": policy.base}
        for name, policy in trainer.policies.items()
    ]
    config = study.train
    if as_json:
        rule = [repr(stage) for stage in trainer.credit]
        print_json({"policies": policies, "episodes": config.iterations * config.episodes, "credit": rule})
        return
    print_table(policies, ["policy", "parameters", "base"], wrap=["base"])
    print(f"{config.iterations} iterations of {config.episodes} episodes, at most {config.limit} steps each.")
    print(f"credit: {' -> '.join(cell_text(repr(stage)) for stage in trainer.credit)}. Nothing was run.")

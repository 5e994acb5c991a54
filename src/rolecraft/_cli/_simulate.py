"""`rolecraft simulate`: screened roles act in a world."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import print_json, print_table

if TYPE_CHECKING:
    from rolecraft._run import RunView
    from rolecraft.guard import RoleGuards
    from rolecraft.simulate import SimulationStudy

ARM_COLUMNS = ("arm", "episodes", "steps", "fallbacks", "failures", "interventions", "refused", "ended", "outcomes")
GUARD_COLUMNS = ("arm", "role", "tool", "allow", "block", "stop", "rules")
DRIFT_COLUMNS = (
    "arm", "role", "messages", "read", "projection", "score", "agents", "drifted", "control", "held",
)  # fmt: skip
REWARD_COLUMNS = ("arm", "agent", "mean", "low", "high", "n", "gain", "gain_low", "gain_high")


def simulate(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file: world, lock, arms.")],
    lock: Annotated[Path | None, typer.Option(help="The roles.lock to cast from. Default: the study's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the cast and the cost, and stop.")
    ] = False,
    budget: Annotated[str, typer.Option(help="Stop at 100ktok, 10min or 2.50usd. Default: the study's.")] = "",
    workers: Annotated[str, typer.Option(help="1, a number of processes, ray, or ray://HOST:PORT.")] = "1",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let screened roles act: the same casts and seeds in every arm, every step stored as it is taken."""
    from rolecraft._run import Budget
    from rolecraft.errors import ServerError, UserError
    from rolecraft.simulate import Simulation, read_failures, read_study

    if resume and out is None:
        raise UserError("--resume goes on with the run in --out; give --out RUN.")
    limit = Budget.parse(budget) if budget else None
    read = read_study(study, lock)
    if dry_run:
        _forecast(read, json)
        return
    directory = out or Path("runs") / time.strftime(f"%Y%m%d-%H%M%S-{read.world.name}")
    options: dict[str, Any] = {"workers": workers, "budget": limit, "resume": resume or out is None}
    with Simulation.open(read, directory, **options) as simulation:
        simulation.run()
        found, failed = describe(simulation.store), simulation.failed
        reason = read_failures(simulation.store)[-1]["reason"] if failed else ""
    if json:
        print_json({"run": str(directory), **found})
    else:
        print_summary(found)
        print(f"run: {directory}   a transcript: rolecraft show {directory} --episode {next(iter(read.arms))}/0")
    if failed:
        raise ServerError(
            f"{len(failed)} episodes could not be finished ({', '.join(failed[:8])}), the last because: {reason} All "
            f"else is stored; go on with --out {directory} --resume."
        )


def describe(run: RunView) -> dict[str, Any]:
    """Return what came out of a simulation so far: figures, drift, failures, cost."""
    from rolecraft import simulate as parts
    from rolecraft.guard import summarise_decisions

    decided = summarise_decisions(parts.read_decisions(run))
    return {
        **parts.summarise(parts.read_episodes(run)),
        **({"guard": decided} if decided else {}),
        "drift": parts.summarise_drift(parts.read_drift(run)),
        "failures": parts.read_failures(run),
        "cost": parts.read_cost(run),
    }


def print_summary(found: dict[str, Any]) -> None:
    """Print what `describe` returns."""
    arms = [{**arm, **{name: _counts(arm[name]) for name in ("ended", "outcomes")}} for arm in found["arms"]]
    columns = [name for name in ARM_COLUMNS if name != "refused" or any(name in arm for arm in arms)]
    print_table(arms, columns, wrap=["outcomes"])
    if any(row["low"] or row["high"] for row in found["rewards"]):  # nothing is earned in every world
        print_table(
            found["rewards"], REWARD_COLUMNS, title="reward per agent; gain over the last arm, paired by episode"
        )
    if found["drift"]:
        rows = [{**row, "held": _counts(row["held"])} for row in found["drift"]]
        print_table(rows, DRIFT_COLUMNS, title="drift; control: what a random direction would have called drifted")
    if found.get("guard"):
        print_decisions(found["guard"])
    if found["failures"]:
        print_table(found["failures"], ["arm", "number", "step", "agent", "reason"], title="ended by a failure",
                    wrap=["reason"])  # fmt: skip
    print(cost_line(found["cost"]))
    if found["unscreened"]:
        print(f"NOT SCREENED, let in by allow_unscreened: {', '.join(found['unscreened'])}")


def print_decisions(found: Sequence[Mapping[str, Any]], refused: bool = False) -> None:
    """Print what `rolecraft.guard.summarise_decisions` returns, perhaps of refusals alone."""
    rows = [{**row, "rules": _counts(row["rules"])} for row in found]
    columns = [name for name in GUARD_COLUMNS if name != "stop" or any(row["stop"] for row in rows)]
    columns = [name for name in columns if name != "arm" or "arm" in rows[0]]
    columns = [name for name in columns if name != "allow" or not refused]
    title = "what guards decided (decisions.jsonl); rules: which refused, and how often"
    print_table(rows, columns, title=title, wrap=["rules"])


def cost_line(cost: dict[str, Any]) -> str:
    """Return what was used, or will be, in one line."""
    money = "" if cost["usd"] is None else f", {cost['usd']:.4f} USD"
    seconds = cost.get("seconds")
    return (
        f"{cost['decisions']:,} decisions, {cost['prompt_tokens']:,} prompt tokens, {cost['new_tokens']:,} new tokens"
        f"{money}{'' if seconds is None else f', about {seconds / 60:.1f} minutes here'}"
    )


def _counts(counted: dict[str, int]) -> str:
    return "; ".join(f"{name}: {count}" for name, count in counted.items())


def _named(guards: RoleGuards, role: str) -> str:
    policy = guards.policies.get(role)
    return f"{policy.name} {policy.version}" if policy else "none"


def _forecast(study: SimulationStudy, as_json: bool) -> None:
    from dataclasses import asdict

    from rolecraft.simulate import Forecast, check_study, study_model
    from rolecraft.simulate._cast import study_guards

    model = study_model(study)
    cast, seatings = check_study(study, model)
    guards = study_guards(study, cast)
    forecast = asdict(Forecast.of(study, cast, model))
    parts = [
        {
            "role": name,
            "played_by": part.conditioner,
            "strength": part.strength,
            **({"guard": _named(guards, name)} if guards else {}),
            "screened": part.screened,
            "note": part.note,
        }
        for name, part in cast.items()
    ]
    games = [{"episode": number, **seating} for number, seating in enumerate(seatings)]
    if as_json:
        print_json({"cast": parts, "episodes": games, "arms": dict(study.arms), "forecast": forecast})
        return
    print_table(parts, list(parts[0]), wrap=["note"])
    print_table(games[:8], list(games[0]))
    limits = {"steps": study.limit, **study.limits.model_dump(exclude_none=True)}
    most = ", ".join(f"{value:,} {name}" for name, value in limits.items())
    print(f"{len(study.arms)} arms of {len(games)} episodes, at most {most} each.")
    print(f"At most about {cost_line(forecast)}; budget: {study.budget or 'none'}. Nothing was run.")

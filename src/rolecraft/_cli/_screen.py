"""`rolecraft screen`: from an inventory of roles to verdicts, a report and `roles.lock`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rolecraft.screening import ScreenConfig, ScreenResults


def screen(
    inventory: Annotated[str, typer.Argument(help="Bundled name (core-v1), a file, or a folder of role files.")],
    model: Annotated[str, typer.Option(help="Policy to be steered: local:smollm2 or local:PATH.")] = "local:smollm2",
    roles: Annotated[str, typer.Option(help="Ids, separated by commas. Default: the whole inventory.")] = "",
    strengths: Annotated[str, typer.Option(help="Multiples of each role's direction.")] = "1,1.5,2,2.5",
    control: Annotated[str, typer.Option(help="axis, random, shuffled, or none.")] = "axis,random,shuffled",
    questions: Annotated[int, typer.Option(help="How many evaluation questions.")] = 12,
    questions_from: Annotated[str, typer.Option(help="Question bank: bundled name or file.")] = "questions-v1",
    seeds: Annotated[str, typer.Option(help="Each seed decodes anew.")] = "0,1,2",
    reextract: Annotated[bool, typer.Option("--reextract", help="Extract a direction per seed too.")] = False,
    reference: Annotated[
        str,
        typer.Option(help="Prompt of the reference: line, instruction, or reference (with examples)."),
    ] = "instruction",
    site: Annotated[int | None, typer.Option(help="Decoder block to steer. Default: half depth.")] = None,
    preset: Annotated[str, typer.Option(help="How directions are extracted.")] = "cast-vectors",
    instructions: Annotated[int, typer.Option(help="Instructions per role used to extract.")] = 3,
    role_questions: Annotated[int, typer.Option(help="Role-specific questions used to extract.")] = 10,
    accept: Annotated[
        str, typer.Option(help="Pairs an extraction keeps: likelihood-margin or all.")
    ] = "likelihood-margin",
    max_tokens: Annotated[int, typer.Option(help="New tokens per answer.")] = 32,
    judge: Annotated[str, typer.Option(help="offline, or the model string of an LLM judge.")] = "offline",
    second_judge: Annotated[str, typer.Option(help="A second judge that must see the gain too.")] = "",
    allow_uncalibrated: Annotated[
        bool, typer.Option("--allow-uncalibrated", help="Take LLM judges without calibrating them first.")
    ] = False,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Stop cells once the interval has decided.")] = False,
    round_questions: Annotated[int, typer.Option(help="Questions per round of --adaptive.")] = 4,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: a new one under runs/.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost and stop.")] = False,
    budget: Annotated[str, typer.Option(help="Stop at 100ktok, 10min, or both by a comma.")] = "",
    workers: Annotated[str, typer.Option(help="1, a number of processes, ray, or ray://HOST:PORT.")] = "1",
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Screen roles: extract a direction per role, sweep its strength beside controls, judge, decide, lock."""
    from rolecraft._run import Budget
    from rolecraft.errors import UserError
    from rolecraft.screening import ScreenConfig, ScreenRun

    if resume and out is None:
        raise UserError("--resume goes on with the run in --out; give --out RUN.")
    config = ScreenConfig(
        inventory=inventory,
        roles=_words(roles),
        model=model,
        questions=questions,
        questions_from=questions_from,
        strengths=_numbers("strengths", strengths),
        control=() if control == "none" else _words(control),  # type: ignore[arg-type]  # the grid checks the names
        seeds=tuple(int(seed) for seed in _numbers("seeds", seeds)),
        reextract=reextract,
        reference=reference,  # type: ignore[arg-type]  # checked by the configuration
        site=site,
        preset=preset,
        instructions=instructions,
        role_questions=role_questions,
        accept=accept,  # type: ignore[arg-type]  # checked by the configuration
        max_tokens=max_tokens,
        judge=judge,
        second_judge=second_judge,
        allow_uncalibrated=allow_uncalibrated,
        adaptive=adaptive,
        round_questions=round_questions,
    )
    limit = Budget.parse(budget) if budget else None
    if dry_run:
        _forecast(config, as_json)
        return
    directory = out or Path("runs") / time.strftime("%Y%m%d-%H%M%S-screen")
    with ScreenRun.open(config, directory, workers=workers, budget=limit, resume=resume or out is None) as run:
        run.run()
        results = run.results()
    _finish(results, directory, as_json)


def _finish(results: ScreenResults, directory: Path, as_json: bool) -> None:
    from rich.console import Console

    from rolecraft.report import terminal_table, write_report
    from rolecraft.screening import verdict_rows

    report = write_report(results, directory / "report.html")
    if as_json:
        typer.echo(json.dumps(verdict_rows(results.verdicts), indent=1))
    else:
        Console().print(terminal_table(results))
        for note in results.notes:
            typer.echo(f"- {note}")
    typer.echo(f"report: {report}\nlock:   {directory / 'roles.lock'}", err=as_json)


def _forecast(config: ScreenConfig, as_json: bool) -> None:
    from rolecraft.models import load_model
    from rolecraft.screening import Forecast, Plan

    plan = Plan.build(config)
    forecast = Forecast.of(plan, load_model(config.model))
    if as_json:
        typer.echo(json.dumps(asdict(forecast)))
        return
    minutes = "" if forecast.seconds is None else f", about {forecast.seconds / 60:.0f} minutes here"
    typer.echo(
        f"{len(plan.inventory)} roles: {forecast.responses:,} responses to extract directions, "
        f"{forecast.answers:,} answers, {forecast.scored:,} scores; "
        f"at most {forecast.new_tokens:,} new tokens{minutes}. Nothing was run."
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(name: str, text: str) -> tuple[float, ...]:
    from rolecraft.errors import GridError

    try:
        return tuple(float(word) for word in _words(text))
    except ValueError:
        raise GridError(f"{name}: expected numbers separated by commas, got {text!r}.") from None

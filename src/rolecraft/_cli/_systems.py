"""`rolecraft systems`: list the published systems, show one, run its studies, print the index."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli import _errors
from rolecraft._cli._output import cell_text, print_json, print_table
from rolecraft.errors import RolecraftError, UserError

if TYPE_CHECKING:
    from rolecraft.systems import Entry, Outcome, StudyConfig

app = typer.Typer(
    help="The published systems: list, show, run their studies, print the index.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_systems(json: Json = False) -> None:
    """List the systems."""
    from rolecraft.systems import entries

    rows = [{**vars(entry.system), "studies": list(entry.studies)} for entry in entries()]
    if json:
        print_json(rows)
    else:
        print_table(rows, ["number", "name", "family", "arxiv", "studies", "claim"], wrap=["claim", "studies"])


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or number of a system.")], json: Json = False
) -> None:
    """Show a system: paper, claim, what is exact and what is adapted, and the configuration of its studies."""
    from rolecraft.systems import find_entry

    entry = find_entry(name)
    document = (entry.module.__doc__ or "").strip()
    configs = {study: _config_rows(entry.studies[study].config()) for study in entry.studies}
    if json:
        print_json({**vars(entry.system), "document": document, "file": entry.module.__file__, "studies": configs})
        return
    system = entry.system
    print(f"{system.id}: {system.title} ({system.source})\n\n{document}\n")
    print(f"claim:     {system.claim}\npublished: {system.published}\nfile:      {entry.module.__file__}\n")
    for study, rows in configs.items():
        print_table(rows, ["field", "default"], title=f"study {study} (change by --set FIELD=VALUE)", wrap=["default"])


def _config_rows(config: StudyConfig) -> list[dict[str, Any]]:
    from rolecraft._run import plain

    return [{"field": field.name, "default": plain(getattr(config, field.name))} for field in fields(config)]


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Names or numbers of systems.")] = None,
    study: Annotated[str, typer.Option(help="Which study of the system; all of them if left out.")] = "",
    full: Annotated[bool, typer.Option("--full", help="The paper's size instead of the small study.")] = False,
    seeds: Annotated[str, typer.Option(help="Seeds instead of the study's, as in 0,1,2 or 101-110.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the configuration.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; runs/<time>-<name> if left out.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Keep the outcome in results/.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Run the studies of every system.")] = False,
    json: Json = False,
) -> None:
    """Run the studies of one system or more, and print their verdicts."""
    from rolecraft.systems import entries, find_entry
    from rolecraft.systems._studies import make_config

    if bool(names) == every:
        raise UserError("expected the name of a system, or --all; `rolecraft systems list` lists them.")
    chosen = [
        (entry, name)
        for entry in (entries() if every else [find_entry(name) for name in names or []])
        for name in ([study] if study else entry.studies)
    ]
    if out and len(chosen) > 1:
        raise UserError("--out is one run directory, but there are several studies to run; name one by --study.")
    if resume and not out:
        raise UserError("--resume goes on with the run in --out; say which one.")
    configs = [
        make_config(entry.study(name).config, full=full, seeds=_seeds(seeds), settings=settings or [])
        for entry, name in chosen
    ]
    options = [*(["--full"] if full else []), *(["--seeds", seeds] if seeds else []), *(["--record"] if record else [])]
    options += [part for setting in settings or [] for part in ("--set", setting)]
    outcomes, failed = [], []
    for (entry, name), config in zip(chosen, configs, strict=True):
        _errors.resume_arguments = ["systems", "run", entry.system.name, "--study", name, *options]
        try:
            outcome = _run_one(entry, name, config, out, full=full, resume=resume, record=record)
        except RolecraftError as error:
            if len(chosen) == 1:
                raise
            failed.append(f"{entry.system.id} ({name}): {error}")
            print(f"error: {failed[-1]}", file=sys.stderr)
            continue
        outcomes.append({"number": entry.system.number, "name": entry.system.name, **vars(outcome)})
        if not json:
            _print_outcome(entry, outcome)
    if json:
        print_json(outcomes)
    if failed:
        raise RolecraftError(f"{len(failed)} of {len(chosen)} studies failed:\n  " + "\n  ".join(failed))


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(",") if text else []:
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UserError(f"--seeds {text!r}: expected whole numbers and ranges, as in 0,1,2 or 0-2.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return seeds


def _run_one(
    entry: Entry, study: str, config: StudyConfig, out: Path | None, *, full: bool, resume: bool, record: bool
) -> Outcome:
    from rolecraft.systems import _studies

    suffix = f"-{study}" if len(entry.studies) > 1 else ""
    directory = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{entry.system.name}{suffix}"
    print(f"{entry.system.id}, study {study}: {directory}", file=sys.stderr)
    outcome = _studies.run_study(entry, study, config, directory, full=full, resume=resume)
    if record:
        print(f"recorded in {_studies.record(entry, outcome)}", file=sys.stderr)
    return outcome


def _print_outcome(entry: Entry, outcome: Outcome) -> None:
    rows = [
        {"arm": arm, "metric": metric, **figures}
        for arm, metrics in outcome.rows.items()
        for metric, figures in metrics.items()
    ]
    print_table(rows, ["arm", "metric", "mean", "low", "high", "n"], title=f"{entry.system.id}, study {outcome.study}")
    print(f"claim:     {entry.system.claim}\npublished: {entry.system.published}")
    print(f"effect:    {_interval_text(outcome.effect)}")
    if outcome.control:
        print(f"control:   {_interval_text(outcome.control)}")
    print(f"verdict:   {outcome.verdict}" + (f" ({outcome.note})" if outcome.note else ""))
    print(f"time:      {outcome.minutes:.1f} min, {len(outcome.seeds)} seeds\n")


def _interval_text(figures: dict[str, Any]) -> str:
    estimate, low, high = (cell_text(figures.get(name)) for name in ("estimate", "low", "high"))
    return f"{estimate} [{low}, {high}], n = {figures.get('n')}"


@app.command()
def table(
    results: Annotated[Path | None, typer.Option(help="Folder of recorded results.")] = None, json: Json = False
) -> None:
    """Print every study with ours, interval, seeds, minutes and verdict; --json has claim, published and commit too."""
    from rolecraft.systems._table import table_rows

    rows = table_rows(results)
    if json:
        print_json(rows)
    else:
        print_table(rows, ["number", "name", "study", "ours", "interval", "seeds", "minutes", "verdict"])

"""`rolecraft measure RUN`: scores what was said and done in a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rolecraft._cli._output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = (
    "arm", "role", "figure", "estimate", "low", "high", "n", "missing", "gain", "gain_low", "gain_high", "p", "choices",
    "top", "note",
)  # fmt: skip
ALWAYS = COLUMNS[:7]


def measure(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of `rolecraft simulate`.")],
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME",
            help="actions, diversity, offline-judge, llm-judge, drift or questionnaire; may be given several times. "
            "Default: show what has been measured.",
        ),
    ] = None,
    judge: Annotated[str, typer.Option(help="Model string of the LLM judge.")] = "",
    allow_uncalibrated: Annotated[
        bool, typer.Option("--allow-uncalibrated", help="Take an LLM judge without calibrating it first.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a finished simulation; scores are kept in the run, and what has been measured is not measured again."""
    from rolecraft._run import RunStore
    from rolecraft.errors import UserError
    from rolecraft.simulate import MEASURES, measure_run, read_measures
    from rolecraft.simulate._measure import check_finished

    if measures:
        try:
            measure_run(run, measures, judge=judge, allow_uncalibrated=allow_uncalibrated)
        except KeyboardInterrupt:
            typer.echo("interrupted; every score so far is stored: give the same command again to go on.", err=True)
            raise typer.Exit(130) from None
    with RunStore.read(run) as view:
        check_finished(view)
        found = [part for part in read_measures(view) if not measures or part["measure"] in measures]
    if not found and not measures:
        raise UserError(
            f"{run}: nothing has been measured yet; give --with NAME, one or more of {', '.join(MEASURES)}."
        )
    lacking = [name for name in measures or () if name not in {part["measure"] for part in found}]
    if json:
        print_json({"run": str(run), "measures": found, "nothing": lacking})
        return
    print_measures(found)
    for name in lacking:
        print(f"{name}: nothing in this run" + ("; it was played without a drift watch." if name == "drift" else "."))


def print_measures(found: Sequence[dict[str, Any]]) -> None:
    """Print what `read_measures` returns, a table per measure."""
    for part in found:
        columns = [
            name for name in COLUMNS if name in ALWAYS or any(row.get(name) not in (None, "") for row in part["rows"])
        ]
        print_table(part["rows"], columns, title=f"{part['measure']} ({part['by']})", wrap=["figure", "top", "note"])
        for note in part["notes"]:
            print(note)

"""The verdicts as a table for the terminal: it fits 80 columns, and `rolecraft show` and the report have the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rolecraft.report._roles import ordered
from rolecraft.report._words import LABELS, VERDICTS, headline, interval, signed, strength_text

if TYPE_CHECKING:
    from rich.table import Table

    from rolecraft.screening._results import ScreenResults

STYLES = {"PASS": "green", "PASS_PROMPT_ONLY": "yellow", "FLAG": "red"}


def terminal_table(results: ScreenResults) -> Table:
    """Return the verdicts as a table: by verdict, then by gain, with the counts in a sentence below.

    The gain is that of the overall score over the unsteered model, at the strength that passes or came closest; the
    reason is the code of the first thing that kept the role from passing by steering.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = ordered(results.verdicts)
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(headline(counts)), caption_justify="left")
    table.add_column("role", max_width=24, overflow="ellipsis", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("not steered because", overflow="fold")
    for row in rows:
        table.add_row(
            Text(row["role"]),
            Text(LABELS[row["verdict"]], style=STYLES[row["verdict"]]),
            Text(strength_text(row["strength"])),
            Text(f"{signed(row['gain'], 0)} {interval(row['gain_low'], row['gain_high'], 0)}".strip()),
            Text(str(row["reason"] or "").replace("_", " ")),
        )
    return table

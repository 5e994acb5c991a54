"""The verdicts as a table for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rolecraft.report._roles import ordered
from rolecraft.report._words import LABELS, MISSING, VERDICTS, headline, interval, signed, split_reasons, strength_text

if TYPE_CHECKING:
    from rich.table import Table

    from rolecraft.screening._results import ScreenResults

STYLES = {"PASS": "green", "PASS_PROMPT_ONLY": "yellow", "FLAG": "red"}


def terminal_table(results: ScreenResults) -> Table:
    """Return the verdicts as a table: by verdict, then by gain, with the counts in a sentence below."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = ordered(results.verdicts)
    counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=Text(headline(counts)), caption_justify="left")
    table.add_column("role", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("strength", justify="right")
    table.add_column("gain over baseline", justify="right")
    table.add_column("above control", justify="right")
    table.add_column("shape")
    table.add_column("reason", overflow="fold")
    for row in rows:
        reasons = split_reasons(str(row["failed"] or ""))
        table.add_row(
            Text(row["role"]),
            Text(LABELS[row["verdict"]], style=STYLES[row["verdict"]]),
            Text(strength_text(row["strength"])),
            Text(f"{signed(row['gain'])} {interval(row['gain_low'], row['gain_high'])}".strip()),
            Text(signed(row["control"])),
            Text(row["shape"] or MISSING),
            Text(reasons[0].title if reasons else ""),
        )
    return table

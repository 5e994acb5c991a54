"""What the commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(value: Any) -> None:
    """Print JSON on stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, title: str | None = None, wrap: Sequence[str] = ()
) -> None:
    """Print rows as a table on stdout.

    Args:
        rows: One mapping per row.
        columns: Which fields, in which order.
        title: Printed above.
        wrap: The columns with running text, which may be narrowed and wrapped.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        number = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(
            name.replace("_", " "), justify="right" if number else "left", no_wrap=name not in wrap, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell_text(row.get(name))) for name in columns))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, highlight=False).print(table)


def cell_text(value: Any) -> str:
    """Return what a person reads for a value."""
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(cell_text(item) for item in value)
    return str(value)

"""The published systems, one file each, and the frame that runs, records and tabulates their studies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.systems._base import Result, Study, StudyConfig, System, Verdict, missing_rows, put_row

if TYPE_CHECKING:
    from rolecraft.systems._registry import Entry, entries, find_entry
    from rolecraft.systems._studies import Outcome, run_study
    from rolecraft.systems._table import read_outcomes, table_rows

__all__ = [
    "Entry",
    "Outcome",
    "Result",
    "Study",
    "StudyConfig",
    "System",
    "Verdict",
    "entries",
    "find_entry",
    "missing_rows",
    "put_row",
    "read_outcomes",
    "run_study",
    "table_rows",
]

_LAZY = {
    "Entry": "_registry",
    "Outcome": "_studies",
    "entries": "_registry",
    "find_entry": "_registry",
    "read_outcomes": "_table",
    "run_study": "_studies",
    "table_rows": "_table",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

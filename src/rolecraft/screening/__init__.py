"""Screening, the main job: a grid of answers, scored, decided role by role, and written to `roles.lock`."""

from rolecraft.screening._adaptive import Adaptive
from rolecraft.screening._config import ScreenConfig
from rolecraft.screening._forecast import Forecast
from rolecraft.screening._grid import CONTROLS, Cell, Grid
from rolecraft.screening._lock import Admission, LockedRole, RolesLock, load_lock
from rolecraft.screening._plan import Plan
from rolecraft.screening._results import Geometry, ScreenResults, curves, load_results, verdict_rows, verdict_table
from rolecraft.screening._runner import ScreenRun
from rolecraft.screening._screen import Outcome, Screen
from rolecraft.screening._verdict import DECISION_COLUMNS, VerdictRule, decide, stability

__all__ = [
    "CONTROLS",
    "DECISION_COLUMNS",
    "Adaptive",
    "Admission",
    "Cell",
    "Forecast",
    "Geometry",
    "Grid",
    "LockedRole",
    "Outcome",
    "Plan",
    "RolesLock",
    "Screen",
    "ScreenConfig",
    "ScreenResults",
    "ScreenRun",
    "VerdictRule",
    "curves",
    "decide",
    "load_lock",
    "load_results",
    "stability",
    "verdict_rows",
    "verdict_table",
]

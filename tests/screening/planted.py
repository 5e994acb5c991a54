"""Planted truth for the screen's rules: answers whose scores follow a known dose-response."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from rolecraft.measures import DIMENSIONS
from rolecraft.screening import Cell, Grid, Outcome

STRENGTHS = (1.0, 1.5, 2.0, 2.5)
Curve = Callable[[str, float], float]

CURVES: dict[str, Curve] = {
    "rising": lambda arm, s: {"role": 30 + 15 * s, "prompted": 85}.get(arm, 30),
    "peaked": lambda arm, s: {"role": {1.0: 50, 1.5: 70, 2.0: 55, 2.5: 40}.get(s, 0), "prompted": 85}.get(arm, 30),
    "anti": lambda arm, s: {"role": 80 - 12 * s, "prompted": 85}.get(arm, 75),
    "flat": lambda arm, s: {"prompted": 30}.get(arm, 30),
    "prompt-only": lambda arm, s: {"prompted": 80}.get(arm, 30),
    "control-as-good": lambda arm, s: {"role": 30 + 15 * s, "random": 30 + 15 * s, "prompted": 85}.get(arm, 30),
}


def grid(roles: tuple[str, ...] = tuple(CURVES), questions: int = 12, seeds: tuple[int, ...] = (0,)) -> Grid:
    ids = tuple(f"q{number:03}" for number in range(questions))
    return Grid(roles, STRENGTHS, ("random",), ids, seeds)


def outcome(cell: Cell, noise: float = 3.0, **health: object) -> Outcome:
    """Score one cell: the planted mean, a shift per question that all arms share, and noise per cell."""
    shared = np.random.default_rng(list(cell.question.encode())).normal(0, 8)
    own = np.random.default_rng(list(cell.key.encode())).normal(0, noise, len(DIMENSIONS))
    mean = CURVES[cell.role](cell.arm, cell.strength)
    return Outcome("text", dict(zip(DIMENSIONS, np.clip(mean + shared + own, 0, 100), strict=True)), **health)


def table(layout: Grid, **options: object) -> pd.DataFrame:
    from rolecraft.screening import Screen

    screen = Screen(layout)
    cells = screen.ask()
    screen.tell(cells, [outcome(cell, **options) for cell in cells])
    return screen.table()

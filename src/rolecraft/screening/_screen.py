"""The screen as a loop that its user owns: ask for cells, answer and score them anyhow, tell the outcomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from rolecraft.errors import GridError
from rolecraft.measures import DIMENSIONS
from rolecraft.screening._adaptive import Adaptive, open_strengths
from rolecraft.screening._grid import Cell, Grid
from rolecraft.screening._verdict import VerdictRule, decide

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Outcome:
    """What came of one cell."""

    answer: str
    scores: dict[str, float | None]
    """Dimension to 0..100; None or absent where the judge gave nothing."""
    unique_bigram_ratio: float = 1.0
    degenerate: bool = False
    leakage: bool = False
    words: int = 0
    perplexity: float | None = None
    note: str = ""
    """Why the answer or a score is missing."""


@dataclass
class Screen:
    """Hands out the cells of a grid and gathers their outcomes.

    Example:
        ```python
        screen = Screen(Grid(("pirate",), (1.0, 2.0), ("random",), ("q001", "q002", "q003")))
        while cells := screen.ask():
            screen.tell(cells, [play_and_judge(cell) for cell in cells])
        print(screen.verdicts())
        ```
    """

    grid: Grid
    rule: VerdictRule = field(default_factory=VerdictRule)
    adaptive: Adaptive | None = None
    """None asks the full grid at once."""
    unsteerable: Collection[str] = ()
    """Roles without a direction: only their prompted reference and the baseline are asked."""
    outcomes: dict[Cell, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rounds = self.adaptive.rounds(self.grid.questions) if self.adaptive else [self.grid.questions]

    def ask(self) -> list[Cell]:
        """Return the cells of the next round that have no outcome yet; empty when the screen is complete."""
        for number, questions in enumerate(self._rounds):
            wanted = self._open_cells(number, questions)
            missing = [cell for cell in wanted if cell not in self.outcomes]
            if missing:
                return missing
        return []

    def tell(self, cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> None:
        """Record outcomes, in the order of their cells; a cell that was told before keeps its first outcome.

        Raises:
            GridError: If the counts differ or a cell is not in the grid.
        """
        if len(cells) != len(outcomes):
            raise GridError(
                f"tell: got {len(cells)} cells and {len(outcomes)} outcomes; expected one outcome per cell."
            )
        for cell, outcome in zip(cells, outcomes, strict=True):
            if cell.role not in self.grid.roles or cell.question not in self.grid.questions:
                raise GridError(f"tell: cell {cell.key} is not in this screen's grid.")
            self.outcomes.setdefault(cell, outcome)

    def table(self, before_round: int | None = None) -> pd.DataFrame:
        """Return one row per outcome, the table that `decide` takes; or only those of the rounds before one."""
        questions = {question for cut in self._rounds[:before_round] for question in cut}
        return outcome_table({cell: o for cell, o in self.outcomes.items() if cell.question in questions})

    def verdicts(self) -> pd.DataFrame:
        """Return one row per role: see `decide`."""
        return decide(self.table(), self.rule)

    @property
    def saved(self) -> float:
        """Share of the full grid's cells that were never asked, 0..1."""
        full = sum(self._steered(cell) for cell in self.grid.cells())
        return 1 - len(self.outcomes) / full

    def _steered(self, cell: Cell) -> bool:
        return cell.arm in ("prompted", "baseline") or cell.role not in self.unsteerable

    def _open_cells(self, number: int, questions: tuple[str, ...]) -> list[Cell]:
        cells = [cell for cell in self.grid.cells(questions) if self._steered(cell)]
        if not number:
            return cells
        still_open: dict[str, frozenset[float] | None] = dict.fromkeys(self.grid.roles, frozenset(self.grid.strengths))
        for look in range(1, number + 1):
            now = open_strengths(self.table(before_round=look), self.rule, looks=len(self._rounds))
            for role, before in still_open.items():
                after = now[role]
                still_open[role] = None if before is None or after is None else before & after
        return [
            cell
            for cell in cells
            if (strengths := still_open[cell.role]) is not None and (cell.strength == 0 or cell.strength in strengths)
        ]


def outcome_table(outcomes: Mapping[Cell, Outcome]) -> pd.DataFrame:
    """Return one row per outcome: the cell, the six dimensions (NaN where missing), health, answer and note."""
    import pandas as pd

    rows = [
        asdict(cell)
        | {name: outcome.scores.get(name) for name in DIMENSIONS}
        | {name: value for name, value in vars(outcome).items() if name != "scores"}
        for cell, outcome in outcomes.items()
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(DIMENSIONS, float)) if rows else pd.DataFrame()

"""Maps with blocks, plans of moves through them, and what following a plan earns.

The rewards are those of the planning task of AT-GRPO (arXiv 2510.11062).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from rolecraft.errors import UserError

MOVES: Mapping[str, tuple[int, int]] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
"""Row and column that a move adds."""
TRIES = 2000

Cell = tuple[int, int]


@dataclass(frozen=True)
class PlanRewards:
    """What moves and ends are worth; the defaults are the paper's."""

    step: float = -0.01
    """Of a move that can be made."""
    invalid: float = -0.10
    """Of a move into a block or off the grid, which moves nobody."""
    goal: float = 1.0
    shortest: float = 0.5
    """On top, if no more moves than necessary were made since the start of the episode."""
    fail: float = -1.0
    """Of a plan of the last turn that does not reach the goal."""
    nothing: float = -2.0
    """Of an answer without a plan that can be read."""
    shaping: float = 1.0
    """Factor of gamma * Phi(after) - Phi(before) for every move, Phi being minus the Manhattan distance to the goal."""
    gamma: float = 0.99


@dataclass(frozen=True)
class Walk:
    """What became of a plan."""

    end: Cell
    arrived: bool
    moves: int
    """How many were made or tried before the goal was reached or the plan ended."""
    invalid: int
    """How many of them moved nobody."""
    reward: float


@dataclass(frozen=True)
class PlanGrid:
    """A map.

    Raises:
        UserError: If its rows are not of equal length, hold other signs than `.` and `#`, or start or goal is no free
            cell; or if the goal cannot be reached.
    """

    rows: tuple[str, ...]
    """Of `.`, free, and `#`, a block."""
    start: Cell
    goal: Cell

    def __post_init__(self) -> None:
        if not self.rows or len({len(row) for row in self.rows}) != 1 or set("".join(self.rows)) - set(".#"):
            raise UserError(f"a map has rows of equal length of '.' and '#', got {list(self.rows)}.")
        for name, cell in (("start", self.start), ("goal", self.goal)):
            if not self.free(cell):
                raise UserError(f"the {name} {cell} of a map must be a free cell of it.")
        if self.start == self.goal or self.start not in self.distances:
            raise UserError(f"the goal {self.goal} must be another cell than the start {self.start}, and reachable.")

    @classmethod
    def read(cls, rows: Sequence[str]) -> Self:
        """Read a map that shows the start as `S` and the goal as `G`; spaces between cells are left out.

        Raises:
            UserError: If there is not one of each, or the map is no map.
        """
        plain = [row.replace(" ", "") for row in rows]
        cells = {sign: [(r, row.index(sign)) for r, row in enumerate(plain) if sign in row] for sign in "SG"}
        if any("".join(plain).count(sign) != 1 for sign in "SG"):
            raise UserError(f"a map shows one start 'S' and one goal 'G', got {plain}.")
        free = tuple(row.replace("S", ".").replace("G", ".") for row in plain)
        return cls(free, cells["S"][0], cells["G"][0])

    @classmethod
    def random(cls, rng: np.random.Generator, size: int, block_ratio: float, nearest: int, farthest: int) -> Self:
        """Draw a square map whose goal is from `nearest` to `farthest` moves away.

        Raises:
            UserError: If 2000 maps had no such goal.
        """
        for _ in range(TRIES):
            blocks = rng.random((size, size)) < block_ratio
            free = np.argwhere(~blocks)
            if len(free) < 2:
                continue
            start, goal = ((int(free[i, 0]), int(free[i, 1])) for i in rng.choice(len(free), 2, replace=False))
            rows = tuple("".join(".#"[blocked] for blocked in row) for row in blocks.astype(int))
            if nearest <= _distances(rows, goal).get(start, -1) <= farthest:
                return cls(rows, start, goal)
        raise UserError(
            f"{TRIES} maps of size {size} and block_ratio {block_ratio} had no goal {nearest} to {farthest} moves "
            "away; make the map larger, the block ratio smaller or the plans longer."
        )

    @cached_property
    def distances(self) -> Mapping[Cell, int]:
        """Fewest moves to the goal from every cell that has a way to it."""
        return _distances(self.rows, self.goal)

    def free(self, cell: Cell) -> bool:
        """Whether a cell lies on the map and is no block."""
        r, c = cell
        return 0 <= r < len(self.rows) and 0 <= c < len(self.rows[0]) and self.rows[r][c] == "."

    def shortest_plan(self, cell: Cell | None = None) -> tuple[str, ...]:
        """Return a plan of fewest moves from a cell (the start) to the goal; of equals, the first in the order UDLR."""
        at, plan = self.start if cell is None else cell, []
        while self.distances[at]:
            move = next(m for m in MOVES if self.distances.get(_moved(at, m), 1 << 30) < self.distances[at])
            plan.append(move)
            at = _moved(at, move)
        return tuple(plan)

    def walk(self, plan: Sequence[str], at: Cell, rewards: PlanRewards, *, before: int = 0, last: bool = False) -> Walk:
        """Follow a plan.

        Args:
            plan: Moves.
            at: Where it begins.
            rewards: What it earns.
            before: Moves made in earlier turns, which count for the shortest way.
            last: Whether the episode ends with this plan.
        """
        here, earned, invalid, moves = at, 0.0, 0, 0
        for move in plan:
            moves += 1
            there = _moved(here, move)
            valid = self.free(there)
            invalid += not valid
            there = there if valid else here
            earned += rewards.step if valid else rewards.invalid
            earned += rewards.shaping * (self._away(here) - rewards.gamma * self._away(there))
            here = there
            if here == self.goal:
                earned += rewards.goal
                earned += rewards.shortest if before + moves == self.distances[self.start] else 0.0
                break
        arrived = here == self.goal
        return Walk(here, arrived, moves, invalid, earned + (rewards.fail if last and not arrived else 0.0))

    def render(self, at: Cell | None = None) -> str:
        """Draw the map: `S` where the team stands (or starts), `G` the goal, cells separated by spaces."""
        cells = [list(row) for row in self.rows]
        cells[self.goal[0]][self.goal[1]] = "G"
        r, c = self.start if at is None else at
        cells[r][c] = "S"
        return "\n".join(" ".join(row) for row in cells)

    def _away(self, cell: Cell) -> int:
        return abs(cell[0] - self.goal[0]) + abs(cell[1] - self.goal[1])


def read_plan(text: str, longest: int) -> tuple[str, ...] | None:
    """Return the moves of a plan, None if the text is anything else than 1 to `longest` moves parted by spaces."""
    words = text.split()
    return tuple(words) if 1 <= len(words) <= longest and all(word in MOVES for word in words) else None


def _moved(cell: Cell, move: str) -> Cell:
    r, c = MOVES[move]
    return cell[0] + r, cell[1] + c


def _distances(rows: Sequence[str], goal: Cell) -> dict[Cell, int]:
    """Search breadth first from the goal."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for move in MOVES:
            r, c = there = _moved(cell, move)
            if 0 <= r < len(rows) and 0 <= c < len(rows[0]) and rows[r][c] == "." and there not in found:
                found[there] = found[cell] + 1
                queue.append(there)
    return found

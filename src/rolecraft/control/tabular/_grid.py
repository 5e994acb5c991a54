"""Grid worlds drawn in text, as MDPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.control.tabular._mdp import Floats, Mdp
from rolecraft.errors import UserError

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Row and column steps of the actions up, right, down, left."""
ARROWS = "^>v<"


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid world and its MDP."""

    mdp: Mdp
    rows: tuple[str, ...]
    """The map: `#` wall, `S` start, `G` goal, any other character floor."""
    cells: tuple[tuple[int, int], ...]
    """Row and column of each state; walls are no states."""

    def state(self, row: int, column: int) -> int:
        """Return the state of a cell.

        Raises:
            UserError: If there is a wall, or the cell lies outside.
        """
        if (row, column) not in self.cells:
            raise UserError(f"cell ({row}, {column}) is a wall or lies outside of the {len(self.rows)} rows.")
        return self.cells.index((row, column))

    def states_of(self, marks: str) -> list[int]:
        """Return the states whose cell has one of these characters."""
        return [state for state, (row, column) in enumerate(self.cells) if self.rows[row][column] in marks]

    def render(self, values: ArrayLike | None = None, *, policy: ArrayLike | None = None, width: int = 6) -> str:
        """Draw the map, numbers per state, or the likeliest action per state as an arrow.

        Args:
            values: Shape (S,), printed with two digits.
            policy: Shape (S, A).
            width: Characters per number.

        Raises:
            UserError: If a shape does not fit, or both are given.
        """
        states = len(self.cells)
        if values is not None and policy is not None:
            raise UserError("render: give values or a policy, not both.")
        texts = [list(row) for row in self.rows]
        if values is not None:
            array = _shaped(values, (states,), "values", "(S,)")
            texts = [[("#" * (mark == "#")).rjust(width) for mark in row] for row in self.rows]
            for (row, column), value in zip(self.cells, array, strict=True):
                texts[row][column] = f"{value:{width}.2f}"
        elif policy is not None:
            array = _shaped(policy, (states, len(MOVES)), "policy", "(S, A)")
            for (row, column), action in zip(self.cells, array.argmax(-1), strict=True):
                if self.rows[row][column] != "G":
                    texts[row][column] = ARROWS[action]
        return "\n".join("".join(row) for row in texts)


def _shaped(array: ArrayLike, shape: tuple[int, ...], name: str, symbolic: str) -> Floats:
    found = np.asarray(array, dtype=float)
    if found.shape != shape:
        raise UserError(f"{name}: expected shape {symbolic} = {shape}, got {found.shape}.")
    return found


def grid_mdp(
    rows: str | Sequence[str],
    *,
    discount: float = 0.99,
    slip: float = 0.0,
    step_reward: float = -1.0,
    goal_reward: float = 0.0,
    cell_rewards: Mapping[str, float] | None = None,
) -> Grid:
    """Build a grid world; a move against a wall or the edge stays in its cell.

    Args:
        rows: The map, as lines of one text or one text each: `#` wall, `S` start (several: each equally likely), `G`
            goal (the episode ends there), any other character floor.
        discount: In [0, 1).
        slip: Probability in [0, 1] that a move goes in a direction drawn from all four.
        step_reward: Paid for every step.
        goal_reward: Paid on top for the step that enters a goal.
        cell_rewards: Character to what is paid on top for entering such a cell.

    Raises:
        UserError: If the map is empty or ragged, has no start, or a number is out of range.
    """
    lines = tuple(line.strip() for line in rows.strip().splitlines()) if isinstance(rows, str) else tuple(rows)
    if not lines or not lines[0] or len({len(line) for line in lines}) != 1:
        raise UserError(f"grid: expected lines of one length, got lengths {[len(line) for line in lines]}.")
    if not 0 <= slip <= 1:
        raise UserError(f"slip: expected a probability in [0, 1], got {slip}.")
    cells = tuple((r, c) for r, line in enumerate(lines) for c, mark in enumerate(line) if mark != "#")
    marks = [lines[r][c] for r, c in cells]
    if "S" not in marks:
        raise UserError("grid: there is no start; mark a cell with S.")
    paid = {"G": goal_reward, **(cell_rewards or {})}
    entered = np.array([paid.get(mark, 0.0) for mark in marks])
    transitions = _grid_transitions(cells, slip)
    goal = np.array([mark == "G" for mark in marks])
    transitions[goal] = np.eye(len(cells))[goal][:, None]
    rewards = np.where(goal[:, None], 0.0, step_reward + transitions @ entered)
    start = np.array([mark == "S" for mark in marks], dtype=float)
    return Grid(Mdp(transitions, rewards, start / start.sum(), discount, goal), lines, cells)


def _grid_transitions(cells: tuple[tuple[int, int], ...], slip: float) -> Floats:
    number = {cell: state for state, cell in enumerate(cells)}
    moved = np.zeros((len(cells), len(MOVES), len(cells)))
    for (row, column), state in number.items():
        for action, (down, right) in enumerate(MOVES):
            moved[state, action, number.get((row + down, column + right), state)] = 1.0
    slipped: Floats = (1 - slip) * moved + slip * moved.mean(1, keepdims=True)
    return slipped

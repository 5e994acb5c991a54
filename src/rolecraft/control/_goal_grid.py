"""A walled grid whose free cells are the goals: the small world of all-goals learning (arXiv 2605.23551)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._run import derive_seed
from rolecraft.control._array_env import ArrayEnv
from rolecraft.control._goals import GoalSet, mask_goals
from rolecraft.errors import UserError

Array = jax.Array
MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
"""Up, right, down, left: changes of row and column."""


class GridState(NamedTuple):
    """Where the agent is, and how many steps it has made."""

    cell: Array
    """Row and column, (2,) integers."""
    steps: Array


def grid_map(size: int, walls: float, seed: int) -> np.ndarray[Any, Any]:
    """Draw a map: True where a cell is free, and reachable from every other free cell.

    Args:
        size: Rows and columns.
        walls: Share of walls in [0, 1); cells outside the largest connected part become walls too.
        seed: Of the map.

    Raises:
        UserError: If the size is below 2, the share is out of range, or fewer than two cells are left.
    """
    from scipy.ndimage import label

    if size < 2 or not 0 <= walls < 1:
        raise UserError(f"expected a map of at least 2 x 2 and walls in [0, 1), got {size} and {walls}.")
    drawn = np.random.default_rng(derive_seed("goal-grid", seed)).random((size, size)) >= walls
    parts, _ = label(drawn)
    free: np.ndarray[Any, Any] = parts == np.bincount(parts[drawn], minlength=2)[1:].argmax() + 1
    if free.sum() < 2:
        raise UserError(f"map {seed} of {size} x {size} with walls {walls} leaves too few free cells; lower walls.")
    return free


def distances(free: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the steps between all pairs of free cells, shape (N, N), cells in row-major order; the exact optimum."""
    cells = np.argwhere(free)
    index = {tuple(cell): i for i, cell in enumerate(cells.tolist())}
    steps = np.full((len(cells), len(cells)), np.inf)
    for start in range(len(cells)):
        steps[start, start], border = 0, [start]
        while border:
            following = []
            for here in border:
                for move in MOVES:
                    there = index.get(tuple((cells[here] + move).tolist()))
                    if there is not None and not np.isfinite(steps[start, there]):
                        steps[start, there] = steps[start, here] + 1
                        following.append(there)
            border = following
    return steps


def goal_grid(
    size: int = 16, walls: float = 0.3, seed: int = 0, length: int = 64
) -> tuple[ArrayEnv, GoalSet, np.ndarray[Any, Any]]:
    """Make the grid: four moves, random start, walls that hold, an episode of fixed length.

    An observation is the one-hot number of the cell, of shape (N,): the pair (x, y) as a network of few units can
    read it. A goal is the observation of its cell.

    Returns:
        The environment, its goals (the N free cells in row-major order), and the map of shape (size, size).

    Raises:
        UserError: See `grid_map`.
    """
    free = grid_map(size, walls, seed)
    cells, passable = jnp.asarray(np.argwhere(free)), jnp.asarray(np.pad(free, 1))
    moves = jnp.asarray(MOVES)

    number = jnp.asarray(np.where(free, np.cumsum(free).reshape(free.shape) - 1, 0))

    def observe(cell: Array) -> Array:
        return jax.nn.one_hot(number[cell[0], cell[1]], len(cells))

    def reset(key: Array) -> tuple[GridState, Array]:
        cell = cells[jax.random.randint(key, (), 0, len(cells))]
        return GridState(cell, jnp.zeros((), jnp.int32)), observe(cell)

    def step(key: Array, state: GridState, action: Array) -> tuple[GridState, Array, Array, Array]:
        to = state.cell + moves[action]
        cell = jnp.where(passable[to[0] + 1, to[1] + 1], to, state.cell)
        steps = state.steps + 1
        return GridState(cell, steps), observe(cell), jnp.zeros(()), steps >= length

    names = [f"cell_{row}_{column}" for row, column in np.argwhere(free).tolist()]
    goals = mask_goals(jax.vmap(observe)(cells), names)
    return ArrayEnv(f"goal-grid-{size}", reset, step, len(cells), 4, length), goals, free

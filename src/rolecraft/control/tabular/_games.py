"""Equilibria of small matrix games: exact values that learned play is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.control.tabular._mdp import Floats, check_distribution
from rolecraft.errors import RolecraftError, UserError

_SLACK = 1e-9


@dataclass(frozen=True)
class Equilibrium:
    """Mixed strategies of two players and what each of them earns."""

    row: Floats
    """Shape (m,)."""
    column: Floats
    """Shape (n,)."""
    row_value: float
    column_value: float


def solve_zero_sum(payoffs: ArrayLike) -> Equilibrium:
    """Solve a zero-sum game by linear programming (von Neumann).

    Args:
        payoffs: Shape (m, n): what the row player earns, and the column player loses.

    Raises:
        UserError: If it is no finite matrix.
    """
    matrix = _matrix(payoffs, "payoffs")
    row, value = _security(matrix)
    column, _ = _security(-matrix.T)
    return Equilibrium(row, column, value, -value)


def _security(matrix: Floats) -> tuple[Floats, float]:
    """Return the row player's maximin strategy and its value."""
    m, n = matrix.shape
    found = _linear_program(
        np.append(np.zeros(m), -1.0),
        A_ub=np.hstack([-matrix.T, np.ones((n, 1))]),
        b_ub=np.zeros(n),
        A_eq=np.append(np.ones(m), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    strategy = np.maximum(found[:m], 0.0)
    return strategy / strategy.sum(), float(found[m])


def _linear_program(objective: Floats, **constraints: Any) -> Floats:
    from scipy.optimize import linprog

    solved = linprog(objective, method="highs", **constraints)
    if solved.status != 0:
        raise RolecraftError(f"the linear program has no solution: {solved.message}")
    return np.asarray(solved.x, dtype=float)


def support_enumeration(row_payoffs: ArrayLike, column_payoffs: ArrayLike) -> list[Equilibrium]:
    """Return the equilibria of a two-player game whose supports have equal sizes: all of them if it is nondegenerate.

    The work grows exponentially with the number of actions; up to about 8 each it takes seconds.

    Args:
        row_payoffs: Shape (m, n): what the row player earns.
        column_payoffs: Shape (m, n): what the column player earns.

    Raises:
        UserError: If the shapes differ.
    """
    a, b = _two(row_payoffs, column_payoffs)
    found: list[Equilibrium] = []
    for rows, columns in _supports(*a.shape):
        x, y = _indifferent(b.T, columns, rows), _indifferent(a, rows, columns)
        if x is None or y is None:
            continue
        value, other = float(x @ a @ y), float(x @ b @ y)
        stable = (a @ y).max() <= value + 1e-7 and (x @ b).max() <= other + 1e-7
        if stable and not any(np.allclose(x, each.row) and np.allclose(y, each.column) for each in found):
            found.append(Equilibrium(x, y, value, other))
    return found


def _supports(m: int, n: int) -> Iterator[tuple[list[int], list[int]]]:
    for size in range(1, min(m, n) + 1):
        for rows in combinations(range(m), size):
            for columns in combinations(range(n), size):
                yield list(rows), list(columns)


def _indifferent(payoffs: Floats, rows: list[int], columns: list[int]) -> Floats | None:
    """Return the law over `columns` that pays all `rows` alike, or None if there is no single one."""
    size = len(rows)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size], system[:size, size], system[size, :size] = payoffs[np.ix_(rows, columns)], -1.0, 1.0
    if np.linalg.matrix_rank(system) <= size:
        return None
    weights = np.linalg.solve(system, np.append(np.zeros(size), 1.0))[:size]
    if weights.min() < -_SLACK:
        return None
    law = np.zeros(payoffs.shape[1])
    law[columns] = np.maximum(weights, 0.0)
    law /= law.sum()
    return law


def stackelberg(leader_payoffs: ArrayLike, follower_payoffs: ArrayLike) -> Equilibrium:
    """Return the leader's best mixed commitment, where the follower answers best ties in the leader's favour.

    One linear program per answer of the follower (Conitzer and Sandholm 2006).

    Args:
        leader_payoffs: Shape (m, n): what the leader, who picks the row, earns.
        follower_payoffs: Shape (m, n): what the follower, who picks the column, earns.

    Raises:
        UserError: If the shapes differ.
    """
    a, b = _two(leader_payoffs, follower_payoffs)
    n = a.shape[1]
    best: Equilibrium | None = None
    for answer in range(n):
        law = _commitment(a, b, answer)
        if law is None:
            continue
        value = float(law @ a[:, answer])
        if best is None or value > best.row_value + _SLACK:
            best = Equilibrium(law, np.eye(n)[answer], value, float(law @ b[:, answer]))
    if best is None:  # some answer is best against any commitment, so this says that the solver failed
        raise RolecraftError("no commitment was found; the payoffs may be too large for the solver's tolerance.")
    return best


def _commitment(a: Floats, b: Floats, answer: int) -> Floats | None:
    """Return the leader's best law among those to which `answer` is a best answer; None if there is none."""
    from scipy.optimize import linprog

    m = len(a)
    solved = linprog(
        -a[:, answer], A_ub=(b - b[:, [answer]]).T, b_ub=np.zeros(b.shape[1]), A_eq=np.ones((1, m)), b_eq=[1.0],
        bounds=[(0, None)] * m, method="highs",
    )  # fmt: skip
    if solved.status != 0:
        return None
    law: Floats = np.maximum(np.asarray(solved.x, dtype=float), 0.0)
    law /= law.sum()
    return law


def exploitability(
    row: ArrayLike, column: ArrayLike, row_payoffs: ArrayLike, column_payoffs: ArrayLike | None = None
) -> float:
    """Return what both players together would gain by their best answers: 0 at an equilibrium, else above 0.

    Args:
        row: Shape (m,), the row player's mixed strategy.
        column: Shape (n,), the column player's.
        row_payoffs: Shape (m, n).
        column_payoffs: Shape (m, n); None: zero-sum.

    Raises:
        UserError: If shapes do not fit or a strategy is no distribution.
    """
    a, b = _two(row_payoffs, -np.asarray(row_payoffs, dtype=float) if column_payoffs is None else column_payoffs)
    x, y = np.asarray(row, dtype=float), np.asarray(column, dtype=float)
    if x.shape != a.shape[:1] or y.shape != a.shape[1:]:
        raise UserError(f"strategies: expected shapes (m,) and (n,) with (m, n) = {a.shape}, got {x.shape}, {y.shape}.")
    check_distribution(x, "row", ())
    check_distribution(y, "column", ())
    return float((a @ y).max() - x @ a @ y + (x @ b).max() - x @ b @ y)


def symmetric_equilibria(payoffs: ArrayLike) -> list[Floats]:
    """Return the strategies, of shape (m,), that are equilibria of a symmetric game against themselves.

    Args:
        payoffs: Shape (m, m): what the row player earns; the column player earns the transpose.

    Raises:
        UserError: If the matrix is not square.
    """
    matrix = _matrix(payoffs, "payoffs")
    if matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"payoffs: a symmetric game needs a square matrix of shape (m, m), got {matrix.shape}.")
    m, found = len(matrix), list[Floats]()
    for size in range(1, m + 1):
        for support in combinations(range(m), size):
            law = _indifferent(matrix, list(support), list(support))
            if law is not None and (matrix @ law).max() <= law @ matrix @ law + 1e-7:
                found += [] if any(np.allclose(law, each) for each in found) else [law]
    return found


def _matrix(payoffs: ArrayLike, name: str) -> Floats:
    matrix = np.asarray(payoffs, dtype=float)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise UserError(f"{name}: expected finite numbers of shape (m, n), got shape {matrix.shape}.")
    return matrix


def _two(first: ArrayLike, second: ArrayLike) -> tuple[Floats, Floats]:
    a, b = _matrix(first, "the first player's payoffs"), _matrix(second, "the second player's payoffs")
    if a.shape != b.shape:
        raise UserError(f"payoffs: expected one shape (m, n) for both players, got {a.shape} and {b.shape}.")
    return a, b

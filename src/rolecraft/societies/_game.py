"""Symmetric games between two players: payoffs with named strategies, risk dominance, the prisoner's dilemma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Game:
    """A symmetric two-player game in normal form."""

    payoffs: Floats
    """Shape (strategies, strategies): what the row strategy gets when it meets the column strategy."""
    names: tuple[str, ...]
    """One per strategy."""

    def __init__(self, payoffs: ArrayLike, names: Sequence[str] | None = None) -> None:
        """Check the payoffs and freeze a copy of them.

        Args:
            payoffs: Shape (strategies, strategies), finite.
            names: Of the strategies; `0`, `1`, ... if left out.

        Raises:
            UserError: If the payoffs are not square or not finite, or names are missing, extra or repeated.
        """
        array = np.array(payoffs, dtype=float)
        if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
            raise UserError(f"payoffs: expected shape (strategies, strategies), got {array.shape}.")
        if not np.isfinite(array).all():
            row, column = np.argwhere(~np.isfinite(array))[0]
            raise UserError(f"payoffs: row {row}, column {column} is {array[row, column]}; expected a finite number.")
        given = tuple(map(str, range(len(array)))) if names is None else tuple(names)
        if len(given) != len(array):
            raise UserError(f"names: expected {len(array)}, one per strategy, got {len(given)}.")
        if repeated := [name for name in given if given.count(name) > 1]:
            raise UserError(f"names: {repeated[0]!r} is given twice; every strategy needs a name of its own.")
        array.setflags(write=False)
        object.__setattr__(self, "payoffs", array)
        object.__setattr__(self, "names", given)

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the row of a strategy.

        Raises:
            UserError: If there is no such strategy.
        """
        if name not in self.names:
            raise UserError(
                f"strategy {name!r} is not in the game (strategies: {', '.join(self.names)})."
                + did_you_mean(name, self.names)
            )
        return self.names.index(name)

    def payoff(self, row: str, column: str) -> float:
        """Return what one strategy gets when it meets another."""
        return float(self.payoffs[self.index(row), self.index(column)])

    def restrict(self, names: Sequence[str]) -> Game:
        """Return the game among some of the strategies, in the order given."""
        rows = [self.index(name) for name in names]
        return Game(self.payoffs[np.ix_(rows, rows)], names)

    def risk_margin(self, a: str, b: str) -> float:
        """Return M[a,a] + M[a,b] - M[b,a] - M[b,b], positive if a risk-dominates b (Harsanyi and Selten 1988).

        In a large population under weak selection a then takes over b more readily than b takes over a.
        """
        return self.payoff(a, a) + self.payoff(a, b) - self.payoff(b, a) - self.payoff(b, b)

    def risk_margins(self) -> Floats:
        """Return `risk_margin` of every row strategy over every column strategy; antisymmetric."""
        own = self.payoffs.diagonal()
        margins: Floats = own[:, None] + self.payoffs - self.payoffs.T - own[None, :]
        return margins

    def describe(self) -> str:
        """Return the payoffs as a small table."""
        width = max(8, *(len(name) + 1 for name in self.names))
        head = " " * width + "".join(f"{name:>{width}}" for name in self.names)
        rows = [
            f"{name:<{width}}" + "".join(f"{value:>{width}.4g}" for value in row)
            for name, row in zip(self.names, self.payoffs, strict=True)
        ]
        return "\n".join([head, *rows])


@dataclass(frozen=True)
class Dilemma:
    """Payoffs of a prisoner's dilemma: temptation > reward > punishment > sucker."""

    reward: float = 1.0
    """R: both cooperate."""
    sucker: float = -1.0
    """S: to the one who cooperates alone."""
    temptation: float = 2.0
    """T: to the one who defects alone."""
    punishment: float = 0.0
    """P: both defect."""

    def __post_init__(self) -> None:
        """Refuse payoffs that are no dilemma.

        Raises:
            UserError: Naming the inequality that does not hold.
        """
        figures = (("T", self.temptation), ("R", self.reward), ("P", self.punishment), ("S", self.sucker))
        if not all(np.isfinite(value) for _, value in figures):
            raise UserError(f"a dilemma needs finite payoffs, got {', '.join(f'{n} = {v:g}' for n, v in figures)}.")
        for (above, high), (below, low) in pairwise(figures):
            if not high > low:
                raise UserError(
                    f"a prisoner's dilemma needs T > R > P > S, but {above} > {below} does not hold: "
                    f"{above} = {high:g}, {below} = {low:g}."
                )

    def actions(self) -> Floats:
        """Return the payoffs by action, shape (2, 2): row's and column's action, 0 to cooperate and 1 to defect."""
        return np.array([[self.reward, self.sucker], [self.temptation, self.punishment]])

    def game(self) -> Game:
        """Return the game between those who always cooperate, `C`, and those who always defect, `D`."""
        return Game(self.actions(), ("C", "D"))

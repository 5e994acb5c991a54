"""The game of threats: who cooperates, who punishes, who signals, and what each pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rolecraft.errors import UserError
from rolecraft.systems._base import StudyConfig

if TYPE_CHECKING:
    import numpy as np

    from rolecraft.societies import Dilemma, Game

STRATEGIES = ("C", "D", "SP", "TP", "FD")
WITHOUT = ("D", "C", "SP")
"""Nobody signals and nobody fears."""
UNSIGNALLED = (*WITHOUT, "FD")
"""The control: fear without anything to be afraid of."""
COOPERATORS = ("C", "SP", "TP")


def cooperates(row: str, column: str) -> bool:
    """Tell whether a strategy cooperates when it meets another."""
    return row in COOPERATORS or (row == "FD" and column == "TP")


def check_costs(epsilon: float, delta: float, theta: float) -> None:
    """Check the three costs.

    Raises:
        UserError: If one is negative or not finite.
    """
    import math

    for name, value, what in (
        ("epsilon", epsilon, "what punishing costs"),
        ("delta", delta, "what a punished defector loses"),
        ("theta", theta, "what a signal costs"),
    ):
        if not (math.isfinite(value) and value >= 0):
            raise UserError(f"{name}: {what}, at least 0; got {value}.")


def threat_game(
    dilemma: Dilemma, epsilon: float, delta: float, theta: float, names: Sequence[str] = STRATEGIES
) -> Game:
    """Return the game among some of the strategies.

    The payoff of the dilemma, less epsilon if row punishes and column defects, less delta if column punishes and row
    defects, less theta if row signals.

    Args:
        dilemma: Payoffs R, S, T, P.
        epsilon: What punishing costs the punisher.
        delta: What it costs the defector.
        theta: What a signal costs, in every interaction.
        names: Of the strategies that are there. Without D cooperation is trivial, and a warning says so.

    Raises:
        UserError: If a cost is negative or a strategy unknown.
    """
    import warnings

    import numpy as np

    from rolecraft.societies import Game

    check_costs(epsilon, delta, theta)
    if "D" not in names:
        warnings.warn("without D nothing speaks against cooperation; its level says little.", UserWarning, stacklevel=2)
    base = dilemma.actions()
    table = np.empty((len(STRATEGIES), len(STRATEGIES)))
    for i, row in enumerate(STRATEGIES):
        for j, column in enumerate(STRATEGIES):
            own, other = (int(not cooperates(*pair)) for pair in ((row, column), (column, row)))
            fine = epsilon * (row in ("SP", "TP") and bool(other)) + delta * (column in ("SP", "TP") and bool(own))
            table[i, j] = base[own, other] - fine - theta * (row == "TP")
    return Game(table, STRATEGIES).restrict(names)


def conditions(dilemma: Dilemma, epsilon: float, delta: float, theta: float) -> dict[str, bool]:
    """Return which of the paper's pairwise conditions hold, in closed form: who risk-dominates whom."""
    gap = dilemma.temptation + dilemma.punishment - dilemma.reward - dilemma.sucker
    return {
        "SP>D": delta - epsilon > gap,
        "TP>D": delta - epsilon > gap + 2 * theta,
        "TP>FD": theta < (dilemma.reward - dilemma.punishment) / 2,
    }


def interaction_tables(names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Return who cooperates, who punishes and who signals, row strategy meeting column strategy."""
    import numpy as np

    def table(does: Any) -> np.ndarray[Any, Any]:
        return np.array([[float(does(row, column)) for column in names] for row in names])

    return {
        "acts": table(cooperates),
        "punished": table(lambda row, column: row in ("SP", "TP") and not cooperates(column, row)),
        "signals": table(lambda row, column: row == "TP"),
    }


def theta_arm(theta: float) -> str:
    """Return the name of the arm of a signal's price."""
    return f"theta={theta:g}"


def unit_name(epsilon: float, delta: float) -> str:
    """Return the name of a setting in the rows."""
    return f"epsilon={epsilon:g},delta={delta:g}"


@dataclass(frozen=True)
class Payoffs(StudyConfig):
    """What both studies share: the dilemma and the grid of costs."""

    reward: float = 1.0
    sucker: float = -1.0
    temptation: float = 2.0
    punishment: float = 0.0
    epsilon: tuple[float, ...] = (1.5, 1.0, 1.0, 0.25)
    """What punishing costs, one per setting. In the first, punishing is impractical."""
    delta: tuple[float, ...] = (0.5, 1.0, 3.0, 4.0)
    """What it costs the defector, one per setting."""
    theta: tuple[float, ...] = (0.0, 0.1, 0.25, 0.4, 0.6)
    """What a signal costs; those beyond (R - P) / 2 are the control."""
    size: int = 100
    """Agents in a population. Paper: 100."""
    beta: float = 0.1
    """Intensity of selection. Paper: 0.1."""

    def __post_init__(self) -> None:
        """Check the grid."""
        if len(self.epsilon) != len(self.delta) or not self.epsilon or len(self.theta) < 2:
            raise UserError(
                "epsilon and delta need one value per setting and theta at least two, got "
                f"{len(self.epsilon)}, {len(self.delta)} and {len(self.theta)}."
            )
        if list(self.theta) != sorted(set(self.theta)):
            raise UserError(f"theta: expected different prices from low to high, got {self.theta}.")
        for epsilon, delta in self.settings:
            for theta in self.theta:
                check_costs(epsilon, delta, theta)
        if self.size < 2:
            raise UserError(f"size: a population needs at least 2 agents, got {self.size}.")
        self.dilemma()

    @property
    def settings(self) -> list[tuple[float, float]]:
        """The pairs of epsilon and delta."""
        return list(zip(self.epsilon, self.delta, strict=True))

    def dilemma(self) -> Dilemma:
        """Return the dilemma."""
        from rolecraft.societies import Dilemma

        return Dilemma(self.reward, self.sucker, self.temptation, self.punishment)

    def game(self, names: Sequence[str], epsilon: float, delta: float, theta: float) -> Game:
        """Return the game among some strategies."""
        return threat_game(self.dilemma(), epsilon, delta, theta, names)

    def arms(self) -> dict[str, tuple[tuple[str, ...], float]]:
        """Return the strategies and the signal's price of every arm."""
        priced = {theta_arm(theta): (STRATEGIES, theta) for theta in self.theta}
        return {"without": (WITHOUT, 0.0), "unsignalled": (UNSIGNALLED, 0.0), **priced}

    @classmethod
    def grid(cls) -> dict[str, Any]:
        """Return the grid of the heat maps."""
        pairs = [(0.25 * e, 0.5 * d) for e in range(1, 9) for d in range(1, 11)]
        return {
            "epsilon": tuple(e for e, _ in pairs), "delta": tuple(d for _, d in pairs),
            "theta": tuple(round(0.1 * t, 1) for t in range(11)),
        }  # fmt: skip

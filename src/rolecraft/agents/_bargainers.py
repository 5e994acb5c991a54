"""Scripted bargainers: they want a share of their own total, tough or fair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from rolecraft.agents._policies import RandomPolicy
from rolecraft.errors import UserError
from rolecraft.worlds import (
    BARGAINING_LOTS,
    BARGAINING_SEATS,
    Act,
    BargainingInstance,
    Policy,
    View,
    read_bargaining,
    standing_offer,
)


class Bargainer:
    """Accepts what is worth enough to itself; else asks for just enough, and leaves the rest to the others.

    It reads its own values and what was said, as any seat does; it makes no promises and no threats.
    """

    def __init__(self, claim: float, seats: int = 2) -> None:
        """Set what it wants.

        Args:
            claim: Share of its own total, above 0 and up to 1.
            seats: How many bargain.

        Raises:
            UserError: If the claim is out of range.
        """
        if not 0 < claim <= 1:
            raise UserError(f"claim must lie above 0 and at most at 1, got {claim!r}.")
        self.claim = claim
        self.seats = BARGAINING_SEATS[:seats]

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return Act.each(map(self._choose, views))

    def _choose(self, view: View) -> str:
        known = read_bargaining(view.observation)
        standing = standing_offer(known.said, self.seats)
        worth = BargainingInstance({view.agent: known.values})
        asked = standing is not None and view.agent not in (standing.seat, *standing.accepted)
        if standing is not None and asked and self._enough(worth, view.agent, standing.division):
            return "accept that offer"
        if asked and known.left == 1:
            return "reject that offer"
        fitting = [
            division
            for division in product(self.seats, repeat=len(BARGAINING_LOTS))
            if self._enough(worth, view.agent, division)
        ]
        fewest = min(division.count(view.agent) for division in fitting)
        least = [division for division in fitting if division.count(view.agent) == fewest]
        return " ".join(("offer", *least[int(view.rng().integers(len(least)))]))

    def _enough(self, worth: BargainingInstance, seat: str, division: tuple[str, ...]) -> bool:
        return worth.utilities(division)[seat] >= self.claim - 1e-9


def fair_bargainer(seats: int = 2) -> Bargainer:
    """Return a bargainer that wants an equal part."""
    return Bargainer(1 / seats, seats)


def tough_bargainer(seats: int = 2) -> Bargainer:
    """Return a bargainer that wants four fifths."""
    return Bargainer(0.8, seats)


def random_bargainer(seats: int = 2) -> RandomPolicy:
    """Return a bargainer that says anything that fits."""
    return RandomPolicy()


SCRIPTED_BARGAINERS: Mapping[str, Callable[[int], Policy]] = {
    "tough": tough_bargainer,
    "fair": fair_bargainer,
    "random": random_bargainer,
}
"""What makes each, from the number of seats."""

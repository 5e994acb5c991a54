"""A short negotiation over two resources that each side values in its own way; whoever gains more wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rolecraft.errors import UserError
from rolecraft.worlds._world import World

ACCEPT, DENY, PASS = "accept", "deny", "pass"


@dataclass(frozen=True)
class Offer:
    """What a player would give, and for what."""

    give: int
    what: str
    ask: int
    wanted: str

    def __str__(self) -> str:
        return f"{self.give} {self.what} for {self.ask} {self.wanted}"


class Negotiation(World):
    """Two players trade two resources; each knows what the resources are worth to itself alone.

    In turn they offer (`offer 2 wood for 1 gold` gives wood), accept or deny the offer that stands, or pass where none
    does. Another offer in answer denies. A trade that is accepted is carried out, and the game goes on to its last
    turn. Then the player whose holdings have gained more, by its own values, earns 1 and the other -1; equal gains are
    a draw. So a trade that is good for both is worth a point to one of them only. The language is closed: all that can
    be said is in `actions`, and all that is seen is made of few words, so that a tiny model can learn it.

    Chance: what both hold and how they value it, from the seed. Nobody sees the other's holdings or values.
    """

    name = "negotiation"
    agents = ("player_0", "player_1")

    def __init__(
        self,
        resources: Sequence[str] = ("wood", "gold"),
        *,
        turns: int = 6,
        holdings: tuple[int, int] = (2, 5),
        values: tuple[int, int] = (1, 5),
        most: int = 2,
        rules: bool = False,
    ) -> None:
        """Set the rules.

        Args:
            resources: Two different words.
            turns: Of both players together, at least 2.
            holdings: Least and most that a player has of a resource at the start.
            values: Least and most that one of a resource is worth to a player.
            most: How much an offer may give or ask, at least 1.
            rules: Say the rules before every observation, for models that do not learn them by playing.

        Raises:
            UserError: If the resources are not two different single words, or a number is out of range.
        """
        given = tuple(resources)
        if len(set(given)) != 2 or len(given) != 2 or any(not each.isalpha() for each in given):
            raise UserError(f"negotiation: resources are two different words, got {list(given)}.")
        if turns < 2 or most < 1:
            raise UserError(f"negotiation: turns must be at least 2 and most at least 1, got {turns} and {most}.")
        for field, (low, high) in (("holdings", holdings), ("values", values)):
            if not 0 <= low <= high:
                raise UserError(f"negotiation: {field} are a least and a most of 0 or more, got {(low, high)}.")
        self.resources, self.turns, self._told = given, turns, rules
        self._holdings, self._values, self._most = holdings, values, most
        first, second = given
        amounts = range(1, most + 1)
        self._offers = {
            f"offer {offer}": offer
            for what, wanted in ((first, second), (second, first))
            for give in amounts
            for ask in amounts
            for offer in (Offer(give, what, ask, wanted),)
        }
        self.actions = (*self._offers, ACCEPT, DENY, PASS)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Draw what both hold and how they value it."""
        rng = np.random.default_rng(seed)

        def draw(low: int, high: int) -> dict[str, dict[str, int]]:
            return {agent: {each: int(rng.integers(low, high + 1)) for each in self.resources} for agent in self.agents}

        self.held, self.worth = draw(*self._holdings), draw(*self._values)
        self._initial = {agent: self._total(agent) for agent in self.agents}
        self._standing: Offer | None = None
        self._said: list[str] = []
        self._trades = 0

    @property
    def acting(self) -> tuple[str, ...]:
        """The players in turn, up to the last turn."""
        return (self.agents[len(self._said) % 2],) if len(self._said) < self.turns else ()

    def rules(self) -> str:
        """Return the rules in words."""
        first, second = self.resources
        return (
            f"Two players trade {first} and {second}. Each knows what these are worth to itself, and not what they are "
            f"worth to the other. In your turn, make an offer such as 'offer 1 {first} for 2 {second}' (you give "
            f"{first}), or say '{ACCEPT}' or '{DENY}' to an offer that stands, or '{PASS}' if none does. At most "
            f"{self._most} of each may be offered or asked. After {self.turns} turns the player whose holdings have "
            "gained more in worth wins."
        )

    def observe(self, agent: str) -> str:
        """Return the turn, what the agent holds and what it is worth, and what the other said last."""
        own = " ".join(f"{each} {self.held[agent][each]} worth {self.worth[agent][each]}" for each in self.resources)
        now = f"turn {min(len(self._said) + 1, self.turns)} of {self.turns}" if self.acting else "over"
        mine = self.agents.index(agent)
        heard = [said for place, said in enumerate(self._said) if place % 2 != mine]
        lines = [self.rules()] if self._told else []
        return "\n".join([*lines, now, own, f"other {heard[-1] if heard else 'silent'}"])

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return the offers that the agent can keep, and its answers to the offer that stands."""
        if agent not in self.acting:
            return ()
        held = self.held[agent]
        offers = tuple(text for text, offer in self._offers.items() if offer.give <= held[offer.what])
        if self._standing is None:
            return (*offers, PASS)
        able = held[self._standing.wanted] >= self._standing.ask
        return (*offers, ACCEPT, DENY) if able else (*offers, DENY)

    def state(self) -> Mapping[str, Any]:
        """Return holdings, values, the offer that stands and all that was said."""
        return {
            "held": {agent: dict(self.held[agent]) for agent in self.agents},
            "worth": {agent: dict(self.worth[agent]) for agent in self.agents},
            "initial": dict(self._initial),
            "standing": None if self._standing is None else str(self._standing),
            "said": list(self._said),
            "turns": self.turns,
            "trades": self._trades,
        }

    def gains(self) -> dict[str, int]:
        """Return by how much each player's holdings have gained, by its own values."""
        return {agent: self._total(agent) - self._initial[agent] for agent in self.agents}

    def rewards(self) -> Mapping[str, float]:
        """Return 1 for the player who gained more and -1 for the other, once the game is over; else 0."""
        first, second = self.gains().values()
        lead = 0.0 if self.acting else float((first > second) - (first < second))
        return {self.agents[0]: lead, self.agents[1]: 0.0 - lead}

    def outcome(self) -> Mapping[str, Any]:
        """Return the gains and the number of trades."""
        return {"gains": self.gains(), "trades": self._trades}

    def _total(self, agent: str) -> int:
        return sum(self.held[agent][each] * self.worth[agent][each] for each in self.resources)

    def _apply(self, actions: Mapping[str, str]) -> None:
        ((agent, action),) = actions.items()
        other = self.agents[1 - self.agents.index(agent)]
        if action == ACCEPT and self._standing is not None:
            offer = self._standing
            for giver, taker, what, amount in (
                (other, agent, offer.what, offer.give), (agent, other, offer.wanted, offer.ask),
            ):  # fmt: skip
                self.held[giver][what] -= amount
                self.held[taker][what] += amount
            self._trades += 1
        self._standing = self._offers.get(action)
        self._said.append(action)

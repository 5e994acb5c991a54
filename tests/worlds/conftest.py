from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rolecraft.worlds import World


class Pennies(World):
    """Matching pennies: both choose at once, twice; then a coin decides who may double the score."""

    name = "pennies"
    agents = ("even", "odd")
    actions = ("heads", "tails", "double", "keep")

    def reset(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.rounds: list[tuple[str, str]] = []
        self.lucky: str | None = None
        self.score = 0
        self.over = False

    @property
    def acting(self) -> tuple[str, ...]:
        if self.over:
            return ()
        return self.agents if self.lucky is None else (self.lucky,)

    def observe(self, agent: str) -> str:
        return f"You are {agent}. Score of even: {self.score}. Rounds: {self.rounds}"

    def legal(self, agent: str) -> tuple[str, ...] | None:
        if agent not in self.acting:
            return ()
        return ("heads", "tails") if self.lucky is None else ("double", "keep")

    def state(self) -> Mapping[str, Any]:
        return {"rounds": self.rounds, "lucky": self.lucky, "score": self.score, "over": self.over}

    def rewards(self) -> Mapping[str, float]:
        return {"even": float(self.score), "odd": float(-self.score)}

    def outcome(self) -> Mapping[str, Any]:
        return {"winner": "even" if self.score > 0 else "odd" if self.score < 0 else None}

    def _apply(self, actions: Mapping[str, str]) -> None:
        if self.lucky is not None:
            self.score *= 2 if actions[self.lucky] == "double" else 1
            self.over = True
            return
        self.rounds.append((actions["even"], actions["odd"]))
        self.score += 1 if actions["even"] == actions["odd"] else -1
        if len(self.rounds) == 2:
            self.lucky = self.agents[int(self.rng.integers(2))]


@pytest.fixture
def pennies() -> Pennies:
    return Pennies()

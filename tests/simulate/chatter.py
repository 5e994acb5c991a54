"""A world of free text for tests: two agents speak in turn, and some words are not allowed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rolecraft.errors import IllegalActionError
from rolecraft.worlds import WORLDS, World


class Chatter(World):
    name = "chatter"
    agents = ("ann", "bob")

    def __init__(self, rounds: int = 3, pairs: bool = False) -> None:
        self.rounds, self.pairs = rounds, pairs
        self.reset(0)

    def reset(self, seed: int) -> None:
        self.said: list[list[str]] = []

    @property
    def acting(self) -> tuple[str, ...]:
        if len(self.said) >= 2 * self.rounds:
            return ()
        return self.agents if self.pairs else (self.agents[len(self.said) % 2],)

    def observe(self, agent: str) -> str:
        return f"You are {agent}, turn {len(self.said)}.\n" + "\n".join(
            f"{who}: {text}" for who, text in self.said[-2:]
        )

    def legal(self, agent: str) -> tuple[str, ...] | None:
        return None if agent in self.acting else ()

    def check(self, agent: str, action: str) -> None:
        super().check(agent, action)
        if "forbidden" in action:
            raise IllegalActionError("chatter: that word is forbidden.")

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.said += [[agent, text] for agent, text in actions.items()]

    def state(self) -> Mapping[str, Any]:
        return {"said": self.said, "count": len(self.said)}

    def rewards(self) -> Mapping[str, float]:
        return {agent: float(sum(who == agent for who, _ in self.said)) for agent in self.agents}

    def outcome(self) -> Mapping[str, Any]:
        return {"silent": sum(not text for _, text in self.said)}


def install() -> None:
    """Make the world known by its name, in this process."""
    sys.modules["rolecraft.worlds._chatter"] = sys.modules[__name__]
    WORLDS["chatter"] = ("_chatter", "Chatter")  # type: ignore[index]

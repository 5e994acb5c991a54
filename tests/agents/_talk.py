"""A world of talk for tests: two seats speak in turn, see what was said last, and may say anything."""

from collections.abc import Mapping
from typing import Any

from rolecraft.worlds import Turn, View, World


class Talk(World):
    name = "talk"
    agents = ("ann", "bob")

    def __init__(self, turns: int = 6) -> None:
        self.turns = turns
        self.said: list[str] = []

    def reset(self, seed: int) -> None:
        self.said = []

    @property
    def acting(self) -> tuple[str, ...]:
        return () if len(self.said) >= self.turns else (self.agents[len(self.said) % 2],)

    def observe(self, agent: str) -> str:
        return f"Turn {len(self.said)}. The other says: {self.said[-1] if self.said else 'nothing'}"

    def legal(self, agent: str) -> tuple[str, ...] | None:
        return None if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        return {"said": self.said}

    def rewards(self) -> Mapping[str, float]:
        return dict.fromkeys(self.agents, 0.0)

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.said += actions.values()


def turn(step: int, saw: str = "saw", did: str = "did", **fields: Any) -> Turn:
    return Turn(step, "ann", saw, did, **fields)


def view(saw: str = "What now?", legal: tuple[str, ...] | None = None, seed: int = 1, **fields: Any) -> View:
    return View(fields.pop("agent", "ann"), saw, legal, seed, **fields)

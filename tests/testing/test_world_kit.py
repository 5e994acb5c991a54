"""The conformance kit for worlds: passes ours, and finds every planted fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rolecraft.errors import UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Avalon, TrustGame, World
from tests.worlds.conftest import Pennies


@pytest.mark.parametrize("make", [Pennies, TrustGame, Avalon])
def test_our_worlds_pass(make: Callable[[], World]) -> None:
    episodes = check_world(make)
    assert [episode.seed for episode in episodes] == [0, 1, 2]
    assert all(episode.ended == "over" for episode in episodes)


class Unseeded(Pennies):
    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.score = Unseeded.started = getattr(Unseeded, "started", 0) + 1


class Forgetless(Pennies):
    def reset(self, seed: int) -> None:
        kept = getattr(self, "rounds", [])
        super().reset(seed)
        self.rounds = kept


class Peeking(Pennies):
    def observe(self, agent: str) -> str:
        self.score += 1
        return "You are watched."


class Shuffled(Pennies):
    calls = 0

    def legal(self, agent: str) -> tuple[str, ...] | None:
        self.calls += 1
        legal = super().legal(agent)
        return legal[::-1] if legal and self.calls % 2 else legal


class Hasty(Pennies):
    """Changes before it refuses."""

    def check(self, agent: str, action: str) -> None:
        self.score += 1
        super().check(agent, action)


class Lenient(Pennies):
    def check(self, agent: str, action: str) -> None:
        pass


class Crowded(Pennies):
    def legal(self, agent: str) -> tuple[str, ...] | None:
        return ("heads", "tails") if not self.over else ()


class Idle(Pennies):
    def legal(self, agent: str) -> tuple[str, ...] | None:
        return () if self.lucky else super().legal(agent)


class Unpaid(Pennies):
    def rewards(self) -> dict[str, float]:
        return {"even": float(self.score)}


class Endless(Pennies):
    def rewards(self) -> dict[str, float]:
        return {"even": float("nan"), "odd": 0.0}


class Undeclared(Pennies):
    actions = ("heads", "tails")


class Opaque(Pennies):
    def state(self) -> dict[str, object]:
        return {**super().state(), "score": {self.score}}


class Global(Pennies):
    """Draws its chance from what all objects share."""

    draws = 0

    def _apply(self, actions: dict[str, str]) -> None:
        super()._apply(actions)
        if self.lucky and not self.over:
            Global.draws += 1
            self.lucky = self.agents[Global.draws % 2]


FAULTS = {
    Unseeded: "another than on record|reset forgets|sees something else",
    Forgetless: "reset forgets|another than on record|sees something else",
    Peeking: "looking changes",
    Shuffled: "fixed order",
    Hasty: "refused action changes nothing",
    Lenient: "must be refused",
    Crowded: "out of turn",
    Idle: "something to do",
    Unpaid: "everyone has a reward",
    Endless: "rewards are finite",
    Undeclared: "actions hold all",
    Opaque: "JSON",
    Global: "another than on record|sees something else",
}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_planted_faults_are_found(kind: type[World]) -> None:
    with pytest.raises((AssertionError, UserError), match=FAULTS[kind]):
        check_world(kind)


def test_one_object_for_all_is_no_maker() -> None:
    pennies = Pennies()
    with pytest.raises(AssertionError, match="new object"):
        check_world(lambda: pennies)

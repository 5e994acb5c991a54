"""What playing may cost: work per agent-step that does not grow, and shortcuts that change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft._run import derive_seed
from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.worlds import Rules, Table, World, play, play_all
from rolecraft.worlds._decision import decision_seed


@given(st.integers(0, 2**63), st.text(), st.integers(0, 10**6), st.integers(0, 9))
def test_the_fast_seed_of_a_decision_is_the_derived_one(seed: int, agent: str, step: int, attempt: int) -> None:
    assert decision_seed(seed, agent, step, attempt) == derive_seed(seed, agent, step, attempt)


class Counted(World):
    """Everybody speaks each step, or one after another; counts what the engine asks."""

    name = "counted"

    def __init__(self, agents: int, steps: int, together: bool) -> None:
        self.agents = tuple(f"a{place}" for place in range(agents))
        self.steps, self.together, self.asked = steps, together, Counter[str]()

    def reset(self, seed: int) -> None:
        self.step = 0

    @property
    def acting(self) -> tuple[str, ...]:
        if self.step >= self.steps:
            return ()
        return self.agents if self.together else (self.agents[self.step % len(self.agents)],)

    def observe(self, agent: str) -> str:
        self.asked["observe"] += 1
        return f"step {self.step}"

    def legal(self, agent: str) -> None:
        self.asked["legal"] += 1

    def state(self) -> Mapping[str, Any]:
        self.asked["state"] += 1
        return {"step": self.step}

    def rewards(self) -> Mapping[str, float]:
        self.asked["rewards"] += 1
        return dict.fromkeys(self.agents, 0.0)

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.step += 1


@pytest.mark.parametrize("together", [True, False])
def test_a_world_is_asked_in_proportion_to_steps_and_turns(together: bool) -> None:
    for agents, steps in ((2, 3), (40, 3), (2, 60)):
        world = Counted(agents, steps, together)
        episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(lambda view: "x")), 1)
        turns = steps * agents if together else steps
        assert len(episode.turns) == turns
        assert world.asked == {"observe": turns, "legal": turns, "state": steps + 1, "rewards": 1}
    world = Counted(2, 9, together)
    play(world, dict.fromkeys(world.agents, ScriptedPolicy(lambda view: "x")), 1, hashes=False)
    assert world.asked["state"] == 0


def test_hashes_of_a_turn_are_those_of_the_worlds_state(pennies: World) -> None:
    episode = play(pennies, dict.fromkeys(pennies.agents, RandomPolicy()), 5)
    pennies.reset(5)
    for step in range(3):
        turns = [turn for turn in episode.turns if turn.step == step]
        assert {turn.before for turn in turns} == {pennies.state_hash()}
        pennies.act({turn.agent: turn.action for turn in turns})
        assert {turn.after for turn in turns} == {pennies.state_hash()}


def test_what_is_told_after_a_step_and_what_is_recalled_has_its_hashes(pennies: World) -> None:
    told: list[Any] = []
    recalled: list[Any] = []

    def choose(view: Any) -> str:
        recalled.extend(view.history)
        return str(view.legal[0])

    table = Table(pennies, dict.fromkeys(pennies.agents, ScriptedPolicy(choose)), 2)
    [episode] = play_all([table], Rules(), lambda new: told.extend(new[0]))
    assert tuple(told) == episode.turns
    assert recalled
    assert all(turn.before and turn.after for turn in recalled)
    table.played = episode.turns[:2]
    assert play_all([table]) == [episode]

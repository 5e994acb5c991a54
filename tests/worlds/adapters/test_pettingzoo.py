"""Environments of PettingZoo's two APIs as worlds."""

from __future__ import annotations

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import Avalon, ParallelWorldEnv, TrustGame, WorldEnv, play, replay, text_of
from rolecraft.worlds.adapters import PettingZooWorld
from tests.worlds.adapters.conftest import Countdown, Musical
from tests.worlds.conftest import Pennies


def read(agent: str, seen: object) -> str:
    return text_of(seen)


@pytest.mark.filterwarnings("ignore")
def test_the_test_environments_are_pettingzoos() -> None:
    api_test(Countdown(), num_cycles=30)
    parallel_api_test(Musical(), num_cycles=30)


@pytest.mark.parametrize("make", [TrustGame, Avalon])
def test_a_turn_world_of_ours_comes_back_the_same(make) -> None:
    """Where one acts at a time, a world sent through PettingZoo plays the very same episode."""
    there = make()
    back = PettingZooWorld(WorldEnv(make()), names=there.actions, describe=read)
    assert (back.agents, back.actions) == (there.agents, there.actions)
    if make is Avalon:  # votes are cast at once, so that only the first turns are the same
        there.reset(5)
        back.reset(5)
        assert [back.observe(agent) for agent in back.agents] == [there.observe(agent) for agent in there.agents]
        assert (back.acting, back.legal(back.acting[0])) == (there.acting, there.legal(there.acting[0]))
        return
    for seed in range(3):
        first = play(there, dict.fromkeys(there.agents, RandomPolicy()), seed)
        second = play(back, dict.fromkeys(back.agents, RandomPolicy()), seed)
        assert [(turn.agent, turn.observation, turn.action, turn.legal) for turn in first.turns] == [
            (turn.agent, turn.observation, turn.action, turn.legal) for turn in second.turns
        ]
        assert first.rewards == second.rewards


@pytest.mark.parametrize("make", [Pennies, Avalon])
def test_a_simultaneous_world_of_ours_comes_back_the_same(make) -> None:
    """Through the parallel API too; whoever is not asked has one legal action, to do nothing."""
    there = make()
    back = PettingZooWorld(ParallelWorldEnv(make()), names=(*there.actions, "wait"), describe=read)
    for seed in range(3):
        first = play(there, dict.fromkeys(there.agents, RandomPolicy()), seed)
        second = play(back, dict.fromkeys(back.agents, RandomPolicy()), seed)
        assert [(turn.agent, turn.observation, turn.action) for turn in first.turns] == [
            (turn.agent, turn.observation, turn.action) for turn in second.turns if turn.legal != ("wait",)
        ]
        assert first.rewards == pytest.approx(second.rewards)


def test_agents_take_turns_and_masks_hold() -> None:
    world = PettingZooWorld(Countdown(), names=("one", "two", "three"), rules="Take some.")
    world.reset(0)
    pile = world._env.pile
    assert world.agents == ("7", "8")
    assert world.acting == ("7",)
    assert world.observe("8") == f"Take some.\nobservation: {pile}"
    with pytest.raises(IllegalActionError, match="the turn of 7"):
        world.act({"8": "one"})
    while pile > 3:
        world.act({world.acting[0]: "two"})
        pile -= 2
    last = world.acting[0]
    assert world.legal(last) == ("one", "two", "three")[:pile]
    if pile < 3:
        with pytest.raises(IllegalActionError, match="may not do 'three'"):
            world.act({last: "three"})
    world.act({last: ("one", "two", "three")[pile - 1]})
    assert world.rewards() == {last: 1.0, "7" if last == "8" else "8": -1.0}
    assert world.acting == ()
    assert world.outcome()["truncated"] is False


def test_who_is_out_acts_no_more_and_keeps_what_it_has() -> None:
    for seed in range(6):
        world = PettingZooWorld(Musical())
        world.reset(seed)
        coins = np.random.default_rng(seed).integers(2, size=4)
        world.act({"p0": "0", "p1": "0", "p2": "1", "p3": "1"})
        right = ("p0", "p1") if coins[0] == 0 else ("p2", "p3")
        assert world.acting == right
        assert world.rewards() == {agent: float(agent in right) for agent in world.agents}
        assert all(world.legal(agent) == () for agent in world.agents if agent not in right)
        world.act({right[0]: str(coins[1]), right[1]: str(1 - coins[1])})
        assert world.acting == ()
        assert world.rewards()[right[0]] == 2.0
        assert world.rewards()[right[1]] == 1.0


def test_its_own_limit_ends_it() -> None:
    world = PettingZooWorld(Musical(2))
    coins = iter(np.random.default_rng(3).integers(2, size=9))

    def knowing(view):
        return str(coin) if view.agent == "p1" else view.legal[0]

    world.reset(3)
    for _ in range(4):
        coin = next(coins)
        world.act(dict.fromkeys(world.agents, str(coin)))
    assert world.acting == ()
    assert world.outcome() == {"truncated": True, "steps": 4}
    assert world.rewards() == {"p0": 4.0, "p1": 4.0}


def test_a_module_can_be_named() -> None:
    world = PettingZooWorld("tests.worlds.adapters.conftest:Musical", kwargs={"players": 3})
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(lambda view: "1")), 2)
    replay(PettingZooWorld("tests.worlds.adapters.conftest:Musical", kwargs={"players": 3}), episode)
    assert world.agents == ("p0", "p1", "p2")


def test_pettingzoos_rock_paper_scissors() -> None:
    pytest.importorskip("pygame")
    for api in ("aec", "parallel"):
        world = PettingZooWorld("classic/rps_v2", api=api, kwargs={"max_cycles": 2})
        world.reset(0)
        while world.acting:  # rock against paper
            world.act({agent: str(int(agent == "player_1")) for agent in world.acting})
        assert world.rewards() == {"player_0": -2.0, "player_1": 2.0}
        assert world.outcome()["truncated"] is True


class Growing(Musical):
    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        return seen, {**rewards, "late": 1.0}, *rest


class Unknown(Musical):
    def __init__(self):
        super().__init__()
        del self.possible_agents


class Wide(Musical):
    def action_space(self, agent):
        return self.observation_space(agent)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PettingZooWorld("classic/no_such_v0"), "cannot make 'classic/no_such_v0'"),
        (lambda: PettingZooWorld("tests.worlds.adapters.conftest:NoSuch"), "cannot make"),
        (lambda: PettingZooWorld("no_such_module:env"), "cannot make"),
        (lambda: PettingZooWorld(Musical(), api="serial"), "'aec' or 'parallel', got 'serial'"),
        (lambda: PettingZooWorld(Unknown()), "possible_agents"),
        (lambda: PettingZooWorld(Wide()), "discrete or text"),
        (lambda: PettingZooWorld(Musical(), names=("heads",)), "expected 2 different names"),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_an_agent_that_comes_in_later_is_an_error_not_a_guess() -> None:
    world = PettingZooWorld(Growing())
    world.reset(0)
    with pytest.raises(UserError, match="'late' came in later"):
        world.act(dict.fromkeys(world.agents, "0"))

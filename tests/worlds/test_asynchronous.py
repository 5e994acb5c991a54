"""Agents that act when they are ready."""

from __future__ import annotations

from collections import Counter

import pytest

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Asynchronous, TrustGame, play, replay
from tests.simulate.chatter import Chatter


def speak(view) -> str:
    return f"{view.agent} speaks"


def crowd(rounds: int = 100) -> Chatter:
    return Chatter(rounds=rounds, pairs=True)


def test_the_slower_agent_acts_less_often_and_nobody_else_is_asked():
    world = Asynchronous(crowd(200), {"ann": 4.0})
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(speak)), 1)
    acts = Counter(turn.agent for turn in episode.turns)
    # Ready after 4 ticks on average against 1: bob acts at every tick, ann at a quarter of them.
    assert acts["bob"] == episode.outcome["ticks"] + 1 == 200
    assert acts["ann"] == pytest.approx(50, abs=20)
    silent = [text for who, text in world.world.said if who == "ann" and not text]
    assert len(silent) == 200 - acts["ann"]
    replay(world, episode)


def test_a_pace_of_one_is_all_at_once():
    plain, paced = crowd(5), Asynchronous(crowd(5), 1)
    policy = ScriptedPolicy(speak)
    one, other = (play(world, dict.fromkeys(world.agents, policy), 3) for world in (plain, paced))
    assert [(turn.step, turn.agent, turn.action) for turn in one.turns] == [
        (turn.step, turn.agent, turn.action) for turn in other.turns
    ]


def test_delays_do_not_depend_on_what_others_do():
    def times(pace):
        world = Asynchronous(crowd(60), {"ann": 3.0, "bob": pace})
        world.reset(5)
        found = []
        while world.acting:
            found += [world.time] if "ann" in world.acting else []
            world.act(dict.fromkeys(world.acting, "x"))
        return found

    many, few = times(1.0), times(2.0)
    shared = [time for time in many if time <= min(many[-1], few[-1])]
    assert len(shared) > 5
    assert shared == [time for time in few if time <= min(many[-1], few[-1])]


def test_where_one_acts_at_a_time_the_game_is_the_same():
    plain, paced = TrustGame(rounds=3), Asynchronous(TrustGame(rounds=3), 3.0)
    one, other = (play(world, dict.fromkeys(world.agents, RandomPolicy()), 7) for world in (plain, paced))
    assert one.rewards == other.rewards
    assert [turn.action for turn in one.turns] == [turn.action for turn in other.turns]


def test_those_who_must_decide_at_once_wait_for_the_last(pennies):
    world = Asynchronous(pennies, {"even": 50.0, "odd": 1.0})
    world.reset(2)
    assert world.acting == ("even", "odd")
    assert world.time == world.state()["ready"]["even"] > 1


@pytest.mark.parametrize("make", [lambda: Asynchronous(crowd(4), 2.0), lambda: Asynchronous(TrustGame(rounds=2), 2.0)])
def test_the_contract_holds(make):
    check_world(make)


def test_who_is_not_ready_may_not_act():
    world = Asynchronous(crowd(), {"ann": 100.0})
    world.reset(0)
    assert world.acting == ("bob",)
    assert world.legal("ann") == ()
    with pytest.raises(IllegalActionError, match="turn of bob"):
        world.act({"ann": "x", "bob": "y"})


@pytest.mark.parametrize(
    ("pace", "message"), [({"anna": 2}, "Did you mean 'ann'"), (0.5, "1 tick or more"), (float("nan"), "1 tick")]
)
def test_bad_paces(pace, message):
    with pytest.raises(UserError, match=message):
        Asynchronous(crowd(), pace)

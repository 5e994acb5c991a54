"""Worlds through PettingZoo's parallel API: its own conformance tests, and what they do not check."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test
from pettingzoo.test.seed_test import parallel_seed_test

from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import Avalon, ParallelWorldEnv, TrustGame, World, WorldEnv, play, text_of
from tests.worlds.conftest import Pennies

WORLDS = {"pennies": Pennies, "avalon": Avalon, "trust-game": lambda: TrustGame(rounds=3)}


@pytest.mark.parametrize("name", WORLDS)
def test_pettingzoos_own_tests_pass(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(ParallelWorldEnv(WORLDS[name](), longest=1024), num_cycles=60)
        parallel_seed_test(lambda: ParallelWorldEnv(WORLDS[name](), longest=1024, on_illegal="random"), num_cycles=20)


def legal_choices(seen: dict, rng: np.random.Generator) -> dict[str, int]:
    return {agent: int(rng.choice(np.flatnonzero(one["action_mask"]))) for agent, one in seen.items()}


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_the_same_game_as_the_worlds_own(name: str) -> None:
    """The actions of an episode of our engine, sent through the API, give its observations and rewards."""
    world = WORLDS[name]()
    episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), 7)
    env = ParallelWorldEnv(WORLDS[name]())
    seen, infos = env.reset(seed=7)
    earned = dict.fromkeys(env.possible_agents, 0.0)
    for step in range(episode.turns[-1].step + 1):
        turns = [turn for turn in episode.turns if turn.step == step]
        assert {agent for agent, info in infos.items() if info["acting"]} == {turn.agent for turn in turns}
        sent = dict.fromkeys(env.agents, env.idle)
        for turn in turns:
            assert text_of(seen[turn.agent]) == turn.observation
            sent[turn.agent] = env.world.actions.index(turn.action)
        seen, rewards, ended, truncated, infos = env.step(sent)
        for agent, reward in rewards.items():
            earned[agent] += reward
    assert earned == pytest.approx(dict(episode.rewards))
    assert all(ended.values())
    assert not any(truncated.values())
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})


def test_whoever_waits_may_only_do_nothing_and_is_passed_over() -> None:
    env = ParallelWorldEnv(TrustGame())
    seen, infos = env.reset(seed=0)
    assert seen["trustee"]["action_mask"].nonzero()[0].tolist() == [env.idle]
    assert seen["trustor"]["action_mask"].nonzero()[0].tolist() == list(range(11))
    assert infos == {
        "trustor": {"acting": True, "illegal": False},
        "trustee": {"acting": False, "illegal": False},
    }
    env.step({"trustor": 4, "trustee": 3})
    assert env.world.state()["sent"] == 4
    seen, *_ = env.step({"trustee": env.world.actions.index("return 12")})
    assert env.world.rewards() == {"trustor": 18.0, "trustee": 0.0}


@pytest.mark.parametrize("index", [2, 4, 99, -1])
def test_what_the_mask_forbids_is_refused_and_changes_nothing(pennies: World, index: int) -> None:
    env = ParallelWorldEnv(pennies)
    env.reset(seed=0)
    before = pennies.state_hash()
    with pytest.raises(IllegalActionError):
        env.step({"even": 0, "odd": index})
    with pytest.raises(IllegalActionError, match="turn of even, odd"):
        env.step({"even": 0})
    assert pennies.state_hash() == before
    assert env.agents == ["even", "odd"]


def test_or_replaced_by_a_random_legal_action_that_the_info_tells(pennies: World) -> None:
    drawn = set()
    for seed in range(20):
        env = ParallelWorldEnv(pennies, on_illegal="random")
        env.reset(seed=seed)
        *_, infos = env.step({"even": 0, "odd": env.idle})
        assert (infos["even"]["illegal"], infos["odd"]["illegal"]) == (False, True)
        assert pennies.rounds[0][0] == "heads"
        drawn.add(pennies.rounds[0][1])
        again = Pennies()
        other = ParallelWorldEnv(again, on_illegal="random")
        other.reset(seed=seed)
        other.step({"even": 0, "odd": 2})
        assert again.rounds == pennies.rounds
    assert drawn == {"heads", "tails"}


def test_limits_truncate(pennies: World) -> None:
    env = ParallelWorldEnv(pennies, steps=1)
    env.reset(seed=0)
    _, _, ended, truncated, _ = env.step({"even": 0, "odd": 1})
    assert all(truncated.values())
    assert not any(ended.values())
    assert env.agents == []


def test_an_end_at_the_limit_is_an_end(pennies: World) -> None:
    env = ParallelWorldEnv(pennies, steps=3)
    seen, _ = env.reset(seed=0)
    for _ in range(3):
        seen, _, ended, truncated, _ = env.step(legal_choices(seen, np.random.default_rng(0)))
    assert all(ended.values())
    assert not any(truncated.values())


def test_without_a_seed_episodes_differ() -> None:
    env = ParallelWorldEnv(Avalon())
    assert len({(env.reset(), env.world.state_hash())[1] for _ in range(4)}) > 1


def test_bad_input(pennies: World) -> None:
    with pytest.raises(UserError, match="'raise' or 'random', got 'skip'"):
        ParallelWorldEnv(pennies, on_illegal="skip")
    pennies.actions = None
    with pytest.raises(UserError, match="free text"):
        ParallelWorldEnv(pennies)


def test_both_apis_show_the_same(pennies: World) -> None:
    env, other = ParallelWorldEnv(pennies), WorldEnv(Pennies())
    seen, _ = env.reset(seed=3)
    other.reset(seed=3)
    for agent in pennies.agents:
        assert text_of(seen[agent]) == text_of(other.observe(agent)) == pennies.observe(agent)
        assert seen[agent]["action_mask"][: env.idle].tolist() == other.observe(agent)["action_mask"].tolist()
    assert env.render() == "\n\n".join(f"{agent}:\n{pennies.observe(agent)}" for agent in pennies.agents)

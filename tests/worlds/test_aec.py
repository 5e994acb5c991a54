"""Worlds through PettingZoo: its own conformance tests, and what they do not check."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test
from pettingzoo.utils.wrappers import TerminateIllegalWrapper

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import World, WorldEnv, text_of


def test_pettingzoos_own_tests_pass(pennies: World) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of observations that are all of one sort, as bytes are
        api_test(WorldEnv(pennies), num_cycles=50)
    seed_test(lambda: WorldEnv(type(pennies)()), num_cycles=50)


def play_out(env: WorldEnv, choose) -> dict[str, float]:  # type: ignore[no-untyped-def]
    earned = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        earned[agent] += reward
        env.step(None if terminated or truncated else choose(agent, observation))
    return earned


def test_rewards_add_up_to_the_worlds_own(pennies: World) -> None:
    env = WorldEnv(pennies)
    for seed in range(5):
        env.reset(seed=seed)
        rng = np.random.default_rng(seed)
        earned = play_out(env, lambda agent, seen, rng=rng: int(rng.choice(np.flatnonzero(seen["action_mask"]))))
        assert earned == pennies.rewards()


def test_the_second_of_two_that_act_at_once_sees_nothing_of_the_first(pennies: World) -> None:
    env = WorldEnv(pennies)
    env.reset(seed=0)
    before = text_of(env.observe("odd"))
    env.step(0)
    assert env.agent_selection == "odd"
    assert text_of(env.observe("odd")) == before == pennies.observe("odd")
    assert env.observe("even")["action_mask"].sum() == 0


def test_illegal_actions_and_limits(pennies: World) -> None:
    env = WorldEnv(pennies, steps=1)
    env.reset(seed=0)
    with pytest.raises(IllegalActionError, match="may not do 'double'"):
        env.step(2)
    env.step(0)
    env.step(1)
    assert all(env.truncations.values())
    assert not any(env.terminations.values())


def test_free_text_has_no_discrete_space(pennies: World) -> None:
    pennies.actions = None
    with pytest.raises(UserError, match="free text"):
        WorldEnv(pennies)


def test_with_pettingzoos_wrapper_an_illegal_action_is_a_loss(pennies: World) -> None:
    env = TerminateIllegalWrapper(WorldEnv(pennies), illegal_reward=-1)
    env.reset(seed=0)
    env.step(2)
    assert all(env.terminations.values())
    assert env.rewards == {"even": -1, "odd": 0}

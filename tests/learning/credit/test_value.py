from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning.credit import Vdn, assign_credit, make_rule, vdn_delta

from ._random import random_batch, take_rows, with_rows


def test_every_agent_of_a_joint_step_gets_the_teams_difference():
    batch = random_batch(0, agents=3)
    batch = take_rows(batch, np.random.default_rng(0).permutation(batch.shape[0]))
    result = assign_credit(batch, make_rule({"name": "vdn", "gamma": 0.9}))
    row, keys = batch.row, batch.keys
    for traj, step in set(zip(keys["traj"], keys["step"], strict=True)):
        rows = (keys["traj"] == traj) & (keys["step"] == step)
        assert rows.sum() == 3
        delta = row["team_reward"][rows][0] + 0.9 * row["q_next"][rows].sum() - row["q"][rows].sum()
        np.testing.assert_allclose(result.advantages[rows], delta * batch.mask[rows])
        np.testing.assert_allclose(result.targets[rows], (row["q"][rows] + delta)[:, None] * batch.mask[rows])


def test_the_difference_has_the_closed_form_of_additive_values():
    """With one's own share as value, q_i = r_i, and nothing after, the team's difference is 0."""
    shares = np.array([1.0, 2, 3, 4])
    joint = np.array([0, 0, 1, 1])
    delta = vdn_delta(np.array([3.0, 3, 7, 7]), shares, np.zeros(4), joint)
    assert delta.tolist() == [0, 0, 0, 0]


def test_a_mixer_takes_the_place_of_the_sum():
    def largest(values, joint, count):
        out = np.full(count, -np.inf)
        np.maximum.at(out, joint, values)
        return out

    joint = np.array([0, 0, 1])
    delta = vdn_delta(np.ones(3), np.array([1.0, 5, 2]), np.array([4.0, 3, 0]), joint, 0.5, largest)
    assert delta.tolist() == [1 + 2 - 5, 1 + 2 - 5, 1 - 2]


def test_rewards_of_the_agents_are_no_team_reward():
    batch = random_batch(1)
    batch = with_rows(batch, team_reward=batch.row["reward"])
    with pytest.raises(UserError, match=r"rows 0 and 3 are one joint step .* stage pool"):
        assign_credit(batch, [Vdn()])
    pooled = assign_credit(batch, make_rule([
        {"stage": "mix", "team": None}, {"stage": "pool", "keys": ["traj", "step"]}, {"stage": "vdn", "team": None}
    ]))  # fmt: skip
    assert pooled.advantages.any()


def test_a_joint_step_with_an_unknown_reward_is_left_out():
    batch = random_batch(2)
    result = assign_credit(replace(batch, valid=np.arange(36) != 4), [Vdn()])
    assert np.flatnonzero(~result.keep).tolist() == [1, 4]
    whole = assign_credit(batch, [Vdn()])
    np.testing.assert_allclose(result.advantages[result.keep], whole.advantages[result.keep])


def test_the_discount_is_checked():
    with pytest.raises(UserError, match="gamma lies in"):
        Vdn(1.2)

from __future__ import annotations

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    CreditBatch,
    Mix,
    NoBaseline,
    Pool,
    ScaleReward,
    assign_credit,
    mix_rewards,
    pool_rewards,
)


def batch(n, valid=None, **row):
    keys = {"traj": np.arange(n) // 3, "agent": np.arange(n) % 2}
    columns = {name: np.array(values, dtype=float) for name, values in row.items()}
    return CreditBatch(np.ones((n, 1), dtype=bool), keys, columns, valid=valid)


def rewards(given, *stages):
    return assign_credit(given, [*stages, NoBaseline()]).advantages[:, 0].tolist()


def test_team_and_own_reward_are_mixed():
    given = batch(3, team_reward=[1, 1, 1], reward=[0, 1, 2], outcome=[9, 9, 9])
    assert rewards(given, Mix(0.5)) == [0.5, 1.5, 2.5]
    assert rewards(given, Mix(team=None)) == [0, 1, 2]
    assert rewards(given, Mix(2, local=None)) == [2, 2, 2]
    for alpha in (-1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="alpha is 0 or more"):
            mix_rewards(np.zeros(1), np.zeros(1), alpha)
    with pytest.raises(UserError, match="name a row column"):
        Mix(team=None, local=None)
    with pytest.raises(UserError, match="mix: the batch has no row column 'teem'"):
        rewards(given, Mix(team="teem"))


def test_a_process_score_raises_what_success_is_worth():
    given = batch(3, outcome=[1, 0, -1], factor=[0.5, 1, 1])
    assert rewards(given, ScaleReward(2, when="positive")) == [2, 0, -1]
    assert rewards(given, ScaleReward(2, when="always")) == [2, 0, -3]
    with pytest.raises(UserError, match="reward of row 2 is -1"):
        rewards(given, ScaleReward())
    with pytest.raises(UserError, match="Did you mean 'positive'"):
        ScaleReward(when="positiv")


def test_pooling_by_hand():
    given, groups = np.array([1.0, 0.2, -4, 0.6, 0.5]), np.array([7, 7, 7, 3, 3])
    expected = {
        "sum": [-2.8] * 3 + [1.1] * 2,
        "mean": [-2.8 / 3] * 3 + [0.55] * 2,
        "max": [1.0] * 3 + [0.6] * 2,
        "or": [1.0] * 5,
        "versus": [2 + 2.8, 0.4 + 2.8, -8 + 2.8, 1.2 - 1.1, 1 - 1.1],
    }
    for how, values in expected.items():
        np.testing.assert_allclose(pool_rewards(given, groups, how), values)
    assert pool_rewards(given, groups, "or", threshold=0.6).tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(UserError, match="Did you mean 'sum'"):
        pool_rewards(given, groups, "summ")


def test_a_reward_repeated_over_turns_counts_once():
    given, traj, agent = np.array([1.0, 1, 1, 4]), np.zeros(4, int), np.array([0, 0, 0, 1])
    assert pool_rewards(given, traj, "sum").tolist() == [7] * 4
    assert pool_rewards(given, traj, "sum", per=agent).tolist() == [5] * 4
    assert pool_rewards(given, traj, "mean", per=agent).tolist() == [2.5] * 4
    assert pool_rewards(given, traj, "versus", per=agent).tolist() == [-3, -3, -3, 3]


def test_an_unknown_member_leaves_its_group_out_or_is_skipped():
    given = batch(6, np.array([True, True, True, True, False, True]), outcome=[1, 2, 3, 4, np.nan, 6])
    dropped = assign_credit(given, [Pool(), NoBaseline()])
    assert dropped.advantages[:, 0].tolist() == [6, 6, 6, 0, 0, 0]
    assert dropped.keep.tolist() == [True] * 3 + [False] * 3
    skipped = assign_credit(given, [Pool(missing="skip"), NoBaseline()])
    assert skipped.advantages[:, 0].tolist() == [6, 6, 6, 10, 0, 10]
    with pytest.raises(UserError, match="missing is"):
        Pool(missing="zero")

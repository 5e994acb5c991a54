from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    AddRow,
    CreditBatch,
    FilterGroups,
    Group,
    JudgeFailuresWarning,
    NoBaseline,
    Weight,
    Whiten,
    assign_credit,
    filter_rows,
    label_bonus,
    make_rule,
    mean_one,
)

from ._random import random_batch, with_rows


def test_each_label_has_its_constant_and_a_failed_judge_gives_nothing():
    assert label_bonus(np.array([0, 1, 2, 3, -1]), (1.0, 0.5, -0.1, -0.5)).tolist() == [1, 0.5, -0.1, -0.5, 0]
    batch = with_rows(random_batch(0), label=np.arange(36) % 5 - 1.0)
    with pytest.warns(JudgeFailuresWarning, match="failed on 22% of the rows, more than 5%"):
        result = assign_credit(batch, [AddRow(0.5)])
    expected = 0.5 * np.array([0, 1, 0.5, -0.1, -0.5])[np.arange(36) % 5]
    np.testing.assert_allclose(result.advantages[:, 0], expected)
    assert result.info["add_row/failed"] == 8
    assert result.info["add_row/flagged"]


@pytest.mark.parametrize("label", [4, -2, 0.5])
def test_an_unknown_label_is_named(label):
    labels = np.zeros(36)
    labels[5] = label
    with pytest.raises(UserError, match=f"row 5 has the label {label}"):
        assign_credit(with_rows(random_batch(0), label=labels), [AddRow()])


def test_triage_with_one_label_for_all_is_whitened_grpo():
    batch = with_rows(random_batch(1), label=np.full(36, 2.0))
    triage = assign_credit(batch, make_rule("triage"))
    grpo = assign_credit(batch, [Group(unit="traj"), Whiten()])
    np.testing.assert_allclose(triage.advantages, grpo.advantages, atol=1e-12)
    assert np.abs(triage.advantages).max() > 0.5


def test_triage_is_the_formula():
    batch = random_batch(2)
    result = assign_credit(batch, make_rule({"name": "triage", "lam": 0.3, "constants": {"R": -1.0}}))
    keys, outcome, corrected, base = batch.keys, batch.row["outcome"], np.zeros(36), np.zeros(36)
    for task in range(2):
        rows = keys["task"] == task
        per_traj = [outcome[keys["traj"] == traj].mean() for traj in np.unique(keys["traj"][rows])]
        base[rows] = (outcome[rows] - np.mean(per_traj)) / (np.std(per_traj, ddof=1) + 1e-6)
    corrected = base + 0.3 * np.array([1, 0.5, -0.1, -1])[batch.row["label"].astype(int)]
    whitened = (corrected - corrected.mean()) / (corrected.std() + 1e-8)
    np.testing.assert_allclose(result.advantages, whitened[:, None] * batch.mask, atol=1e-9)
    flips = np.sign(whitened) != np.sign(base)
    assert result.info["flip_rate"] == pytest.approx(flips.mean())
    for number, name in enumerate("DENR"):
        assert result.info[f"flip_rate/{name}"] == pytest.approx(flips[batch.row["label"] == number].mean())
    success = (outcome > 0) & (batch.row["label"] == 0)
    assert result.info["add_row/success/D"] == pytest.approx(success.sum() / (outcome > 0).sum())


def test_a_scalar_judge_takes_the_place_of_the_constants():
    batch = random_batch(3)
    result = assign_credit(batch, [AddRow(0.5, score="score")])
    np.testing.assert_allclose(result.advantages[:, 0], 0.5 * batch.row["score"])
    with pytest.raises(UserError, match=r"score of row 4 is 1\.5"):
        assign_credit(with_rows(batch, score=np.where(np.arange(36) == 4, 1.5, 0)), [AddRow(score="score")])


@pytest.mark.parametrize(
    "options",
    [
        {"lam": 1.1},
        {"lam": -0.1},
        {"constants": {"D": 2}},
        {"constants": {"R": 0.1}},
        {"constants": {"D": -0.1}},
        {"constants": {"X": 0.1}},
    ],
)
def test_constants_that_are_not_triages_must_be_meant(options):
    with pytest.raises(UserError):
        make_rule({"name": "triage", **options})
    if "X" not in options.get("constants", {}):
        assert make_rule({"name": "triage", "allow_any_constants": True, **options})


def test_groups_without_a_difference_can_be_dropped_before_the_bonus():
    batch = with_rows(random_batch(4), outcome=np.where(np.arange(36) < 18, 1.0, np.arange(36) % 5))
    kept = assign_credit(batch, make_rule("triage"))
    dropped = assign_credit(batch, make_rule({"name": "triage", "drop_zero_outcome_groups": True}))
    assert kept.advantages[:18].any()
    assert not dropped.advantages[:18].any()
    assert dropped.info["filter/dapo"] == 18


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.sampled_from([None, 1.0, 2.5]))
@settings(max_examples=100, deadline=None)
def test_duration_weights_have_mean_one(durations, clip):
    weights = mean_one(np.array(durations), clip)
    assert weights.mean() == pytest.approx(1)
    if clip is None and any(durations):
        np.testing.assert_allclose(weights * np.mean(durations), durations, atol=1e-9)


def test_weights_count_the_rows_that_are_kept():
    batch = random_batch(5)
    valid = np.arange(36) != 3
    result = assign_credit(replace(batch, valid=valid), make_rule("rl4mle"))
    np.testing.assert_allclose(
        result.weights[valid], batch.row["duration"][valid] / batch.row["duration"][valid].mean()
    )
    assert result.weights[3] == 0
    clipped = assign_credit(batch, make_rule({"name": "rl4mle", "clip": 1.1}))
    assert clipped.weights.max() < result.weights.max()
    assert clipped.weights.mean() == pytest.approx(1)


def test_weighting_by_the_reward_is_reinforce():
    batch = with_rows(random_batch(6), outcome=np.arange(36) % 3 - 1.0)
    imitated, reinforced = assign_credit(batch, make_rule("rft")), assign_credit(batch, make_rule("reinforce"))
    np.testing.assert_allclose(imitated.weights[:, None] * imitated.advantages, reinforced.advantages)
    assert set(imitated.weights) == {-1, 0, 1}


def test_bad_weights_are_named():
    with pytest.raises(UserError, match="row 1 has -2"):
        mean_one(np.array([1.0, -2]))
    with pytest.raises(UserError, match="clip is 1 or more"):
        mean_one(np.array([1.0, 2]), 0.5)
    assert mean_one(np.zeros(3)).tolist() == [1, 1, 1]


REWARDS = np.array([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 10, 10, 1, 1, 1, 1], dtype=float)
GROUPS = np.repeat([0, 1, 2, 3], 4)


@pytest.mark.parametrize(
    ("how", "options", "groups"),
    [
        ("dapo", {}, {1, 2}),
        ("std", {}, {1, 2}),
        ("std", {"share": 0.75}, {2}),
        ("mean", {"within": "batch"}, {1, 2}),
        ("mean", {"within": "batch", "share": 0.8}, {2}),
        ("mean", {"share": 0.0}, {0, 1, 2, 3}),
    ],
)
def test_filters_keep_these_groups(how, options, groups):
    stays = filter_rows(REWARDS, GROUPS, 4, how, **options)
    assert set(GROUPS[stays]) == groups
    assert all(stays[group == GROUPS].all() for group in groups)


def test_the_row_filter_drops_the_rows_furthest_from_their_groups_mean():
    stays = filter_rows(REWARDS, GROUPS, 4, "uid", share=0.25)
    assert np.flatnonzero(~stays).tolist() == [7]
    order = np.random.default_rng(0).permutation(16)
    assert (filter_rows(REWARDS[order], GROUPS[order], 4, "uid", share=0.25) == stays[order]).all()


def test_filters_count_what_they_drop_and_group_statistics_follow_them():
    batch = CreditBatch(np.ones((16, 1), dtype=bool), {"task": GROUPS}, {"outcome": REWARDS})
    result = assign_credit(batch, make_rule({"name": "grpo", "filter": "dapo"}))
    assert result.info["filter/dapo"] == 8
    assert result.keep.tolist() == ((GROUPS == 1) | (GROUPS == 2)).tolist()
    with pytest.raises(UserError, match="Did you mean 'dapo'"):
        FilterGroups(how="dap")
    with pytest.raises(UserError, match="share lies in"):
        FilterGroups(share=1.0)


def test_a_weight_may_be_taken_as_it_is():
    batch = random_batch(7)
    result = assign_credit(batch, [NoBaseline(), Weight("duration", normalise=False, clip=1.5)])
    np.testing.assert_allclose(result.weights, np.minimum(batch.row["duration"], 1.5))

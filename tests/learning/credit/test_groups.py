from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    CreditBatch,
    Group,
    NoSignalWarning,
    SmallGroupWarning,
    assign_credit,
    group_advantage,
)
from rolecraft.learning.credit._batch import number_groups

rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4), st.integers(-50, 50)), min_size=1, max_size=25)


def slow(rewards, groups, traj, *, center, scale, ddof, eps, singleton):
    """Straight from the formula, group by group."""
    out = []
    for reward, group in zip(rewards, groups, strict=True):
        entries = {}
        for place, (r, g) in enumerate(zip(rewards, groups, strict=True)):
            if g == group:
                entries.setdefault(place if traj is None else traj[place], []).append(r)
        values = [statistics.fmean(each) for each in entries.values()]
        mean = statistics.fmean(values)
        if len(values) == 1:
            out.append(reward if singleton == "raw" else 0.0)
            continue
        std = (sum((v - mean) ** 2 for v in values) / (len(values) - ddof)) ** 0.5
        if center and max(values) == min(values) and traj is None:
            out.append(0.0)
            continue
        out.append((reward - (mean if center else 0.0)) / (std + eps if scale == "std" else 1.0))
    return out


@given(
    rows,
    st.booleans(),
    st.sampled_from(["std", "none"]),
    st.sampled_from([0, 1]),
    st.sampled_from(["zero", "raw"]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_advantage_is_the_formula_for_every_choice(drawn, center, scale, ddof, singleton, by_trajectory):
    groups, traj, rewards = (list(column) for column in zip(*drawn, strict=True))
    if by_trajectory:  # what a trajectory's rows have in common, as outcomes have
        rewards = [float(10 * g + 3 * t) for g, t in zip(groups, traj, strict=True)]
    options = {"center": center, "scale": scale, "ddof": ddof, "eps": 0.01, "singleton": singleton}
    given_traj = np.array(traj) if by_trajectory else None
    found, _ = group_advantage(np.array(rewards, dtype=float), np.array(groups), traj=given_traj, **options)
    expected = slow(rewards, groups, traj if by_trajectory else None, **options)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_group_of_four_by_hand():
    found, stats = group_advantage(np.array([1.0, 0, 0, 1]), np.zeros(4, dtype=int), eps=0)
    np.testing.assert_allclose(found, np.array([1, -1, -1, 1]) * 0.5 / (1 / 3) ** 0.5)
    assert stats.mean.tolist() == [0.5]
    found, _ = group_advantage(np.array([1.0, 0, 0, 1]), np.zeros(4, dtype=int), eps=0, ddof=0)
    np.testing.assert_allclose(found, [1, -1, -1, 1])


def test_a_long_trajectory_weighs_as_much_as_a_short_one():
    rewards, traj = np.array([1.0, 1, 1, 0]), np.array([0, 0, 0, 1])
    by_row, _ = group_advantage(rewards, np.zeros(4, dtype=int), scale="none")
    by_traj, stats = group_advantage(rewards, np.zeros(4, dtype=int), scale="none", traj=traj)
    np.testing.assert_allclose(by_row, [0.25, 0.25, 0.25, -0.75])
    np.testing.assert_allclose(by_traj, [0.5, 0.5, 0.5, -0.5])
    assert stats.entries.tolist() == [2]


def test_equal_rewards_give_exactly_nothing():
    rewards = np.full(7, 0.1)
    for singleton in ("zero", "raw"):
        found, stats = group_advantage(rewards, np.zeros(7, dtype=int), singleton=singleton)
        assert not found.any()
        assert stats.flat.tolist() == [True]


def test_rows_left_out_do_not_enter_the_statistics():
    rewards = np.array([1.0, 0, 99, np.nan])
    where = np.array([True, True, False, False])
    found, _ = group_advantage(rewards, np.zeros(4, dtype=int), where=where, scale="none")
    np.testing.assert_allclose(found, [0.5, -0.5, 0, 0])


def test_groups_may_be_given_by_several_keys():
    keys = np.array([[0, 0], [0, 1], [0, 0], [0, 1]])
    found, _ = group_advantage(np.array([1.0, 5, 3, 7]), keys, scale="none")
    np.testing.assert_allclose(found, [-1, -1, 1, 1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewards": np.zeros((2, 2))}, "shape (rows,), got shape (2, 2)"),
        ({"groups": np.zeros(2)}, "whole numbers"),
        ({"groups": np.zeros(3, dtype=int)}, "shape (2,)"),
        ({"scale": "sdt"}, "'std' or 'none', got 'sdt'"),
        ({"ddof": 2}, "ddof is 0 or 1, got 2"),
        ({"eps": -1}, "eps"),
        ({"singleton": "one"}, "'zero' or 'raw'"),
        ({"rewards": np.array([0, np.nan])}, "row 1 is nan"),
        ({"where": np.array([1, 0])}, "where as bool"),
        ({"traj": np.array([1])}, "traj"),
    ],
)
def test_bad_input_is_named(change, words):
    given = {"rewards": np.array([0.0, 1]), "groups": np.array([0, 0]), **change}
    with pytest.raises(UserError, match=r".*") as error:
        group_advantage(given.pop("rewards"), given.pop("groups"), **given)
    assert words in str(error.value)


def batch(outcome, **keys):
    n = len(outcome)
    return CreditBatch(
        np.ones((n, 2), dtype=bool), {k: np.array(v) for k, v in keys.items()}, {"outcome": np.array(outcome)}
    )


def test_the_stage_adds_up_over_groups_and_keeps_its_figures_apart():
    given = batch([1.0, 0, 0, 1], task=[0, 0, 0, 0], anchor=[0, 0, 1, 1])
    stages = [Group(scale="none"), Group(("task", "anchor"), scale="none", weight=2)]
    result = assign_credit(given, stages)
    np.testing.assert_allclose(result.advantages[:, 0], [0.5 + 1, -0.5 - 1, -0.5 - 1, 0.5 + 1])
    assert result.info["group(task)/groups"] == 1
    assert result.info["group(task, anchor)/groups"] == 2


def test_groups_of_one_are_warned_of_and_counted():
    given = batch([1.0, 0, 7], task=[0, 0, 1])
    with pytest.warns(SmallGroupWarning, match="advantage is 0"):
        result = assign_credit(given, [Group()])
    assert result.info["group(task)/single"] == 1
    assert not result.advantages[2].any()
    with pytest.warns(SmallGroupWarning, match="raw reward"):
        assert assign_credit(given, [Group(singleton="raw")]).advantages[2, 0] == 7


def test_dead_groups_are_reported():
    with pytest.warns(NoSignalWarning):
        result = assign_credit(batch([1.0, 1, 0, 0], task=[0, 0, 1, 1]), [Group()])
    assert result.info["group(task)/dead"] == 2


def test_prompts_that_differ_within_a_group_are_refused():
    given = batch([1.0, 0, 0, 1], task=[0, 0, 1, 1], turn=[0, 0, 0, 1], prompt=[5, 5, 6, 7])
    with pytest.raises(UserError, match="rows 2 and 3 lie in one group but differ in 'prompt'"):
        assign_credit(given, [Group(same="prompt")])
    with pytest.warns(SmallGroupWarning):
        assign_credit(given, [Group(("task", "turn"), same="prompt")])


def test_a_wrong_key_leaves_a_bias_per_prompt():
    """AT-GRPO's point: only within one prompt do the advantages add up to nothing."""
    outcome = np.array([1.0, 0, 0, 0, 1, 1, 1, 0])
    prompt = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    right, _ = group_advantage(outcome, prompt)
    wrong, _ = group_advantage(outcome, np.zeros(8, dtype=int))
    np.testing.assert_allclose(np.bincount(prompt, right), 0, atol=1e-12)
    assert (np.abs(np.bincount(prompt, wrong)) > 0.5).all()


def test_keys_given_as_a_string_are_refused():
    with pytest.raises(UserError, match="list of names"):
        Group("task")


@given(
    st.lists(st.tuples(*[st.sampled_from([-(2**40), -1, 0, 1, 2, 900, 2**40])] * 3), min_size=1, max_size=30),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_groups_are_numbered_in_the_order_of_their_keys(drawn, width):
    columns = [np.array(column) for column in list(zip(*drawn, strict=True))[:width]]
    index, count = number_groups(columns, len(drawn))
    shown = [tuple(row[:width]) for row in drawn]
    order = sorted(set(shown))
    assert count == len(order)
    assert index.tolist() == [order.index(each) for each in shown]


@pytest.mark.parametrize("turned", [False, True])
def test_nested_keys_of_a_wide_range_are_numbered_without_sorting(turned):
    rng = np.random.default_rng(1)
    inner = rng.integers(0, 3000, 4000)
    outer = (inner * 7919) % 1000
    columns = [inner, outer] if turned else [outer, inner]
    index, count = number_groups(columns, 4000)
    pairs, expected = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    assert count == len(pairs)
    assert (index == expected.ravel()).all()

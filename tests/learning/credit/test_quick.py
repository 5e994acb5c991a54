"""Quick ways to the same numbers, against the plain ones: to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import Carry, Group, assign_credit, group_advantage
from rolecraft.learning.credit._batch import apply_to_rows, zero_off
from rolecraft.learning.credit._groups import group_stats
from rolecraft.learning.credit._teacher import alignment, teacher_signal, teacher_value_advantage, whiten_signal

from ._random import random_batch

ODD = [0.0, -0.0, 1.5, -2.25, np.nan, np.inf, -np.inf, 5e-324, 1e308]


@given(st.lists(st.tuples(st.sampled_from(ODD), st.booleans()), min_size=1, max_size=40), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_clearing_is_where(drawn, width):
    drawn = drawn[: len(drawn) // width * width] or drawn * width
    values, mask = (np.array(column).reshape(-1, width) for column in zip(*drawn, strict=True))
    expected = np.where(mask, values, 0.0)
    for given_values, where, wanted in ((values, mask, expected), (values.T, mask.T, expected.T)):
        found = zero_off(given_values, where)
        assert found.view(np.int64).tolist() == np.ascontiguousarray(wanted).view(np.int64).tolist()
    assert np.shares_memory(zero_off(values, mask), values) is False


@pytest.mark.parametrize("width", [1, 4, 8, 9, 30])
@pytest.mark.parametrize("operation", [np.add, np.subtract, np.multiply])
def test_operations_by_row_are_broadcasts(width, operation):
    rng = np.random.default_rng(width)
    values, rows = rng.normal(size=(7, width)), rng.normal(size=7)
    expected = operation(values, rows[:, None])
    apply_to_rows(operation, values, rows)
    np.testing.assert_array_equal(values, expected)


def test_lengths_and_counts_are_those_of_the_mask():
    batch = random_batch(0)
    assert batch.lengths.tolist() == batch.mask.sum(1).tolist()
    assert batch.lengths is batch.lengths
    with pytest.raises(ValueError, match="read-only"):
        batch.lengths[0] = 7
    some = batch.mask & (np.arange(4) > 1)
    assert batch.counts(some).tolist() == some.sum(1).tolist()
    assert batch.counts(batch.mask) is batch.lengths
    changed = replace(batch, mask=some)
    assert changed.lengths.tolist() == some.sum(1).tolist()


@pytest.mark.parametrize("unit", ["row", "traj"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_a_groups_statistics_are_measured_once_for_the_same_rewards(unit, ddof):
    batch = replace(random_batch(1), valid=np.arange(36) % 5 != 2)
    carry = Carry(batch.row["outcome"], np.zeros(36), np.ones(36), batch.known)
    first = group_stats(batch, carry, ("task",), unit, "test", ddof)
    assert group_stats(batch, carry.note(seen=1), ["task"], unit, "test", ddof) is first
    traj = batch.keys["traj"] if unit == "traj" else None

    def measured(rewards, keep):
        return group_advantage(rewards, batch.keys["task"], ddof=ddof, where=keep, traj=traj)[1]

    np.testing.assert_array_equal(first.std, measured(carry.reward, carry.keep).std)
    for other in (
        replace(carry, reward=carry.reward * 3),
        replace(carry, keep=carry.keep & (np.arange(36) % 3 > 0)),
    ):
        found = group_stats(batch, other, ("task",), unit, "test", ddof)
        np.testing.assert_array_equal(found.std, measured(other.reward, other.keep).std)
        np.testing.assert_array_equal(found.entries, measured(other.reward, other.keep).entries)
        assert not np.array_equal(found.std, first.std)
    assert group_stats(batch, carry, ("task",), unit, "test", 1 - ddof).std.tolist() != first.std.tolist()


def test_rewards_that_are_not_finite_are_named():
    batch = random_batch(2)
    reward = batch.row["outcome"].copy()
    reward[5] = np.nan
    carry = Carry(reward, np.zeros(36), np.ones(36), np.ones(36, dtype=bool))
    with pytest.raises(UserError, match="the reward of row 5 is nan"):
        Group()(batch, carry)
    left_out = replace(carry, keep=np.arange(36) != 5)
    assert np.isfinite(Group()(batch, left_out).advantage).all()


def test_a_batch_gives_the_same_credit_twice():
    batch = random_batch(3)
    one, other = (assign_credit(batch, [Group()]).advantages for _ in range(2))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, assign_credit(replace(batch), [Group()]).advantages)


def test_counts_that_are_given_are_the_counts():
    batch = random_batch(4)
    logp, mask, groups = batch.token["logp_old"], batch.mask, batch.keys["task"]
    counts = mask.sum(1)
    signal, _ = teacher_signal(logp, mask)
    np.testing.assert_array_equal(teacher_signal(logp, mask, counts=counts)[0], signal)
    np.testing.assert_array_equal(
        whiten_signal(signal, mask, groups, counts=counts), whiten_signal(signal, mask, groups)
    )
    np.testing.assert_array_equal(alignment(logp, mask, counts=counts), alignment(logp, mask))
    before = signal.copy()
    whiten_signal(signal, mask, groups)
    np.testing.assert_array_equal(signal, before)  # what is given is left as it is


def test_all_rows_used_is_the_same_as_no_where():
    rng = np.random.default_rng(0)
    alpha, returns, groups = rng.random(30), rng.normal(size=30), rng.integers(4, size=30)
    every = np.ones(30, dtype=bool)
    most = every.copy()
    most[3] = False
    for found, plain in zip(
        teacher_value_advantage(alpha, returns, groups, every),
        teacher_value_advantage(alpha, returns, groups),
        strict=True,
    ):
        np.testing.assert_array_equal(found, plain)
    value, _ = teacher_value_advantage(alpha, returns, groups, most)
    own = most & (groups == groups[0])
    weight = alpha[own]
    expected = weight @ returns[own] / weight.sum() - (1 - weight) @ returns[own] / (1 - weight).sum()
    assert value[own] == pytest.approx(expected)
    assert value[3] == 0

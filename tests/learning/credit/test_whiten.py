from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import Gae, NoBaseline, Whiten, assign_credit, whiten

from ._random import random_batch


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=30),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1]),
)
@settings(max_examples=120, deadline=None)
def test_whitening_is_the_formula(drawn, center, grouped, ddof):
    values, groups, weights = (np.array(column) for column in zip(*drawn, strict=True))
    found = whiten(values, groups if grouped else None, weights=weights, center=center, ddof=ddof, eps=0.1)
    for group in np.unique(groups) if grouped else [None]:
        rows = groups == group if grouped else np.ones(len(values), dtype=bool)
        spread = np.repeat(values[rows], weights[rows])
        std = spread.std(ddof=ddof) if len(spread) > ddof else 0.0
        expected = (values[rows] - (spread.mean() if center else 0)) / (std + 0.1)
        np.testing.assert_allclose(found[rows], expected, atol=1e-9)


@pytest.mark.parametrize("groups", [None, np.array([0, 0, 1, 1])])
def test_equal_values_give_exactly_nothing(groups):
    assert not whiten(np.full(4, 0.1), groups).any()


def test_rows_tokens_and_trajectories_are_counted_as_asked():
    batch = random_batch(0)
    rows = batch.row["outcome"]
    lengths = batch.mask.sum(1)
    valid = np.arange(36) != 2
    by_row = assign_credit(replace(batch, valid=valid), [NoBaseline(), Whiten()])
    np.testing.assert_allclose(by_row.advantages[valid, 0], (rows - rows[valid].mean())[valid] / rows[valid].std())
    by_token = assign_credit(batch, [NoBaseline(), Whiten("tokens")])
    spread = np.repeat(rows, lengths)
    np.testing.assert_allclose(by_token.advantages[:, 0], (rows - spread.mean()) / spread.std(), atol=1e-7)
    by_group = assign_credit(batch, [NoBaseline(), Whiten("group", ("role",))])
    role = rows[batch.keys["role"] == 1]
    np.testing.assert_allclose(
        by_group.advantages[batch.keys["role"] == 1, 0], (role - role.mean()) / role.std(), atol=1e-7
    )


def test_a_long_trajectory_does_not_dominate():
    batch = random_batch(1)
    uneven = replace(batch, keys={**batch.keys, "traj": np.minimum(np.arange(36) // 2, 3)})
    result = assign_credit(uneven, [NoBaseline(), Whiten(unit="traj")])
    traj, rows = uneven.keys["traj"], batch.row["outcome"]
    means = [rows[traj == each].mean() for each in range(4)]
    squares = [np.square(rows[traj == each] - np.mean(means)).mean() for each in range(4)]
    expected = (rows - np.mean(means)) / np.sqrt(np.mean(squares))
    np.testing.assert_allclose(result.advantages[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("ddof", [0, 1])
def test_tokens_with_their_own_advantage_are_whitened_over_the_trained_ones(ddof):
    batch = replace(random_batch(2), valid=np.arange(36) != 5)
    plain = assign_credit(batch, [Gae()])
    trained = batch.mask & batch.known[:, None]
    given = plain.advantages[trained]
    result = assign_credit(batch, [Gae(), Whiten("tokens", ddof=ddof)])
    np.testing.assert_allclose(result.advantages[trained], (given - given.mean()) / given.std(ddof=ddof), atol=1e-7)
    assert not result.advantages[~trained].any()
    scaled = assign_credit(batch, [Gae(), Whiten("tokens", ddof=ddof, center=False)])
    np.testing.assert_allclose(scaled.advantages[trained], given / given.std(ddof=ddof), atol=1e-7)
    with pytest.raises(UserError, match="whiten over: tokens"):
        assign_credit(batch, [Gae(), Whiten()])


def test_tokens_of_each_group_are_whitened_apart():
    batch = replace(random_batch(3), valid=np.arange(36) % 7 != 5)
    policy = np.arange(36) % 3
    batch = replace(batch, keys={**batch.keys, "policy": policy})
    plain = assign_credit(batch, [Gae()]).advantages
    found = assign_credit(batch, [Gae(), Whiten("tokens", ("policy",))]).advantages
    trained = batch.mask & batch.known[:, None]
    for each in range(3):
        own = trained & (policy == each)[:, None]
        expected = (plain[own] - plain[own].mean()) / plain[own].std()
        np.testing.assert_allclose(found[own], expected, atol=1e-7)
        # To the last bit what the group would get if no other were there.
        alone = assign_credit(replace(batch, valid=batch.known & (policy == each)), [Gae(), Whiten("tokens")])
        np.testing.assert_array_equal(found[own], alone.advantages[own])
    assert not found[~trained].any()
    together = assign_credit(batch, [Gae(), Whiten("tokens")]).advantages
    one = replace(batch, keys={**batch.keys, "policy": np.zeros(36, dtype=int)})
    same = assign_credit(one, [Gae(), Whiten("tokens", ("policy",))]).advantages
    np.testing.assert_array_equal(same, together)
    assert not np.allclose(found, together)


def test_rows_of_each_group_are_weighed_by_their_tokens():
    batch = random_batch(4)
    policy = np.arange(36) % 2
    batch = replace(batch, keys={**batch.keys, "policy": policy})
    found = assign_credit(batch, [NoBaseline(), Whiten("tokens", ("policy",))]).advantages
    for each in range(2):
        own = policy == each
        spread = np.repeat(batch.row["outcome"][own], batch.mask[own].sum(1))
        expected = (batch.row["outcome"][own] - spread.mean()) / spread.std()
        np.testing.assert_allclose(found[own, 0], expected, atol=1e-7)


@pytest.mark.parametrize(
    "options",
    [
        {"over": "row"},
        {"over": "group"},
        {"keys": ("task",)},
        {"over": "tokens", "unit": "traj"},
        {"over": "tokens", "keys": "policy"},
        {"ddof": 2},
        {"eps": 0.0},
        {"unit": "rows"},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(UserError, match="whiten"):
        Whiten(**options)

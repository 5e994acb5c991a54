"""Spans, roles by the potential, noise, and what becomes of a segment's value on its tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning import (
    SEGMENT_ROLES,
    UNREAD,
    Span,
    first_seen,
    noisy_roles,
    potential_roles,
    role_codes,
    segment_batch,
    spread_segments,
)

MASK = np.array([[1, 1, 0, 1, 1], [0, 1, 1, 0, 0]], dtype=bool)
SPANS = [Span(0, 0, 2), Span(0, 3, 5), Span(1, 1, 3)]


def test_roles_follow_the_potential():
    before, after = [5, 5, 5, 5, 5], [4, 6, 5, 5, 1]
    roles = potential_roles(before, after, [False, True, True, False, True])
    assert [SEGMENT_ROLES[role] for role in roles] == ["D", "R", "E", "N", "D"]
    with pytest.raises(UserError, match="segment 1: its distance"):
        potential_roles([1, 2], [1, np.inf], [False, False])
    with pytest.raises(UserError, match=r"\(2,\), \(1,\) and \(2,\)"):
        potential_roles([1, 2], [1], [False, False])


def test_labels_become_numbers():
    assert role_codes(["R", "D", None, "N", "E"]).tolist() == [3, 0, UNREAD, 2, 1]
    with pytest.raises(UserError, match=r"label of segment 1: expected one of D, E, N, R, got 'X'"):
        role_codes(["D", "X"])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
def test_first_seen_is_what_a_set_says(pairs):
    seen, expected = set(), []
    for pair in pairs:
        expected.append(pair not in seen)
        seen.add(pair)
    things, rollouts = np.array(pairs).T
    assert first_seen(things, rollouts).tolist() == expected


def test_noise_replaces_the_share_that_was_asked_for():
    roles = np.zeros(40_000, dtype=np.int64)
    noisy = noisy_roles(roles, 0.4, np.random.default_rng(0))
    assert (noisy != 0).mean() == pytest.approx(0.4 * 3 / 4, abs=0.01)
    assert np.bincount(noisy)[1:] / len(roles) == pytest.approx([0.1] * 3, abs=0.01)
    assert (noisy_roles(roles, 0, np.random.default_rng(0)) == roles).all()
    unread = np.full(100, UNREAD)
    assert (noisy_roles(unread, 1.0, np.random.default_rng(0)) == UNREAD).all()
    with pytest.raises(UserError, match=r"\[0, 1\], got 1.5"):
        noisy_roles(roles, 1.5, np.random.default_rng(0))


def test_a_batch_has_one_row_per_segment_whatever_their_order():
    batch = segment_batch(MASK, [SPANS[1], SPANS[2], SPANS[0]], [1, 0], [7, 7], label=[0, 3, 2])
    assert batch.keys["traj"].tolist() == [0, 1, 0]
    assert batch.keys["step"].tolist() == [1, 0, 0]
    assert batch.keys["task"].tolist() == [7, 7, 7]
    assert batch.row["outcome"].tolist() == [1, 0, 1]
    assert batch.row["duration"].tolist() == [2, 1, 2]
    assert batch.row["label"].tolist() == [0, 3, 2]
    assert batch.mask.all()
    uneven = segment_batch(np.ones((1, 3), dtype=bool), [(0, 0, 1), (0, 1, 3)], [1], [0])
    assert uneven.mask.tolist() == [[True, False], [True, True]]


@given(st.data())
def test_every_policy_token_gets_the_value_of_its_segment(data):
    lengths = data.draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4))
    longest = max(sum(each) + len(each) for each in lengths)
    mask, expected = np.zeros((len(lengths), longest), dtype=bool), np.zeros((len(lengths), longest))
    spans, values = [], []
    for row, each in enumerate(lengths):
        start = 0
        for length in each:
            spans.append(Span(row, start, start + length))
            values.append(len(values) + 1.0)
            for token in range(start, start + length):
                mask[row, token], expected[row, token] = True, values[-1]
            start += length + 1
    assert (spread_segments(spans, values, mask) == expected).all()
    order = data.draw(st.permutations(range(len(spans))))
    assert (spread_segments([spans[i] for i in order], [values[i] for i in order], mask) == expected).all()


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        ([], "one or more segments, got none"),
        ([Span(0, 0, 2), Span(0, 2, 5), Span(1, 1, 3)], r"segment 1 \(rollout 0, tokens 2 to 5\): token 2 is not"),
        ([Span(0, 0, 2), Span(0, 1, 2), *SPANS[1:]], r"segment 1 \(rollout 0, tokens 1 to 2\): it overlaps another"),
        ([*SPANS, Span(2, 0, 1)], r"segment 3 \(rollout 2, tokens 0 to 1\): expected rollouts 0 to 1"),
        ([*SPANS[:2], Span(1, 1, 6)], r"segment 2 .*end <= 5"),
        ([*SPANS[:2], Span(1, 2, 2)], r"segment 2 .*start < end"),
        (SPANS[:2], "rollout 1: token 1 is the policy's but lies in no segment"),
        (np.zeros((2, 2), dtype=int), r"whole numbers \(row, start, end\)"),
    ],
)
def test_faulty_spans_are_refused_with_their_place(spans, said):
    with pytest.raises(UserError, match=said):
        segment_batch(MASK, spans, [1, 0], [0, 0])


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="label: expected one per segment, 3 of them"):
        segment_batch(MASK, SPANS, [1, 0], [0, 0], label=[1, 2])
    with pytest.raises(UserError, match="outcome: expected one per rollout"):
        segment_batch(MASK, SPANS, [1, 0, 1], [0, 0])
    with pytest.raises(UserError, match="groups: expected one per rollout"):
        segment_batch(MASK, SPANS, [1, 0], [0])
    with pytest.raises(UserError, match="one value per segment, 3 of them"):
        spread_segments(SPANS, [1.0], MASK)
    with pytest.raises(UserError, match="mask: expected booleans"):
        segment_batch(MASK.astype(int), SPANS, [1, 0], [0, 0])

"""Scores of a seat in a game of hidden sides."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import deception, influence, leadership, side_accuracy, side_cross_entropy

GOOD = (True, True, True, False, False)


def test_accuracy_counts_half_and_more_as_good() -> None:
    assert side_accuracy((1, 0.4, 0.6, 0.4, 0.6), GOOD) == pytest.approx(0.6)
    assert side_accuracy((0.5,) * 5, GOOD) == pytest.approx(0.6)
    assert side_accuracy((0.49,) * 5, GOOD) == pytest.approx(0.4)


def test_cross_entropy_by_hand_and_its_floor() -> None:
    expected = -(math.log(1 - 1e-4) + 2 * math.log(0.5) + math.log(0.6) + math.log(1e-4))
    assert side_cross_entropy((1, 0.5, 0.5, 0.4, 1), GOOD) == pytest.approx(expected)
    assert side_cross_entropy((1, 1, 1, 0, 0), GOOD) == pytest.approx(-5 * math.log(1 - 1e-4))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=10))
def test_turning_sides_and_beliefs_changes_no_entropy(pairs: list[tuple[float, bool]]) -> None:
    beliefs, good = zip(*pairs, strict=True)
    turned = side_cross_entropy([1 - b for b in beliefs], [not side for side in good])
    assert side_cross_entropy(beliefs, good) == pytest.approx(turned, rel=1e-6)
    assert 0 < side_cross_entropy(beliefs, good) <= -len(good) * math.log(1e-4) + 1e-9


def test_deception_is_what_the_good_believe_of_a_seat() -> None:
    beliefs = [(1, 0.5, 0.5, 0.2, 0.9), (0.5, 1, 0.5, 0.4, 0.9), (0.5, 0.5, 1, 0.6, 0.9), (0,) * 5, (1,) * 5]
    assert deception(beliefs, GOOD, 3) == pytest.approx(0.4)
    assert deception(beliefs, GOOD, 0) == pytest.approx(0.5), "its own belief about itself does not count"
    assert math.isnan(deception([(0, 0)] * 2, (False, False), 0))


def test_influence_and_leadership() -> None:
    assert influence([True, False, True, True], [True, False, False, True]) == pytest.approx(0.75)
    assert leadership([True, False, False, False]) == pytest.approx(0.25)
    assert math.isnan(influence([], []))
    assert math.isnan(leadership([]))


def test_bad_input_is_named() -> None:
    with pytest.raises(UserError, match="got 4 beliefs for 5 players"):
        side_accuracy((1,) * 4, GOOD)
    with pytest.raises(UserError, match=r"from 0 to 1, got 1\.2"):
        side_cross_entropy((1.2, 1, 1, 0, 0), GOOD)
    with pytest.raises(UserError, match="from 0 to 1, got nan"):
        side_accuracy((math.nan, 1, 1, 0, 0), GOOD)
    with pytest.raises(UserError, match="0 beliefs for 0 players"):
        side_accuracy((), ())
    with pytest.raises(UserError, match="of 5 players, got those of 1"):
        deception([(1,) * 5], GOOD, 0)
    with pytest.raises(UserError, match="got 1 for 2"):
        influence([True, True], [True])

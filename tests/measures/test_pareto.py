"""Fronts and hypervolumes against closed forms, inclusion and exclusion, and draws."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import hypervolume, pareto_front

clouds = st.integers(1, 5).flatmap(
    lambda d: st.lists(st.lists(st.integers(-1, 4), min_size=d, max_size=d), min_size=1, max_size=9)
)


def inclusion_exclusion(points, reference):
    sides = np.maximum(np.asarray(points, dtype=float) - reference, 0)
    return sum(
        (-1) ** (size + 1) * sides[list(chosen)].min(0).prod()
        for size in range(1, len(sides) + 1)
        for chosen in combinations(range(len(sides)), size)
    )


def dominates(a, b):
    return all(x >= y for x, y in zip(a, b, strict=True)) and a != b


@settings(max_examples=80, deadline=None)
@given(clouds, st.integers(-1, 1))
def test_hypervolume_is_the_volume_of_the_union(points, reference):
    assert hypervolume(points, reference) == pytest.approx(inclusion_exclusion(points, reference), abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(clouds)
def test_the_front_holds_what_nothing_dominates(points):
    front = pareto_front(points).tolist()
    expected = [
        place
        for place, point in enumerate(points)
        if not any(dominates(other, point) for other in points) and point not in points[:place]
    ]
    assert front == expected


@settings(max_examples=40, deadline=None)
@given(clouds, st.randoms(use_true_random=False))
def test_order_repeats_and_dominated_points_add_nothing(points, random):
    volume = hypervolume(points, -1)
    assert hypervolume(random.sample(points, len(points)), -1) == pytest.approx(volume)
    assert hypervolume([*points, points[0], [-1] * len(points[0])], -1) == pytest.approx(volume)
    assert hypervolume([points[place] for place in pareto_front(points)], -1) == pytest.approx(volume)
    assert hypervolume([*points, [5] * len(points[0])], -1) == pytest.approx(6 ** len(points[0]))
    doubled = [[2 * x for x in point] for point in points]
    assert hypervolume(doubled, -2) == pytest.approx(volume * 2 ** len(points[0]))


def test_closed_forms():
    assert hypervolume([[0.5, 0.4, 0.3, 0.2, 0.1]], 0) == pytest.approx(0.5 * 0.4 * 0.3 * 0.2 * 0.1)
    steps = [[x, 6 - x] for x in range(1, 6)]
    assert hypervolume(steps, 0) == 15, "a staircase of five"
    for d in (2, 3, 4, 5):
        corners = np.ones((d, d)) + np.eye(d)
        assert hypervolume(corners, 0) == pytest.approx(1 + d), "a cube with another on each of d faces"
    simplex = [point for point in product(range(1, 9), repeat=3) if sum(point) == 10]
    assert hypervolume(simplex, 0) == sum(1 for cell in product(range(8), repeat=3) if sum(cell) <= 7)
    assert hypervolume([[1, 2], [2, 1]], [1, 1]) == 0
    assert hypervolume(np.zeros((0, 4)), 0) == 0
    assert hypervolume([[3.0], [5.0]], 1) == 4


def test_five_objectives_against_draws():
    rng = np.random.default_rng(0)
    points, draws = rng.random((24, 5)), rng.random((200_000, 5))
    covered = np.zeros(len(draws), dtype=bool)
    for point in points:
        covered |= (draws <= point).all(1)
    assert hypervolume(points, 0) == pytest.approx(covered.mean(), abs=0.005)


def test_bad_points_are_named():
    with pytest.raises(UserError, match=r"shape \(points, objectives\), got shape \(3,\)"):
        hypervolume([1, 2, 3], 0)
    with pytest.raises(UserError, match=r"point 1 is \[nan, 1\.0\]"):
        pareto_front([[0, 1], [float("nan"), 1]])
    with pytest.raises(UserError, match="expected 2 finite numbers as reference"):
        hypervolume([[1, 2]], [0, 0, 0])
    with pytest.raises(UserError, match="expected 2 finite numbers as reference"):
        hypervolume([[1, 2]], float("inf"))

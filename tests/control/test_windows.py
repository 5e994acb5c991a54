"""Windows, returns, goals from the future and normalisers, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control import Trajectories, Windows, all_goals, future_steps, normaliser
from rolecraft.errors import UserError


def make(lengths: list[int], seed: int = 0) -> Trajectories:
    rng = np.random.default_rng(seed)
    return Trajectories.of(
        [{"obs": rng.normal(size=(n, 2)), "actions": rng.normal(size=(n, 1)), "rewards": rng.normal(size=n),
          "label": [each]} for each, n in enumerate(lengths)]
    )  # fmt: skip


sizes = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@given(sizes, st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_returns_are_the_sums(lengths: list[int], discount: float, seed: int) -> None:
    data = make(lengths, seed)
    found = data.returns_to_go(discount)
    step = 0
    for episode, length in enumerate(lengths):
        rewards = data.rewards[step : step + length].astype(float)
        for t in range(length):
            expected = sum(discount**k * rewards[t + k] for k in range(length - t))
            assert found[step + t] == pytest.approx(expected, abs=1e-5)
        assert data.returns(discount)[episode] == found[step]
        step += length


@given(sizes, st.integers(1, 5), st.sampled_from(["future", "history"]))
@settings(max_examples=30, deadline=None)
def test_windows_stay_in_their_trajectory(lengths: list[int], horizon: int, side: Any) -> None:
    data = make(lengths)
    batch = Windows(data, horizon, side).take(np.arange(len(data.rewards)))
    at = 0
    for length in lengths:
        for t in range(length):
            wanted = range(t, t + horizon) if side == "future" else range(t - horizon + 1, t + 1)
            for place, each in enumerate(wanted):
                real = 0 <= each < length
                assert batch.mask[at + t, place] == real
                kept = min(max(each, 0), length - 1)
                assert (batch.obs[at + t, place] == data.obs[at + kept]).all()
        at += length


def test_geometric_offsets_have_the_truncated_geometric_law() -> None:
    data, discount, room = make([8]), 0.7, 5
    drawn = future_steps(data, np.full(40_000, 2), np.random.default_rng(0), "geometric", discount) - 2
    weights = discount ** np.arange(1, room + 1)
    found = np.bincount(drawn, minlength=room + 1)[1:] / len(drawn)
    assert found == pytest.approx(weights / weights.sum(), abs=0.01)


def test_uniform_and_final_goals() -> None:
    data = make([4, 3])
    drawn = future_steps(data, np.full(30_000, 4), np.random.default_rng(0), "uniform")
    assert np.bincount(drawn)[5:] / len(drawn) == pytest.approx([0.5, 0.5], abs=0.02)
    assert future_steps(data, [0, 4, 6], np.random.default_rng(0), "final").tolist() == [3, 6, 6]
    assert future_steps(data, [3, 6], np.random.default_rng(0)).tolist() == [3, 6]
    assert future_steps(data, [0], np.random.default_rng(0), discount=0).tolist() == [1]


def test_all_goals_count_steps_to_each() -> None:
    data = Trajectories.of(
        [{"obs": [[0.0], [1], [2]], "actions": np.zeros((3, 1))}, {"obs": [[2.0], [0]], "actions": np.zeros((2, 1))}]
    )
    holds, ahead = all_goals(data, [0.0, 2.0, 9.0], lambda obs, goals: obs == goals)
    assert holds[:, 0].tolist() == [True, False, False, False, True]
    assert ahead.T.tolist() == [[0, -1, -1, 1, 0], [2, 1, 0, 0, -1], [-1] * 5]
    with pytest.raises(UserError, match=r"\(N, G\) = \(5, 1\)"):
        all_goals(data, [0.0], lambda obs, goals: np.zeros(5, bool))


@pytest.mark.parametrize("name", ["gaussian", "bounds", "cdf"])
def test_normalisers_invert_and_bear_a_constant(name: Any) -> None:
    rng = np.random.default_rng(0)
    data = np.stack([rng.exponential(size=300), np.full(300, 7.0), rng.integers(0, 3, 300)], axis=1)
    scale = normaliser(name, data)
    coded = scale.encode(data)
    assert np.isfinite(coded).all()
    assert (coded[:, 1] == 0).all()
    assert scale.decode(coded) == pytest.approx(data, abs=1e-3)
    assert (scale.decode(scale.encode([[0.5, 99.0, 1.0]]))[:, 1] == 7).all()
    with pytest.raises(UserError, match="d = 3"):
        scale.encode([[1.0, 2.0]])


def test_the_empirical_distribution_becomes_uniform() -> None:
    data = np.random.default_rng(1).exponential(size=(2001, 1))
    coded = np.sort(normaliser("cdf", data).encode(data)[:, 0])
    assert coded == pytest.approx(np.linspace(-1, 1, 2001), abs=1e-4)
    assert normaliser("cdf", data).encode([[-5.0], [500.0]])[:, 0].tolist() == [-1, 1]


def test_gaussian_and_bounds_have_their_ranges() -> None:
    data = np.random.default_rng(1).normal(3, 2, size=(500, 1))
    coded = normaliser("gaussian", data).encode(data)
    assert (coded.mean(), coded.std()) == pytest.approx((0, 1), abs=1e-4)
    bounds = normaliser("bounds", data).encode(data)
    assert (bounds.min(), bounds.max()) == pytest.approx((-1, 1), abs=1e-5)


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Trajectories.of([]), "at least one trajectory"),
        (lambda: Trajectories.of([{"obs": [[1.0]]}]), "trajectory 0: actions missing"),
        (lambda: Trajectories.of([{"obs": [[1.0]], "actions": [[1.0], [2.0]]}]), r"one length T >= 1"),
        (
            lambda: Trajectories.of([{"obs": [[1.0]], "actions": [1]}, {"obs": [[1.0, 2.0]], "actions": [1]}]),
            "trajectory 1: obs",
        ),
        (lambda: Trajectories.of([{"obs": [[np.nan]], "actions": [1]}]), "obs: 1 numbers are not finite"),
        (lambda: make([2]).returns_to_go(1.5), r"\[0, 1\]"),
        (lambda: Windows(make([2]), 0), "horizon >= 1"),
        (lambda: Windows(make([2]), 1).take([2]), "from 0 to 1"),
        (lambda: future_steps(make([2]), [0], np.random.default_rng(0), "past"), "geometric, uniform or final"),
        (lambda: normaliser("bound", [[1.0]]), "Did you mean 'bounds'"),
        (lambda: normaliser("cdf", np.zeros((0, 2))), "finite data"),
    ],
)
def test_bad_input(make_it: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_it()

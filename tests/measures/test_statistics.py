"""Statistics against scipy and scikit-learn, and their conventions at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import (
    auc,
    bootstrap_mean,
    bootstrap_rows,
    cohen_kappa,
    paired_bootstrap,
    pearson,
    slope,
    spearman,
    wilson,
)

SAMPLES = st.lists(st.integers(-5, 5), min_size=4, max_size=30)


@settings(max_examples=40, deadline=None)
@given(SAMPLES, st.integers(0, 100))
def test_correlations_agree_with_scipy(x: list[int], seed: int) -> None:
    from scipy import stats

    y = np.random.default_rng(seed).normal(size=len(x)) + np.array(x)
    if len(set(x)) == 1:
        assert pearson(x, y).flat
        assert pearson(x, y).r == 0
        assert math.isnan(slope(x, y))
    else:
        assert pearson(x, y).r == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
        assert spearman(x, y).r == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
        assert slope(x, y) == pytest.approx(stats.linregress(x, y).slope, abs=1e-9)


def test_a_constant_curve_is_flat_and_not_anti_controllable() -> None:
    found = pearson([1, 1.5, 2, 2.5], [60.0] * 4)
    assert (found.r, found.flat, found.n) == (0.0, True, 4)
    assert not found.r < 0


def test_missing_points_are_left_out_and_one_point_is_undefined() -> None:
    assert pearson([1, 2, 3, 4], [1, math.nan, 3, 4]).n == 3
    assert math.isnan(pearson([1, 2], [3, math.nan]).r)
    with pytest.raises(UserError, match="one length"):
        pearson([1, 2], [1])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_kappa_agrees_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    if len({*a, *b}) == 1:
        assert math.isnan(cohen_kappa(a, b))
        return
    for weights in ("quadratic", "none"):
        theirs = cohen_kappa_score(a, b, weights=None if weights == "none" else weights, labels=range(4))
        ours = cohen_kappa(a, b, weights)
        assert ours == pytest.approx(theirs, abs=1e-9) or (math.isnan(ours) and math.isnan(theirs))


@settings(max_examples=40, deadline=None)
@given(SAMPLES, SAMPLES)
def test_auc_agrees_with_scikit_learn(positive: list[int], negative: list[int]) -> None:
    from sklearn.metrics import roc_auc_score

    theirs = roc_auc_score([1] * len(positive) + [0] * len(negative), positive + negative)
    assert auc(positive, negative) == pytest.approx(theirs)


def test_auc_needs_both_sides() -> None:
    assert math.isnan(auc([], [1.0]))
    assert math.isnan(auc([math.nan], [1.0]))


def test_wilson_by_hand() -> None:
    found = wilson(8, 10)
    assert (found.estimate, found.n) == (0.8, 10)
    assert (found.low, found.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    with pytest.raises(UserError, match="3 of 2"):
        wilson(3, 2)


def test_the_bootstrap_covers_the_mean_and_is_deterministic() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        found = bootstrap_mean(rng.normal(1.0, 2.0, size=40), draws=500, seed=trial)
        hits += found.low <= 1.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99
    values = rng.normal(size=25)
    assert bootstrap_mean(values) == bootstrap_mean(values)
    assert bootstrap_mean(values, seed=1) != bootstrap_mean(values)


def test_the_bootstrap_has_the_width_of_the_standard_error() -> None:
    values = np.random.default_rng(1).normal(size=400)
    found = bootstrap_mean(values, draws=4000)
    assert found.estimate == pytest.approx(values.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.06)


def test_clusters_widen_the_interval_of_correlated_values() -> None:
    rng = np.random.default_rng(2)
    units = np.repeat(np.arange(20), 10)
    values = rng.normal(size=20)[units] + 0.01 * rng.normal(size=200)
    alone, clustered = bootstrap_mean(values), paired_bootstrap(values, units)
    assert clustered.n == 20
    assert alone.n == 200
    assert (clustered.high - clustered.low) > 2.5 * (alone.high - alone.low)
    assert clustered.estimate == alone.estimate


def test_rows_are_resampled_as_each_would_be_alone() -> None:
    values = np.random.default_rng(3).normal(size=(3, 12))
    means, low, high = bootstrap_rows(values, seed=5)
    for row in range(3):
        single = bootstrap_mean(values[row], seed=5)
        assert (means[row], low[row], high[row]) == pytest.approx((single.estimate, single.low, single.high))


def test_missing_values_and_too_few_units() -> None:
    values = [1.0, math.nan, 3.0, 2.0]
    assert bootstrap_mean(values).estimate == 2.0
    assert bootstrap_mean(values).n == 3
    single = bootstrap_mean([4.0])
    assert single.estimate == 4.0
    assert math.isnan(single.low)
    assert math.isnan(bootstrap_mean([]).estimate)
    _, low, high = bootstrap_rows([[1.0, math.nan, math.nan], [1.0, 2.0, 3.0]])
    assert math.isnan(low[0])
    assert low[1] < high[1]


def test_excludes_zero() -> None:
    assert bootstrap_mean([2.0, 3.0, 4.0, 3.0]).excludes_zero
    assert not bootstrap_mean([-2.0, 3.0, -4.0, 3.0]).excludes_zero


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(UserError, match="level"):
        bootstrap_mean([1.0, 2.0], level=level)


@pytest.mark.parametrize("n", [6, 12])
def test_intervals_of_few_units_cover_what_they_say(n: int) -> None:
    """The plain percentile interval has its lower bound above the truth 7.5 % of the time at six units."""
    samples = np.random.default_rng(0).normal(size=(2000, n))
    _, low, high = bootstrap_rows(samples, 2000)
    assert (low > 0).mean() < 0.045
    assert (high < 0).mean() < 0.045
    assert (low > 0).mean() > 0.01, "nor are they needlessly wide"

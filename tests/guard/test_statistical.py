"""Thresholds with a guarantee, by the formula and by simulation, and the exact interval of a proportion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rolecraft.errors import UserError
from rolecraft.guard import clopper_pearson, clopper_pearson_bound, control_risk

scored = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=60)


def test_the_kth_smallest_violation():
    scores, wrong = np.arange(40) / 40, np.ones(40, dtype=bool)
    found = control_risk(scores, wrong, 0.1)
    assert found.threshold == scores[3]  # floor(0.1 * 41) = 4th
    assert (found.calibrated, found.needed, found.blocks_all) == (40, 9, False)
    assert found.passes([0.0, scores[3], math.nan]).tolist() == [True, False, False]
    assert control_risk(scores[:8], wrong[:8], 0.1).blocks_all
    assert control_risk([0.5], [0], 0.1).blocks_all
    assert control_risk(scores, wrong, 0.1, per="action").threshold == scores[3]
    assert control_risk(scores, ~wrong, 0.1, per="action").threshold == math.inf


@settings(max_examples=100, deadline=None)
@given(rows=scored, alpha=st.sampled_from([0.05, 0.1, 0.25, 0.5]))
def test_both_thresholds_are_the_largest_that_the_formula_allows(rows, alpha):
    scores, wrong = np.array([row[0] for row in rows], dtype=float), np.array([row[1] for row in rows])
    for per, base in (("violation", wrong.sum()), ("action", len(rows))):
        found = control_risk(scores, wrong, alpha, per=per).threshold
        allowed = [
            candidate
            for candidate in (-math.inf, *np.unique(scores), math.inf)
            if ((scores < candidate) & wrong).sum() + 1 <= alpha * (base + 1) + 1e-9
        ]
        if per == "violation" and not (allowed and wrong.any()):
            assert found == -math.inf
            continue
        largest = max(allowed, default=-math.inf)
        # between two scores every threshold lets the same actions pass
        assert ((scores < found) == (scores < largest)).all() or (
            per == "violation" and (wrong & (scores < found)).sum() == (wrong & (scores < largest)).sum()
        )


def test_the_guarantee_holds_on_average_whatever_the_score():
    rng = np.random.default_rng(0)
    for informative in (0.0, 2.0):
        passed = []
        for _ in range(2000):
            scores = rng.normal(size=61) + informative
            threshold = control_risk(scores[:60], np.ones(60), 0.05).threshold
            passed.append(scores[60] < threshold)
        exact = clopper_pearson(sum(passed), len(passed), 0.999)
        assert exact.low <= 0.05
        assert exact.high > 0.02  # 3 / 61 is expected: the bound is not loose


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 60), data=st.data(), level=st.sampled_from([0.8, 0.95, 0.99]))
def test_clopper_pearson_inverts_the_binomial_test(n, data, level):
    k = data.draw(st.integers(0, n))
    found = clopper_pearson(k, n, level)
    tail = (1 - level) / 2
    assert found.low <= found.estimate == k / n <= found.high
    if k:
        assert stats.binom.sf(k - 1, n, found.low) == pytest.approx(tail)
    if k < n:
        assert stats.binom.cdf(k, n, found.high) == pytest.approx(tail)
        assert stats.binom.cdf(k, n, clopper_pearson_bound(k, n, level)) == pytest.approx(1 - level)


def test_clopper_pearson_by_hand():
    assert clopper_pearson_bound(0, 59) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert (clopper_pearson(0, 10).low, clopper_pearson(10, 10).high) == (0.0, 1.0)
    assert (clopper_pearson(0, 0).low, clopper_pearson(0, 0).high, clopper_pearson_bound(0, 0)) == (0.0, 1.0, 1.0)
    covered = [clopper_pearson(k, 20).low <= 0.3 <= clopper_pearson(k, 20).high for k in range(21)]
    assert float(stats.binom.pmf(range(21), 20, 0.3) @ covered) >= 0.95


@pytest.mark.parametrize(
    ("given_", "part"),
    [
        (([0.1], [1, 0], 0.1), "one shape"),
        (([[0.1]], [[1]], 0.1), "one shape"),
        (([math.nan], [1], 0.1), "finite"),
        (([0.1], [2], 0.1), "truth values"),
        (([0.1], [1], 0.0), "between 0 and 1"),
    ],
)
def test_faulty_calibration_data(given_, part):
    with pytest.raises(UserError, match=part):
        control_risk(*given_)


def test_faulty_counts():
    with pytest.raises(UserError, match="'violation' or 'action'"):
        control_risk([0.1], [1], 0.1, per="row")
    for counts in ((3, 2), (-1, 2)):
        with pytest.raises(UserError, match="successes"):
            clopper_pearson(*counts)
    with pytest.raises(UserError, match="level"):
        clopper_pearson_bound(1, 2, 1.0)

"""Statistics of populations: exact cases, planted truths and how often the intervals hold them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import binom, f_oneway, wasserstein_distance

from rolecraft.errors import UserError
from rolecraft.measures import (
    distribution_distance,
    krippendorff_alpha,
    population_distance,
    population_diversity,
    role_share,
    vector_spread,
)

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
KINDS = ("total-variation", "jensen-shannon", "wasserstein")
shares = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)


class TestDistance:
    def test_exact_cases(self):
        assert float(distribution_distance(P, Q)) == pytest.approx(0.3)
        assert float(distribution_distance([1, 0], [0, 1], "jensen-shannon")) == pytest.approx(1)
        assert float(distribution_distance(P, Q, "wasserstein")) == pytest.approx(0.6)
        # Values out of order: mass goes from 10 to 0.
        assert float(distribution_distance([1, 0], [0, 1], "wasserstein", [10, 0])) == pytest.approx(10)

    @given(shares, shares)
    @settings(max_examples=60, deadline=None)
    def test_they_are_those_of_scipy_and_symmetric(self, a, b):
        p, q = np.array(a) / sum(a), np.array(b) / sum(b)
        values = [3.0, -1.0, 0.5, 7.0]
        expected = {
            "jensen-shannon": jensenshannon(p, q, 2),
            "wasserstein": wasserstein_distance(values, values, p, q),
            "total-variation": np.abs(p - q).sum() / 2,
        }
        for kind, value in expected.items():
            given_values = values if kind == "wasserstein" else None
            found = float(distribution_distance(a, b, kind, given_values))
            assert found == pytest.approx(float(np.nan_to_num(value)), abs=1e-6)
            assert found == pytest.approx(float(distribution_distance(b, a, kind, given_values)), abs=1e-9)

    def test_an_empty_row_is_undefined(self):
        assert math.isnan(distribution_distance([0, 0], [1, 0]))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("other", [P, Q])
    def test_the_interval_holds_the_truth_and_deals_keep_their_level(self, kind, other):
        truth = float(distribution_distance(P, other, kind))
        inside = found = 0
        for seed in range(1, 101):
            rng = np.random.default_rng(seed)
            a, b = rng.multinomial(1, P, size=40), rng.multinomial(1, other, size=40)
            distance = population_distance(a, b, kind, draws=300, seed=seed)
            inside += distance.low <= truth <= distance.high
            found += distance.p <= 0.05
        assert inside >= binom.ppf(0.01, 100, 0.95)
        assert found <= 10 if truth == 0 else found >= 75

    def test_pairs_take_out_what_units_share(self):
        rng = np.random.default_rng(1)
        own = rng.dirichlet([0.2, 0.2], size=30)  # units differ much, the two sides little
        a = np.round(20 * own).astype(int)
        b = np.stack([a[:, 0] - (a[:, 0] > 1), a[:, 1] + (a[:, 0] > 1)], 1)
        paired, apart = population_distance(a, b, paired=True), population_distance(a, b)
        assert paired.estimate == apart.estimate
        assert paired.p < 0.01 < 0.3 < apart.p
        assert paired.high - paired.low < apart.high - apart.low
        assert (paired.low > 0, apart.low) == (True, 0)

    def test_the_same_population_has_distance_0(self):
        table = np.random.default_rng(0).multinomial(3, P, size=12)
        same = population_distance(table, table, paired=True)
        assert (same.estimate, same.low, same.p, same.chance) == (0, 0, 1, 0)

    def test_order_of_units_does_not_matter_to_the_estimate(self):
        rng = np.random.default_rng(0)
        a, b = rng.multinomial(3, P, size=12), rng.multinomial(3, Q, size=12)
        assert population_distance(a[::-1], b).estimate == population_distance(a, b).estimate

    def test_too_few_units_are_undefined_with_a_reason(self):
        one = population_distance([[1, 0]], [[0, 1], [1, 0]])
        assert math.isnan(one.estimate)
        assert one.reason == "1 units on one side with answers, at least 2 are needed"
        holes = population_distance([[1, 0], [0, 0]], [[1, 0], [0, 1]], paired=True)
        assert holes.reason.startswith("1 pairs of units")

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: distribution_distance(P, Q, "wassertein"), "Did you mean 'wasserstein'"),
            (lambda: distribution_distance(P, Q[:2]), "same options"),
            (lambda: distribution_distance(P, -Q), "0 or more"),
            (lambda: distribution_distance(P, Q, "wasserstein", [0, 1]), "each of 3 options"),
            (lambda: population_distance([[1, 0]] * 3, [[1, 0]] * 2, paired=True), "and units"),
            (lambda: population_distance([1, 0], [[1, 0]]), "units, options"),
        ],
    )
    def test_mistakes_are_named(self, call, message):
        with pytest.raises(UserError, match=message):
            call()


class TestDiversity:
    def test_exact_cases(self):
        even = population_diversity([4, 4, 0, 0])
        assert (even.entropy.estimate, even.evenness.estimate) == (1, 0.5)
        assert even.variety.estimate == pytest.approx(1 - 2 * 4 * 3 / (8 * 7))
        assert (even.distinct, even.answers) == (2, 8)
        one = population_diversity([5, 0])
        assert (one.entropy.estimate, one.variety.estimate, one.entropy.high) == (0, 0, 0)

    def test_units_are_resampled_as_a_whole(self):
        rng = np.random.default_rng(3)
        answers = rng.multinomial(1, P, size=20)
        alone, doubled = population_diversity(answers), population_diversity(np.repeat(answers, 1, axis=0) * 30)
        assert doubled.entropy.estimate == alone.entropy.estimate
        assert doubled.entropy.high - doubled.entropy.low == pytest.approx(
            alone.entropy.high - alone.entropy.low, rel=0.1
        )
        pooled = population_diversity(answers.sum(0) * 30)  # 600 answers taken for independent
        assert pooled.entropy.high - pooled.entropy.low < 0.4 * (alone.entropy.high - alone.entropy.low)

    @pytest.mark.parametrize("what", ["entropy", "variety"])
    def test_the_interval_holds_the_truth(self, what):
        truth = {"entropy": float(-(P * np.log2(P)).sum()), "variety": float(1 - (P**2).sum())}[what]
        inside = 0
        for seed in range(1, 101):
            counts = np.random.default_rng(seed).multinomial(60, P)
            figure = getattr(population_diversity(counts, draws=300, seed=seed), what)
            inside += figure.low <= truth <= figure.high
        assert inside >= binom.ppf(0.01, 100, 0.95)

    def test_the_chance_that_two_differ_is_unbiased(self):
        rng = np.random.default_rng(1)
        found = [population_diversity(rng.multinomial(5, P), draws=2).variety.estimate for _ in range(600)]
        assert np.mean(found) == pytest.approx(1 - (P**2).sum(), abs=0.02)

    def test_undefined_with_a_reason(self):
        assert "at least 2" in population_diversity([1, 0]).entropy.reason
        assert population_diversity([4]).evenness.reason == "one option leaves nothing to choose"


class TestRoleShare:
    ROLES = ("poet", "chef", "judge", "clerk")

    def sample(self, seed: int, share: float, each: int = 20):
        rng = np.random.default_rng(seed)
        means = np.tile(np.linspace(-1, 1, 4), each)
        means = means / means.std() * math.sqrt(share)
        return means + rng.normal(size=len(means)) * math.sqrt(1 - share), list(self.ROLES) * each

    def test_it_is_the_analysis_of_variance(self):
        values, roles = self.sample(1, 0.4)
        found = role_share(values, roles, draws=20)
        groups = [values[np.array(roles) == role] for role in self.ROLES]
        assert found.between / found.within == pytest.approx(f_oneway(*groups).statistic)
        total = values.var(ddof=1)
        assert found.estimate == pytest.approx(1 - found.within / total)

    def test_extremes(self):
        alike = role_share([1, 2, 1, 2, 1, 2, 1, 2], ["a", "a", "b", "b"] * 2, draws=50)
        assert alike.estimate < 0.01
        apart = role_share([1.0, 1.0, 2.0, 2.0], ["a", "a", "b", "b"], draws=200)
        assert (apart.estimate, apart.within) == (1, 0)

    @pytest.mark.parametrize("share", [0.0, 0.3])
    def test_the_interval_holds_the_truth(self, share):
        found = [role_share(*self.sample(seed, share), draws=150, seed=seed) for seed in range(1, 61)]
        assert sum(one.low <= share <= one.high for one in found) >= binom.ppf(0.01, 60, 0.95)
        assert np.mean([one.estimate for one in found]) == pytest.approx(share, abs=0.03)
        rejected = sum(one.p <= 0.05 for one in found)
        assert rejected <= 7 if share == 0 else rejected >= 57

    def test_answers_of_one_unit_are_dealt_as_a_whole(self):
        # Each unit has one value for each of its roles' many answers: 8 independent facts, not 160.
        rng = np.random.default_rng(5)
        units = np.repeat(np.arange(8), 20)
        values = rng.normal(size=8)[units]
        roles = [self.ROLES[unit % 4] for unit in units]
        assert role_share(values, roles, draws=200).p < 0.01
        assert role_share(values, roles, units.tolist(), draws=200).p > 0.05

    def test_vectors_and_undefined_cases(self):
        onehot = np.eye(2)[[0, 0, 1, 1]]
        assert role_share(onehot, ["a", "a", "b", "b"], draws=20).estimate == 1
        assert "at least 2 roles" in role_share([1, 2, 3], ["a"] * 3).reason
        assert role_share([1, 1, 1], ["a", "a", "b"]).reason == "all answers are the same"
        with pytest.raises(UserError, match="a role and a unit each"):
            role_share([1, 2], ["a"])
        with pytest.raises(UserError, match="finite"):
            role_share([1, math.nan], ["a", "b"])


class TestSpread:
    def test_pairs_within_a_unit_do_not_count(self):
        right, up = [1.0, 0.0], [0.0, 1.0]
        assert vector_spread([right, right, up, up], [0, 0, 1, 1]).estimate == pytest.approx(1)
        assert vector_spread([right, up, right, up], [0, 0, 1, 1]).estimate == pytest.approx(0.5)
        assert vector_spread([right] * 4).estimate == pytest.approx(0)

    def test_it_is_the_mean_over_pairs(self):
        rng = np.random.default_rng(2)
        vectors = rng.normal(size=(12, 5))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        pairs = [1 - vectors[i] @ vectors[j] for i in range(12) for j in range(i)]
        found = vector_spread(vectors)
        assert found.estimate == pytest.approx(np.mean(pairs))
        assert found.low < found.estimate < found.high

    def test_undefined_and_wrong(self):
        assert "1 units" in vector_spread([[1.0, 0.0]] * 2, [7, 7]).reason
        with pytest.raises(UserError, match="a unit each"):
            vector_spread([[1.0, 0.0]], [1, 2])


class TestAlpha:
    # Krippendorff's own example of four observers and twelve units.
    TABLE = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, np.nan, np.nan, np.nan],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, np.nan, 3],
            [np.nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, np.nan],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, np.nan],
        ]
    )

    def test_the_published_example(self):
        assert round(krippendorff_alpha(self.TABLE).estimate, 3) == 0.743
        assert round(krippendorff_alpha(self.TABLE, "interval").estimate, 3) == 0.849

    def test_order_does_not_matter_and_chance_is_0(self):
        assert krippendorff_alpha(self.TABLE[::-1, ::-1]).estimate == pytest.approx(
            krippendorff_alpha(self.TABLE).estimate
        )
        found = [
            krippendorff_alpha(np.random.default_rng(s).integers(3, size=(3, 40)), draws=2).estimate for s in range(40)
        ]
        assert np.mean(found) == pytest.approx(0, abs=0.03)

    def test_undefined_with_a_reason(self):
        assert (
            krippendorff_alpha(np.ones((2, 5))).reason == "all answers are the same, so that agreement cannot be told"
        )
        assert "0 items" in krippendorff_alpha([[1, math.nan], [math.nan, 1]]).reason
        with pytest.raises(UserError, match="level"):
            krippendorff_alpha(self.TABLE, "ordinal")

"""Consistency of beliefs and behaviour: exact cases, planted truths, and what is undefined."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import (
    ConsistencyReport,
    attribute_effect,
    horizon_curve,
    individual_consistency,
    population_consistency,
    prior_compliance,
    spearman,
)
from rolecraft.measures._consistency import _rank_correlations

NAN = math.nan


def noisy(latent, columns, noise, seed):
    rng = np.random.default_rng(seed)
    return latent[:, None] + noise * rng.normal(size=(len(latent), columns))


# Individuals


def test_exact_figures_of_a_small_case():
    found = individual_consistency([1, 2, 3, 4, 5], [2, 2, 3, 4, 9], 10, draws=50)
    assert found.rho.estimate == pytest.approx(float(spearman([1, 2, 3, 4, 5], [2, 2, 3, 4, 9])))
    assert found.error.estimate == pytest.approx((1 + 0 + 0 + 0 + 4) / 5 / 10)
    # Everybody's mean is 4: errors 2, 2, 1, 0, 5, so 10 against 5.
    assert found.skill.estimate == pytest.approx(0.5)
    assert found.personas == 5
    assert found.corrected.reason == "one asking per persona tells nothing of reliability"


def test_perfect_repeats_need_no_correction():
    table = np.repeat(np.arange(8.0)[:, None], 4, axis=1)
    found = individual_consistency(table, 10 - table, 10, draws=50)
    assert found.rho.estimate == pytest.approx(-1)
    assert found.belief_reliability.estimate == pytest.approx(1)
    assert found.corrected.estimate == pytest.approx(-1)
    assert found.gap.estimate == pytest.approx(2)


@pytest.mark.parametrize(("askings", "plays"), [(3, 5), (4, 7), (6, 6)])
def test_the_correction_finds_the_truth_that_noise_hides(askings, plays):
    latent = np.random.default_rng(1).normal(size=1500)
    found = individual_consistency(noisy(latent, askings, 1.2, 2), noisy(latent, plays, 1.5, 3), 1, draws=2)
    assert found.rho.estimate < 0.85
    assert found.corrected.estimate == pytest.approx(1, abs=0.05)
    # The reliability is that of the mean of all repeats, odd numbers of them too.
    ranks = spearman(noisy(latent, plays, 1.5, 3).mean(1), noisy(latent, plays, 1.5, 4).mean(1)).r
    assert found.action_reliability.estimate == pytest.approx(ranks, abs=0.05)


def test_unrelated_sides_stay_unrelated_after_correction():
    rng = np.random.default_rng(5)
    said, done = rng.normal(size=800), rng.normal(size=800)
    found = individual_consistency(noisy(said, 3, 1, 6), noisy(done, 3, 1, 7), 1, draws=100)
    assert abs(found.corrected.estimate) < 0.12
    assert found.corrected.low < 0 < found.corrected.high


def test_intervals_come_from_personas_and_cover_the_estimate():
    latent = np.random.default_rng(8).normal(size=60)
    tables = noisy(latent, 3, 1, 9), noisy(latent, 5, 1, 10)
    found, again = (individual_consistency(*tables, 10, draws=200, seed=3) for _ in range(2))
    assert found == again
    for name in ("rho", "skill", "belief_reliability", "action_reliability", "gap"):
        figure = getattr(found, name)
        assert figure.low < figure.estimate < figure.high
        assert figure.n == 60
    more = individual_consistency(*(np.tile(table, (4, 1)) for table in tables), 10, draws=200, seed=3)
    assert more.rho.high - more.rho.low < 0.7 * (found.rho.high - found.rho.low)


def test_missing_repeats_and_personas():
    latent = np.arange(20.0)
    said, done = np.repeat(latent[:, None], 3, 1), np.repeat(latent[:, None], 4, 1)
    said[0] = NAN
    done[3] = np.inf
    done[5, 2] = NAN
    found = individual_consistency(said, done, 20, draws=50)
    assert found.left_out == (0, 3)
    assert found.personas == 18
    assert found.corrected.estimate == pytest.approx(1)
    assert found.error.estimate == 0


@pytest.mark.parametrize(
    ("said", "done", "reason"),
    [
        ([[1, 1]] * 8, [[i, i] for i in range(8)], "the mean belief of all personas is the same"),
        ([[i, i] for i in range(8)], [[4, 4]] * 8, "the mean action of all personas is the same"),
        ([[i, i] for i in range(4)], [[i, i] for i in range(4)], "4 personas"),
        ([[NAN, NAN]] * 8, [[i, i] for i in range(8)], "0 personas"),
    ],
)
def test_undefined_is_nan_and_says_why(said, done, reason):
    found = individual_consistency(said, done, 10, draws=20)
    assert math.isnan(found.rho.estimate)
    assert math.isnan(found.rho.low)
    assert reason in found.rho.reason
    assert reason in found.corrected.reason
    assert "undefined" in ConsistencyReport(found).text()


def test_repeats_that_contradict_each_other_allow_no_correction():
    done = np.arange(10.0)
    said = np.stack([done, -done], 1) + np.random.default_rng(0).normal(size=(10, 2)) * 0.01
    found = individual_consistency(said, np.stack([done, done], 1), 10, draws=20)
    assert found.belief_reliability.estimate < 0
    assert "do not agree" in found.corrected.reason


def test_bad_tables():
    with pytest.raises(UserError, match="3 personas and actions of 2"):
        individual_consistency([1, 2, 3], [1, 2], 10)
    with pytest.raises(UserError, match="scale"):
        individual_consistency([1, 2], [1, 2], 0)
    with pytest.raises(UserError, match="one row per persona"):
        individual_consistency(np.zeros((2, 2, 2)), [1, 2], 10)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6) | st.none(), st.integers(0, 6) | st.none()), min_size=5, max_size=30))
def test_ranks_with_gaps_are_those_of_the_plain_statistic(pairs):
    a, b = (np.array([NAN if pair[side] is None else pair[side] for pair in pairs], dtype=float) for side in (0, 1))
    found, plain = float(_rank_correlations(a, b)), spearman(a, b)
    if plain.n < 5 or plain.flat:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(plain.r)


# Attributes


def test_exact_effects():
    attribute, values = [0, 0, 0, 1, 1, 1], [1, 2, 3, 5, 6, 7]
    assert attribute_effect(attribute, values, "difference", 10) == pytest.approx(0.4)
    # Between 24, within 4.
    assert attribute_effect(list("aaabbb"), values, "eta-squared") == pytest.approx(24 / 28)
    assert attribute_effect(attribute, values) == pytest.approx(float(spearman(attribute, values)))
    # What lies in the middle of the range belongs to neither side; what lacks the attribute is left out.
    assert attribute_effect([0, 0, 0.5, 1, 1, NAN], [1, 3, 99, 6, 6, 50], "difference") == pytest.approx(4)
    assert attribute_effect(["a", "a", "b", "b", "b", None], [1, 1, 3, 3, 3, 70], "eta-squared") == pytest.approx(1)
    assert math.isnan(attribute_effect([1] * 6, values))
    assert math.isnan(attribute_effect([1] * 6, values, "difference"))


def test_the_difference_of_a_mixture_is_the_mixture_of_the_differences():
    rng = np.random.default_rng(3)
    attribute, one, other = rng.normal(size=(3, 40))
    effects = [attribute_effect(attribute, values, "difference") for values in (one, other, 0.3 * one + 0.7 * other)]
    assert effects[2] == pytest.approx(0.3 * effects[0] + 0.7 * effects[1])


def population(n=400):
    rng = np.random.default_rng(11)
    traits = {name: rng.normal(size=n) for name in "abcd"}
    plays = 5 + traits["a"] - 0.6 * traits["b"] + 0.3 * traits["c"]
    return traits, noisy(plays, 5, 1, 12)


def test_right_and_wrong_theories_of_a_population():
    traits, plays = population()
    played = {name: attribute_effect(trait, plays.mean(1), "difference", 10) for name, trait in traits.items()}
    right = population_consistency(played, traits, plays, kind="difference", scale=10, draws=100)
    assert right.agreement == pytest.approx(1)
    assert right.order.estimate == pytest.approx(math.nan, nan_ok=True) or right.order.estimate == pytest.approx(1)
    wrong = population_consistency(
        {name: -value for name, value in played.items()}, traits, plays, kind="difference", scale=10, draws=100
    )
    assert wrong.effects["a"].same_sign is False
    assert wrong.effects["a"].agreement.estimate == pytest.approx(1 - 2 * abs(played["a"]))
    assert wrong.signs == 0
    assert right.signs == 1
    text = ConsistencyReport(individual_consistency(plays, plays, 10, draws=20), wrong).text()
    assert "the other way round for a, b" in text


def test_the_order_over_attributes():
    rng = np.random.default_rng(11)
    traits = {str(i): rng.normal(size=300) for i in range(5)}
    weights = np.array([1.0, 0.6, 0.0, -0.5, -1.0])
    plays = sum(w * t for w, t in zip(weights, traits.values(), strict=True))
    stated = dict(zip(traits, (weights / 2).tolist(), strict=True))
    found = population_consistency(stated, traits, plays, draws=100)
    assert found.order.estimate == pytest.approx(1)
    turned = population_consistency(
        dict(zip(traits, stated.values().__reversed__(), strict=True)), traits, plays, draws=9
    )
    assert turned.order.estimate == pytest.approx(-1)


def test_attributes_that_say_nothing():
    traits, plays = population(30)
    traits["e"] = np.full(30, 1.0)
    traits["f"] = np.where(np.arange(30) < 4, 1.0, NAN)
    stated = dict.fromkeys(traits, 0.2) | {"d": NAN}
    found = population_consistency(stated, traits, plays, draws=20)
    assert "same for all" in found.effects["e"].played.reason
    assert "4 personas have 'f'" in found.effects["f"].played.reason
    assert "no effect of 'd'" in found.effects["d"].agreement.reason
    assert found.effects["d"].same_sign is None
    few = population_consistency({"a": 0.1}, {"a": traits["a"]}, plays, draws=20)
    assert math.isnan(few.order.estimate)
    assert few.order.reason
    groups = population_consistency({"a": 0.5}, {"a": ["x", "y"] * 15}, plays, kind="eta-squared", draws=20)
    assert groups.effects["a"].same_sign is None


def test_bad_attributes():
    with pytest.raises(UserError, match="'b' is not among the attributes"):
        population_consistency({"b": 0.1}, {}, [1, 2, 3])
    with pytest.raises(UserError, match="eta-squared"):
        attribute_effect(list("abc"), [1, 2, 3])
    with pytest.raises(UserError, match="no effect 'slope'"):
        attribute_effect([1, 2, 3], [1, 2, 3], "slope")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected one value for each of 3"):
        population_consistency({"a": 0.1}, {"a": [1, 2]}, [1, 2, 3])


# Horizons


def test_errors_grow_by_the_drift_that_forecasts_miss():
    start = np.arange(6.0)
    actions = start[:, None] + 0.5 * np.arange(5)
    forecasts = np.full((6, 5, 4), NAN)
    for made in range(5):
        forecasts[:, made, : 4 - made] = actions[:, made, None]
    found = horizon_curve(forecasts, actions, 10, draws=50)
    assert [figure.estimate for figure in found.errors] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    assert found.slope.estimate == pytest.approx(0.05)
    assert found.slope.low == pytest.approx(0.05)
    assert "0.05" in ConsistencyReport(individual_consistency(actions, actions, 1, draws=9), horizon=found).text()


def test_each_forecast_meets_its_own_round():
    actions = np.random.default_rng(0).integers(0, 11, size=(7, 4)).astype(float)
    forecasts = np.full((7, 4, 3), NAN)
    for made in range(4):
        for ahead in range(1, 4 - made):
            forecasts[:, made, ahead - 1] = actions[:, made + ahead]
    assert [figure.estimate for figure in horizon_curve(forecasts, actions, 10, draws=9).errors] == [0, 0, 0]


def test_a_horizon_beyond_the_game():
    with pytest.raises(UserError, match="after the last of 3"):
        horizon_curve(np.ones((5, 3, 1)), np.ones((5, 3)), 10)
    with pytest.raises(UserError, match="after the last of 2"):
        horizon_curve(np.ones((5, 2, 4)), np.ones((5, 2)), 10)
    with pytest.raises(UserError, match="shape"):
        horizon_curve(np.ones((5, 2)), np.ones((5, 2)), 10)
    empty = horizon_curve(np.full((5, 3, 2), NAN), np.ones((5, 3)), 10)
    assert "no forecast 2 rounds ahead" in empty.errors[1].reason
    assert empty.slope.reason


# Imposed theories


@pytest.mark.parametrize("planted", [-0.5, 0.0, 0.4, 1.0])
def test_planted_compliance_is_found(planted):
    attribute = np.repeat([0.0, 1.0], 20)
    before = 5 + attribute * 2
    after = before + planted * (6 - 2) * attribute
    found = prior_compliance(attribute, before, after, 0.6, scale=10, draws=50)
    assert found.estimate == pytest.approx(planted)
    assert found.low == pytest.approx(planted)


def test_compliance_without_room():
    attribute, before = np.repeat([0.0, 1.0], 20), np.repeat([5.0, 7.0], 20)
    assert "already" in prior_compliance(attribute, before, before, 0.2, scale=10, draws=20).reason
    with pytest.raises(UserError, match="same personas"):
        prior_compliance(attribute, before, before[:-1], 0.2, scale=10)

"""Judges of segments against the error of outcome credit: the theory of TRIAGE, planted judges, continuations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import UserError
from rolecraft.learning import SEGMENT_ROLES, noisy_roles
from rolecraft.learning.credit import TRIAGE_CONSTANTS, label_bonus
from rolecraft.measures import continuation_values, segment_reliability
from rolecraft.worlds import KeyDoor, play

UNITS = list(range(100)) * 40
CONSTANTS = list(TRIAGE_CONSTANTS.values())


def names(roles):
    return [SEGMENT_ROLES[role] for role in roles]


segments = st.lists(st.tuples(st.integers(0, 3), st.floats(-3, 3)), min_size=4, max_size=60)


@settings(deadline=None)
@given(segments, st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_the_mean_residual_of_each_role_errs_least_among_functions_of_the_role(rows, other):
    roles, delta = np.array([role for role, _ in rows]), np.array([value for _, value in rows])
    report = segment_reliability(np.zeros(len(rows)), delta, names(roles))
    best = np.array([report.by_role[name].estimate for name in names(roles)])
    assert ((delta - best) ** 2).mean() <= ((delta - np.array(other)[roles]) ** 2).mean() + 1e-9
    for role in set(roles):
        assert report.by_role[SEGMENT_ROLES[role]].estimate == pytest.approx(delta[roles == role].mean(), abs=1e-12)


@settings(deadline=None)
@given(segments, st.floats(0, 1))
def test_the_change_of_the_error_is_the_formulas_and_falls_where_the_condition_says(rows, lam):
    roles, delta = np.array([role for role, _ in rows]), np.array([value for _, value in rows])
    c = label_bonus(roles, CONSTANTS)
    report = segment_reliability(c, delta, names(roles), weight=lam)
    centred, error = c - c.mean(), delta - delta.mean()
    change = ((error - lam * centred) ** 2).mean() - (error**2).mean()
    assert report.change.estimate == pytest.approx(change, abs=1e-9)
    assert report.covariance.estimate == pytest.approx(np.cov(c, delta, bias=True)[0, 1], abs=1e-9)
    assert report.variance == pytest.approx(c.var(), abs=1e-12)
    margin = report.covariance.estimate - lam * report.variance / 2
    if lam > 1e-3 and abs(margin) > 1e-6:
        assert (change < 0) == (margin > 0)
    if report.variance > 1e-9:
        edge = report.most_weight.estimate
        assert ((error - edge * centred) ** 2).mean() == pytest.approx((error**2).mean(), abs=1e-6)


def planted(rate, n=4000, seed=0):
    """Return corrections and residuals where the true role explains the residual, and a judge errs at a rate."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=n)
    delta = 0.4 * label_bonus(truth, CONSTANTS) + 0.2 * rng.standard_normal(n)
    roles = noisy_roles(truth, rate, rng)
    return label_bonus(roles, CONSTANTS), delta, names(roles), names(truth)


def test_a_planted_judge_is_found_and_noise_takes_its_covariance_away_in_proportion():
    c, delta, roles, truth = planted(0.0)
    report = segment_reliability(c, delta, roles, reference=truth, weight=0.4, units=UNITS)
    assert report.covariance.low < 0.4 * c.var() < report.covariance.high
    assert report.most_weight.low < 0.8 < report.most_weight.high
    assert report.helps is True
    assert report.by_role["D"].low < 0.4 < report.by_role["D"].high
    assert {mine: list(row) for mine, row in report.confusion.items()} == {role: [role] for role in report.confusion}
    covariances = [
        segment_reliability(*planted(rate)[:3], units=UNITS).covariance.estimate for rate in (0, 0.3, 0.6, 1)
    ]
    assert np.array(covariances[1:]) / covariances[0] == pytest.approx([0.7, 0.4, 0.0], abs=0.06)
    # Cov falls to (1 - rate) * 0.4 Var; at weight 0.5 the condition is lost at a rate of 3/8.
    for rate, helps in ((0.2, True), (0.6, False), (1.0, False)):
        assert segment_reliability(*planted(rate)[:3], weight=0.5, units=UNITS).helps is helps


def test_segments_of_one_rollout_are_resampled_together():
    rng = np.random.default_rng(1)
    units = np.repeat(np.arange(40), 25)
    delta = np.repeat(rng.standard_normal(40), 25)
    c = np.repeat(rng.choice(CONSTANTS, 40), 25)
    roles = ["D"] * 1000
    alone, together = segment_reliability(c, delta, roles), segment_reliability(c, delta, roles, units=list(units))
    assert together.covariance.estimate == alone.covariance.estimate
    assert together.covariance.n == 40
    assert together.covariance.high - together.covariance.low > 3 * (alone.covariance.high - alone.covariance.low)
    assert together.by_role["D"].n == 40


def test_a_judge_that_says_one_thing_has_no_weight():
    report = segment_reliability([0.5] * 6, np.arange(6.0), ["E"] * 6)
    assert report.variance == 0
    assert np.isnan(report.most_weight.estimate)
    assert report.covariance.estimate == pytest.approx(0)
    assert report.helps is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (([1.0], [1.0], ["D"]), "two segments or more"),
        (([1.0, 0.0], [1.0], ["D", "D"]), r"\(2,\) and \(1,\)"),
        (([1.0, 0.0], [1.0, np.nan], ["D", "D"]), "segment 1: .*its residual nan"),
        (([1.0, 0.0], [1.0, 0.0], ["D"]), "roles: expected one per segment, 2 of them, got 1"),
    ],
)
def test_faulty_input_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        segment_reliability(*given)
    with pytest.raises(UserError, match="weight must be"):
        segment_reliability([1, 0], [1, 0], ["D", "E"], weight=-1)


def test_continuations_estimate_the_exact_value_at_every_point():
    world = KeyDoor(maps=["S.K\n..D"], horizon=8)
    policy = RandomPolicy()
    episode = play(world, {"walker": policy}, 4)
    tables, horizon = world.map.tables(), 8
    exact = tables.success(np.full(tables.next_state.shape, 0.25), horizon)
    values = continuation_values(
        lambda: KeyDoor(maps=["S.K\n..D"], horizon=8), episode, "walker", {"walker": policy}, draws=300
    )
    assert values.shape == (len(episode.turns) + 1, 300)
    world.reset(4)
    for point in range(len(values)):
        expected = exact[horizon - point, tables.state(world.spot)]
        spread = np.sqrt(max(expected * (1 - expected), 1e-6) / 300)
        assert values[point].mean() == pytest.approx(expected, abs=4 * spread)
        if point < len(episode.turns):
            world.act({"walker": episode.turns[point].action})
    assert (values[-1] == episode.rewards["walker"]).all()
    assert 0 < values[0].mean() < 1


def test_continuations_differ_and_repeat_by_seed():
    make = lambda: KeyDoor(maps=["S.K\n..D"], horizon=10)  # noqa: E731
    episode = play(make(), {"walker": RandomPolicy()}, 1, hashes=False)
    values = [
        continuation_values(make, episode, "walker", {"walker": RandomPolicy()}, draws=20, seed=s) for s in (0, 0, 1)
    ]
    assert (values[0] == values[1]).all()
    assert (values[0] != values[2]).any()
    with pytest.raises(UserError, match="draws must be at least 1"):
        continuation_values(make, episode, "walker", {"walker": RandomPolicy()}, draws=0)
    with pytest.raises(UserError, match="'x' is no agent"):
        continuation_values(make, episode, "x", {"walker": ScriptedPolicy(lambda view: "up")})

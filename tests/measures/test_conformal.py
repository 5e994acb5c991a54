"""Conformal sets: closed forms, agreement with mapie, coverage on exchangeable data, what a broken assumption does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import (
    ConformalClassifier,
    ConformalWarning,
    PredictionSets,
    conformal_sets,
    conformal_threshold,
    conformity_scores,
    fit_temperature,
    smallest_calibration,
)
from rolecraft.measures._conformal import PENALTIES
from rolecraft.measures._conformal_sets import softmax, true_ranks

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])


def draw(rng: np.random.Generator, n: int, classes: int = 5, sharp: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from their softmax."""
    logits = sharp * rng.standard_normal((n, classes))
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return logits, labels


def test_scores_and_sets_by_hand() -> None:
    u = np.array([0.5, 0.5])
    scores = conformity_scores(P, np.array([1, 0]), u, penalty=0.01, rank=1, allow_empty=True)
    assert scores == pytest.approx([0.5 + 0.5 * 0.3 + 0.01, 0.8 + 0.5 * 0.1 + 0.01])
    first = np.array([0, 2])
    assert conformity_scores(P, first, u, allow_empty=True) == pytest.approx([0.25, 0.4])
    assert conformity_scores(P, first, u) == pytest.approx([0.5, 0.8]), "the first place counts in full"
    # threshold 0.6 leaves a third of the second class's 0.3
    for low, expected in ((0.33, [True, True, False]), (0.34, [True, False, False])):
        assert conformal_sets(P[:1], 0.6, np.array([low]))[0].tolist() == expected
    assert not conformal_sets(P, 0.1, u, allow_empty=True).any()
    assert conformal_sets(P, 0.1, u).tolist() == [[True, False, False], [False, False, True]]
    assert conformal_sets(P, math.inf, u).all()
    assert conformal_sets(P, 0.6, np.array([0.1, 0.1]), penalty=9.0, rank=1).sum(1).tolist() == [1, 1]


def slow_set(p: list[float], threshold: float, u: float, penalty: float, rank: int, empty: bool) -> set[int]:
    """RAPS as its paper writes it: L classes, the last of them dropped with probability 1 - V."""
    order = sorted(range(len(p)), key=lambda c: (-p[c], c))
    cost = lambda r: sum(penalty for j in range(1, r + 1) if j > rank)  # noqa: E731
    total = lambda r: sum(p[c] for c in order[:r])  # noqa: E731
    size = min(len(p), sum(total(r) + cost(r) <= threshold for r in range(1, len(p) + 1)) + 1)
    last = p[order[size - 1]]
    v = (threshold - total(size - 1) - cost(size)) / last
    keep = size if u <= v else size - 1
    return set(order[: max(keep, 0 if empty else 1)])


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=6), st.floats(0.01, 1.4), st.floats(0.01, 0.99),
    st.sampled_from([0.0, 0.05, 0.5]), st.integers(0, 3), st.booleans(),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_sets_agree_with_the_paper(
    weights: list[int], threshold: float, u: float, penalty: float, rank: int, empty: bool
) -> None:
    p = np.array(weights) / sum(weights)
    near = np.abs(np.sort(p)[::-1].cumsum() - threshold).min() < 1e-9
    if near:
        return
    slow = slow_set(p.tolist(), threshold, u, penalty, rank, empty)
    fast = conformal_sets(p[None], threshold, np.array([u]), penalty=penalty, rank=rank, allow_empty=empty)[0]
    # without empty sets the first class needs no luck, and the luck of the others is the same
    assert set(np.flatnonzero(fast).tolist()) == slow


@given(st.integers(2, 6), st.integers(1, 60), st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_a_class_is_in_the_set_just_when_its_score_is_within(classes: int, n: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, u = rng.dirichlet(np.ones(classes), n), rng.random(n)
    for empty in (True, False):
        rule = {"penalty": 0.05, "rank": 2, "allow_empty": empty}
        scores = np.stack([conformity_scores(p, np.full(n, c), u, **rule) for c in range(classes)], 1)
        threshold = conformal_threshold(scores[:, 0], alpha)
        sets = conformal_sets(p, threshold, u, **rule)
        expected = scores <= threshold
        if not empty:
            expected[np.arange(n), p.argmax(1)] = True
        assert (sets == expected).all()


def test_threshold_is_the_corrected_order_statistic() -> None:
    scores = np.arange(1, 20) / 20
    assert conformal_threshold(scores, 0.1) == scores[17], "19 scores: ceil(20 * 0.9) = the 18th"
    assert conformal_threshold(scores, 0.1, corrected=False) == np.quantile(scores, 0.9, method="higher")
    assert conformal_threshold(scores[:9], 0.1) == scores[8]
    assert conformal_threshold(scores[:8], 0.1) == math.inf
    assert [smallest_calibration(a) for a in (0.1, 0.05, 0.5, 0.3)] == [9, 19, 1, 3]


@pytest.mark.parametrize("seed", [1, 2])
def test_agreement_with_mapie(seed: int) -> None:
    """The same uniforms give mapie's sets: it draws one per example from its seed, at either time."""
    mapie = pytest.importorskip("mapie.classification")
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((5, 3))
    labels = np.concatenate([np.arange(5), rng.integers(5, size=595)])
    x = centres[labels] + rng.standard_normal((600, 3))
    fitted = LogisticRegression().fit(x[:200], labels[:200])
    theirs = mapie.SplitConformalClassifier(
        fitted, confidence_level=0.9, conformity_score="aps", prefit=True, random_state=seed
    )
    theirs.conformalize(x[200:400], labels[200:400])
    _, sets = theirs.predict_set(x[400:], conformity_score_params={"include_last_label": "randomized"})
    flip = 1 - np.random.RandomState(seed).uniform(size=200)
    scores = conformity_scores(fitted.predict_proba(x[200:400]), labels[200:400], flip, allow_empty=True)
    threshold = conformal_threshold(scores, 0.1)
    ours = conformal_sets(fitted.predict_proba(x[400:]), threshold, flip, allow_empty=True)
    assert (ours == sets[:, :, 0]).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_raps_agrees_with_mapie(seed: int) -> None:
    """The threshold is mapie's, and so are the sets, but for the luck of a last class that pays the penalty.

    There mapie divides by another number than the probability that the paper divides by.
    """
    classification = pytest.importorskip("mapie.classification")
    from mapie.conformity_scores import RAPSConformityScore
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedShuffleSplit

    rng = np.random.default_rng(seed)
    centres = 0.7 * rng.standard_normal((8, 3))
    labels = np.concatenate([np.repeat(np.arange(8), 20), rng.integers(8, size=1440)])
    x = centres[labels] + rng.standard_normal((1600, 3))
    fitted = LogisticRegression().fit(x[:400], labels[:400])
    rule = RAPSConformityScore()
    theirs = classification.SplitConformalClassifier(
        fitted, confidence_level=0.9, conformity_score=rule, prefit=True, random_state=seed
    )
    theirs.conformalize(x[400:1000], labels[400:1000])
    _, sets = theirs.predict_set(x[1000:], conformity_score_params={"include_last_label": "randomized"})
    cut = StratifiedShuffleSplit(n_splits=1, test_size=len(rule.X_raps), random_state=seed)
    used, _ = next(cut.split(x[400:1000], labels[400:1000]))
    penalty, rank = float(rule.lambda_star), int(rule.k_star[0])
    assert penalty > 0
    assert rank < 8
    flips = [1 - np.random.RandomState(seed).uniform(size=size) for size in (len(used), 600)]
    known = fitted.predict_proba(x[400:1000])[used], labels[400:1000][used], flips[0]
    rules = {"penalty": penalty, "rank": rank, "allow_empty": True}
    threshold = conformal_threshold(conformity_scores(*known, **rules), 0.1)
    assert threshold == pytest.approx(float(rule.quantiles_[0]), abs=1e-9)
    ours = conformal_sets(fitted.predict_proba(x[1000:]), threshold, flips[1], **rules)
    apart = (ours != sets[:, :, 0]).sum(1)
    unpunished = np.maximum(ours.sum(1), sets[:, :, 0].sum(1)) <= rank
    assert unpunished.sum() > 50
    assert not apart[unpunished].any()
    assert apart.max() <= 1


@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_coverage_is_exact_on_exchangeable_data(alpha: float) -> None:
    """Over many calibrations the mean coverage is ceil((n + 1)(1 - alpha)) / (n + 1), whatever the classifier."""
    rng, found, n = np.random.default_rng(0), [], 29
    for repeat in range(300):
        logits, labels = draw(rng, n + 100)
        wrong = logits[:, ::-1].copy()
        conformal = ConformalClassifier(alpha, allow_empty=True, seed=repeat).calibrate(wrong[:n], labels[:n])
        found.append(conformal.predict(wrong[n:]).coverage(labels[n:]))
    exact = math.ceil((n + 1) * (1 - alpha) - 1e-9) / (n + 1)
    assert np.mean(found) == pytest.approx(exact, abs=3.5 * np.std(found) / math.sqrt(300))


def test_calibration_on_training_data_covers_less() -> None:
    """A classifier that knows its training labels by heart seems always right there: its sets are too small."""
    rng = np.random.default_rng(3)
    logits, labels = draw(rng, 4000)
    fooled = ConformalClassifier(0.1, allow_empty=True).calibrate(logits[:500], logits[:500].argmax(1))
    honest = ConformalClassifier(0.1, allow_empty=True).calibrate(logits[500:1000], labels[500:1000])
    assert honest.predict(logits[1000:]).coverage(labels[1000:]) == pytest.approx(0.9, abs=0.04)
    assert fooled.predict(logits[1000:]).coverage(labels[1000:]) < 0.8


def test_better_classifiers_and_higher_alpha_give_smaller_sets() -> None:
    rng = np.random.default_rng(4)
    logits, labels = draw(rng, 3000, sharp=3.0)
    blurred = logits + 3 * rng.standard_normal(logits.shape)

    def size(z: np.ndarray, alpha: float) -> float:
        return ConformalClassifier(alpha).calibrate(z[:1000], labels[:1000]).predict(z[1000:]).sizes.mean()

    assert size(logits, 0.1) < size(blurred, 0.1)
    assert size(logits, 0.2) < size(logits, 0.1) < size(logits, 0.02)


def test_temperature_recovers_the_scale_of_the_logits() -> None:
    logits, labels = draw(np.random.default_rng(5), 20_000)
    assert fit_temperature(2.5 * logits, labels) == pytest.approx(2.5, rel=0.05)
    ours = fit_temperature(logits[:50], labels[:50])
    grid = np.exp(np.linspace(-2, 2, 4001))
    losses = [-np.log(softmax(logits[:50], t)[np.arange(50), labels[:50]]).mean() for t in grid]
    assert ours == pytest.approx(grid[int(np.argmin(losses))], rel=2e-3)


def test_ties_are_kept_in_order_of_class() -> None:
    even = np.full((1, 4), 0.25)
    assert conformal_sets(even, 0.6, np.array([0.9]))[0].tolist() == [True, True, False, False]
    assert true_ranks(even, np.array([2])).tolist() == [3]


def test_tuning_penalises_long_tails() -> None:
    rng = np.random.default_rng(6)
    logits, labels = draw(rng, 3000, classes=20, sharp=3.0)
    aps = ConformalClassifier(0.05, seed=1).calibrate(logits[:1500], labels[:1500])
    raps = ConformalClassifier(0.05, penalty="tune", temperature="fit", seed=1).calibrate(logits[:1500], labels[:1500])
    assert raps.penalty in PENALTIES
    places = true_ranks(softmax(logits[:1500]), labels[:1500])
    assert abs(raps.rank - 1 - np.quantile(places, 0.95)) <= 2
    found = raps.predict(logits[1500:])
    assert found.coverage(labels[1500:]) == pytest.approx(0.95, abs=0.03)
    assert found.sizes.max() < aps.predict(logits[1500:]).sizes.max()


def test_sets_repeat_with_the_seed_and_read_as_lists() -> None:
    logits, labels = draw(np.random.default_rng(7), 200)
    first, second = (ConformalClassifier(seed=3).calibrate(logits[:100], labels[:100]) for _ in range(2))
    assert first.predict(logits[100:]).lists == second.predict(logits[100:]).lists
    sets = PredictionSets(np.array([[True, False, True], [False, True, False]]))
    assert (sets.lists, sets.sizes.tolist(), sets.coverage([2, 0])) == ([[0, 2], [1]], [2, 1], 0.5)


def test_jax_gives_the_same_sets() -> None:
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(8)
    logits, labels = draw(rng, 60)
    u = rng.random(60)

    @jax.jit
    def both(z, y, u):
        p = softmax(z, fit_temperature(z, y))
        return conformal_sets(p, conformal_threshold(conformity_scores(p, y, u), 0.1), u)

    p = softmax(logits, fit_temperature(logits, labels))
    ours = conformal_sets(p, conformal_threshold(conformity_scores(p, labels, u), 0.1), u)
    assert (np.asarray(both(logits.astype(np.float32), labels, u.astype(np.float32))) == ours).mean() > 0.99


def test_few_examples_give_full_sets_and_a_warning() -> None:
    logits, labels = draw(np.random.default_rng(9), 30)
    with pytest.warns(ConformalWarning, match="8 calibration examples are too few for alpha 0.1.*at least 9"):
        conformal = ConformalClassifier(0.1).calibrate(logits[:8], labels[:8])
    assert conformal.predict(logits).members.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "alpha is the share of misses .* got 0.0"),
        ({"alpha": 1.0}, "between 0 and 1, got 1.0"),
        ({"penalty": -0.1}, "penalty must be 'tune' or a number from 0"),
        ({"temperature": 0.0}, "temperature must be 'fit' or a number above 0"),
        ({"tune_share": 1.0}, r"tune_share must lie in \[0, 1\)"),
        ({"rank": -1}, "rank must be at least 0"),
    ],
)
def test_bad_rules_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ConformalClassifier(**options)


def test_bad_data_are_named() -> None:
    conformal = ConformalClassifier()
    with pytest.raises(UserError, match="not calibrated"):
        conformal.predict(np.zeros((3, 4)))
    with pytest.raises(UserError, match=r"labels: expected shape \(n,\) = \(20,\), got \(19,\)"):
        conformal.calibrate(np.zeros((20, 4)), np.zeros(19, int))
    with pytest.raises(UserError, match="labels: expected 0 to 3, got 0 to 4"):
        conformal.calibrate(np.zeros((2, 4)), np.array([0, 4]))
    with pytest.raises(UserError, match="for continuous ones use conformal regression"):
        conformal.calibrate(np.zeros((2, 4)), np.array([0.5, 0.1]))
    with pytest.raises(UserError, match="expected finite numbers"):
        conformal.calibrate(np.array([[np.nan, 0.0]]), np.array([0]))
    with pytest.raises(UserError, match=r"expected shape \(n, classes\) with n at least 1"):
        conformal.calibrate(np.zeros((0, 4)), np.zeros(0, int))
    conformal.calibrate(np.zeros((20, 4)), np.zeros(20, int))
    with pytest.raises(UserError, match=r"\(n, 4\) as in calibration, got \(3, 5\)"):
        conformal.predict(np.zeros((3, 5)))
    with pytest.raises(UserError, match="one example, got none"):
        conformal_threshold(np.zeros(0), 0.1)

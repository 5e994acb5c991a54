"""Scalarisers against slow references, the invariants and edge cases of MOA and of Character-R1's normaliser."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    CCRN_WEIGHTS,
    Ccrn,
    CreditBatch,
    Group,
    NoSignalWarning,
    PerGroupNormalised,
    Pivot,
    WeightedSum,
    assign_credit,
    ccrn_scale,
    eliminate_conflicts,
    make_rule,
    objective_correlation,
    residual_weights,
    trend_residual,
)

pytestmark = pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning")
numbers = st.floats(-2, 2).map(lambda x: round(x, 3))
vectors = st.lists(numbers, min_size=1, max_size=6)
grouped = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=14)


def batch_of(objectives, task=None, role=None, **more):
    columns = {name: np.asarray(values, dtype=float) for name, values in objectives.items()}
    n = len(next(iter(columns.values())))
    keys = {"task": np.zeros(n, int) if task is None else np.asarray(task)}
    keys["role"] = np.zeros(n, int) if role is None else np.asarray(role)
    return CreditBatch(np.ones((n, 1), dtype=bool), keys, objectives=columns, **more)


def reward_of(stage, batch, state=None):
    """What a scalariser gives, handed on as it is."""
    result = assign_credit(batch, [stage, lambda _, carry: replace(carry, advantage=carry.reward)], state)
    return result.advantages[:, 0], result


# Character-R1's normaliser


def ccrn_slow(rewards, labels, before, decay=0.99, eps=1e-8):
    """Straight from the formula, label by label, row by row."""
    scaled, after = [], dict(before)
    for label in set(labels):
        values = [r for r, each in zip(rewards, labels, strict=True) if each == label]
        mean, variance = before.get(label, (0.0, 1.0))
        after[label] = (
            decay * mean + (1 - decay) * statistics.fmean(values),
            decay * variance + (1 - decay) * statistics.pvariance(values),
        )
    for reward, label in zip(rewards, labels, strict=True):
        mean, variance = after[label]
        scaled.append((reward - mean) / (variance + eps) ** 0.5)
    return scaled, after


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(numbers, st.integers(0, 3)), min_size=1, max_size=9), min_size=1, max_size=4))
def test_ccrn_is_its_formula_over_several_batches(batches):
    state, slow = None, {}
    for rows in batches:
        rewards, labels = [r for r, _ in rows], [f"g{label}" for _, label in rows]
        scaled, state = ccrn_scale({"focus": rewards}, labels, json.loads(json.dumps(state)) if state else None)
        expected, slow = ccrn_slow(rewards, labels, slow)
        assert scaled["focus"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    for label, (mean, variance) in slow.items():
        assert state[label]["focus"]["mean"] == pytest.approx(mean, abs=1e-12)
        assert state[label]["focus"]["variance"] == pytest.approx(variance, abs=1e-12)
        assert state[label]["focus"]["rows"] == sum(f"g{each}" == label for rows in batches for _, each in rows)


def test_ccrn_moves_its_statistics_before_it_uses_them():
    scaled, state = ccrn_scale({"a": [0.0, 1.0]}, ["x", "x"])
    assert state["x"]["a"] == {
        "mean": pytest.approx(0.005), "variance": pytest.approx(0.99 + 0.01 * 0.25), "rows": 2,
    }  # fmt: skip
    assert scaled["a"] == pytest.approx(np.array([-0.005, 0.995]) / np.sqrt(0.9925 + 1e-8), rel=1e-14)


def test_ccrn_goes_to_the_true_moments_and_is_nearly_raw_at_first():
    rng, state = np.random.default_rng(0), None
    first, _ = ccrn_scale({"a": 0.2 + 0.05 * rng.standard_normal(64)}, ["x"] * 64)
    assert first["a"].std() == pytest.approx(0.05, rel=0.3), "the deviation starts at 1"
    for _ in range(1500):
        late, state = ccrn_scale({"a": 0.2 + 0.05 * rng.standard_normal(64)}, ["x"] * 64, state)
    assert late["a"].std() == pytest.approx(1, rel=0.3)
    assert state["x"]["a"]["mean"] == pytest.approx(0.2, abs=0.01)


def test_ccrn_keeps_one_row_of_a_label_finite_and_other_labels_untouched():
    state = {"y": {"a": {"mean": 0.5, "variance": 0.25, "rows": 4}}}
    scaled, after = ccrn_scale({"a": [0.7]}, ["x"], state)
    assert np.isfinite(scaled["a"]).all()
    assert after["x"]["a"]["variance"] == pytest.approx(0.99)
    assert after["y"] == state["y"]
    assert list(state) == ["y"], "the state that was given is not changed"
    constant = None
    for _ in range(4000):
        scaled, constant = ccrn_scale({"a": [0.3, 0.3]}, ["x", "x"], constant)
    assert np.isfinite(scaled["a"]).all()


def test_ccrn_leaves_rows_out():
    scaled, state = ccrn_scale({"a": [0.0, np.nan, 1.0]}, [1, 1, 1], where=[True, False, True])
    both, same = ccrn_scale({"a": [0.0, 1.0]}, ["1", "1"])
    assert scaled["a"].tolist() == [both["a"][0], 0.0, both["a"][1]]
    assert state == same


def test_a_shift_of_a_character_cancels_in_the_group_and_the_scale_does_not():
    """Dossier 006, step 10: within a group of one character only the ratio of the components' scales changes."""
    rng = np.random.default_rng(1)
    a, b = rng.random(8), rng.random(8)
    group = lambda state: assign_credit(  # noqa: E731
        batch_of({"a": a, "b": b}), [Ccrn(decay=0.999), Group()], {"ccrn": {"0": state}}
    ).advantages[:, 0]
    entry = lambda mean, variance: {"mean": mean, "variance": variance, "rows": 1}  # noqa: E731
    plain = group({"a": entry(0.0, 1.0), "b": entry(0.0, 1.0)})
    assert group({"a": entry(5.0, 1.0), "b": entry(-3.0, 1.0)}) == pytest.approx(plain, abs=1e-9)
    both = group({"a": entry(0.0, 0.04), "b": entry(0.0, 0.04)})
    assert both == pytest.approx(plain, abs=1e-3), "one scale for all cancels in the standard deviation"
    assert np.abs(group({"a": entry(0.0, 0.01), "b": entry(0.0, 1.0)}) - plain).max() > 0.1


def test_the_ccrn_stage_adds_weighted_components_per_role():
    rng = np.random.default_rng(2)
    roles, parts = np.array([3, 3, 8, 8, 8]), {name: rng.random(5) for name in CCRN_WEIGHTS}
    given_, result = reward_of(Ccrn(weights=CCRN_WEIGHTS), batch_of(parts, task=range(5), role=roles))
    scaled, state = ccrn_scale(parts, roles)
    assert sum(CCRN_WEIGHTS.values()) == pytest.approx(1)
    assert given_ == pytest.approx(sum(weight * scaled[name] for name, weight in CCRN_WEIGHTS.items()))
    assert result.state["ccrn"] == state
    assert set(state) == {"3", "8"}
    _, pooled = reward_of(Ccrn(keys=()), batch_of(parts, task=range(5), role=roles))
    assert set(pooled.state["ccrn"]) == {"all"}


def test_a_state_saved_and_loaded_gives_the_same_numbers():
    rng = np.random.default_rng(3)
    for stage in (Ccrn(), Pivot(window=3)):
        state = kept = None
        for step in range(5):
            batch = batch_of({"a": rng.random(6), "b": rng.random(6)}, task=[0, 0, 0, 1, 1, 1], role=[0, 1, 2, 0, 1, 2])
            first, second = (assign_credit(batch, [stage, Group()], each) for each in (state, kept))
            assert first.advantages.tobytes() == second.advantages.tobytes(), step
            state, kept = first.state, json.loads(json.dumps(second.state))


def test_bad_input_of_ccrn_is_named():
    with pytest.raises(UserError, match=r"expected 2 values of 'a', one per label, got shape \(3,\)"):
        ccrn_scale({"a": [1, 2, 3]}, ["x", "y"])
    with pytest.raises(UserError, match="component 'a' of row 1 is nan"):
        ccrn_scale({"a": [1, np.nan]}, ["x", "y"])
    with pytest.raises(UserError, match="0 <= decay < 1"):
        ccrn_scale({"a": [1.0]}, ["x"], decay=1.0)
    with pytest.raises(UserError, match=r"the state of 'x', component 'a', is \{'mean': 0\.0\}"):
        ccrn_scale({"a": [1.0]}, ["x"], {"x": {"a": {"mean": 0.0}}})
    with pytest.raises(UserError, match="the state is not"):
        ccrn_scale({"a": [1.0]}, ["x"], {"x": 3})
    with pytest.raises(UserError, match="ccrn: keys are a list of names"):
        Ccrn(keys="role")


# Sums


def test_a_weighted_sum_brings_objectives_to_their_ranges():
    batch = batch_of({"style": [1, 3, 5], "cost": [10, 5, 0], "facts": [0.0, 0.5, 1.0]}, task=range(3))
    stage = WeightedSum({"style": 1, "cost": 2, "facts": 1}, {"style": (1, 5), "cost": (10, 0)})
    assert reward_of(stage, batch)[0] == pytest.approx([0.0, 0.5, 1.0])
    lean = batch_of({"style": [1, 5], "facts": [0.25, 0.75]}, task=range(2))
    assert reward_of(WeightedSum({"style": 0, "facts": 3}, {"style": (1, 5)}), lean)[0] == pytest.approx([0.25, 0.75])


@settings(max_examples=40, deadline=None)
@given(grouped)
def test_normalised_objectives_are_added_after_each_was_normalised(rows):
    task, a, b = ([row[place] for row in rows] for place in range(3))
    got, _ = reward_of(PerGroupNormalised(weights={"a": 3, "b": 1}), batch_of({"a": a, "b": b}, task))
    for place, own in enumerate(task):
        parts = []
        for values in (a, b):
            group = [value for value, each in zip(values, task, strict=True) if each == own]
            spread = statistics.stdev(group) if len(group) > 1 else 0.0
            parts.append((values[place] - statistics.fmean(group)) / (spread + 1e-6) if spread else 0.0)
        assert got[place] == pytest.approx(0.75 * parts[0] + 0.25 * parts[1], abs=1e-9)


def test_an_objective_with_little_spread_counts_as_much_when_normalised():
    wide, narrow = [0, 1, 0, 1], [0.5, 0.49, 0.51, 0.5]
    summed, _ = reward_of(WeightedSum(), batch_of({"a": wide, "b": narrow}))
    assert summed[1] > summed[2]
    level, _ = reward_of(PerGroupNormalised(), batch_of({"a": [0, 1, 0, 0], "b": [0.5, 0.5, 0.51, 0.5]}))
    assert level[1] == pytest.approx(level[2], rel=1e-3), "either gain is one deviation's worth"


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (WeightedSum(), r"objective 'style' of row 1 is 4, outside its range 0 to 1; .*ranges=\{'style': \(1, 5\)\}"),
        (WeightedSum(weights={"style": 1}), "no weight for objective facts; give 0"),
        (WeightedSum(weights={"styl": 1}), "no objective 'styl' .*did you mean"),
        (WeightedSum(ranges={"tone": (0, 1)}), "ranges name 'tone'"),
        (Pivot(), "moa: objective 'style' of row 1 is 4"),
        (PerGroupNormalised(keys=("tusk",)), "no key 'tusk'"),
    ],
)
def test_objectives_that_do_not_fit_are_named(stage, message):
    with pytest.raises(UserError, match=f"(?i){message}"):
        assign_credit(batch_of({"style": [0.5, 4.0], "facts": [0, 1]}), [stage, Group()])


def test_bad_options_are_refused():
    with pytest.raises(UserError, match="weight of 'a' is -1"):
        WeightedSum(weights={"a": -1})
    with pytest.raises(UserError, match="no objective has a weight"):
        Ccrn(weights={"a": 0})
    with pytest.raises(UserError, match="range of 'a'"):
        WeightedSum(ranges={"a": (1, 1)})
    with pytest.raises(UserError, match="window of 2 steps or more, got 1"):
        Pivot(window=1)
    with pytest.raises(UserError, match=r"no rule 'below' \(below_mean"):
        Pivot(eliminate="below")
    with pytest.raises(UserError, match="beta is 0 or more, got nan"):
        Pivot(beta=float("nan"))
    with pytest.raises(UserError, match="no objectives"):
        assign_credit(CreditBatch(np.ones((2, 1), bool), {"task": np.zeros(2, int)}), [Pivot()])
    with pytest.raises(UserError, match="column 'style': row 1 holds nan"):
        batch_of({"style": [0.5, np.nan]})


# MOA's trend and weights


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 7), st.integers(1, 4), st.integers(0, 999))
def test_the_trend_is_the_least_squares_line(steps, objectives, seed):
    rng = np.random.default_rng(seed)
    history, now = rng.random((steps, objectives)), rng.random(objectives)
    predicted, residual = trend_residual(now, history)
    if steps < 2:
        assert (residual == 0).all()
        return
    for place in range(objectives):
        line = np.polynomial.Polynomial.fit(range(steps), history[:, place], 1)
        assert predicted[place] == pytest.approx(line(steps), abs=1e-10)
        assert residual[place] == pytest.approx(now[place] - line(steps), abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.integers(0, 999), numbers, st.floats(0.1, 5))
def test_residuals_ignore_a_shift_follow_a_scale_and_vanish_on_a_line(steps, seed, shift, factor):
    series = np.random.default_rng(seed).random((steps + 1, 3))
    residual = trend_residual(series[-1], series[:-1])[1]
    moved = series + np.array([shift, 0, 0])
    assert trend_residual(moved[-1], moved[:-1])[1] == pytest.approx(residual, abs=1e-10)
    larger = series * np.array([factor, 1, 1])
    assert trend_residual(larger[-1], larger[:-1])[1] == pytest.approx(residual * [factor, 1, 1], abs=1e-10)
    line = np.arange(steps + 1)[:, None] * np.array([0.01, 0.0, shift])
    assert np.abs(trend_residual(line[-1], line[:-1])[1]).max() < 1e-12


@settings(max_examples=100, deadline=None)
@given(vectors, st.floats(0, 1e6), st.randoms(use_true_random=False))
def test_weights_favour_what_outruns_its_trend(residual, beta, random):
    weights = residual_weights(residual, beta)
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)
    assert weights @ residual >= np.mean(residual) - 1e-12, "the paper's theorem"
    order = random.sample(range(len(residual)), len(residual))
    assert residual_weights([residual[place] for place in order], beta) == pytest.approx(weights[order], abs=1e-15)


def test_weights_at_the_ends():
    assert residual_weights([0.3, -2.0, 1.0], 0.0) == pytest.approx([1 / 3] * 3)
    assert residual_weights([0.3, -2.0, 1.0], 1e-12) == pytest.approx([1 / 3] * 3)
    assert residual_weights([0.3, -2.0, 1.0], 1e308).tolist() == [0, 0, 1]
    assert residual_weights([0.0, np.log(3)], 1.0) == pytest.approx([0.25, 0.75])
    assert residual_weights([0.4, 0.1], 2.0) @ [0.4, 0.1] > 0.25, "strictly above the mean unless all are equal"


# MOA's elimination


def slow_below_mean(p, r, groups):
    keep = []
    for place, own in enumerate(groups):
        members = [each for each, group in enumerate(groups) if group == own]
        mean = [statistics.fmean(values[each] for each in members) for values in (p, r)]
        keep.append(not (p[place] < mean[0] - 1e-9 and r[place] > mean[1] + 1e-9))
    return given_up(keep, groups)


def given_up(keep, groups):
    full = [own for own in groups if sum(k for k, each in zip(keep, groups, strict=True) if each == own) < 2]
    return [kept or own in full for kept, own in zip(keep, groups, strict=True)]


def concordant(p, r, members):
    return all((p[a] - p[b]) * (r[a] - r[b]) >= 0 for a, b in combinations(members, 2))


@settings(max_examples=100, deadline=None)
@given(grouped)
def test_rule_a_drops_what_would_be_pushed_up_against_the_pivot(rows):
    groups, p, r = ([row[place] for row in rows] for place in range(3))
    stays, fallbacks = eliminate_conflicts(p, r, np.array(groups))
    assert stays.tolist() == slow_below_mean(p, r, groups)
    assert fallbacks <= len(set(groups))


@settings(max_examples=100, deadline=None)
@given(grouped)
def test_rule_b_keeps_a_largest_concordant_set(rows):
    groups, p, r = ([row[place] for row in rows] for place in range(3))
    stays, fallbacks = eliminate_conflicts(p, r, np.array(groups), "concordant")
    assert fallbacks == sum(
        1
        for own in set(groups)
        if (members := [i for i, g in enumerate(groups) if g == own]) and len(members) > 1
        and not any(concordant(p, r, pair) for pair in combinations(members, 2))
    )  # fmt: skip
    for own in set(groups):
        members = [place for place, group in enumerate(groups) if group == own]
        kept = [place for place in members if stays[place]]
        if len(kept) == len(members):
            continue
        assert len(kept) >= 2
        assert concordant(p, r, kept)
        if len(members) <= 8:
            assert not any(concordant(p, r, larger) for larger in combinations(members, len(kept) + 1))


def test_elimination_on_paper():
    """Four rollouts: the third is best overall and worst in the pivot, the fourth is bad in both."""
    p, r, group = [0.9, 0.6, 0.1, 0.2], [0.6, 0.5, 0.9, 0.1], np.zeros(4, int)
    assert eliminate_conflicts(p, r, group)[0].tolist() == [True, True, False, True]
    assert eliminate_conflicts(p, r, group, "concordant")[0].tolist() == [True, True, False, True]
    assert eliminate_conflicts(p, r, group, "none")[0].all()
    assert eliminate_conflicts(p, p, group)[0].all(), "nothing conflicts with itself"


def test_two_rollouts_at_least_are_left():
    """The better one in the pivot alone would be left: the group keeps both, and the fallback is counted."""
    for rule in ("below_mean", "concordant"):
        stays, fallbacks = eliminate_conflicts([1.0, 0.0], [0.0, 1.0], np.zeros(2, int), rule)
        assert stays.all()
        assert fallbacks == 1
        stays, fallbacks = eliminate_conflicts([0.5], [0.5], np.zeros(1, int), rule)
        assert stays.all(), "a group of one"
        assert fallbacks == 0
        assert eliminate_conflicts([], [], np.zeros(0, int), rule)[0].shape == (0,)


def test_rows_that_do_not_count_stay_out_and_move_no_mean():
    p, r, groups = [0.9, 0.6, 0.1, 0.2, 0.0], [0.6, 0.5, 0.9, 0.1, 50.0], np.zeros(5, int)
    where = np.array([True] * 4 + [False])
    for rule in ("below_mean", "concordant", "none"):
        stays, _ = eliminate_conflicts(p, r, groups, rule, where)
        assert stays[:4].tolist() == [True, True, rule == "none", True]
        assert not stays[4]
    with pytest.raises(UserError, match="arrays of one shape"):
        eliminate_conflicts([1.0], [1.0, 2.0], np.zeros(1, int))


# The stage


def moa_steps(stage, means, state=None):
    """Feed batches of two rows whose means are given, and return the results."""
    for mean in means:
        batch = batch_of({name: [value, value] for name, value in mean.items()}, task=[0, 0])
        with pytest.warns(NoSignalWarning):
            result = assign_credit(batch, [stage, Group()], state)
        state = result.state
        yield result


def test_the_pivot_is_what_outruns_its_trend():
    """`a` rises steadily, `b` jumps in the last step, `c` falls behind: only the jump is news."""
    means = [{"a": 0.1 + 0.1 * t, "b": 0.3, "c": 0.5} for t in range(5)] + [{"a": 0.6, "b": 0.4, "c": 0.45}]
    results = list(moa_steps(Pivot(window=5, beta=10), means))
    for early in results[:2]:
        assert early.info["moa/tie"]
        assert early.info["moa/pivot"] == "a", "no trend yet: equal weights, the first objective"
        assert list(early.info["moa/weights"].values()) == pytest.approx([1 / 3] * 3)
    last = results[-1].info
    assert last["moa/pivot"] == "b"
    assert not last["moa/tie"]
    assert last["moa/residual"] == pytest.approx({"a": 0.0, "b": 0.1, "c": -0.05}, abs=1e-12)
    powers = np.exp(10 * np.array([0.0, 0.1, -0.05]))
    assert list(last["moa/weights"].values()) == pytest.approx(powers / powers.sum())
    assert last["moa/pivots"] == {"a": 5, "b": 1, "c": 0}
    assert results[-1].state["moa"]["step"] == 6
    assert len(results[-1].state["moa"]["history"]) == 5, "the oldest step is dropped"


def test_the_history_takes_a_step_after_it_was_used_and_only_the_last_ones():
    history = [[0.1], [0.9], [0.2], [0.4]]
    results = list(moa_steps(Pivot(window=2), [{"a": mean[0]} for mean in history]))
    assert results[2].info["moa/predicted"]["a"] == pytest.approx(1.7), "the line through 0.1 and 0.9"
    assert results[3].info["moa/predicted"]["a"] == pytest.approx(-0.5), "through 0.9 and 0.2"


def test_conflicting_rows_leave_loss_and_statistics():
    state = {"moa": {"objectives": ["a", "b"], "history": [[0.2, 0.5], [0.2, 0.5]], "step": 2, "pivots": {}, "rows": 0,
                     "dropped": 0}}  # fmt: skip
    a, b = np.array([0.9, 0.6, 0.1, 0.2]), np.array([0.2, 0.3, 1.0, 0.0])
    result = assign_credit(batch_of({"a": a, "b": b}), [Pivot(beta=0.5), Group()], state)
    weights = residual_weights([a.mean() - 0.2, b.mean() - 0.5], 0.5)
    reward = weights[0] * a + weights[1] * b
    assert result.info["moa/pivot"] == "a"
    assert result.keep.tolist() == [True, True, False, True]
    kept = reward[[0, 1, 3]]
    assert result.advantages[[0, 1, 3], 0] == pytest.approx((kept - kept.mean()) / (kept.std(ddof=1) + 1e-6))
    assert result.advantages[2, 0] == result.weights[2] == 0
    assert result.info["moa/eliminated"] == result.info["moa/eliminated_total"] == 0.25
    assert result.state["moa"]["history"][-1] == pytest.approx([a.mean(), b.mean()]), "dropped rows count in the mean"


def test_one_objective_is_grpo():
    rng = np.random.default_rng(4)
    task = np.repeat(range(4), 5)
    for eliminate in ("below_mean", "concordant", "none"):
        state = None
        for _ in range(4):
            reward = rng.random(20)
            plain = CreditBatch(np.ones((20, 1), bool), {"task": task}, {"outcome": reward})
            result = assign_credit(batch_of({"a": reward}, task), [Pivot(eliminate=eliminate), Group()], state)
            assert result.advantages == pytest.approx(assign_credit(plain, [Group()]).advantages, abs=1e-9)
            state = result.state


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.sampled_from(["below_mean", "concordant"]))
def test_the_order_of_rows_and_of_objectives_does_not_matter(seed, eliminate):
    rng = np.random.default_rng(seed)
    n, stage = 18, Pivot(beta=5, eliminate=eliminate)
    task, state, turned = rng.integers(0, 3, n), None, None
    for _ in range(4):
        values = {name: np.round(rng.random(n), 1) for name in "abc"}
        rows = rng.permutation(n)
        first = assign_credit(batch_of(values, task), [stage, Group()], state)
        second = assign_credit(
            batch_of({name: values[name][rows] for name in "cab"}, task[rows]), [stage, Group()], turned
        )
        weights = [each.info["moa/weights"] for each in (first, second)]
        assert weights[0] == pytest.approx(weights[1], abs=1e-12)
        if not first.info["moa/tie"]:
            assert second.info["moa/pivot"] == first.info["moa/pivot"]
            assert (second.keep == first.keep[rows]).all()
            assert second.advantages == pytest.approx(first.advantages[rows], abs=1e-9)
        state, turned = first.state, second.state


def test_a_row_whose_judge_failed_is_left_out_of_everything():
    a, b, valid = [0.9, 0.1, 0.5, np.nan], [0.1, 0.3, 0.2, 0.4], np.array([True, True, True, False])
    result = assign_credit(batch_of({"a": a, "b": b}, valid=valid), [Pivot(), Group()])
    less = assign_credit(batch_of({"a": a[:3], "b": b[:3]}), [Pivot(), Group()])
    assert result.advantages[:3] == pytest.approx(less.advantages)
    assert result.state == less.state
    with pytest.warns(NoSignalWarning):
        nothing = assign_credit(batch_of({"a": a, "b": b}, valid=np.zeros(4, bool)), [Pivot(), Group()], less.state)
    assert nothing.state == less.state


def test_correlations_within_groups_show_the_conflict_that_group_means_hide():
    """Between prompts both rubrics rise together; within a prompt one is paid for with the other."""
    task = np.repeat(range(6), 5)
    inner = np.tile(np.linspace(-0.1, 0.1, 5), 6)
    a, b = 0.2 + 0.1 * task + inner, 0.2 + 0.1 * task - inner
    matrix = np.stack([a, b, np.full(30, 0.3)], axis=1)
    assert np.corrcoef(a, b)[0, 1] > 0.5
    within = objective_correlation(matrix, task)
    assert within == pytest.approx(np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 0]]), abs=1e-9)
    where = np.arange(30) != 7
    noisy = matrix.copy()
    noisy[7] = 100.0
    assert objective_correlation(noisy, task, where)[0, 1] == pytest.approx(-1)
    _, result = reward_of(Pivot(), batch_of({"a": a, "b": b, "c": np.full(30, 0.3)}, task))
    assert np.array(result.info["moa/correlation"]) == pytest.approx(within, abs=1e-9)


def test_a_history_of_other_objectives_is_refused():
    result = assign_credit(batch_of({"a": [0, 1.0], "b": [0.3, 0]}), [Pivot(), Group()])
    with pytest.raises(UserError, match="history is of a, b, the batch has a, c"):
        assign_credit(batch_of({"a": [0, 1.0], "c": [0.3, 0]}), [Pivot(), Group()], result.state)
    with pytest.raises(UserError, match="the state needs objectives, history"):
        assign_credit(batch_of({"a": [0, 1.0]}), [Pivot()], {"moa": {"history": []}})


def test_rules_by_name():
    batch = batch_of({"style": [1, 4, 5, 2], "facts": [0.1, 0.9, 0.2, 0.3]}, role=[0, 0, 1, 1])
    spec = {"name": "moa", "beta": 3.0, "eliminate": "concordant", "ranges": {"style": [1, 5]}}
    named = assign_credit(batch, make_rule(spec))
    direct = assign_credit(batch, [Pivot(beta=3.0, eliminate="concordant", ranges={"style": (1, 5)}), Group()])
    assert named.advantages.tobytes() == direct.advantages.tobytes()
    spec = {"name": "character-r1", "weights": {"style": 3.0, "facts": 1.0}}
    named = assign_credit(batch, make_rule(spec))
    direct = assign_credit(batch, [Ccrn(weights={"style": 3.0, "facts": 1.0}), Group()])
    assert named.advantages.tobytes() == direct.advantages.tobytes()

import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft._files import bundled
from rolecraft.errors import UserError
from rolecraft.measures import (
    HumanChange,
    HumanScale,
    ShiftRule,
    Shifts,
    load_life_events,
    load_questionnaire,
    measure_shifts,
    moderation,
    persistence,
)
from rolecraft.measures._shift import _no_event
from rolecraft.measures._shift_axes import headroom_shares

RULE = ShiftRule(draws=2000, resamples=200)
EVENTS, TRAITS = ("e0", "e1"), ("t0", "t1")


def change(event="e0", trait="t0", sign=1, low=None, high=None):
    return HumanChange(event, trait, sign, "planted", low, high)


def make(
    means=((0.0, 0.0), (0.0, 0.0)), *, personas=40, repeats=2, retests=6, noise=0.2, spread=0.0, drift=0.0, seed=0
):
    """Scores around 3 with planted mean shifts per event and trait."""
    rng = np.random.default_rng(seed)
    means = np.asarray(means, dtype=float)
    own = means + spread * rng.normal(size=(personas, *means.shape))
    level = 3 + 0.5 * rng.normal(size=(personas, 1, 1, means.shape[1]))
    shape = (personas, len(means), repeats, means.shape[1])
    calm = (personas, retests, means.shape[1])
    half = noise / np.sqrt(2)
    return Shifts(
        tuple(f"p{k}" for k in range(personas)), EVENTS[: len(means)], TRAITS[: means.shape[1]],
        level + half * rng.normal(size=shape), level + own[:, :, None] + drift + half * rng.normal(size=shape),
        level[:, 0] + half * rng.normal(size=calm), level[:, 0] + drift + half * rng.normal(size=calm),
    )  # fmt: skip


def kinds(report):
    return {(cell.event, cell.trait): cell.kind for cell in report.cells}


class TestClassesAndScore:
    def test_the_four_classes(self):
        human = HumanScale(sd={"t0": 0.5, "t1": 0.5})
        directions = [change("e0", "t0", 1, 0.4, 0.8), change("e0", "t1", 1, 0.4, 0.8),
                      change("e1", "t0", -1, 0.4, 0.8), change("e1", "t1", -1, 0.4, 0.8)]  # fmt: skip
        report = measure_shifts(make([[0.3, 0.6], [-0.1, 0.3]], noise=0.05), directions, human, RULE)
        assert kinds(report) == {
            ("e0", "t0"): "match",  # 0.6 SD
            ("e0", "t1"): "overshoot",  # 1.2 SD
            ("e1", "t0"): "rigidity",  # right sign, 0.2 SD
            ("e1", "t1"): "reversal",
        }
        assert report.counts == {"match": 1, "overshoot": 1, "rigidity": 1, "reversal": 1}
        assert report.magnitude
        assert report.cells[0].sds == pytest.approx(0.6, abs=0.05)
        assert report.score.estimate == 50 * (1 + (1 + 1 + 1 - 1) / 4)  # too small a shift is still the right way

    def test_without_an_sd_or_a_range_no_size_is_judged(self):
        shifts = make([[0.6, 0.0], [0.0, 0.0]], noise=0.05)
        for directions, human in (
            ([change(low=0.1, high=0.2)], None),
            ([change(low=0.1, high=0.2)], HumanScale(sd={"t1": 0.5})),
            ([change()], HumanScale(sd={"t0": 0.5})),
        ):
            report = measure_shifts(shifts, directions, human, RULE)
            assert kinds(report)["e0", "t0"] == "match"
            assert not report.magnitude
            assert report.dispersion is None
        judged = measure_shifts(shifts, [change(low=0.1, high=0.2)], HumanScale(sd={"t0": 0.5}), RULE)
        assert kinds(judged)["e0", "t0"] == "overshoot"

    @pytest.mark.parametrize(("means", "score"), [(1, 100), (0, 50), (-1, 0)])
    def test_the_score_runs_from_wrong_over_unchanged_to_right(self, means, score):
        directions = [change("e0", "t0", 1), change("e1", "t1", -1)]
        report = measure_shifts(make([[0.3 * means, 0], [0, -0.3 * means]]), directions, rule=RULE)
        assert report.score.estimate == score
        assert report.score.low <= score <= report.score.high

    def test_the_score_is_the_mean_over_pairs_and_the_macro_means_weigh_traits_and_events(self):
        directions = [change("e0", "t0", 1), change("e1", "t0", 1), change("e1", "t1", 1)]
        report = measure_shifts(make([[0.4, 0], [0.4, -0.4]], noise=0.05), directions, rule=RULE)
        assert report.score.estimate == pytest.approx(50 * (1 + 1 / 3))
        assert (report.by_trait, report.by_event) == ({"t0": 100, "t1": 0}, {"e0": 100, "e1": 50})
        assert report.macro == (50, 75)
        assert report.direction.estimate == pytest.approx(2 / 3)

    @given(st.integers(0, 10_000))
    @settings(max_examples=8, deadline=None)
    def test_turning_every_direction_round_mirrors_the_score(self, seed):
        shifts = make([[0.3, -0.3], [0.05, 0]], personas=15, seed=seed)
        directions = [change("e0", "t0", 1), change("e0", "t1", 1), change("e1", "t0", 1)]
        turned = [replace(one, sign=-one.sign) for one in directions]
        rule = ShiftRule(draws=500, resamples=50)
        one, other = (measure_shifts(shifts, given, rule=rule).score for given in (directions, turned))
        assert one.estimate + other.estimate == pytest.approx(100)
        assert 0 <= one.low <= one.high <= 100

    def test_the_interval_is_wide_where_personas_disagree(self):
        clear = measure_shifts(make([[0.4, 0], [0, 0]], spread=0.0), [change()], rule=RULE).score
        torn = measure_shifts(make([[0.15, 0], [0, 0]], spread=0.35, seed=3), [change()], rule=RULE).score
        assert (clear.low, clear.high) == (100, 100)
        assert torn.high - torn.low >= 50


class TestDetection:
    def test_retest_noise_alone_is_seldom_detected(self):
        found = [measure_shifts(make(seed=seed), [change()], rule=RULE) for seed in range(25)]
        assert sum(cell.detected for report in found for cell in report.cells) <= 5  # of 100
        rates = [report.occurrence["undocumented"].estimate for report in found]
        assert np.mean(rates) == pytest.approx(0.05, abs=0.02)

    def test_an_agent_that_never_changes_is_never_detected(self):
        report = measure_shifts(make(noise=0.0), [change()], rule=RULE)
        assert not any(cell.detected for cell in report.cells)
        assert (report.score.estimate, report.score.low, report.score.high) == (50, 50, 50)
        assert report.occurrence["documented"].estimate == 0
        assert set(report.thresholds.values()) == {0.0}

    def test_an_agent_without_noise_that_shifts_is_detected(self):
        shifts = make([[0.2, 0], [0, 0]], noise=0.0)
        assert [cell.detected for cell in measure_shifts(shifts, [change()], rule=RULE).cells] == [True, *[False] * 3]

    def test_what_a_second_asking_does_by_itself_is_no_shift(self):
        report = measure_shifts(make(drift=0.3), [change()], rule=RULE)
        assert not any(cell.detected for cell in report.cells)
        assert report.drift["t0"] == pytest.approx(0.3, abs=0.05)
        assert report.cells[0].shift.low > 0  # the mean itself is well above 0

    def test_personas_that_differ_without_a_common_change_are_no_shift(self):
        """Far beyond the retest noise for each persona, but an accident of who was asked for the mean."""
        found = [measure_shifts(make(noise=0.02, spread=0.5, seed=seed), [change()], rule=RULE) for seed in range(10)]
        assert sum(cell.detected for report in found for cell in report.cells) <= 4  # of 40
        assert min(report.occurrence["documented"].estimate for report in found) > 0.8

    def test_the_threshold_is_the_quantile_of_the_retests(self):
        shifts = make(repeats=1, retests=8, personas=200)
        wanted = np.quantile(np.abs(shifts.retest), 0.95, axis=(0, 1))
        found = measure_shifts(shifts, [change()], rule=RULE).thresholds
        assert [found["t0"], found["t1"]] == pytest.approx(list(wanted), rel=0.05)
        four = make(repeats=4, retests=8, personas=200)
        assert measure_shifts(four, [change()], rule=RULE).thresholds["t0"] == pytest.approx(found["t0"] / 2, rel=0.12)

    def test_the_mean_over_personas_is_compared_with_no_event_means_of_the_right_spread(self):
        shifts = make(retests=5, personas=60)
        calm = shifts.retest - shifts.retest.mean(1, keepdims=True)
        null, _ = _no_event(replace(shifts, retest_pre=0 * calm, retest_post=calm), RULE)
        wanted = calm.var(axis=1, ddof=1).mean(0) / (shifts.pre.shape[2] * 60)
        assert (null**2).mean(0) == pytest.approx(wanted, rel=0.1)

    def test_a_shift_as_far_as_every_retest_is_none(self):
        assert not any(
            cell.detected for cell in measure_shifts(make(noise=0.0, drift=0.3), [change()], rule=RULE).cells
        )

    def test_the_false_discovery_rate_is_controlled_over_all_cells(self):
        cells = measure_shifts(make([[0.4, 0], [0, 0]]), [change()], rule=RULE).cells
        p = np.array([cell.p for cell in cells])
        order = np.argsort(p)
        steps = p[order] * len(p) / np.arange(1, len(p) + 1)
        wanted = np.minimum.accumulate(steps[::-1])[::-1]
        assert np.array([cell.p_adjusted for cell in cells])[order] == pytest.approx(np.minimum(wanted, 1))
        assert all(cell.detected == (cell.p_adjusted <= RULE.fdr) for cell in cells)

    def test_occurrence_tells_documented_from_undocumented(self):
        report = measure_shifts(make([[0.6, 0.0], [0.6, 0.6]], noise=0.1), [change("e0", "t0"), change("e1", "t0")],
                                rule=RULE)  # fmt: skip
        assert report.occurrence["documented"].estimate > 0.95
        assert report.occurrence["undocumented"].estimate == pytest.approx(0.5, abs=0.1)
        assert report.occurrence["difference"].low > 0.3
        assert (report.detected["documented"].estimate, report.detected["undocumented"].estimate) == (1, 0.5)


class TestAxes:
    @pytest.mark.parametrize("spread", [0.0, 0.1, 0.4])
    def test_the_dispersion_is_the_planted_one_whatever_the_noise(self, spread):
        human = HumanScale(shift_sd={"t0": 0.4, "t1": 0.4})
        report = measure_shifts(make(spread=spread, personas=400, noise=0.3), [change()], human, RULE)
        assert report.dispersion is not None
        assert report.dispersion.estimate == pytest.approx(spread / 0.4, abs=0.12)
        assert report.relative_dispersion.estimate == pytest.approx(spread / 0.5, abs=0.12)
        assert report.dispersion.low - 0.03 <= spread / 0.4 <= report.dispersion.high + 0.03

    def test_headroom_is_the_share_of_the_way_left(self):
        shifts = make(personas=2, repeats=1, noise=0.0)
        pre, post = np.full(shifts.pre.shape, 4.0), np.full(shifts.pre.shape, 4.0)
        post[0, 0, 0] = [4.5, 1.0]
        pre[1, 0, 0] = post[1, 0, 0] = [5.0, 1.0]
        shares = headroom_shares(replace(shifts, pre=pre, post=post)).reshape(2, 2, 2)
        assert shares[0].tolist() == [[0.5, -1.0], [0.0, 0.0]]
        assert np.isnan(shares[1, 0]).all()

    def test_missing_scores_are_left_out_and_counted(self):
        shifts = make([[0.4, 0.4], [0, 0]])
        post = shifts.post.copy()
        post[:10, 0, 0, 0] = np.nan
        post[:, 0, :, 1] = np.nan
        report = measure_shifts(replace(shifts, post=post), [change(), change("e0", "t1")], rule=RULE)
        assert report.missing == 10 + 80
        assert kinds(report)["e0", "t1"] == "missing"
        assert report.score.estimate == 100  # of the one documented pair that has scores
        assert report.cells[0].shift.estimate == pytest.approx(0.4, abs=0.1)

    def test_what_is_left_later(self):
        before = np.array([[1.0, -0.5], [1.0, -0.5], [0.4, -0.1]])
        assert persistence(before, before, RULE).estimate == 1
        assert persistence(before, before / 4, RULE).estimate == pytest.approx(0.25)
        assert persistence(before, 0 * before, RULE).estimate == 0
        assert persistence(before, -before, RULE).high == -1
        assert np.isnan(persistence(0 * before, before, RULE).estimate)
        with pytest.raises(UserError, match="two arrays"):
            persistence(before, before[:2])

    def test_a_moderator_is_found_where_there_is_one(self):
        shifts = make(noise=0.1)
        groups = ["a", "b"] * 20
        post = shifts.post.copy()
        post[::2] += 0.3
        share, p = moderation(replace(shifts, post=post), groups, 300)
        assert share > 0.5
        assert p < 0.01
        share, p = moderation(shifts, groups, 300)
        assert share < 0.1
        assert p > 0.05
        assert np.isnan(moderation(make(noise=0.0), groups, 10)[0])
        for wrong in (["a"] * 40, ["a", "b"]):
            with pytest.raises(UserError, match="two or more groups"):
                moderation(shifts, wrong)


class TestBadInput:
    def test_too_few_retests_personas_or_shapes_that_do_not_fit(self):
        for options, message in (
            ({"retests": 4}, "at least 5"), ({"personas": 1}, "at least 2"), ({"repeats": 7}, "as many retests"),
        ):  # fmt: skip
            with pytest.raises(UserError, match=message):
                make(**options)
        shifts = make()
        with pytest.raises(UserError, match=re.escape("personas 40, events 2")):
            replace(shifts, pre=shifts.pre[:, :1])
        with pytest.raises(UserError, match="retests of shape"):
            replace(shifts, retest_pre=shifts.retest_pre[1:])

    def test_nothing_documented_or_impossible_figures(self):
        with pytest.raises(UserError, match="none of the 4 cells has a documented direction"):
            measure_shifts(make(), [change("elsewhere")], rule=RULE)
        with pytest.raises(UserError, match="human sd of 't0' must be above 0"):
            measure_shifts(make(), [change()], HumanScale(sd={"t0": 0}), RULE)
        for wrong in ({"quantile": 1}, {"fdr": 0}, {"draws": 0}):
            with pytest.raises(UserError, match="quantile and fdr"):
                ShiftRule(**wrong)


class TestLifeEvents:
    def test_the_bundled_events(self):
        events, traits = load_life_events(), load_questionnaire().traits
        assert len(events.events) == 11
        assert all(len(set(event.narratives)) == 2 for event in events.events)
        assert all(text.count("You") + text.count("you") for event in events.events for text in event.narratives)
        assert len(events.fillers) >= 5
        for one in events.directions:
            assert one.trait in traits
            assert re.search(r"\b(19|20)\d\d\b", one.source), "author and year"
            assert one.range is None, "no magnitudes are shipped"
        pairs = {(one.event, one.trait): one.sign for one in events.directions}
        assert len(pairs) == len(events.directions) == 9
        assert (pairs["first-job", "conscientiousness"], pairs["new-relationship", "neuroticism"]) == (1, -1)

    def test_an_unknown_event(self):
        with pytest.raises(UserError, match=r"no event 'mariage'.*Did you mean 'marriage'"):
            load_life_events()["mariage"]

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("events", [{"id": "x", "name": "x"}], r"events\[0\]: the field 'narratives' is missing"),
            ("events", [{"id": "x", "name": "x", "narratives": []}], r"narratives: expected a list"),
            ("events", [{"id": "x", "name": "x", "narratives": ["t"]}] * 2, "the id 'x' stands twice"),
            ("neutral", [], "neutral: expected a list"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 1}], "the field 'source' is missing"),
            ("directions", [{"event": "divorse", "trait": "t", "sign": 1, "source": "s"}], "Did you mean 'divorce'"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 0, "source": "s"}], "sign: expected 1 or -1"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 1, "source": ""}], "source: expected author"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 1, "source": "s", "low": 1}], "belong together"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 1, "source": "s", "low": 2, "high": 1}],
             "low <= high"),
            ("directions", [{"event": "divorce", "trait": "t", "sign": 1, "source": "s"}] * 2, "keep one direction"),
            ("extra", 1, "unknown field 'extra'"),
        ],
    )  # fmt: skip
    def test_bad_files_are_refused_by_place(self, tmp_path, field, value, message):
        data = yaml.safe_load(bundled("measures", "life-events-v1").read_text(encoding="utf-8")) | {field: value}
        if field == "events":
            data["directions"] = []
        path = tmp_path / "events.yaml"
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        with pytest.raises(UserError, match=message) as caught:
            load_life_events(path)
        assert "events.yaml" in str(caught.value)

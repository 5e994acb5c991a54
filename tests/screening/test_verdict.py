import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.measures import DIMENSIONS, bootstrap_rows
from rolecraft.screening import VerdictRule, decide, stability
from rolecraft.screening._verdict import Pairs
from tests.screening.planted import STRENGTHS, grid, table


@pytest.fixture(scope="module")
def decisions() -> pd.DataFrame:
    return decide(table(grid())).set_index("role")


@pytest.mark.parametrize(
    ("role", "verdict", "strength", "reason", "shape"),
    [
        ("rising", "PASS", 2.5, "", "rising"),
        ("peaked", "PASS", 1.5, "", "peaked"),
        ("anti", "PASS_PROMPT_ONLY", None, "anti_controllable", "declining"),
        ("flat", "FLAG", None, "no_gain_over", "flat"),
        ("prompt-only", "PASS_PROMPT_ONLY", None, "no_gain_over", "flat"),
        ("control-as-good", "PASS_PROMPT_ONLY", None, "no_gain_over_random", "rising"),
    ],
)
def test_planted_curves_get_their_verdict(decisions, role, verdict, strength, reason, shape):
    row = decisions.loc[role]
    assert (row["verdict"], row["shape"]) == (verdict, shape)
    assert row["reason"].startswith(reason)
    assert bool(row["reason"]) == bool(reason)
    assert np.isnan(row["strength"]) if strength is None else row["strength"] == strength


def test_statistics_of_a_known_curve(decisions):
    row = decisions.loc["rising"]
    assert row["r"] > 0.99
    assert row["slope"] == pytest.approx(15, abs=1.5)
    assert row["monotone"]
    assert row["at_edge"]
    assert row["gain_low"] < row["gain"] < row["gain_high"]
    assert row["gain"] == pytest.approx(37.5, abs=3)
    assert row["gain_held_out"] == pytest.approx(37.5, abs=3)
    assert decisions.loc["anti"]["anti_controllable"]
    assert not decisions.loc["peaked"]["at_edge"]


def test_constant_scores_are_flat_not_anti_controllable():
    rows = table(grid(("flat",)), noise=0.0)
    row = decide(rows).iloc[0]
    assert row["r"] == 0
    assert not row["anti_controllable"]


def test_one_strength_has_no_curve_but_a_verdict():
    rows = table(grid(("rising",)))
    row = decide(rows[rows["strength"].isin([0.0, 2.5])]).iloc[0]
    assert row["verdict"] == "PASS"
    assert np.isnan(row["r"])
    assert row["shape"] == ""
    assert not row["at_edge"]


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        ({"unique_bigram_ratio": 0.3}, "repetitive"),
        ({"degenerate": True}, "degenerate"),
        ({"leakage": True}, "leakage"),
    ],
)
def test_health_stands_before_alignment(health, reason):
    """Looping text can gain by lexical overlap; it must not pass, however high it scores."""
    row = decide(table(grid(("rising",)), **health)).iloc[0]
    assert (row["verdict"], row["reason"]) == ("FLAG", reason)


def test_only_the_looping_strength_is_refused():
    rows = table(grid(("rising",)))
    rows.loc[(rows["arm"] == "role") & (rows["strength"] == 2.5), "unique_bigram_ratio"] = 0.2
    row = decide(rows).iloc[0]
    assert (row["verdict"], row["strength"]) == ("PASS", 2.0)


def test_a_role_that_fails_is_judged_by_its_best_healthy_strength():
    rows = table(grid(("control-as-good",)))
    rows.loc[(rows["arm"] == "role") & (rows["strength"] == 2.5), "degenerate"] = True
    row = decide(rows).iloc[0]
    assert (row["verdict"], row["reason"]) == ("PASS_PROMPT_ONLY", "no_gain_over_random")
    assert row["best"] == pytest.approx(60, abs=4), "the level at strength 2, not at 2.5"


def test_a_sure_but_negligible_gain_does_not_pass():
    rows = table(grid(("rising",)))
    steered = rows["arm"] == "role"
    rows.loc[steered, list(DIMENSIONS)] = (
        rows[rows["arm"] == "baseline"]
        .set_index("question")
        .loc[rows.loc[steered, "question"], list(DIMENSIONS)]
        .to_numpy()
        + 1.0
    )
    assert decide(rows).iloc[0]["reason"] == "no_gain_over_baseline"
    assert decide(rows, VerdictRule(min_gain=0.5)).iloc[0]["gain_low"] == pytest.approx(1.0)


def test_a_declining_dimension_fails_the_strength():
    rows = table(grid(("rising",)))
    rows.loc[rows["arm"] == "role", "motivation"] = 1.0
    row = decide(rows).iloc[0]
    assert row["verdict"] == "PASS_PROMPT_ONLY"
    assert row["reason"] == "declines_motivation"


def test_missing_scores_beyond_the_limit_flag_the_role():
    rows = table(grid(("rising",)))
    rows.loc[rows.index[::10], list(DIMENSIONS)] = np.nan
    row = decide(rows).iloc[0]
    assert (row["verdict"], row["reason"]) == ("FLAG", "missing_scores")
    assert row["missing"] == pytest.approx(0.1, abs=0.01)
    assert decide(rows, VerdictRule(max_missing=0.2)).iloc[0]["verdict"] == "PASS"


def test_a_role_without_any_score_is_flagged_not_a_crash():
    rows = table(grid(("rising", "flat")))
    rows.loc[rows["role"] == "rising", list(DIMENSIONS)] = np.nan
    assert decide(rows).set_index("role").loc["rising"]["verdict"] == "FLAG"


def test_a_role_that_was_not_steered_can_still_pass_by_prompt():
    rows = table(grid(("rising",)))
    row = decide(rows[rows["strength"] == 0]).iloc[0]
    assert (row["verdict"], row["reason"]) == ("PASS_PROMPT_ONLY", "not_steered")


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(8)), st.randoms(use_true_random=False))
def test_order_of_rows_and_names_of_questions_do_not_matter(order, random):
    rows = table(grid(("rising", "peaked"), questions=8))
    shuffled = rows.sample(frac=1, random_state=random.randrange(2**32))
    pd.testing.assert_frame_equal(
        decide(rows).set_index("role").sort_index()[["verdict", "strength", "reason", "gain"]],
        decide(shuffled).set_index("role").sort_index()[["verdict", "strength", "reason", "gain"]],
    )


def test_false_passes_stay_rare_when_nothing_is_there():
    """The rule asks for a gain over the baseline and over the control: under no effect it passes by luck at most."""
    roles = tuple(f"null-{number}" for number in range(60))
    rng = np.random.default_rng(7)
    rows = [
        {"role": role, "arm": arm, "strength": s, "question": f"q{q}", "seed": 0, "unique_bigram_ratio": 0.9,
         "degenerate": False, "leakage": False, **dict(zip(DIMENSIONS, rng.normal(50, 10, 6), strict=True))}
        for role in roles for q in range(12)
        for arm, s in [("prompted", 0.0), ("baseline", 0.0), *((a, s) for s in STRENGTHS for a in ("role", "random"))]
    ]  # fmt: skip
    passed = (decide(pd.DataFrame(rows))["verdict"] == "PASS").mean()
    assert passed < 0.1


def test_stability_compares_seeds():
    rows = table(grid(("rising", "flat"), seeds=(0, 1, 2)))
    rows.loc[(rows["role"] == "rising") & (rows["seed"] == 2) & (rows["arm"] == "role"), list(DIMENSIONS)] = 5.0
    stable = stability(rows).set_index("role")
    assert stable.loc["flat"]["same_strength"]
    assert not stable.loc["rising"]["same_verdict"]
    assert stable.loc["rising"]["verdicts"].startswith("PASS(2.5), PASS(2.5), ")


def test_a_role_no_better_than_a_control_seldom_passes():
    """Role and axis gain the same; the verdict may take the best of four strengths, and must not pass one by luck."""
    generator = np.random.default_rng(0)
    rows = []
    for role, question in itertools.product(range(150), range(10)):
        common = generator.normal(40, 6)
        for arm, strength in [("baseline", 0.0), *itertools.product(("role", "axis"), (1.0, 1.5, 2.0, 2.5))]:
            scores = common + 10 * (arm != "baseline") + generator.normal(0, 8, 6)
            rows.append((f"r{role}", arm, strength, f"q{question}", 0, *scores, 0.9, False, False))
    columns = [
        "role",
        "arm",
        "strength",
        "question",
        "seed",
        *DIMENSIONS,
        "unique_bigram_ratio",
        "degenerate",
        "leakage",
    ]
    passed = (decide(pd.DataFrame(rows, columns=columns))["verdict"] == "PASS").mean()
    assert 0 < passed <= 0.04


def test_the_level_is_shared_out_over_the_strengths():
    rule = VerdictRule()
    pairs = Pairs(table(grid(("rising",))), rule)
    for arm, chosen_from in ((("role", 2.5), len(STRENGTHS)), (("prompted", 0.0), 1)):
        difference = (pairs.scores[arm] - pairs.scores["baseline", 0.0]).T
        _, low, high = bootstrap_rows(difference, rule.draws, level=1 - 0.05 / chosen_from)
        found = pairs.contrast(arm, ("baseline", 0.0))
        np.testing.assert_array_equal(found.low, low)
        np.testing.assert_array_equal(found.high, high)

"""Process measures: planted outcomes, the first broken link, clustered intervals, planted logistic effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize

from rolecraft.errors import UserError
from rolecraft.measures import failure_class, logistic_effects, process_report, process_score
from rolecraft.measures._process import _fit


def link(kind: str, **links: Any) -> dict[str, Any]:
    """A link of a lineage in which all went well, but for some changes."""
    whole = {
        "asked_turn": 1, "delivered_turn": 1, "cited_in_request_turn": 2, "cited_needed": True, "op_id": 0,
        "same_arguments": True, "accepted": True, "awaits_consent": False,
    }  # fmt: skip
    return {"kind": kind, **whole, **links}


def outcome(**changes: Any) -> dict[str, Any]:
    receipts = [{"accepted": True, "before": "a", "after": "a"}, {"accepted": False, "before": "a", "after": "a"}]
    return {
        "task": "t", "breadth": 2, "writes": 1, "arguments": 3, "turns": 7, "success": False, "final": True,
        "state_reached": False, "outputs_known": True, "locked": 4, "opened": 3,
        "contacts": ["Aster", "Elara", "Aster"],
        "needed": ["Elara", "Fenn"], "receipts": receipts, "lineage": [link("goal", delivered_turn=None)], **changes,
    }  # fmt: skip


def test_shares_are_exact() -> None:
    score = process_score(outcome())
    assert (score.disclosure, score.contact, score.contact_precision, score.contact_recall) == (0.75, 1 / 3, 0.5, 0.5)
    assert (score.wrote, score.premature, score.censored) == (False, True, False)
    assert score.failure == "premature finalisation"
    nobody = process_score(outcome(contacts=[], locked=0, opened=0))
    assert (nobody.contact_precision, nobody.contact_recall, nobody.disclosure) == (None, 0, None)


@pytest.mark.parametrize(
    ("final", "reached", "known", "premature"),
    [(True, True, True, False), (True, False, True, True), (True, True, False, True), (False, False, False, False)],
)
def test_premature_is_finishing_before_the_state_or_the_facts_are_there(
    final: bool, reached: bool, known: bool, premature: bool
) -> None:
    score = process_score(outcome(final=final, state_reached=reached, outputs_known=known))
    assert score.premature is premature
    assert score.censored is not final


def test_a_write_is_an_accepted_change() -> None:
    assert process_score(outcome(receipts=[{"accepted": True, "before": "a", "after": "b"}])).wrote


def test_an_outcome_of_another_world_is_named() -> None:
    with pytest.raises(UserError, match="no field 'contacts'"):
        process_score({"winner": "good"})


@pytest.mark.parametrize(
    ("broken", "final", "expected"),
    [
        (link("goal", asked_turn=None, delivered_turn=None), True, "premature finalisation"),
        (link("goal", asked_turn=None, delivered_turn=None), False, "exploration"),
        (link("goal", cited_in_request_turn=None), True, "goal-belief error"),
        (link("fact", cited_in_request_turn=None), True, "environment-belief error"),
        (link("fact", delivered_turn=None), True, "premature finalisation"),
        (link("write", op_id=None), True, "premature finalisation"),
        (link("write", op_id=None), False, "exploration"),
        (link("write", accepted=False, awaits_consent=True), True, "premature finalisation"),
        (link("write", accepted=False, awaits_consent=True), False, "exploration"),
        (link("write", same_arguments=False), True, "environment-belief error"),
        (link("write", accepted=False), True, "execution error"),
        (link("output", cited_in_request_turn=None), True, "communication failure"),
        (link("output", delivered_turn=None), True, "premature finalisation"),
        (link("goal"), True, "execution error"),
    ],
)
def test_the_first_broken_link_names_the_failure(broken: dict[str, Any], final: bool, expected: str) -> None:
    later = link("output", cited_in_request_turn=None) if broken != link("goal") else link("fact")
    assert failure_class([link("goal"), broken, later], final) == expected
    assert (
        failure_class([link("goal", cited_needed=False, cited_in_request_turn=None), broken, later], final) == expected
    )


def test_a_report_resamples_tasks_whole() -> None:
    scores = [process_score(outcome(task=str(n), breadth=n % 2 + 1, success=n < 4)) for n in range(8) for _ in range(5)]
    report = process_report(scores)
    assert report.episodes == 40
    assert (report.metrics["success"].estimate, report.metrics["success"].n) == (0.5, 8)
    single = process_report(scores, list(range(40)))
    assert single.metrics["success"].n == 40
    width = [each.metrics["success"].high - each.metrics["success"].low for each in (report, single)]
    assert width[0] > 1.8 * width[1]
    assert {breadth: each.estimate for breadth, each in report.by_breadth.items()} == {1: 0.5, 2: 0.5}
    assert report.failures == {"premature finalisation": 20}
    with pytest.raises(UserError, match="got 0 and 0"):
        process_report([])


def test_logistic_effects_find_the_planted_one_and_not_its_confounder() -> None:
    rng = np.random.default_rng(0)
    breadth = rng.integers(1, 7, size=700)
    writes = breadth // 3 + rng.integers(0, 2, size=700)
    chance = 1 / (1 + np.exp(2.5 * (breadth - 3.5) / breadth.std() / 2))
    solved = rng.random(700) < chance
    found = logistic_effects(solved.astype(float), {"breadth": breadth, "writes": writes}, list(range(700)), draws=200)
    assert found["breadth"].high < -0.8
    assert found["breadth"].estimate == pytest.approx(-1.25, abs=0.35)
    assert abs(found["writes"].estimate) < 0.35
    assert found["writes"].n == 700


def test_the_fit_is_the_minimum_of_its_own_loss() -> None:
    rng = np.random.default_rng(1)
    x, y, weights = rng.normal(size=(80, 2)), (rng.random(80) < 0.4).astype(float), rng.integers(0, 4, (3, 80)) * 1.0
    for row, beta in zip(weights, _fit(x, y, weights, 0.7), strict=True):

        def loss(b: np.ndarray, row: np.ndarray = row) -> float:
            z = b[0] + x @ b[1:]
            return float(row @ (np.log1p(np.exp(z)) - y * z) + 0.35 * (b[1:] @ b[1:]))

        found = optimize.minimize(loss, np.zeros(3))
        assert beta == pytest.approx(found.x[1:], abs=1e-3)


def test_logistic_effects_need_something_that_varies() -> None:
    with pytest.raises(UserError, match="the outcomes must vary"):
        logistic_effects([1, 1], {"a": [0, 1]}, [0, 1])
    with pytest.raises(UserError, match="b must vary"):
        logistic_effects([0, 1], {"a": [0, 1], "b": [2, 2]}, [0, 1])
    with pytest.raises(UserError, match="as many numbers"):
        logistic_effects([0, 1], {"a": [0, 1]}, [0])

"""Calibration in closed form, agreement of two judges, and the labelled cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rolecraft.errors import JudgeError, RoleError, UserError
from rolecraft.measures import JudgeItem, Score, agreement, calibrate, load_cases
from rolecraft.measures._cases import reference_answers
from tests.measures.planted import cases


class Fixed:
    """Gives the scores it was made with, one per item, in turn."""

    rubric_hash = "0" * 16
    dimensions = ("overall",)

    def __init__(self, values: Sequence[float | None], name: str = "fixed") -> None:
        self.name, self.values = name, values

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        return [Score({"overall": value}) for value, _ in zip(self.values, items, strict=True)]


def test_a_perfect_judge() -> None:
    planted = cases()
    found = calibrate(Fixed([(5.0, 15.0, 50.0, 90.0)[case.label] for case in planted]), planted)
    assert (found.agreement, found.auc, found.ordered, found.kappa) == (1.0, 1.0, 1.0, 1.0)
    assert (found.broken_low, found.broken_auc, found.n, found.missing) == (1.0, 1.0, 32, 0)
    assert found.means == {"broken text": 5, "not in role": 15, "partly in role": 50, "fully in role": 90}
    found.check()


def test_numbers_by_hand() -> None:
    four = cases()[:8]  # labels 0 1 2 3 0 1 2 3
    found = calibrate(Fixed([40.0, 60.0, 20.0, 80.0, 0.0, 10.0, 75.0, 70.0]), four)
    assert found.agreement == 3 / 4
    assert found.auc == 1.0
    assert found.ordered == pytest.approx((4 / 4 * 4 + 3 / 4 * 4 + 3 / 4 * 4) / 12)
    assert found.broken_low == 1 / 2
    assert found.means["partly in role"] == 47.5


def test_a_reversed_judge_fails_the_check() -> None:
    planted = cases()
    with pytest.raises(JudgeError, match="agrees with 0%"):
        calibrate(Fixed([(5.0, 90.0, 50.0, 15.0)[case.label] for case in planted]), planted).check()


def test_missing_scores_count_as_errors() -> None:
    planted = cases()
    values = [None if case.label == 3 else 10.0 for case in planted]
    found = calibrate(Fixed(values), planted)
    assert found.agreement == 0.5
    assert found.missing == 8
    assert math.isnan(found.auc)
    with pytest.raises(JudgeError, match="8 of 32 calibration cases have no score"):
        found.check()


def test_no_cases_no_calibration() -> None:
    with pytest.raises(JudgeError, match="got none"):
        calibrate(Fixed([]), [])


def test_agreement_of_two_judges() -> None:
    items = [case.item for case in cases()[:4]]
    a, b = Fixed([0.0, 40.0, 60.0, 100.0], "a"), Fixed([10.0, 50.0, 70.0, None], "b")
    found = agreement(a, b, items)
    assert (found.n, found.missing, found.judges) == (3, 1, ("a", "b"))
    assert found.pearson == pytest.approx(1.0)
    assert found.mean_difference == pytest.approx(-10)
    assert found.same_side == 1.0
    assert agreement(a, a, items).kappa == 1.0


def test_the_bundled_cases_are_balanced_and_have_references() -> None:
    found = load_cases()
    assert Counter(case.label for case in found) == {0: 24, 1: 24, 2: 24, 3: 24}
    assert len({case.item.role.id for case in found}) == 24
    assert all(case.item.reference for case in found)
    assert not any(case.item.reference for case in load_cases(references=False))
    assert {(row["role"]) for row in reference_answers()} == {case.item.role.id for case in found}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("- {id: a, role: pirate, question: q001, answer: x}", UserError, "'label'"),
        ("- {id: a, role: pirate, question: q001, answer: x, label: 4}", UserError, "got 4"),
        ("- {id: a, role: pirate, question: q001, answer: x, label: good}", UserError, "got 'good'"),
        ("- {id: a, role: pirat, question: q001, answer: x, label: 1}", RoleError, "Did you mean 'pirate'"),
    ],
)
def test_a_bad_case_is_refused(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    with pytest.raises(error, match=message):
        load_cases(path)


def test_a_question_may_be_given_as_text(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text("- {id: a, role: pirate, question: 'Where to?', answer: Port, label: 3}")
    assert load_cases(path)[0].item.question == "Where to?"

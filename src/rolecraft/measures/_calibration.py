"""How far a judge can be relied on: agreement with labelled cases, and of two judges with each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rolecraft.errors import JudgeError
from rolecraft.measures._cases import BROKEN, FULLY, NOT, PARTLY, RoleCase
from rolecraft.measures._fit import LEVELS
from rolecraft.measures._judge import Judge, JudgeItem
from rolecraft.measures._statistics import auc, cohen_kappa, pearson, spearman

LABELS = {BROKEN: "broken text", NOT: "not in role", PARTLY: "partly in role", FULLY: "fully in role"}
PASSING = 0.8
"""Least agreement with which a judge may be used (CastVectors, arXiv 2608.00023)."""
MAX_MISSING = 0.05
"""Largest share of missing scores with which a report is valid (same source)."""


@dataclass(frozen=True)
class Calibration:
    """A judge's overall scores against labels."""

    judge: str
    rubric_hash: str
    agreement: float
    """Share of fully in role (3) and not in role (1) cases on the right side of 50."""
    auc: float
    """Probability that a fully in role case outscores one that is not in role."""
    ordered: float
    """The same over all pairs of cases with different labels among 1, 2 and 3."""
    kappa: float
    """Quadratic kappa between the labels 1..3 and the scores cut at 30 and 70; broken text aside."""
    broken_low: float
    """Share of broken cases that score below 30."""
    broken_auc: float
    """Probability that a fully in role case outscores a broken one."""
    means: dict[str, float]
    """Mean score per label."""
    n: int
    missing: int
    """Cases without a score; they count as errors in `agreement` and `broken_low`."""

    def check(self, passing: float = PASSING) -> None:
        """Refuse a judge that does not agree well enough.

        Raises:
            JudgeError: If the agreement is below `passing`, or more than 5 % of the scores are missing.
        """
        if self.missing > MAX_MISSING * self.n:
            raise JudgeError(
                f"{self.judge}: {self.missing} of {self.n} calibration cases have no score (at most "
                f"{MAX_MISSING:.0%} may be missing); the model does not follow the rubric. Use a stronger judge model."
            )
        if not self.agreement >= passing:
            raise JudgeError(
                f"{self.judge}: agrees with {self.agreement:.0%} of the labelled cases, and at least {passing:.0%} is "
                "needed. Use a stronger judge model, or allow an uncalibrated judge explicitly."
            )


def calibrate(judge: Judge, cases: Sequence[RoleCase]) -> Calibration:
    """Score labelled cases with a judge and compare its overall dimension with the labels.

    Raises:
        JudgeError: If there are no cases.
    """
    if not cases:
        raise JudgeError("calibration needs labelled cases, got none.")
    scores = [score.values.get("overall") for score in judge.score([case.item for case in cases])]
    return Calibration(
        judge=judge.name, rubric_hash=judge.rubric_hash, **_compare(scores, [case.label for case in cases])
    )


def agreement_report(scores: Sequence[float | None], labels: Sequence[int]) -> dict[str, float]:
    """Return the numbers of a `Calibration` for given scores, flat, with `mean_<label>` for the means."""
    compared = _compare(scores, labels)
    means = compared.pop("means")
    return compared | {f"mean_{label}": value for label, value in means.items()}


def _compare(scores: Sequence[float | None], labels: Sequence[int]) -> dict[str, Any]:
    values = [math.nan if score is None else score for score in scores]
    by_label = {
        label: [value for value, given in zip(values, labels, strict=True) if given == label] for label in LABELS
    }
    right = [value > 50 for value in by_label[FULLY]] + [value <= 50 for value in by_label[NOT]]
    low, high = (100 * level for level in LEVELS)
    graded = [
        (value, label) for value, label in zip(values, labels, strict=True) if label > BROKEN and not math.isnan(value)
    ]
    pairs = [(3, 1), (3, 2), (2, 1)]
    weights = [len(by_label[a]) * len(by_label[b]) for a, b in pairs]
    found = [auc(by_label[a], by_label[b]) for a, b in pairs]
    known = [(w, value) for w, value in zip(weights, found, strict=True) if not math.isnan(value)]
    return {
        "agreement": sum(right) / len(right) if right else math.nan,
        "auc": auc(by_label[FULLY], by_label[NOT]),
        "ordered": sum(w * value for w, value in known) / sum(w for w, _ in known) if known else math.nan,
        "kappa": cohen_kappa([1 + (v >= low) + (v >= high) for v, _ in graded], [label for _, label in graded]),
        "broken_low": sum(v < low for v in by_label[BROKEN]) / len(by_label[BROKEN]) if by_label[BROKEN] else math.nan,
        "broken_auc": auc(by_label[FULLY], by_label[BROKEN]),
        "means": {LABELS[label]: _mean(group) for label, group in by_label.items()},
        "n": len(values),
        "missing": sum(math.isnan(value) for value in values),
    }


def _mean(values: Sequence[float]) -> float:
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan


@dataclass(frozen=True)
class Agreement:
    """Two judges on the same items, one dimension."""

    judges: tuple[str, str]
    dimension: str
    pearson: float
    spearman: float
    kappa: float
    """Quadratic kappa of the scores cut at 30 and 70."""
    same_side: float
    """Share of items that both put on the same side of 50."""
    mean_difference: float
    """First less second."""
    n: int
    """Items that both scored."""
    missing: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a result file."""
        return asdict(self)


def agreement(a: Judge, b: Judge, items: Sequence[JudgeItem], dimension: str = "overall") -> Agreement:
    """Compare two judges on the same items."""
    first, second = ([score.values.get(dimension) for score in judge.score(items)] for judge in (a, b))
    return compare_scores(first, second, (a.name, b.name), dimension)


def compare_scores(
    first: Sequence[float | None], second: Sequence[float | None], judges: tuple[str, str], dimension: str = "overall"
) -> Agreement:
    """Compare scores of the same items by two judges; see `Agreement`."""
    pairs = [(x, y) for x, y in zip(first, second, strict=True) if x is not None and y is not None]
    x, y = [p[0] for p in pairs], [p[1] for p in pairs]
    low, high = (100 * level for level in LEVELS)
    cut = [[(v >= low) + (v >= high) for v in values] for values in (x, y)]
    return Agreement(
        judges=judges,
        dimension=dimension,
        pearson=pearson(x, y).r,
        spearman=spearman(x, y).r,
        kappa=cohen_kappa(cut[0], cut[1]),
        same_side=_mean([float((p > 50) == (q > 50)) for p, q in pairs]),
        mean_difference=_mean([p - q for p, q in pairs]),
        n=len(pairs),
        missing=len(first) - len(pairs),
    )

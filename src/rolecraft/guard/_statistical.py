"""Statistical guarantees for guards that score what they see: a threshold by conformal risk control, and exact bounds.

Conformal risk control is by Angelopoulos, Bates, Fisch, Lei and Schuster (arXiv 2208.02814); the exact interval of a
proportion by Clopper and Pearson (1934).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.measures import Interval, conformal_threshold, smallest_calibration


@dataclass(frozen=True)
class RiskThreshold:
    """A threshold on violation scores: what scores below it passes."""

    threshold: float
    """Minus infinity lets nothing pass."""
    alpha: float
    per: Literal["violation", "action"]
    calibrated: int
    """Examples that the guarantee rests on: violations, or all."""
    needed: int
    """Fewest examples with which anything could pass for sure."""

    @property
    def blocks_all(self) -> bool:
        """Whether the calibration data were too few or too bad for the level."""
        return self.threshold == -math.inf

    def passes(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Return which scores pass, in the shape of the scores; NaN does not."""
        passed: NDArray[np.bool_] = np.asarray(scores, dtype=float) < self.threshold
        return passed


def control_risk(
    scores: ArrayLike,
    violations: ArrayLike,
    alpha: float = 0.05,
    *,
    per: Literal["violation", "action"] = "violation",
) -> RiskThreshold:
    """Choose the largest threshold below which violations pass with probability alpha at most.

    With `per="violation"`, P(score < threshold | violation) <= alpha for a new violation exchangeable with those of the
    calibration data: the threshold is their k-th smallest score, k = floor(alpha (m + 1)) of m violations. With
    `per="action"`, P(violation and score < threshold) <= alpha for a new action: the largest threshold with
    (violations below it + 1) / (n + 1) <= alpha of n actions, risk control with a loss of 0 or 1. Both hold on average
    over calibration sets, and for scores of any quality: a bad score costs usefulness, not safety.

    Args:
        scores: How surely each action of the calibration data violates, shape (n,); not used to make the scorer.
        violations: Whether it does, shape (n,).
        alpha: In (0, 1).
        per: What the rate is of.

    Returns:
        The threshold. With fewer than 1 / alpha - 1 examples to rest on, nothing passes.

    Raises:
        UserError: If shapes do not fit, a score is not finite, or alpha is out of range.
    """
    array, truth = np.asarray(scores, dtype=float), np.asarray(violations)
    needed = smallest_calibration(alpha)
    if array.ndim != 1 or truth.shape != array.shape:
        raise UserError(f"expected scores and violations of one shape (n,), got {array.shape} and {truth.shape}.")
    if truth.size and not np.isin(truth, (0, 1)).all():
        raise UserError("violations: expected truth values, one per score.")
    if not np.isfinite(array).all():
        raise UserError("scores: expected finite numbers, got NaN or infinity; score what cannot be told as 1.")
    if per not in ("violation", "action"):
        raise UserError(f"per: expected 'violation' or 'action', got {per!r}.")
    bad = np.sort(array[truth.astype(bool)])
    base = len(bad) if per == "violation" else len(array)
    if per == "violation":
        found = -math.inf if not len(bad) else -float(conformal_threshold(-bad, alpha))
    else:
        room = math.floor(alpha * (base + 1) + 1e-9) - 1
        found = -math.inf if room < 0 else math.inf if room >= len(bad) else float(bad[room])
    return RiskThreshold(found, alpha, per, base, needed)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """Return a proportion with its exact interval, which covers at least `level` at any n.

    Args:
        successes: How often it happened.
        n: Of how many; 0 gives the interval [0, 1].
        level: Coverage in (0, 1).

    Raises:
        UserError: If the counts do not satisfy 0 <= successes <= n, or the level is out of range.
    """
    _counts(successes, n, level)
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    from scipy.stats import binomtest

    found = binomtest(successes, n).proportion_ci(level, "exact")
    return Interval(successes / n, float(found.low), float(found.high), n)


def clopper_pearson_bound(successes: int, n: int, level: float = 0.95) -> float:
    """Return the exact upper bound of a proportion: the true one lies above it in 1 - `level` of samples at most.

    Raises:
        UserError: As `clopper_pearson`.
    """
    _counts(successes, n, level)
    if n == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(successes, n, alternative="less").proportion_ci(level, "exact").high)


def _counts(successes: int, n: int, level: float) -> None:
    if not 0 <= successes <= n:
        raise UserError(f"expected 0 <= successes <= n, got {successes} of {n}.")
    if not 0 < level < 1:
        raise UserError(f"level must lie between 0 and 1, got {level}.")

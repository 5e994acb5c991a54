"""Conformal prediction sets for any classifier: a judge of roles, a guard's reading of an intent, a network.

The formulas and their sources are in `_conformal_sets`; CAMMARL (arXiv 2306.11128) gives an agent such a set over
another agent's next action, see `marl.ConformalOpponent`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.measures._conformal_sets import (
    check_alpha,
    conformal_sets,
    conformal_threshold,
    conformity_scores,
    fit_temperature,
    smallest_calibration,
    softmax,
    true_ranks,
)

PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)
"""Penalties that `penalty="tune"` tries."""


class ConformalWarning(UserWarning):
    """The calibration data are too few for the level asked: every set is full."""


@dataclass(frozen=True)
class PredictionSets:
    """Sets of classes for some examples."""

    members: NDArray[np.bool_]
    """Shape (n, classes)."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Classes in each set, shape (n,)."""
        sizes: NDArray[np.int64] = self.members.sum(1)
        return sizes

    @property
    def lists(self) -> list[list[int]]:
        """The classes of each set, rising."""
        return [np.flatnonzero(row).tolist() for row in self.members]

    def coverage(self, labels: ArrayLike) -> float:
        """Return the share of sets that hold the true class.

        Raises:
            UserError: If there is not one label per set.
        """
        return float(self.members[np.arange(len(self.members)), _labels(labels, self.members.shape)].mean())


class ConformalClassifier:
    """Turns the logits of any classifier into sets that hold the true class with probability 1 - alpha.

    It sees logits alone, so that the classifier may be a network over observations, a judge of roles or a guard's
    reading of an intent; scikit-learn's probabilities go in as their logarithms.

    Example:
        ```python
        conformal = ConformalClassifier(alpha=0.1).calibrate(held_out_logits, held_out_labels)
        conformal.predict(logits).lists
        ```
    """

    def __init__(
        self,
        alpha: float = 0.1,
        *,
        penalty: float | Literal["tune"] = 0.0,
        rank: int | None = None,
        temperature: float | Literal["fit"] = 1.0,
        randomised: bool = True,
        allow_empty: bool = False,
        corrected: bool = True,
        tune_share: float = 0.3,
        seed: int = 0,
    ) -> None:
        """Set the rule.

        Args:
            alpha: Miss rate in (0, 1).
            penalty: RAPS's lambda; 0 is APS, `tune` takes the one of `PENALTIES` with the smallest sets.
            rank: RAPS's k_reg; None takes the (1 - alpha) quantile of the true class's place, plus 1.
            temperature: Divides the logits; `fit` makes the labels likeliest.
            randomised: The last class of a set is in with a probability; without it sets cover more than asked.
            allow_empty: Sets may be empty. Off, sets cover slightly more than asked.
            corrected: See `conformal_threshold`.
            tune_share: Share of the calibration data that fits temperature, rank and penalty, and is then left out;
                used only if there is something to fit. 0 fits on the calibration data themselves (the released code
                of CAMMARL fits on what it trained on): the guarantee is then lost.
            seed: Of the split and of the randomisation.

        Raises:
            UserError: If a value is out of range.
        """
        check_alpha(alpha)
        if penalty != "tune" and not (math.isfinite(penalty) and penalty >= 0):
            raise UserError(f"penalty must be 'tune' or a number from 0, got {penalty}.")
        if rank is not None and rank < 0:
            raise UserError(f"rank must be at least 0, got {rank}.")
        if temperature != "fit" and not (math.isfinite(temperature) and temperature > 0):
            raise UserError(f"temperature must be 'fit' or a number above 0, got {temperature}.")
        if not 0 <= tune_share < 1:
            raise UserError(f"tune_share must lie in [0, 1), got {tune_share}.")
        self.alpha, self.randomised, self.allow_empty, self.corrected = alpha, randomised, allow_empty, corrected
        self.tune_share, self.asked = tune_share, (penalty, rank, temperature)
        self.penalty = self.temperature = math.nan
        self.rank = 0
        self.threshold: float | None = None
        self.classes = 0
        self._rng = np.random.default_rng(seed)

    def calibrate(self, logits: ArrayLike, labels: ArrayLike) -> Self:
        """Set temperature, rank, penalty and threshold from examples that the classifier was not trained on.

        Args:
            logits: Shape (n, classes); at least two classes.
            labels: Shape (n,), whole numbers from 0 to classes - 1.

        Returns:
            Itself.

        Raises:
            UserError: If shapes or labels do not fit, or a logit is not finite.

        Warns:
            ConformalWarning: If there are too few examples for the level: every set is then full.
        """
        scores_of = _logits(logits)
        truth = _labels(labels, scores_of.shape)
        self.classes = scores_of.shape[1]
        penalty, rank, temperature = self.asked
        tuned = temperature == "fit" or penalty == "tune" or (penalty != 0 and rank is None)
        order = self._rng.permutation(len(truth))
        cut = round(self.tune_share * len(truth)) if tuned else 0
        tuning, used = (order[:cut], order[cut:]) if cut else (order, order)
        self.temperature = (
            float(fit_temperature(scores_of[tuning], truth[tuning])) if temperature == "fit" else float(temperature)
        )
        self.rank = self._find_rank(scores_of[tuning], truth[tuning]) if rank is None else rank
        self.penalty = self._tune(scores_of[tuning], truth[tuning]) if penalty == "tune" else float(penalty)
        needed = smallest_calibration(self.alpha)
        if self.corrected and len(used) < needed:
            warnings.warn(
                f"{len(used)} calibration examples are too few for alpha {self.alpha}: every set is full; at least "
                f"{needed} are needed.",
                ConformalWarning,
                stacklevel=2,
            )
        self.threshold = self._fit(scores_of[used], truth[used], self.penalty)
        return self

    def predict(self, logits: ArrayLike) -> PredictionSets:
        """Return the set of each example.

        Args:
            logits: Shape (n, classes).

        Raises:
            UserError: If it was not calibrated, or with another number of classes.
        """
        if self.threshold is None:
            raise UserError("this ConformalClassifier is not calibrated; call calibrate(logits, labels) first.")
        array = _logits(logits)
        if array.shape[1] != self.classes:
            raise UserError(
                f"logits: expected shape (n, classes) = (n, {self.classes}) as in calibration, got {array.shape}."
            )
        return PredictionSets(self._sets(array, self.threshold, self.penalty))

    def _find_rank(self, logits: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
        ranks = true_ranks(softmax(logits, self.temperature), labels)
        return int(np.quantile(ranks, 1 - self.alpha, method="higher")) + 1

    def _tune(self, logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
        """Return the penalty with the smallest mean set, the smaller of equals; half calibrates, half is measured."""
        half = max(1, len(labels) // 2)
        sizes = []
        for penalty in PENALTIES:
            threshold = self._fit(logits[:half], labels[:half], penalty)
            sizes.append(self._sets(logits[half:], threshold, penalty).sum(1).mean() if len(labels) > half else 0.0)
        return PENALTIES[int(np.argmin(sizes))]

    def _fit(self, logits: NDArray[np.float64], labels: NDArray[np.int64], penalty: float) -> float:
        scores = conformity_scores(
            softmax(logits, self.temperature), labels, self._uniforms(len(labels)),
            penalty=penalty, rank=self.rank, allow_empty=self.allow_empty,
        )  # fmt: skip
        return float(conformal_threshold(scores, self.alpha, corrected=self.corrected))

    def _sets(self, logits: NDArray[np.float64], threshold: float, penalty: float) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = conformal_sets(
            softmax(logits, self.temperature), threshold, self._uniforms(len(logits)),
            penalty=penalty, rank=self.rank, allow_empty=self.allow_empty,
        )  # fmt: skip
        return found

    def _uniforms(self, n: int) -> NDArray[np.float64]:
        return self._rng.random(n) if self.randomised else np.ones(n)


def _logits(logits: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(logits, dtype=float)
    if array.ndim != 2 or array.shape[1] < 2 or not len(array):
        raise UserError(
            f"logits: expected shape (n, classes) with n at least 1 and classes at least 2, got {array.shape}; keep a "
            "logit for every class, also for those never seen."
        )
    if not np.isfinite(array).all():
        raise UserError("logits: expected finite numbers, got NaN or infinity; give a class without mass -1e9.")
    return array


def _labels(labels: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.shape != shape[:1]:
        raise UserError(f"labels: expected shape (n,) = ({shape[0]},), got {array.shape}.")
    if array.dtype.kind not in "iu":
        raise UserError(
            f"labels: expected whole numbers of classes, got {array.dtype}; sets are for discrete actions: for "
            "continuous ones use conformal regression intervals."
        )
    if array.min() < 0 or array.max() >= shape[1]:
        raise UserError(f"labels: expected 0 to {shape[1] - 1}, got {array.min()} to {array.max()}.")
    return array.astype(np.int64)

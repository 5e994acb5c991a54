"""Conformal prediction sets for any classifier: APS, and RAPS with its temperature and rank penalty.

Adaptive prediction sets are by Romano, Sesia and Candes (arXiv 2006.02544), the regularised ones by Angelopoulos,
Bates, Malik and Jordan (arXiv 2009.14193); CAMMARL (arXiv 2306.11128) gives an agent such a set over another agent's
next action.

The formulas take numpy or JAX arrays and answer in kind (inside `jax.jit` as well); `ConformalClassifier` is numpy.
Classes are sorted by falling probability, ties by class number, so that results repeat.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError

PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)
"""Penalties that `penalty="tune"` tries."""
_BISECTIONS = 22
_SHARPEST = 1e3
"""Largest inverse temperature that a fit considers."""


class ConformalWarning(UserWarning):
    """The calibration data are too few for the level asked: every set is full."""


class _Ranked(NamedTuple):
    order: Any
    """Classes by falling probability, (..., classes)."""
    sorted: Any
    """Their probabilities."""
    cumulative: Any
    """Probability of the first r + 1 classes."""
    penalty: Any
    """What r + 1 classes pay, (classes,)."""


def _rank(probabilities: Any, penalty: Any, rank: Any) -> _Ranked:
    xp = probabilities.__array_namespace__()
    order = xp.argsort(-probabilities, axis=-1, stable=True)
    ordered = xp.take_along_axis(probabilities, order, axis=-1)
    places = xp.arange(1, probabilities.shape[-1] + 1)
    return _Ranked(order, ordered, xp.cumsum(ordered, axis=-1), penalty * xp.cumsum(places > rank))


def conformity_scores(
    probabilities: Any,
    labels: Any,
    uniforms: Any,
    *,
    penalty: Any = 0.0,
    rank: Any = 0,
    allow_empty: bool = False,
) -> Any:
    """Return how much of the sorted probability must be taken in until the true class is (RAPS, equation 2).

    For a true class at place r (from 1) with sorted probabilities s, cumulated C and penalties P:
    ``u * s_r + C_(r-1) + P_r``. With non-empty sets a true class at the first place counts in full, ``s_1 + P_1``.

    Args:
        probabilities: Shape (n, classes), rows that add up to 1.
        labels: Shape (n,), the true classes.
        uniforms: Shape (n,), in [0, 1]; ones give the scores without randomisation.
        penalty: RAPS's lambda, at least 0; 0 is APS.
        rank: RAPS's k_reg: places after it pay the penalty.
        allow_empty: Sets may be empty.

    Returns:
        Shape (n,).
    """
    xp = probabilities.__array_namespace__()
    ranked = _rank(probabilities, penalty, rank)
    place = xp.argmax(ranked.order == labels[..., None], axis=-1)[..., None]

    def at(array: Any) -> Any:
        return xp.take_along_axis(xp.broadcast_to(array, ranked.order.shape), place, axis=-1)[..., 0]

    share = uniforms if allow_empty else xp.where(place[..., 0] == 0, 1.0, uniforms)
    own = at(ranked.sorted)
    return share * own + (at(ranked.cumulative) - own) + at(ranked.penalty)


def conformal_sets(
    probabilities: Any,
    threshold: Any,
    uniforms: Any,
    *,
    penalty: Any = 0.0,
    rank: Any = 0,
    allow_empty: bool = False,
) -> Any:
    """Return the classes whose conformity score is at most the threshold, as membership.

    That is the largest set with ``C_r + P_r <= threshold``, and one class more with the probability that the threshold
    leaves for it (RAPS, section 2). An infinite threshold gives full sets.

    Args:
        probabilities: Shape (n, classes).
        threshold: Of `conformal_threshold`.
        uniforms: Shape (n,), in [0, 1]; ones give the sets without randomisation.
        penalty: As for the scores.
        rank: As for the scores.
        allow_empty: Sets may be empty; otherwise the likeliest class is always in.

    Returns:
        Booleans of shape (n, classes).
    """
    xp = probabilities.__array_namespace__()
    ranked = _rank(probabilities, penalty, rank)
    first = xp.arange(probabilities.shape[-1]) == 0
    share = xp.where(first, 1.0, uniforms[..., None]) if not allow_empty else uniforms[..., None]
    within = share * ranked.sorted + (ranked.cumulative - ranked.sorted) + ranked.penalty <= threshold
    if not allow_empty:
        within = within | first
    places = xp.argsort(ranked.order, axis=-1, stable=True)
    return xp.take_along_axis(within, places, axis=-1)


def conformal_threshold(scores: Any, alpha: float, *, corrected: bool = True) -> Any:
    """Return the quantile of calibration scores that covers a new exchangeable example with probability 1 - alpha.

    Args:
        scores: Shape (n,).
        alpha: Miss rate in (0, 1).
        corrected: Take the ceil((n + 1) (1 - alpha))-th smallest score, which holds at any n. Otherwise the plain
            (1 - alpha) quantile with the higher of two neighbours, as CAMMARL's code does: it covers less, by up to
            1 / n.

    Returns:
        A scalar; infinity if n is below 1 / alpha - 1.

    Raises:
        UserError: If alpha is out of range or there are no scores.
    """
    check_alpha(alpha)
    n = scores.shape[0]
    if n < 1:
        raise UserError("conformal calibration needs at least one example, got none.")
    xp = scores.__array_namespace__()
    if corrected:
        place = math.ceil((n + 1) * (1 - alpha) - 1e-9)
        return xp.sort(scores)[place - 1] if place <= n else xp.asarray(xp.inf)
    return xp.sort(scores)[math.ceil((n - 1) * (1 - alpha) - 1e-9)]


def fit_temperature(logits: Any, labels: Any) -> Any:
    """Return the temperature by which dividing the logits makes the labels likeliest.

    The loss is convex in the inverse temperature b, with slope E_b[z] - z_label, whose root is bracketed and halved.

    Args:
        logits: Shape (n, classes).
        labels: Shape (n,).

    Returns:
        A scalar, at least 1e-3.
    """
    xp = logits.__array_namespace__()
    centred = logits - xp.max(logits, axis=-1, keepdims=True)
    chosen = xp.mean(xp.take_along_axis(centred, labels[..., None], axis=-1))
    low, high = xp.asarray(-7.0), xp.asarray(math.log(_SHARPEST))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        weights = xp.exp(centred * xp.exp(middle))
        mean = xp.mean(xp.sum(weights * centred, axis=-1) / xp.sum(weights, axis=-1))
        low, high = xp.where(mean < chosen, middle, low), xp.where(mean < chosen, high, middle)
    return xp.exp(-(low + high) / 2)


def true_ranks(probabilities: Any, labels: Any) -> Any:
    """Return the place of each true class by falling probability, from 1; shape (n,)."""
    xp = probabilities.__array_namespace__()
    return xp.argmax(_rank(probabilities, 0.0, 0).order == labels[..., None], axis=-1) + 1


def softmax(logits: Any, temperature: Any = 1.0) -> Any:
    """Return probabilities of the last axis at a temperature."""
    xp = logits.__array_namespace__()
    scaled = logits / temperature
    weights = xp.exp(scaled - xp.max(scaled, axis=-1, keepdims=True))
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def check_alpha(alpha: float) -> None:
    """Refuse a miss rate outside (0, 1).

    Raises:
        UserError: If it is.
    """
    if not 0 < alpha < 1:
        raise UserError(f"alpha is the share of misses and must lie between 0 and 1, got {alpha}; 0.1 covers 90 %.")


def smallest_calibration(alpha: float) -> int:
    """Return the number of calibration examples below which every corrected set is full: 1 / alpha - 1, rounded up.

    Raises:
        UserError: If alpha is out of range.
    """
    check_alpha(alpha)
    return math.ceil(1 / alpha - 1 - 1e-9)


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

"""Formulas of conformal prediction sets: APS, and RAPS with its temperature and rank penalty.

Adaptive prediction sets are by Romano, Sesia and Candes (arXiv 2006.02544), the regularised ones by Angelopoulos,
Bates, Malik and Jordan (arXiv 2009.14193).

They take numpy or JAX arrays and answer in kind, inside `jax.jit` as well; nothing here imports JAX. Classes are sorted
by falling probability, ties by class number, so that results repeat.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rolecraft.errors import UserError

_BISECTIONS = 22
_SHARPEST = 1e3
"""Largest inverse temperature that a fit considers."""


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

"""Beyond direction: how much personas differ in their shifts, who shifts more, what lasts, what way was left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rolecraft.errors import UserError
from rolecraft.measures._shift_data import ShiftRule, Shifts, mean_over, resampled, weighted
from rolecraft.measures._statistics import Floats, Interval


def headroom_shares(shifts: Shifts) -> Floats:
    """Return each persona's mean shift as a share of the way to the end of the scale.

    Returns:
        Shape (personas, events * traits). A score that stays at an end of the scale says nothing (NaN): it had no way
        to go on.
    """
    low, high = shifts.scale
    delta = shifts.delta
    way = np.where(delta > 0, high - shifts.pre, shifts.pre - low)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(delta == 0, 0.0, delta / way)
    stuck = (delta == 0) & ((shifts.pre <= low) | (shifts.pre >= high))
    share = np.where(np.isfinite(delta) & ~stuck, share, math.nan)
    result: Floats = mean_over(share, 2).reshape(len(shifts.personas), -1)
    return result


def dispersion(shifts: Shifts, human: Mapping[str, float] | None, rule: ShiftRule) -> Interval:
    """Return the SD between personas of their shift over the human one, or over the SD of their score before.

    The variance between personas of a mean of r repeats holds 1 / r of the retest variance, which is taken off; a
    trait's variances are averaged over events, negative ones become 0, and the traits' ratios are averaged.
    """
    personas, events, repeats, traits = shifts.pre.shape
    deltas = shifts.by_persona
    noise = mean_over(_retest_variance(shifts), 0) / repeats
    before = mean_over(shifts.pre.reshape(personas, -1, traits), 1)
    weights = np.concatenate([np.ones((1, personas)), resampled(personas, rule)])

    def spread(values: Floats) -> Floats:
        square = weighted(values**2, weights) - weighted(values, weights) ** 2
        result: Floats = np.maximum(square, 0.0) * (personas / (personas - 1))
        return result

    own = np.stack(
        [mean_over(part, 1) for part in np.moveaxis(spread(deltas).reshape(-1, events, traits), 2, 0)], axis=1
    )
    own = np.sqrt(np.maximum(own - noise, 0.0))
    if human is not None:
        base = np.array([human.get(trait, math.nan) for trait in shifts.traits])[None]
    else:
        base = np.sqrt(spread(before))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = mean_over(own / base, 1)
    if not np.isfinite(ratios[0]):
        return Interval(math.nan, math.nan, math.nan, personas)
    low, high = np.nanquantile(ratios[1:], [0.025, 0.975])
    return Interval(float(ratios[0]), float(low), float(high), personas)


def _retest_variance(shifts: Shifts) -> Floats:
    """Return the variance of each persona's no-event shifts, shape (personas, traits); NaN with fewer than two."""
    off = (shifts.retest - mean_over(shifts.retest, 1)[:, None]) ** 2
    n = np.isfinite(off).sum(1)
    result: Floats = np.where(n > 1, mean_over(off, 1) * n / np.maximum(n - 1, 1), math.nan)
    return result


def persistence(before: Floats, after: Floats, rule: ShiftRule | None = None) -> Interval:
    """Return how much of the shifts is left later: sum of sign(before) after over sum of |before|, over cells.

    Args:
        before: Shift right after the event, shape (personas, cells), such as `Shifts.by_persona`.
        after: Shift some turns later.
        rule: For the number and the seed of the resamples of personas.

    Returns:
        1 if all is left, 0 if nothing; NaN if there was no shift.

    Raises:
        UserError: If the shapes differ.
    """
    if before.shape != after.shape or before.ndim != 2:
        raise UserError(f"expected two arrays of shape (personas, cells), got {before.shape} and {after.shape}.")
    rule = rule or ShiftRule()
    weights = np.concatenate([np.ones((1, len(before))), resampled(len(before), rule)])
    both = np.isfinite(before) & np.isfinite(after)
    first, later = (weighted(np.where(both, part, math.nan), weights) for part in (before, after))
    whole = np.nansum(np.abs(first), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.where(whole > 0, np.nansum(np.sign(first) * later, axis=1) / whole, math.nan)
    if np.isnan(left[0]):
        return Interval(math.nan, math.nan, math.nan, len(before))
    low, high = np.nanquantile(left[1:], [0.025, 0.975])
    return Interval(float(left[0]), float(low), float(high), len(before))


def moderation(shifts: Shifts, groups: Sequence[str], draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """Return the share of the shifts' variance that lies between groups of personas, and its permutation p.

    Args:
        shifts: Scores before and after.
        groups: One label per persona (a gender, a region).
        draws: Permutations of the labels.
        seed: Of the permutations.

    Returns:
        Eta squared, averaged over cells (NaN if nothing varies), and p.

    Raises:
        UserError: If the labels are not one per persona, of at least two groups.
    """
    if len(groups) != len(shifts.personas) or len(set(groups)) < 2:
        raise UserError(
            f"expected {len(shifts.personas)} labels of two or more groups, got {len(groups)} of {len(set(groups))}."
        )
    deltas = shifts.by_persona
    deltas = deltas - mean_over(deltas, 0)
    total = np.nansum(deltas**2, axis=0)
    deltas, total = deltas[:, total > 0], total[total > 0]
    if not len(total):
        return math.nan, math.nan
    given, values = np.isfinite(deltas).astype(float), np.nan_to_num(deltas)
    members = np.eye(len(set(groups)))[np.unique(groups, return_inverse=True)[1]]

    def eta(rows: Floats) -> float:
        size = np.maximum(rows.T @ given, 1)
        return float(((rows.T @ values) ** 2 / size).sum(0).__truediv__(total).mean())

    rng = np.random.default_rng(seed)
    found = eta(members)
    as_far = sum(eta(rng.permutation(members)) >= found - 1e-12 for _ in range(draws))
    return found, (1 + as_far) / (1 + draws)

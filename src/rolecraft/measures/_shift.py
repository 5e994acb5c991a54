"""Whether personas change after an event, and in the direction people do (BFI-Adapt, arXiv 2608.06485).

A *cell* is an event and a trait; its shift is the mean over personas and repeats of post - pre. A cell counts as
shifted if neither no-event retests nor the sample of personas explain it; the false discovery rate over all cells is
controlled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.measures._life_events import HumanChange
from rolecraft.measures._shift_axes import dispersion, headroom_shares
from rolecraft.measures._shift_data import Bools, HumanScale, ShiftRule, Shifts, mean_over, resampled, weighted
from rolecraft.measures._statistics import Floats, Interval, bootstrap_mean, bootstrap_rows, paired_bootstrap, wilson

ShiftClass = Literal["match", "overshoot", "rigidity", "reversal", "undocumented", "missing"]
DOCUMENTED_CLASSES: tuple[ShiftClass, ...] = ("match", "overshoot", "rigidity", "reversal")
_SUBSETS = 64
"""Subsets of the retests drawn per persona."""
_ROUNDING = 12
"""Decimals to which shifts are compared, so that an agent that never changes is not detected by rounding."""


@dataclass(frozen=True)
class ShiftCell:
    """One event and trait."""

    event: str
    trait: str
    shift: Interval
    """Mean post - pre, in points of the instrument, over personas."""
    p: float
    """Of a mean this far from 0 without an event, or by the accident of who was asked, whichever is larger."""
    p_adjusted: float
    """After Benjamini and Hochberg over all cells."""
    detected: bool
    kind: ShiftClass
    """Against the documented human change; without a range `match` says only that the direction is right."""
    sds: float | None
    """The shift in SD between persons; None if that is not known."""
    headroom: float
    """Mean shift as a share of the way to the end of the scale; NaN where no persona had any way to go."""


@dataclass(frozen=True)
class ShiftReport:
    """What the shifts of one model say."""

    cells: tuple[ShiftCell, ...]
    score: Interval
    """Directional fidelity 50 (1 + F) in 0..100: F is the mean over documented cells of +1 (shifted, right sign), 0
    (not shifted) and -1 (shifted, wrong sign). 50 is what an agent that never changes gets."""
    by_trait: dict[str, float]
    """The score over the documented cells of each trait."""
    by_event: dict[str, float]
    counts: dict[str, int]
    """Cells of each class."""
    occurrence: dict[str, Interval]
    """`documented`, `undocumented`: share of personas and cells beyond the no-event quantile; `difference` of both."""
    detected: dict[str, Interval]
    """`documented`, `undocumented`: share of cells detected."""
    direction: Interval
    """Share of the detected documented cells whose sign is right."""
    dispersion: Interval | None
    """SD between personas of their shift, free of retest noise, over that of people; None if that is not known."""
    relative_dispersion: Interval
    """The same SD over the SD between personas of their score before."""
    thresholds: dict[str, float]
    """Trait to the no-event quantile of one persona's absolute mean shift."""
    drift: dict[str, float]
    """Trait to the mean no-event shift: what a second asking alone does."""
    magnitude: bool
    """Whether sizes were judged; else `overshoot` cannot occur and `rigidity` only means not detected."""
    missing: int
    """Scores before or after that were missing (of all personas, events, repeats and traits)."""

    @property
    def macro(self) -> tuple[float, float]:
        """The mean score over traits and over events, each weighing the same."""
        return float(np.mean([*self.by_trait.values()])), float(np.mean([*self.by_event.values()]))


def measure_shifts(
    shifts: Shifts, directions: Sequence[HumanChange], human: HumanScale | None = None, rule: ShiftRule | None = None
) -> ShiftReport:
    """Compare the shifts with retest noise and with the documented human changes.

    Args:
        shifts: Scores before and after.
        directions: The documented cells; those of other events or traits are passed over.
        human: SDs of human samples; a magnitude is judged where a cell has a range and its trait an SD.
        rule: Detection.

    Raises:
        UserError: If no cell is documented, or a human SD is not above 0.
    """
    human, rule = human or HumanScale(), rule or ShiftRule()
    _check_scale(human)
    names = [(event, trait) for event in shifts.events for trait in shifts.traits]
    known = {(change.event, change.trait): change for change in directions}
    if not set(known) & set(names):
        raise UserError(
            f"none of the {len(names)} cells has a documented direction, so that there is nothing to be faithful to; "
            "give directions for these events and traits."
        )
    null, thresholds = _no_event(shifts, rule)
    deltas = shifts.by_persona
    cells = _cells(shifts, known, human, null, rule)
    means = np.array([cell.shift.estimate for cell in cells])
    detected = np.array([cell.detected for cell in cells])
    signs = np.array([known[name].sign if name in known else 0 for name in names])
    documented = (signs != 0) & np.isfinite(means)
    values = _fidelity(means, detected, signs)
    reacted = np.where(
        np.isfinite(deltas), np.round(np.abs(deltas), _ROUNDING) > np.tile(thresholds, len(shifts.events)), math.nan
    )
    kinds = [cell.kind for cell in cells]
    return ShiftReport(
        cells=cells,
        score=_score(deltas, values, documented, signs, null, rule),
        by_trait=_by(names, 1, values, documented),
        by_event=_by(names, 0, values, documented),
        counts={kind: kinds.count(kind) for kind in dict.fromkeys((*DOCUMENTED_CLASSES, *kinds))},
        occurrence=_occurrence(reacted, signs != 0, rule),
        detected={
            "documented": wilson(int(detected[documented].sum()), int(documented.sum())),
            "undocumented": wilson(int(detected[signs == 0].sum()), int(np.isfinite(means[signs == 0]).sum())),
        },
        direction=wilson(int((values[documented] > 0).sum()), int((values[documented] != 0).sum())),
        dispersion=dispersion(shifts, human.shift_sd, rule) if human.shift_sd else None,
        relative_dispersion=dispersion(shifts, None, rule),
        thresholds=dict(zip(shifts.traits, map(float, thresholds), strict=True)),
        drift=dict(zip(shifts.traits, map(float, mean_over(mean_over(shifts.retest, 1), 0)), strict=True)),
        magnitude=any(name in known and _sized(known[name], human) for name in names),
        missing=int((~np.isfinite(shifts.delta)).sum()),
    )


def _cells(
    shifts: Shifts, known: Mapping[tuple[str, str], HumanChange], human: HumanScale, null: Floats, rule: ShiftRule
) -> tuple[ShiftCell, ...]:
    deltas = shifts.by_persona
    means, low, high = bootstrap_rows(deltas.T, rule.resamples, rule.seed)
    units = np.isfinite(deltas).sum(0)
    p, adjusted = _significance(*_moments(deltas, np.ones((1, len(deltas)))), units, null)
    headroom = mean_over(headroom_shares(shifts), 0)
    cells = []
    for place, (event, trait) in enumerate((event, trait) for event in shifts.events for trait in shifts.traits):
        change, sd = known.get((event, trait)), (human.sd or {}).get(trait)
        mean, detected = float(means[place]), bool(adjusted[0, place] <= rule.fdr)
        cells.append(
            ShiftCell(
                event=event,
                trait=trait,
                shift=Interval(mean, float(low[place]), float(high[place]), int(units[place])),
                p=float(p[0, place]),
                p_adjusted=float(adjusted[0, place]),
                detected=detected,
                kind=_classify(mean, detected, change, sd),
                sds=None if sd is None else mean / sd,
                headroom=float(headroom[place]),
            )
        )
    return tuple(cells)


def _sized(change: HumanChange, human: HumanScale) -> bool:
    return change.range is not None and change.trait in (human.sd or {})


def _check_scale(human: HumanScale) -> None:
    for what, table in (("sd", human.sd), ("shift_sd", human.shift_sd)):
        for trait, value in (table or {}).items():
            if not value > 0:
                raise UserError(f"human {what} of {trait!r} must be above 0, got {value}; leave it out if not known.")


def _no_event(shifts: Shifts, rule: ShiftRule) -> tuple[Floats, Floats]:
    """Simulate means of as many no-event shifts as there are repeats of an event.

    For one persona, subsets of the retests drawn without replacement have the very spread of such a mean. For the mean
    over personas the draws must vary around each persona's own mean: they are made with replacement, and deviations
    are widened by n / (n - 1) in variance, which draws from n values lack.

    Returns:
        Sorted absolute means over personas, shape (draws, traits); quantiles for one persona, shape (traits,). Without
        any retest of a trait both are such that nothing is detected.
    """
    rng = np.random.default_rng(rule.seed)
    repeats = shifts.pre.shape[2]
    null = np.full((rule.draws, len(shifts.traits)), math.inf)
    thresholds = np.full(len(shifts.traits), math.inf)
    for place in range(len(shifts.traits)):
        pools = [row[np.isfinite(row)] for row in shifts.retest[:, :, place]]
        pools = [pool for pool in pools if len(pool) >= max(2, repeats)]
        if not pools:
            continue
        drawn = np.zeros(rule.draws)
        single = []
        for pool in pools:
            wide = pool.mean() + math.sqrt(len(pool) / (len(pool) - 1)) * (pool - pool.mean())
            drawn += wide[rng.integers(len(pool), size=(rule.draws, repeats))].mean(1)
            subsets = np.argsort(rng.random((_SUBSETS, len(pool))), axis=1)[:, :repeats]
            single.append(pool[subsets].mean(1))
        null[:, place] = np.sort(np.round(np.abs(drawn / len(pools)), _ROUNDING))
        thresholds[place] = np.round(np.quantile(np.abs(single), rule.quantile), _ROUNDING)
    return null, thresholds


def _significance(means: Floats, errors: Floats, units: NDArray[np.int_], null: Floats) -> tuple[Floats, Floats]:
    """Return p values, raw and adjusted over the cells, of rows of cell means.

    A shift must be neither retest noise (against the simulated no-event means) nor an accident of who was asked
    (Student's t over personas); the larger of the two p values counts.

    Args:
        means: Shape (rows, events * traits); a missing cell (NaN), or one of a single persona, has p = 1.
        errors: Standard errors over personas, the same shape.
        units: Personas per cell, shape (events * traits,).
        null: Sorted absolute no-event means, shape (draws, traits).
    """
    from scipy import stats

    sizes = np.round(np.abs(means), _ROUNDING)
    noise = np.ones_like(sizes)
    for place in range(sizes.shape[1]):
        beyond = len(null) - np.searchsorted(null[:, place % null.shape[1]], sizes[:, place], side="left")
        noise[:, place] = (1 + beyond) / (1 + len(null))
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = 2 * stats.t.sf(sizes / errors, np.maximum(units - 1, 1))
    p = np.where(np.isfinite(sizes) & (sizes > 0) & (units > 1), np.maximum(noise, np.nan_to_num(chance, nan=1.0)), 1.0)
    return p, np.asarray(stats.false_discovery_control(p, axis=1, method="bh"), dtype=np.float64)


def _moments(deltas: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return means over personas and their standard errors, each of shape (weights, cells)."""
    means = weighted(deltas, weights)
    n = np.maximum(np.isfinite(deltas).sum(0) - 1, 1)
    errors = np.sqrt(np.round(np.maximum(weighted(deltas**2, weights) - means**2, 0), _ROUNDING) / n)
    return means, errors


def _classify(mean: float, detected: bool, change: HumanChange | None, sd: float | None) -> ShiftClass:
    if math.isnan(mean):
        return "missing"
    if change is None:
        return "undocumented"
    if not detected:
        return "rigidity"
    if np.sign(mean) != change.sign:
        return "reversal"
    if change.range is None or sd is None:
        return "match"
    low, high = change.range
    size = abs(mean) / sd
    return "rigidity" if size < low else "overshoot" if size > high else "match"


def _fidelity(means: Floats, detected: Bools, signs: NDArray[np.int_]) -> Floats:
    """Return +1, 0 or -1 per cell: right sign and detected, not detected, wrong sign."""
    return np.where(detected, np.sign(np.nan_to_num(means)) * signs, 0.0)


def _score(
    deltas: Floats, values: Floats, documented: Bools, signs: NDArray[np.int_], null: Floats, rule: ShiftRule
) -> Interval:
    """Return 50 (1 + F), detection decided anew in every resample of personas."""
    if not documented.any():
        return Interval(math.nan, math.nan, math.nan, len(deltas))
    means, errors = _moments(deltas, resampled(len(deltas), rule))
    detected = _significance(means, errors, np.isfinite(deltas).sum(0), null)[1] <= rule.fdr
    scores = 50 * (1 + _fidelity(means, detected, signs)[:, documented].mean(1))
    low, high = np.quantile(scores, [0.025, 0.975])
    return Interval(50 * (1 + float(values[documented].mean())), float(low), float(high), len(deltas))


def _by(names: Sequence[tuple[str, str]], part: int, values: Floats, documented: Bools) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, value, counts in zip(names, values, documented, strict=True):
        if counts:
            found.setdefault(name[part], []).append(value)
    return {name: 50 * (1 + float(np.mean(group))) for name, group in found.items()}


def _occurrence(reacted: Floats, documented: Bools, rule: ShiftRule) -> dict[str, Interval]:
    rates = {
        "documented": mean_over(reacted[:, documented], 1),
        "undocumented": mean_over(reacted[:, ~documented], 1)
        if (~documented).any()
        else np.full(len(reacted), math.nan),
    }
    found = {name: bootstrap_mean(rate, None, rule.resamples, rule.seed) for name, rate in rates.items()}
    found["difference"] = paired_bootstrap(rates["documented"] - rates["undocumented"], None, rule.resamples, rule.seed)
    return found

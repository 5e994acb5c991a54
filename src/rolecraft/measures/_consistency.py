"""Whether what an agent says a persona will do predicts what it does in that persona's place (arXiv 2507.02197).

Beliefs and actions are tables with one row per persona and one column per repeat (asking or play); NaN is missing.
Everything is bootstrapped over personas. A figure that is undefined is NaN and says why.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.measures._statistics import Floats, Interval, bootstrap_mean, slope

LEAST_PERSONAS = 5
"""With fewer, no correlation over personas is given."""
_SPLITS = 10
"""Random halvings behind a reliability."""


@dataclass(frozen=True)
class Figure(Interval):
    """An estimate with its interval; where it is undefined, NaN and why."""

    reason: str = ""


@dataclass(frozen=True)
class IndividualConsistency:
    """Beliefs against actions, persona by persona."""

    rho: Figure
    """Spearman's correlation of the mean belief with the mean action."""
    error: Figure
    """Mean absolute difference of the two, as a share of the scale."""
    skill: Figure
    """1 - error / error of predicting everybody's mean action; 0 is no better than that, 1 is perfect."""
    belief_reliability: Figure
    """Agreement of random halves of the askings over personas, stepped up to all askings."""
    action_reliability: Figure
    """The same of the plays: the self-repeat ceiling."""
    corrected: Figure
    """`rho` over the root of both reliabilities. Not clipped: chance can lift it above 1."""
    gap: Figure
    """Self-repeat ceiling minus `corrected`: what a persona's own plays tell of it and its beliefs do not."""
    personas: int
    left_out: tuple[int, ...]
    """Rows without any belief or any action."""


@dataclass(frozen=True)
class HorizonCurve:
    """How far forecasts miss, by the number of rounds ahead."""

    errors: tuple[Figure, ...]
    """For 1, 2, ... rounds ahead, as shares of the scale."""
    slope: Figure
    """Added error per round ahead, the mean of the personas' own slopes."""


def individual_consistency(
    beliefs: ArrayLike, actions: ArrayLike, scale: float, *, draws: int = 1000, seed: int = 0
) -> IndividualConsistency:
    """Compare what personas are believed to do with what they do.

    Args:
        beliefs: Shape (personas, askings), or (personas,) if each was asked once.
        actions: Shape (personas, plays), in the unit of the beliefs.
        scale: The range of the actions, such as the endowment.
        draws: Bootstrap resamples of the personas.
        seed: Of the resampling and of the halvings.

    Raises:
        UserError: If the tables do not have the same personas, or the scale is not positive.
    """
    said, done = _table("beliefs", beliefs), _table("actions", actions)
    if len(said) != len(done):
        raise UserError(f"beliefs are of {len(said)} personas and actions of {len(done)}; give a row of each for each.")
    _check_scale(scale)
    kept = np.isfinite(said).any(1) & np.isfinite(done).any(1)
    left_out, said, done = tuple(np.flatnonzero(~kept).tolist()), said[kept], done[kept]
    means, halves = (_means(said), _means(done)), (_halves(said, seed), _halves(done, seed))
    n = len(said)

    def figures(rows: NDArray[np.intp]) -> dict[str, Floats]:
        a, b = (mean[rows] for mean in means)
        rho = _rank_correlations(a, b)
        reliable = [_reliability(half, table.shape[1], rows) for half, table in zip(halves, (said, done), strict=True)]
        with np.errstate(invalid="ignore", divide="ignore"):
            base = np.abs(b - b.mean(-1, keepdims=True)).mean(-1)
            product = np.where(np.minimum(*reliable) > 0, reliable[0] * reliable[1], math.nan)
            corrected = rho / np.sqrt(product)
            skill = np.where(base > 0, 1 - np.abs(a - b).mean(-1) / base, math.nan)
        return {
            "rho": rho, "skill": skill, "belief_reliability": reliable[0], "action_reliability": reliable[1],
            "corrected": corrected, "gap": reliable[1] - corrected,
        }  # fmt: skip

    found = _bootstrapped(figures, n, draws, seed)
    why = _reasons(means, halves, found)
    error = bootstrap_mean(np.abs(means[0] - means[1]) / scale, draws=draws, seed=seed)
    return IndividualConsistency(
        error=_figure(error, "no persona has a belief and an action"),
        **{name: _figure(interval, why[name]) for name, interval in found.items()},
        personas=n,
        left_out=left_out,
    )


def _reasons(
    means: tuple[Floats, Floats], halves: Sequence[Floats | None], found: Mapping[str, Interval]
) -> dict[str, str]:
    """Say why each figure would be undefined."""
    n = len(means[0])
    few = f"{n} personas have a belief and an action, at least {LEAST_PERSONAS} are needed" * (n < LEAST_PERSONAS)
    flat = [
        f"the mean {what} of all personas is the same" * bool(n > 0 and np.ptp(mean) == 0)
        for what, mean in zip(("belief", "action"), means, strict=True)
    ]
    once = [f"one {what} per persona tells nothing of reliability" * (half is None)
            for what, half in zip(("asking", "play"), halves, strict=True)]  # fmt: skip
    sides = [few or flat[i] or once[i] or "a half of the repeats is the same for all personas" for i in (0, 1)]
    low = "the repeats of one side do not agree with each other (reliability 0 or below)"
    unknown = [side for side, name in zip(sides, ("belief_reliability", "action_reliability"), strict=True)
               if math.isnan(found[name].estimate)]  # fmt: skip
    rho = few or flat[0] or flat[1]
    corrected = rho or (unknown or [low])[0]
    return {
        "rho": rho, "skill": flat[1] or few, "belief_reliability": sides[0], "action_reliability": sides[1],
        "corrected": corrected, "gap": corrected,
    }  # fmt: skip


def horizon_curve(
    forecasts: ArrayLike, actions: ArrayLike, scale: float, *, draws: int = 1000, seed: int = 0
) -> HorizonCurve:
    """Compare forecasts of later rounds of a repeated game with what was done in them.

    Args:
        forecasts: Shape (personas, rounds, horizons): entry [i, t, h - 1] was made once round t was over and is about
            round t + h; NaN where none was made.
        actions: Shape (personas, rounds), of the same games.
        scale: Range of the actions.
        draws: Bootstrap resamples of the personas.
        seed: Of the resampling.

    Raises:
        UserError: If shapes differ, or a forecast is about a round after the last.
    """
    said, done = np.asarray(forecasts, dtype=float), _table("actions", actions)
    if said.ndim != 3 or said.shape[:2] != done.shape:
        raise UserError(f"forecasts need the shape {done.shape} of the actions and one axis more, got {said.shape}.")
    _check_scale(scale)
    personas, rounds, horizons = said.shape
    missed = np.full(said.shape, math.nan)
    for ahead in range(1, horizons + 1):
        made = said[:, :, ahead - 1]
        if np.isfinite(made[:, max(0, rounds - ahead) :]).any():
            raise UserError(
                f"a forecast {ahead} rounds ahead is about a round after the last of {rounds}; leave it out."
            )
        missed[:, : rounds - ahead, ahead - 1] = np.abs(made[:, : rounds - ahead] - done[:, ahead:]) / scale
    by_persona = np.stack([_means(missed[:, :, ahead]) for ahead in range(horizons)], 1)
    slopes = [slope(np.arange(horizons), by_persona[i]) for i in range(personas)]
    errors = tuple(
        _figure(bootstrap_mean(by_persona[:, ahead], draws=draws, seed=seed), f"no forecast {ahead + 1} rounds ahead")
        for ahead in range(horizons)
    )
    rise = bootstrap_mean(slopes, draws=draws, seed=seed)
    return HorizonCurve(errors, _figure(rise, "no persona has forecasts of two horizons"))


def _table(name: str, values: ArrayLike) -> Floats:
    table = np.asarray(values, dtype=float)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not table.size:
        raise UserError(f"{name}: expected one row per persona and one column per repeat, got shape {table.shape}.")
    return np.where(np.isfinite(table), table, math.nan)


def _check_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise UserError(f"scale must be finite and above 0, got {scale}.")


def _means(table: Floats) -> Floats:
    """Return the mean of each row over what is there."""
    present = np.isfinite(table)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(present, table, 0.0).sum(1) / present.sum(1)
    return means


def _halves(table: Floats, seed: int) -> Floats | None:
    """Return mean values of random halves of the columns, shape (2, splits, rows); None if there is one column."""
    columns = table.shape[1]
    if columns < 2:
        return None
    rng, half = np.random.default_rng(seed), columns // 2
    orders = [rng.permutation(columns) for _ in range(_SPLITS)]
    return np.array([[_means(table[:, order[a:b]]) for order in orders] for a, b in pairwise((0, half, 2 * half))])


def _reliability(halves: Floats | None, columns: int, rows: NDArray[np.intp]) -> Floats:
    """Return the agreement of halves over personas, stepped up to all repeats by the Spearman-Brown formula.

    A half of an odd number of repeats leaves one out, so the step is more than twofold then. Where single repeats are
    missing, the step is that of the whole table.
    """
    if halves is None:
        return np.full(len(rows), math.nan)
    agreed = np.stack([_rank_correlations(a[rows], b[rows]) for a, b in zip(*halves, strict=True)])
    known = np.isfinite(agreed)
    with np.errstate(invalid="ignore"):
        r = np.where(known, agreed, 0.0).sum(0) / known.sum(0)
    longer = columns / (columns // 2)
    above = np.where(r > 0, r, 1.0)
    stepped: Floats = np.where(r > 0, longer * above / (1 + (longer - 1) * above), r)
    return stepped


def _rank_correlations(a: Floats, b: Floats, least: int = LEAST_PERSONAS) -> Floats:
    """Return Spearman's correlation along the last axis, over what is there on both sides; NaN where undefined."""
    from scipy.stats import rankdata

    present = np.isfinite(a) & np.isfinite(b)
    count = present.sum(-1)
    centred = []
    for side in (a, b):
        # What is missing is ranked above all else, which leaves the other ranks as they would be without it.
        ranks = np.where(present, rankdata(np.where(present, side, np.inf), axis=-1), 0.0)
        mean = ranks.sum(-1, keepdims=True) / np.maximum(count, 1)[..., None]
        centred.append(np.where(present, ranks - mean, 0.0))
    x, y = centred
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    defined = (count >= least) & (scale > 1e-9)
    return np.where(defined, (x * y).sum(-1) / np.where(defined, scale, 1.0), math.nan)


def _bootstrapped(
    figures: Callable[[NDArray[np.intp]], dict[str, Floats]], n: int, draws: int, seed: int
) -> dict[str, Interval]:
    """Compute figures on all personas and on resamples of them; percentile intervals."""
    if not n:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of nothing
            return {
                name: Interval(math.nan, math.nan, math.nan, 0) for name in figures(np.zeros((1, 0), dtype=np.intp))
            }
    whole = figures(np.arange(n)[None])
    drawn = figures(np.random.default_rng(seed).integers(n, size=(draws, n)))
    result = {}
    for name, values in drawn.items():
        known = values[np.isfinite(values)]
        # Bounds from few resamples would be those of the lucky ones.
        bounds = np.quantile(known, [0.025, 0.975]) if len(known) > draws / 2 else (math.nan, math.nan)
        result[name] = Interval(float(whole[name][0]), float(bounds[0]), float(bounds[1]), n)
    return result


def _figure(interval: Interval, reason: str, n: int | None = None) -> Figure:
    """Keep the reason only where the estimate is undefined."""
    undefined = math.isnan(interval.estimate)
    bounds = (math.nan, math.nan) if undefined else (interval.low, interval.high)
    return Figure(interval.estimate, *bounds, interval.n if n is None else n, reason if undefined else "")

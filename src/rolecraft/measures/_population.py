"""Statistics of populations of answers: how far two lie apart, how varied one is, and what its roles explain.

Answers come in units that are independent of each other, such as agents or episodes; whole units are resampled. A
figure that cannot be had is NaN and says why. Estimates made from shares are biased in small samples: distances
upwards, entropy downwards. An interval therefore spans both the quantiles of the resamples and those quantiles
reflected about the estimate, which takes the bias out to first order; and the interval of a distance or of a role's
share reaches down to 0 unless dealing the units out anew tells it from 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._consistency import Figure
from rolecraft.measures._statistics import Floats, _expanded_tail

Kind = Literal["total-variation", "jensen-shannon", "wasserstein"]
"""Distances between distributions."""
LEAST = 1e-12
"""What is less counts as 0."""
_LEVEL = 0.05


@dataclass(frozen=True)
class Distance(Figure):
    """How far two populations lie apart."""

    chance: float = math.nan
    """Mean distance when units are dealt to the two sides at random."""
    p: float = math.nan
    """Share of such deals that are at least as far apart, the real one counted in."""


@dataclass(frozen=True)
class Diversity:
    """How varied a population's answers are."""

    entropy: Figure
    """Shannon's, in bits."""
    evenness: Figure
    """Entropy over that of all options equally often, 0..1."""
    variety: Figure
    """Probability that two answers differ (Simpson's index), estimated without bias from independent answers."""
    distinct: int
    """Options that occur."""
    answers: int


@dataclass(frozen=True)
class RoleShare(Figure):
    """The share of variance that lies between roles: 0, roles answer alike; 1, each role always answers the same."""

    within: float = math.nan
    """Mean square within roles."""
    between: float = math.nan
    """Mean square between roles."""
    p: float = math.nan
    """Share of random deals of the roles to units with at least this share, the real one counted in."""


def distribution_distance(
    a: ArrayLike, b: ArrayLike, kind: Kind = "total-variation", values: ArrayLike | None = None
) -> Floats:
    """Return the distance of distributions along the last axis.

    Args:
        a: Shares or counts, shape (..., options); each row is divided by its sum.
        b: The same.
        kind: `total-variation`, half the sum of differences, 0..1; `jensen-shannon`, the root of the divergence in
            bits, 0..1; `wasserstein`, the least mean way that mass must go, in the unit of `values`.
        values: Of the options, for `wasserstein`; default 0, 1, 2, ...

    Returns:
        Shape (...); NaN where a row is empty.

    Raises:
        UserError: If the kind is unknown or the numbers of options differ.
    """
    if kind not in get_args(Kind):
        raise UserError(f"no distance {kind!r} ({', '.join(get_args(Kind))}).{did_you_mean(kind, get_args(Kind))}")
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.shape[-1:] != y.shape[-1:] or not x.ndim or (x < 0).any() or (y < 0).any():
        raise UserError(f"expected shares of the same options, 0 or more, got shapes {x.shape} and {y.shape}.")
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = x / x.sum(-1, keepdims=True), y / y.sum(-1, keepdims=True)
    if kind == "total-variation":
        return np.asarray(np.abs(p - q).sum(-1) / 2)
    if kind == "jensen-shannon":
        bits = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
        return np.sqrt(np.clip(bits, 0.0, 1.0))
    places = np.arange(x.shape[-1]) if values is None else np.asarray(values, dtype=float)
    if places.shape != x.shape[-1:] or not np.isfinite(places).all():
        raise UserError(
            f"values: expected a finite number for each of {x.shape[-1]} options, got shape {places.shape}."
        )
    order = np.argsort(places)
    beyond = np.cumsum((p - q)[..., order], -1)[..., :-1]
    return np.asarray((np.abs(beyond) * np.diff(places[order])).sum(-1))


def population_distance(
    a: ArrayLike,
    b: ArrayLike,
    kind: Kind = "total-variation",
    *,
    values: ArrayLike | None = None,
    paired: bool = False,
    draws: int = 2000,
    seed: int = 0,
) -> Distance:
    """Compare what two populations answered.

    Args:
        a: Counts, shape (units, options): how often each unit gave each answer.
        b: The same of the other population.
        kind: See `distribution_distance`.
        values: Of the options, for `wasserstein`.
        paired: Unit i of both belongs together (same episode, same seed): pairs are resampled, and dealt by swapping.
        draws: Resamples, and deals.
        seed: Of both.

    Raises:
        UserError: If shapes do not match.
    """
    x, y = _counts(a), _counts(b)
    if x.shape[1] != y.shape[1] or (paired and len(x) != len(y)):
        raise UserError(f"expected counts of the same options{' and units' * paired}, got {x.shape} and {y.shape}.")
    has_x, has_y = x.sum(1) > 0, y.sum(1) > 0
    if paired:
        has_x = has_y = has_x & has_y
    x, y = x[has_x], y[has_y]
    n = len(x) if paired else min(len(x), len(y))
    if n < 2:
        reason = f"{n} {'pairs of units' if paired else 'units on one side'} with answers, at least 2 are needed"
        return Distance(math.nan, math.nan, math.nan, n, reason)
    rng = np.random.default_rng(seed)
    drawn_x = _multinomial(rng, len(x), draws)
    drawn_y = drawn_x if paired else _multinomial(rng, len(y), draws)
    whole = float(distribution_distance(x.sum(0), y.sum(0), kind, values))
    resampled = distribution_distance(drawn_x @ x, drawn_y @ y, kind, values)
    dealt = distribution_distance(*_deals(rng, x, y, paired, draws), kind, values)
    low, high = _span(whole, resampled, n, 0.0, math.inf if kind == "wasserstein" else 1.0)
    p = (1 + int((dealt >= whole - LEAST).sum())) / (1 + draws)
    return Distance(whole, low if p <= _LEVEL else 0.0, high, n, "", float(np.nanmean(dealt)), p)


def _deals(rng: np.random.Generator, x: Floats, y: Floats, paired: bool, draws: int) -> tuple[Floats, Floats]:
    """Return sums of both sides with units dealt to them at random, shape (draws, options)."""
    if paired:
        swap = rng.integers(2, size=(draws, len(x))).astype(float)
        return swap @ y + (1 - swap) @ x, swap @ x + (1 - swap) @ y
    both = np.concatenate([x, y])
    side = np.zeros((draws, len(both)))
    side[:, : len(x)] = 1.0
    side = rng.permuted(side, axis=1)
    return side @ both, (1 - side) @ both


def population_diversity(counts: ArrayLike, *, draws: int = 2000, seed: int = 0) -> Diversity:
    """Tell how varied answers are.

    Args:
        counts: Shape (units, options), or (options,) where every answer is a unit of its own. Options that could have
            been chosen and never were belong in it: they decide what an even choice would be.
        draws: Resamples of the units.
        seed: Of the resampling.
    """
    given = np.asarray(counts, dtype=float)
    if given.ndim == 1:
        given = np.repeat(np.eye(len(given)), _counts(given[None])[0].astype(int), axis=0).reshape(-1, len(given))
    table = _counts(given)
    table = table[table.sum(1) > 0]
    total, options = table.sum(0), table.shape[1]
    single = bool((table.sum(1) == 1).all())
    few = f"{len(table)} units with answers, at least 2 are needed" * (len(table) < 2)

    def figure(value: Callable[[Floats], Floats], highest: float, reason: str = few) -> Figure:
        if reason:
            return Figure(math.nan, math.nan, math.nan, len(table), reason)
        whole = float(value(total[None])[0])
        resampled = value(_multinomial(np.random.default_rng(seed), len(table), draws) @ table)
        return Figure(whole, *_span(whole, resampled, len(table), 0.0, highest), len(table))

    top = math.log2(options) if options > 1 else math.nan
    alone = few or "one option leaves nothing to choose" * (options < 2)
    return Diversity(
        figure(lambda rows: _entropy(_divided(rows)), math.log2(max(options, 1))),
        figure(lambda rows: _entropy(_divided(rows)) / top, 1.0, alone),
        figure(_simpson if single else _simpson_plain, 1.0),
        int((total > 0).sum()),
        int(total.sum()),
    )


def role_share(
    values: ArrayLike, roles: Sequence[str], units: Sequence[object] | None = None, *, draws: int = 1000, seed: int = 0
) -> RoleShare:
    """Return how much of the variance of answers lies between roles and not within them.

    Epsilon squared of a one-way analysis of variance: the share between roles, less what chance would put there, so
    that roles that answer alike have 0 on average. For choices give indicator vectors; for texts, embeddings.

    Args:
        values: Shape (answers,) or (answers, size).
        roles: One per answer.
        units: One per answer: answers of one unit are resampled together, and a role within a unit is dealt as a whole;
            default: each answer by itself.
        draws: Resamples, and deals.
        seed: Of both.

    Raises:
        UserError: If shapes do not match or a value is not finite.
    """
    table = np.asarray(values, dtype=float)
    table = table[:, None] if table.ndim == 1 else table
    labels = [str(unit) for unit in (range(len(table)) if units is None else units)]
    if table.ndim != 2 or not len(table) == len(roles) == len(labels) or not np.isfinite(table).all():
        raise UserError(
            f"expected finite values with a role and a unit each, got shape {table.shape}, {len(roles)} roles and "
            f"{len(labels)} units."
        )
    names, code = np.unique(np.array(roles, dtype=str), return_inverse=True)
    few = f"{len(table)} answers of {len(names)} roles; at least 2 roles and one answer more than roles are needed"
    if len(names) < 2 or len(table) <= len(names):
        return RoleShare(math.nan, math.nan, math.nan, len(set(labels)), few)
    table = table - table.mean(0)
    if not (table**2).sum() > LEAST:
        return RoleShare(math.nan, math.nan, math.nan, len(set(labels)), "all answers are the same")
    within, between = _squares(table, code, len(names))
    whole = _epsilon(table, code)
    rng = np.random.default_rng(seed)
    _, unit = np.unique(labels, return_inverse=True)
    members = [np.flatnonzero(unit == place) for place in range(unit.max() + 1)]
    resampled = []
    for _ in range(draws if len(members) > 1 else 0):
        rows = np.concatenate([members[place] for place in rng.integers(len(members), size=len(members))])
        resampled.append(_epsilon(table[rows], code[rows]))
    low, high = _span(whole, np.array(resampled), len(members), -math.inf, 1.0)
    _, block = np.unique(unit * len(names) + code, return_inverse=True)
    role_of = np.zeros(block.max() + 1, dtype=int)
    role_of[block] = code
    dealt = np.array([_epsilon(table, rng.permutation(role_of)[block]) for _ in range(draws)])
    p = (1 + int((dealt >= whole - LEAST).sum())) / (1 + draws)
    return RoleShare(whole, low if p <= _LEVEL else min(low, 0.0), high, len(members), "", within, between, p)


def _squares(table: Floats, code: NDArray[np.intp], many: int) -> tuple[float, float]:
    """Return the mean squares within and between groups."""
    sizes = np.bincount(code, minlength=many).astype(float)
    sums = np.zeros((many, table.shape[1]))
    np.add.at(sums, code, table)
    used = sizes > 0
    middle = table.mean(0)
    between = float((sizes[used] * ((sums[used] / sizes[used, None] - middle) ** 2).sum(1)).sum())
    total = float(((table - middle) ** 2).sum())
    groups, rest = int(used.sum()) - 1, len(table) - int(used.sum())
    return (total - between) / rest if rest > 0 else math.nan, between / groups if groups > 0 else math.nan


def _epsilon(table: Floats, code: NDArray[np.intp]) -> float:
    """Return epsilon squared; NaN where there is one group, or no answer beside one per group."""
    within, between = _squares(table, code, int(code.max()) + 1)
    total = float(((table - table.mean(0)) ** 2).sum()) / max(len(table) - 1, 1)
    return 1 - within / total if total > LEAST and math.isfinite(within + between) else math.nan


def vector_spread(
    vectors: ArrayLike, units: Sequence[object] | None = None, *, draws: int = 1000, seed: int = 0
) -> Figure:
    """Return the mean of 1 - cosine over pairs of answers of different units: 0, all say the same.

    Args:
        vectors: Unit vectors, shape (answers, size), such as embeddings of texts.
        units: One per answer; default: each answer by itself.
        draws: Resamples of the units.
        seed: Of the resampling.

    Raises:
        UserError: If shapes do not match or a value is not finite.
    """
    table = np.asarray(vectors, dtype=float)
    labels = [str(unit) for unit in (range(len(table)) if units is None else units)]
    if table.ndim != 2 or len(labels) != len(table) or not np.isfinite(table).all():
        raise UserError(f"expected finite vectors with a unit each, got shape {table.shape} and {len(labels)} units.")
    names, unit = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        return Figure(
            math.nan, math.nan, math.nan, len(names), f"{len(names)} units with answers, at least 2 are needed"
        )
    sums, sizes = np.zeros((len(names), table.shape[1])), np.bincount(unit).astype(float)
    np.add.at(sums, unit, table)
    alike = sums @ sums.T
    pairs = np.outer(sizes, sizes)

    def spread(weights: Floats) -> Floats:
        # A unit drawn twice is no pair with itself: its pairs would tell nothing of other units.
        def over(of: Floats) -> Floats:
            return np.asarray(((weights @ of) * weights).sum(1) - (weights**2) @ np.diag(of))

        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(1 - over(alike) / over(pairs))

    whole = float(spread(np.ones((1, len(names))))[0])
    resampled = spread(_multinomial(np.random.default_rng(seed), len(names), draws))
    return Figure(whole, *_span(whole, resampled, len(names), 0.0, 2.0), len(names))


def _counts(values: ArrayLike) -> Floats:
    table = np.asarray(values, dtype=float)
    if table.ndim != 2 or not table.shape[1] or not (np.isfinite(table) & (table >= 0)).all():
        raise UserError(f"expected counts of 0 or more, shape (units, options), got shape {table.shape}.")
    return table


def _multinomial(rng: np.random.Generator, n: int, draws: int) -> Floats:
    """Return how often each of n units is drawn, shape (draws, n)."""
    return rng.multinomial(n, np.full(n, 1 / n), size=draws).astype(float)


def _divided(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(-1, keepdims=True))


def _entropy(p: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p == 0, 0.0, -p * np.log2(p))
    return np.asarray(terms.sum(-1))


def _simpson_plain(rows: Floats) -> Floats:
    return np.asarray(1 - (_divided(rows) ** 2).sum(-1))


def _simpson(rows: Floats) -> Floats:
    number = rows.sum(-1)
    return np.asarray(_simpson_plain(rows) * number / np.maximum(number - 1, 1))


def _span(whole: float, resampled: Floats, units: int, lowest: float, highest: float) -> tuple[float, float]:
    """Return the hull of the percentile and the basic bootstrap interval, kept within what is possible.

    The quantiles are those of `bootstrap_mean`, further out for few units. NaN if most resamples are undefined.
    """
    known = resampled[np.isfinite(resampled)]
    if units < 2 or len(known) * 2 < len(resampled) or not len(known):
        return math.nan, math.nan
    tail = _expanded_tail(units, 0.95)
    low, high = np.quantile(known, [tail, 1 - tail])
    ends = (min(low, 2 * whole - high), max(high, 2 * whole - low))
    return float(np.clip(ends[0], lowest, highest)), float(np.clip(ends[1], lowest, highest))

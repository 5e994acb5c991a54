"""Scores before and after an event as arrays, the rule they are judged by, and means that skip what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.measures._statistics import Floats

Bools = NDArray[np.bool_]
MIN_RETESTS = 5
"""No-event repeats per persona below which the retest noise is not estimated."""


@dataclass(frozen=True)
class ShiftRule:
    """How a shift is told from noise."""

    quantile: float = 0.95
    """Of the absolute no-event shift: a single persona beyond it has reacted."""
    fdr: float = 0.05
    """Share of detected cells that may be false (Benjamini and Hochberg)."""
    draws: int = 4000
    """Simulated no-event means per trait."""
    resamples: int = 2000
    """Bootstrap resamples of personas."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.quantile < 1 and 0 < self.fdr < 1 and self.draws > 0 and self.resamples > 0):
            raise UserError(
                f"expected quantile and fdr between 0 and 1, draws and resamples above 0, got {self.quantile}, "
                f"{self.fdr}, {self.draws} and {self.resamples}."
            )


@dataclass(frozen=True)
class HumanScale:
    """What human samples say about size; without it no size is judged."""

    sd: Mapping[str, float] | None = None
    """Trait to its SD between persons, in points of the instrument: the unit of a documented range."""
    shift_sd: Mapping[str, float] | None = None
    """Trait to the SD between persons of their change, in points."""


@dataclass(frozen=True)
class Shifts:
    """Trait scores before and after; NaN where there is none."""

    personas: tuple[str, ...]
    events: tuple[str, ...]
    traits: tuple[str, ...]
    pre: Floats
    """Shape (personas, events, repeats, traits)."""
    post: Floats
    """The same shape."""
    retest_pre: Floats
    """No-event runs, shape (personas, retests, traits)."""
    retest_post: Floats
    scale: tuple[float, float] = (1.0, 5.0)
    """Lowest and highest score the instrument can give."""

    def __post_init__(self) -> None:
        head = (len(self.personas), len(self.events))
        fits = self.pre.ndim == 4 and self.pre.shape[:2] == head and self.pre.shape[3] == len(self.traits)
        if not fits or self.pre.shape != self.post.shape or not self.pre.shape[2]:
            raise UserError(
                f"expected pre and post of shape (personas {head[0]}, events {head[1]}, repeats, traits "
                f"{len(self.traits)}), got {self.pre.shape} and {self.post.shape}."
            )
        want = (head[0], len(self.traits))
        retest = self.retest_pre.shape
        if len(retest) != 3 or (retest[0], retest[2]) != want or retest != self.retest_post.shape:
            raise UserError(
                f"expected retests of shape (personas {want[0]}, retests, traits {want[1]}), got {retest} and "
                f"{self.retest_post.shape}."
            )
        if retest[1] < MIN_RETESTS:
            raise UserError(
                f"got {retest[1]} no-event retests per persona; the noise needs at least {MIN_RETESTS}: run more."
            )
        if self.pre.shape[2] > retest[1]:
            raise UserError(
                f"got {self.pre.shape[2]} repeats of the events and {retest[1]} retests; their noise is compared at "
                "equal numbers: give as many retests as repeats, or more."
            )
        if head[0] < 2:
            raise UserError(f"got {head[0]} personas; intervals over personas need at least 2.")

    @property
    def delta(self) -> Floats:
        """Post - pre."""
        return self.post - self.pre

    @property
    def retest(self) -> Floats:
        """Post - pre without an event."""
        return self.retest_post - self.retest_pre

    @property
    def by_persona(self) -> Floats:
        """Mean shift over the repeats that have one, shape (personas, events * traits)."""
        return mean_over(self.delta, 2).reshape(len(self.personas), -1)


def mean_over(values: Floats, axis: int) -> Floats:
    """Return the mean over the finite values along an axis; NaN where there are none."""
    given = np.isfinite(values)
    count = given.sum(axis)
    sums = np.where(given, values, 0.0).sum(axis)
    result: Floats = np.where(count > 0, sums / np.maximum(count, 1), math.nan)
    return result


def resampled(personas: int, rule: ShiftRule) -> Floats:
    rng = np.random.default_rng(rule.seed)
    return rng.multinomial(personas, np.full(personas, 1 / personas), size=rule.resamples).astype(float)


def weighted(values: Floats, weights: Floats) -> Floats:
    """Return means over personas, shape (resamples, columns), NaN where a resample has no value."""
    given = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        result: Floats = (weights @ np.where(given, values, 0.0)) / (weights @ given)
    return result

"""Whether a judge of segment roles helps credit: its constants against the error that outcome credit makes.

Let A be the outcome advantage of a segment, A* its true one, delta = A* - A. Adding lam * c changes the mean squared
error, both centred, by lam^2 Var c - 2 lam Cov(c, delta): it falls if and only if Cov(c, delta) > lam Var(c) / 2, up to
lam = 2 Cov / Var (TRIAGE, arXiv 2606.32017). Among functions of the role alone, E[delta | role] errs least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.measures._statistics import Interval, bootstrap_mean
from rolecraft.worlds import Act, Episode, Policy, Rules, Table, View, World, play_all

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SegmentReliability:
    """How a judge's corrections go with the error of outcome credit."""

    covariance: Interval
    """Of c and delta."""
    variance: float
    """Of c over all segments."""
    most_weight: Interval
    """The largest weight at which the error still falls, 2 Cov / Var, for the corrections as given (their variance is
    taken as known); below 0, every weight does harm. NaN if all corrections are equal."""
    change: Interval
    """Of the mean squared error at the weight asked about; below 0 is a gain."""
    by_role: Mapping[str, Interval]
    """Mean of delta among the segments of each role: the constants that would err least."""
    confusion: Mapping[str, Mapping[str, int]]
    """Counts by the judge's role, then by the reference's; empty without a reference."""
    weight: float

    @property
    def helps(self) -> bool | None:
        """Whether the weight asked about lowers the error; None where the interval holds 0."""
        if self.change.high < 0:
            return True
        return False if self.change.low > 0 else None


def segment_reliability(
    corrections: ArrayLike,
    residuals: ArrayLike,
    roles: Sequence[str],
    *,
    weight: float = 0.5,
    units: Sequence[object] | None = None,
    reference: Sequence[str] | None = None,
) -> SegmentReliability:
    """Measure a judge on segments whose true advantage is known or estimated.

    Args:
        corrections: Shape (S,), c of each segment.
        residuals: Shape (S,), delta of each segment, or an estimate without bias.
        roles: The judge's role of each segment; any word for those it failed on.
        weight: The lam that is asked about.
        units: What is resampled together, such as the rollout of each segment; None: each segment by itself.
        reference: Another judge's role of each segment, such as a rule's.

    Raises:
        UserError: If there are fewer than two segments, shapes differ, or a number is not finite.
    """
    c, delta = np.asarray(corrections, dtype=float), np.asarray(residuals, dtype=float)
    _check(c, delta, roles, units, reference, weight)
    labels = None if units is None else list(units)
    centred, error = c - c.mean(), delta - delta.mean()
    covariance = bootstrap_mean(centred * error, labels)
    variance = float(np.mean(centred**2))
    change = bootstrap_mean(weight**2 * centred**2 - 2 * weight * centred * error, labels)
    limits = [2 * value / variance if variance else math.nan for value in (covariance.estimate, *_bounds(covariance))]
    names = np.asarray(roles)
    by_role = {
        str(role): bootstrap_mean(delta[names == role], _some(labels, names == role)) for role in np.unique(names)
    }
    confusion: dict[str, dict[str, int]] = {}
    for mine, other in zip(roles, reference or (), strict=False):
        row = confusion.setdefault(mine, {})
        row[other] = row.get(other, 0) + 1
    most = Interval(limits[0], limits[1], limits[2], covariance.n)
    return SegmentReliability(covariance, variance, most, change, by_role, confusion, weight)


def continuation_values(
    make_world: Callable[[], World],
    episode: Episode,
    agent: str,
    policies: Mapping[str, Policy],
    *,
    draws: int = 16,
    seed: int = 0,
    rules: Rules | None = None,
) -> Floats:
    """Estimate what an agent can still expect at every point of an episode, by playing on from there.

    The world's own chance is that of the episode; the policies draw anew.

    Args:
        make_world: Returns a new world, in which the episode's actions have the effect they had.
        episode: What was played.
        agent: Whose reward counts.
        policies: Who plays on.
        draws: Continuations from each point.
        seed: Of the continuations.
        rules: How they are played; None: as by default.

    Returns:
        Shape (K + 1, draws) for K steps: the final rewards after the first 0, 1, ..., K steps. The advantage of step k
        is the mean of row k + 1 less that of row k.

    Raises:
        UserError: If `draws` is below 1, the agent is unknown, or the episode does not come out again.
    """
    if draws < 1:
        raise UserError(f"draws must be at least 1, got {draws}.")
    if agent not in episode.rewards:
        raise UserError(f"{agent!r} is no agent of this episode ({', '.join(episode.rewards)}).")
    points = 1 + max((turn.step for turn in episode.turns), default=-1) + 1
    tables = [
        Table(
            make_world(),
            _again(policies, derive_seed("continuation", seed, point, draw)),
            episode.seed,
            episode.roles,
            tuple(turn for turn in episode.turns if turn.step < point),
        )
        for point in range(points)
        for draw in range(draws)
    ]
    hashed = episode.states == "hashed"
    ends = play_all(tables, replace(rules or Rules(), hashes=hashed))
    return np.array([end.rewards[agent] for end in ends]).reshape(points, draws)


class _Reseeded:
    """A policy whose every decision has another seed."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self._policy, self._seed = policy, seed

    def act(self, views: Sequence[View]) -> Sequence[Act]:
        return self._policy.act([replace(view, seed=derive_seed(self._seed, view.seed)) for view in views])


def _again(policies: Mapping[str, Policy], seed: int) -> dict[str, Policy]:
    return {agent: _Reseeded(policy, seed) for agent, policy in policies.items()}


def _bounds(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def _some(labels: Sequence[object] | None, where: NDArray[np.bool_]) -> list[object] | None:
    return None if labels is None else [label for label, kept in zip(labels, where, strict=True) if kept]


def _check(
    c: Floats,
    delta: Floats,
    roles: Sequence[str],
    units: Sequence[object] | None,
    reference: Sequence[str] | None,
    weight: float,
) -> None:
    if c.ndim != 1 or c.shape != delta.shape or len(c) < 2:
        raise UserError(f"expected corrections and residuals of two segments or more, got {c.shape} and {delta.shape}.")
    for name, values in (("roles", roles), ("units", units), ("reference", reference)):
        if values is not None and len(values) != len(c):
            raise UserError(f"{name}: expected one per segment, {len(c)} of them, got {len(values)}.")
    wrong = ~(np.isfinite(c) & np.isfinite(delta))
    if wrong.any():
        segment = int(np.flatnonzero(wrong)[0])
        raise UserError(f"segment {segment}: its correction is {c[segment]} and its residual {delta[segment]}.")
    if not math.isfinite(weight) or weight < 0:
        raise UserError(f"weight must be a number of at least 0, got {weight}.")

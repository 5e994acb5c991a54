"""Corrections of whole rows: a bonus by label, weights by duration, and rows or groups that are left out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints, add_advantage
from rolecraft.learning.credit._groups import Unit, group_advantage

TRIAGE_CONSTANTS: Mapping[str, float] = {"D": 1.0, "E": 0.5, "N": -0.1, "R": -0.5}
"""Decisive progress, exploration, no progress, regression (arXiv 2606.32017); a label is a place in this list."""
FAILED = -1
"""The label of a row whose judge failed."""
Filter = Literal["dapo", "mean", "std", "uid"]
Range = Literal["group", "batch"]


class JudgeFailuresWarning(UserWarning):
    """More rows than allowed have no label, because the judge failed on them."""


def label_bonus(labels: NDArray[Any], constants: Sequence[float]) -> Floats:
    """Return each row's constant, 0 where the judge failed (label -1).

    Args:
        labels: Shape (N,): places in the constants, or -1.
        constants: One per label.

    Raises:
        UserError: If a label is none of these; the row is named.
    """
    label = np.asarray(labels)
    table = np.array([*constants, 0.0])
    bad = np.flatnonzero(~((label >= FAILED) & (label < len(constants)) & (label == np.floor(label))))
    if len(bad):
        row = int(bad[0])
        raise UserError(
            f"labels: row {row} has the label {label[row]}; expected 0 to {len(constants) - 1}, or -1 where the judge "
            "failed."
        )
    return table[label.astype(np.int64)]


@dataclass(frozen=True)
class AddRow:
    """Add lambda * c[label] to each row's advantage: role-typed credit (TRIAGE, arXiv 2606.32017)."""

    lam: float = 0.5
    """In [0, 1]. The published value is not known; 0.5 is this project's."""
    constants: Mapping[str, float] = field(default_factory=lambda: dict(TRIAGE_CONSTANTS))
    """By label, in the order of the labels' numbers; bounded, never learned."""
    label: str = "label"
    """Row column: the number of each row's label, -1 where the judge failed. Such a row gets 0, never N's constant."""
    score: str | None = None
    """Row column of numbers in [-1, 1] that take the place of the constants: the scalar judge."""
    allow_any_constants: bool = False
    max_failures: float = 0.05
    """A larger share of failed labels flags the batch."""

    def __post_init__(self) -> None:
        if not self.allow_any_constants:
            _check_constants(self.lam, self.constants)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the bonus.

        Warns:
            JudgeFailuresWarning: If the judge failed on more than `max_failures` of the rows.

        Raises:
            UserError: If a label is unknown or a score is out of range; the row is named.
        """
        if self.score is not None:
            bonus = batch.column(self.score, "add_row")
            if not self.allow_any_constants and (np.abs(bonus) > 1).any():
                row = int(np.flatnonzero(np.abs(bonus) > 1)[0])
                raise UserError(f"add_row: the score of row {row} is {bonus[row]}; expected a number in [-1, 1].")
            return add_advantage(carry, self.lam * bonus)
        label = batch.column(self.label, "add_row")
        bonus = label_bonus(label, list(self.constants.values()))
        failed = (label == FAILED) & carry.keep
        share = float(failed.sum() / max(int(carry.keep.sum()), 1))
        flagged = share > self.max_failures
        if flagged:
            warnings.warn(
                f"add_row: the judge failed on {share:.0%} of the rows, more than {self.max_failures:.0%}; they get no "
                "bonus.",
                JudgeFailuresWarning,
                stacklevel=3,
            )
        figures = {"add_row/failed": int(failed.sum()), "add_row/flagged": flagged}
        return add_advantage(carry, self.lam * bonus).note(**figures, **self._shares(label, carry))

    def _shares(self, label: Floats, carry: Carry) -> dict[str, float]:
        """Return how often each label was given, among the rows with a reward above 0 and among the others."""
        shares: dict[str, float] = {}
        for outcome, rows in (("success", carry.reward > 0), ("failure", carry.reward <= 0)):
            given = label[rows & carry.keep & (label != FAILED)].astype(np.int64)
            counts = np.bincount(given, minlength=len(self.constants)) / max(len(given), 1)
            shares |= {f"add_row/{outcome}/{name}": float(counts[i]) for i, name in enumerate(self.constants)}
        return shares


@dataclass(frozen=True)
class FlipRate:
    """Say, per label, how often the advantage's sign differs from the outcome's: TRIAGE's main diagnostic.

    It stands at the end of a rule and changes no advantage.
    """

    keys: Sequence[str] = ("task",)
    """The groups within which the outcome is compared."""
    unit: Unit = "traj"
    """Whether each row or each trajectory is an entry of the group's mean."""
    labels: Sequence[str] = tuple(TRIAGE_CONSTANTS)
    label: str = "label"

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add `flip_rate` and `flip_rate/<label>` to the figures."""
        index, _ = batch.group_index(self.keys, "flip_rate")
        traj = batch.group_index(("traj",), "flip_rate")[0] if self.unit == "traj" else None
        outcome, _ = group_advantage(carry.reward, index, where=carry.keep, scale="none", traj=traj)
        flips = carry.keep & (np.sign(carry.advantage) != np.sign(outcome))
        label = batch.column(self.label, "flip_rate")
        rates = {"flip_rate": _rate(flips, carry.keep)}
        for number, name in enumerate(self.labels):
            rates[f"flip_rate/{name}"] = _rate(flips, carry.keep & (label == number))
        return carry.note(**rates)


def mean_one(values: NDArray[Any], clip: float | None = None) -> Floats:
    """Return weights proportional to the values, with mean one; all one where they add up to 0.

    Args:
        values: Shape (N,), 0 or more, as the durations of actions (arXiv 2509.01684).
        clip: Largest weight. It is applied before the last scaling, so that the mean stays one.

    Raises:
        UserError: If a value is below 0 or not finite; the row is named.
    """
    value = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero(~((value >= 0) & (value < np.inf)))
    if len(bad):
        raise UserError(f"weights: row {int(bad[0])} has {value[bad[0]]}; expected 0 or more.")
    if clip is not None and not clip >= 1:
        raise UserError(f"weights: clip is 1 or more, got {clip!r}.")
    if not value.any():
        return np.ones_like(value)
    weight: Floats = value / value.mean()
    if clip is not None:
        weight = np.minimum(weight, clip)
        weight /= weight.mean()
    return weight


@dataclass(frozen=True)
class Weight:
    """Multiply how much each row counts in the loss, by its duration (arXiv 2509.01684) or by its reward."""

    by: str = "duration"
    """Row column, or `reward`: the reward that earlier stages made."""
    normalise: bool = True
    """Bring the weights to mean one over the rows that are kept; False takes the numbers as they are."""
    clip: float | None = None

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Multiply the weights."""
        given = carry.reward if self.by == "reward" else batch.column(self.by, "weight")
        if not self.normalise:
            weight = given if self.clip is None else np.minimum(given, self.clip)
            return replace(carry, weight=carry.weight * weight)
        weight = np.zeros(batch.shape[0])
        rows = np.flatnonzero(carry.keep)
        weight[rows] = mean_one(given[rows], self.clip)
        return replace(carry, weight=carry.weight * weight).note(**{"weight/max": float(weight.max(initial=0.0))})


def filter_rows(
    rewards: NDArray[Any],
    index: Ints,
    count: int,
    how: Filter = "dapo",
    *,
    share: float = 0.5,
    within: Range = "group",
) -> Bools:
    """Return which rows stay, of shape (N,) (the filters of AT-GRPO's code, arXiv 2510.11062).

    Args:
        rewards: Shape (N,).
        index: Shape (N,): the number of each row's group, from 0.
        count: How many groups there are.
        how: `dapo` drops groups whose rewards are all equal. `mean` and `std` drop the groups that are lowest by the
            mean, or the variance, of the rewards brought to [0, 1]. `uid` drops the rows furthest from their group's
            mean; rows that tie with one that stays stay too.
        share: Of the groups, or of each group's rows, that is dropped, rounded down.
        within: Whether [0, 1] spans each group's own rewards or the batch's (for `mean` and `std`).
    """
    reward = np.asarray(rewards, dtype=np.float64)
    n = len(reward)
    if not n:
        return np.ones(0, dtype=bool)
    sizes = np.bincount(index, minlength=count)
    order = np.lexsort((reward, index))
    starts = np.cumsum(sizes) - sizes
    there = sizes > 0
    low, high = np.zeros(count), np.zeros(count)
    low[there] = reward[order[starts[there]]]
    high[there] = reward[order[starts[there] + sizes[there] - 1]]
    if how == "dapo":
        return (high > low)[index]
    mean = low + np.bincount(index, reward - low[index], minlength=count) / np.maximum(sizes, 1)
    if how == "uid":
        return _near(np.abs(reward - mean[index]), index, sizes, starts, share)
    span = high - low
    if within == "batch":
        low, span = np.full(count, reward.min()), np.full(count, np.ptp(reward))
    span = np.where(span > 0, span, 1.0)
    score = (mean - low) / span
    if how == "std":
        square = np.square((reward - mean[index]) / span[index])
        score = np.bincount(index, square, minlength=count) / np.maximum(sizes, 1)
    ranked = np.flatnonzero(there)[np.argsort(score[there], kind="stable")]
    dropped = np.zeros(count, dtype=bool)
    dropped[ranked[: int(share * len(ranked))]] = True
    return ~dropped[index]


def _near(distance: Floats, index: Ints, sizes: Ints, starts: Ints, share: float) -> Bools:
    drop = np.minimum((share * sizes).astype(np.int64), np.maximum(sizes - 1, 0))
    order = np.lexsort((-distance, index))
    cut = distance[order[np.minimum(starts + drop, len(distance) - 1)]]
    return distance <= cut[index]


@dataclass(frozen=True)
class FilterGroups:
    """Leave out groups, or rows, that teach little."""

    keys: Sequence[str] = ("task",)
    how: Filter = "dapo"
    share: float = 0.5
    within: Range = "group"

    def __post_init__(self) -> None:
        for name, given, options in (("how", self.how, Filter), ("within", self.within, Range)):
            if given not in get_args(options):
                known = ", ".join(repr(each) for each in get_args(options))
                raise UserError(
                    f"filter: {name} is one of {known}, got {given!r}.{did_you_mean(given, get_args(options))}"
                )
        if not 0 <= self.share < 1:
            raise UserError(f"filter: share lies in [0, 1), got {self.share!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Leave rows out, and count them."""
        index, count = batch.group_index(self.keys, "filter")
        rows = np.flatnonzero(carry.keep)
        stays = filter_rows(carry.reward[rows], index[rows], count, self.how, share=self.share, within=self.within)
        keep = np.zeros(batch.shape[0], dtype=bool)
        keep[rows[stays]] = True
        return replace(carry, keep=keep).note(**{f"filter/{self.how}": len(rows) - int(stays.sum())})


@dataclass(frozen=True)
class DropZero:
    """Leave out rows whose advantage is exactly 0, so that they do not count in the mean of the loss."""

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Leave rows out, and count them."""
        speaks = carry.advantage != 0
        if carry.token_advantage is not None:
            speaks = ((carry.token_advantage != 0) & batch.mask).any(1)
        keep = carry.keep & speaks
        return replace(carry, keep=keep).note(**{"drop_zero/rows": int(carry.keep.sum() - keep.sum())})


def _rate(flips: Bools, rows: Bools) -> float:
    return float((flips & rows).sum() / max(int(rows.sum()), 1))


def _check_constants(lam: float, constants: Mapping[str, float]) -> None:
    if not 0 <= lam <= 1:
        raise UserError(f"add_row: lam lies in [0, 1], got {lam!r}; or set allow_any_constants.")
    for name, value in constants.items():
        if not -1 <= value <= 1:
            raise UserError(f"add_row: the constant of {name} is {value!r}; expected [-1, 1], or allow_any_constants.")
    if constants.get("R", 0) > 0 or constants.get("D", 0) < 0:
        raise UserError(
            f"add_row: regression is rewarded (R = {constants.get('R')}) or progress punished (D = "
            f"{constants.get('D')}); set allow_any_constants if that is meant."
        )

"""Whitening: advantages brought to mean 0 and deviation 1 over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints, group_firsts, number_groups
from rolecraft.learning.credit._groups import Unit

Over = Literal["rows", "tokens", "group"]


def whiten(
    values: NDArray[Any],
    groups: NDArray[Any] | None = None,
    *,
    weights: NDArray[Any] | None = None,
    center: bool = True,
    ddof: int = 0,
    eps: float = 1e-8,
) -> Floats:
    """Return (v - mean) / (std + eps); values that are all equal give 0.

    Args:
        values: Shape (M,).
        groups: Whole numbers of shape (M,): each group on its own. None: all together.
        weights: Shape (M,), 0 or more: how much each value counts in the statistics. None: once.
        center: Subtract the mean; False divides by the deviation only, so that signs stay.
        ddof: 1 or 0; taken off the summed weights.
        eps: Added to the deviation.
    """
    value = np.asarray(values, dtype=np.float64)
    if not len(value):
        return value.copy()
    index, count = number_groups([] if groups is None else [np.asarray(groups)], len(value))
    weight = None if weights is None else np.asarray(weights, dtype=np.float64)
    if count == 1:
        return _whiten_all(value, weight, center, ddof, eps)
    # Around a value of the group, so that equal values leave exactly nothing.
    pivot = value[group_firsts(index, count)]
    off = value - pivot[index]
    weight = np.ones(len(value)) if weight is None else weight
    sums = np.bincount(index, weight, minlength=count)
    shift = np.bincount(index, weight * off, minlength=count) / np.where(sums > 0, sums, 1.0)
    off -= shift[index]
    squares = np.bincount(index, weight * off * off, minlength=count)
    std = np.sqrt(squares / np.maximum(sums - ddof, 1e-300)) * (sums > ddof)
    result: Floats = (off if center else value) / (std + eps)[index]
    return result


def _whiten_all(value: Floats, weight: Floats | None, center: bool, ddof: int, eps: float) -> Floats:
    off = value - value[0]
    total = float(len(value)) if weight is None else float(weight.sum())
    off -= (off.sum() if weight is None else weight @ off) / (total or 1.0)
    squares = off @ off if weight is None else weight @ (off * off)
    std = float(np.sqrt(squares / (total - ddof))) if total > ddof else 0.0
    return (off if center else value) / (std + eps)


@dataclass(frozen=True)
class Whiten:
    """Bring the advantages of the rows that are kept to mean 0 and deviation 1."""

    over: Over = "rows"
    """`rows`: each row counts once. `tokens`: each trained token does. `group`: the rows of each group on their own."""
    keys: Sequence[str] = ()
    """The groups of `group`; over `tokens`, groups whose tokens are whitened apart, such as `("policy",)` for policies
    that are trained apart (CORY). There each group costs a pass over the batch."""
    unit: Unit = "row"
    """`traj`: the rows of a trajectory together count as one, so that a long one does not dominate (over `rows`)."""
    center: bool = True
    ddof: int = 0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.over not in get_args(Over):
            near = did_you_mean(self.over, get_args(Over))
            raise UserError(f"whiten: over is 'rows', 'tokens' or 'group', got {self.over!r}.{near}")
        if isinstance(self.keys, str):
            raise UserError(f"whiten: keys are a list of names, got the string {self.keys!r}; write [{self.keys}].")
        if (self.over == "group" and not self.keys) or (self.over == "rows" and self.keys):
            raise UserError("whiten: keys go with over: group, which needs some, or over: tokens.")
        if self.unit not in get_args(Unit) or (self.unit == "traj" and self.over != "rows"):
            raise UserError(f"whiten: unit is 'row', or 'traj' over rows; got {self.unit!r} over {self.over}.")
        if self.ddof not in (0, 1) or not self.eps > 0:
            raise UserError(f"whiten: ddof is 0 or 1 and eps above 0, got {self.ddof!r} and {self.eps!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Whiten the advantage.

        Raises:
            UserError: If a stage has given tokens their own advantages and rows are asked for.
        """
        if carry.token_advantage is not None:
            return replace(carry, token_advantage=self._each(batch, carry, carry.token_advantage))
        rows = np.flatnonzero(carry.keep)
        weights = self._weights(batch, rows)
        groups = batch.group_index(self.keys, "whiten")[0][rows] if self.keys else None
        advantage = np.zeros(batch.shape[0])
        advantage[rows] = self._whiten(carry.advantage[rows], groups, weights)
        return replace(carry, advantage=advantage)

    def _each(self, batch: CreditBatch, carry: Carry, given: Floats) -> Floats:
        if self.over != "tokens":
            raise UserError("whiten: an earlier stage gave each token its own advantage; whiten over: tokens.")
        if not self.keys:
            return self._tokens(batch, carry.keep, given)
        index, count = batch.group_index(self.keys, "whiten")
        found = given.copy()
        for group in range(count):
            own = index == group
            found[own] = self._tokens(batch, carry.keep & own, given)[own]
        return found

    def _tokens(self, batch: CreditBatch, keep: Bools, given: Floats) -> Floats:
        """Whiten the trained tokens of the rows that are kept, all together."""
        trained = batch.mask if keep.all() else batch.mask & keep[:, None]
        count = np.count_nonzero(trained)
        if not count:
            return given
        pivot = given.reshape(-1)[int(trained.argmax())]
        off = np.where(trained, given - pivot, 0.0)
        shift = float(off.sum()) / count
        square = max(float(np.vdot(off, off)) - count * shift * shift, 0.0)
        std = float(np.sqrt(square / (count - self.ddof))) if count > self.ddof else 0.0
        off += -shift if self.center else pivot
        off /= std + self.eps
        return off

    def _weights(self, batch: CreditBatch, rows: Ints) -> Floats | None:
        if self.over == "tokens":
            return batch.lengths[rows].astype(np.float64)
        if self.unit == "row":
            return None
        traj, _ = batch.group_index(("traj",), "whiten")
        share: Floats = 1 / np.bincount(traj[rows], minlength=1)[traj[rows]]
        return share

    def _whiten(self, values: Floats, groups: Ints | None = None, weights: Floats | None = None) -> Floats:
        return whiten(values, groups, weights=weights, center=self.center, ddof=self.ddof, eps=self.eps)

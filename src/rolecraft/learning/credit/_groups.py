"""Group-relative advantage with an explicit group key, and every choice on which published code disagrees."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import (
    Bools,
    Carry,
    CreditBatch,
    Floats,
    Ints,
    add_advantage,
    group_firsts,
    group_means,
    number_groups,
)

Scale = Literal["std", "none"]
Singleton = Literal["zero", "raw"]
Unit = Literal["row", "traj"]


class SmallGroupWarning(UserWarning):
    """Groups of one: there is nothing their reward could be compared with."""


@dataclass(frozen=True)
class GroupStats:
    """What was measured in each group; arrays of shape (G,)."""

    index: Ints
    """Shape (N,): the number of a row's group."""
    entries: Ints
    """How many rows (or trajectories) the statistics rest on."""
    mean: Floats
    std: Floats
    """0 where there are not more entries than `ddof`."""
    flat: Bools
    """Two entries or more, all with the same reward: the group is dead."""

    @property
    def single(self) -> Bools:
        """Groups of one entry."""
        return np.asarray(self.entries == 1)

    def summary(self) -> dict[str, Any]:
        """Return the figures for the log: groups with entries, dead ones, groups of one, mean of the stds."""
        there = self.entries > 0
        return {
            "groups": int(there.sum()),
            "dead": int(self.flat.sum()),
            "single": int(self.single.sum()),
            "std": float(self.std[there].mean()) if there.any() else 0.0,
        }


def group_advantage(
    rewards: NDArray[Any],
    groups: NDArray[Any],
    *,
    center: bool = True,
    scale: Scale = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
    where: NDArray[Any] | None = None,
    traj: NDArray[Any] | None = None,
) -> tuple[Floats, GroupStats]:
    """Compare each reward with the others of its group: (r - mean) / (std + eps).

    Args:
        rewards: Shape (N,).
        groups: Whole numbers of shape (N,), or (N, k) for groups that agree in all k columns.
        center: Subtract the group's mean.
        scale: `std` divides by the group's standard deviation plus `eps`; `none` does not (Dr. GRPO).
        ddof: 1 divides the squares by n - 1, 0 by n.
        eps: Added to the standard deviation.
        singleton: What a group of one gets: `zero`, or its `raw` reward, as if the mean were 0 and the deviation 1.
        where: Booleans of shape (N,); other rows get 0 and do not enter the statistics.
        traj: Whole numbers of shape (N,). The rows of one trajectory within a group then count as one entry, their
            mean, so that a long trajectory weighs as much as a short one. None: each row is an entry.

    Returns:
        Advantages of shape (N,), and the statistics.

    Raises:
        UserError: If a shape or an option does not fit, or a reward is not finite.
    """
    reward = np.asarray(rewards, dtype=np.float64)
    n = len(reward) if reward.ndim == 1 else -1
    keys = np.asarray(groups)
    _check(reward, keys, scale, ddof, eps, singleton)
    used = np.ones(n, dtype=bool) if where is None else _rows("where", where, n, np.bool_)
    trajectory = None if traj is None else _rows("traj", traj, n, np.integer)
    index, count = number_groups([keys] if keys.ndim == 1 else list(keys.T), n)
    stats = _stats(reward, index, count, used, trajectory, ddof)
    return _compared(reward, stats, used, center, scale, eps, singleton), stats


def group_stats(
    batch: CreditBatch, carry: Carry, keys: Sequence[str], unit: Unit, stage: str, ddof: int = 1
) -> GroupStats:
    """Measure the rewards of the rows that are kept in each group, as `group_advantage` does; once for several stages.

    Args:
        batch: The rows.
        carry: What was passed on; its reward and `keep` are looked at.
        keys: Of the groups.
        unit: Whether each row is an entry, or each trajectory (key `traj`).
        stage: Who asks, for messages.
        ddof: 1 or 0.

    Raises:
        UserError: If the batch lacks a key, or a reward is not finite.
    """
    asked = ("group_stats", tuple(keys), unit, ddof)
    known = batch._memo.get(asked)
    if known is not None and known[0] is carry.reward and known[1] is carry.keep:
        found: GroupStats = known[2]
        return found
    index, count = batch.group_index(keys, stage)
    traj = batch.group_index(("traj",), stage)[0] if unit == "traj" else None
    stats = _stats(carry.reward, index, count, carry.keep, traj, ddof)
    batch._memo[asked] = carry.reward, carry.keep, stats
    return stats


def _stats(reward: Floats, index: Ints, count: int, used: Bools, traj: Ints | None, ddof: int) -> GroupStats:
    bad = ~np.isfinite(reward)
    if bad.any() and (bad & used).any():
        row = int(np.flatnonzero(used & bad)[0])
        raise UserError(f"group advantage: the reward of row {row} is {reward[row]}; leave it out with `where`.")
    every = bool(used.all())
    entry, entry_group = (reward, index) if every else (reward[used], index[used])
    if traj is not None:
        entry, entry_group = _per_trajectory(entry, entry_group, traj if every else traj[used])
    return _measure(entry, entry_group, index, count, ddof)


def _compared(
    reward: Floats, stats: GroupStats, used: Bools, center: bool, scale: Scale, eps: float, singleton: Singleton
) -> Floats:
    """Return the advantages of shape (N,), 0 in rows that are not used."""
    index = stats.index
    advantage = reward - stats.mean[index] if center else reward.copy()
    if scale == "std":
        advantage /= stats.std[index] + eps
    if center:
        advantage[stats.flat[index]] = 0.0
    if stats.single.any():
        alone = stats.single[index]
        advantage[alone] = reward[alone] if singleton == "raw" else 0.0
    if not used.all():
        advantage[~used] = 0.0
    return advantage


@dataclass(frozen=True)
class Group:
    """Add each row's advantage within its group: GRPO's baseline, for any key (arXiv 2402.03300)."""

    keys: Sequence[str] = ("task",)
    """Rows that agree in all of these are compared: `("task",)` in GRPO, `("task", "agent", "turn")` in AT-GRPO."""
    center: bool = True
    scale: Scale = "std"
    ddof: int = 1
    eps: float = 1e-6
    singleton: Singleton = "zero"
    unit: Unit = "row"
    """Whether each row is an entry of the statistics, or each trajectory (key `traj`) is one."""
    weight: float = 1.0
    """Of this advantage; it is added to what earlier stages gave."""
    same: str | None = None
    """A key, such as `prompt`, that must agree within a group; None checks nothing."""

    @property
    def name(self) -> str:
        """How the stage is called in messages and figures."""
        return f"group({', '.join(self.keys)})"

    def __post_init__(self) -> None:
        if isinstance(self.keys, str):
            raise UserError(f"group: keys are a list of names, got the string {self.keys!r}; write [{self.keys}].")
        if self.unit not in ("row", "traj"):
            raise UserError(f"{self.name}: unit is 'row' or 'traj', got {self.unit!r}.")
        _check_options(self.scale, self.ddof, self.eps, self.singleton, self.name)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the advantage.

        Warns:
            SmallGroupWarning: If a group has one entry only.

        Raises:
            UserError: If the batch lacks a key, or `same` differs within a group; the rows are named.
        """
        index, _ = batch.group_index(self.keys, self.name)
        if self.same is not None:
            refuse_mixed_groups(index, batch.group_index((self.same,), self.name)[0], carry.keep, self.name, self.same)
        stats = group_stats(batch, carry, self.keys, self.unit, self.name, self.ddof)
        advantage = _compared(carry.reward, stats, carry.keep, self.center, self.scale, self.eps, self.singleton)
        if stats.single.any():
            given = "they keep their raw reward" if self.singleton == "raw" else "their advantage is 0"
            warnings.warn(
                f"{self.name}: some groups have one entry and nothing to be compared with; {given}.",
                SmallGroupWarning,
                stacklevel=3,
            )
        figures = {f"{self.name}/{key}": value for key, value in stats.summary().items()}
        return add_advantage(carry, self.weight * advantage).note(**figures)


def refuse_mixed_groups(groups: Ints, same: Ints, where: Bools, stage: str, name: str) -> None:
    """Raise if rows of one group differ in what must agree, such as the prompt they answer.

    Args:
        groups: Shape (N,), numbers from 0.
        same: Shape (N,), whole numbers.
        where: Shape (N,), the rows that are looked at.
        stage: Who asks, for the message.
        name: What must agree.

    Raises:
        UserError: Naming the first two rows that differ.
    """
    rows = np.flatnonzero(where)
    if not len(rows):
        return
    first = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    first[groups[rows[::-1]]] = rows[::-1]
    other = rows[same[rows] != same[first[groups[rows]]]]
    if len(other):
        row = int(other[0])
        raise UserError(
            f"{stage}: rows {int(first[groups[row]])} and {row} lie in one group but differ in {name!r}; candidates "
            f"can be compared only if they answer the same {name}. Add the keys that tell them apart."
        )


def _measure(entry: Floats, entry_group: Ints, index: Ints, count: int, ddof: int) -> GroupStats:
    """Measure around the first entry of each group, so that equal rewards give a deviation of exactly 0."""
    entries = np.bincount(entry_group, minlength=count)
    pivot = np.zeros(count)
    pivot[entry_group[::-1]] = entry[::-1]
    off = entry - pivot[entry_group]
    flat = (entries > 1) & (np.bincount(entry_group, off != 0, minlength=count) == 0)
    shift = np.bincount(entry_group, off, minlength=count) / np.maximum(entries, 1)
    off -= shift[entry_group]
    squares = np.bincount(entry_group, off * off, minlength=count)
    std = np.where(entries > ddof, np.sqrt(squares / np.maximum(entries - ddof, 1)), 0.0)
    std[flat] = 0.0
    return GroupStats(index, entries, pivot + shift, std, flat)


def _per_trajectory(entry: Floats, entry_group: Ints, traj: Ints) -> tuple[Floats, Ints]:
    pair, pairs = number_groups([entry_group, traj], len(entry))
    return group_means(entry, pair, pairs), entry_group[group_firsts(pair, pairs)]


def _check(reward: Floats, keys: NDArray[Any], scale: Any, ddof: Any, eps: Any, singleton: Any) -> None:
    if reward.ndim != 1:
        raise UserError(f"group advantage: expected rewards of shape (rows,), got shape {reward.shape}.")
    if keys.ndim not in (1, 2) or len(keys) != len(reward) or not np.issubdtype(keys.dtype, np.integer):
        raise UserError(
            f"group advantage: expected groups as whole numbers of shape ({len(reward)},) or ({len(reward)}, keys), "
            f"got {keys.dtype} of shape {keys.shape}."
        )
    _check_options(scale, ddof, eps, singleton, "group advantage")


def _check_options(scale: Any, ddof: Any, eps: Any, singleton: Any, stage: str) -> None:
    if scale not in ("std", "none"):
        raise UserError(f"{stage}: scale is 'std' or 'none', got {scale!r}.")
    if ddof not in (0, 1):
        raise UserError(f"{stage}: ddof is 0 or 1, got {ddof!r}.")
    if not eps >= 0:
        raise UserError(f"{stage}: eps is 0 or more, got {eps!r}.")
    if singleton not in ("zero", "raw"):
        raise UserError(f"{stage}: singleton is 'zero' or 'raw', got {singleton!r}.")


def _rows(name: str, values: NDArray[Any], n: int, kind: type) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != (n,) or not np.issubdtype(array.dtype, kind):
        raise UserError(
            f"group advantage: expected {name} as {kind.__name__} of shape ({n},), got {array.dtype} of shape "
            f"{array.shape}."
        )
    return array

"""Running baselines per role, and no baseline at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import (
    Carry,
    CreditBatch,
    Floats,
    Ints,
    add_advantage,
    group_firsts,
    number_groups,
)
from rolecraft.learning.credit._scan import scan_back

Table = Mapping[str, Mapping[str, float]]
"""Running baselines by the values of their keys, joined by commas: `{"0,1": {"baseline": 0.2, "count": 31}}`."""


def ema_advantage(
    rewards: NDArray[Any], cells: NDArray[Any], start: NDArray[Any], decay: float = 0.95
) -> tuple[Floats, Floats, Floats]:
    """Compare each reward with its cell's running mean as it stood before that reward (SPIRAL, arXiv 2506.24119).

    A = R - b, and only then b <- decay * b + (1 - decay) * R, reward by reward in the order given.

    Args:
        rewards: Shape (M,).
        cells: Shape (M,), numbers from 0: which baseline each reward is compared with.
        start: Shape (cells,): the baselines before the first reward.
        decay: In [0, 1).

    Returns:
        Advantages and the baselines that were read, of shape (M,), and the baselines afterwards, of shape (cells,).

    Raises:
        UserError: If decay is not in [0, 1).
    """
    if not 0 <= decay < 1:
        raise UserError(f"ema_baseline: decay lies in [0, 1), got {decay!r}.")
    reward, first = np.asarray(rewards, dtype=np.float64), np.asarray(start, dtype=np.float64)
    m = len(reward)
    if not m:
        return reward.copy(), reward.copy(), first.copy()
    order = np.argsort(cells, kind="stable")
    cell = np.asarray(cells)[order]
    opens = np.ones(m, dtype=bool)
    opens[1:] = cell[1:] != cell[:-1]
    inflow = (1 - decay) * reward[order]
    inflow[opens] += decay * first[cell[opens]]
    after = scan_back(inflow[::-1], np.where(opens, 0.0, decay)[::-1])[::-1]
    read = np.empty(m)
    read[1:] = after[:-1]
    read[opens] = first[cell[opens]]
    last = first.copy()
    last[cell] = after
    baseline = np.empty(m)
    baseline[order] = read
    return reward - baseline, baseline, last


@dataclass(frozen=True)
class EmaBaseline:
    """Subtract a running mean per (game, role), read before it is updated: role-conditioned advantage estimation.

    Its table is part of the state: `state["ema_baseline(game, role)"]`. Trajectories update it in the order of their
    numbers, so that the order of the rows plays no part.
    """

    keys: Sequence[str] = ("game", "role")
    """One baseline each. Add `actor` to keep the tables of several actors apart; `merge_baselines` joins tables."""
    decay: float = 0.95
    per: Sequence[str] = ("traj", "agent")
    """Rows that agree in these, and in the keys, are one observation: an agent's reward is counted once, however many
    turns it took."""
    initial: float = 0.0
    """A new baseline. At 0 the first advantages are the raw rewards; the count in the state tells."""
    silent: bool = True
    """Whether a row without trained tokens, of a seat that never moved, updates the baseline."""
    zero_sum: bool = False
    """Check that the rewards of each trajectory add up to 0."""
    exceptions: Sequence[Sequence[float]] = ((-1.5, 0.5),)
    """Rewards of a trajectory that need not: an invalid move costs its player 1.5 and gives the other 0.5."""

    @property
    def name(self) -> str:
        """How the stage is called in messages, in figures and in the state."""
        return f"ema_baseline({', '.join(self.keys)})"

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise UserError(f"ema_baseline: decay lies in [0, 1), got {self.decay!r}.")
        if isinstance(self.keys, str) or isinstance(self.per, str):
            raise UserError("ema_baseline: keys and per are lists of names, not strings.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add reward minus baseline to the advantage, and pass the updated table on.

        Raises:
            UserError: If rows of one observation differ in their reward, or a zero-sum game is not one.
        """
        n = batch.shape[0]
        used = batch.known if self.silent else carry.keep
        rows = np.flatnonzero(used)
        seats = tuple(dict.fromkeys((*self.per, *self.keys)))
        entry, entries = number_groups([batch.group_index(seats, self.name)[0][rows]], len(rows))
        first = rows[group_firsts(entry, entries)]
        self._refuse_unequal(carry.reward, rows, first[entry])
        if self.zero_sum:
            check_zero_sum(carry.reward[first], batch.group_index(("traj",), self.name)[0][first], self.exceptions)
        cell, labels = self._cells(batch, first)
        table: Table = carry.state.get(self.name, {})
        start = np.array([table[label]["baseline"] if label in table else self.initial for label in labels])
        advantage, read, last = ema_advantage(carry.reward[first], cell, start, self.decay)
        counts = np.bincount(cell, minlength=len(labels))
        update = {
            label: {"baseline": float(last[i]), "count": int(table.get(label, {}).get("count", 0) + counts[i])}
            for i, label in enumerate(labels)
        }
        spread = np.zeros(n)
        spread[rows] = advantage[entry]
        figures: dict[str, Any] = {f"{self.name}/{label}": cells["baseline"] for label, cells in update.items()}
        figures[f"{self.name}/advantage_square"] = float(np.square(advantage).mean()) if entries else 0.0
        figures[f"{self.name}/read"] = float(read.mean()) if entries else 0.0
        carry = add_advantage(carry, spread).note(**figures)
        return replace(carry, state={**carry.state, self.name: {**table, **update}})

    def _refuse_unequal(self, reward: Floats, rows: Ints, firsts: Ints) -> None:
        unequal = np.flatnonzero(reward[rows] != reward[firsts])
        if len(unequal):
            row, other = int(rows[unequal[0]]), int(firsts[unequal[0]])
            raise UserError(
                f"{self.name}: rows {other} and {row} agree in {', '.join(self.per)} but their rewards are "
                f"{reward[other]} and {reward[row]}. Pool them first, or name the key that tells them apart in per."
            )

    def _cells(self, batch: CreditBatch, rows: Ints) -> tuple[Ints, list[str]]:
        """Number the cells of these rows, and label them by the values of their keys."""
        cell, count = number_groups([batch.group_index(self.keys, self.name)[0][rows]], len(rows))
        shown = rows[group_firsts(cell, count)]
        return cell, [",".join(str(int(batch.keys[key][row])) for key in self.keys) for row in shown]


def merge_baselines(tables: Sequence[Table]) -> dict[str, dict[str, float]]:
    """Join the tables of several actors: each baseline is the mean of theirs, weighted by what they have seen.

    Args:
        tables: As `EmaBaseline` keeps them in the state.
    """
    merged: dict[str, dict[str, float]] = {}
    for label in sorted({label for table in tables for label in table}):
        cells = [table[label] for table in tables if label in table]
        count = sum(cell["count"] for cell in cells)
        shares = [cell["count"] / count if count else 1 / len(cells) for cell in cells]
        baseline = sum(share * cell["baseline"] for share, cell in zip(shares, cells, strict=True))
        merged[label] = {"baseline": baseline, "count": count}
    return merged


@dataclass(frozen=True)
class NoBaseline:
    """Take the reward itself as advantage, or a constant where the reward is a weight."""

    constant: float | None = None

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the reward to the advantage."""
        rows = carry.reward if self.constant is None else np.full(batch.shape[0], float(self.constant))
        return add_advantage(carry, np.where(carry.keep, rows, 0.0))


def check_zero_sum(
    rewards: NDArray[Any],
    traj: NDArray[Any],
    exceptions: Sequence[Sequence[float]] = ((-1.5, 0.5),),
    tolerance: float = 1e-9,
) -> None:
    """Raise unless the rewards of each trajectory add up to 0.

    Args:
        rewards: Shape (M,), one per seat of a trajectory.
        traj: Shape (M,), whole numbers.
        exceptions: Rewards of a trajectory, in any order, that need not.
        tolerance: Of the sum.

    Raises:
        UserError: Naming the first trajectories and their rewards.
    """
    reward = np.asarray(rewards, dtype=np.float64)
    index, count = number_groups([np.asarray(traj)], len(reward))
    off = np.abs(np.bincount(index, reward, minlength=count)) > tolerance
    if not off.any():
        return
    order = np.lexsort((reward, index))
    sizes = np.bincount(index, minlength=count)
    starts = np.cumsum(sizes) - sizes
    for each in exceptions:
        expected = np.sort(np.asarray(each, dtype=np.float64))
        same = np.flatnonzero(off & (sizes == len(expected)))
        found = reward[order[starts[same][:, None] + np.arange(len(expected))]]
        off[same[(np.abs(found - expected) <= tolerance).all(1)]] = False
    bad = np.flatnonzero(off)
    if len(bad):
        numbers = np.asarray(traj)
        shown = "; ".join(
            f"trajectory {int(numbers[order[starts[i]]])}: {reward[order[starts[i] : starts[i] + sizes[i]]].tolist()}"
            for i in bad[:3]
        )
        raise UserError(
            f"zero-sum game: the rewards of {len(bad)} of {count} trajectories do not add up to 0 ({shown}). Give a "
            "row with an empty mask for a seat that never moved, declare the exception, or set zero_sum: false."
        )

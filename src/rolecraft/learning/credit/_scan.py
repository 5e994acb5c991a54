"""Linear recurrences over long arrays, and rows laid end to end as chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import Bools, CreditBatch, Floats, Ints

_SHORT = 16
"""Chains of so many places at most are solved by doubling."""


def scan_back(values: Floats, decay: Floats, longest: int | None = None) -> Floats:
    """Solve y[i] = values[i] + decay[i] * y[i + 1] from the end, with y = 0 after it.

    A decay of 0 ends a chain, so that one call serves many chains laid end to end. The array is cut into blocks that
    are solved side by side; then each block gets what flows in from the next one.

    Args:
        values: Shape (M,).
        decay: Shape (M,).
        longest: Places of the longest chain, if it is known.

    Returns:
        Shape (M,).
    """
    m = len(values)
    if longest is None:
        longest = int(np.diff(np.flatnonzero(decay == 0), prepend=-1, append=m - 1).max(initial=0))
    if longest <= _SHORT:
        return _by_doubling(values, decay, longest)
    length = int(np.sqrt(m))
    blocks = -(-m // length)
    y, flow = np.zeros((blocks, length)), np.zeros((blocks, length))
    y.reshape(-1)[:m], flow.reshape(-1)[:m] = values, decay
    part = np.empty(blocks)
    for place in range(length - 2, -1, -1):
        np.multiply(flow[:, place], y[:, place + 1], out=part)
        y[:, place] += part
        flow[:, place] *= flow[:, place + 1]
    inflow = np.zeros(blocks)
    after = 0.0
    starts = zip(y[::-1, 0].tolist(), flow[::-1, 0].tolist(), strict=True)
    for block, (start, through) in enumerate(starts):
        inflow[blocks - 1 - block] = after
        after = start + through * after
    flow *= inflow[:, None]
    y += flow
    return y.reshape(-1)[:m]


def _by_doubling(values: Floats, decay: Floats, longest: int) -> Floats:
    """Let each place take in twice as many places after it, round by round, until the longest chain is done."""
    y, flow = np.array(values), np.array(decay)
    step = 1
    while step < longest:
        y[:-step] += flow[:-step] * y[step:]
        flow[:-step] *= flow[step:]
        step *= 2
    return y


@dataclass(frozen=True)
class Chains:
    """Rows put in order: chain after chain, and within a chain by turn."""

    order: Ints
    """Shape (N,): the row at each place."""
    last: Bools
    """Shape (N,), by place: the chain ends here."""
    first: Bools
    """Shape (N,), by place: the chain starts here."""

    def decay(self, value: float) -> Floats:
        """Return the decay of a recurrence along the chains, by place."""
        return np.where(self.last, 0.0, value)

    def back(self, by_place: Floats) -> Floats:
        """Return an array by row."""
        out = np.empty_like(by_place)
        out[self.order] = by_place
        return out

    def paid(self, terminal: bool) -> Bools:
        """Return, by row, whether its reward counts: all do, or only the last of each chain."""
        if not terminal:
            return np.ones(len(self.order), dtype=bool)
        out = np.zeros(len(self.order), dtype=bool)
        out[self.order] = self.last
        return out

    def unknown(self, missing: Bools) -> Bools:
        """Return, by row, whether a row or one after it in its chain is missing."""
        if not missing.any():
            return np.zeros(len(missing), dtype=bool)
        after = scan_back(missing[self.order].astype(np.float64), self.decay(1.0))
        return self.back(after) > 0


def chain_rows(batch: CreditBatch, keys: Sequence[str], order: str, stage: str) -> Chains:
    """Lay the rows of a batch out as chains.

    Args:
        batch: The rows.
        keys: Rows that agree in these are one chain: `("traj", "agent")`.
        order: The key that orders a chain: `turn` or `step`.
        stage: Who asks, for the message.

    Raises:
        UserError: If a key is missing, or two rows of a chain have the same place in the order; both are named.
    """
    chain, _ = batch.group_index(keys, stage)
    turn, turns = batch.group_index((order,), stage)
    n = len(chain)
    place = chain * max(turns, 1) + turn
    if n < 2 or (place[1:] > place[:-1]).all():
        rows = np.arange(n)
    else:
        rows = _sorted(place)
        twice = np.flatnonzero(place[rows[1:]] == place[rows[:-1]])
        if len(twice):
            one, other = sorted((int(rows[twice[0]]), int(rows[twice[0] + 1])))
            raise UserError(
                f"{stage}: rows {one} and {other} agree in {', '.join(keys)} and in {order!r} "
                f"({int(batch.keys[order][one])}); a chain has one row per {order}."
            )
        chain = chain[rows]
    last, first = np.ones(n, dtype=bool), np.ones(n, dtype=bool)
    last[:-1] = chain[1:] != chain[:-1]
    first[1:] = last[:-1]
    return Chains(rows, last, first)


def _sorted(place: Ints) -> Ints:
    """Return the rows in the order of their places; by a table where the places are distinct and close together."""
    n, high = len(place), int(place.max())
    if high < 16 * n:
        row_at = np.full(high + 1, -1, dtype=np.int64)
        row_at[place] = np.arange(n)
        rows = row_at[row_at >= 0]
        if len(rows) == n:
            return rows
    return np.argsort(place, kind="stable")

"""Segments of a rollout and their roles (TRIAGE, arXiv 2606.32017): spans, a rule judge, noise in the labels.

A segment is one action towards the world with the reasoning that produced it: the policy's tokens between two
observations. Roles are numbers, the places of `SEGMENT_ROLES`; `UNREAD` is a segment whose judge failed. The rule that
turns them into credit is `triage` in `rolecraft.learning.credit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit import TRIAGE_CONSTANTS, CreditBatch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SEGMENT_ROLES = tuple(TRIAGE_CONSTANTS)
"""D decisive progress, E useful exploration, N no progress, R regression."""
UNREAD = -1


class Span(NamedTuple):
    """The tokens of a segment: `start` is its first, `end` the one after its last."""

    row: int
    start: int
    end: int


def role_codes(labels: Sequence[str | None]) -> Ints:
    """Return labels as numbers; None, where a judge failed, is `UNREAD`.

    Raises:
        UserError: If a label is no role; its segment is named.
    """
    codes = {role: number for number, role in enumerate(SEGMENT_ROLES)}
    found = np.empty(len(labels), dtype=np.int64)
    for segment, label in enumerate(labels):
        if label is not None and label not in codes:
            raise UserError(f"label of segment {segment}: expected one of {', '.join(SEGMENT_ROLES)}, got {label!r}.")
        found[segment] = UNREAD if label is None else codes[label]
    return found


def potential_roles(before: ArrayLike, after: ArrayLike, new: ArrayLike) -> Ints:
    """Judge segments by a potential: the distance to the goal in the true states of the world.

    Args:
        before: Shape (S,), distances before each segment.
        after: Shape (S,), distances after it.
        new: Booleans of shape (S,): the segment showed a place or a fact that its rollout had not seen.

    Returns:
        D where the distance fell, R where it rose; where it stayed, E if something new was seen, else N.

    Raises:
        UserError: If the shapes differ, or a distance is not finite; its segment is named.
    """
    old, now, seen = np.asarray(before, dtype=float), np.asarray(after, dtype=float), np.asarray(new, dtype=bool)
    if not old.shape == now.shape == seen.shape or old.ndim != 1:
        raise UserError(f"expected three arrays of shape (segments,), got {old.shape}, {now.shape} and {seen.shape}.")
    wrong = ~(np.isfinite(old) & np.isfinite(now))
    if wrong.any():
        raise UserError(f"segment {int(np.flatnonzero(wrong)[0])}: its distance to the goal is not finite.")
    decisive, explores, plain, regress = range(len(SEGMENT_ROLES))
    return np.where(now < old, decisive, np.where(now > old, regress, np.where(seen, explores, plain))).astype(np.int64)


def first_seen(things: NDArray[Any], rollouts: NDArray[Any]) -> Bools:
    """Return whether each row's thing occurs for the first time in its rollout, rows being in order.

    Args:
        things: Whole numbers of shape (S,).
        rollouts: Whole numbers of shape (S,).
    """
    pairs = np.stack([np.asarray(rollouts), np.asarray(things)], axis=1)
    found = np.zeros(len(pairs), dtype=bool)
    found[np.unique(pairs, axis=0, return_index=True)[1]] = True
    return found


def noisy_roles(roles: NDArray[Any], rate: float, rng: np.random.Generator) -> Ints:
    """Replace each role, at this rate, by one drawn from all four (so that a quarter of the draws change nothing).

    Raises:
        UserError: If the rate is not in [0, 1].
    """
    if not 0 <= rate <= 1:
        raise UserError(f"the rate of random labels must lie in [0, 1], got {rate}.")
    roles = np.asarray(roles, dtype=np.int64)
    drawn = rng.integers(len(SEGMENT_ROLES), size=roles.shape)
    return np.where((rng.random(roles.shape) < rate) & (roles != UNREAD), drawn, roles)


def segment_batch(
    mask: Bools,
    spans: Sequence[Span] | NDArray[Any],
    outcome: ArrayLike,
    groups: ArrayLike,
    **columns: ArrayLike,
) -> CreditBatch:
    """Turn rollouts into a credit batch of one row per segment, in the order of the spans.

    Args:
        mask: Booleans of shape (N, T): the policy's tokens in each rollout.
        spans: The segments; every policy token lies in exactly one.
        outcome: Shape (N,), the final reward of each rollout.
        groups: Whole numbers of shape (N,): rollouts of one task.
        columns: More columns of shape (S,) by name, such as `label`.

    Returns:
        A batch with the keys `task`, `traj` and `step` (the place within the rollout), and the row columns `outcome`,
        `duration` (segments of the rollout) and those given. Its tokens are those of the longest segment.

    Raises:
        UserError: If there is no span, spans overlap, lie outside the rollout or on tokens that are not the policy's,
            leave out a token of the policy's, or a shape does not fit; rollout and span are named.
    """
    mask = np.asarray(mask)
    marks = check_spans(mask, spans)
    rewards, tasks = np.asarray(outcome, dtype=float), np.asarray(groups)
    for name, values in (("outcome", rewards), ("groups", tasks)):
        if values.shape != mask.shape[:1]:
            raise UserError(f"{name}: expected one per rollout, shape ({len(mask)},), got {values.shape}.")
    for name, column in columns.items():
        if np.shape(column) != (len(marks),):
            raise UserError(f"{name}: expected one per segment, {len(marks)} of them, got shape {np.shape(column)}.")
    row, start, end = marks.T
    order = np.lexsort((start, row))
    counts = np.bincount(row, minlength=len(mask))
    step = np.empty(len(marks), dtype=np.int64)
    step[order] = np.arange(len(marks)) - np.repeat(np.cumsum(counts) - counts, counts)
    length = end - start
    return CreditBatch(
        mask=np.arange(int(length.max())) < length[:, None],
        keys={"task": tasks[row], "traj": row, "step": step},
        row={
            "outcome": rewards[row],
            "duration": counts[row].astype(float),
            **{name: np.asarray(column, dtype=float) for name, column in columns.items()},
        },
    )


def spread_segments(spans: Sequence[Span] | NDArray[Any], values: ArrayLike, mask: Bools) -> Floats:
    """Return an array of shape (N, T) that gives every policy token the value of its segment, and 0 elsewhere.

    Raises:
        UserError: As `segment_batch`.
    """
    marks, numbers = check_spans(np.asarray(mask), spans), np.asarray(values, dtype=float)
    if numbers.shape != (len(marks),):
        raise UserError(f"expected one value per segment, {len(marks)} of them, got shape {numbers.shape}.")
    rows, tokens, segment = _tokens_of(marks)
    found = np.zeros(np.shape(mask))
    found[rows, tokens] = numbers[segment]
    return found


def check_spans(mask: NDArray[Any], spans: Sequence[Span] | NDArray[Any]) -> Ints:
    """Return the spans as an array of shape (S, 3), if they part the policy's tokens; see `segment_batch`."""
    if mask.ndim != 2 or mask.dtype != np.bool_:
        raise UserError(f"mask: expected booleans of shape (rollouts, tokens), got {mask.dtype} of {mask.shape}.")
    marks = np.asarray(spans)
    if not len(marks):
        raise UserError("spans: expected one or more segments, got none.")
    if marks.ndim != 2 or marks.shape[1] != 3 or not np.issubdtype(marks.dtype, np.integer):
        raise UserError(f"spans: expected whole numbers (row, start, end), got {marks.dtype} of shape {marks.shape}.")
    n, longest = mask.shape
    row, start, end = marks.T
    outside = (row < 0) | (row >= n) | (start < 0) | (end > longest) | (end <= start)
    if outside.any():
        raise UserError(f"{_named(marks, outside)}: expected rollouts 0 to {n - 1} and 0 <= start < end <= {longest}.")
    rows, tokens, segment = _tokens_of(marks)
    alien = ~mask[rows, tokens]
    if alien.any():
        place = int(np.flatnonzero(alien)[0])
        raise UserError(
            f"{_named(marks, segment[place])}: token {tokens[place]} is not the policy's (its mask is False); "
            "a segment holds the tokens between two observations only."
        )
    times = np.bincount(rows * longest + tokens, minlength=n * longest).reshape(n, longest)
    if (times > 1).any():
        place = int(np.flatnonzero(times[rows, tokens] > 1)[-1])
        raise UserError(f"{_named(marks, segment[place])}: it overlaps another at token {tokens[place]}.")
    if (mask & (times == 0)).any():
        lost, token = np.argwhere(mask & (times == 0))[0]
        raise UserError(f"rollout {lost}: token {token} is the policy's but lies in no segment; give it a span.")
    return marks.astype(np.int64)


def _tokens_of(marks: Ints) -> tuple[Ints, Ints, Ints]:
    """Return row, token and segment of every token in a segment."""
    row, start, end = marks.T
    length = end - start
    segment = np.repeat(np.arange(len(marks)), length)
    first = np.repeat(np.cumsum(length) - length, length)
    return row[segment], start[segment] + np.arange(len(segment)) - first, segment


def _named(marks: Ints, which: Any) -> str:
    place = int(np.flatnonzero(which)[0]) if np.ndim(which) else int(which)
    row, start, end = map(int, marks[place])
    return f"segment {place} (rollout {row}, tokens {start} to {end})"

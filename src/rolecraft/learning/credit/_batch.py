"""The row type of every credit rule, and the pipeline of stages over it. No model library is imported here."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError, did_you_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_WIDE = 16
"""A range of keys wider than this many times the rows is sorted; a narrower one is looked up in a table."""
_NARROW = 32
"""Rows of fewer tokens are counted column by column."""


_FEW = 8
"""Rows of up to so many tokens are worked on column by column."""


class NoSignalWarning(UserWarning):
    """A batch whose advantages are all zero: an update on it teaches nothing."""


@dataclass(frozen=True)
class CreditBatch:
    """N rows of at most T tokens; a row is one model call or one agent's step (T = 1 where there is no text).

    Raises:
        UserError: If a column has another shape than `mask` says, holds a number that is not finite, or keys are not
            whole numbers; the column and the first bad row are named.
    """

    mask: Bools
    """Shape (N, T): the tokens that are trained. Other agents' tokens and the world's never are."""
    keys: Mapping[str, Ints]
    """Columns of shape (N,) that say what a row belongs to: `task`, `traj`, `step`, `agent`, `role`, `turn`, `policy`,
    `game`, `anchor`, ..."""
    row: Mapping[str, Floats] = field(default_factory=dict)
    """Columns of shape (N,): `outcome` (final reward of the row's trajectory for its agent), `reward` (its own),
    `team_reward`, `score`, `factor`, `duration`, `steps_to_end`, `label`, `q`, `q_next`, `value`, `value_next`, ..."""
    token: Mapping[str, Floats] = field(default_factory=dict)
    """Columns of shape (N, T): `logp_old`, `logp_ref`, `logp_teacher`, `value`, `reward`, ..."""
    objectives: Mapping[str, Floats] = field(default_factory=dict)
    """Rewards that are kept apart by name, each of shape (N,)."""
    valid: Bools | None = None
    """Shape (N,). False: the row's reward is unknown (a judge failed), so that it is left out, never scored 0."""

    _groups: dict[tuple[str, ...], tuple[Ints, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Numbers of groups that were asked for before: several stages of a rule ask for the same."""
    _memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Other figures of the rows that several stages ask for."""

    def __post_init__(self) -> None:
        mask = np.asarray(self.mask)
        if mask.ndim != 2 or mask.dtype != np.bool_:
            raise UserError(f"mask: expected booleans of shape (rows, tokens), got {mask.dtype} of shape {mask.shape}.")
        object.__setattr__(self, "mask", mask)
        n = mask.shape[0]
        object.__setattr__(self, "keys", {name: _whole(f"key {name!r}", keys, n) for name, keys in self.keys.items()})
        known = np.ones(n, dtype=bool) if self.valid is None else np.asarray(self.valid)
        if known.shape != (n,) or known.dtype != np.bool_:
            raise UserError(f"valid: expected booleans of shape ({n},), got {known.dtype} of shape {known.shape}.")
        object.__setattr__(self, "valid", known)
        for kind in ("row", "objectives"):
            columns = {name: _finite(name, values, known) for name, values in getattr(self, kind).items()}
            object.__setattr__(self, kind, columns)
        tokens = {name: _finite(name, values, mask) for name, values in self.token.items()}
        object.__setattr__(self, "token", tokens)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens."""
        return self.mask.shape[0], self.mask.shape[1]

    @property
    def lengths(self) -> Ints:
        """Shape (N,): trained tokens of each row."""
        if "lengths" not in self._memo:
            lengths = count_true(self.mask)
            lengths.setflags(write=False)  # it is shared
            self._memo["lengths"] = lengths
        found: Ints = self._memo["lengths"]
        return found

    def counts(self, tokens: Bools) -> Ints:
        """Return how many of some tokens, of shape (N, T), each row has, of shape (N,)."""
        return self.lengths if tokens is self.mask else count_true(tokens)

    @property
    def known(self) -> Bools:
        """Shape (N,): the rows whose reward is known."""
        return np.ones(self.shape[0], dtype=bool) if self.valid is None else self.valid

    def column(self, name: str, stage: str) -> Floats:
        """Return a column of shape (N,).

        Raises:
            UserError: If the batch lacks it, naming the stage that needs it.
        """
        return _look_up("row column", self.row, name, stage)

    def tokens(self, name: str, stage: str) -> Floats:
        """Return a column of shape (N, T), 0 off the mask.

        Raises:
            UserError: If the batch lacks it, naming the stage that needs it.
        """
        return _look_up("token column", self.token, name, stage)

    def group_index(self, keys: Sequence[str], stage: str) -> tuple[Ints, int]:
        """Number the groups of rows that agree in all these keys.

        Args:
            keys: Names of keys; none puts all rows in one group.
            stage: Who asks, for the message.

        Returns:
            An array of shape (N,) of numbers from 0, in the order of the sorted keys, and how many groups there are.

        Raises:
            UserError: If the batch lacks a key.
        """
        wanted = tuple(keys)
        if wanted not in self._groups:
            columns = [_look_up("key", self.keys, name, stage) for name in wanted]
            index, count = number_groups(columns, self.shape[0])
            index.setflags(write=False)  # it is shared
            self._groups[wanted] = index, count
        return self._groups[wanted]


def number_groups(columns: Sequence[Ints], n: int) -> tuple[Ints, int]:
    """Number the groups of rows that agree in all columns.

    Args:
        columns: Whole numbers, each of shape (n,); none puts all rows in one group.
        n: How many rows.

    Returns:
        Numbers from 0 of shape (n,), in the order of the sorted columns, and how many groups there are.
    """
    if not columns or not n:
        return np.zeros(n, dtype=np.int64), min(n, 1)
    index, count = _ranks(columns[0])
    for column in columns[1:]:
        ranks, values = _ranks(column)
        nested = _nested(index, count, ranks, values) if count * values > _WIDE * n else None
        index, count = nested or _ranks(index * values + ranks)
    return index, count


def _nested(outer: Ints, outers: int, inner: Ints, inners: int) -> tuple[Ints, int] | None:
    """Number the pairs where each inner group lies in one outer group, as trajectories do in tasks, or the reverse."""
    home = outer[group_firsts(inner, inners)]
    if (home[inner] == outer).all():
        ranks = np.empty(inners, dtype=np.int64)
        ranks[np.argsort(home, kind="stable")] = np.arange(inners)
        return ranks[inner], inners
    if (inner[group_firsts(outer, outers)][outer] == inner).all():
        return outer, outers
    return None


def count_true(mask: Bools) -> Ints:
    """Count each row's True, shape (N, T) to (N,)."""
    n, width = mask.shape
    if width > _NARROW:
        return np.asarray(np.count_nonzero(mask, axis=1), dtype=np.int64)
    counts = np.zeros(n, dtype=np.int8)
    for column in mask.view(np.int8).T:
        counts += column
    return counts.astype(np.int64)


def zero_off(values: Floats, where: Bools) -> Floats:
    """Return a copy of values that is 0 where `where` is False, whatever stood there; both of one shape.

    What `np.where(where, values, 0.0)` gives, bit for bit, several times faster: a number's bits are kept or cleared.
    """
    kept = np.ascontiguousarray(values).view(np.int64) & -where.view(np.int8)
    cleared: Floats = kept.view(np.float64)
    return cleared


def apply_to_rows(operation: np.ufunc, values: Floats, rows: Floats) -> None:
    """Apply an operation between values of shape (N, T) and a number per row, shape (N,), in place.

    The same numbers as `operation(values, rows[:, None], out=values)`; rows of few tokens are done column by column.
    """
    if values.shape[1] > _FEW:
        operation(values, rows[:, None], out=values)
        return
    for column in values.T:
        operation(column, rows, out=column)


def group_firsts(index: Ints, count: int) -> Ints:
    """Return the first row of each group, of shape (count,)."""
    first = np.zeros(count, dtype=np.int64)
    first[index[::-1]] = np.arange(len(index))[::-1]
    return first


def group_means(values: Floats, index: Ints, count: int) -> Floats:
    """Return the mean of each group, of shape (count,); it is exact where all values of a group are equal."""
    pivot = values[group_firsts(index, count)] if len(values) else np.zeros(count)
    off = np.bincount(index, values - pivot[index], minlength=count)
    mean: Floats = pivot + off / np.maximum(np.bincount(index, minlength=count), 1)
    return mean


def _ranks(values: Ints) -> tuple[Ints, int]:
    """Replace values by their rank among the distinct ones; by a table where the range is narrow, which is faster."""
    low, high = int(values.min()), int(values.max())
    if high - low > _WIDE * len(values) + 1024:
        distinct, inverse = np.unique(values, return_inverse=True)
        return inverse.ravel().astype(np.int64), len(distinct)
    shifted = values - low
    present = np.zeros(high - low + 1, dtype=bool)
    present[shifted] = True
    ranks = np.cumsum(present, dtype=np.int64)
    ranks -= 1
    return ranks[shifted], int(ranks[-1]) + 1


@dataclass(frozen=True)
class AuxLoss:
    """A loss beside the policy gradient, which the trainer differentiates."""

    name: str
    """Of a loss of `rolecraft.learning`, such as `is_k3`."""
    weight: float
    token: Floats
    """Shape (N, T): what it needs, such as the teacher's log-probabilities."""


@dataclass(frozen=True)
class Carry:
    """What the stages pass on."""

    reward: Floats
    """Shape (N,)."""
    advantage: Floats
    """Shape (N,); a row's, before it is spread over its tokens."""
    weight: Floats
    """Shape (N,): how much a row counts in the loss."""
    keep: Bools
    """Shape (N,): False takes a row out of the loss."""
    token_advantage: Floats | None = None
    """Shape (N, T); None: every token has its row's. Once it is set, later stages work on it."""
    signal: Floats | None = None
    """Shape (N, T): a teacher's say on each token, until a stage adds it to the advantage or multiplies it in."""
    targets: Floats | None = None
    """Shape (N, T): what a critic should learn."""
    aux: tuple[AuxLoss, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)
    """Figures for the log, by `stage/name`."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Running tables by stage, as JSON holds them; read and replaced, never changed in place."""

    def note(self, **info: Any) -> Carry:
        """Return a copy with more figures."""
        return replace(self, info={**self.info, **info})


def add_advantage(carry: Carry, rows: Floats | None = None, tokens: Floats | None = None) -> Carry:
    """Add to the advantage, at the level it has reached.

    Args:
        carry: What was passed on.
        rows: Shape (N,).
        tokens: Shape (N, T); the advantage is then held by token.
    """
    if rows is not None:
        carry = replace(carry, advantage=carry.advantage + rows)
        if carry.token_advantage is not None:
            carry = replace(carry, token_advantage=carry.token_advantage + rows[:, None])
    if tokens is not None:
        if carry.token_advantage is not None:
            tokens = tokens + carry.token_advantage
        elif carry.advantage.any():
            tokens = tokens + carry.advantage[:, None]
        carry = replace(carry, token_advantage=tokens)
    return carry


def multiply_advantage(carry: Carry, rows: Floats) -> Carry:
    """Multiply each row's advantage, at the level it has reached; `rows` has shape (N,)."""
    carry = replace(carry, advantage=carry.advantage * rows)
    if carry.token_advantage is None:
        return carry
    return replace(carry, token_advantage=carry.token_advantage * rows[:, None])


class Stage(Protocol):
    """A pure function from a carry to the next."""

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Return what is passed on."""
        ...


@dataclass(frozen=True)
class CreditResult:
    """What a rule gives the trainer."""

    advantages: Floats
    """Shape (N, T): finite, 0 off the mask and in rows that are left out."""
    weights: Floats
    """Shape (N,): 0 in rows that are left out."""
    keep: Bools
    targets: Floats | None
    aux: tuple[AuxLoss, ...]
    info: Mapping[str, Any]
    state: Mapping[str, Any]
    """To be handed to the next call, and saved in checkpoints: plain JSON."""


def assign_credit(batch: CreditBatch, stages: Iterable[Stage], state: Mapping[str, Any] | None = None) -> CreditResult:
    """Run a credit rule over a batch.

    The reward starts as the row column `outcome` (0 where there is none), the advantage as 0, all weights as 1, and
    rows are kept that are valid and have a trained token.

    Args:
        batch: The rows.
        stages: The rule, in order.
        state: What the last call returned; None at the start.

    Warns:
        NoSignalWarning: If every advantage is 0 and there is no auxiliary loss.

    Raises:
        UserError: If a stage lacks a column, or an advantage is not finite; the row is named.
    """
    n, _ = batch.shape
    keep = batch.known & (batch.lengths > 0)
    reward = np.where(batch.known, batch.row.get("outcome", np.zeros(n)), 0.0)
    carry = Carry(reward, np.zeros(n), np.ones(n), keep, state=dict(state or {}))
    for stage in stages:
        carry = stage(batch, carry)
    advantages = _spread(batch.mask, carry)
    silent = not advantages.any() and not any(aux.weight for aux in carry.aux)
    if silent:
        warnings.warn(
            f"a batch of {n} rows carries no signal: every advantage is 0 (rewards that do not differ within their "
            "groups, or no row that is kept).",
            NoSignalWarning,
            stacklevel=2,
        )
    carry = carry.note(rows=n, kept=int(carry.keep.sum()), no_signal=silent)
    weights = np.where(carry.keep, carry.weight, 0.0)
    return CreditResult(advantages, weights, carry.keep, carry.targets, carry.aux, carry.info, carry.state)


def _spread(mask: Bools, carry: Carry) -> Floats:
    """Give every trained token of the rows that are kept its advantage, and 0 to the others."""
    if carry.token_advantage is None:
        given = np.where(carry.keep, carry.advantage, 0.0)[:, None]
    else:
        trained = mask if carry.keep.all() else mask & carry.keep[:, None]
        given = zero_off(carry.token_advantage, trained)
    if not np.isfinite(given).all():
        spread = np.where(mask, given, 0.0)
        row, token = np.argwhere(~np.isfinite(spread))[0]
        raise UserError(f"credit: the advantage of row {row}, token {token} is {spread[row, token]}.")
    if carry.token_advantage is not None:
        return given
    return np.repeat(given, mask.shape[1], axis=1) * mask


def _look_up(what: str, columns: Mapping[str, NDArray[Any]], name: str, stage: str) -> NDArray[Any]:
    if name not in columns:
        raise UserError(
            f"{stage}: the batch has no {what} {name!r} (it has {', '.join(columns) or 'none'})."
            f"{did_you_mean(name, columns)}"
        )
    return columns[name]


def _whole(what: str, values: Any, n: int) -> Ints:
    array = np.asarray(values)
    if array.shape != (n,) or not np.issubdtype(array.dtype, np.integer):
        raise UserError(f"{what}: expected {n} whole numbers, got {array.dtype} of shape {array.shape}.")
    return array.astype(np.int64)


def _finite(name: str, values: Any, where: Bools) -> Floats:
    """Return a column as floats, 0 where it does not count."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != where.shape:
        raise UserError(f"column {name!r}: expected shape {where.shape}, got {array.shape}.")
    array = array.copy() if where.all() else zero_off(array, where)
    if not np.isfinite(array).all():
        place = tuple(int(each) for each in np.argwhere(~np.isfinite(array))[0])
        raise UserError(f"column {name!r}: row {place[0]} holds {array[place]}{_token(place)}.")
    return array


def _token(place: tuple[int, ...]) -> str:
    return f" at token {place[1]}" if len(place) > 1 else ""

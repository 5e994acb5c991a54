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
        columns = [_look_up("key", self.keys, name, stage) for name in keys]
        n = self.shape[0]
        if not columns or not n:
            return np.zeros(n, dtype=np.int64), min(n, 1)
        index = np.zeros(n, dtype=np.int64)
        count = 1
        for column in columns:
            values, inverse = np.unique(column, return_inverse=True)
            _, index = np.unique(index * len(values) + inverse.ravel(), return_inverse=True)
            index = index.ravel().astype(np.int64)
            count = int(index.max()) + 1
        return index, count


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
    valid = np.ones(n, dtype=bool) if batch.valid is None else batch.valid
    keep = valid & batch.mask.any(1)
    reward = np.where(valid, batch.row.get("outcome", np.zeros(n)), 0.0)
    carry = Carry(reward, np.zeros(n), np.ones(n), keep, state=dict(state or {}))
    for stage in stages:
        carry = stage(batch, carry)
    spread = carry.advantage[:, None] if carry.token_advantage is None else carry.token_advantage
    advantages = np.where(batch.mask & carry.keep[:, None], spread, 0.0)
    if not np.isfinite(advantages).all():
        row, token = np.argwhere(~np.isfinite(advantages))[0]
        raise UserError(f"credit: the advantage of row {row}, token {token} is {advantages[row, token]}.")
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
    array = np.where(where, array, 0.0)
    if not np.isfinite(array).all():
        place = tuple(int(each) for each in np.argwhere(~np.isfinite(array))[0])
        raise UserError(f"column {name!r}: row {place[0]} holds {array[place]}{_token(place)}.")
    return array


def _token(place: tuple[int, ...]) -> str:
    return f" at token {place[1]}" if len(place) > 1 else ""

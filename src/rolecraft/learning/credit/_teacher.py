"""A teacher's say on each token, centred, gated and bounded: ADRS (arXiv 2608.03223) and its sibling RLSD, on arrays.

The teacher is the same model with a privileged prompt (skills, a role's notes); it rescores the tokens that the student
wrote. Its log-probability of each is `logp_teacher`. Everything here takes arrays of N rows (a row is one model call,
one step of an episode) by T tokens; the stages are in `_teacher_stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import Bools, Floats, Ints, apply_to_rows, count_true, number_groups, zero_off

SignalScale = Literal["per_seq", "global", "none"]
Baseline = Literal["step", "global"]
ABOVE_ZERO = 1e-6
"""How far rounding may lift a log-probability above 0."""


def refuse_log_probs(name: str, values: NDArray[Any], mask: Bools) -> Floats:
    """Return log-probabilities as floats, after a check of the tokens under the mask.

    Args:
        name: Of the column, for messages.
        values: Shape (N, T).
        mask: Shape (N, T): the tokens that count.

    Raises:
        UserError: If the shape differs from the mask's, or a number under the mask is NaN, infinite or above 0; the row
            and token are named.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.shape != mask.shape:
        raise UserError(
            f"{name}: expected one log-probability for each of the student's tokens, shape {mask.shape}, got shape "
            f"{array.shape}; the teacher must rescore the same token ids, so shorten its skill and never the reply."
        )
    sound = (array <= ABOVE_ZERO) & (array > -np.inf)
    if not sound.all() and not (sound | ~mask).all():
        row, token = (int(place) for place in np.argwhere(~sound & mask)[0])
        raise UserError(
            f"{name}: row {row}, token {token} has log-probability {array[row, token]}; expected a finite number of at "
            "most 0. Check that the values are logs, and that the teacher scored the very tokens that were sampled."
        )
    return array


# The signal q


def teacher_signal(
    logp_teacher: NDArray[Any],
    mask: Bools,
    step_id: NDArray[Any] | None = None,
    *,
    scale: SignalScale = "per_seq",
    baseline: Baseline = "step",
    eps: float = 1e-8,
    counts: NDArray[Any] | None = None,
) -> tuple[Floats, dict[str, Any]]:
    """Centre the teacher's log-probabilities and scale them: q, whose sum over each step is 0.

    Args:
        logp_teacher: Shape (N, T).
        mask: Shape (N, T).
        step_id: Shape (N, T), whole numbers from 0: which step of its row a token belongs to. None: a row is one step.
        scale: `per_seq` divides each row by its own standard deviation, `global` all by that of all tokens.
        baseline: `step` subtracts the mean of the token's step; `global` that of all tokens, after which the sums over
            steps are not 0 and the signal moves the rank of whole steps.
        eps: Added to the standard deviation, so that a step of equal values gets 0.
        counts: Shape (N,): tokens under the mask in each row, where they are known; None: they are counted.

    Returns:
        q of shape (N, T), 0 off the mask, and figures: steps of one token (whose q is 0), the largest sum of a step.

    Raises:
        UserError: If shapes or options do not fit, or a log-probability cannot be one.
    """
    if scale not in ("per_seq", "global", "none") or baseline not in ("step", "global"):
        raise UserError(
            "teacher signal: scale is per_seq, global or none, and baseline is step or global; got "
            f"{scale!r} and {baseline!r}."
        )
    if not eps >= 0:
        raise UserError(f"teacher signal: eps must be 0 or more, got {eps!r}.")
    values = zero_off(refuse_log_probs("logp_teacher", logp_teacher, mask), mask)
    lengths = _lengths(mask, counts)
    steps = _Steps.of(mask, step_id, lengths)
    if baseline == "step":
        steps.subtract(values, steps.sum(values) / np.maximum(steps.length, 1))
    else:
        values -= values.sum() / max(int(lengths.sum()), 1)
    values *= mask
    if scale != "none":
        std = _deviation(values, mask, lengths, scale, centred=baseline == "step")
        factor = np.where(std > eps, 1 / np.maximum(std + eps, np.finfo(float).tiny), 0.0)
        apply_to_rows(np.multiply, values, np.broadcast_to(factor, len(values)))
    sums = np.abs(steps.sum(values))
    return values, {
        "steps": int((steps.length > 0).sum()),
        "one_token_steps": int((steps.length == 1).sum()),
        "step_sum": float(sums.max(initial=0.0)),
    }


@dataclass(frozen=True)
class _Steps:
    """Which step each token lies in."""

    index: Ints | None
    """Shape (N * T,); None: a row is one step."""
    length: Floats
    """Shape (steps,): tokens under the mask."""
    shape: tuple[int, ...]

    @classmethod
    def of(cls, mask: Bools, step_id: NDArray[Any] | None, lengths: Floats) -> _Steps:
        if step_id is None:
            return cls(None, lengths, mask.shape)
        ids = np.where(mask, step_id, 0) if np.shape(step_id) == mask.shape else None
        if ids is None or (ids < 0).any() or (ids != np.floor(ids)).any():
            raise UserError(f"step_id: expected whole numbers from 0, one for each token of shape {mask.shape}.")
        steps = ids.astype(np.int64).ravel()
        rows = np.repeat(np.arange(len(mask)), mask.shape[1])
        width = int(steps.max(initial=0)) + 1
        if width <= 4 * mask.shape[1] + 16:
            index, count = rows * width + steps, len(mask) * width
        else:
            index, count = number_groups([rows, steps], len(rows))
        return cls(index, np.asarray(np.bincount(index, mask.ravel(), count), dtype=np.float64), mask.shape)

    def sum(self, values: Floats) -> Floats:
        """Return the sums over steps of values that are 0 off the mask."""
        if self.index is None:
            return row_sums(values)
        return np.asarray(np.bincount(self.index, values.ravel(), len(self.length)), dtype=np.float64)

    def subtract(self, values: Floats, figures: Floats) -> None:
        """Subtract a figure of each step from its tokens, in place."""
        if self.index is None:
            apply_to_rows(np.subtract, values, figures)
        else:
            values -= figures[self.index].reshape(self.shape)


def row_sums(values: NDArray[Any]) -> Floats:
    """Return the sums over tokens, of shape (N,); a product is several times faster than `sum` where rows are short."""
    total: Floats = values.astype(np.float64, copy=False) @ np.ones(values.shape[1])
    return total


def _lengths(mask: Bools, counts: NDArray[Any] | None) -> Floats:
    """Return the tokens under the mask in each row, of shape (N,), counted unless they are given."""
    return np.asarray(count_true(mask) if counts is None else counts, dtype=np.float64)


def _counted(index: Ints, used: Bools, count: int) -> NDArray[Any]:
    """Return how many used rows each group has, of shape (count,); without weights where all are, which is faster."""
    if used.all():
        return np.bincount(index, minlength=count)
    return np.bincount(index, used, count)


def _deviation(values: Floats, mask: Bools, lengths: Floats, scale: SignalScale, centred: bool) -> Floats:
    """Return the standard deviation of each row, of shape (N,), or of all tokens, of shape (1,).

    Over all tokens the mean is 0 already; so is each row's where steps were `centred`.
    """
    counts = np.maximum(lengths, 1)
    if scale == "per_seq" and not centred:
        values = (values - (row_sums(values) / counts)[:, None]) * mask
    squares = np.einsum("nt,nt->n", values, values)
    if scale == "global":
        squares, counts = squares.sum(keepdims=True), np.maximum(lengths.sum(keepdims=True), 1)
    std: Floats = np.sqrt(squares / counts)
    return std


def whiten_signal(
    signal: NDArray[Any],
    mask: Bools,
    groups: NDArray[Any],
    *,
    eps: float = 1e-8,
    counts: NDArray[Any] | None = None,
) -> Floats:
    """Whiten a token signal within groups of rows: (x - mean) / sqrt(variance + eps) over the group's tokens.

    A factor that is the same for a whole group cancels here (exactly so for `eps` 0): a gate of the prompt, or the
    strength of the shaping, must come after it.

    Args:
        signal: Shape (N, T), 0 off the mask.
        mask: Shape (N, T).
        groups: Shape (N,), numbers from 0.
        eps: Added to the variance.
        counts: See `teacher_signal`.
    """
    index = np.asarray(groups)
    tokens = np.maximum(np.bincount(index, _lengths(mask, counts)), 1)
    mean = np.bincount(index, row_sums(signal)) / tokens
    off: Floats = np.array(signal, dtype=np.float64)
    apply_to_rows(np.subtract, off, mean[index])
    off *= mask
    variance = np.bincount(index, np.einsum("nt,nt->n", off, off)) / tokens
    scale = np.sqrt(variance + eps)
    apply_to_rows(np.multiply, off, np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)[index])
    return off


# The gate m


def alignment(
    logp_teacher: NDArray[Any],
    mask: Bools,
    units: NDArray[Any] | None = None,
    *,
    temperature: float = 1.0,
    counts: NDArray[Any] | None = None,
) -> Floats:
    """Return how much better than the average token the teacher likes each completion: sigmoid of the difference.

    Args:
        logp_teacher: Shape (N, T), 0 off the mask.
        mask: Shape (N, T).
        units: Shape (N,), numbers from 0: rows of one completion, such as a trajectory. None: a row is one.
        temperature: Divides the difference.
        counts: See `teacher_signal`.

    Returns:
        Numbers in (0, 1), of shape (N,).

    Raises:
        UserError: If the temperature is not above 0.
    """
    if not temperature > 0:
        raise UserError(f"alignment: the temperature must be above 0, got {temperature!r}.")
    sums, lengths = row_sums(np.asarray(logp_teacher) * mask), _lengths(mask, counts)
    overall = sums.sum() / max(lengths.sum(), 1)
    if units is not None:
        index = np.asarray(units)
        sums, lengths = np.bincount(index, sums)[index], np.bincount(index, lengths)[index]
    return _sigmoid((sums / np.maximum(lengths, 1) - overall) / temperature)


def teacher_value_advantage(
    alpha: NDArray[Any], returns: NDArray[Any], groups: NDArray[Any], where: NDArray[Any] | None = None
) -> tuple[Floats, Bools]:
    """Return by how much the returns that the teacher sides with exceed those that it does not, in each row's group.

    Sum(alpha R) / sum(alpha) - sum((1 - alpha) R) / sum(1 - alpha): below 0 where the teacher likes what fails.

    Args:
        alpha: Shape (N,), in (0, 1): see `alignment`.
        returns: Shape (N,).
        groups: Shape (N,), numbers from 0: rows that started from the same prompt or state.
        where: Shape (N,): the rows that count.

    Returns:
        The advantage of each row's group, of shape (N,), 0 in groups of fewer than two rows; and whether it has one.
    """
    index = np.asarray(groups)
    used = np.ones(len(index), dtype=bool) if where is None else np.asarray(where)
    count = int(index.max(initial=-1)) + 1
    every = bool(used.all())
    given = np.asarray(returns)
    pivot = np.zeros(count)
    pivot[(index if every else index[used])[::-1]] = (given if every else given[used])[::-1]
    off = given - pivot[index]

    def mean(weight: Floats) -> Floats:
        total = np.bincount(index, weight if every else weight * used, count)
        product = np.bincount(index, weight * off if every else np.where(used, weight * off, 0.0), count)
        return np.divide(product, total, out=np.zeros(count), where=total > 0)

    pairs = _counted(index, used, count) > 1
    alpha = np.asarray(alpha, dtype=np.float64)
    value = np.where(pairs, mean(alpha) - mean(1 - alpha), 0.0)
    return (value[index], pairs[index]) if every else (value[index] * used, pairs[index] & used)


def teacher_gate(
    value: NDArray[Any], known: NDArray[Any], *, tau: float = 2.0, normalise: bool = True
) -> tuple[Floats, dict[str, Any]]:
    """Return the gate sigmoid(tau * value), 0.5 where no value is known.

    Args:
        value: Shape (N,) or (N, T): how far the teacher agrees with what pays.
        known: Booleans of the same shape.
        tau: Steepness.
        normalise: Divide by the standard deviation of the known values without centring them, so that their sign is
            kept: raw values are so small that the gate would be 0.5 everywhere. Values that do not differ are left.

    Raises:
        UserError: If `tau` is negative.
    """
    if not tau >= 0:
        raise UserError(f"teacher gate: tau must be 0 or more, got {tau!r}.")
    there = np.asarray(known, dtype=bool)
    every = bool(there.all())
    values = np.array(value, dtype=np.float64) if every else np.where(there, value, 0.0)
    kept = values if every else values[there]
    mean, std = (float(kept.mean()), float(kept.std())) if len(kept) else (0.0, 0.0)
    if normalise and std > 1e-8:
        values = values / std
    gate = _sigmoid(tau * values)
    return gate, {
        "tva_mean": mean,
        "tva_std": std,
        "tva_positive": float((kept > 0).mean()) if len(kept) else 0.0,
        "gate": float((gate if every else gate[there]).mean()) if len(kept) else 0.5,
    }


def _sigmoid(x: Floats) -> Floats:
    result: Floats = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return result


# Into the advantage


def bounded_term(
    signal: NDArray[Any],
    spread: NDArray[Any],
    *,
    eta: float = 0.1,
    clip: float | None = 0.2,
    typical: float | None = None,
    min_spread: float = 1e-6,
) -> tuple[Floats, Bools]:
    """Return what is added to the advantage of each token: eta * signal, cut at the clip.

    Args:
        signal: Shape (N, T): the whitened and gated signal.
        spread: Shape (N,): standard deviation of the outcomes in the row's prompt group, 0 for a group of one.
        eta: Strength; negative only to show what the wrong sign does.
        clip: Largest size of the term; None leaves it unbounded.
        typical: Scale the clip by min(1, spread / typical), so that the teacher says less where outcomes hardly differ;
            the median of the live groups' spreads. None leaves the clip as it is.
        min_spread: Groups below it are dead: they get nothing.

    Returns:
        The term of shape (N, T), and which rows are live.
    """
    spread = np.asarray(spread, dtype=np.float64)
    live: Bools = spread >= min_spread
    term: Floats = np.array(signal, dtype=np.float64)
    apply_to_rows(np.multiply, term, eta * live.astype(np.float64))
    if clip is not None and typical is None:
        np.clip(term, -clip, clip, out=term)
    elif clip is not None:
        bound = clip * np.minimum(1.0, spread / typical)[:, None]
        np.clip(term, -bound, bound, out=term)
    return term, live


def multiplied_advantage(
    advantage: NDArray[Any], gap: NDArray[Any], *, strength: float = 0.5, clip: float = 0.2
) -> Floats:
    """Return RLSD's advantage: A * ((1 - strength) + strength * clip(exp(sign(A) * gap), 1 - clip, 1 + clip)).

    Args:
        advantage: Shape (N, T) or (N, 1).
        gap: Shape (N, T): the teacher's log-probability less the student's.
        strength: In [0, 1].
        clip: In [0, 1): how far a factor may leave 1.
    """
    given = np.asarray(advantage, dtype=np.float64)
    low, high = np.log1p(-clip), np.log1p(clip)
    factor: Floats = np.sign(given) * np.asarray(gap)
    np.clip(factor, low, high, out=factor)
    np.exp(factor, out=factor)
    factor *= strength
    factor += 1 - strength
    factor *= given
    return factor


@dataclass(frozen=True)
class Shaped:
    """The teacher's reward of each token."""

    reward: Floats
    """Shape (N, T): eta * gate * q. Its sum over a step is 0 where the gate is one number per row."""
    gate: Floats
    """Shape (N, T)."""
    info: Mapping[str, Any]


def adrs_shape(
    logp_teacher: NDArray[Any],
    mask: Bools,
    rewards: NDArray[Any],
    groups: NDArray[Any],
    *,
    step_id: NDArray[Any] | None = None,
    eta: float = 0.1,
    scale: SignalScale = "per_seq",
    tau: float = 2.0,
    temperature: float = 1.0,
    gate_norm: bool = True,
) -> Shaped:
    """Return the teacher's token rewards, to be added to those of a rule with returns (GAE, return-to-go).

    Group-relative rules take the stages instead (`TeacherCenter`, `WhitenSignal`, `TvaGate`, `AddToken`).

    Args:
        logp_teacher: Shape (N, T).
        mask: Shape (N, T).
        rewards: Shape (N,): outcomes for groups of one prompt, discounted returns for groups of one state.
        groups: Shape (N,), numbers from 0.
        step_id: See `teacher_signal`.
        eta: Strength.
        scale: See `teacher_signal`.
        tau: See `teacher_gate`.
        temperature: See `alignment`.
        gate_norm: See `teacher_gate`.

    Raises:
        UserError: If shapes or options do not fit, or a log-probability cannot be one.
    """
    signal, info = teacher_signal(logp_teacher, mask, step_id, scale=scale)
    alpha = alignment(np.where(mask, logp_teacher, 0.0), mask, temperature=temperature)
    there: Bools = row_sums(mask) > 0
    value, known = teacher_value_advantage(alpha, rewards, groups, there)
    gate, figures = teacher_gate(value, known, tau=tau, normalise=gate_norm)
    spread = np.where(mask, gate[:, None], 0.0)
    return Shaped(eta * spread * signal, spread, {**info, **figures})

"""MOA's scalariser: the objective that outruns its own trend leads, rows that pull against it go (arXiv 2512.09756)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints, number_groups
from rolecraft.learning.credit._scalarise import Ranges, check_ranges, objective_matrix, refuse_string, weights_of

Elimination = Literal["below_mean", "concordant", "none"]
"""Which rows of a group are left out, with p a row's reward of the pivot and R its combined one.

`below_mean`: p is below the group's mean and R above it, so that the row would be pushed up against the pivot.
`concordant`: all but the largest set in which a row with a higher p has no lower R.
"""
_SAME = 1e-9
"""Rewards in [0, 1] that are nearer than this are equal, so that rounding drops no row and breaks no tie."""


def trend_residual(mean: ArrayLike, history: ArrayLike) -> tuple[Floats, Floats]:
    """Compare the objectives' means with the lines through their last means.

    Args:
        mean: Shape (D,), of this step.
        history: Shape (K, D), of the K steps before it, oldest first.

    Returns:
        What the least-squares lines over the steps give for this one, and mean less that; both of shape (D,). With
        fewer than two steps before it there is no line: the means themselves, and 0.

    Raises:
        UserError: If the shapes do not fit or a mean is not finite.
    """
    now = np.asarray(mean, dtype=np.float64)
    past = np.asarray(history, dtype=np.float64)
    past = past.reshape(0, len(now)) if past.size == 0 and now.ndim == 1 else past
    if now.ndim != 1 or past.ndim != 2 or past.shape[1] != len(now):
        raise UserError(f"trend: expected means (D,) and a history (K, D), got shapes {now.shape} and {past.shape}.")
    if not np.isfinite(now).all() or not np.isfinite(past).all():
        raise UserError("trend: a mean or the history holds a number that is not finite.")
    steps = len(past)
    if steps < 2:
        return now.copy(), np.zeros_like(now)
    times = np.arange(steps) - (steps - 1) / 2
    centre = past.mean(0)
    slope = times @ (past - centre) / (times @ times)
    predicted = centre + slope * (steps + 1) / 2
    return predicted, now - predicted


def residual_weights(residual: ArrayLike, beta: float) -> Floats:
    """Return softmax(beta * residual) of shape (D,).

    Their weighted mean of the residuals is never below the plain mean, and above it unless beta is 0 or all residuals
    are equal (the paper's theorem).

    Raises:
        UserError: If beta is not a number of 0 or more.
    """
    _check_beta(beta)
    values = np.asarray(residual, dtype=np.float64)
    with np.errstate(over="ignore"):
        powers = np.exp(beta * (values - values.max(initial=-np.inf)))
    return np.asarray(powers / powers.sum())


def pick_pivot(weights: Floats) -> tuple[int, bool]:
    """Return the place of the largest weight, the first of equal ones, and whether there were several."""
    best = np.flatnonzero(weights >= weights.max() - 1e-12)
    return int(best[0]), len(best) > 1


def eliminate_conflicts(
    pivot: ArrayLike,
    combined: ArrayLike,
    groups: NDArray[Any],
    rule: Elimination = "below_mean",
    where: NDArray[Any] | None = None,
) -> tuple[Bools, int]:
    """Leave out the rows of each group that pull against the pivot.

    Args:
        pivot: Shape (N,): each row's reward of the pivot, on a scale of about [0, 1].
        combined: Shape (N,): its combined reward, on the same scale.
        groups: Whole numbers of shape (N,).
        rule: See `Elimination`.
        where: Booleans of shape (N,): the rows that are looked at; others stay left out.

    Returns:
        The rows that stay, of shape (N,), and in how many groups the rule was given up because fewer than two rows
        would have stayed.

    Raises:
        UserError: If the rule is unknown or the shapes differ.
    """
    p, r, keys = np.asarray(pivot, dtype=np.float64), np.asarray(combined, dtype=np.float64), np.asarray(groups)
    _check_rule(rule)
    used = np.ones(p.shape, dtype=bool) if where is None else np.asarray(where, dtype=bool)
    if p.ndim != 1 or not p.shape == r.shape == keys.shape == used.shape:
        raise UserError(
            f"elimination: expected arrays of one shape (rows,), got {p.shape}, {r.shape}, {keys.shape}, {used.shape}."
        )
    if rule == "none" or not used.any():
        return used.copy(), 0
    index, count = number_groups([keys], len(keys))
    choose = _below_mean if rule == "below_mean" else _concordant
    stays = choose(p, r, index, count, used)
    before = np.bincount(index[used], minlength=count)
    after = np.bincount(index[stays], minlength=count)
    given_up = (after < 2) & (after < before)
    stays |= used & given_up[index]
    return stays, int(given_up.sum())


def _below_mean(pivot: Floats, combined: Floats, index: Ints, count: int, used: Bools) -> Bools:
    rows = np.maximum(np.bincount(index[used], minlength=count), 1)
    means = [np.bincount(index[used], values[used], minlength=count) / rows for values in (pivot, combined)]
    return used & ~((pivot < means[0][index] - _SAME) & (combined > means[1][index] + _SAME))


def _concordant(pivot: Floats, combined: Floats, index: Ints, count: int, used: Bools) -> Bools:
    """Keep the longest non-decreasing run of combined rewards in the order of the pivot's, in all groups at once.

    Of several longest ones it keeps that whose last members stand highest in the pivot.
    """
    p, r = np.round(pivot, 9), np.round(combined, 9)
    rows = np.flatnonzero(used)
    rows = rows[np.lexsort((r[rows], p[rows], index[rows]))]
    sizes = np.bincount(index[rows], minlength=count)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    table = np.full((count, int(sizes.max())), np.nan)
    table[index[rows], place] = r[rows]
    length, previous = _longest_runs(table)
    at = _last_largest(length)
    chosen = np.zeros(table.shape, dtype=bool)
    group = np.flatnonzero(sizes)
    while len(group):
        chosen[group, at[group]] = True
        at = np.where(at >= 0, np.take_along_axis(previous, np.maximum(at, 0)[:, None], 1)[:, 0], -1)
        group = group[at[group] >= 0]
    stays = np.zeros(len(used), dtype=bool)
    stays[rows] = chosen[index[rows], place]
    return stays


def _longest_runs(table: Floats) -> tuple[Ints, Ints]:
    """Return, per place of each row, how long a non-decreasing run can be that ends there, and the place before it."""
    length = np.zeros(table.shape, dtype=np.int64)
    previous = np.full(table.shape, -1, dtype=np.int64)
    for place in range(table.shape[1]):
        longest = np.zeros(len(table), dtype=np.int64)
        if place:
            fits = np.where(table[:, :place] <= table[:, place, None], length[:, :place], 0)
            last = _last_largest(fits)
            longest = np.take_along_axis(fits, last[:, None], 1)[:, 0]
            previous[:, place] = np.where(longest > 0, last, -1)
        length[:, place] = np.where(np.isnan(table[:, place]), 0, longest + 1)
    return length, previous


def _last_largest(table: Ints) -> Ints:
    return np.asarray(table.shape[1] - 1 - table[:, ::-1].argmax(1), dtype=np.int64)


def objective_correlation(matrix: Floats, groups: NDArray[Any], where: NDArray[Any] | None = None) -> Floats:
    """Return Pearson's correlations of the objectives within groups: negative ones are conflicts.

    Args:
        matrix: Shape (N, D).
        groups: Whole numbers of shape (N,); each group's means are taken off before the rows are pooled.
        where: Booleans of shape (N,): the rows that count.

    Returns:
        Shape (D, D); 0 with an objective that does not vary in any group.
    """
    used = np.ones(len(matrix), dtype=bool) if where is None else np.asarray(where, dtype=bool)
    index, count = number_groups([np.asarray(groups)[used]], int(used.sum()))
    rows = np.maximum(np.bincount(index, minlength=count), 1)
    off = np.empty((len(index), matrix.shape[1]))
    for place, values in enumerate(matrix[used].T):
        off[:, place] = values - (np.bincount(index, values, minlength=count) / rows)[index]
    products = off.T @ off
    size = np.sqrt(np.diag(products))
    scale = np.where(size > _SAME, 1 / np.maximum(size, _SAME), 0.0)
    return np.asarray(np.clip(products * np.outer(scale, scale), -1.0, 1.0))


@dataclass(frozen=True)
class Pivot:
    """Set the reward to the residual-weighted sum of the objectives, and leave conflicting rows out (MOA).

    The weights are those of `residual_weights` on the batch's means against the last `window` batches; the pivot is
    the objective with the largest. A baseline such as `Group` follows, which the rows left out do not enter.

    Figures: `mean`, `predicted`, `residual`, `weights`, each by objective; `pivot`; `tie`, whether others had the same
    weight; `pivots`, how often each was pivot; `eliminated`, share of this batch's rows, and `eliminated_total`;
    `fallbacks`, groups where the rule was given up; `correlation` of the objectives within groups.
    """

    keys: Sequence[str] = ("task",)
    """Rows that agree in all of these are one group."""
    window: int = 10
    """Batches that the trend is fitted to. The paper's number is not known to us."""
    beta: float = 10.0
    """Sharpness of the weights; 0 is the plain mean. The paper's number is not known to us."""
    eliminate: Elimination = "below_mean"
    ranges: Ranges | None = None
    """Worst and best value by objective; default 0 and 1. Without a common scale residuals cannot be compared."""
    name: str = "moa"
    """Of the stage's state and figures."""

    def __post_init__(self) -> None:
        refuse_string(self.keys, self.name)
        check_ranges(self.ranges, self.name)
        _check_beta(self.beta)
        _check_rule(self.eliminate)
        if self.window < 2:
            raise UserError(f"{self.name}: a trend needs a window of 2 steps or more, got {self.window}.")

    def weigh(self, residual: Floats, step: int) -> Floats:
        """Return the objectives' weights at a step, of shape (D,), adding up to 1."""
        return residual_weights(residual, self.beta)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the reward, leave rows out and move the history; a batch without a row that counts changes nothing.

        Raises:
            UserError: If the batch has no objectives, other ones than before, or values outside their ranges.
        """
        names = list(weights_of(batch, None, self.name))
        matrix = objective_matrix(batch, names, self.ranges, self.name, carry.keep)
        state = self._state(carry.state.get(self.name), names)
        if not carry.keep.any():
            return carry
        mean = matrix[carry.keep].mean(0)
        predicted, residual = trend_residual(mean, state["history"])
        weights = self.weigh(residual, state["step"])
        pivot, tie = pick_pivot(weights)
        combined = matrix @ weights
        index, _ = batch.group_index(self.keys, self.name)
        keep, fallbacks = eliminate_conflicts(matrix[:, pivot], combined, index, self.eliminate, carry.keep)
        seen, dropped = int(carry.keep.sum()), int(carry.keep.sum() - keep.sum())
        after = {
            "objectives": names,
            "history": [*state["history"], mean.tolist()][-self.window :],
            "step": state["step"] + 1,
            "pivots": {name: state["pivots"].get(name, 0) + (place == pivot) for place, name in enumerate(names)},
            "rows": state["rows"] + seen,
            "dropped": state["dropped"] + dropped,
        }
        vectors = {"mean": mean, "predicted": predicted, "residual": residual, "weights": weights}
        figures = {
            **{what: dict(zip(names, vector.tolist(), strict=True)) for what, vector in vectors.items()},
            "pivot": names[pivot],
            "tie": tie,
            "pivots": after["pivots"],
            "eliminated": dropped / seen,
            "eliminated_total": after["dropped"] / after["rows"],
            "fallbacks": fallbacks,
            "correlation": objective_correlation(matrix, index, carry.keep).tolist(),
        }
        carry = replace(carry, reward=combined, keep=keep, state={**carry.state, self.name: after})
        return carry.note(**{f"{self.name}/{what}": figure for what, figure in figures.items()})

    def _state(self, given: Any, names: list[str]) -> dict[str, Any]:
        """Return the state to go on from.

        Raises:
            UserError: If it is malformed, or of other objectives.
        """
        start = {"objectives": names, "history": [], "step": 0, "pivots": {}, "rows": 0, "dropped": 0}
        if given is None:
            return start
        if not isinstance(given, Mapping) or set(given) != set(start):
            raise UserError(f"{self.name}: the state needs {', '.join(start)}; hand in what the last call returned.")
        if list(given["objectives"]) != names:
            raise UserError(
                f"{self.name}: the history is of {', '.join(given['objectives'])}, the batch has {', '.join(names)}; "
                "start without a state when the objectives change."
            )
        return dict(given)


def _check_beta(beta: float) -> None:
    if not 0 <= beta < np.inf:
        raise UserError(f"pivot: beta is 0 or more, got {beta!r}.")


def _check_rule(rule: str) -> None:
    known = get_args(Elimination)
    if rule not in known:
        raise UserError(f"elimination: no rule {rule!r} ({', '.join(known)}).{did_you_mean(rule, known)}")

"""From several rewards kept apart by name to one reward per row: weighted sum, per-group and per-character scaling.

A scalariser is a stage that writes `carry.reward`; `Group` or another baseline follows it. The pivot of MOA, which also
leaves rows out, is in `_pivot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints
from rolecraft.learning.credit._groups import group_advantage

Weights = Mapping[str, float]
Ranges = Mapping[str, Sequence[float]]
UNIT = (0.0, 1.0)

CCRN_WEIGHTS: Weights = MappingProxyType(
    {
        "format": 0.10, "bleu1": 0.10, "bleu2": 0.05, "bleu3": 0.02, "bleu4": 0.01, "rouge1": 0.10, "rouge2": 0.05,
        "rougeL": 0.02, "focus": 0.35, "focus_attr": 0.20,
    }
)  # fmt: skip
"""Weights of Character-R1's ten components, as its released trainer has them (arXiv 2601.04611)."""


def ccrn_scale(
    rewards: Mapping[str, ArrayLike],
    labels: Sequence[object] | NDArray[Any],
    state: Mapping[str, Any] | None = None,
    *,
    decay: float = 0.99,
    eps: float = 1e-8,
    where: NDArray[Any] | None = None,
) -> tuple[dict[str, Floats], dict[str, Any]]:
    """Scale each component by running statistics of its row's character (Character-R1, arXiv 2601.04611).

    Per character and component, with m and v the batch's mean and population variance: mean <- decay * mean +
    (1 - decay) * m, variance <- decay * variance + (1 - decay) * v, starting at 0 and 1; then
    (r - mean) / sqrt(variance + eps). The statistics are updated before they are used.

    Args:
        rewards: Components by name, each of shape (N,).
        labels: N names or numbers of characters, or of groups of characters; one and the same label for all rows
            gives a global normaliser.
        state: What the last call returned; None at the start. Nothing in it is changed.
        decay: In [0, 1).
        eps: Added to the variance.
        where: Booleans of shape (N,); other rows get 0 and do not enter the statistics.

    Returns:
        The scaled components, and the state: `{label: {component: {"mean", "variance", "rows"}}}`, plain JSON, where
        `rows` counts all rows that were seen.

    Raises:
        UserError: If lengths differ, an option is out of range, a reward is not finite or the state is malformed.
    """
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in rewards.items()}
    n = len(labels)
    used = np.ones(n, dtype=bool) if where is None else np.asarray(where, dtype=bool)
    for name, column in [*columns.items(), ("where", used)]:
        if column.shape != (n,):
            raise UserError(f"ccrn: expected {n} values of {name!r}, one per label, got shape {column.shape}.")
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype == object:
        array = np.asarray([str(label) for label in labels])
    found, index = np.unique(array, return_inverse=True)
    return _ccrn(columns, index.ravel(), [str(label) for label in found], state, decay, eps, used)


def _ccrn(
    rewards: Mapping[str, Floats],
    index: NDArray[Any],
    labels: Sequence[str],
    state: Mapping[str, Any] | None,
    decay: float,
    eps: float,
    used: Bools,
) -> tuple[dict[str, Floats], dict[str, Any]]:
    """Do what `ccrn_scale` says, for labels by number."""
    _check_ccrn(decay, eps)
    groups = index[used]
    rows = np.bincount(groups, minlength=len(labels))
    seen = np.flatnonzero(rows)
    tables = _copied(state)
    scaled: dict[str, Floats] = {}
    for name, column in rewards.items():
        values = column[used]
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(used & ~np.isfinite(column))[0])
            raise UserError(f"ccrn: component {name!r} of row {row} is {column[row]}; leave the row out with `where`.")
        before = np.array([_running(tables, label, name) for label in labels]).reshape(-1, 3)
        batch_mean = np.bincount(groups, values, minlength=len(labels)) / np.maximum(rows, 1)
        off = values - batch_mean[groups]
        batch_variance = np.bincount(groups, off * off, minlength=len(labels)) / np.maximum(rows, 1)
        mean = decay * before[:, 0] + (1 - decay) * batch_mean
        variance = decay * before[:, 1] + (1 - decay) * batch_variance
        scaled[name] = np.zeros(len(column))
        scaled[name][used] = (values - mean[groups]) / np.sqrt(variance + eps)[groups]
        for place in seen.tolist():
            tables.setdefault(labels[place], {})[name] = {
                "mean": float(mean[place]),
                "variance": float(variance[place]),
                "rows": int(before[place, 2]) + int(rows[place]),
            }
    return scaled, tables


def _copied(state: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(state or {}, Mapping) or not all(isinstance(table, Mapping) for table in (state or {}).values()):
        raise UserError("ccrn: the state is not {label: {component: ...}}; hand in what the last call returned.")
    return {label: dict(table) for label, table in (state or {}).items()}


def _running(tables: Mapping[str, Any], label: str, component: str) -> tuple[float, float, int]:
    """Return the running mean, variance and rows of a character's component; 0, 1 and 0 at the start."""
    entry = tables.get(label, {}).get(component, {"mean": 0.0, "variance": 1.0, "rows": 0})
    try:
        mean, variance, rows = float(entry["mean"]), float(entry["variance"]), int(entry["rows"])
        sound = bool(np.isfinite(mean)) and 0 <= variance < np.inf and rows >= 0
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise UserError(
            f"ccrn: the state of {label!r}, component {component!r}, is {entry!r}; expected mean, variance (0 or more) "
            "and rows, as the last call returned them."
        )
    return mean, variance, rows


def _check_ccrn(decay: float, eps: float) -> None:
    if not 0 <= decay < 1 or not 0 < eps < np.inf:
        raise UserError(f"ccrn: expected 0 <= decay < 1 and eps above 0, got {decay!r} and {eps!r}.")


@dataclass(frozen=True)
class Ccrn:
    """Set the reward to the weighted sum of components, each scaled for its character; see `ccrn_scale`.

    Within a group of one character the shift cancels in the advantage. What is left is the scale: a component that
    varies little for a character counts as much there as one that varies widely.
    """

    keys: Sequence[str] = ("role",)
    """What makes a character: a role, a group of roles; none is one normaliser for all rows."""
    weights: Weights | None = None
    """By component, divided by their sum; `CCRN_WEIGHTS` are Character-R1's. None: all count alike."""
    decay: float = 0.99
    eps: float = 1e-8
    name: str = "ccrn"
    """Of the stage's state and figures."""

    def __post_init__(self) -> None:
        refuse_string(self.keys, self.name)
        _check_ccrn(self.decay, self.eps)
        _check_weights(self.weights, self.name)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the reward and move the running statistics.

        Raises:
            UserError: If the batch lacks a key or a component.
        """
        weights = weights_of(batch, self.weights, self.name)
        index, count = batch.group_index(self.keys, self.name)
        labels = _labels(batch, self.keys, index, count)
        components = {name: batch.objectives[name] for name in weights}
        scaled, state = _ccrn(components, index, labels, carry.state.get(self.name), self.decay, self.eps, carry.keep)
        reward = np.zeros(batch.shape[0])
        for name, weight in weights.items():
            reward += weight * scaled[name]
        return replace(carry, reward=reward, state={**carry.state, self.name: state}).note(
            **{f"{self.name}/keys": count}
        )


def _labels(batch: CreditBatch, keys: Sequence[str], index: Ints, count: int) -> list[str]:
    """Return the name of each group in the state: its keys' numbers, joined by strokes; `all` without keys."""
    if not keys:
        return ["all"] * count
    first = np.zeros(count, dtype=np.int64)
    first[index[::-1]] = np.arange(len(index))[::-1]
    return ["/".join(str(int(batch.keys[key][row])) for key in keys) for row in first]


@dataclass(frozen=True)
class WeightedSum:
    """Set the reward to a weighted mean of the objectives, each brought from its declared range to [0, 1]."""

    weights: Weights | None = None
    """By objective, divided by their sum. None: all count alike."""
    ranges: Ranges | None = None
    """Worst and best value by objective; worst may be the larger one, as for a cost. Default: 0 and 1."""
    name: str = "weighted_sum"

    def __post_init__(self) -> None:
        check_ranges(self.ranges, self.name)
        _check_weights(self.weights, self.name)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the reward.

        Raises:
            UserError: If the batch lacks an objective, or one leaves its range; the row is named.
        """
        weights = weights_of(batch, self.weights, self.name)
        matrix = objective_matrix(batch, list(weights), self.ranges, self.name, carry.keep)
        return replace(carry, reward=matrix @ np.array(list(weights.values())))


@dataclass(frozen=True)
class PerGroupNormalised:
    """Set the reward to a weighted mean of the objectives, each normalised within its group before it is added.

    So the weights alone say how much an objective counts, and no range is needed: one that hardly varies in a group
    counts as much as one that varies widely. Where one does not vary it gives 0.
    """

    keys: Sequence[str] = ("task",)
    """Rows that agree in all of these are one group."""
    weights: Weights | None = None
    """By objective, divided by their sum. None: all count alike."""
    ddof: int = 1
    eps: float = 1e-6
    name: str = "per_group_normalised"

    def __post_init__(self) -> None:
        refuse_string(self.keys, self.name)
        _check_weights(self.weights, self.name)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the reward.

        Raises:
            UserError: If the batch lacks a key or an objective.
        """
        index, _ = batch.group_index(self.keys, self.name)
        reward = np.zeros(batch.shape[0])
        for name, weight in weights_of(batch, self.weights, self.name).items():
            column = batch.objectives[name]
            normal, _ = group_advantage(column, index, ddof=self.ddof, eps=self.eps, where=carry.keep)
            reward += weight * normal
        return replace(carry, reward=reward)


def weights_of(batch: CreditBatch, weights: Weights | None, stage: str) -> dict[str, float]:
    """Return the weight of every objective of a batch, adding up to 1; names in the batch's order.

    Raises:
        UserError: If the batch has no objective, a weighted one is not there, or one has no weight.
    """
    names = list(batch.objectives)
    if not names:
        raise UserError(f"{stage}: the batch has no objectives; give its rewards by name as `objectives`.")
    given = dict.fromkeys(names, 1.0) if weights is None else weights
    for name in given:
        if name not in batch.objectives:
            raise UserError(
                f"{stage}: the batch has no objective {name!r} (it has {', '.join(names)})." + did_you_mean(name, names)
            )
    bare = [name for name in names if name not in given]
    if bare:
        raise UserError(f"{stage}: no weight for objective {', '.join(bare)}; give 0 to leave one out.")
    total = sum(given.values())
    return {name: given[name] / total for name in names}


def objective_matrix(
    batch: CreditBatch, names: Sequence[str], ranges: Ranges | None, stage: str, where: Bools
) -> Floats:
    """Return objectives of shape (N, D), 0 at the worst and 1 at the best value of their ranges; 0 where not `where`.

    Raises:
        UserError: If a value of a row that counts lies outside its range; objective and row are named.
    """
    for name in ranges or {}:
        if name not in batch.objectives:
            raise UserError(
                f"{stage}: ranges name {name!r}, which is no objective of the batch ({', '.join(batch.objectives)})."
                + did_you_mean(name, batch.objectives)
            )
    matrix = np.empty((batch.shape[0], len(names)))
    for place, name in enumerate(names):
        worst, best = (ranges or {}).get(name, UNIT)
        column = batch.objectives[name]
        share = column if (worst, best) == UNIT else (column - worst) / (best - worst)
        outside = where & ((share < -1e-9) | (share > 1 + 1e-9))
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise UserError(
                f"{stage}: objective {name!r} of row {row} is {column[row]:g}, outside its range {worst:g} to "
                f"{best:g}; declare its worst and best value, as in ranges={{{name!r}: (1, 5)}}."
            )
        matrix[:, place] = np.where(where, share, 0.0)
    return matrix


def check_ranges(ranges: Ranges | None, stage: str) -> None:
    """Refuse ranges that are not two different finite numbers.

    Raises:
        UserError: Naming the objective.
    """
    for name, given in (ranges or {}).items():
        sound = isinstance(given, tuple | list) and len(given) == 2 and all(np.isfinite(value) for value in given)
        if not sound or given[0] == given[1]:
            raise UserError(f"{stage}: the range of {name!r} is its worst and its best value, got {given!r}.")


def _check_weights(weights: Weights | None, stage: str) -> None:
    for name, weight in (weights or {}).items():
        if not 0 <= weight < np.inf:
            raise UserError(f"{stage}: the weight of {name!r} is {weight!r}; expected 0 or more.")
    if weights is not None and not sum(weights.values()) > 0:
        raise UserError(f"{stage}: no objective has a weight above 0.")


def refuse_string(keys: Sequence[str], stage: str) -> None:
    """Refuse one string in the place of a list of keys.

    Raises:
        UserError: If it is one.
    """
    if isinstance(keys, str):
        raise UserError(f"{stage}: keys are a list of names, got the string {keys!r}; write [{keys}].")

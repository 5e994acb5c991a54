"""Seats that never moved: they have nothing to train, but a rule with a baseline per role still learns what they earn.

SPIRAL (arXiv 2506.24119) moves a role's running baseline on after every game, whether or not the role had a turn in it:
a game that its first reply ends pays both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.learning.credit import CreditBatch, CreditResult, Stage

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class SilentSeat:
    """A seat under training that never moved in an episode."""

    keys: Mapping[str, int]
    outcome: float
    valid: bool
    objectives: Mapping[str, float]


def silent_batch(seats: Sequence[SilentSeat], batch: CreditBatch) -> CreditBatch:
    """Return seats as rows without a trained token.

    Args:
        seats: Each with the keys that `batch` has.
        batch: The rows of the seats that moved.

    Returns:
        One row per seat; the row column `outcome` is its reward, every other number is 0.
    """
    rows, width = len(seats), batch.shape[1]
    return CreditBatch(
        np.zeros((rows, width), dtype=bool),
        {name: np.array([seat.keys[name] for seat in seats], dtype=np.int64) for name in batch.keys},
        {"outcome": np.array([seat.outcome for seat in seats], dtype=np.float64)},
        objectives={
            name: np.array([seat.objectives.get(name, 0.0) for seat in seats], dtype=np.float64)
            for name in batch.objectives
        },
        valid=np.array([seat.valid for seat in seats], dtype=bool),
    )


def with_silent(batch: CreditBatch, silent: CreditBatch) -> CreditBatch:
    """Return the rows of a batch with silent ones after them; columns that these lack hold 0 there."""
    rows, width = silent.shape

    def joined(columns: Columns, added: Columns, *shape: int) -> dict[str, NDArray[Any]]:
        zeros = np.zeros((rows, *shape))
        return {name: np.concatenate([values, added.get(name, zeros)]) for name, values in columns.items()}

    return CreditBatch(
        np.concatenate([batch.mask, silent.mask]),
        {name: np.concatenate([values, silent.keys[name]]) for name, values in batch.keys.items()},
        joined(batch.row, silent.row),
        joined(batch.token, silent.token, width),
        joined(batch.objectives, silent.objectives),
        np.concatenate([batch.known, silent.known]),
    )


def without_silent(credit: CreditResult, rows: int) -> CreditResult:
    """Return credit of the first rows alone, which are those that moved; figures and state stay as they are."""
    return replace(
        credit,
        advantages=credit.advantages[:rows],
        weights=credit.weights[:rows],
        keep=credit.keep[:rows],
        targets=None if credit.targets is None else credit.targets[:rows],
        aux=tuple(replace(aux, token=aux.token[:rows]) for aux in credit.aux),
    )


def counts_silent(stages: Iterable[Stage]) -> bool:
    """Return whether a stage of a rule wants silent seats; such a stage says so by its field `silent`."""
    return any(getattr(stage, "silent", False) is True for stage in stages)

"""Running moments: the mean and spread of a stream of arrays, of which none is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import ExtractionError

Float64 = NDArray[np.float64]


class RunningMoments:
    """Count, mean and sum of squared deviations, element by element, in float64.

    Single values are added by Welford's update, batches and other moments by the pairwise form of Chan, Golub and
    LeVeque (1983). What is held is three times the size of one array, however many were added.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        """Start empty.

        Args:
            shape: Shape of the arrays to come, such as (sites, hidden).
        """
        self.count = 0
        self.mean: Float64 = np.zeros(tuple(shape))
        self.m2: Float64 = np.zeros(tuple(shape))
        """Sum of squared deviations from the mean."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one array."""
        return self.mean.shape

    def add(self, value: NDArray[Any]) -> None:
        """Add one array.

        Raises:
            ExtractionError: If it is not finite or has another shape; the moments stay as they were.
        """
        self._check(value, self.shape)
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (value - self.mean)

    def add_batch(self, values: NDArray[Any]) -> None:
        """Add several arrays stacked along a first axis.

        Raises:
            ExtractionError: If one is not finite or has another shape; the moments stay as they were.
        """
        self._check(values, (len(values), *self.shape))
        batch = RunningMoments(self.shape)
        if len(values):
            batch.count = len(values)
            batch.mean = values.mean(axis=0, dtype=np.float64)
            batch.m2 = ((values - batch.mean) ** 2).sum(axis=0)
            self.merge(batch)

    def merge(self, other: RunningMoments) -> None:
        """Add what `other` has seen.

        Raises:
            ExtractionError: If the shapes differ.
        """
        self._check(other.mean, self.shape)
        total = self.count + other.count
        if total:
            delta = other.mean - self.mean
            self.mean += delta * (other.count / total)
            self.m2 += other.m2 + delta**2 * (self.count * other.count / total)
            self.count = total

    def variance(self, ddof: int = 1) -> Float64:
        """Return the variance; NaN where fewer than `ddof + 1` arrays were added."""
        return self.m2 / (self.count - ddof) if self.count > ddof else np.full(self.shape, np.nan)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return `count`, `mean` and `m2`, from which `from_arrays` restores the moments exactly."""
        return {"count": np.array(self.count, dtype=np.int64), "mean": self.mean.copy(), "m2": self.m2.copy()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> RunningMoments:
        """Restore moments from what `arrays` returned."""
        moments = cls(arrays["mean"].shape)
        moments.count = int(arrays["count"])
        moments.mean = np.array(arrays["mean"], dtype=np.float64)
        moments.m2 = np.array(arrays["m2"], dtype=np.float64)
        return moments

    def _check(self, value: NDArray[Any], shape: tuple[int, ...]) -> None:
        if value.shape != shape:
            raise ExtractionError(f"expected an array of shape {shape}, got {value.shape}.")
        if not np.isfinite(value).all():
            raise ExtractionError("the activations are not finite.")


def spearman_brown(r: float) -> float:
    """Return the reliability of the whole from the correlation r > -1 of its halves: 2 r / (1 + r)."""
    return 2 * r / (1 + r)

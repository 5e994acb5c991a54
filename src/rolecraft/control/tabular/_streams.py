"""Uniform random numbers for stacks, one independent stream per member."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError

Floats = NDArray[np.float64]
_CHUNK = 4096


class Uniform(Protocol):
    """What draws uniform numbers: a NumPy generator, or `Streams`."""

    def random(self, size: Any) -> Any:
        """Return numbers in [0, 1) of a shape."""
        ...


class Streams:
    """One stream per member of a stack, so that a member's numbers do not depend on who else is in the stack."""

    def __init__(self, seeds: Sequence[int]) -> None:
        """Start one stream per seed.

        Raises:
            UserError: If there is no seed.
        """
        if not seeds:
            raise UserError("streams: expected at least one seed.")
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        self._stock = np.empty((len(seeds), 0))
        self._used = 0

    def random(self, size: Sequence[int]) -> Floats:
        """Return numbers of shape `size`, whose first axis counts the members.

        Raises:
            UserError: If the first axis has another length than there are streams.
        """
        if not len(size) or size[0] != len(self._generators):
            raise UserError(f"streams: expected a first axis of {len(self._generators)}, got shape {tuple(size)}.")
        need = int(np.prod(size[1:]))
        if self._used + need > self._stock.shape[1]:
            fresh = [each.random(max(_CHUNK, need)) for each in self._generators]
            self._stock, self._used = np.concatenate([self._stock[:, self._used :], fresh], axis=1), 0
        found = self._stock[:, self._used : self._used + need]
        self._used += need
        return found.reshape(tuple(size))

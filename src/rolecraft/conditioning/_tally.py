"""A role under way: what is left to try, the moments of what was kept, and the vector they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolecraft.conditioning._moments import Float64, RunningMoments
from rolecraft.conditioning._outcome import Flag
from rolecraft.conditioning._presets import ExtractionPreset
from rolecraft.conditioning._trials import Subject, Trial

PROMPTED, BASE = 0, 1
"""The sides: as the role, and what it is held against."""

_ROUNDING = 1e-6
"""Of the activations' norm: what float32 cannot tell from zero."""


@dataclass(eq=False)
class Tally:
    """What came of the trials of one subject so far."""

    subject: Subject
    trials: list[Trial]
    recipe: ExtractionPreset
    sites: tuple[int, ...]
    hidden: int
    tried: int = 0
    empty: int = 0
    kept: list[int] = field(default_factory=lambda: [0, 0])
    """Responses kept, by side."""
    non_finite: bool = False
    moments: list[list[RunningMoments]] = field(init=False)
    """By side, then half of the questions."""

    def __post_init__(self) -> None:
        self.moments = [[self._empty() for _ in range(2)] for _ in range(2)]

    def _empty(self) -> RunningMoments:
        return RunningMoments((len(self.sites), self.hidden))

    @property
    def one_pass(self) -> int:
        """Pairs of one pass."""
        return len(self.trials) // self.recipe.passes

    @property
    def target(self) -> int:
        """Pairs after which the subject is complete."""
        wanted = self.recipe.target_pairs
        return len(self.trials) if wanted is None else min(wanted, self.one_pass)

    @property
    def pairs(self) -> int:
        """Pairs kept; where the sides are judged apart, the smaller side."""
        return self.kept[PROMPTED] if self.subject.bases is None else min(self.kept)

    @property
    def done(self) -> bool:
        """Whether nothing is left to try."""
        return self.pairs >= self.target or self.tried == len(self.trials)

    @property
    def acceptance(self) -> float:
        """Kept of tried, 0..1."""
        return self.pairs / self.tried

    def next_trials(self, room: int) -> list[Trial]:
        """Return at most as many trials as pairs are missing: the pairs kept are the same for any size of batch."""
        return self.trials[self.tried :][: min(room, self.target - self.pairs)]

    def side(self, side: int) -> RunningMoments:
        """Return the moments of one side over both halves."""
        merged = self._empty()
        for half in self.moments[side]:
            merged.merge(half)
        return merged

    def vector(self) -> Float64 | None:
        """Return the direction, shape (sites, hidden), or None if a side is empty."""
        return self._contrast(self.side(PROMPTED), self.side(BASE))

    def split_halves(self) -> dict[int, float]:
        """Return, by site, the cosine between the directions of the two halves; empty if a half is."""
        a, b = (self._contrast(self.moments[PROMPTED][half], self.moments[BASE][half]) for half in range(2))
        if a is None or b is None:
            return {}
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        dots = (a * b).sum(axis=1)
        return {s: float(np.clip(dot / n, -1, 1)) for s, dot, n in zip(self.sites, dots, norms, strict=True) if n}

    def _contrast(self, prompted: RunningMoments, base: RunningMoments) -> Float64 | None:
        if self.subject.bases is None:
            return prompted.mean if prompted.count else None
        return prompted.mean - base.mean if prompted.count and base.count else None

    def verdict(self) -> tuple[Flag, str]:
        """Return why the direction cannot be relied on, as a flag and in words; both empty if it can."""
        name = self.subject.id
        vector = self.vector()
        if self.non_finite or (vector is not None and not np.isfinite(vector.astype(np.float32)).all()):
            return "non_finite", f"{name}: the model's activations are not finite; try float32."
        flat = [] if vector is None else self._flat(vector)
        if flat:
            return "zero", f"{name}: the two sides do not differ at site {flat[0]}; the direction is zero."
        required = min(self.recipe.min_pairs, max(1, self.one_pass // 4))
        if vector is None or self.pairs < required:
            empty = f", {self.empty} with an empty response" if self.empty else ""
            return "too_few_pairs", (
                f"{name}: {self.pairs} of {self.tried} pairs were kept{empty}; {required} are required. "
                "Ask more questions, run more passes or loosen the filter."
            )
        return "", ""

    def _flat(self, vector: Float64) -> list[int]:
        """Return the sites where the direction is no longer than rounding makes it."""
        sizes = np.linalg.norm(vector, axis=1)
        scales = np.linalg.norm(self.side(PROMPTED).mean, axis=1)
        return [s for s, size, scale in zip(self.sites, sizes, scales, strict=True) if size <= _ROUNDING * scale]


def by_site(sites: Sequence[int], vectors: Float64) -> dict[int, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    """Return the rows of (sites, hidden) as float32, by site."""
    return {site: vector.astype(np.float32) for site, vector in zip(sites, vectors, strict=True)}

"""The suitability reviewer: does a mutated text still read as the role it was?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rolecraft.errors import UserError
from rolecraft.guard.audit._sentences import sentences

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WINDOW = 90
"""Words encoded together; MiniLM cuts at 256 tokens, and an edit further on would not be seen."""


class TextEncoder(Protocol):
    """Turns texts into vectors: `rolecraft.models.Embedder` is one."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape (texts, size)."""
        ...


class WordHashEncoder:
    """Counts of words and of pairs of words, each hashed to a place: for tests, and where no model is installed.

    Args:
        size: Length of a vector.

    Raises:
        UserError: If it is below 2.
    """

    def __init__(self, size: int = 512) -> None:
        if size < 2:
            raise UserError(f"size must be at least 2, got {size}.")
        self.size = size

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one unit vector per text, shape (texts, size); a text without words is all zeros."""
        from sklearn.feature_extraction.text import HashingVectorizer

        hashed = HashingVectorizer(
            n_features=self.size, ngram_range=(1, 2), token_pattern=r"\w+", alternate_sign=False, dtype=np.float32
        )
        return np.asarray(hashed.transform(texts).toarray(), dtype=np.float32)


@dataclass(frozen=True)
class Review:
    """What the reviewer says."""

    similarity: float
    """Cosine in [-1, 1]; 1 for the same text."""
    accepted: bool
    critique: str = ""


class SuitabilityReviewer:
    """Accepts a text whose cosine similarity to the original reaches a threshold.

    A long text is encoded in windows of whole sentences, whose vectors are averaged.

    Args:
        tau: The threshold, in [-1, 1]. The paper gives none.
        encoder: None: MiniLM, loaded when it is first needed.

    Raises:
        UserError: If the threshold is out of range.
    """

    def __init__(self, tau: float = 0.8, encoder: TextEncoder | None = None) -> None:
        if not -1 <= tau <= 1:
            raise UserError(f"tau must lie between -1 and 1, got {tau!r}.")
        self.tau = tau
        self._encoder = encoder
        self._known: dict[str, NDArray[np.float64]] = {}

    def similarity(self, original: str, text: str) -> float:
        """Return the cosine of two texts, 0 where one of them has no content."""
        if text == original:
            return 1.0
        a, b = self._vector(original), self._vector(text)
        scale = float(np.linalg.norm(a) * np.linalg.norm(b))
        return float(np.clip(a @ b / scale, -1, 1)) if scale else 0.0

    def review(self, original: str, text: str) -> Review:
        """Accept a text or say by how much it misses."""
        found = self.similarity(original, text)
        short = "" if found >= self.tau else f"similarity {found:.2f} is below {self.tau:g}: change less"
        return Review(found, not short, short)

    def _vector(self, text: str) -> NDArray[np.float64]:
        if text not in self._known:
            if self._encoder is None:
                from rolecraft.models import Embedder

                self._encoder = Embedder.load()
            if len(self._known) > 20_000:
                self._known.clear()
            self._known[text] = np.asarray(self._encoder.encode(_windows(text)), dtype=float).mean(0)
        return self._known[text]


def _windows(text: str) -> list[str]:
    found, words = [""], 0
    for sentence in sentences(text):
        size = len(sentence.split())
        if words and words + size > _WINDOW:
            found.append("")
            words = 0
        found[-1] += sentence
        words += size
    return found

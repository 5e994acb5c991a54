"""A language of a random Markov chain over words with a liking for some of them: a corpus that needs no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.errors import UserError


@dataclass(frozen=True)
class WordChain:
    """Words, which of them follow each other, and how much each is liked."""

    words: tuple[str, ...]
    odds: NDArray[np.float64]
    """Shape (words, words): row i holds the chances of what follows word i."""
    liking: NDArray[np.float64]
    """Shape (words,): mean 0, deviation 1."""

    @classmethod
    def draw(cls, words: int, successors: int, seed: int) -> WordChain:
        """Draw a chain: every word is followed by a few others, with chances uniform over all such splits.

        Raises:
            UserError: If there are fewer than two words, or not as many others as successors.
        """
        if words < 2 or not 1 <= successors < words:
            raise UserError(f"expected at least 2 words and 1 to words - 1 successors, got {words} and {successors}.")
        rng = np.random.default_rng(derive_seed("word-chain", words, successors, seed))
        odds = np.zeros((words, words))
        for word in range(words):
            others = np.delete(np.arange(words), word)
            odds[word, rng.choice(others, successors, replace=False)] = rng.dirichlet(np.ones(successors))
        liking = rng.normal(size=words)
        return cls(tuple(f"w{word}" for word in range(words)), odds, (liking - liking.mean()) / liking.std())

    def sample(self, count: int, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw texts of `length` words each, whose first word is any, as numbers of shape (count, length)."""
        first = rng.integers(len(self.words), size=count)
        return np.column_stack([first, self.go_on(first, length - 1, rng)])

    def go_on(self, last: NDArray[np.int64], length: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw what follows texts that end with the words `last`, as numbers of shape (count, length)."""
        texts = np.empty((len(last), length), dtype=np.int64)
        sums = self.odds.cumsum(1)
        for place in range(length):
            at = sums[last]
            last = texts[:, place] = (at <= rng.random((len(last), 1)) * at[:, -1:]).sum(1)
        return texts

    def text(self, numbers: Sequence[int] | NDArray[np.int64]) -> str:
        """Return words joined by spaces."""
        return " ".join(self.words[int(number)] for number in numbers)

    def score(self, text: str, length: int) -> float:
        """Return how much a text is liked: the sum over its words by `length`; a word that is unknown counts 0."""
        known: dict[str, float] = dict(zip(self.words, self.liking.tolist(), strict=True))
        return sum(known.get(word, 0.0) for word in text.split()) / length

"""Is a text sound at all: repetition, length, the assistant's phrases. Judged before any alignment."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from rolecraft._files import bundled, read_mapping

MIN_DIVERSITY = 0.5
"""Unique-bigram ratio below which a text counts as repetitive (CastVectors, arXiv 2608.00023)."""
MAX_WORDS = 500
"""Length beyond which an answer counts as degenerate (same source)."""
MAX_TRIGRAM_SHARE = 0.25
"""Share of one word triple, in texts of at least `_MIN_TRIGRAMS`, beyond which a text counts as a loop."""
_MIN_TRIGRAMS = 8
_STUTTER = re.compile(r"(.{1,4}?)\1{7,}", re.DOTALL)
_STUTTER_LENGTH = 24
"""A unit of up to four characters repeated over at least this many characters is a loop without words."""
_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")


@dataclass(frozen=True)
class TextHealth:
    """Surface soundness of one text."""

    unique_bigram_ratio: float
    """Distinct over all word pairs, (0, 1]; 1 for a text of fewer than two words."""
    max_trigram_share: float
    """Share of the commonest word triple, [0, 1]; 0 for a text of fewer than three words."""
    repeated_trigrams: float
    """Share of word triples that stood in the text before, [0, 1)."""
    words: int
    leakage: bool
    """Holds a phrase by which the default assistant shows through."""
    degenerate: bool
    """Empty or wordless, over 500 words, repetitive, or a loop."""


def words(text: str) -> list[str]:
    """Return the words of a text in lower case; inner apostrophes and hyphens belong to a word."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


@cache
def _leakage() -> re.Pattern[str]:
    """Return a pattern for the bundled phrases, over words joined by spaces."""
    listed = read_mapping(bundled("measures", "assistant-phrases-v1"))["leakage"]
    return re.compile(r"(?<!\S)(?:" + "|".join(map(re.escape, listed)) + r")(?!\S)")


def text_health(answer: str) -> TextHealth:
    """Measure the soundness of one answer; depends on the text alone."""
    found = words(answer)
    pairs = list(pairwise(found))
    triples = Counter(zip(found, found[1:], found[2:], strict=False))
    total = triples.total()
    unique = len(set(pairs)) / len(pairs) if pairs else 1.0
    share = max(triples.values()) / total if total else 0.0
    return TextHealth(
        unique_bigram_ratio=unique,
        max_trigram_share=share,
        repeated_trigrams=1 - len(triples) / total if total else 0.0,
        words=len(found),
        leakage=_leakage().search(" ".join(found).replace("-", " ")) is not None,
        degenerate=(
            not found
            or len(found) > MAX_WORDS
            or unique < MIN_DIVERSITY
            or (total >= _MIN_TRIGRAMS and share > MAX_TRIGRAM_SHARE)
            or _stutters(answer)
        ),
    )


def _stutters(text: str) -> bool:
    return any(len(found[0]) >= _STUTTER_LENGTH for found in _STUTTER.finditer(text))

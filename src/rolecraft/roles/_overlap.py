"""Texts that are one sentence with a noun exchanged, found by the word triples they share."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

Shingles = frozenset[tuple[str, ...]]
NAME = "\0"
"""Stands for the name of the text's own role."""


def shingles(text: str, name: str) -> Shingles:
    """Return the word triples of a text, its role's name put out of sight; shorter texts have none."""
    masked = text.casefold().replace(name.casefold(), NAME)
    words = re.findall(rf"{NAME}|[^\W_]+", masked)
    return frozenset(tuple(words[start : start + 3]) for start in range(len(words) - 2))


def overlapping(texts: Sequence[Shingles], least: float) -> Iterator[tuple[int, int, float]]:
    """Yield each text that shares most with an earlier one, in linear time for texts that share little.

    A text is compared with those before it that follow no other, so that n copies give n - 1 results.

    Args:
        texts: The texts, in order.
        least: Share of common triples (Jaccard index, 0..1) from which two texts count as one.

    Yields:
        (text, the earlier text, their Jaccard index).
    """
    users: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, parts in enumerate(texts):
        common = Counter(earlier for part in parts for earlier in users[part])
        best, index = -1, 0.0
        for earlier, count in common.items():
            share = count / (len(parts) + len(texts[earlier]) - count)
            if share > index:
                best, index = earlier, share
        if index >= least:
            yield place, best, index
            continue
        for part in parts:
            users[part].append(place)

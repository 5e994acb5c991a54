"""Texts by sentence and by clause, and which clauses refuse."""

from __future__ import annotations

import re
from functools import lru_cache

_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)\s*|\n\s*\n\s*|$)", re.DOTALL)
_CLAUSE = re.compile(r"[.!?;:]+\s+|\s+[-–—]+\s+|,?\s+but\s+|\n+")
_REFUSING = re.compile(
    r"\b(?:cannot|can not|can't|could not|will not|won't|would not|must not|may not|shall not"
    r"|(?:am|are) not (?:allowed|able|going) to|(?:refuse|decline|have) to)\s+(?:\w+\s+)?"
    r"(?:do|write|print|say|give|use|call|open|include|name|mention|repeat|leave|speak|talk|answer|tell|add|put|share"
    r"|help|comply|provide|fulfil|decline|refuse)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[str, ...]:
    """Split a text into sentences, each with the space that follows it: joined they are the text again."""
    return tuple(_SENTENCE.findall(text))


@lru_cache(maxsize=4096)
def unrefused(text: str) -> tuple[str, ...]:
    """Return the clauses of a text that do not refuse."""
    return tuple(clause for clause in _clauses(text) if not _REFUSING.search(clause))


@lru_cache(maxsize=4096)
def declines(text: str) -> bool:
    """Tell whether a message refuses: one of its first two clauses says that it cannot or will not do something."""
    return any(_REFUSING.search(clause) for clause in _clauses(text)[:2])


def _clauses(text: str) -> list[str]:
    return [clause for clause in _CLAUSE.split(text.replace("’", "'")) if clause.strip()]

"""Lexical features of how a text speaks: content words, the speaker's stance towards the listener."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from rolecraft._files import bundled, read_mapping
from rolecraft.measures._health import words
from rolecraft.measures._statistics import Floats

STANCES = ("self", "group", "listener", "address", "courtesy", "imperatives", "questions", "exclamations")
"""What `stance` measures, in this order."""
_SENTENCE = re.compile(r"[^.!?…\n]+[.!?…]*")
_SUFFIX = re.compile(r"(?:'s|ies|ing|ed|es|s)$")


@dataclass(frozen=True)
class Lexicon:
    """The bundled word lists and anchor sentences."""

    words: dict[str, frozenset[str]]
    anchors: dict[str, tuple[str, ...]]
    version: str


@cache
def lexicon() -> Lexicon:
    """Read the bundled lists `voice-v1`."""
    data = read_mapping(bundled("measures", "voice-v1"))
    anchors = {name: tuple(data[name]) for name in ("positive", "negative", "aroused", "calm")}
    lists = {
        name: frozenset(entries) for name, entries in data.items() if isinstance(entries, list) and name not in anchors
    }
    return Lexicon(lists, anchors, str(data["version"]))


@lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """Return the distinct stems of a text's content words: no function words, nothing shorter than three letters."""
    lists = lexicon().words
    skipped = lists["common"] | lists["self"] | lists["group"] | lists["listener"]
    kept = (word for word in words(text) if len(word) > 2 and word not in skipped and not word.isdigit())
    return frozenset(map(_stem, kept))


def _stem(word: str) -> str:
    """Cut one inflection, so that `sails`, `sailed` and `sailing` meet; at least three letters stay."""
    found = _SUFFIX.search(word)
    if found is None or found.start() < 3:
        return word
    return word[: found.start()] + ("y" if found[0] == "ies" else "")


def self_share(text: str) -> float:
    """Return the share of words by which the speaker names itself, alone or as one of a group, [0, 1]."""
    lists, found = lexicon().words, words(text)
    return sum(word in lists["self"] or word in lists["group"] for word in found) / max(1, len(found))


def stance(text: str) -> Floats:
    """Return how a text stands towards its listener, shape (8,), in the order of `STANCES`.

    Word lists count per ten words; imperatives (a sentence that begins with a listed verb), questions and exclamations
    per sentence. An empty text gives zeros.
    """
    lists, found = lexicon().words, words(text)
    sentences = [sentence for sentence in _SENTENCE.findall(text) if words(sentence)]
    per_words, per_sentences = 10 / max(1, len(found)), 1 / max(1, len(sentences))
    rates = [
        sum(word in lists[name] for word in found) * per_words
        for name in ("self", "group", "listener", "address", "courtesy")
    ]
    openings = sum(words(sentence)[0] in lists["imperative"] and "?" not in sentence for sentence in sentences)
    marks = [sum(mark in sentence for sentence in sentences) for mark in "?!"]
    return np.array([*rates, openings * per_sentences, *(count * per_sentences for count in marks)])

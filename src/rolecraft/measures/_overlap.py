"""Overlap of a reply with a reference by words: BLEU-1 to BLEU-4 and ROUGE-1, ROUGE-2, ROUGE-L of one sentence pair."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._health import words

Language = Literal["en", "zh"]
"""How a text is cut: into lower-case words, or with every Chinese character a token of its own."""
Tokens = tuple[Hashable, ...]

_HAN = re.compile(r"([㐀-䶿一-鿿豈-﫿])")


@dataclass(frozen=True)
class Overlap:
    """How much of a reference a reply has, each figure in [0, 1]."""

    bleu1: float
    bleu2: float
    bleu3: float
    bleu4: float
    rouge1: float
    rouge2: float
    rouge_l: float
    notes: tuple[str, ...] = ()
    """Which figures are 0 by definition, and why."""

    def scores(self) -> dict[str, float]:
        """Return the seven figures by name."""
        return {name: value for name, value in vars(self).items() if name != "notes"}


def overlap_tokens(text: str, language: Language = "en") -> Tokens:
    """Cut a text into the tokens that are compared; punctuation and case do not count.

    Raises:
        UserError: If the language is unknown.
    """
    known = get_args(Language)
    if language not in known:
        raise UserError(f"language {language!r} is unknown (known: {', '.join(known)}).{did_you_mean(language, known)}")
    return _cut(text, language)


@lru_cache(maxsize=4096)
def _cut(text: str, language: Language) -> Tokens:
    return tuple(words(_HAN.sub(r" \1 ", text) if language == "zh" else text))


def text_overlap(reply: str, reference: str, language: Language = "en") -> Overlap:
    """Compare a reply with one reference.

    Args:
        reply: May be empty: every figure is 0 then, with a note.
        reference: What it should have been.
        language: See `overlap_tokens`.

    Raises:
        UserError: If the reference holds no word: the overlap is undefined, not 0.
    """
    return token_overlap(overlap_tokens(reply, language), overlap_tokens(reference, language))


def token_overlap(reply: Sequence[Hashable], reference: Sequence[Hashable]) -> Overlap:
    """Compare two sequences of tokens; see `text_overlap`."""
    said, wanted = tuple(reply), tuple(reference)
    _require(wanted)
    notes = [f"bleu{n} is 0: the reply has {len(said)} tokens" for n in range(1, 5) if len(said) < n]
    short = "reply" if len(said) < 2 else "reference"
    if min(len(said), len(wanted)) < 2:
        notes.append(f"rouge2 is 0: the {short} has {len(said if short == 'reply' else wanted)} tokens")
    hits = [_hits(said, wanted, n) for n in range(1, 5)]
    one, two, three, four = (_bleu(hits[:n], len(said), len(wanted)) for n in range(1, 5))
    rouge1, rouge2 = (_f1(hits[n - 1], len(said) - n + 1, len(wanted) - n + 1) for n in (1, 2))
    return Overlap(one, two, three, four, rouge1, rouge2, rouge_l(said, wanted), tuple(notes))


def bleu(reply: Sequence[Hashable], reference: Sequence[Hashable], order: int = 4) -> float:
    """Return the sentence-level BLEU up to an order (Papineni and others, 2002).

    The geometric mean of the clipped n-gram precisions times the brevity penalty. Above the first order, 1 is added to
    hits and total (Lin and Och, 2004), so that one missing 4-gram does not undo the rest. A reply with fewer tokens
    than the order scores 0, since smoothing would make an order without any n-gram a perfect one.

    Args:
        reply: Tokens.
        reference: Tokens, at least one.
        order: 1 to 4, or more.

    Raises:
        UserError: If the order is below 1 or the reference is empty.
    """
    said, wanted = tuple(reply), tuple(reference)
    _require(wanted)
    if order < 1:
        raise UserError(f"the order of BLEU must be at least 1, got {order}.")
    return _bleu([_hits(said, wanted, n) for n in range(1, order + 1)], len(said), len(wanted))


def _bleu(hits: Sequence[int], said: int, wanted: int) -> float:
    """Return the BLEU of n-gram hits by order from 1 on, and the lengths of reply and reference."""
    order = len(hits)
    if said < order or not hits[0]:
        return 0.0
    logs = math.log(hits[0] / said)
    for n in range(2, order + 1):
        logs += math.log((hits[n - 1] + 1) / (said - n + 2))
    return math.exp(logs / order + min(0.0, 1 - wanted / said))


def rouge_n(reply: Sequence[Hashable], reference: Sequence[Hashable], order: int = 1) -> float:
    """Return the F1 of shared n-grams (Lin, 2004); 0 where a side is too short to have any.

    Raises:
        UserError: If the order is below 1 or the reference is empty.
    """
    said, wanted = tuple(reply), tuple(reference)
    _require(wanted)
    if order < 1:
        raise UserError(f"the order of ROUGE must be at least 1, got {order}.")
    return _f1(_hits(said, wanted, order), len(said) - order + 1, len(wanted) - order + 1)


def _f1(hits: int, said: int, wanted: int) -> float:
    return 2 * hits / (said + wanted) if hits else 0.0


def rouge_l(reply: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """Return the F1 of the longest common subsequence (Lin, 2004).

    Raises:
        UserError: If the reference is empty.
    """
    said, wanted = tuple(reply), tuple(reference)
    _require(wanted)
    return 2 * _common(said, wanted) / (len(said) + len(wanted))


def _common(a: Tokens, b: Tokens) -> int:
    """Return the length of the longest common subsequence, a column of its table per step held as bits of a number."""
    places: dict[Hashable, int] = {}
    for place, token in enumerate(b):
        places[token] = places.get(token, 0) | 1 << place
    full = (1 << len(b)) - 1
    row = full
    for token in a:
        hit = row & places.get(token, 0)
        row = ((row + hit) | (row - hit)) & full
    return len(b) - row.bit_count()


def _hits(said: Tokens, wanted: Tokens, order: int) -> int:
    """Return how many n-grams of the reply stand in the reference, each at most as often as there."""
    there = _grams(wanted, order)
    return sum(min(count, there[gram]) for gram, count in _counted(said, order).items() if gram in there)


@lru_cache(maxsize=4096)
def _grams(tokens: Tokens, order: int) -> Counter[Tokens]:
    return _counted(tokens, order)  # references come again and again


def _counted(tokens: Tokens, order: int) -> Counter[Tokens]:
    return Counter(tokens[start : start + order] for start in range(len(tokens) - order + 1))


def _require(reference: Tokens) -> None:
    if not reference:
        raise UserError("the reference is empty (no word in it), so the overlap is undefined; give a reference text.")

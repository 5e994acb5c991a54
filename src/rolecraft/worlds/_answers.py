"""Reading the final answer out of a reply, and exact match: the cleaners of closed tasks."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from rolecraft.errors import UserError, did_you_mean

AnswerType = Literal["choice", "number", "yes-no", "string"]
ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)
Mode = Literal["strict", "compatible"]

_NUMBER = re.compile(r"(?<![\w.])[-−]?[$€£]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?<![\w.])[-−]?[$€£]?\d+(?:\.\d+)?")
_LOOSE_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_UNIT = re.compile(r"(?<=\d)(?=[^\W\d_])")
_QUOTED = re.compile('["“”]([^"“”]*)["“”]')
_DECIMALS = 6


@dataclass(frozen=True)
class Graded:
    """One answer, compared with the right one."""

    raw: str
    """The reply as the model gave it: decoding at temperature 0 need not repeat itself on a server."""
    cleaned: str
    """Empty if nothing was found, which counts as wrong."""
    correct: bool

    @property
    def unparsed(self) -> bool:
        """Whether the cleaner found nothing."""
        return not self.cleaned


def clean(
    raw: str, answer_type: AnswerType, *, letters: str = "ABCDE", mode: Mode = "strict", strip_units: bool = False
) -> str:
    """Return the answer that a reply holds, in canonical form.

    Args:
        raw: The reply to the extraction trigger.
        answer_type: `choice` (a capital letter), `number`, `yes-no`, or `string` (between the last pair of quotes).
        letters: The letters a choice may have.
        mode: `compatible` takes letters and `yes`/`no` wherever they stand, inside words too, and numbers with any
            neighbours, as the cleaner released with Role-Play Prompting (arXiv 2308.07702) does; `strict` asks for
            word boundaries, and for quotes around a string unless it is the whole reply.
        strip_units: Read `12kg` as 12 in strict mode (a space or a currency sign never hinders).

    Returns:
        The answer; empty if there is none.

    Raises:
        UserError: If the answer type or the mode is unknown.
    """
    if answer_type not in ANSWER_TYPES:
        raise UserError(
            f"answer_type {answer_type!r}: expected one of {', '.join(ANSWER_TYPES)}."
            + did_you_mean(answer_type, ANSWER_TYPES)
        )
    if mode not in get_args(Mode):
        raise UserError(f"mode {mode!r}: expected strict or compatible.")
    strict = mode == "strict"
    if answer_type == "number":
        return _number(_UNIT.sub(" ", raw) if strip_units else raw, strict)
    if answer_type == "string":
        return _string(raw, strict)
    if answer_type == "yes-no":
        found = re.search(r"\b(yes|no)\b" if strict else r"(yes|no)", raw, re.IGNORECASE)
        return found[1].lower() if found else ""
    pattern = f"[{re.escape(letters)}]"
    # Neither is the article of "A coin ..." a choice, though it stands alone.
    letter = re.search(rf"\b(?!A (?!is\b|was\b)[a-z])({pattern})\b" if strict else f"({pattern})", raw)
    return letter[1] if letter else ""


def _number(raw: str, strict: bool) -> str:
    if strict:
        for found in _NUMBER.finditer(raw):
            after = raw[found.end() : found.end() + 1]
            if not (after.isalnum() or after == "_"):
                return canonical_number(re.sub(r"[$€£,]", "", found[0]).replace("−", "-"))
        return ""
    loose = _LOOSE_NUMBER.search(raw.replace(",", ""))
    return canonical_number(loose[0].replace("−", "-")) if loose else ""


def canonical_number(text: str) -> str:
    """Return a decimal number without trailing zeros or period, cut to six decimals; `-0` is `0`."""
    whole, _, decimals = text.partition(".")
    decimals = decimals[:_DECIMALS].rstrip("0")
    sign = "-" if whole.startswith("-") else ""
    whole = whole.lstrip("-").lstrip("0") or "0"
    return (sign if whole != "0" or decimals else "") + whole + (f".{decimals}" if decimals else "")


def _string(raw: str, strict: bool) -> str:
    quoted = _QUOTED.findall(raw)
    text = quoted[-1] if quoted else raw.strip()
    if not quoted and strict and len(text.split()) > 1:
        return ""
    return text.lower().translate(str.maketrans("", "", string.punctuation + " "))


def grade(
    raw: str,
    answer: str,
    answer_type: AnswerType,
    *,
    letters: str = "ABCDE",
    mode: Mode = "strict",
    strip_units: bool = False,
) -> Graded:
    """Clean a reply and compare it exactly with the right answer, given in canonical form; see `clean`."""
    cleaned = clean(raw, answer_type, letters=letters, mode=mode, strip_units=strip_units)
    return Graded(raw, cleaned, bool(cleaned) and cleaned == answer)


def accuracy(grades: Iterable[Graded]) -> tuple[float, float]:
    """Return the share of correct and of unparsed answers.

    Raises:
        UserError: If there are none.
    """
    given = list(grades)
    if not given:
        raise UserError("accuracy: there are no graded answers.")
    return sum(grade.correct for grade in given) / len(given), sum(grade.unparsed for grade in given) / len(given)

"""Patterns as languages that z3 can compare; what cannot be translated exactly is not translated."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from rolecraft.guard._z3 import load_z3

MOST_CHAR = 0x2FFFF
"""z3's last character. Patterns that tell later ones apart are not translated."""
MOST_REPEAT = 200


class Untranslatable(Exception):
    """A pattern has a part without an exact counterpart."""


def regex_of(pattern: str) -> Any:
    r"""Return the z3 language of all texts in which a pattern is found somewhere, as the `pattern` keyword has it.

    Groups, alternatives, classes, counted repeats and anchors at either end are translated; the engine's meaning of
    classes is ECMA's (`\d` and `\w` are ASCII).

    Raises:
        Untranslatable: If the pattern has anything else.
    """
    z3 = load_z3()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            parsed = _parser().parse(pattern, re.ASCII)
        except (re.error, RecursionError, OverflowError, ValueError, FutureWarning, DeprecationWarning):
            raise Untranslatable(pattern) from None
    if parsed.state.flags & ~re.ASCII or _differs(pattern):
        raise Untranslatable(pattern)
    return z3.simplify(_searched(list(parsed)))


def _parser() -> Any:
    import importlib

    return importlib.import_module("re._parser")


def _differs(pattern: str) -> bool:
    """Return whether Python's parser may read a pattern in another way than the engine that matches it."""
    odd = (  # other meanings, or none
        r"\Z", r"\A", r"\a", r"\N", r"\p", r"\P", r"\s", r"\S", r"\b", r"\B", r"\c",
        "[[", "[]", "[^]", "&&", "||", "~~", "--",
    )  # fmt: skip
    return any(part in pattern for part in odd) or bool(re.search(r"\\0|[*+?}][+]|\{,|\(\?(?!:)", pattern))


def _searched(items: list[Any]) -> Any:
    """Translate a pattern searched for anywhere: alternatives at the top, each with anchors of its own."""
    z3 = load_z3()

    if len(items) == 1 and str(items[0][0]) == "BRANCH":
        return _union([_searched(list(branch)) for branch in items[0][1][1]])
    if len(items) == 1 and str(items[0][0]) == "SUBPATTERN":
        return _searched(list(items[0][1][3]))
    if items and _anchor(items[0], "AT_BEGINNING"):
        return _ended(items[1:])
    return _concat([z3.Full(z3.ReSort(z3.StringSort())), _ended(items)])


def _ended(items: list[Any]) -> Any:
    """Translate the rest of a pattern up to the end of the text; the last alternatives may have ends of their own."""
    z3 = load_z3()

    if not items:
        return z3.Full(z3.ReSort(z3.StringSort()))
    before, last = [_node(item) for item in items[:-1]], items[-1]
    if _anchor(last, "AT_END"):
        return _concat(before)
    if str(last[0]) == "BRANCH":
        return _concat([*before, _union([_ended(list(branch)) for branch in last[1][1]])])
    if str(last[0]) == "SUBPATTERN":
        return _concat([*before, _ended(list(last[1][3]))])
    return _concat([*before, _node(last), z3.Full(z3.ReSort(z3.StringSort()))])


def _anchor(item: Any, name: str) -> bool:
    return str(item[0]) == "AT" and str(item[1]) == name


def _node(item: Any) -> Any:
    z3 = load_z3()

    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return z3.Re(_char(value))
    if kind == "NOT_LITERAL":
        return _others([(value, value)])
    if kind == "ANY":
        return _others([(10, 10), (13, 13), (0x2028, 0x2029)])
    if kind == "IN":
        negated = str(value[0][0]) == "NEGATE"
        ranges = [found for entry in value[negated:] for found in _ranges(entry)]
        return _others(ranges) if negated else _one_of(ranges)
    if kind == "SUBPATTERN":
        if value[1] or value[2]:
            raise Untranslatable("flags of a group")
        return _concat([_node(entry) for entry in value[3]])
    if kind == "BRANCH":
        return _union([_concat([_node(entry) for entry in branch]) for branch in value[1]])
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, body = value
        inner = _concat([_node(entry) for entry in body])
        if str(most) == "MAXREPEAT":
            if least > MOST_REPEAT:
                raise Untranslatable("a long repeat")
            return _concat([z3.Loop(inner, least, least), z3.Star(inner)]) if least else z3.Star(inner)
        if int(most) > MOST_REPEAT:
            raise Untranslatable("a long repeat")
        return z3.Loop(inner, least, int(most)) if int(most) else z3.Re("")
    raise Untranslatable(kind)


def _ranges(entry: Any) -> list[tuple[int, int]]:
    kind, value = str(entry[0]), entry[1]
    if kind == "LITERAL":
        return [(value, value)]
    if kind == "RANGE":
        return [(value[0], value[1])]
    if kind == "CATEGORY":
        digits = [(48, 57)]
        words = [*digits, (65, 90), (95, 95), (97, 122)]
        known = {"CATEGORY_DIGIT": digits, "CATEGORY_WORD": words}
        name = str(value)
        if name in known:
            return known[name]
        if name.replace("NOT_", "") in known:
            return _gaps(known[name.replace("NOT_", "")])
    raise Untranslatable(kind)


def _gaps(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found, at = [], 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    return [*found, (at, MOST_CHAR)]


def _others(ranges: Sequence[tuple[int, int]]) -> Any:
    if any(high >= MOST_CHAR for _, high in ranges):
        raise Untranslatable("late characters")
    return _one_of(_gaps(ranges))


def _one_of(ranges: Sequence[tuple[int, int]]) -> Any:
    z3 = load_z3()

    if any(high > MOST_CHAR for _, high in ranges):
        raise Untranslatable("late characters")
    return _union([z3.Range(_char(low), _char(high)) if low < high else z3.Re(_char(low)) for low, high in ranges])


def _char(code: int) -> Any:
    z3 = load_z3()

    if code > MOST_CHAR - 1 and code != MOST_CHAR:
        raise Untranslatable("late characters")
    return z3.StringVal(f"\\u{{{code:x}}}")


def _concat(parts: Sequence[Any]) -> Any:
    z3 = load_z3()

    if not parts:
        return z3.Re("")
    return parts[0] if len(parts) == 1 else z3.Concat(*parts)


def _union(parts: Sequence[Any]) -> Any:
    z3 = load_z3()

    return parts[0] if len(parts) == 1 else z3.Union(*parts)


def text_value(text: str) -> Any:
    """Return a text as a z3 constant.

    Raises:
        Untranslatable: If it holds a character beyond z3's.
    """
    z3 = load_z3()

    if any(ord(char) >= MOST_CHAR for char in text):
        raise Untranslatable("late characters")
    return z3.StringVal(
        "".join(char if char.isalnum() and char.isascii() else f"\\u{{{ord(char):x}}}" for char in text)
    )


def text_of(value: Any) -> str:
    """Return a z3 constant as a text."""
    return re.sub(r"\\u\{([0-9a-fA-F]+)\}", lambda found: chr(int(found[1], 16)), value.as_string())

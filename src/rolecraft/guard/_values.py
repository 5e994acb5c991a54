"""Arguments of calls as plain JSON, and characters that look like others."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

MOST_DEPTH = 32
MOST_NODES = 20_000
_ALIKE = dict(
    zip(
        "аеорсухіјѕһԁԛԝвкмнтαορνικτυΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТХІЈЅ",
        "aeopcyxijshdqwbkmhtaopviktuABEZHIKMNOPTYXABEKMHOPCTXIJS",
        strict=True,
    )
)
"""Cyrillic and Greek letters that are drawn like Latin ones (the commonest; after the confusables of Unicode TR 39)."""


class NotPlain(ValueError):
    """An argument is no plain JSON; the message says where and why."""


def plain_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of a call's arguments that shares nothing mutable with them.

    Raises:
        NotPlain: If a value is no text, finite number, truth value, null, list or mapping of those (exactly: no
            subclass), a text holds half a character, or the whole is nested or large beyond reason.
    """
    if not isinstance(arguments, Mapping):
        raise NotPlain(f"arguments must be a mapping, got {type(arguments).__name__}")
    room = [MOST_NODES]
    found = {}
    for name, value in arguments.items():
        kind = type(value)
        if type(name) is not str:
            raise NotPlain(f"names of arguments must be text, got {name!r:.40}")
        if kind is int or kind is bool or value is None or (kind is str and value.isascii() and name.isascii()):
            found[name] = value
        else:
            _text(name, "a name")
            found[name] = plain_value(value, name, MOST_DEPTH, room)
    return found


def plain_value(value: Any, where: str = "value", depth: int = MOST_DEPTH, room: list[int] | None = None) -> Any:
    """Return a deep copy of a JSON value; see `plain_arguments`."""
    room = [MOST_NODES] if room is None else room
    room[0] -= 1
    if depth <= 0 or room[0] < 0:
        raise NotPlain(f"{where}: nested too deep or more than {MOST_NODES} values")
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind is str:
        return _text(value, where)
    if kind is float:
        if not math.isfinite(value):
            raise NotPlain(f"{where}: {value} is no JSON number")
        return value
    if kind is list:
        return [plain_value(item, where, depth - 1, room) for item in value]
    if kind is dict:
        for name in value:
            if type(name) is not str:
                raise NotPlain(f"{where}: keys must be text, got {name!r:.40}")
            _text(name, where)
        return {name: plain_value(item, where, depth - 1, room) for name, item in value.items()}
    raise NotPlain(f"{where}: a {kind.__name__} is no plain JSON value")


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotPlain(f"{where}: the text holds half a character (a lone surrogate)") from None
    return value


def skeleton(text: str) -> str:
    """Return a text as a reader's eye takes it: compatible forms joined, look-alike letters Latin, invisibles gone."""
    joined = unicodedata.normalize("NFKC", text)
    return "".join(_ALIKE.get(char, char) for char in joined if unicodedata.category(char) not in ("Cf", "Mn"))


def look_alike(text: str, known: Iterable[Any]) -> str:
    """Return the entry of `known` that a text looks like without being it; an empty text if none."""
    if text.isascii():
        return ""
    seen = skeleton(text)
    texts = [entry for entry in known if isinstance(entry, str)]
    return next((entry for entry in texts if entry != text and skeleton(entry) == seen), "")


def suspicious(text: str) -> str:
    """Say what is odd about a text in a policy: invisible characters, or letters of two scripts in one word."""
    for char in text:
        if unicodedata.category(char) == "Cf":
            return f"holds the invisible character U+{ord(char):04X}"
    for word in text.split():
        odd = next((char for char in word if char in _ALIKE), "")
        if odd and any(char.isascii() and char.isalpha() for char in word):
            return f"mixes {unicodedata.name(odd, 'a letter')} (U+{ord(odd):04X}) with Latin letters"
    return ""

"""Reading tool calls out of a reply: text around the JSON, arguments as a string, cut-off JSON."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from rolecraft.agents._tools import Call

_DECODER = json.JSONDecoder()
_NAMES, _ARGUMENTS = ("name", "function", "tool"), ("parameters", "arguments", "args")


class ParsedCalls(NamedTuple):
    """What a reply asked for."""

    calls: list[Call]
    error: str
    """Why a part of it could not be read; empty if all could."""


def parse_calls(reply: str) -> ParsedCalls:
    """Return the calls of a reply.

    A call is a JSON object with a name (`name`, `function` or `tool`, also nested as servers send it) and arguments
    (`parameters`, `arguments` or `args`: an object, or a string of JSON). Calls may stand alone, in a list, in code
    fences, one after the other, amid prose. A reply without any brace asks for nothing and is no error.
    """
    calls: list[Call] = []
    errors: list[str] = []
    position = min((reply.find(mark) for mark in "[{" if mark in reply), default=-1)
    while position >= 0:
        try:
            value, position = _DECODER.raw_decode(reply, position)
        except (json.JSONDecodeError, RecursionError) as error:
            if reply[position] == "{":
                errors.append(f"not valid JSON: {error}")
            position += 1
        else:
            for entry in value if isinstance(value, list) else [value]:
                read = _call(entry)
                if isinstance(read, Call):
                    calls.append(read)
                elif read:
                    errors.append(read)
        position = min((found for mark in "[{" if (found := reply.find(mark, position)) >= 0), default=-1)
    # Braces inside an unreadable object are read on their own; they say nothing new.
    return ParsedCalls(calls, errors[0] if errors else "")


def _call(entry: Any) -> Call | str:
    """Return the call, or why it is none; an empty text for a value that does not look like one."""
    if not isinstance(entry, dict):
        return ""
    if isinstance(entry.get("function"), dict):
        entry = entry["function"]
    name = next((entry[key] for key in _NAMES if key in entry), None)
    if not isinstance(name, str) or not name.strip():
        return "a call needs a name"
    given: Any = next((entry[key] for key in _ARGUMENTS if key in entry), {})
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else {}
        except json.JSONDecodeError as error:
            return f"the arguments of {name!r} are not valid JSON: {error}"
    if not isinstance(given, dict):
        return f"the arguments of {name!r} must be an object, got {type(given).__name__}"
    return Call(name.strip(), {str(key): value for key, value in given.items()})

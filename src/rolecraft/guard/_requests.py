"""Rules from a request by words and literals: a generator of policies that needs no model and reads nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rolecraft.guard._policy import GENERATED, Rule, make_rules
from rolecraft.guard._tool_schemas import ToolSchema

LITERALS: Mapping[str, str] = {
    "account": r"\b[A-Z]{2}\d{2}[A-Z0-9]{8,}\b",
    "email": r"[\w.+-]+@[\w-]+(?:\.[a-z]+)+",
    "url": r"www\.[a-z0-9-]+\.[a-z]+(?:/[a-z0-9/-]+)?",
    "file": r"\b[\w-]+\.(?:txt|docx|xlsx|pdf|csv)\b",
    "quoted": r"(?<![A-Za-z])'([^'\n]{1,80})'(?![a-z])",
    "name": r"\b[A-Z][a-z]+\b",
}
"""Kinds of things that a request may name, and how each is found."""

Cues = Mapping[str, tuple[str, Mapping[str, str]]]
"""By tool: a pattern of words that ask for it (case does not count), and by argument the kinds of `LITERALS`, joined by
spaces, to which it is restricted."""


def literals(request: str, no_names: Collection[str] = ()) -> dict[str, list[str]]:
    """Return what a request names, by kind of `LITERALS`.

    Args:
        request: What a user wants, in words.
        no_names: Words with a capital that are no names, such as those that begin sentences.
    """
    found = {kind: list(dict.fromkeys(re.findall(pattern, request))) for kind, pattern in LITERALS.items()}
    found["name"] = [word for word in found["name"] if word not in no_names]
    return found


def rules_by_cues(
    request: str,
    tools: Mapping[str, ToolSchema],
    cues: Cues,
    *,
    no_names: Collection[str] = (),
    priority: int = GENERATED,
) -> dict[str, tuple[Rule, ...]]:
    """Return rules for the tools that a request has a word for.

    An argument is restricted to what the request names of its kinds; where it names nothing, it is left open, for the
    request gives no ground to restrict it. Where an argument is a list, its entries are restricted, and none at all
    may be given.

    Args:
        request: What a user wants; trusted, unlike anything that a tool returns.
        tools: The tools there are.
        cues: By tool.
        no_names: As in `literals`.
        priority: Of the rules.
    """
    words = literals(request, no_names)
    found: dict[str, list[dict[str, Any]]] = {}
    for tool, (cue, arguments) in cues.items():
        if tool not in tools or not re.search(cue, request, re.IGNORECASE | re.DOTALL):
            continue
        when = {}
        for argument, kinds in arguments.items():
            values = [value for kind in kinds.split() for value in words[kind]]
            if values:
                when[argument] = _restriction(values, "array" in tools[tool].types.get(argument, ()))
        found[tool] = [{"priority": priority, "when": when}]
    return make_rules(found, "generated")


def _restriction(values: Sequence[str], listed: bool) -> dict[str, Any]:
    one = {"enum": list(values)}
    return {"anyOf": [{"type": "null"}, {"type": "array", "items": one}]} if listed else one

"""Questions a character can answer, and questions that conflict with what it knows, by kind of conflict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rolecraft._files import bundled, read_mapping
from rolecraft.errors import RoleError
from rolecraft.roles._role import Role, parse_role

ConflictKey = Literal["answerable", "context_conflict", "absent", "out_series", "fake"]
CONFLICT_KEYS: tuple[ConflictKey, ...] = get_args(ConflictKey)
"""`answerable`: no conflict. Against the profile: `context_conflict` contradicts it, `absent` asks for what it does not
hold. Against the weights: `out_series` is of another world, `fake` alters a known story (arXiv 2409.16913)."""
_ABOUT = {"absent", "fake"}


@dataclass(frozen=True)
class Query:
    """One question to a character."""

    question: str
    fact: str = ""
    """The atomic fact it was made from."""
    how: str = ""
    """What was changed of the fact: character, object, location, action or knowledge."""


@dataclass(frozen=True)
class Character:
    """A role with its questions."""

    role: Role
    """Its `knowledge` holds the atomic facts."""
    queries: Mapping[ConflictKey, tuple[Query, ...]]
    """Only the kinds that the character has."""


def load_conflicts(source: str | Path = "conflicts-v1") -> tuple[Character, ...]:
    """Read a bank of conflicts: the bundled one, or a YAML or JSON file of the same form.

    Raises:
        RoleError: If there is no character, a role is refused, or a question is missing; role and index are named.
    """
    path = bundled("roles", source)
    data = read_mapping(path)
    if not isinstance(data, dict) or not data.get("characters"):
        raise RoleError(f"{path}: expected a mapping with `characters`, each with `facts`.")
    common = tuple(Query(_text(q, f"{path}: out_series[{i}]")) for i, q in enumerate(data.get("out_series", ())))
    return tuple(_character(entry, common, f"{path}: characters[{i}]") for i, entry in enumerate(data["characters"]))


def _character(entry: Any, common: tuple[Query, ...], where: str) -> Character:
    if not isinstance(entry, dict):
        raise RoleError(f"{where}: expected a mapping of fields, got {type(entry).__name__}.")
    where = f"{where} ({entry.get('id')})"
    facts = entry.get("facts", [])
    asked, swapped = [], []
    for number, fact in enumerate(facts):
        place = f"{where}: facts[{number}]"
        if not isinstance(fact, dict):
            raise RoleError(f"{place}: expected fact, ask, swap and how, got {fact!r}.")
        told = _text(fact.get("fact"), f"{place}.fact")
        asked.append(Query(_text(fact.get("ask"), f"{place}.ask"), told))
        swapped.append(Query(_text(fact.get("swap"), f"{place}.swap"), told, str(fact.get("how", ""))))
    found: dict[ConflictKey, tuple[Query, ...]] = {
        "answerable": tuple(asked), "context_conflict": tuple(swapped), "out_series": common,
    }  # fmt: skip
    for key in ("absent", "fake"):
        found[key] = tuple(Query(_text(q, f"{where}: {key}[{i}]")) for i, q in enumerate(entry.get(key, ())))
    fields = {name: value for name, value in entry.items() if name not in {"facts", *_ABOUT}}
    role = parse_role(fields | {"knowledge": [query.fact for query in asked]}, where)
    return Character(role, {key: found[key] for key in CONFLICT_KEYS if found[key]})


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RoleError(f"{where}: expected a text, got {value!r}.")
    return value.strip()

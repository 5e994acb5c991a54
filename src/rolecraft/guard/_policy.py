"""Policies: for every tool an ordered list of rules, written as YAML, for all roles or for some."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard._cap import Cap, make_cap
from rolecraft.guard._schema import check_schema, strict
from rolecraft.guard._values import NotPlain, plain_value

Fallback = Literal["block", "stop", "ask"]
FALLBACKS: tuple[Fallback, ...] = ("block", "stop", "ask")
POLICY_FIELDS = ("cap", "default", "description", "format", "lists", "name", "roles", "tools")
ROLE_FIELDS = ("cap", "description", "tools")
RULE_FIELDS = ("description", "effect", "fallback", "priority", "update", "when")
HUMAN, GENERATED = 1, 100
"""Usual priorities of rules that a person wrote and of generated ones; lower ones are tried first."""
MOST_RULES = 5000
MOST_UPDATES = 4


@dataclass(frozen=True)
class Rule:
    """One rule of a tool (Progent, arXiv 2504.11703)."""

    effect: Literal["allow", "forbid"] = "allow"
    when: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Restriction by argument, in JSON Schema. Arguments that it does not name, and named ones that the call leaves
    out, are not restricted."""
    priority: int = HUMAN
    """Rules are tried in ascending order; at equal priority those that forbid come first."""
    fallback: Fallback | None = None
    """What happens when this rule forbids, or when no rule decides and this one was the last; None: the policy's
    default."""
    update: Mapping[str, tuple[Rule, ...]] | None = None
    """Rules by tool that take the place of those tools' rules when this one allows a call."""
    where: str = ""
    """Its place in the file, as the log names it."""
    description: str = ""
    """Why it is there; what an agent is told when it forbids."""

    @property
    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of the object of arguments that it matches; None: all."""
        if not self.when:
            return None
        made = {name: strict(part) if self.effect == "allow" else dict(part) for name, part in self.when.items()}
        return {"properties": made}

    def row(self) -> dict[str, Any]:
        """Return the rule as it may stand in a file."""
        found: dict[str, Any] = {"priority": self.priority, "effect": self.effect}
        found |= {"when": {name: dict(part) for name, part in self.when.items()}} if self.when else {}
        found |= {"fallback": self.fallback} if self.fallback else {}
        if self.update is not None:
            found["update"] = {tool: [rule.row() for rule in rules] for tool, rules in self.update.items()}
        return found


Rules = Mapping[str, tuple[Rule, ...]]


def ordered(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Sort rules as they are tried: by priority, then forbidding first, then as they stand."""
    return tuple(sorted(rules, key=lambda rule: (rule.priority, rule.effect == "allow")))


@dataclass(frozen=True)
class Policy:
    """Rules by tool for everybody, and further ones by role. What no rule allows is refused."""

    tools: Rules
    roles: Mapping[str, Rules]
    name: str = "policy"
    default: Fallback = "block"
    """What happens to a call that no rule decides and whose last rule has no fallback of its own."""
    description: str = ""
    cap: Cap | None = None
    """How far activations may go, of all roles without a cap of their own."""
    caps: Mapping[str, Cap] = field(default_factory=dict)
    """By role."""
    folder: Path | None = field(default=None, compare=False)
    """Where its file lies, from which a cap's direction is found."""

    @property
    def version(self) -> str:
        """Twelve hex digits that change with the content."""
        text = json.dumps(self.row(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def row(self) -> dict[str, Any]:
        """Return the policy as it may stand in a file; named lists are written out."""
        roles: dict[str, dict[str, Any]] = {role: {"tools": _rows(rules)} for role, rules in self.roles.items()}
        for role, cap in self.caps.items():
            roles.setdefault(role, {})["cap"] = cap.row()
        whole = {"name": self.name, "default": self.default, "tools": _rows(self.tools), "roles": roles}
        return whole | ({"cap": self.cap.row()} if self.cap else {})

    def rules(self, role: str | None) -> dict[str, tuple[Rule, ...]]:
        """Return the rules of a role in the order they are tried: everybody's and its own; None: everybody's alone."""
        own = self.roles.get(role, {}) if role is not None else {}
        names = dict.fromkeys([*self.tools, *own])
        return {tool: ordered([*self.tools.get(tool, ()), *own.get(tool, ())]) for tool in names}

    def with_rules(self, tools: Rules, *, role: str | None = None) -> Policy:
        """Return the policy with more rules, for everybody or for one role."""
        old = self.tools if role is None else self.roles.get(role, {})
        merged = {tool: (*old.get(tool, ()), *tools.get(tool, ())) for tool in dict.fromkeys([*old, *tools])}
        if role is None:
            return replace(self, tools=merged)
        return replace(self, roles={**self.roles, role: merged})


def _rows(rules: Rules) -> dict[str, list[dict[str, Any]]]:
    return {tool: [rule.row() for rule in entries] for tool, entries in rules.items()}


def load_policy(path: str | Path, lists: Mapping[str, list[Any]] | None = None) -> Policy:
    """Read a policy from a YAML or JSON file; see `make_policy`."""
    from rolecraft._files import read_mapping

    made = make_policy(read_mapping(Path(path)), where=str(path), lists=lists)
    return replace(made, folder=Path(path).parent)


def make_policy(data: Any, *, where: str = "policy", lists: Mapping[str, list[Any]] | None = None) -> Policy:
    """Make a policy of what a file holds.

    Args:
        data: A mapping with the fields of `POLICY_FIELDS`.
        where: Begins messages.
        lists: Values of named lists, in place of those in the file; the file must name the list.

    Raises:
        UserError: If a field, keyword, type or named list is unknown, or a value is out of range; the place is named.
    """
    try:
        plain = plain_value(data, where, 64, [200_000])
    except (NotPlain, RecursionError) as error:
        raise UserError(f"{where}: not a policy: {error}. Quote dates and other values meant as text.") from None
    _fields(plain, POLICY_FIELDS, where)
    if plain.get("format", 1) != 1:
        raise UserError(f"{where}: format {plain['format']!r:.40} is not known here; expected 1.")
    named = _lists(plain.get("lists", {}), f"{where}: lists", lists or {})
    room = [MOST_RULES]
    tools = _tools(plain.get("tools", {}), f"{where}: tools", named, room, MOST_UPDATES)
    roles: dict[str, Rules] = {}
    for role, entry in _mapping(plain.get("roles", {}), f"{where}: roles").items():
        _fields(entry, ROLE_FIELDS, f"{where}: roles.{role}")
        roles[role] = _tools(entry.get("tools", {}), f"{where}: roles.{role}", named, room, MOST_UPDATES)
    cap = make_cap(plain["cap"], f"{where}: cap") if "cap" in plain else None
    caps = {
        role: make_cap(entry["cap"], f"{where}: roles.{role}.cap")
        for role, entry in (plain.get("roles") or {}).items()
        if "cap" in entry
    }
    default = _choice(plain.get("default", "block"), FALLBACKS, f"{where}: default")
    name, description = _words(plain, "name", where) or "policy", _words(plain, "description", where)
    return Policy(tools, roles, name, default, description, cap, caps)


def make_rules(data: Any, where: str = "rules") -> dict[str, tuple[Rule, ...]]:
    """Make rules by tool of plain data, as they stand below `tools` in a file.

    Raises:
        UserError: As `make_policy`.
    """
    try:
        plain = plain_value(data, where, 64, [200_000])
    except (NotPlain, RecursionError) as error:
        raise UserError(f"{where}: not rules: {error}.") from None
    return _tools(plain, where, {}, [MOST_RULES], MOST_UPDATES)


def _tools(
    data: Any, where: str, lists: Mapping[str, list[Any]], room: list[int], updates: int
) -> dict[str, tuple[Rule, ...]]:
    found = {}
    for tool, entries in _mapping(data, where).items():
        if not isinstance(entries, list):
            raise UserError(f"{where}.{tool}: expected a list of rules, got {entries!r:.60}.")
        room[0] -= len(entries)
        if room[0] < 0:
            raise UserError(f"{where}: more than {MOST_RULES} rules; split the policy.")
        found[tool] = tuple(
            _rule(entry, f"{where}.{tool}[{place}]", f"{tool}[{place}]", lists, room, updates)
            for place, entry in enumerate(entries)
        )
    return found


def _rule(data: Any, where: str, short: str, lists: Mapping[str, list[Any]], room: list[int], updates: int) -> Rule:
    _fields(data, RULE_FIELDS, where)
    priority = data.get("priority", HUMAN)
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 1:
        raise UserError(f"{where}.priority: expected a whole number of at least 1, got {priority!r:.40}.")
    when = _mapping(data.get("when", {}), f"{where}.when")
    update = data.get("update")
    if update is not None and updates <= 0:
        raise UserError(f"{where}.update: updates within updates, more than {MOST_UPDATES} deep.")
    effect = _choice(data.get("effect", "allow"), ("allow", "forbid"), f"{where}.effect")
    if update is not None and effect == "forbid":
        raise UserError(f"{where}.update: only a rule that allows can update the policy.")
    return Rule(
        effect=effect,
        when={name: check_schema(part, f"{where}.when.{name}", lists) for name, part in when.items()},
        priority=priority,
        fallback=None if data.get("fallback") is None else _choice(data["fallback"], FALLBACKS, f"{where}.fallback"),
        update=None if update is None else _tools(update, f"{where}.update", lists, room, updates - 1),
        description=_words(data, "description", where),
        where=short if "roles." not in where else where[where.index("roles.") :].removeprefix("roles."),
    )


def _lists(data: Any, where: str, given: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    found = _mapping(data, where)
    for name in given:
        if name not in found:
            near = did_you_mean(name, found)
            raise UserError(f"{where}: the policy has no list {name!r} (lists: {', '.join(found) or 'none'}).{near}")
    for name, entries in (found := {**found, **{name: list(values) for name, values in given.items()}}).items():
        if not isinstance(entries, list):
            raise UserError(f"{where}.{name}: expected a list of values, got {entries!r:.60}.")
    return found


def _mapping(data: Any, where: str) -> dict[str, Any]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected a mapping, got {data!r:.60}.")
    return data


def _fields(data: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected a mapping with {', '.join(known)}, got {data!r:.60}.")
    for name in data:
        if name not in known:
            near = did_you_mean(name, known)
            raise UserError(f"{where}: unknown field {name!r:.60} (fields: {', '.join(known)}).{near}")


def _choice(value: Any, known: tuple[Any, ...], where: str) -> Any:
    if value not in known:
        near = did_you_mean(str(value), known)
        raise UserError(f"{where}: expected one of {', '.join(known)}, got {value!r:.40}.{near}")
    return value


def _words(data: Mapping[str, Any], name: str, where: str) -> str:
    value = data.get(name, "")
    if not isinstance(value, str):
        raise UserError(f"{where}: {name}: expected text, got {value!r:.60}.")
    return value

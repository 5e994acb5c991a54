"""Theories as YAML files.

```yaml
name: bridge
facts: {drowning: a person is in the water}
actions: {rescue: go and pull the person out, deliver: carry the parcel on, wait: stay}
safe: wait
exclusive: [[rescue, deliver]]
rules:
  - {if: [storm], then: not cross}
reasons:
  drowning-person: {if: [drowning], then: rescue, why: a life is at stake}
priorities: ["drowning-person > promise"]
claims:
  - {when: [drowning], obligatory: rescue}
```
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.reasons._literals import literal
from rolecraft.guard.reasons._theory import Default, HardRule, Pair, ReasonTheory
from rolecraft.guard.reasons._verify import STATUSES, Claim

THEORY_FIELDS = (
    "actions",
    "claims",
    "description",
    "exclusive",
    "facts",
    "name",
    "priorities",
    "reasons",
    "rules",
    "safe",
)
REASON_FIELDS = ("if", "then", "why")
RULE_FIELDS = ("if", "then")
CLAIM_FIELDS = ("when", *STATUSES)


def load_theory(path: str | Path) -> ReasonTheory:
    """Read a theory from a YAML or JSON file; see `make_theory`."""
    from rolecraft._files import read_mapping

    return make_theory(read_mapping(Path(path)), where=str(path))


def load_claims(path: str | Path) -> tuple[Claim, ...]:
    """Read the claims that a theory's file makes about it; see `make_claims`."""
    from rolecraft._files import read_mapping

    return make_claims(read_mapping(Path(path)), where=str(path))


def make_theory(data: Any, *, where: str = "theory") -> ReasonTheory:
    """Make a theory of what a file holds.

    Args:
        data: A mapping with the fields of `THEORY_FIELDS`. `facts` and `actions` map names to what they mean, or are
            lists of names; `reasons` maps names to `if`, `then` and `why`; `priorities` are texts `a > b > c`, the
            first outranking the rest.
        where: Begins messages.

    Raises:
        UserError: If a field or name is unknown, or a value is out of place; the place is named.
        PriorityCycle: If the priorities go in a circle.
    """
    _fields(data, THEORY_FIELDS, where)
    facts = _names(data.get("facts", {}), f"{where}: facts")
    actions = _names(data.get("actions", {}), f"{where}: actions")
    reasons = data.get("reasons") or {}
    if not isinstance(reasons, Mapping):
        raise UserError(f"{where}: reasons: expected a mapping of names to if, then and why, got {reasons!r:.60}.")
    name = data.get("name", Path(where).stem)
    if not isinstance(name, str):
        raise UserError(f"{where}: name: expected text, got {name!r:.60}.")
    try:
        return ReasonTheory(
            facts=tuple(facts),
            actions=tuple(actions),
            defaults=tuple(_default(str(key), entry, f"{where}: reasons.{key}") for key, entry in reasons.items()),
            priorities=_priorities(data.get("priorities"), reasons, f"{where}: priorities"),
            exclusive=tuple(
                _group(each, f"{where}: exclusive") for each in _list(data.get("exclusive"), f"{where}: exclusive")
            ),
            rules=tuple(_rule(each, f"{where}: rules") for each in _list(data.get("rules"), f"{where}: rules")),
            safe=_text(data.get("safe", ""), f"{where}: safe"),
            name=name,
            described={each: said for each, said in {**facts, **actions}.items() if said},
        )
    except UserError as error:
        if str(error).startswith(where):
            raise
        error.args = (f"{where}: {error}",)
        raise


def make_claims(data: Any, *, where: str = "theory") -> tuple[Claim, ...]:
    """Make the claims of what a theory's file holds: each `when` (facts) and one of obligatory, forbidden, permissible.

    Raises:
        UserError: If a field is unknown or missing.
    """
    _fields(data, THEORY_FIELDS, where)
    found = []
    for place, entry in enumerate(_list(data.get("claims"), f"{where}: claims")):
        here = f"{where}: claims[{place}]"
        _fields(entry, CLAIM_FIELDS, here)
        said = [status for status in STATUSES if status in entry]
        if len(said) != 1:
            raise UserError(f"{here}: expected one of {', '.join(STATUSES)}, got {', '.join(said) or 'none'}.")
        when = tuple(literal(each, f"{here}: when") for each in _list(entry.get("when"), f"{here}: when"))
        found.append(Claim(when, said[0], _text(entry[said[0]], here)))
    return tuple(found)


def _default(name: str, entry: Any, where: str) -> Default:
    _fields(entry, REASON_FIELDS, where)
    if "then" not in entry:
        raise UserError(f"{where}: expected then: a macro action, or 'not' and one.")
    premise = _list(entry.get("if"), f"{where}.if")
    return Default(name, tuple(literal(each, f"{where}.if") for each in premise),
                   literal(entry["then"], f"{where}.then"), _text(entry.get("why", ""), f"{where}.why"))  # fmt: skip


def _rule(entry: Any, where: str) -> HardRule:
    _fields(entry, RULE_FIELDS, where)
    premise = tuple(literal(each, f"{where}: if") for each in _list(entry.get("if"), f"{where}: if"))
    return HardRule(premise, literal(entry.get("then"), f"{where}: then"))


def _priorities(data: Any, reasons: Mapping[Any, Any], where: str) -> dict[Pair, str]:
    found: dict[Pair, str] = {}
    for entry in _list(data, where):
        names = [name.strip() for name in entry.split(">")] if isinstance(entry, str) else []
        if len(names) < 2 or not all(names):
            raise UserError(f"{where}: expected a text such as 'rescue > promise', got {entry!r:.60}.")
        for name in names:
            if name not in reasons:
                near = did_you_mean(name, map(str, reasons))
                raise UserError(
                    f"{where}: there is no reason {name!r} ({', '.join(map(str, reasons)) or 'none'}).{near}"
                )
        found |= {(lower, higher): "" for higher, lower in pairwise(names)}
    return found


def _group(entry: Any, where: str) -> frozenset[str]:
    names = [_text(each, where) for each in _list(entry, where)]
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"{where}: expected a list of two or more different actions, got {entry!r:.60}.")
    return frozenset(names)


def _names(data: Any, where: str) -> dict[str, str]:
    if isinstance(data, Mapping):
        return {_text(key, where): _text(said or "", f"{where}.{key}") for key, said in data.items()}
    names = [_text(each, where) for each in _list(data, where)]
    if len(set(names)) < len(names):
        raise UserError(f"{where}: a name stands twice in {names}.")
    return dict.fromkeys(names, "")


def _list(data: Any, where: str) -> list[Any]:
    if data is None:
        return []
    if not isinstance(data, list):
        raise UserError(f"{where}: expected a list, got {data!r:.60}.")
    return data


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{where}: expected text, got {value!r:.60}; quote what YAML reads as something else.")
    return value


def _fields(data: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a mapping with {', '.join(known)}, got {data!r:.60}.")
    for name in data:
        if name not in known:
            near = did_you_mean(str(name), known)
            raise UserError(f"{where}: unknown field {name!r:.60} (fields: {', '.join(known)}).{near}")

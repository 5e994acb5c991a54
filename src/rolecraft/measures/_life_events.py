"""Life events: what a persona is told happened, and which changes people show afterwards, with the sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecraft._files import bundled, read_mapping
from rolecraft.errors import UserError, did_you_mean

_FIELDS = ("name", "version", "events", "neutral", "fillers", "directions")


@dataclass(frozen=True)
class LifeEvent:
    """An event and its narratives."""

    id: str
    name: str
    narratives: tuple[str, ...]
    """The same event in several wordings, in the second person."""


@dataclass(frozen=True)
class HumanChange:
    """The change that a longitudinal study reports for one trait after one event."""

    event: str
    trait: str
    sign: int
    """+1 or -1."""
    source: str
    """Author and year, or where the figure comes from."""
    low: float | None = None
    """Smallest human change, in SD of the trait between persons, without its sign; None if not known."""
    high: float | None = None
    """Largest one."""

    @property
    def range(self) -> tuple[float, float] | None:
        """Low and high, or None where the literature table gives none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class LifeEvents:
    """Events, texts in which nothing happens, unrelated questions, and the directions documented for people."""

    name: str
    version: str
    events: tuple[LifeEvent, ...]
    neutral: tuple[str, ...]
    """Texts without an event, for the retest."""
    fillers: tuple[str, ...]
    """Unrelated questions, to see whether a shift lasts."""
    directions: tuple[HumanChange, ...]
    hash: str

    def __getitem__(self, id_: str) -> LifeEvent:
        """Return an event by id.

        Raises:
            UserError: If there is none.
        """
        found = {event.id: event for event in self.events}
        if id_ not in found:
            raise UserError(f"{self.name} has no event {id_!r} (known: {', '.join(found)}).{did_you_mean(id_, found)}")
        return found[id_]


def load_life_events(source: str | Path = "life-events-v1") -> LifeEvents:
    """Read events and directions.

    Args:
        source: Name of a bundled set, or the path of a YAML or JSON file with `name`, `version`, `events` (`id`,
            `name`, `narratives`), `neutral`, `fillers` and `directions` (`event`, `trait`, `sign`, `source`, and
            perhaps `low` and `high`).

    Raises:
        UserError: If it is not found, or a field is missing, unknown or unusable; file and place are named.
    """
    path = bundled("measures", source)
    data: Any = read_mapping(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of fields, got {type(data).__name__}.")
    _known(str(path), data, _FIELDS, _FIELDS)
    events = tuple(_event(f"{path}: events[{number}]", entry) for number, entry in enumerate(data["events"]))
    ids = [event.id for event in events]
    if twice := [id_ for number, id_ in enumerate(ids) if id_ in ids[:number]]:
        raise UserError(f"{path}: events: the id {twice[0]!r} stands twice; give each event its own.")
    directions = [
        _change(f"{path}: directions[{number}]", entry, ids) for number, entry in enumerate(data["directions"] or ())
    ]
    pairs = [(change.event, change.trait) for change in directions]
    if double := [pair for number, pair in enumerate(pairs) if pair in pairs[:number]]:
        raise UserError(f"{path}: directions: {' and '.join(double[0])} stand together twice; keep one direction.")
    return LifeEvents(
        name=str(data["name"]),
        version=str(data["version"]),
        events=events,
        neutral=_texts(f"{path}: neutral", data["neutral"]),
        fillers=_texts(f"{path}: fillers", data["fillers"]),
        directions=tuple(directions),
        hash=hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16],
    )


def _known(where: str, entry: Any, needed: Sequence[str], known: Sequence[str]) -> None:
    if not isinstance(entry, Mapping):
        raise UserError(f"{where}: expected a mapping of fields, got {entry!r}.")
    for field in needed:
        if field not in entry:
            raise UserError(f"{where}: the field {field!r} is missing.")
    for field in entry:
        if field not in known:
            near = did_you_mean(str(field), known)
            raise UserError(f"{where}: unknown field {field!r} (known: {', '.join(known)}).{near}")


def _texts(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text.strip() for text in value):
        raise UserError(f"{where}: expected a list of one or more texts, got {value!r}.")
    return tuple(value)


def _event(where: str, entry: Any) -> LifeEvent:
    fields = ("id", "name", "narratives")
    _known(where, entry, fields, fields)
    return LifeEvent(str(entry["id"]), str(entry["name"]), _texts(f"{where}: narratives", entry["narratives"]))


def _change(where: str, entry: Any, events: Sequence[str]) -> HumanChange:
    fields = ("event", "trait", "sign", "source")
    _known(where, entry, fields, (*fields, "low", "high"))
    if entry["event"] not in events:
        near = did_you_mean(str(entry["event"]), events)
        raise UserError(f"{where}: event: no event {entry['event']!r} (known: {', '.join(events)}).{near}")
    if entry["sign"] not in (1, -1) or isinstance(entry["sign"], bool):
        raise UserError(f"{where}: sign: expected 1 or -1, got {entry['sign']!r}; leave out pairs without a direction.")
    if not str(entry["source"] or "").strip():
        raise UserError(f"{where}: source: expected author and year of the study, got nothing.")
    low, high = entry.get("low"), entry.get("high")
    if (low is None) != (high is None):
        raise UserError(f"{where}: low and high belong together; give both or neither.")
    if low is not None and not (_number(low) and _number(high) and 0 <= low <= high):
        raise UserError(f"{where}: expected 0 <= low <= high in SD, without the sign, got {low!r} and {high!r}.")
    return HumanChange(
        entry["event"], str(entry["trait"]), entry["sign"], str(entry["source"]),
        None if low is None else float(low), None if high is None else float(high),
    )  # fmt: skip


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value

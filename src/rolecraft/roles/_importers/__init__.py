"""Reading the role files of other projects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rolecraft._files import parse_json, read_records, read_text
from rolecraft.errors import RoleError, did_you_mean
from rolecraft.roles._cells import role_from_cells
from rolecraft.roles._importers import _assistant_axis, _character_card, _sotopia, _tinytroupe
from rolecraft.roles._importers._png import card_text
from rolecraft.roles._inventory import Inventory
from rolecraft.roles._role import Role, parse_role


class Format(NamedTuple):
    """How files of one project are recognised and read."""

    recognises: Callable[[Any], bool]
    read: Callable[[dict[str, Any], str, str], tuple[dict[str, Any], list[str]]]
    """(document, stem of the file, place for messages) -> (fields of a role, what has no place in one)."""


FORMATS: Mapping[str, Format] = {
    "character-card": Format(_character_card.recognises, _character_card.read),
    "assistant-axis": Format(_assistant_axis.recognises, _assistant_axis.read),
    "tinytroupe": Format(_tinytroupe.recognises, _tinytroupe.read),
    "sotopia": Format(_sotopia.recognises, _sotopia.read),
}
TABLES = ("csv", "jsonl")
NAMES = ("auto", *FORMATS, *TABLES)


@dataclass(frozen=True)
class Imported:
    """What an import gave."""

    inventory: Inventory
    left_out: dict[str, list[str]]
    """Role id to the fields of its file that have no place in a `Role`; roles with none are absent."""


def import_roles(files: Sequence[str | Path], format: str = "auto") -> Imported:
    """Read files of other projects into one inventory.

    Args:
        files: Character cards (V2 or V3, JSON or PNG), assistant-axis role files, TinyTroupe agents, Sotopia agent
            profiles (one, or a list of them), CSV or JSONL tables of roles.
        format: One of `NAMES`; `auto` looks at the content.

    Raises:
        UserError: If a file cannot be read as such, or two give the same id; file, line or field, and the mend are
            named.
    """
    if format not in NAMES:
        raise RoleError(f"format: {format!r} is unknown.{did_you_mean(format, NAMES)} Known: {', '.join(NAMES)}.")
    roles: list[Role] = []
    left_out: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for path in map(Path, files):
        for fields, rest, where in _read_file(path, format):
            role = parse_role(fields, where)
            if role.id in places:
                raise RoleError(
                    f"{where}: gives the id {role.id!r}, as {places[role.id]} does; rename one, or leave it out."
                )
            places[role.id] = where
            roles.append(role)
            if rest:
                left_out[role.id] = rest
    return Imported(Inventory("imported", "1", tuple(roles)), left_out)


def _read_file(path: Path, format: str) -> list[tuple[dict[str, Any], list[str], str]]:
    if not path.is_file():
        raise RoleError(f"{path}: no such file.")
    suffix = path.suffix.lower().lstrip(".")
    if suffix in TABLES and format in ("auto", suffix):
        records = read_records(path, "roles")
        return [
            (role_from_cells(record.data, record.where) if record.cells else record.data, [], record.where)
            for record in records
        ]
    documents = _documents(path)
    found = []
    for place, document in enumerate(documents):
        where = str(path) if len(documents) == 1 else f"{path}: entry {place}"
        reader = FORMATS[_recognise(document, where) if format == "auto" else format]
        if not reader.recognises(document):
            raise RoleError(f"{where}: not a file of the format {format!r}; try --format auto.")
        fields, rest = reader.read(document, path.name.split(".")[0], where)
        found.append((fields, rest, where))
    return found


def _documents(path: Path) -> list[Any]:
    document = parse_json(card_text(path) if path.suffix.lower() == ".png" else read_text(path), path)
    return document if isinstance(document, list) else [document]


def _recognise(document: Any, where: str) -> str:
    for name, entry in FORMATS.items():
        if entry.recognises(document):
            return name
    keys = ", ".join(list(document)[:6]) if isinstance(document, dict) else type(document).__name__
    raise RoleError(
        f"{where}: not a file of a known project (found: {keys}). Known: {', '.join(FORMATS)}; "
        "a role of ours goes into an inventory as it is."
    )

"""Reading the users' data files, with errors that name file and place; writing files atomically."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rolecraft.errors import RoleError, UserError

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".csv")
HEADER = "inventory.yaml"
"""File of a folder that holds no entries but the `name` and `version` of the whole."""
PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class Record:
    """One entry of a data file."""

    data: Any
    where: str
    """File and position, for messages."""
    header: dict[str, Any] = field(default_factory=dict)
    """The other keys of the file it stands in."""


def bundled(package: str, source: str | Path) -> Path:
    """Return the path `source` names: an existing path, or else an entry of `rolecraft/<package>/data`.

    Raises:
        RoleError: If neither exists; the bundled names are listed.
    """
    path = Path(source)
    if path.exists():
        return path
    data = PACKAGE / package / "data"
    for found in (data / path.name, *data.rglob(f"{path.name}.*")):
        if len(path.parts) == 1 and found.exists():
            return found
    names = ", ".join(sorted(entry.stem for entry in data.iterdir()))
    raise RoleError(f"{source}: no such file or folder, and no bundled name (bundled: {names}).")


def read_mapping(path: Path) -> Any:
    """Parse one YAML or JSON file.

    Raises:
        UserError: If it cannot be read or parsed; line and column are named.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        return (
            json.loads(text)
            if path.suffix == ".json"
            else yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        )
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UserError(f"{path}{place}: not valid YAML: {getattr(error, 'problem', error)}.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None


def read_records(path: Path, key: str) -> Iterator[Record]:
    """Yield the entries of a file, or of all data files of a folder in the order of their names.

    Args:
        path: A YAML, JSON, JSONL or CSV file, or a folder of them.
        key: The key under which a mapping holds its entries (`roles`, `questions`).

    Raises:
        UserError: If a file cannot be parsed, holds no entries, or has another format.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.name != HEADER)
        if not files:
            raise UserError(f"{path}: the folder holds no {', '.join(SUFFIXES)} file.")
        header = read_mapping(path / HEADER) if (path / HEADER).exists() else {}
        for file in files:
            for record in read_records(file, key):
                yield replace(record, header=record.header | header)
    elif path.suffix == ".jsonl":
        yield from _read_jsonl(path)
    elif path.suffix == ".csv":
        yield from _read_csv(path)
    elif path.suffix in SUFFIXES:
        yield from _read_document(path, key)
    else:
        raise UserError(f"{path}: expected one of {', '.join(SUFFIXES)}, got {path.suffix or 'no suffix'!r}.")


def _read_document(path: Path, key: str) -> Iterator[Record]:
    document = read_mapping(path)
    header = {name: value for name, value in document.items() if name != key} if isinstance(document, dict) else {}
    entries = document.get(key, []) if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise UserError(f"{path}: expected a list of {key}, got {type(entries).__name__}.")
    if isinstance(document, dict) and key not in document and set(header) - {"name", "version"}:
        raise UserError(f"{path}: expected the key {key!r}, got {', '.join(map(repr, header))}.")
    for position, data in enumerate(entries):
        label = data.get("id", data.get("name")) if isinstance(data, dict) else None
        yield Record(data, f"{path}: {key}[{position}]" + (f" ({label})" if label else ""), header)


def _read_jsonl(path: Path) -> Iterator[Record]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if line.strip():
            try:
                yield Record(json.loads(line), f"{path}:{number}")
            except json.JSONDecodeError as error:
                raise UserError(f"{path}:{number}:{error.colno}: not valid JSON: {error.msg}.") from None


def _read_csv(path: Path) -> Iterator[Record]:
    """Lists stand in one cell, their items separated by ` | `; `trait.<name>` columns hold traits."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            if None in row:
                raise UserError(f"{path}:{number}: the row has more cells than the header; quote cells with commas.")
            yield Record({name: value for name, value in row.items() if value}, f"{path}:{number}")


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            os.fchmod(file.fileno(), 0o644)  # mkstemp's is for the owner alone
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

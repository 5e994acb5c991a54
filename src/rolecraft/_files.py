"""Reading the users' data files, with errors that name file and place; writing files atomically."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rolecraft.errors import RoleError, UserError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    cells: bool = False
    """Whether `data` is a row of a table, all of its values texts."""


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
    names = sorted(_names(data))
    near = did_you_mean(path.name, names)
    raise RoleError(f"{source}: no such file or folder, and no bundled name.{near} Bundled: {', '.join(names)}.")


def _names(data: Path) -> Iterator[str]:
    """Yield what `bundled` can find: whole folders under their names, other files under their stems."""
    for entry in data.iterdir():
        if entry.is_dir() and not (entry / HEADER).exists():
            yield from _names(entry)
        else:
            yield entry.stem


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe types, where a key that stands twice in a mapping is an error instead of the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value!r} stands twice; keep one of the two"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def read_mapping(path: Path) -> Any:
    """Parse one YAML or JSON file.

    Raises:
        UserError: If it cannot be read or parsed; line and column are named.
    """
    text = read_text(path)
    try:
        return parse_json(text, path) if path.suffix == ".json" else yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UserError(f"{path}{place}: not valid YAML: {getattr(error, 'problem', error)}.") from None


def read_text(path: Path) -> str:
    """Return the text of a file, line ends as they are.

    Raises:
        UserError: If it cannot be read or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); save the file as UTF-8.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None


def parse_json(text: str, path: Path, line: int | None = None) -> Any:
    """Parse JSON.

    Args:
        text: What the file held, or one line of it.
        path: The file, for the message.
        line: Number of that line.

    Raises:
        UserError: If it is not valid JSON (`NaN` is not) or a key stands twice in an object.
    """
    where = f"{path}:{line}" if line else str(path)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
            raise UserError(f"{where}: the key {twice!r} stands twice in one object; keep one of the two.")
        return mapping

    def refuse(constant: str) -> Any:
        raise UserError(f"{where}: {constant} is not valid JSON; leave the field out or give a number.")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f"{path}:{line or error.lineno}:{error.colno}"
        raise UserError(f"{place}: not valid JSON: {error.msg}.") from None


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
    for number, line in enumerate(read_text(path).split("\n"), 1):  # a text may hold other line separators
        if line.strip():
            yield Record(parse_json(line, path, number), f"{path}:{number}")


def _read_csv(path: Path) -> Iterator[Record]:
    """The values are texts; who asked for the records knows what stands in a cell."""
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        columns = rows.fieldnames or []
        twice = [column for place, column in enumerate(columns) if column in columns[:place]]
        if twice:
            raise UserError(f"{path}:1: the column {twice[0]!r} stands twice; keep one of the two.")
        line = rows.line_num + 1
        for row in rows:
            if None in row:
                raise UserError(f"{path}:{line}: the row has more cells than the header; quote cells with commas.")
            yield Record({name: value for name, value in row.items() if value}, f"{path}:{line}", cells=True)
            line = rows.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}:{rows.line_num}: not valid CSV: {error}.") from None


def read_tensors(path: Path, expected: str) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
    """Read a safetensors file; nothing is unpickled.

    Args:
        path: The file.
        expected: What it should be, for the message where it is missing.

    Returns:
        Metadata and tensors, each by name.

    Raises:
        UserError: If it is missing or not such a file.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"{path}: no such file; expected {expected}.")
    try:
        with safe_open(path, framework="numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}).") from None


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

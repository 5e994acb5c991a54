"""What every importer needs: ids, texts, and an account of what was used."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from rolecraft.errors import RoleError


def slug(name: str, where: str) -> str:
    """Return an id made of a name.

    Raises:
        RoleError: If nothing is left of it.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    made = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if not made:
        raise RoleError(
            f"{where}: cannot make an id of the name {name!r}; give it a name with Latin letters or digits."
        )
    return made


class Fields:
    """The fields of a document, which remembers those that were asked for."""

    def __init__(self, data: Any, where: str, path: str = "") -> None:
        if not isinstance(data, Mapping):
            raise RoleError(f"{where}: {path.rstrip('.') or 'the file'} must be a mapping, got {type(data).__name__}.")
        self._data, self._where, self._path = data, where, path
        self._used: set[str] = set()

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text, stripped; empty if it is absent."""
        value = self.raw(key)
        if value is None or value == "":
            if required:
                raise RoleError(f"{self._where}: {self._path}{key} is missing or empty; a role needs it.")
            return ""
        if not isinstance(value, str | int | float):
            raise RoleError(f"{self._where}: {self._path}{key} must be a text, got {type(value).__name__}.")
        return str(value).strip()

    def texts(self, key: str) -> list[str]:
        """Return a list of texts; a single text counts as a list of one, mappings as their values."""
        value = self.raw(key)
        if value is None or value == "":
            return []
        items = value if isinstance(value, list) else list(value.values()) if isinstance(value, Mapping) else [value]
        flat = [part for item in items for part in (item.values() if isinstance(item, Mapping) else [item])]
        return [str(item).strip() for item in flat if item is not None and str(item).strip()]

    def raw(self, key: str) -> Any:
        """Return a value as it is and count it as used."""
        self._used.add(key)
        return self._data.get(key)

    def rest(self) -> list[str]:
        """Return the fields that hold something and were not asked for."""
        return [
            f"{self._path}{key}"
            for key, value in self._data.items()
            if key not in self._used and value not in ("", [], {}, None)
        ]


def kept(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop empty fields."""
    return {name: value for name, value in fields.items() if value not in ("", [], {}, None)}


def sentence(text: str) -> str:
    """Close a text with a full stop."""
    return text if not text or text[-1] in ".!?" else f"{text}."

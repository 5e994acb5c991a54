"""Identity by content: canonical JSON, keys and seeds that follow from what a thing is and from nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def plain(value: Any) -> Any:
    """Reduce a value to what JSON holds, so that equal meanings become equal values.

    Tuples become lists, sets sorted lists, dataclasses and pydantic models mappings, paths strings, numpy scalars and
    arrays numbers and lists, and whole floats integers (strength 1 and strength 1.0 are the same).

    Raises:
        TypeError: If the value has no such form.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, AbstractSet):
        return sorted((plain(item) for item in value), key=canonical_json)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Path):
        return str(value)
    for method in ("tolist", "model_dump"):
        if hasattr(value, method):
            return plain(getattr(value, method)())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def canonical_json(value: Any) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces, see `plain`.

    Raises:
        TypeError: If the value has no JSON form.
        ValueError: If it holds NaN or an infinity.
    """
    return _ENCODER.encode(plain(value))


def digest(value: Any) -> bytes:
    """Return the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).digest()


def content_key(**parts: Any) -> str:
    """Return the key of a unit of work: 20 hex digits that depend on the named parts alone, not on their order."""
    return digest(parts).hex()[:20]


def derive_seed(*parts: Any) -> int:
    """Return a seed in [0, 2**63) that depends on the parts alone.

    Example:
        ```python
        derive_seed("screen", role.id, question.id, 0)
        ```
    """
    return int.from_bytes(digest(list(parts))[:8], "big") >> 1

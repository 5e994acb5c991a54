"""Role files of the Assistant Axis (arXiv 2601.10387): one JSON file per role, named after it."""

from __future__ import annotations

from typing import Any

from rolecraft.errors import RoleError
from rolecraft.roles._importers._common import Fields, kept, slug


def recognises(document: Any) -> bool:
    """Whether a document looks like such a file."""
    return isinstance(document, dict) and "instruction" in document


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one. The role's name is that of the file."""
    fields = Fields(document, where)
    entries = fields.raw("instruction")
    if not isinstance(entries, list):
        raise RoleError(f"{where}: instruction must be a list of mappings with the key 'pos'.")
    instructions: list[str] = []
    rest: dict[str, None] = {}
    for place, data in enumerate(entries):
        entry = Fields(data, where, f"instruction[{place}].")
        if "pos" not in data:
            raise RoleError(f"{where}: instruction[{place}].pos is missing; each entry assigns the role by it.")
        if text := entry.text("pos"):
            instructions.append(text)
        else:  # their `default` role begins with the model as it is
            rest[f"instruction[{place}] (empty)"] = None
        rest |= dict.fromkeys(key.replace(f"[{place}]", "[]") for key in entry.rest())
    if not instructions:
        raise RoleError(f"{where}: instruction holds no text under 'pos'; a role needs at least one.")
    name = stem.replace("_", " ").strip()
    role = {
        "id": slug(name, where),
        "name": name,
        "description": instructions[0],
        "instructions": instructions,
        "questions": fields.texts("questions"),
    }
    return kept(role), [*rest, *fields.rest()]

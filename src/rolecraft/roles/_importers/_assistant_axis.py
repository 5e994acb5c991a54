"""Role files of the Assistant Axis (arXiv 2601.10387): one JSON file per role, named after it."""

from __future__ import annotations

from typing import Any

from rolecraft.errors import RoleError
from rolecraft.roles._importers._common import Fields, kept, slug


def recognises(document: Any) -> bool:
    """Whether a document looks like such a file."""
    return isinstance(document, dict) and "instruction" in document and "questions" in document


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one. The role's name is that of the file."""
    fields = Fields(document, where)
    entries = fields.raw("instruction")
    if not isinstance(entries, list) or not entries:
        raise RoleError(f"{where}: instruction must be a list of mappings with the key 'pos'.")
    instructions = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("pos"), str) or not entry["pos"].strip():
            raise RoleError(
                f"{where}: instruction[{place}].pos is missing or empty; each entry assigns the role by it."
            )
        instructions.append(entry["pos"].strip())
    name = stem.replace("_", " ").strip()
    role = {
        "id": slug(name, where),
        "name": name,
        "description": instructions[0],
        "instructions": instructions,
        "questions": fields.texts("questions"),
    }
    return kept(role), fields.rest()

"""TinyTroupe agents: `*.agent.json` with a persona."""

from __future__ import annotations

from typing import Any

from rolecraft.errors import RoleError
from rolecraft.roles._importers._common import Fields, kept, sentence, slug


def recognises(document: Any) -> bool:
    """Whether a document looks like such a file."""
    return isinstance(document, dict) and isinstance(document.get("persona"), dict) and "name" in document["persona"]


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one."""
    outer = Fields(document, where)
    outer.raw("type")  # marks the format
    persona = Fields(outer.raw("persona"), where, "persona.")
    name = persona.text("name", required=True)
    occupation = Fields(_mapping(persona.raw("occupation"), "title"), where, "persona.occupation.")
    personality = Fields(_mapping(persona.raw("personality"), "traits"), where, "persona.personality.")
    preferences = Fields(_mapping(persona.raw("preferences"), "interests"), where, "persona.preferences.")
    title, employer = occupation.text("title"), occupation.text("organization")
    who = ", ".join(
        part
        for part in (
            f"You are {name}",
            f"{persona.text('age')} years old" if persona.raw("age") else "",
            persona.text("gender"),
            persona.text("nationality"),
            f"living in {persona.text('residence')}" if persona.raw("residence") else "",
            title + (f" at {employer}" if employer else ""),
        )
        if part
    )
    traits = personality.texts("traits")
    description = " ".join([sentence(who), *map(sentence, (occupation.text("description"), *traits))]).strip()
    role = {
        "id": slug(name, where),
        "name": name,
        "description": description,
        "style": persona.text("style"),
        "values": persona.texts("beliefs"),
        "goals": persona.texts("long_term_goals"),
        "knowledge": [
            *persona.texts("skills"),
            *persona.texts("education"),
            *(f"an interest: {interest}" for interest in preferences.texts("interests")),
            *persona.texts("other_facts"),
        ],
        "tags": ["tinytroupe"],
        "relations": _relations(persona.raw("relationships"), where),
    }
    parts = (outer, persona, occupation, personality, preferences)
    return kept(role), [field for part in parts for field in part.rest()]


def _mapping(value: Any, key: str) -> Any:
    """Older files give a plain text or list where newer ones have a mapping."""
    return {} if value is None else value if isinstance(value, dict) else {key: value}


def _relations(entries: Any, where: str) -> dict[str, str]:
    if not isinstance(entries or [], list):
        raise RoleError(f"{where}: persona.relationships must be a list, got {type(entries).__name__}.")
    relations: dict[str, str] = {}
    for place, data in enumerate(entries or []):
        entry = Fields(data, where, f"persona.relationships[{place}].")
        other = slug(entry.text("name", required=True), where)
        texts = [relations.get(other, ""), entry.text("description") or "known"]
        relations[other] = "; ".join(text for text in texts if text)
    return relations

"""TinyTroupe agents: `*.agent.json` with a persona."""

from __future__ import annotations

from typing import Any

from rolecraft.roles._importers._common import Fields, kept, sentence, slug


def recognises(document: Any) -> bool:
    """Whether a document looks like such a file."""
    return isinstance(document, dict) and isinstance(document.get("persona"), dict) and "name" in document["persona"]


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one."""
    outer = Fields(document, where)
    outer.raw("type")
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
    relations = persona.raw("relationships")
    role = {
        "id": slug(name, where),
        "name": name,
        "description": description,
        "style": persona.text("style"),
        "values": persona.texts("beliefs"),
        "goals": persona.texts("long_term_goals"),
        "knowledge": [*persona.texts("skills"), *persona.texts("education"), *persona.texts("other_facts")],
        "tags": ["tinytroupe", *preferences.texts("interests")],
        "relations": {slug(r["name"], where): r.get("description") or "known" for r in _entries(relations)},
    }
    rest = [*outer.rest(), *persona.rest(), *occupation.rest(), *personality.rest(), *preferences.rest()]
    return kept(role), [field for field in rest if field != "mental_faculties"]


def _mapping(value: Any, key: str) -> Any:
    """Older files give a plain text or list where newer ones have a mapping."""
    return {} if value is None else value if isinstance(value, dict) else {key: value}


def _entries(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value or [] if isinstance(entry, dict) and entry.get("name")]

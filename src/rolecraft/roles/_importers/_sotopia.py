"""Sotopia agent profiles: one JSON object, or a list of them."""

from __future__ import annotations

from typing import Any

from rolecraft.roles._importers._common import Fields, kept, sentence, slug

_RECORD_KEEPING = ("pk", "model_id", "tag")


def recognises(document: Any) -> bool:
    """Whether a document looks like such a profile."""
    return isinstance(document, dict) and "first_name" in document and "last_name" in document


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one."""
    fields = Fields(document, where)
    for key in _RECORD_KEEPING:
        fields.raw(key)
    name = f"{fields.text('first_name', required=True)} {fields.text('last_name')}".strip()
    age, occupation = fields.text("age"), fields.text("occupation")
    who = ", ".join(part for part in (f"You are {name}", f"{age} years old" if age else "", occupation) if part)
    said = (fields.text("public_info"), fields.text("personality_and_values"), fields.text("decision_making_style"))
    role = {
        "id": slug(name, where),
        "name": name,
        "description": " ".join([sentence(who), *(sentence(text) for text in said if text)]),
        "values": [*fields.texts("moral_values"), *fields.texts("schwartz_personal_values")],
        "knowledge": [f"a secret: {secret}" for secret in fields.texts("secret")],
        "tags": ["sotopia"],
    }
    return kept(role), fields.rest()

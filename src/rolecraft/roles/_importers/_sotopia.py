"""Sotopia agent profiles: one JSON object, or a list of them."""

from __future__ import annotations

from typing import Any

from rolecraft.roles._importers._common import Fields, kept, sentence, slug


def recognises(document: Any) -> bool:
    """Whether a document looks like such a profile."""
    return isinstance(document, dict) and "first_name" in document and "last_name" in document


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one."""
    fields = Fields(document, where)
    name = f"{fields.text('first_name', required=True)} {fields.text('last_name')}".strip()
    age, occupation = fields.text("age"), fields.text("occupation")
    known_age = age not in ("", "0")  # 0 is the default of the format
    who = ", ".join(part for part in (f"You are {name}", f"{age} years old" if known_age else "", occupation) if part)
    decides = fields.text("decision_making_style")
    said = (
        fields.text("public_info"),
        fields.text("personality_and_values"),
        f"Way of deciding: {decides}" if decides else "",
    )
    role = {
        "id": slug(name, where),
        "name": name,
        "description": " ".join([sentence(who), *(sentence(text) for text in said if text)]),
        "values": [*fields.texts("moral_values"), *fields.texts("schwartz_personal_values")],
        "knowledge": [f"a secret: {secret}" for secret in fields.texts("secret")],
        "tags": ["sotopia", *fields.texts("tag")],
    }
    return kept(role), fields.rest()

"""Character cards, specification V2 and V3, in and out."""

from __future__ import annotations

import itertools
import re
from typing import Any

from rolecraft.errors import RoleError
from rolecraft.roles._importers._common import Fields, kept, slug
from rolecraft.roles._role import Role

SPECS = {"chara_card_v2": "2", "chara_card_v3": "3"}
_IDLE = ("extensions", "creator", "character_version", "creation_date", "modification_date")
"""About the card rather than the character."""


def recognises(document: Any) -> bool:
    """Whether a document looks like a card."""
    return isinstance(document, dict) and ("spec" in document or {"first_mes", "mes_example"} <= set(document))


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one. `{{char}}` and `{{user}}` are written out."""
    data = Fields(_data(document, where), where, "data.")
    for key in _IDLE:
        data.raw(key)
    name = data.text("name", required=True)

    def plain(text: str) -> str:
        text = re.sub(r"\{\{char\}\}|<bot>", name, text, flags=re.IGNORECASE)
        return re.sub(r"\{\{user\}\}|<user>", "the user", text, flags=re.IGNORECASE).strip()

    description = plain(data.text("description")) or plain(data.text("personality"))
    if not description:
        raise RoleError(f"{where}: data.description and data.personality are both empty; a role needs one of them.")
    greetings = [data.text("first_mes"), *data.texts("alternate_greetings")]
    role = {
        "id": slug(name, where),
        "name": name,
        "description": description,
        "style": plain(data.text("personality")),
        "instructions": [plain(text) for text in (data.text("system_prompt"), data.text("scenario")) if text],
        "catchphrases": [plain(text) for text in greetings if text and len(text) < 200],
        "demonstrations": _dialogues(data.text("mes_example"), plain),
        "knowledge": [plain(text) for text in _lore(data.raw("character_book"), where)],
        "tags": data.texts("tags"),
    }
    long_greetings = ["data.first_mes (over 200 characters)"] if any(len(text) >= 200 for text in greetings) else []
    return kept(role), long_greetings + data.rest()


def _data(document: dict[str, Any], where: str) -> Any:
    spec = document.get("spec")
    if spec is None:
        raise RoleError(f"{where}: a V1 card (no 'spec'); open and save it in an editor of V2 or V3 cards.")
    if spec not in SPECS:
        raise RoleError(f"{where}: spec is {spec!r}; expected one of {', '.join(SPECS)}.")
    version = str(document.get("spec_version", ""))
    if not version.startswith(SPECS[spec]):
        raise RoleError(f"{where}: spec_version {version!r} does not belong to {spec!r}; expected {SPECS[spec]}.0.")
    if "data" not in document:
        raise RoleError(f"{where}: data is missing; a card of {spec!r} keeps the character there.")
    return document["data"]


def _dialogues(text: str, plain: Any) -> list[dict[str, str]]:
    """Read `{{user}}: ...` and `{{char}}: ...` lines; `<START>` begins a new dialogue."""
    pairs: list[dict[str, str]] = []
    for block in re.split(r"<START>", text, flags=re.IGNORECASE):
        turns = re.findall(
            r"\{\{(user|char)\}\}:\s*(.*?)(?=\{\{(?:user|char)\}\}:|\Z)", block, re.DOTALL | re.IGNORECASE
        )
        for (first, said), (second, reply) in itertools.pairwise(turns):
            if (first.lower(), second.lower()) == ("user", "char") and said.strip() and reply.strip():
                pairs.append({"user": plain(said), "reply": plain(reply)})
    return pairs


def _lore(book: Any, where: str) -> list[str]:
    if book is None:
        return []
    if not isinstance(book, dict) or not isinstance(book.get("entries", []), list):
        raise RoleError(f"{where}: data.character_book must be a mapping with a list 'entries'.")
    entries = [entry for entry in book.get("entries", []) if isinstance(entry, dict)]
    return [str(e["content"]) for e in entries if e.get("enabled", True) and str(e.get("content", "")).strip()]


def to_character_card(role: Role) -> dict[str, Any]:
    """Return a V2 card of a role; importing it gives back name, description, style, examples, knowledge and tags."""
    examples = "\n".join(f"<START>\n{{{{user}}}}: {d.user}\n{{{{char}}}}: {d.reply}" for d in role.demonstrations)
    instructions = [*role.instructions[:2], "", ""]
    return {
        "spec": "chara_card_v2",
        "spec_version": "2.0",
        "data": {
            "name": role.name,
            "description": role.description,
            "personality": role.style,
            "scenario": instructions[1],
            "first_mes": role.catchphrases[0] if role.catchphrases else "",
            "mes_example": examples,
            "creator_notes": "",
            "system_prompt": instructions[0],
            "post_history_instructions": "",
            "alternate_greetings": list(role.catchphrases[1:]),
            "character_book": {
                "entries": [
                    {"keys": [], "content": text, "extensions": {}, "enabled": True, "insertion_order": place}
                    for place, text in enumerate(role.knowledge)
                ],
                "extensions": {},
            },
            "tags": list(role.tags),
            "creator": "",
            "character_version": "",
            "extensions": {},
        },
    }

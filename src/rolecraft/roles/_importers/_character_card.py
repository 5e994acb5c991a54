"""Character cards, specification V2 and V3, in and out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from rolecraft.errors import RoleError
from rolecraft.roles._importers._common import Fields, kept, slug
from rolecraft.roles._role import Role

SPECS = {"chara_card_v2": 2.0, "chara_card_v3": 3.0}
LONGEST_CATCHPHRASE = 200
"""Characters; a longer greeting is a scene, not a phrase of the character."""
EXTENSION = "rolecraft"
"""Key of a card's `extensions`, which editors keep, under which a card of ours holds what cards have no field for."""
EXTENDED = (
    "id", "instructions", "questions", "values", "goals", "boundaries", "traits", "arc", "relations", "family", "level",
    "ladder",
)  # fmt: skip


def recognises(document: Any) -> bool:
    """Whether a document looks like a card."""
    return isinstance(document, dict) and ("spec" in document or {"first_mes", "mes_example"} <= set(document))


def read(document: dict[str, Any], stem: str, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return a role's fields and what has no place in one. `{{char}}` and `{{user}}` are written out."""
    outer = Fields(document, where)
    left_out = _check_version(outer, where)
    data = Fields(outer.raw("data"), where, "data.")
    name = data.text("name", required=True)
    called = data.text("nickname") or name
    if called != name:
        left_out.append("data.nickname (stands for {{char}} in the texts)")

    def plain(text: str) -> str:
        text = re.sub(r"\{\{char\}\}|<char>|<bot>", lambda _: called, text, flags=re.IGNORECASE)
        text = re.sub(r"\{\{user\}\}|<user>", "the user", text, flags=re.IGNORECASE)
        return re.sub(r"\{\{original\}\}", "", text, flags=re.IGNORECASE).strip()

    description = plain(data.text("description")) or plain(data.text("personality"))
    if not description:
        raise RoleError(f"{where}: data.description and data.personality are both empty; a role needs one of them.")
    demonstrations, stray = _dialogues(data.text("mes_example"), (name, called), plain)
    catchphrases, scenes = _greetings(data, plain)
    lore, rest = _lore(data.raw("character_book"), where)
    extensions = Fields(data.raw("extensions") or {}, where, "data.extensions.")
    extra = extensions.raw(EXTENSION) or {}
    others = Fields(extra, where, f"data.extensions.{EXTENSION}.").texts("instructions")
    shown = [plain(text) for text in (data.text("system_prompt"), data.text("scenario")) if text]
    role = {
        **extra,
        "id": extra.get("id") or slug(name, where),
        "name": name,
        "description": description,
        "style": plain(data.text("personality")),
        "catchphrases": catchphrases,
        "demonstrations": demonstrations,
        "knowledge": [plain(text) for text in lore],
        "tags": data.texts("tags"),
        "instructions": [text for text in shown if text] + others,
    }
    copies = {f"data.{key}" for key in document}  # editors repeat the fields of V1 outside of `data`
    outside = [key for key in outer.rest() if f"data.{key}" not in copies or document[key] != document["data"].get(key)]
    return kept(role), [*left_out, *outside, *scenes, *stray, *rest, *extensions.rest(), *data.rest()]


def _check_version(card: Fields, where: str) -> list[str]:
    """Return a note if the card is of a newer version than is known, which its specification asks to read anyway."""
    spec = card.raw("spec")
    if spec is None:
        raise RoleError(f"{where}: a V1 card (no 'spec'); open and save it in an editor of V2 or V3 cards.")
    if spec not in SPECS:
        raise RoleError(f"{where}: spec is {spec!r}; expected one of {', '.join(SPECS)}.")
    given = str(card.raw("spec_version") or "")
    try:
        version = float(given)
    except ValueError:
        version = 0.0
    if version < SPECS[spec] or (version > SPECS[spec] and spec == "chara_card_v2"):
        raise RoleError(f"{where}: spec_version {given!r} does not belong to {spec!r}; expected '{SPECS[spec]}'.")
    if card.raw("data") is None:
        raise RoleError(f"{where}: data is missing; a card of {spec!r} keeps the character there.")
    return [f"spec_version {given} (what it adds to {SPECS[spec]})"] if version > SPECS[spec] else []


def _greetings(data: Fields, plain: Callable[[str], str]) -> tuple[list[str], list[str]]:
    """Return the greetings that are short enough for catchphrases, and the names of the others."""
    greetings = [("data.first_mes", data.text("first_mes"))]
    greetings += [(f"data.alternate_greetings[{n}]", text) for n, text in enumerate(data.texts("alternate_greetings"))]
    short = [plain(text) for _, text in greetings if text and len(text) <= LONGEST_CATCHPHRASE]
    long = [
        f"{key} (over {LONGEST_CATCHPHRASE} characters)" for key, text in greetings if len(text) > LONGEST_CATCHPHRASE
    ]
    return short, long


def _dialogues(
    text: str, names: tuple[str, str], plain: Callable[[str], str]
) -> tuple[list[dict[str, str]], list[str]]:
    """Read the turns of the user and the character; `<START>` begins a new dialogue.

    Returns:
        Each turn of the user with the reply that follows it, and a note if there were other turns.
    """
    text = re.sub(r"<user>", "{{user}}", text, flags=re.IGNORECASE)
    text = re.sub(r"<(?:bot|char)>", "{{char}}", text, flags=re.IGNORECASE)
    text = re.sub(rf"^[ \t]*(?:{'|'.join(map(re.escape, names))}):", "{{char}}:", text, flags=re.MULTILINE)
    pairs: list[dict[str, str]] = []
    stray = 0
    for block in re.split(r"<START>", text, flags=re.IGNORECASE):
        before, *rest = re.split(r"\{\{(user|char)\}\}:", block, flags=re.IGNORECASE)
        turns = [(who.lower(), said.strip()) for who, said in zip(rest[::2], rest[1::2], strict=True)]
        found = [
            {"user": plain(said), "reply": plain(reply)}
            for (first, said), (second, reply) in itertools.pairwise(turns)
            if (first, second) == ("user", "char") and said and reply
        ]
        pairs += found
        stray += bool(before.strip()) + len(turns) - 2 * len(found)
    return pairs, [f"data.mes_example ({stray} turns that are no question with a reply)"] if stray else []


def _lore(book: Any, where: str) -> tuple[list[str], list[str]]:
    """Return the texts of the entries that are switched on, in the order of insertion, and what else the book holds."""
    fields = Fields(book or {}, where, "data.character_book.")
    entries = fields.raw("entries") or []
    if not isinstance(entries, list):
        raise RoleError(f"{where}: data.character_book.entries must be a list, got {type(entries).__name__}.")
    texts: list[tuple[float, str]] = []
    rest: dict[str, None] = {}
    for place, data in enumerate(entries):
        path = f"data.character_book.entries[{place}]"
        entry = Fields(data, where, f"{path}.")
        enabled, order, text = entry.raw("enabled"), entry.raw("insertion_order"), entry.text("content")
        lines = [line for line in text.splitlines() if not line.startswith("@@")]
        if enabled is False:
            rest[f"{path} (switched off)"] = None
            continue
        if len(lines) < len(text.splitlines()):
            rest["data.character_book.entries[].content (@@ decorators)"] = None
        rest |= dict.fromkeys(key.replace(f"[{place}]", "[]") for key in entry.rest())
        texts.append((order if isinstance(order, int | float) else 0, "\n".join(lines)))
    ordered = [text for _, text in sorted(texts, key=lambda item: item[0]) if text.strip()]
    return ordered, [*fields.rest(), *rest]


def to_character_card(role: Role) -> dict[str, Any]:
    """Return a V2 card of a role; importing it gives the same role.

    What cards have no field for goes into the extension `rolecraft`, which editors must keep. Texts with a card's own
    marks in them (`{{user}}`, `<START>`), and catchphrases of over 200 characters, come back differently.
    """
    examples = "\n".join(f"<START>\n{{{{user}}}}: {d.user}\n{{{{char}}}}: {d.reply}" for d in role.demonstrations)
    extra = role.model_dump(mode="json", exclude_defaults=True, include=set(EXTENDED))
    first, *others = extra.pop("instructions", [""])
    return {
        "spec": "chara_card_v2",
        "spec_version": "2.0",
        "data": {
            "name": role.name,
            "description": role.description,
            "personality": role.style,
            "scenario": "",
            "first_mes": role.catchphrases[0] if role.catchphrases else "",
            "mes_example": examples,
            "creator_notes": "",
            "system_prompt": first,
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
            "extensions": {EXTENSION: extra | ({"instructions": others} if others else {})},
        },
    }

"""Prompts that bring a role to a model: the reference, the assigning instructions, and a ladder from nothing to all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from rolecraft.errors import RoleError, UserError, did_you_mean
from rolecraft.models._base import Message, chat

if TYPE_CHECKING:
    from rolecraft.roles import Role

BRIEF = "Answer briefly, in one to three plain sentences, as people talk; no lists and no lecture."
"""Default manner of the prompted reference."""

NEUTRAL_PROMPTS: tuple[str, ...] = (
    "",
    "You are an AI assistant.",
    "You are a large language model.",
    "You are {model}.",
    "Answer as yourself.",
)
"""Five neutral system texts, after the Assistant Axis (arXiv 2601.10387); `{model}` stands for the model's own name."""

Rung = Literal["none", "line", "instruction", "reference"]
LADDER: tuple[Rung, ...] = get_args(Rung)
"""Ways of conditioning by prompt, from least to most: an empty system message, one line that names the role, the
role's first instruction, the full reference with demonstrations."""

_ACRONYM_AN = re.compile(r"[AEFHILMNORSX][A-Z]")
_WORD_AN = re.compile(r"(?!uni(?!n)|eu|one\b|once)[aeiou]|hour|honest|heir", re.IGNORECASE)
_OPPOSITES = (
    "You are nothing like {role}. Whatever is asked, think, care and speak as someone who could never be one.",
    "Answer as a person whose life, words and concerns are the opposite of those of {role}.",
    "Avoid every habit of speech and thought one would expect of {role}; let nothing of that kind into your answer.",
    "If a reply would suit {role}, it is the wrong reply: choose the one that fits such a character least.",
    "Keep as far as you can from the voice, the interests and the outlook of {role}.",
)


def with_article(name: str) -> str:
    """Return a role's name with `a` or `an`, as in `You are ...`."""
    pattern = _ACRONYM_AN if name[:2].isupper() else _WORD_AN
    return f"{'an' if pattern.match(name) else 'a'} {name}"


def prompted(role: Role, question: str, manner: str = BRIEF) -> list[Message]:
    """Return the prompted reference: the best a prompt can do for the role, used as the ceiling.

    The system text holds name, description, catchphrases and style and forbids naming oneself an AI (after CastVectors,
    arXiv 2608.00023); the demonstrations stand before the question as earlier messages.

    Args:
        role: The role.
        question: What the user asks.
        manner: Last sentence of the system text: how to answer.
    """
    who = with_article(role.name)
    parts = [f"You are {who}. {role.description}"]
    if role.style:
        parts.append(f"How you talk: {role.style}")
    if role.catchphrases:
        parts.append("Things you like to say: " + " ".join(f'"{phrase}"' for phrase in role.catchphrases))
    parts.append(
        f"Whatever is asked, stay {who}: think, care and speak as one. Never say or hint that you are an AI, an "
        f"assistant or a language model. {manner}".rstrip()
    )
    history: list[Message] = []
    for shown in role.demonstrations:
        history += [{"role": "user", "content": shown.user}, {"role": "assistant", "content": shown.reply}]
    return chat(question, "\n".join(parts), history)


def assigned(role: Role, instruction: int, question: str) -> list[Message]:
    """Return the question under one of the role's own instructions as system text.

    Args:
        role: The role.
        instruction: Index into `role.instructions`.
        question: What the user asks.

    Raises:
        RoleError: If the role has no such instruction.
    """
    if not 0 <= instruction < len(role.instructions):
        raise RoleError(
            f"role {role.id!r} has {len(role.instructions)} instructions, so there is no number {instruction} "
            "(counted from 0); add system texts that assign the role under `instructions`."
        )
    return chat(question, role.instructions[instruction])


def conditioned(role: Role, question: str, rung: Rung) -> list[Message]:
    """Return the question on one rung of the `LADDER`.

    Raises:
        UserError: If there is no such rung.
        RoleError: If the rung is `instruction` and the role has none.
    """
    if rung not in LADDER:
        raise UserError(f"rung must be one of {', '.join(LADDER)}, got {rung!r}.{did_you_mean(rung, LADDER)}")
    if rung == "none":
        return chat(question)
    if rung == "line":
        return chat(question, f"You are {with_article(role.name)}.")
    return assigned(role, 0, question) if rung == "instruction" else prompted(role, question)


def usable_rung(role: Role, rung: Rung) -> Rung:
    """Return the rung itself, or `reference` for a role that has no instruction to stand on `instruction`."""
    return "reference" if rung == "instruction" and not role.instructions else rung


def neutral_prompts(model: str) -> tuple[str, ...]:
    """Return `NEUTRAL_PROMPTS` for a model string such as `local:smollm2`, whose last part is the model's own name."""
    own = re.split(r"[:/]", model.split("@")[0])[-1]
    return tuple(text.replace("{model}", own) for text in NEUTRAL_PROMPTS)


def opposites(role: Role, count: int) -> list[str]:
    """Return `count` system texts that ask for the role's opposite (the negative side of persona vectors)."""
    texts = [text.replace("{role}", with_article(role.name)) for text in _OPPOSITES]
    return [texts[i % len(texts)] for i in range(count)]

"""Lint: what makes roles hard to tell apart, thin, or unfit to be screened."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rolecraft.roles._inventory import Inventory
from rolecraft.roles._questions import QuestionBank
from rolecraft.roles._role import Role

NEAR_ROLES = 0.9
"""Cosine of two profiles' MiniLM embeddings from which they count as near-duplicates."""
NEAR_QUESTIONS = 0.95
"""Cosine from which a role's extraction question counts as an evaluation question."""
MOST_TEMPLATED = 3
"""Roles that may share one instruction with only the name exchanged."""

Severity = Literal["error", "warning"]


class TextEncoder(Protocol):
    """Sentence embeddings."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of shape (texts, size)."""
        ...


@dataclass(frozen=True)
class Finding:
    """One thing to mend."""

    role: str
    rule: str
    severity: Severity
    message: str


def lint(inventory: Inventory, bank: QuestionBank | None = None, embedder: TextEncoder | None = None) -> list[Finding]:
    """Return what is wrong with the roles of an inventory, in their order.

    Args:
        inventory: The roles.
        bank: Evaluation questions, against which extraction questions and role names are held.
        embedder: For near-duplicates by meaning; without one, those two rules are left out.
    """
    findings = [finding for role in inventory for finding in _profile(role, inventory)]
    findings += _templates(inventory)
    findings += _repeated_questions(inventory)
    if bank:
        findings += _leaks(inventory, bank, embedder)
    if embedder and len(inventory) > 1:
        findings += _near_roles(inventory, embedder)
    order = {role.id: place for place, role in enumerate(inventory)}
    return sorted(findings, key=lambda finding: order.get(finding.role, -1))


def profile_text(role: Role) -> str:
    """Return the text by which a role is compared with others."""
    return " ".join([role.name, role.description, role.style, *role.values, *role.goals, *role.knowledge])


def _profile(role: Role, inventory: Inventory) -> Iterator[Finding]:
    def thin(field: str, wanted: int) -> Finding | None:
        have = len(getattr(role, field))
        message = f"{field}: {have} given, at least {wanted} expected"
        return Finding(role.id, "thin", "warning", message) if have < wanted else None

    wanted = {"instructions": 5, "questions": 10, "demonstrations": 2, "values": 1, "goals": 1, "knowledge": 1}
    yield from filter(None, (thin(field, count) for field, count in wanted.items()))
    if len(role.description.split()) < 12:
        yield Finding(role.id, "thin", "warning", "description: fewer than 12 words")
    if not role.style:
        yield Finding(role.id, "thin", "warning", "style: missing")
    for name, value in role.traits.items():
        if not 0 <= value <= 1:
            yield Finding(role.id, "trait-range", "warning", f"traits.{name}: {value:g} is outside 0..1")
    for position, question in enumerate(role.questions):
        if _names(role.name, question):
            message = f"questions[{position}] names the role, so it asks for the answer: {question!r}"
            yield Finding(role.id, "name-in-question", "error", message)
    known = {other.id for other in inventory}
    for other in sorted(set(role.relations) - known):
        yield Finding(role.id, "unknown-relation", "error", f"relations: {other!r} is no role of this inventory")


def _names(name: str, text: str) -> bool:
    return re.search(rf"\b{re.escape(name.casefold())}s?\b", text.casefold()) is not None


def _templates(inventory: Inventory) -> Iterator[Finding]:
    """Name the roles whose texts are one sentence with the noun exchanged."""
    users: dict[str, list[str]] = defaultdict(list)
    names: dict[str, list[str]] = defaultdict(list)
    for role in inventory:
        names[role.name.casefold()].append(role.id)
        for text in {text.casefold().replace(role.name.casefold(), "\0") for text in role.instructions}:
            users[text].append(role.id)
    for text, ids in users.items():
        if len(ids) > MOST_TEMPLATED:
            message = f"an instruction is shared with {len(ids) - 1} roles but for the name: {text!r}".replace(
                "\\x00", "…"
            )
            yield Finding(ids[0], "template", "warning", message)
    for name, ids in names.items():
        if len(ids) > 1:
            yield Finding(ids[1], "duplicate-name", "error", f"the name {name!r} is also that of {ids[0]!r}")


def _repeated_questions(inventory: Inventory) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for role in inventory:
        for question in role.questions:
            owner = first.setdefault(question.casefold().strip(), role.id)
            if owner != role.id:
                yield Finding(role.id, "repeated-question", "warning", f"{question!r} is also a question of {owner!r}")


def _leaks(inventory: Inventory, bank: QuestionBank, embedder: TextEncoder | None) -> Iterator[Finding]:
    """Questions that extract must not evaluate, and questions for everybody must name nobody."""
    for question in bank:
        for role in inventory:
            if len(role.name) > 4 and _names(role.name, question.text):
                yield Finding(role.id, "name-in-bank", "warning", f"evaluation question {question.id} names the role")
    texts = {question.text.casefold().strip(): question.id for question in bank}
    asked = [(role.id, text) for role in inventory for text in role.questions]
    for role_id, text in asked:
        if (question_id := texts.get(text.casefold().strip())) is not None:
            yield Finding(role_id, "leaked-question", "error", f"{text!r} is evaluation question {question_id}")
    if embedder and asked:
        near = embedder.encode([text for _, text in asked]) @ embedder.encode([q.text for q in bank]).T
        for row, (role_id, text) in enumerate(asked):
            column = int(near[row].argmax())
            if near[row, column] >= NEAR_QUESTIONS and text.casefold().strip() not in texts:
                message = f"{text!r} means the same as evaluation question {bank.questions[column].id}"
                yield Finding(role_id, "leaked-question", "error", message)


def _near_roles(inventory: Inventory, embedder: TextEncoder) -> Iterator[Finding]:
    vectors = embedder.encode([profile_text(role) for role in inventory])
    cosines = vectors @ vectors.T
    for a, b in zip(*np.where(np.triu(cosines, 1) >= NEAR_ROLES), strict=True):
        roles = inventory.roles
        message = f"profile is nearly that of {roles[int(a)].id!r} (cosine {cosines[a, b]:.2f})"
        yield Finding(roles[int(b)].id, "near-duplicate", "error", message)

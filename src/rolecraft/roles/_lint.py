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
from rolecraft.roles._overlap import overlapping, shingles
from rolecraft.roles._questions import QuestionBank
from rolecraft.roles._role import Role

NEAR_ROLES = 0.75
"""MiniLM cosine of two profiles from which they count as one role. Profiles reworded sentence by sentence: 0.82 to
0.86. Two people of one trade: 0.43 and 0.59. The nearest pair of `core-v1` (soldier, military cadet): 0.66."""
NEAR_QUESTIONS = 0.8
"""MiniLM cosine from which an extraction question counts as an evaluation question. Seventeen reworded questions of
`questions-v1`: 0.80 to 0.98, median 0.90. The nearest of the 3,041 extraction questions of `core-v1`: 0.77."""
TEMPLATED = 0.4
"""Share of common word triples from which two texts are one template: nine words with one exchanged, or more words with
few. The nearest two instructions of `core-v1`: 0.21."""

WANTED = {"instructions": 5, "questions": 10, "demonstrations": 2, "values": 1, "goals": 1, "knowledge": 1}
"""The least of each that makes a role more than thin."""
MEANING_RULES = ("near-duplicate", "near-question")
"""The rules that need an embedder."""
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
    """An `error` spoils a screen or makes two roles one; a `warning` makes a role weaker."""
    message: str


def lint(
    inventory: Inventory, questions: QuestionBank | None = None, embedder: TextEncoder | None = None
) -> list[Finding]:
    """Return what is wrong with the roles of an inventory, in their order.

    Args:
        inventory: The roles.
        questions: Evaluation questions, against which extraction questions and role names are held.
        embedder: For likeness of meaning; without one, `MEANING_RULES` are left out.
    """
    findings = [finding for role in inventory for finding in _profile(role, inventory)]
    findings += _shared_names(inventory)
    findings += _templates(inventory)
    findings += _repeated_questions(inventory)
    if questions:
        findings += _leaks(inventory, questions)
    if questions and embedder:
        findings += _near_questions(inventory, questions, embedder)
    if embedder:
        findings += _near_roles(inventory, embedder)
    order = {role.id: place for place, role in enumerate(inventory)}
    return sorted(findings, key=lambda finding: order[finding.role])


def profile_text(role: Role) -> str:
    """Return the text by which a role is compared with others: all of its profile but the name.

    The name would outweigh the rest: copies of a profile under another name come down to a cosine of 0.77.
    """
    return " ".join([role.description, role.style, *role.values, *role.goals, *role.knowledge])


def _profile(role: Role, inventory: Inventory) -> Iterator[Finding]:
    for message in _thin(role):
        yield Finding(role.id, "thin", "warning", message)
    for name, value in role.traits.items():
        if not 0 <= value <= 1:
            yield Finding(role.id, "trait-range", "warning", f"traits.{name}: {value:g} is outside 0..1")
    for position, question in enumerate(role.questions):
        if _names(role.name, question):
            message = f"questions[{position}] names the role, so it asks for the answer: {question!r}"
            yield Finding(role.id, "name-in-question", "error", message)
    for other in role.relations:
        if other not in inventory:
            yield Finding(role.id, "unknown-relation", "error", f"relations: {other!r} is no role of this inventory")


def _thin(role: Role) -> Iterator[str]:
    """Say what a role lacks; of one that is a description and nothing else, in one message."""
    if len(role.description.split()) < 12:
        yield "description: fewer than 12 words"
    given = {field: len(getattr(role, field)) for field in WANTED}
    if not role.style and not any(given.values()):
        yield "a description alone: it can be prompted, but a screen has no instructions or questions to go by"
        return
    for field, least in WANTED.items():
        if given[field] < least:
            yield f"{field}: {given[field]} given, at least {least} expected"
    if not role.style:
        yield "style: missing"


def _names(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name.casefold())}s?(?!\w)", text.casefold()) is not None


def _shared_names(inventory: Inventory) -> Iterator[Finding]:
    first: dict[str, str] = {}
    for role in inventory:
        owner = first.setdefault(role.name.casefold(), role.id)
        if owner != role.id:
            yield Finding(role.id, "duplicate-name", "error", f"the name {role.name!r} is also that of {owner!r}")


def _templates(inventory: Inventory) -> Iterator[Finding]:
    """Find the texts that are those of another role, or of the same one, with few words exchanged."""
    groups: dict[str, list[tuple[Role, str, str]]] = defaultdict(list)
    for role in inventory:
        groups["description"].append((role, "description", role.description))
        groups["style"] += [(role, "style", role.style)] if role.style else []
        groups["instructions"] += [(role, f"instructions[{n}]", text) for n, text in enumerate(role.instructions)]
        groups["demonstrations"] += [
            (role, f"demonstrations[{n}].reply", shown.reply) for n, shown in enumerate(role.demonstrations)
        ]
    for texts in groups.values():
        for late, early, _ in overlapping([shingles(text, role.name) for role, _, text in texts], TEMPLATED):
            (role, place, text), (owner, original, _) = texts[late], texts[early]
            message = f"{place} is nearly {original} of {owner.id!r}: {text!r}"
            yield Finding(role.id, "template", "warning", message)


def _repeated_questions(inventory: Inventory) -> Iterator[Finding]:
    first: dict[str, tuple[str, int]] = {}
    for role in inventory:
        for position, question in enumerate(role.questions):
            owner, place = first.setdefault(_key(question), (role.id, position))
            if (owner, place) != (role.id, position):
                message = f"questions[{position}] is also questions[{place}] of {owner!r}: {question!r}"
                yield Finding(role.id, "repeated-question", "warning", message)


def _leaks(inventory: Inventory, bank: QuestionBank) -> Iterator[Finding]:
    """Questions that extract must not evaluate, and questions for everybody must name nobody."""
    known = {_key(question.text): question.id for question in bank}
    for role in inventory:
        for question in bank:
            if _names(role.name, question.text):
                message = f"evaluation question {question.id} names the role: {question.text!r}"
                yield Finding(role.id, "name-in-bank", "warning", message)
        for position, text in enumerate(role.questions):
            if (question_id := known.get(_key(text))) is not None:
                message = f"questions[{position}] is evaluation question {question_id}: {text!r}"
                yield Finding(role.id, "leaked-question", "error", message)


def _near_questions(inventory: Inventory, bank: QuestionBank, embedder: TextEncoder) -> Iterator[Finding]:
    known = {_key(question.text) for question in bank}
    asked = [
        (role.id, place, text)
        for role in inventory
        for place, text in enumerate(role.questions)
        if _key(text) not in known  # those are reported by `_leaks`
    ]
    if not asked:
        return
    cosines = embedder.encode([text for *_, text in asked]) @ embedder.encode([question.text for question in bank]).T
    for (role_id, place, text), row in zip(asked, cosines, strict=True):
        nearest = bank.questions[int(row.argmax())]
        if row.max() >= NEAR_QUESTIONS:
            message = f"questions[{place}] means the same as {nearest.id}: {text!r}, {nearest.text!r}"
            yield Finding(role_id, "near-question", "error", message)


def _near_roles(inventory: Inventory, embedder: TextEncoder) -> Iterator[Finding]:
    vectors = embedder.encode([profile_text(role) for role in inventory])
    cosines = np.tril(vectors @ vectors.T, -1)
    for place, (role, row) in enumerate(zip(inventory, cosines, strict=True)):
        if place and row.max() >= NEAR_ROLES:
            nearest = inventory.roles[int(row.argmax())]
            message = f"the profile is nearly that of {nearest.id!r} (cosine {row.max():.2f})"
            yield Finding(role.id, "near-duplicate", "error", message)


def _key(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))

"""The plan of an extraction: which questions a role is asked, under which system texts, in which order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft._run import derive_seed
from rolecraft.conditioning._presets import ExtractionPreset
from rolecraft.conditioning._prompts import neutral_prompts, opposites
from rolecraft.errors import RoleError, UserError
from rolecraft.models._base import Chat, chat

if TYPE_CHECKING:
    from rolecraft.roles import Role


@dataclass(frozen=True)
class Subject:
    """What is extracted: a role, or the default assistant."""

    id: str
    kind: str
    systems: tuple[str, ...]
    bases: tuple[str, ...] | None
    """System texts of the other side, one per system text; None where there is no other side."""
    questions: tuple[str, ...]
    role: Role | None


@dataclass(frozen=True)
class Trial:
    """One pair to be tried."""

    question: str
    chats: tuple[Chat, ...]
    """As the role and, where there is another side, without it."""
    seeds: tuple[int, ...]
    half: int


def role_subject(role: Role, recipe: ExtractionPreset, bank: Sequence[str] | None) -> Subject:
    """Return what a role is asked: the bank, or else its own questions.

    Raises:
        RoleError: If the role has no instructions or no questions.
    """
    asked = tuple(role.questions if bank is None else bank)
    if not role.instructions:
        raise RoleError(
            f"role {role.id!r} has no instructions; extraction needs at least one system text that assigns it."
        )
    if not asked:
        raise RoleError(f"role {role.id!r} has no questions to extract from; add some, or pass bank=.")
    systems = role.instructions[: recipe.instructions]
    bases = {"empty": [""] * len(systems), "opposite": opposites(role, len(systems)), "none": None}[recipe.contrast]
    kind = "role-mean" if bases is None else "role"
    return Subject(role.id, kind, systems, None if bases is None else tuple(bases), asked, role)


def default_subject(model: str, bank: Sequence[str]) -> Subject:
    """Return the default assistant, asked `bank` under the neutral system texts.

    Raises:
        UserError: If the bank is empty.
    """
    if not bank:
        raise UserError("the default assistant needs questions: bank is empty.")
    return Subject("default", "default-mean", neutral_prompts(model), None, tuple(bank), None)


def plan(subject: Subject, recipe: ExtractionPreset, seed: int) -> list[Trial]:
    """Lay out all passes: questions chosen and pairs ordered by hash, so that the order of the lists has no say."""

    def rank(*parts: str | int) -> int:
        return derive_seed("extraction", seed, subject.id, *parts)

    chosen = sorted(dict.fromkeys(subject.questions), key=lambda q: rank("choose", q))[: recipe.questions]
    halves = {q: place % 2 for place, q in enumerate(sorted(chosen, key=lambda q: rank("half", q)))}
    pairs = list(itertools.product(range(len(subject.systems)), chosen))
    trials = []
    for turn in range(recipe.passes):
        for i, question in sorted(pairs, key=lambda p: rank("order", turn, subject.systems[p[0]], p[1])):
            systems = [subject.systems[i]] + ([] if subject.bases is None else [subject.bases[i]])
            key = (turn, subject.systems[i], question)
            trials.append(
                Trial(
                    question,
                    tuple(chat(question, system) for system in systems),
                    tuple(rank("draw", side, *key) for side in range(len(systems))),
                    halves[question],
                )
            )
    return trials

"""Filters of extraction: which pairs of responses count as the role against its base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models._base import Chat, FloatArray, LanguageModel, chat

if TYPE_CHECKING:
    from rolecraft.measures import Judge, Score
    from rolecraft.roles import Inventory, Role


class PairFilter(Protocol):
    """Decides which pairs are kept."""

    @property
    def name(self) -> str:
        """Stands in the manifest of what is extracted."""
        ...

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        """Say for each pair whether it is kept.

        Args:
            role: The role.
            questions: What was asked, one per pair.
            prompted: Responses as the role, never blank.
            base: Responses to the same questions without the role (or as its opposite). All empty where the preset
                has no base side: the filter then judges the role's responses alone.
        """
        ...


@runtime_checkable
class SideFilter(Protocol):
    """A filter that can judge the two sides of persona vectors apart, where rows and not pairs are kept."""

    def accept_sides(
        self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]
    ) -> tuple[list[bool], list[bool]]:
        """Say which responses as the role, and which as its opposite, are kept."""
        ...


class Embeds(Protocol):
    """Turns texts into unit vectors."""

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return float32 of shape (texts, size), each row of norm 1."""
        ...


class RoleGrader(Protocol):
    """A judge on the 0-3 scale of CastVectors and the Assistant Axis."""

    @property
    def name(self) -> str:
        """Name of the judge."""
        ...

    def grade(self, role: Role, questions: Sequence[str], answers: Sequence[str]) -> list[int | None]:
        """Grade answers: 0 refuses, 1 says it cannot be the role, 2 partly, 3 fully in role; None if unreadable."""
        ...


class AcceptAll:
    """Keeps every pair."""

    name = "all"

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        """Keep every pair."""
        return [True] * len(questions)


class LikelihoodMarginFilter:
    """The offline substitute for a judge, in two conditions that must both hold.

    1. Contrastive likelihood: with d(r) = mean over tokens of log p(r | role) - log p(r | empty system message), scored
       by the unsteered model, d(prompted) > d(base). Without a base side, d(prompted) > 0.
    2. Role margin: cosine of the prompted response with the role's description, minus its mean cosine with all other
       descriptions of the inventory, above 0.
    """

    name = "likelihood-margin"

    def __init__(self, model: LanguageModel, embedder: Embeds, inventory: Inventory) -> None:
        """Embed the inventory's descriptions.

        Raises:
            UserError: If the inventory has fewer than two roles, so that there is nothing to tell the role from.
        """
        if len(inventory) < 2:
            raise UserError("the role margin compares a role with others: give an inventory of at least two roles.")
        self._model = model
        self._embedder = embedder
        self._ids = [role.id for role in inventory]
        self._descriptions = embedder.encode([role.description for role in inventory])

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        """Keep the pairs that meet both conditions.

        Raises:
            RoleError: If the role has no instructions.
        """
        margins = self._margins(role, prompted)
        both = self._likelihood_ratios(
            role, [*questions, *questions], [*prompted, *base]
        )  # at once: they share prompts
        gains, rivals = both[: len(questions)], both[len(questions) :]
        return [bool(m > 0 and gain > rival) for m, gain, rival in zip(margins, gains, rivals, strict=True)]

    def _margins(self, role: Role, answers: Sequence[str]) -> FloatArray:
        others = self._descriptions[[role_id != role.id for role_id in self._ids]]
        own = self._embedder.encode([role.description])[0]
        answered = self._embedder.encode(list(answers))
        return np.asarray(answered @ own - (answered @ others.T).mean(axis=1), dtype=np.float32)

    def _likelihood_ratios(self, role: Role, questions: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Return d per answer; 0 for an empty one."""
        from rolecraft.conditioning._prompts import assigned

        as_role: list[Chat] = [assigned(role, 0, question) for question in questions]
        as_nobody: list[Chat] = [chat(question) for question in questions]
        scores = self._model.logprobs(as_role + as_nobody, [*answers, *answers])
        pairs = zip(scores[: len(answers)], scores[len(answers) :], strict=True)
        return [float(np.mean(a - b)) if len(a) else 0.0 for a, b in pairs]


class JudgeFilter:
    """The filter of CastVectors: the prompted response is graded 3 and the base response is not graded 0.

    A grade that could not be read rejects the pair. A judge that always says 3 defeats the filter, so calibrate it
    first and hand over its agreement, which the manifest then records.
    """

    def __init__(self, judge: RoleGrader, agreement: float | None = None) -> None:
        """Wrap a judge.

        Args:
            judge: Grades on 0-3.
            agreement: Its agreement with labelled cases, 0..1.
        """
        self._judge = judge
        self.name = f"judge {judge.name}" + ("" if agreement is None else f" (agreement {agreement:.2f})")

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        """Keep the pairs by their grades; without a base side, by the prompted grade alone."""
        kept = [grade == 3 for grade in self._judge.grade(role, questions, prompted)]
        asked = [i for i, answer in enumerate(base) if kept[i] and answer]
        grades = self._judge.grade(role, [questions[i] for i in asked], [base[i] for i in asked])
        for i, grade in zip(asked, grades, strict=True):
            kept[i] = grade not in (0, None)
        return kept


class TraitFilter:
    """The filter of Persona Vectors: coherent rows on the right side of a trait score.

    Kept are positive rows with trait >= `trait` and negative rows with trait < `trait`, both with coherence >=
    `coherence`. The trait is the judge's `overall` role alignment. Coherence is the judge's dimension of that name if
    it has one, and else 100 times the share of distinct bigrams, 0 for degenerate text. A missing score rejects a row.
    """

    def __init__(self, judge: Judge, trait: float = 50, coherence: float = 50) -> None:
        """Wrap a judge.

        Args:
            judge: Scores `overall`, ready for use.
            trait: Threshold, 0..100.
            coherence: Threshold, 0..100.

        Raises:
            UserError: If the judge does not score `overall`.
        """
        if "overall" not in judge.dimensions:
            raise UserError(f"{judge.name} does not score 'overall', which stands for the trait; give another judge.")
        self._judge = judge
        self._trait, self._coherence = trait, coherence
        self.name = f"trait {judge.name}"

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        """Keep a pair if both rows are kept; without a base side, by the prompted row alone."""
        positive, negative = self.accept_sides(role, questions, prompted, base)
        return [p and (n or not text) for p, n, text in zip(positive, negative, base, strict=True)]

    def accept_sides(
        self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]
    ) -> tuple[list[bool], list[bool]]:
        """Judge each side by itself."""
        from rolecraft.measures import JudgeItem

        rows = zip([*questions, *questions], [*prompted, *base], strict=True)
        items = [JudgeItem(role, question, answer) for question, answer in rows]
        sides = [self._side(item.answer, score) for item, score in zip(items, self._judge.score(items), strict=True)]
        return [side is True for side in sides[: len(prompted)]], [side is False for side in sides[len(prompted) :]]

    def _side(self, answer: str, score: Score) -> bool | None:
        """Return whether an answer has the trait, or None if it cannot be used."""
        trait, coherence = score.values.get("overall"), self._coherence_of(answer, score)
        if trait is None or coherence is None or coherence < self._coherence:
            return None
        return trait >= self._trait

    def _coherence_of(self, answer: str, score: Score) -> float | None:
        from rolecraft.measures import text_health

        if "coherence" in self._judge.dimensions:
            return score.values.get("coherence")
        health = text_health(answer)
        return 0.0 if health.degenerate else 100 * health.unique_bigram_ratio

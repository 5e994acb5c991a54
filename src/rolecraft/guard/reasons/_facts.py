"""From observations to facts: labelling functions, and what to make of labels that are not sure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, runtime_checkable

from rolecraft.errors import UserError
from rolecraft.guard.reasons._literals import atom
from rolecraft.guard.reasons._norms import Mode, Norms, fallback_norms, judge, tightened
from rolecraft.guard.reasons._scenarios import InconsistentFacts
from rolecraft.guard.reasons._theory import ReasonTheory

MOST_DOUBTS = 10
"""Unsure facts that `expected_violation` weighs at once: every combination of them is judged."""


class FactsUnavailable(UserError):
    """A labeller failed or gave what is no fact; nothing may be concluded from its silence."""


@dataclass(frozen=True)
class Fact:
    """A literal that a labelling function found in an observation."""

    said: str
    """`drowning`, or `not drowning`."""
    confidence: float = 1.0
    """Probability that it holds, in [0, 1]."""
    source: str = ""
    """The labelling function."""
    evidence: str = ""
    """What it saw, for the log."""


@runtime_checkable
class Labeller(Protocol):
    """A labelling function. One that cannot answer must raise: silence means that it looked and found nothing."""

    def label(self, observation: Any) -> Iterable[Fact]:
        """Return the facts seen in an observation."""


def text_field(observation: Any, name: str) -> str:
    """Return a text of an observation: itself, or a field of a mapping.

    Raises:
        FactsUnavailable: If there is none.
    """
    text = observation.get(name) if isinstance(observation, Mapping) else observation
    if not isinstance(text, str):
        raise FactsUnavailable(f"expected a text, or a mapping with the text {name!r}, got {observation!r:.80}.")
    return text


class KeywordLabeller:
    """Finds facts by words and phrases, whatever their case, as whole words.

    Args:
        phrases: Phrases by literal; a `*` at the end of a word stands for the rest of it (`kill*`).
        confidence: Of a fact that is found.
        field: Field of the observation that holds the text.
        name: Named as the source.

    Raises:
        UserError: If a list of phrases is empty, or the confidence is out of range.
    """

    def __init__(
        self, phrases: Mapping[str, Sequence[str]], *, confidence: float = 0.9, field: str = "text",
        name: str = "keywords",
    ) -> None:  # fmt: skip
        if not 0 < confidence <= 1:
            raise UserError(f"confidence must lie in (0, 1], got {confidence}.")
        self._patterns = {}
        for said, entries in phrases.items():
            if isinstance(entries, str) or not entries or not all(each.strip(" *") for each in entries):
                raise UserError(f"phrases: {said}: expected a list of phrases, got {entries!r:.60}.")
            parts = [
                re.escape(" ".join(each.split())).replace(r"\ ", r"\s+").replace(r"\*", r"\w*") for each in entries
            ]
            self._patterns[said] = re.compile(rf"\b(?:{'|'.join(parts)})(?!\w)", re.IGNORECASE)
        self._confidence, self._field, self._name = confidence, field, name

    def label(self, observation: Any) -> Iterable[Fact]:
        """Return the facts whose phrases stand in the text, with the first one found as evidence."""
        text = text_field(observation, self._field)
        for said, pattern in self._patterns.items():
            if found := pattern.search(text):
                yield Fact(said, self._confidence, self._name, found.group())


class SimilarityLabeller:
    """Finds facts by the likeness of a text to examples of them, sentence by sentence; the surest sentence counts.

    Where c is the largest cosine of a sentence with the examples of a literal, and r that with examples of other
    things, the confidence is w / (1 + w) with w = exp(slope (c - r)): a sentence may hold several literals. Exclusive
    literals compete: w / (1 + the sum of all w).

    Args:
        examples: Example texts by literal.
        encode: Returns one unit vector per text, shape (texts, size), such as `models.Embedder.load().encode`.
        others: Examples of texts without any of the facts.
        exclusive: Whether a sentence holds one literal at most.
        midpoint: What r is where there are no `others`.
        slope: How much a cosine counts.
        field: Field of the observation that holds the text.
        name: Named as the source.

    Raises:
        UserError: If there are no examples, or slope or midpoint make no sense.
    """

    def __init__(
        self, examples: Mapping[str, Sequence[str]], encode: Callable[[Sequence[str]], Any], *,
        others: Sequence[str] = (), exclusive: bool = False, midpoint: float = 0.5, slope: float = 12.0,
        field: str = "text", name: str = "similarity",
    ) -> None:  # fmt: skip
        if not examples or not all(examples.values()):
            raise UserError("examples: expected at least one example text for every literal.")
        if not (slope > 0 and -1 <= midpoint <= 1):
            raise UserError(f"expected slope above 0 and midpoint in [-1, 1], got {slope} and {midpoint}.")
        self._examples = {said: list(texts) for said, texts in examples.items()}
        self._others, self._exclusive = list(others), exclusive
        self._encode, self._midpoint, self._slope = encode, midpoint, slope
        self._field, self._name = field, name

    def label(self, observation: Any) -> Iterable[Fact]:
        """Return every fact with its confidence, and the sentence that it was seen in."""
        text = text_field(observation, self._field)
        best: dict[str, Fact] = {}
        for sentence in re.split(r"(?<=[.!?])\s+", text.strip()):
            for said, confidence in self._read(sentence).items():
                if said not in best or confidence > best[said].confidence:
                    best[said] = Fact(said, confidence, self._name, sentence)
        return best.values()

    def _read(self, sentence: str) -> dict[str, float]:
        vector = self._encode([sentence])[0]
        nearest = {said: float((self._encode(texts) @ vector).max()) for said, texts in self._examples.items()}
        rest = float((self._encode(self._others) @ vector).max()) if self._others else self._midpoint
        weights = {said: math.exp(self._slope * (cosine - rest)) for said, cosine in nearest.items()}
        rivals = sum(weights.values()) if self._exclusive else 0.0
        return {said: weight / (1 + (rivals or weight)) for said, weight in weights.items()}


@dataclass(frozen=True)
class FunctionLabeller:
    """A labelling function made of a callable: it returns facts, or literals that are sure."""

    function: Callable[[Any], Iterable[Fact | str]]
    name: str = "function"

    def label(self, observation: Any) -> Iterable[Fact]:
        """Ask the function."""
        for found in self.function(observation):
            yield found if isinstance(found, Fact) else Fact(found, 1.0, self.name)


@dataclass(frozen=True)
class Reading:
    """What all labellers made of an observation."""

    facts: tuple[Fact, ...]
    """The surest fact for every literal, by literal."""
    sure: frozenset[str]
    """Literals at the threshold or above."""
    doubtful: frozenset[str]
    """Literals below it that are not negligible."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the facts as JSON holds them."""
        return [
            {"fact": each.said, "confidence": round(each.confidence, 4), "source": each.source,
             "evidence": each.evidence[:80]}
            for each in self.facts
        ]  # fmt: skip


class FactExtractor:
    """Asks labelling functions and joins what they say; every failure is an error, never an empty answer.

    Args:
        theory: Whose facts are looked for.
        labellers: Asked in turn; of several facts with one literal the surest counts.
        threshold: Confidence from which a fact counts as present.
        floor: Confidence below which it is negligible; in between it is doubtful.

    Raises:
        UserError: If there is no labeller, or the bounds are not 0 <= floor <= threshold <= 1.
    """

    def __init__(
        self, theory: ReasonTheory, labellers: Sequence[Labeller], *, threshold: float = 0.5, floor: float = 0.05
    ) -> None:
        if not labellers:
            raise UserError("a fact extractor needs at least one labeller.")
        if not 0 <= floor <= threshold <= 1:
            raise UserError(f"expected 0 <= floor <= threshold <= 1, got {floor} and {threshold}.")
        self.theory, self.labellers = theory, tuple(labellers)
        self.threshold, self.floor = threshold, floor

    def extract(self, observation: Any) -> Reading:
        """Return the facts of an observation.

        Raises:
            FactsUnavailable: If a labeller fails, or what it returns is no fact of the theory.
        """
        best: dict[str, Fact] = {}
        for labeller in self.labellers:
            name = type(labeller).__name__
            try:
                found = [self._checked(fact, name) for fact in labeller.label(observation)]
            except FactsUnavailable:
                raise
            except Exception as error:  # a labeller is foreign code: its failure must not look like an empty answer
                raise FactsUnavailable(f"{name} failed: {type(error).__name__}: {error!s:.200}") from error
            for fact in found:
                if fact.said not in best or fact.confidence > best[fact.said].confidence:
                    best[fact.said] = fact
        facts = tuple(best[said] for said in sorted(best))
        sure = frozenset(fact.said for fact in facts if fact.confidence >= self.threshold)
        doubtful = frozenset(fact.said for fact in facts if self.floor <= fact.confidence < self.threshold)
        return Reading(facts, sure, doubtful)

    def _checked(self, fact: Fact, name: str) -> Fact:
        if not isinstance(fact, Fact) or not 0 <= fact.confidence <= 1:  # NaN is refused as well
            raise FactsUnavailable(f"{name}: expected facts with a confidence in [0, 1], got {fact!r:.120}.")
        (said,) = self.theory.literals([fact.said], name)
        return Fact(said, fact.confidence, fact.source or name, fact.evidence)


def read_norms(theory: ReasonTheory, reading: Reading, mode: Mode = "credulous", *, precaution: bool = True) -> Norms:
    """Return the norms that a reading calls for.

    Args:
        theory: The reasons.
        reading: Facts with their confidence.
        mode: As in `judge`.
        precaution: Prohibitions also hold where a fact behind them is only doubtful; obligations need sure facts.

    Raises:
        UserError: As `judge`.
    """
    norms = judge(theory, reading.sure, mode)
    if not (precaution and reading.doubtful):
        return norms
    feared: set[str] = set()
    for said in sorted(reading.doubtful):
        try:
            worse = judge(theory, {*reading.sure, said}, mode)
        except InconsistentFacts:
            continue  # a doubtful fact does not outweigh a sure one
        for scenario in worse.scenarios:
            conclusions = (theory.default(name).conclusion for name in scenario)
            feared |= {atom(each) for each in conclusions if each.startswith("not ")}
    return tightened(norms, feared)


def expected_violation(
    theory: ReasonTheory,
    reading: Reading,
    scores: Mapping[str, float],
    mode: Mode = "credulous",
    ongoing: Iterable[str] = (),
    *,
    floor: float = 0.05,
) -> float:
    """Return the mean violation of an action over all combinations of the unsure facts, taken as independent.

    Args:
        theory: The reasons.
        reading: Facts with their confidence; those of confidence 1 hold in every combination.
        scores: Probability that the action realises a macro action, by name.
        mode: As in `judge`.
        ongoing: Macro actions that are being carried out already.
        floor: Confidence below which a fact is taken as absent, and above 1 less which as present.

    Returns:
        A number in [0, 1]; combinations that contradict themselves leave the safe default.

    Raises:
        FactsUnavailable: If more than `MOST_DOUBTS` facts are unsure.
    """
    ongoing = tuple(ongoing)
    certain = {fact.said for fact in reading.facts if fact.confidence > 1 - floor}
    unsure = [fact for fact in reading.facts if floor <= fact.confidence <= 1 - floor]
    if len(unsure) > MOST_DOUBTS:
        raise FactsUnavailable(f"{len(unsure)} facts are unsure; at most {MOST_DOUBTS} can be weighed at once.")
    total = 0.0
    for held in product((True, False), repeat=len(unsure)):
        weight = math.prod(
            fact.confidence if yes else 1 - fact.confidence for fact, yes in zip(unsure, held, strict=True)
        )
        facts = certain | {fact.said for fact, yes in zip(unsure, held, strict=True) if yes}
        total += weight * _norms_of(theory, frozenset(facts), mode).violation(scores, ongoing)
    return min(1.0, total)


def _norms_of(theory: ReasonTheory, facts: frozenset[str], mode: Mode) -> Norms:
    try:
        return judge(theory, facts, mode)
    except InconsistentFacts as error:
        return fallback_norms(theory, str(error), facts, mode=mode)

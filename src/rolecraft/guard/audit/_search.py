"""The red-blue loop: a writer edits a role document, a reviewer and a tester criticise, for a few rounds.

After the generator of Evil Geniuses (arXiv 2311.11855): raise violation(target(text)) while sim(text, original) >= tau.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Protocol

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.guard.audit._mutator import Mutation, Operator, RoleMutator
from rolecraft.guard.audit._reviewer import SuitabilityReviewer
from rolecraft.guard.audit._tester import Effect


class Scored(Protocol):
    """What a test of a text comes to: an `Effect`, or another measure."""

    @property
    def score(self) -> float:
        """What the writer raises."""
        ...

    @property
    def weakest(self) -> str:
        """Name of the policy to work on next; empty for any."""
        ...


_EDITS = 3
"""Most edits of one child."""
_SLACK = 0.02
"""A random walk ends once it is this much less similar than asked for."""


@dataclass(frozen=True)
class Candidate:
    """A text that was tried."""

    mutation: Mutation
    similarity: float
    accepted: bool
    """By the reviewer."""
    effect: Scored
    """Empty where the reviewer refused it: it was not run."""
    round: int

    @property
    def score(self) -> float:
        """Of the effect."""
        return self.effect.score

    @property
    def full(self) -> float:
        """Rate of full violations; NaN where it was not run, or measured otherwise."""
        return self.effect.count("full") / self.effect.n if isinstance(self.effect, Effect) and self.effect.n else nan


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    best: Candidate
    """The original itself where no mutation was better."""
    tried: tuple[Candidate, ...]
    """All candidates, the original first."""

    @property
    def changed(self) -> bool:
        """Whether any mutation was taken."""
        return bool(self.best.mutation.edits)

    @property
    def passed(self) -> int:
        """How many mutations the reviewer accepted."""
        return sum(each.accepted for each in self.tried[1:])


@dataclass(frozen=True)
class RedBlueSearch:
    """Hill climbing, (1 + children) a round; equal scores move on, so that a plateau is crossed.

    Raises:
        UserError: If there are no rounds or children.
    """

    mutator: RoleMutator
    reviewer: SuitabilityReviewer
    rounds: int = 5
    children: int = 8
    enough: float = 1.0
    """The tester accepts a score from here on, and the loop ends."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.children < 1:
            raise UserError(f"rounds and children must be at least 1, got {self.rounds} and {self.children}.")

    def run(self, original: str, test: Callable[[str], Scored], seed: int = 0) -> Found:
        """Search from a text.

        Args:
            original: The role document's text.
            test: Runs the target with a text in place. Give it probes that are not those reported later.
            seed: Of the edits.
        """
        rng = random.Random(derive_seed("red-blue", seed, original))
        best = Candidate(Mutation(original), 1.0, True, test(original), 0)
        tried, avoid = [best], set[Operator]()
        for number in range(1, self.rounds + 1):
            parent = best
            for _ in range(self.children):
                child = self._child(original, parent, test, rng, avoid, number)
                if child is None:
                    continue
                tried.append(child)
                if not child.accepted:  # the reviewer's critique: what took the text too far is left alone for a while
                    avoid.add(child.mutation.edits[-1].operator)
                elif child.score >= best.score:
                    best = child
            avoid = set() if len(avoid) == len(self.mutator.operators) else avoid
            if best.score >= self.enough:
                break
        return Found(best, tuple(tried))

    def _child(
        self, original: str, parent: Candidate, test: Callable[[str], Scored], rng: random.Random,
        avoid: set[Operator], number: int,
    ) -> Candidate | None:  # fmt: skip
        mutation = self.mutator.propose(
            parent.mutation, rng, edits=rng.randint(1, _EDITS), focus=parent.effect.weakest, avoid=sorted(avoid)
        )
        if mutation.text == parent.mutation.text:
            return None
        review = self.reviewer.review(original, mutation.text)
        effect = test(mutation.text) if review.accepted else Effect()
        return Candidate(mutation, review.similarity, review.accepted, effect, number)


def random_mutation(
    mutator: RoleMutator,
    reviewer: SuitabilityReviewer,
    original: str,
    similarity: float,
    seed: int = 0,
    *,
    walks: int = 4,
    edits: int = 12,
) -> tuple[Mutation, float]:
    """Return a mutation made without any feedback whose similarity is nearest to the one asked for, and its similarity.

    The control of the search: as far from the original, but blind.

    Args:
        mutator: Makes the edits.
        reviewer: Measures; its threshold is not used.
        original: The role document's text.
        similarity: Of the mutation to be matched.
        seed: Of the walks.
        walks: Independent sequences of edits; every step of each is a candidate.
        edits: Most edits of a walk.
    """
    rng = random.Random(derive_seed("random-mutation", seed, original))
    found: list[tuple[float, Mutation, float]] = [(abs(1 - similarity), Mutation(original), 1.0)]
    for _ in range(walks):
        mutation = Mutation(original)
        for _ in range(edits):
            mutation = mutator.propose(mutation, rng)
            reached = reviewer.similarity(original, mutation.text)
            found.append((abs(reached - similarity), mutation, reached))
            if reached < similarity - _SLACK:
                break
    _, nearest, reached = min(found, key=_distance)
    return nearest, reached


def _distance(entry: tuple[float, Mutation, float]) -> float:
    return entry[0]


def front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the accepted candidates that no other beats in similarity and full violations, most similar first."""
    from rolecraft.measures import pareto_front

    kept = [each for each in candidates if each.accepted and isinstance(each.effect, Effect) and each.effect.n]
    points = [(each.similarity, each.full) for each in kept]
    if not points:
        return ()
    return tuple(sorted((kept[place] for place in pareto_front(points)), key=lambda each: -each.similarity))

"""What a social scene is about: a shared text, a private brief per seat, and pay-offs that can be settled exactly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rolecraft._options import refuse_unknown
from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._messages import Message

_HINT = re.compile(r"</?(?:extra_info|clarification_hint|strategy_hint)>")


def seat_names(n: int) -> tuple[str, ...]:
    """Return the seats of a scene of n people: `person-1`, `person-2`, ..."""
    return tuple(f"person-{number}" for number in range(1, n + 1))


@dataclass(frozen=True)
class SocialBrief:
    """What one seat alone knows: its goal, what outcomes are worth to it, and facts it may tell or keep.

    Raises:
        UserError: If the goal is empty, or the secret is none of the facts.
    """

    goal: str
    """May hold the tags `extra_info`, `clarification_hint` and `strategy_hint` of Sotopia's files around its hints."""
    values: Mapping[str, float] = field(default_factory=dict)
    """What every term is worth to this seat in points; no agreement is worth 0."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Topic to what is true of it. The topics are known to all, the facts to this seat."""
    secret: str = ""
    """The topic that must not come out."""
    learn: Mapping[str, float] = field(default_factory=dict)
    """Another seat's topic to the points that learning it is worth."""
    keep: float = 0.0
    """Points lost when the secret comes out."""

    def __post_init__(self) -> None:
        if not self.goal.strip():
            raise UserError("a goal must be a text that is not empty; every seat needs one.")
        if self.secret and self.secret not in self.facts:
            raise UserError(
                f"the secret {self.secret!r} is none of the facts ({', '.join(self.facts) or 'none'})."
                + did_you_mean(self.secret, self.facts)
            )

    @property
    def goal_text(self) -> str:
        """The goal as its owner reads it, hint tags taken off."""
        return " ".join(_HINT.sub(" ", self.goal).split())


@dataclass(frozen=True)
class SocialScenario:
    """A scene without its people.

    With `terms`, what is said can be settled: seats offer, accept and reject terms by tags; `settle` scores the log.

    Raises:
        UserError: If there are fewer than two briefs, or values do not fit the terms, or no term is good for all.
    """

    id: str
    text: str
    """Shared by all seats."""
    briefs: tuple[SocialBrief, ...]
    terms: tuple[str, ...] = ()
    family: str = ""
    material: bool = False
    """Whether the points of the terms are money or goods."""

    def __post_init__(self) -> None:
        if len(self.briefs) < 2:
            raise UserError(f"scenario {self.id!r}: {len(self.briefs)} goals; a scene needs at least two.")
        for seat, brief in zip(self.seats, self.briefs, strict=True):
            if set(brief.values) != set(self.terms):
                raise UserError(
                    f"scenario {self.id!r}: {seat} must value every term and nothing else; give one number each."
                )
        bad = [
            term for term in (*self.terms, *self.topics) if re.search(r"[<>\n]", term) or term != " ".join(term.split())
        ]
        if bad:
            raise UserError(f"scenario {self.id!r}: {bad[0]!r} must be one line without '<', '>' or double spaces.")
        folded = [term.casefold() for term in self.terms]
        if len(set(folded)) < len(folded):
            raise UserError(f"scenario {self.id!r}: two terms are the same; name each once.")
        if self.terms and min(self.best(seat) for seat in self.seats) <= 0:
            raise UserError(f"scenario {self.id!r}: no term is good for one seat and bearable for the others.")

    @property
    def seats(self) -> tuple[str, ...]:
        """Seat of each brief."""
        return seat_names(len(self.briefs))

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, once each."""
        return tuple(dict.fromkeys(topic for brief in self.briefs for topic in brief.facts))

    def brief(self, seat: str) -> SocialBrief:
        """Return what a seat alone knows."""
        return self.briefs[self.seats.index(seat)]

    def others(self, seat: str) -> tuple[str, ...]:
        """Return the other seats."""
        return tuple(other for other in self.seats if other != seat)

    def bearable(self, seat: str) -> tuple[str, ...]:
        """Return the terms that leave no other seat worse off than no agreement."""
        return tuple(
            term for term in self.terms if all(self.brief(other).values[term] >= 0 for other in self.others(seat))
        )

    def best_terms(self, seat: str) -> float:
        """Return the most points that a seat can have from terms that the others can bear."""
        return max((self.brief(seat).values[term] for term in self.bearable(seat)), default=0.0)

    def best(self, seat: str) -> float:
        """Return the most points a seat can have: by terms that others can bear, and what they may tell."""
        secrets = {(other, self.brief(other).secret) for other in self.others(seat)}
        told = (
            points
            for topic, points in self.brief(seat).learn.items()
            if any(topic in self.brief(other).facts and (other, topic) not in secrets for other in self.others(seat))
        )
        return self.best_terms(seat) + sum(told)

    def with_secret(self, seat: str, secret: str) -> SocialScenario:
        """Return the scenario with a person's own secret in its brief, unless the brief has one."""
        brief = self.brief(seat)
        if brief.secret or not secret:
            return self
        topic = f"secret of {seat}"
        changed = replace(brief, facts={**brief.facts, topic: secret}, secret=topic)
        return replace(self, briefs=tuple(changed if other is brief else other for other in self.briefs))

    def settle(self, log: Sequence[Message]) -> dict[str, dict[str, float]]:
        """Score a scene exactly from its log: `{seat: {goal, financial, knowledge, secret}}`.

        Of each seat, with its points p (of the agreed terms, of what it learned, less what its secret cost): goal is
        10 p / `best`, within 0..10; financial 5 p / `best_terms` of the terms alone, within -5..5, where they are
        `material`; knowledge 10 times the share of the others' facts it was told; secret -10 if it came out.

        Raises:
            UserError: If the scenario has no terms.
        """
        from rolecraft.worlds.social._ledger import SocialLedger

        if not self.terms:
            raise UserError(f"scenario {self.id!r} has no terms to settle; score it with a judge.")
        ledger = SocialLedger.of(self, log)
        return {
            seat: self._settled(seat, ledger.deal, ledger.told(seat), ledger.secret_out(seat)) for seat in self.seats
        }

    def _settled(self, seat: str, deal: str | None, told: frozenset[tuple[str, str]], out: bool) -> dict[str, float]:
        brief = self.brief(seat)
        terms = brief.values[deal] if deal else 0.0
        points = terms + sum(brief.learn.get(topic, 0.0) for topic in {topic for _, topic in told})
        points -= brief.keep if out else 0.0
        facts = sum(len(self.brief(other).facts) for other in self.others(seat))
        most = self.best_terms(seat)
        return {
            "goal": 10 * min(1.0, max(0.0, points / self.best(seat))),
            "financial": 5 * min(1.0, max(-1.0, terms / most)) if self.material and most > 0 else 0.0,
            "knowledge": 10 * len(told) / facts if facts else 0.0,
            "secret": -10.0 if out else 0.0,
        }


def read_scenario(data: Any, where: str) -> SocialScenario:
    """Read a scenario of one's own: `id`, `text`, and `goals` (texts) or `briefs` (mappings), perhaps `terms`.

    Raises:
        UserError: If a field is missing, unknown or unusable; `where` is named.
    """
    if isinstance(data, SocialScenario):
        return data
    known = ("id", "text", "goals", "briefs", "terms", "family", "material")
    if not isinstance(data, Mapping) or "text" not in data:
        raise UserError(f"{where}: expected a scenario with text and goals (fields: {', '.join(known)}), got {data!r}.")
    refuse_unknown(data, known, f"{where}: a scenario")
    briefs = data.get("briefs", [{"goal": goal} for goal in data.get("goals", ())])
    try:
        return SocialScenario(
            str(data.get("id", "own")), str(data["text"]), tuple(SocialBrief(**brief) for brief in briefs),
            tuple(str(term) for term in data.get("terms", ())), str(data.get("family", "")),
            bool(data.get("material", False)),
        )  # fmt: skip
    except (TypeError, AttributeError) as error:
        raise UserError(
            f"{where}: a brief has a field that is missing, unknown or of the wrong type: {error}."
        ) from None

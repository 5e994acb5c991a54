"""Commitments: tags in what is said, who may make them when, and what they add up to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rolecraft.errors import IllegalActionError, did_you_mean
from rolecraft.worlds._messages import Message

if TYPE_CHECKING:
    from rolecraft.worlds.social._scenarios import SocialScenario

VERBS = ("offer", "accept", "reject", "ask", "reveal")
SPEECH = "says"
"""Kind of a message that was spoken: tags count in no other."""
LEAVES = "leaves"
_TAG = re.compile(r"<\s*([a-zA-Z-]+)\b\s*([^<>]*?)\s*>")


@dataclass(frozen=True)
class Commitment:
    """One tag: `<offer TERM>`, `<accept>`, `<reject>`, `<ask TOPIC>` or `<reveal TOPIC>`."""

    step: int
    agent: str
    verb: str
    what: str = ""
    to: tuple[str, ...] = ()
    """Who heard it; empty: all."""


@dataclass(frozen=True)
class Standing:
    """The offer on the table."""

    terms: str
    by: str
    accepted: frozenset[str] = frozenset()


def read_tags(text: str) -> list[tuple[str, str]]:
    """Return the tags of a text as (verb, what); other words between angle brackets are no tags.

    Raises:
        IllegalActionError: If a tag's verb is misspelt.
    """
    found = []
    for match in _TAG.finditer(text):
        verb = match[1].lower()
        if verb in VERBS:
            found.append((verb, " ".join(match[2].split())))
        elif near := did_you_mean(verb, VERBS):
            raise IllegalActionError(f"there is no tag <{match[1]}> (tags: {', '.join(VERBS)}).{near}")
    return found


class SocialLedger:
    """What the seats of a scenario have committed to so far."""

    def __init__(self, scenario: SocialScenario) -> None:
        self.scenario = scenario
        self.table: Standing | None = None
        self.deal: str | None = None
        self.commitments: list[Commitment] = []
        self._told: set[tuple[str, str, str]] = set()
        self._gone: set[str] = set()

    @classmethod
    def of(cls, scenario: SocialScenario, log: Sequence[Message]) -> SocialLedger:
        """Read a log from its beginning."""
        ledger = cls(scenario)
        for _, messages in groupby(log, key=lambda message: message.step):
            ledger.apply(list(messages))
        return ledger

    def told(self, seat: str) -> frozenset[tuple[str, str]]:
        """Return what a seat has been told of the others: (teller, topic)."""
        return frozenset((teller, topic) for teller, topic, hearer in self._told if hearer == seat)

    def revealed(self, seat: str) -> frozenset[str]:
        """Return the topics that a seat has told to anyone."""
        return frozenset(topic for teller, topic, _ in self._told if teller == seat)

    def secret_out(self, seat: str) -> bool:
        """Return whether a seat's secret has come out."""
        secret = self.scenario.brief(seat).secret
        return bool(secret) and secret in self.revealed(seat)

    def check(self, agent: str, text: str, to: Sequence[str]) -> None:
        """Refuse a spoken text whose tags do not fit the state of things.

        Raises:
            IllegalActionError: Naming what would.
        """
        tags = read_tags(text)
        verbs = [verb for verb, _ in tags]
        deals = [verb for verb in verbs if verb in ("offer", "accept", "reject")]
        if len(set(deals)) < len(deals) or ("accept" in deals and len(deals) > 1):
            raise IllegalActionError(
                "one message can make one offer, accept or reject, or reject and make one offer; got "
                f"{', '.join(deals)}."
            )
        unheard = set(self.scenario.others(agent)) - set(to) - self._gone
        if deals and to and unheard:
            raise IllegalActionError(f"an {deals[0]} must be heard by all; leave 'to' empty.")
        for verb, what in tags:
            self._check_tag(agent, verb, what)

    def _check_tag(self, agent: str, verb: str, what: str) -> None:
        if verb in ("offer", "accept", "reject") and self.deal is not None:
            raise IllegalActionError(f"<{verb}>: {self.deal!r} has been agreed; nothing is open any more.")
        if verb == "offer":
            self._known(verb, what, self.scenario.terms)
        elif verb in ("accept", "reject"):
            if self.table is None or self.table.by == agent or agent in self.table.accepted:
                raise IllegalActionError(f"<{verb}>: there is no offer of another on the table.")
            if what and self._match(what, (self.table.terms,)) is None:
                raise IllegalActionError(f"<{verb} {what}>: on the table is {self.table.terms!r}.")
        elif verb == "reveal":
            self._known(verb, what, tuple(self.scenario.brief(agent).facts))
        else:
            self._known(verb, what, self.askable(agent))

    def askable(self, agent: str) -> tuple[str, ...]:
        """Return the topics of the others that an agent can ask about."""
        topics = (topic for other in self.scenario.others(agent) for topic in self.scenario.brief(other).facts)
        return tuple(dict.fromkeys(topics))

    def apply(self, messages: Sequence[Message]) -> None:
        """Take what was said in one step: answers to the standing offer before new offers."""
        for message in messages:
            self._hear(message)
        tags = [(message, tag) for message in messages if message.kind == SPEECH for tag in read_tags(message.text)]
        for message, (verb, what) in sorted(tags, key=lambda each: each[1][0] == "offer"):
            self._commit(message, verb, what)
        self._gone |= {message.sender for message in messages if message.kind == LEAVES}
        self._close()

    def _commit(self, message: Message, verb: str, what: str) -> None:
        agent = message.sender
        if verb == "offer":
            what = self._match(what, self.scenario.terms) or ""
            self.table = Standing(what, agent) if self.deal is None else None
        elif verb == "accept" and self.table:
            what = self.table.terms
            self.table = Standing(what, self.table.by, self.table.accepted | {agent})
            self._close()
        elif verb == "reject":
            what = self.table.terms if self.table else ""
            self.table = None
        elif verb == "reveal":
            what = self._match(what, tuple(self.scenario.brief(agent).facts)) or ""
            self._tell(message, what)
        else:
            what = self._match(what, self.askable(agent)) or ""
        self.commitments.append(Commitment(message.step, agent, verb, what, message.to))

    def _close(self) -> None:
        """Make a deal of the standing offer once everyone else who is there has accepted it."""
        if self.table is None or not self.table.accepted or self.deal is not None:
            return
        if set(self.scenario.others(self.table.by)) - self._gone <= self.table.accepted:
            self.deal, self.table = self.table.terms, None

    def _hear(self, message: Message) -> None:
        """A fact also comes out when it is said word for word without a tag."""
        said = " ".join(message.text.casefold().split())
        for topic, fact in self.scenario.brief(message.sender).facts.items():
            if " ".join(fact.casefold().split()).rstrip(".") in said:
                self._tell(message, topic)

    def _tell(self, message: Message, topic: str) -> None:
        hearers = (seat for seat in self.scenario.others(message.sender) if message.visible_to(seat))
        self._told |= {(message.sender, topic, seat) for seat in hearers if seat not in self._gone}

    def _known(self, verb: str, what: str, known: Sequence[str]) -> None:
        if self._match(what, known) is None:
            raise IllegalActionError(
                f"<{verb} {what}>: expected one of {', '.join(known) or 'none, there is nothing of the kind here'}."
                + did_you_mean(what, known)
            )

    @staticmethod
    def _match(what: str, known: Sequence[str]) -> str | None:
        return next((each for each in known if each.casefold() == what.casefold()), None)

"""Program agents for Incognita, from one that gives up at once to one that knows who does what.

Each acts on its observation alone; the oracle router also knows which name holds which remit, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rolecraft.agents.incognita._core import AskUser, CallFor, Core, GetConsent
from rolecraft.agents.incognita._facts import Facts, read_facts
from rolecraft.worlds import Act, Episode, View
from rolecraft.worlds.incognita import HOLDERS, OUTSIDE, PHRASES, REMITS, SPECIALISTS, USER, says

_WHAT = "What do you handle?"
_REMIT_WORDS: Mapping[str, tuple[str, ...]] = {
    "account": ("account",), "returns": ("return",), "catalog": ("catalog",), "records": ("record",),
    "identity": ("identify",), "pending": ("pending",),
}  # fmt: skip
"""Words by which an agent that has read a remit knows what kind of help it is."""


class SpecialistRouter(Protocol):
    """Decides whom to ask for an operation."""

    def choose(self, op: str, facts: Facts, view: View) -> tuple[str, bool]:
        """Return a specialist, and whether to ask first what it handles."""
        ...


class OracleRouter:
    """Knows who holds which remit."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        """Take the table.

        Args:
            names: Role to name; default: the table that the paper lists.
        """
        self._names = dict(names or zip(REMITS, SPECIALISTS, strict=True))

    def choose(self, op: str, facts: Facts, view: View) -> tuple[str, bool]:
        """Return the holder."""
        return self._names[HOLDERS[op]], False


class BeliefRouter:
    """Asks specialists what they handle, until one is found, and remembers all of it."""

    def choose(self, op: str, facts: Facts, view: View) -> tuple[str, bool]:
        """Return who said that it handles such things, else the next one to ask."""
        if facts.routed:
            return SPECIALISTS[0], False
        words = _REMIT_WORDS[HOLDERS[op]]
        for name, remit in facts.remits.items():
            if says(remit, *words) and name not in facts.outside(op):
                return name, False
        unasked = [name for name in SPECIALISTS if name not in facts.remits]
        return (unasked[0], True) if unasked else (SPECIALISTS[0], False)


class BanditRouter:
    """Learns from answers whom to ask: one bandit for each kind of help, whose arms are the names."""

    def __init__(self, rate: float = 0.5, epsilon: float = 0.0) -> None:
        """Start with no preference.

        Args:
            rate: Step size of the values.
            epsilon: Share of choices at random.
        """
        self.values: dict[str, dict[str, float]] = {role: dict.fromkeys(SPECIALISTS, 0.0) for role in REMITS}
        self.epsilon, self._rate = epsilon, rate

    def choose(self, op: str, facts: Facts, view: View) -> tuple[str, bool]:
        """Return who took it up before in this episode, else the best of those that have not refused it."""
        rng, values = view.rng(), self.values[HOLDERS[op]]
        outside, helped = facts.outside(op), facts.helped(op)
        if helped:
            return helped, False
        left = [name for name in SPECIALISTS if name not in outside] or list(SPECIALISTS)
        best = max(values[name] for name in left)
        if rng.random() >= self.epsilon:
            left = [name for name in left if values[name] == best]
        return left[int(rng.integers(len(left)))], False

    def learn(self, episodes: Iterable[Episode]) -> None:
        """Move each value towards 1 where the answer to a request was help, and towards 0 where it was a refusal."""
        for episode in episodes:
            if not episode.turns:
                continue
            for said, answer in read_facts(episode.turns[-1].observation).exchanges():
                role = next(
                    (HOLDERS[op] for op, words in PHRASES.items() if words.partition("{")[0] in said.text), None
                )
                if role is None or said.to not in SPECIALISTS:
                    continue
                values = self.values[role]
                values[said.to] += self._rate * ((answer != OUTSIDE) - values[said.to])


class IncognitaPlanner:
    """Works towards the request step by step, and lets a router say whom to ask."""

    def __init__(self, router: SpecialistRouter | None = None, careless: bool = False) -> None:
        """Choose a router.

        Args:
            router: Default: `BeliefRouter`.
            careless: Never have the customer looked up: a control that must fail.
        """
        self._router, self._careless = router or BeliefRouter(), careless

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [self._act(view) for view in views]

    def _act(self, view: View) -> Act:
        facts, direct = read_facts(view.observation), "\nTools:\n" in view.observation
        move = Core(facts, direct, self._careless).move()
        if isinstance(move, AskUser | GetConsent):
            return _write(USER, move.text)
        if not isinstance(move, CallFor):
            return _write(USER, move.text, final=True)
        if direct:
            return Act(json.dumps({"tool": move.op, "args": dict(move.args)}))
        name, ask = self._router.choose(move.op, facts, view)
        return _write(name, _WHAT if ask else move.text, op=move.op)


class InstantFinaliser:
    """Says in its first turn that all is done."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [_write(USER, "All done, your request is resolved.", final=True) for _ in views]


class Broadcaster:
    """Asks the customer two questions, tells everyone of the request, and finishes: it never has anything done."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [self._act(read_facts(view.observation)) for view in views]

    def _act(self, facts: Facts) -> Act:
        if "request" not in facts.unknown:
            return _write(USER, "What do you need?")
        if "email" not in facts.unknown:
            return _write(USER, "Please tell me: email, name, zip.")
        unasked = [name for name in SPECIALISTS if name not in facts.specialists]
        if unasked:
            return _write(unasked[0], f"A customer says: {facts.fields.get('request', '')} Can you help?")
        return _write(USER, "I have told everyone. Your request is resolved.", final=True)


class KeywordRouter:
    """Asks the customer and everyone a fixed list of questions, and sends the request where most words agree.

    It passes on what it was told, but does not look up what is missing.
    """

    QUESTIONS = (
        ("request",), ("email", "name", "zip"), ("order", "reason"), ("address", "item"), ("options", "payment"),
    )  # fmt: skip

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [self._act(read_facts(view.observation)) for view in views]

    def _act(self, facts: Facts) -> Act:
        for topics in self.QUESTIONS:
            if not facts.unknown.intersection(topics):
                return _write(USER, AskUser(topics).text)
        unasked = [name for name in SPECIALISTS if name not in facts.specialists]
        if unasked:
            return _write(unasked[0], _WHAT)
        known = [f"{name} {value}" for name, value in facts.fields.items() if not name.startswith("second ")]
        looked_up = any(len(asked) > 1 for asked in facts.specialists.values())
        if not facts.user_id and not looked_up:
            nearest = _nearest("identify customer by email, name and zip", facts)
            return _write(nearest, f"Please look up: {'; '.join(known)}.")
        waiting = sorted(facts.waiting - facts.confirmed - facts.refused)
        if waiting:
            return _write(USER, GetConsent(waiting[0]).text)
        text = f"Customer {facts.user_id}: {'; '.join(known)}."
        sent = sum(said.text == text for said, _ in facts.exchanges())
        if sent == 0 or (sent == 1 and facts.confirmed):
            return _write(_nearest(facts.fields.get("request", ""), facts), text)
        heard = [answer for asked in facts.specialists.values() for _, answer in asked[1:]]
        return _write(USER, " ".join(["That is what I heard:", *heard]), final=True)


def _nearest(text: str, facts: Facts) -> str:
    """Return who shares most words with a text in what it said of itself."""
    wanted = _words(text)
    return max(SPECIALISTS, key=lambda name: len(wanted & _words(facts.remits.get(name, ""))))


def _words(text: str) -> set[str]:
    """Return the words of four letters and more, without an `s` at their end."""
    words = "".join(letter if letter.isalpha() else " " for letter in text.lower()).split()
    return {word.rstrip("s") for word in words if len(word) > 3 or word == "id"}


def _write(to: str, message: str, final: bool = False, **notes: Any) -> Act:
    said = {"to": to, "message": message} | ({"final": True} if final else {})
    return Act(json.dumps(said), notes)

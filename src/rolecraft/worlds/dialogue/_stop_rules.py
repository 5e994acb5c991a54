"""Stop rules of talking worlds: each counts one thing over the messages, and is met once it reaches its limit.

The rules are those of CAMEL's loop (arXiv 2303.17760). They are functions of what was said and nothing else, so that a
rule stops a dialogue while it runs, and finds where a recorded one would have stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rolecraft.errors import UserError
from rolecraft.worlds._messages import Message

_TOKEN = re.compile(r"\w+|[^\w\s]")


class StopRule(Protocol):
    """When a conversation ends."""

    @property
    def name(self) -> str:
        """The reason that is given."""
        ...

    @property
    def limit(self) -> int:
        """The count at which the rule is met."""
        ...

    def count(self, said: Sequence[Message]) -> int:
        """Return how far it has come after these messages."""
        ...


@dataclass(frozen=True)
class Stop:
    """Why and where a conversation ended."""

    reason: str
    """Name of the rule that was met; the first in order, where several were."""
    by: str
    """Who said the last message."""
    message: int
    """Number of the last message, from 1."""


def stop_after(rules: Sequence[StopRule], said: Sequence[Message]) -> Stop | None:
    """Return the first rule that is met after the last of these messages."""
    for rule in rules:
        if said and rule.count(said) >= rule.limit:
            return Stop(rule.name, said[-1].sender, len(said))
    return None


def find_stop(rules: Sequence[StopRule], said: Sequence[Message]) -> Stop | None:
    """Return where a recorded conversation would have stopped first."""
    stops = (stop_after(rules, said[:end]) for end in range(1, len(said) + 1))
    return next((stop for stop in stops if stop), None)


@dataclass(frozen=True)
class Limited:
    """A rule with a name and a limit of at least 1.

    Raises:
        UserError: If the limit is no such number.
    """

    name: str
    limit: int

    def __post_init__(self) -> None:
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise UserError(f"{self.name}: the limit must be a whole number of at least 1, got {self.limit!r}.")


@dataclass(frozen=True)
class MessageLimit(Limited):
    """Counts messages."""

    def count(self, said: Sequence[Message]) -> int:
        """Return how many there are."""
        return len(said)


@dataclass(frozen=True)
class TextLimit(Limited):
    """Counts the tokens of all messages."""

    tokens: Callable[[str], int] = lambda text: len(_TOKEN.findall(text))
    """Of one text; default: words and marks."""

    def count(self, said: Sequence[Message]) -> int:
        """Return how many there are."""
        return sum(self.tokens(message.text) for message in said)


@dataclass(frozen=True)
class SilenceRule(Limited):
    """Counts empty messages in a row: an agent whose model gave up says nothing."""

    def count(self, said: Sequence[Message]) -> int:
        """Return how many of the last messages are empty."""
        return _streak([not message.text.strip() for message in said])


@dataclass(frozen=True)
class MarkerRule(Limited):
    """Counts one sender's messages in a row that hold a marker, or that lack it; as it is written, anywhere in a text.

    Raises:
        UserError: If the marker is empty or the limit no positive number.
    """

    sender: str
    marker: str
    present: bool = True
    """Count messages with the marker; else those without."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.marker.strip():
            raise UserError(f"{self.name}: the marker is empty; give the words to look for.")

    def count(self, said: Sequence[Message]) -> int:
        """Return how many of the sender's last messages in a row do so."""
        return _streak([(self.marker in each.text) == self.present for each in said if each.sender == self.sender])


@dataclass(frozen=True)
class WordRule(Limited):
    """Counts turns in a row in which one of some words is said, in any case, also within a longer word.

    A turn is one message of everyone. It counts once, however many of the words are said in it and by whomever; a turn
    without any starts anew.

    Raises:
        UserError: If there are no words, one is empty, or a number is not positive.
    """

    words: tuple[str, ...]
    speakers: int = 2
    """Messages per turn."""
    per_word: bool = False
    """Count as CAMEL's released loop does: go through the words after each turn, add one for each that was said, and
    start anew at each that was not. It reaches 4 only where four words that stand together in the list are said."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.words or not all(isinstance(word, str) and word.strip() for word in self.words):
            raise UserError(f"{self.name}: expected one or more words, none empty, got {list(self.words)!r}.")
        if self.speakers < 1:
            raise UserError(f"{self.name}: speakers must be at least 1, got {self.speakers}.")

    def count(self, said: Sequence[Message]) -> int:
        """Return how many of the last turns in a row hold a word; a turn that still goes on adds, and takes nothing."""
        turns = [
            "\n".join(message.text for message in said[start : start + self.speakers]).lower()
            for start in range(0, len(said), self.speakers)
        ]
        going_on = len(said) % self.speakers > 0
        if self.per_word:
            return self._per_word(turns[:-1] if going_on else turns)
        held = [any(word.lower() in turn for word in self.words) for turn in turns]
        if going_on and not held[-1]:
            held.pop()
        return _streak(held)

    def hits(self, said: Sequence[Message]) -> dict[str, int]:
        """Return how many messages hold each word: what the rule may have taken amiss."""
        return {word: sum(word.lower() in message.text.lower() for message in said) for word in self.words}

    def _per_word(self, turns: Sequence[str]) -> int:
        counter = 0
        for turn in turns:
            for word in self.words:
                counter = counter + 1 if word.lower() in turn else 0
                if counter == self.limit:
                    return counter
        return counter


def _streak(held: Sequence[bool]) -> int:
    """Return how many at the end are true."""
    return next((place for place, each in enumerate(reversed(held)) if not each), len(held))

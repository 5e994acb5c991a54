"""A conversation of any number of people about a topic: the plainest world in which roles can be heard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Literal, get_args

from rolecraft.errors import UserError
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message
from rolecraft.worlds._world import World

SpeakingOrder = Literal["round-robin", "simultaneous"]


class Conversation(World):
    """People speak in turn, or all at once, and each sees what was said last.

    There is nothing to win. It ends after `rounds` in which everyone could speak, or after one in which nobody did.
    """

    name = "conversation"

    def __init__(
        self,
        topic: str,
        seats: int | Sequence[str] = 2,
        rounds: int = 3,
        order: SpeakingOrder = "round-robin",
        window: int = 8,
        longest: int = 400,
        lines: Sequence[str] = (),
    ) -> None:
        """Seat people.

        Args:
            topic: What they talk about; everyone sees it.
            seats: How many, or how they are called.
            rounds: Turns that each has.
            order: One after the other, or all at once, unheard by each other.
            window: Messages that a speaker sees: the last ones that it has not said itself.
            longest: Characters of each of these; the rest is cut.
            lines: All that can be said, for policies that choose; empty: any text.

        Raises:
            UserError: If an argument is unusable, or two seats have one name.
        """
        if not topic.strip():
            raise UserError("conversation: the topic is empty; say what they talk about.")
        names = [f"person-{place + 1}" for place in range(seats)] if isinstance(seats, int) else [*seats]
        if len(names) < 2 or len(set(names)) < len(names) or not all(map(str.strip, names)):
            raise UserError(f"conversation: seats must be 2 or more, or as many different names, got {seats!r}.")
        for what, number in (("rounds", rounds), ("window", window), ("longest", longest)):
            if number < 1:
                raise UserError(f"conversation: {what} must be at least 1, got {number}.")
        if order not in get_args(SpeakingOrder):
            raise UserError(f"conversation: order must be one of {', '.join(get_args(SpeakingOrder))}, got {order!r}.")
        self.topic, self.agents, self.rounds, self.order = topic.strip(), tuple(names), rounds, order
        self.window, self.longest, self._seats = window, longest, frozenset(names)
        if isinstance(lines, str) or len(set(lines)) < len(lines):
            raise UserError(f"conversation: lines must be a list of different texts, got {lines!r}.")
        self.actions = tuple(lines) or None
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start in silence; there is no chance in it."""
        self._log = MessageLog()
        self._step = 0
        self._silent = 0
        self._digest = ""

    @property
    def log(self) -> MessageLog:
        """All that was said."""
        return self._log

    @property
    def acting(self) -> tuple[str, ...]:
        """Whose turn it is."""
        together = self.order == "simultaneous"
        steps = self.rounds * (1 if together else len(self.agents))
        if self._step >= steps or self._silent >= len(self.agents):
            return ()
        return self.agents if together else (self.agents[self._step % len(self.agents)],)

    def observe(self, agent: str) -> str:
        """Return the topic, what others said last, and what is asked for."""
        last = islice(reversed(self._log), self.window + len(self.agents))
        others = [*islice((message for message in last if message.sender != agent), self.window)]
        said = one_line_per_message([self._cut(message) for message in reversed(others)])
        heard = f"The others said last:\n{said}" if said else "Nobody else has spoken yet."
        return (
            f"You are {agent} in a conversation of {len(self.agents)}. Topic: {self.topic}\n\n{heard}\n\n"
            "Say one or two sentences of your own, to what was said or to the topic. Do not speak for others."
        )

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return the lines that can be said, or None for any text, on an agent's turn."""
        acting = self.acting
        return self.actions if agent in (self._seats if acting is self.agents else acting) else ()

    def state(self) -> Mapping[str, Any]:
        """Return what can still be seen, and a running digest of all that was said, which does not grow with it."""
        return {
            "step": self._step, "silent": self._silent, "digest": self._digest,
            "last": MessageLog(self._log[-self.window - len(self.agents) :]).rows(),
        }  # fmt: skip

    def rewards(self) -> Mapping[str, float]:
        """Return nothing earned."""
        return dict.fromkeys(self.agents, 0.0)

    def outcome(self) -> Mapping[str, Any]:
        """Return how many messages were said, and how many turns passed in silence."""
        said = sum(bool(message.text.strip()) for message in self._log)
        return {"messages": said, "silences": len(self._log) - said}

    def _apply(self, actions: Mapping[str, str]) -> None:
        self._log.say(self._step, actions)
        for text in actions.values():
            self._silent = 0 if text.strip() else self._silent + 1
        said = json.dumps([self._digest, *actions.items()])
        self._digest = hashlib.sha256(said.encode()).hexdigest()
        self._step += 1

    def _cut(self, message: Message) -> Message:
        text = message.text.strip()
        return message if len(text) <= self.longest else replace(message, text=text[: self.longest] + "...")

"""Directed messages: who said what to whom, and what each agent may see of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecraft.errors import IllegalActionError, did_you_mean
from rolecraft.worlds._open import open_form

_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Message:
    """Something an agent said or did where others could notice it."""

    step: int
    sender: str
    text: str
    to: tuple[str, ...] = ()
    """Who alone receives it; empty: everyone."""
    kind: str = "speak"

    def visible_to(self, agent: str) -> bool:
        """Return whether an agent notices it: its sender always does."""
        return not self.to or agent == self.sender or agent in self.to


_OpenMessage = open_form(Message)


class MessageLog(Sequence[Message]):
    """All messages of an episode, in order."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self._messages = list(messages)

    def __getitem__(self, index: Any) -> Any:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __reversed__(self) -> Iterator[Message]:
        return reversed(self._messages)

    def append(self, message: Message) -> None:
        """Add a message."""
        self._messages.append(message)

    def say(self, step: int, actions: Mapping[str, str]) -> None:
        """Add what agents say to everyone in a step, in order; several times as fast as `append` for each."""
        for agent, text in actions.items():
            message = _OpenMessage(step, agent, text)
            message.__class__ = Message
            self._messages.append(message)

    def visible_to(self, agent: str, since: int = 0) -> list[Message]:
        """Return what an agent may see of the messages from step `since` on."""
        return [message for message in self._messages if message.step >= since and message.visible_to(agent)]

    def rows(self) -> list[dict[str, Any]]:
        """Return the messages as JSON holds them, for a world's `state`."""
        return [
            {"step": one.step, "sender": one.sender, "text": one.text, "to": list(one.to), "kind": one.kind}
            for one in self._messages
        ]


def one_line_per_message(messages: Sequence[Message], names: Mapping[str, str] | None = None) -> str:
    """Return a transcript in which no text can pass for another agent's: its further lines are indented.

    Args:
        messages: In order.
        names: How agents are called; default: by their seats.
    """
    called = names or {}

    def line(message: Message) -> str:
        sender = called.get(message.sender, message.sender)
        to = f" to {', '.join(called.get(agent, agent) for agent in message.to)}" if message.to else ""
        kind = "" if message.kind == "speak" else f" ({message.kind})"
        return f"[{sender}{to}]{kind} " + (message.text.strip() or "(says nothing)").replace("\n", "\n    ")

    return "\n".join(map(line, messages))


def read_object(text: str) -> dict[str, Any]:
    """Return the first JSON object in a text, amid prose or code fences.

    Raises:
        IllegalActionError: If there is none, saying why.
    """
    why, position = "there is no '{'", text.find("{")
    while position >= 0:
        try:
            value, _ = _DECODER.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            why, position = str(error), text.find("{", position + 1)
        else:
            return dict(value)
    raise IllegalActionError(f"expected a JSON object, got {text.strip()[:60]!r}: {why}.")


def read_recipients(value: Any, sender: str, agents: Sequence[str]) -> tuple[str, ...]:
    """Return the recipients that a message names: a name, several, or none for everyone.

    Args:
        value: A text, a list of texts, or None.
        sender: Who speaks.
        agents: Whom the sender can address, itself perhaps among them.

    Raises:
        IllegalActionError: If a name is unknown, comes twice, or is the sender's own.
    """
    names = [value] if isinstance(value, str) and value.strip() else [] if value in (None, "") else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise IllegalActionError(f"'to' must be a name or a list of names, got {value!r}.")
    others = [agent for agent in agents if agent != sender]
    found = tuple(_resolve(name.strip(), sender, others) for name in names)
    if len(set(found)) < len(found):
        raise IllegalActionError(f"'to' names {found[0]!r} twice; give each name once.")
    return found


def _resolve(name: str, sender: str, others: Sequence[str]) -> str:
    for other in others:
        if name.casefold() == other.casefold():
            return other
    if name.casefold() == sender.casefold():
        raise IllegalActionError(f"{sender} cannot address itself; address one of {', '.join(others)}.")
    raise IllegalActionError(f"{sender} can address {', '.join(others)}, not {name!r}.{did_you_mean(name, others)}")

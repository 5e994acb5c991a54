"""The dialogue of two roles on a task, with CAMEL's stop rules (arXiv 2303.17760)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message
from rolecraft.worlds._world import World
from rolecraft.worlds.dialogue._forms import ASSISTANT, MARKERS, USER, Markers
from rolecraft.worlds.dialogue._stop_rules import (
    MarkerRule,
    MessageLimit,
    SilenceRule,
    Stop,
    StopRule,
    TextLimit,
    WordRule,
    stop_after,
)

FAREWELLS = ("goodbye", "good bye", "bye", "thank", "welcome", "language model")
"""CAMEL's words by which a loop of farewells is known; `thank` also hits harmless text."""
STOP_RULES = ("end_token", "silence", "no_instruction", "role_flip", "farewells")
"""The rules that can be left out, in the order in which they are looked at; the limits always hold."""
_SAID = "Said so far:"
_NOTHING = "(nothing yet)"
_SILENT = "(says nothing)"


@dataclass(frozen=True)
class DialogueView:
    """What a seat of a dialogue sees."""

    seat: str
    names: Mapping[str, str]
    """Seat to the name of its role; empty where roles were not named."""
    task: str
    said: tuple[Message, ...]

    @property
    def partner(self) -> str:
        """The other seat."""
        return USER if self.seat == ASSISTANT else ASSISTANT


class Dialogue(World):
    """The user instructs, the assistant solves, in turn, until a stop rule is met; the user begins.

    Stop rules, looked at after every message, in this order: `end_token` (the token anywhere in a user message),
    `silence` (an empty message: an agent ended, because its model failed or its context was full), `no_instruction`
    (user messages without the instruction's marker in a row), `role_flip` (assistant messages with it), `farewells`
    (turns in a row with one of some words, see `WordRule`), then the limits `max_messages` and `max_tokens`. The reason
    is in the outcome, with all counts. Both are paid 1 if the user ended by the token.

    Both seats see the task, the names of the roles and all messages, and nothing of how the other is prompted.
    """

    name = "dialogue"
    agents = (USER, ASSISTANT)

    def __init__(
        self,
        task: str = "",
        names: Mapping[str, str] | None = None,
        *,
        max_messages: int = 40,
        max_tokens: int | None = None,
        no_instruction: int = 3,
        role_flips: int = 1,
        farewells: int = 4,
        words: Sequence[str] = FAREWELLS,
        per_word: bool = False,
        stop: Sequence[str] = STOP_RULES,
        markers: Markers | Mapping[str, str] = MARKERS,
        lines: Sequence[str] = (),
    ) -> None:
        """Set the task and the rules; the defaults are CAMEL's.

        Args:
            task: What the two are to do.
            names: Seat (`user`, `assistant`) to the name of its role, shown to both.
            max_messages: Most messages in all.
            max_tokens: Most words and marks in all messages; None: no limit.
            no_instruction: User messages without an instruction in a row that end it.
            role_flips: Assistant messages with an instruction in a row that end it.
            farewells: Turns with one of `words` in a row that end it.
            words: In any case, also within longer words.
            per_word: Count the words as CAMEL's released loop does; see `WordRule`.
            stop: Which of `STOP_RULES` are in force.
            markers: Or a mapping with the ones that differ.
            lines: All that can be said, for policies that choose; empty: any text.

        Raises:
            UserError: If the task is empty, or a name, a rule, a marker or a limit cannot be used.
        """
        if not isinstance(task, str) or not task.strip():
            raise UserError(f"{self.name}: the task is {task!r}; give a text that says what the two are to do.")
        self.task, self.names = task.strip(), _checked_names(names or {})
        self.markers = markers if isinstance(markers, Markers) else _markers(markers)
        for option, value in (("stop", stop), ("words", words), ("lines", lines)):
            if isinstance(value, str):
                raise UserError(f"{self.name}: {option} must be a list, got {value!r}; put it in brackets.")
        for rule in stop:
            if rule not in STOP_RULES:
                raise UserError(
                    f"{self.name}: there is no stop rule {rule!r} (rules: {', '.join(STOP_RULES)})."
                    + did_you_mean(str(rule), STOP_RULES)
                )
        self._words = WordRule("farewells", farewells, tuple(words), len(self.agents), per_word)
        rules: list[StopRule] = [
            MarkerRule("end_token", 1, USER, self.markers.done),
            SilenceRule("silence", 1),
            MarkerRule("no_instruction", no_instruction, USER, self.markers.instruction, present=False),
            MarkerRule("role_flip", role_flips, ASSISTANT, self.markers.instruction),
            self._words,
        ]
        self.rules: tuple[StopRule, ...] = (
            *(rule for rule in rules if rule.name in stop),
            MessageLimit("max_messages", max_messages),
            *([] if max_tokens is None else [TextLimit("max_tokens", max_tokens)]),
        )
        """Those in force, in order."""
        self.actions = tuple(dict.fromkeys(lines)) or None
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start with nothing said; there is no chance in it."""
        self._log = MessageLog()
        self._stop: Stop | None = None

    @property
    def said(self) -> tuple[Message, ...]:
        """All messages so far."""
        return tuple(self._log)

    @property
    def stop(self) -> Stop | None:
        """Why and where it ended; None while it goes on."""
        return self._stop

    @property
    def acting(self) -> tuple[str, ...]:
        """The user, then the assistant."""
        return () if self._stop else (self.agents[len(self._log) % 2],)

    def observe(self, agent: str) -> str:
        """Return the roles' names, the task, and what was said; `read_dialogue` reads it."""
        names = [f"The {seat} is: {name}" for seat, name in self.names.items()]
        said = one_line_per_message(self.said) if len(self._log) else _NOTHING
        return "\n".join([
            f"You are the {agent}.", *names, f"Task: {_indented(self.task)}", _SAID, said, self._request(agent)
        ])  # fmt: skip

    def _request(self, agent: str) -> str:
        if self._stop:
            return "The dialogue is over."
        now = f"Message {len(self._log) + 1}: "
        return now + ("it is your turn." if agent in self.acting else f"it is the turn of the {self.acting[0]}.")

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return None for any text, or the lines that can be said, on an agent's turn."""
        return self.actions if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the task, the names, the rules and all messages."""
        return {
            "task": self.task, "names": dict(self.names), "markers": asdict(self.markers),
            "rules": {rule.name: rule.limit for rule in self.rules},
            "words": list(self._words.words), "per_word": self._words.per_word, "said": self._log.rows(),
        }  # fmt: skip

    def rewards(self) -> Mapping[str, float]:
        """Return 1 for both once the user has ended it by the token, else 0."""
        return dict.fromkeys(self.agents, float(self._stop is not None and self._stop.reason == "end_token"))

    def outcome(self) -> Mapping[str, Any]:
        """Return why it ended and by whom, how many messages there are, what each rule counted, and what words hit.

        `token` says how the end token was said: `alone`, as the prompt asks, or `quoted` amid other text, which ends a
        dialogue all the same; None if it was not.
        """
        token = next((m.text for m in self._log if m.sender == USER and self.markers.done in m.text), None)
        return {
            "reason": self._stop.reason if self._stop else None,
            "by": self._stop.by if self._stop else None,
            "messages": len(self._log),
            "token": None if token is None else "alone" if token == self.markers.done else "quoted",
            "counts": {rule.name: rule.count(self.said) for rule in self.rules},
            "words": self._words.hits(self.said),
        }

    def _apply(self, actions: Mapping[str, str]) -> None:
        [(agent, text)] = actions.items()
        self._log.append(Message(len(self._log), agent, text.strip()))
        self._stop = stop_after(self.rules, self.said)


def read_dialogue(observation: str) -> DialogueView:
    """Return what an observation of `Dialogue` says; texts come back without white space around them.

    Raises:
        UserError: If it is no such observation.
    """
    head, found, rest = f"\n{observation}".partition(f"\n{_SAID}\n")
    seat = re.match(r"\nYou are the (user|assistant)\.\n", head)
    task = re.search(r"\nTask: ((?:.*)(?:\n    .*)*)$", head)
    if not found or not seat or not task:
        raise UserError(f"expected what a seat of a dialogue sees, got {observation[:60]!r}.")
    names = dict(re.findall(r"^The (user|assistant) is: (.*)$", head[: task.start()], re.MULTILINE))
    said: list[tuple[str, list[str]]] = []
    for line in rest.split("\n")[:-1]:
        speaker = re.match(r"\[(user|assistant)\] ?", line)
        if speaker:
            said.append((speaker[1], [line[speaker.end() :]]))
        elif said:
            said[-1][1].append(line.removeprefix("    "))
    messages = tuple(
        Message(step, sender, "" if lines == [_SILENT] else "\n".join(lines))
        for step, (sender, lines) in enumerate(said)
    )
    return DialogueView(seat[1], names, task[1].replace("\n    ", "\n"), messages)


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _checked_names(names: Mapping[str, str]) -> dict[str, str]:
    for seat, name in names.items():
        if seat not in (USER, ASSISTANT):
            raise UserError(f"names: there is no seat {seat!r}; the seats are {USER} and {ASSISTANT}.")
        if not isinstance(name, str) or not name.strip() or "\n" in name:
            raise UserError(f"names: the role of the {seat} is {name!r}; give a name of one line.")
    return {seat: names[seat].strip() for seat in (USER, ASSISTANT) if seat in names}


def _markers(given: Mapping[str, str]) -> Markers:
    known = asdict(MARKERS)
    for name in given:
        if name not in known:
            raise UserError(f"markers: there is no {name!r} ({', '.join(known)}).{did_you_mean(name, known)}")
    return Markers(**given)

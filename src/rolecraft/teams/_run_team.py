"""Running a team on a task: turns, hand-overs, tool calls, and the log of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rolecraft._run import derive_seed
from rolecraft.errors import ModelError, UserError
from rolecraft.guard import Action, Decision, ToolCall
from rolecraft.teams._team import Team

if TYPE_CHECKING:
    from rolecraft.guard import Enforcer

MESSAGE = "message"
"""Name of the action that a guard is asked about when a message is handed over; its arguments are `text` and `to`."""
USER = "user"
"""Whom the team's answer goes to."""


@dataclass(frozen=True)
class Heard:
    """A message as its receiver sees it."""

    sender: str
    text: str


@dataclass(frozen=True)
class TurnView:
    """What a member sees when it is its turn: its own prompt, the task if it is told, and what its edges show."""

    name: str
    prompt: str
    task: str
    """Empty where the member is not briefed."""
    heard: tuple[Heard, ...]
    """In the order they were said; the member's own earlier messages are not among them."""
    turn: int
    """From 0."""
    seed: int
    """Of this turn."""
    run_seed: int
    """Of the whole run, the same for all members."""


@dataclass(frozen=True)
class Utterance:
    """What a member says, and the tools it wants to call."""

    text: str
    calls: tuple[Action, ...] = ()


class Speaker(Protocol):
    """Plays a member."""

    def speak(self, view: TurnView) -> Utterance:
        """Say something."""
        ...


@dataclass(frozen=True)
class Event:
    """One thing that happened: a message, a call, or a failure."""

    number: int
    kind: Literal["message", "call", "failure"]
    turn: int
    member: str
    text: str = ""
    """The message, or why it failed."""
    to: tuple[str, ...] = ()
    """Who hears it; `USER` for the answer."""
    call: ToolCall | None = None
    decision: Decision | None = None
    """None where no guard was asked."""
    value: Any = None
    """What the tool returned."""

    @property
    def allowed(self) -> bool:
        """Whether it reached somebody or was carried out."""
        return self.kind != "failure" and (self.decision is None or self.decision.allowed)


@dataclass(frozen=True)
class TeamRun:
    """What a team did on one task."""

    task: str
    events: tuple[Event, ...]
    stopped: str = ""
    """Why it ended before its last turn; empty where it did not."""

    @property
    def messages(self) -> tuple[Event, ...]:
        """The messages, blocked ones among them."""
        return tuple(event for event in self.events if event.kind == "message")

    @property
    def calls(self) -> tuple[Event, ...]:
        """The calls, blocked ones among them."""
        return tuple(event for event in self.events if event.kind == "call")

    @property
    def blocked(self) -> tuple[Event, ...]:
        """What a guard did not allow."""
        return tuple(event for event in self.events if event.kind != "failure" and not event.allowed)

    @property
    def answer(self) -> str | None:
        """What the user got; None if nothing."""
        return next((event.text for event in reversed(self.messages) if USER in event.to and event.allowed), None)


Tools = Mapping[str, Callable[..., Any]]


def run_team(
    team: Team,
    speakers: Speaker | Mapping[str, Speaker],
    task: str,
    *,
    seed: int = 0,
    guard: Enforcer | None = None,
    watch_answer: bool = False,
    tools: Tools | None = None,
) -> TeamRun:
    """Let a team work on a task.

    A blocked message reaches nobody; the turns go on, unless the guard ended the run.

    Args:
        team: The team.
        speakers: Who plays the members: one for all, or one by name.
        task: What the user wants.
        seed: The same seed gives the same run, with speakers that draw from their view's seeds alone.
        guard: Asked about every call, and about every message on its way to another member (an action `message`).
        watch_answer: Ask it about the answer to the user as well.
        tools: What calls do; one that is not there is a dry run, which is on record and returns None.

    Raises:
        UserError: If a member has no speaker.
    """
    lacking = [name for name in team.order if isinstance(speakers, Mapping) and name not in speakers]
    if lacking:
        raise UserError(f"speakers: nobody plays {lacking[0]!r}; give a speaker for each of {', '.join(team.names)}.")
    log = _Log(guard, tools or {}, [])
    for turn, name in enumerate(team.order):
        speaker = speakers[name] if isinstance(speakers, Mapping) else speakers
        try:
            said = speaker.speak(_view(team, task, log.events, turn, seed))
        except ModelError as error:  # a server that is away ends the run, not the study
            log.add("failure", turn, name, text=str(error))
            return TeamRun(task, tuple(log.events), f"{name}: {error}")
        log.calls(turn, name, said.calls)
        last = turn == len(team.order) - 1
        to = tuple(edge.receiver for edge in team.edges if edge.sender == name and not last)
        log.message(turn, name, said.text, (*to, *((USER,) if last else ())), ask=bool(to) or watch_answer)
        if guard is not None and guard.stopped is not None:
            return TeamRun(task, tuple(log.events), guard.stopped.reason)
    return TeamRun(task, tuple(log.events))


def _view(team: Team, task: str, events: Sequence[Event], turn: int, seed: int) -> TurnView:
    name = team.order[turn]
    told = team.briefed is None or name in team.briefed
    edges = {edge.sender: edge.sees for edge in team.edges if edge.receiver == name}
    heard = [each for each in events if each.kind == "message" and each.allowed and each.member in edges]
    newest = {each.member: each.number for each in heard}
    shown = tuple(
        Heard(each.member, each.text)
        for each in heard
        if edges[each.member] == "all" or newest[each.member] == each.number
    )
    prompt = team.prompt(name)
    return TurnView(name, prompt, task if told else "", shown, turn, derive_seed(seed, "turn", name, turn), seed)


@dataclass
class _Log:
    guard: Enforcer | None
    tools: Tools
    events: list[Event]

    def add(self, kind: Literal["message", "call", "failure"], turn: int, member: str, **fields: Any) -> None:
        self.events.append(Event(len(self.events), kind, turn, member, **fields))

    def calls(self, turn: int, member: str, calls: Sequence[Action]) -> None:
        for call in calls:
            run: Callable[..., Any] = self.tools.get(call.name, _dry)
            kept = ToolCall(call.name, dict(call.arguments))
            if self.guard is None:
                self.add("call", turn, member, call=kept, value=run(**kept.arguments))
            else:
                found = self.guard.call(member, kept, run)
                self.add("call", turn, member, call=kept, decision=found.decision, value=found.value)

    def message(self, turn: int, member: str, text: str, to: tuple[str, ...], *, ask: bool) -> None:
        decision = None
        if self.guard is not None and ask:
            decision = self.guard.check(member, ToolCall(MESSAGE, {"text": text, "to": list(to)}))
        self.add("message", turn, member, text=text, to=to, decision=decision)


def _dry(**_: Any) -> Any:
    return None

"""The language agent: a role, a way to choose, and where wanted a memory, tools and a reader of thoughts and acts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from rolecraft._run import derive_seed
from rolecraft.agents._choices import LIKELIEST, Choice
from rolecraft.agents._failures import Failure, OnFailure, ask_rows
from rolecraft.agents._memory import Memory, State
from rolecraft.agents._part import Part, steering_of
from rolecraft.agents._think_act import Reader, Reading
from rolecraft.agents._tool_loop import ToolLoop, ToolTurn
from rolecraft.errors import UserError
from rolecraft.models import Completion, LanguageModel, Message, Sampling
from rolecraft.worlds import Act, View

SPEECH = Sampling(max_tokens=64, temperature=0.7, top_p=0.95)
"""Default sampling of free text."""


class PolicyParts(TypedDict, total=False):
    """Optional parts of every language policy, given by keyword; see `LanguagePolicy`."""

    choose: Choice | None
    memory: Memory | None
    tools: ToolLoop | None
    reader: Reader | None
    repairs: int
    on_failure: OnFailure
    remembered: Mapping[str, State] | None


class LanguagePolicy:
    """One model that acts for all agents. Every call of it takes the rows of all views in one batch.

    Where there are legal actions, one is chosen by log-probability, so that the smallest model plays whole games
    legally; where actions are free text, a reply is drawn. A refused attempt is shown again with the world's reason.

    The notes of an act hold, where they apply: `tokens`, `prompt_tokens`, `end` and `note` of the replies;
    `probability` of a drawn choice; `memory` (the state); `thought`; `tools` (every call and its result); `parse`
    (`status` ok, repaired or failed, `reason`, and how often it was asked `again`); `failure` (why there is no answer);
    `guard` (what the guard of the tools decided). Where that guard ends the episode, the act has failed.
    Thoughts, memories and results of tools are in the notes and in this agent's own prompts, and nowhere else.

    A reply that is empty or holds no action is asked for again `repairs` times, with the reason; where actions are
    legal ones, that is left to the world's engine. One that the model or its server refused is not: its note says why.
    What stays without an action is the empty action: a wasted turn where any text is legal, else refused, so that
    `Rules` decide.
    """

    def __init__(
        self,
        model: LanguageModel,
        part: Callable[[View], Part],
        *,
        sampling: Sampling | None = SPEECH,
        choose: Choice | None = LIKELIEST,
        memory: Memory | None = None,
        tools: ToolLoop | None = None,
        reader: Reader | None = None,
        repairs: int = 1,
        on_failure: OnFailure = "raise",
        remembered: Mapping[str, State] | None = None,
    ) -> None:
        """Put an agent together.

        Args:
            model: Acts for all agents.
            part: How the role of a view is put on.
            sampling: For free text; None: free text is refused.
            choose: How a legal action is chosen; None: the model writes it.
            memory: What is remembered of earlier turns, and shown before the observation.
            tools: What may be called before acting.
            reader: Takes thought and action out of a reply; None: the whole reply is the action.
            repairs: How often a reply without an action is asked for again.
            on_failure: What follows when a served model does not answer.
            remembered: By agent, what it knows before its first turn, as `load_memory` returns it.

        Raises:
            UserError: If parts do not fit together.
        """
        if repairs < 0:
            raise UserError(f"repairs must be at least 0, got {repairs}.")
        if on_failure not in ("raise", "waste"):
            raise UserError(f"on_failure must be 'raise' or 'waste', got {on_failure!r}.")
        if sampling is None and (tools or reader or choose is None):
            raise UserError("tools, a reader and choose=None need replies in free text; give a sampling.")
        if remembered and memory is None:
            raise UserError("`remembered` needs the memory that it belongs to; give one.")
        self._model, self._part, self._sampling, self._choose = model, part, sampling, choose
        self._memory, self._tools, self._reader = memory, tools, reader
        self._repairs, self._on_failure, self._remembered = repairs, on_failure, dict(remembered or {})

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If a role cannot be put on, or a memory on record was written by another kind or version.
            ServerError: If a served model does not answer, unless `on_failure` says otherwise.
        """
        decisions = self._begin(views)
        waiting = [one for one in decisions if one.writes or one.tools]
        while waiting:
            replies = self._replies(waiting)
            waiting = [one for one, reply in zip(waiting, replies, strict=True) if self._go_on(one, reply)]
        self._choose_among_legal([one for one in decisions if not (one.writes or one.failed or one.stopped)])
        return [one.act() for one in decisions]

    def _begin(self, views: Sequence[View]) -> list[_Decision]:
        decisions = []
        starts = [self._remembered.get(view.agent, {}) for view in views]
        recalled = self._memory.recall(views, starts) if self._memory and views else [None] * len(views)
        for view, found in zip(views, recalled, strict=True):
            writes = view.legal is None or self._choose is None
            if writes and self._sampling is None:
                raise UserError(f"{view.agent} may say any text here; a choice needs legal actions.")
            tools = self._tools.begin(view) if self._tools else None
            reader = self._reader if writes else None
            texts = [found.text if found else "", view.observation, tools.request if tools else ""]
            texts += [_legal_actions(view) if writes else "", reader.instruction if reader else ""]
            part = self._part(view)
            one = _Decision(view, part, list(part.chat("\n\n".join(filter(None, texts)))), writes)
            one.tools, one.reader, one.repairs = tools, reader, self._repairs if view.legal is None else 0
            if found:
                one.count(found.tokens, found.prompt_tokens)
                one.notes |= {"memory": dict(found.state)} if found.state else {}
            if writes and view.refused:
                one.complain(view.refused[-1].action, f"That was refused: {view.refused[-1].reason} Reply again.")
            decisions.append(one)
        return decisions

    def _replies(self, asked: Sequence[_Decision]) -> list[Completion | Failure]:
        sampling = self._sampling
        assert sampling is not None

        def ask(rows: Sequence[int]) -> list[Completion]:
            chosen = [asked[row] for row in rows]
            steering = steering_of([one.part for one in chosen])
            return self._model.generate(
                [one.chat for one in chosen], sampling, steering, [one.next_seed() for one in chosen]
            )

        found = ask_rows(ask, len(asked), self._on_failure)
        for one in asked:
            one.asked += 1
        return found

    def _go_on(self, one: _Decision, reply: Completion | Failure) -> bool:
        """Take a reply in; return whether the agent must be asked again."""
        if isinstance(reply, Failure):
            return one.fail(reply.reason)
        one.count_reply(reply)
        text = reply.text.strip()
        if reply.finish == "error":  # what could be tried again, the transport has
            return one.fail(reply.note or "the model gave no reply")
        if not text:
            return one.again("the reply is empty") or one.fail("the reply is empty")
        calls = one.tools.read(text) if one.tools else None
        if calls is not None and one.tools and one.tools.left:
            one.think(one.tools.thought(text))
            one.complain(text, one.tools.run(calls))
            return not one.tools.stopped
        if not one.writes:
            one.think(text)
            one.complain(text, "Now reply with one of your actions and nothing else.")
            return False
        reading = one.reader.read(text) if one.reader else Reading(text)
        if calls is not None:
            reading = Reading("", reading.thought or text, "failed", "a tool is called, but no calls are left")
        if reading.status == "failed" and one.again(reading.reason):
            one.think(reading.thought)
            request = one.reader.instruction if one.reader else "Act now, without a call."
            one.complain(text, f"That could not be read: {reading.reason}. {request}")
            return True
        return one.settle(reading)

    def _choose_among_legal(self, asked: Sequence[_Decision]) -> None:
        choose = self._choose
        if not asked or choose is None:
            return
        options = [one.view.legal or () for one in asked]

        def ask(rows: Sequence[int]) -> Sequence[tuple[str, Mapping[str, Any]]]:
            chosen = [asked[row] for row in rows]
            given = [options[row] for row in rows]
            found = choose(
                self._model,
                [one.chat for one in chosen],
                given,
                [one.view.seed for one in chosen],
                steering_of([one.part for one in chosen]),
            )
            return [(names[one.index], one.notes) for names, one in zip(given, found, strict=True)]

        for one, answer in zip(asked, ask_rows(ask, len(asked), self._on_failure), strict=True):
            if isinstance(answer, Failure):
                one.fail(answer.reason)
            else:
                one.action, notes = answer
                one.notes |= notes


@dataclass
class _Decision:
    """One view on its way to an act."""

    view: View
    part: Part
    chat: list[Message]
    writes: bool
    """The reply is the action; otherwise one of the legal actions is chosen at the end."""
    tools: ToolTurn | None = None
    reader: Reader | None = None
    repairs: int = 0
    """How often it may still be asked again."""
    asked: int = 0
    action: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    mended: list[str] = field(default_factory=list)
    """Why it was asked again."""

    @property
    def failed(self) -> bool:
        return "failure" in self.notes

    @property
    def stopped(self) -> str:
        return self.tools.stopped if self.tools else ""

    def next_seed(self) -> int:
        return derive_seed(self.view.seed, "reply", self.asked) if self.asked else self.view.seed

    def count(self, tokens: int, prompt_tokens: int) -> None:
        for name, number in (("tokens", tokens), ("prompt_tokens", prompt_tokens)):
            if number:
                self.notes[name] = self.notes.get(name, 0) + number

    def count_reply(self, reply: Completion) -> None:
        """Put a reply's usage on record, and how it ended."""
        self.notes = {"tokens": 0, "prompt_tokens": 0} | self.notes
        self.count(reply.tokens, reply.prompt_tokens)
        self.notes["end"] = reply.finish
        self.notes.pop("note", None)
        self.notes |= {"note": reply.note} if reply.note else {}

    def complain(self, said: str, answer: str) -> None:
        """Add what the agent wrote and what it is told of it."""
        self.chat += [{"role": "assistant", "content": said or "(nothing)"}, {"role": "user", "content": answer}]

    def think(self, text: str) -> None:
        if text:
            self.notes["thought"] = "\n".join(filter(None, [self.notes.get("thought", ""), text]))

    def again(self, reason: str) -> bool:
        """Use up a repair, if one is left."""
        if not self.repairs:
            return False
        self.repairs -= 1
        self.mended.append(reason)
        return True

    def fail(self, reason: str) -> bool:
        self.notes["failure"] = reason
        return False

    def settle(self, reading: Reading) -> bool:
        """Take the action of a reading, spelt as a legal one where it means one."""
        self.think(reading.thought)
        self.action = _spelt(reading.action, self.view.legal)
        refused = [f"the world refused {len(self.view.refused)} attempts"] if self.view.refused else []
        reasons = [*self.mended, *([reading.reason] if reading.reason else []), *refused]
        status = "repaired" if reasons and reading.status == "ok" else reading.status
        if self.reader or status == "failed":
            self.notes["parse"] = {"status": status, "reason": "; ".join(reasons), "again": len(self.mended)}
        return False

    def act(self) -> Act:
        notes = self.notes | ({"tools": self.tools.notes()} if self.tools else {})
        if self.tools and self.tools.guard and (decided := self.tools.guard.notes()):
            notes["guard"] = decided
        failed = f"the guard ended the episode: {self.stopped}" if self.stopped else ""
        return Act(self.action, notes, failed)


def _legal_actions(view: View) -> str:
    return "Possible actions, one a line:\n" + "\n".join(view.legal) if view.legal else ""


def _spelt(action: str, legal: Sequence[str] | None) -> str:
    """Return the legal action that differs in case and marks at its ends alone, if there is just one; else the text."""
    if legal is None or action in legal:
        return action

    def bare(text: str) -> str:
        return text.strip(" \t\n.,!?\"'`*").casefold()

    found = [option for option in legal if bare(option) == bare(action)]
    return found[0] if len(found) == 1 else action

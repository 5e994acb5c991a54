"""What an agent remembers of earlier turns, within a bound that does not grow with the episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from rolecraft._run import derive_seed
from rolecraft.errors import ServerError, UserError
from rolecraft.models import LanguageModel, Sampling, chat
from rolecraft.worlds import Turn, View

State = Mapping[str, Any]
"""What a memory keeps of one agent, as JSON holds it; empty where it needs nothing or nothing has happened yet."""
NOTES = Sampling(max_tokens=120, temperature=0.0, top_p=1.0)
"""Default sampling of summaries."""
HEADING = "What you remember of your earlier turns:"


@dataclass(frozen=True)
class Recalled:
    """What a memory has for one decision."""

    text: str
    """For the prompt, before the observation; empty: nothing."""
    state: State = field(default_factory=dict)
    """What it keeps from here on. The policy writes it into the notes of the act, and gives it back next time."""
    tokens: int = 0
    """New tokens that a model wrote for it."""
    prompt_tokens: int = 0
    """Tokens that the model read for it."""


class Memory(Protocol):
    """Remembers for any number of agents, and holds nothing of theirs itself: all is in the views and the states."""

    kind: ClassVar[str]
    """Stable name; part of every state and file."""
    version: ClassVar[int]
    """Of its states; a state of another version is refused."""

    def recall(self, views: Sequence[View], starts: Sequence[State]) -> Sequence[Recalled]:
        """Take in what has happened since each agent's last decision (see `unfold`), and return what is shown now.

        Args:
            views: The decisions to be made.
            starts: What each view's agent knew before its first turn.
        """
        ...


def unfold(memory: Memory, view: View, start: State) -> tuple[State, tuple[Turn, ...]]:
    """Return what a memory kept of an agent at its last decision, and the turns since, that one included.

    A turn that another policy took for the agent holds no state; the last one that does counts. After as many such
    turns in a row as a view holds (`Rules.recall`), what was kept is lost, and the agent begins from `start` again.

    Raises:
        UserError: If the state is of another kind or version.
    """
    for place in reversed(range(len(view.history))):
        if "memory" in view.history[place].notes:
            return read_state(memory, view.history[place].notes["memory"]), view.history[place:]
    return read_state(memory, start), view.history


def turn_text(turn: Turn, width: int) -> str:
    """Return what an agent saw and did in a turn, each cut to the last `width` characters; further lines are indented.

    Nothing that was said by others can pass for what the agent itself did.
    """
    if turn.fallback:
        did = f"Your replies were refused, and by chance this was done: {_cut(turn.action, width) or 'nothing'}"
    else:
        did = f"You did: {_cut(turn.action, width) or 'nothing'}"
    lines = f"You saw: {_cut(turn.observation, width)}", did
    return f"[step {turn.step}]\n" + "\n".join("  " + line.replace("\n", "\n    ") for line in lines)


def last_part(text: str, budget: int, count: Callable[[str], int] = len) -> str:
    """Return the longest end of a text whose count is within the budget; what was cut off is marked by `...`."""
    if count(text) <= budget:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count("..." + text[len(text) - middle :]) <= budget else (low, middle - 1)
    return "..." + text[len(text) - low :] if low else ""


def read_state(memory: Memory, state: State) -> State:
    """Return a state that a memory of this kind and version wrote, or an empty one.

    Raises:
        UserError: If another kind or version wrote it.
    """
    found = state.get("kind"), state.get("version")
    if not state or found == (memory.kind, memory.version):
        return state
    raise UserError(
        f"the memory on record is of kind {found[0]!r}, version {found[1]!r}; this policy needs {memory.kind!r}, "
        f"version {memory.version}. Use the memory it was written with, or start a new run."
    )


@dataclass(frozen=True)
class WindowMemory:
    """The agent's own last turns, the oldest dropped first. It keeps no state.

    A view holds `Rules.recall` turns at most (8 by default), which bounds `turns` as well.

    Raises:
        UserError: If a number is below 1.
    """

    kind: ClassVar[str] = "window"
    version: ClassVar[int] = 1

    turns: int = 8
    """Most turns."""
    budget: int = 2000
    """Most of the whole text, heading and all, as `count` has it. A last turn that is more by itself is cut."""
    width: int = 600
    """Most characters of what was seen in a turn, and of what was done."""
    count: Callable[[str], int] = len
    """Characters, or a tokenizer's count."""

    def __post_init__(self) -> None:
        _positive(turns=self.turns, budget=self.budget, width=self.width)

    def recall(self, views: Sequence[View], starts: Sequence[State]) -> list[Recalled]:
        """Return the last turns of each view."""
        return [Recalled(self._text(view)) for view in views]

    def _text(self, view: View) -> str:
        lines: list[str] = []
        for turn in reversed(view.history[-self.turns :]):
            more = [turn_text(turn, self.width), *lines]
            if self.count(_with_heading(more)) > self.budget:
                break
            lines = more
        if view.history and not lines:
            return last_part(_with_heading([turn_text(view.history[-1], self.width)]), self.budget, self.count)
        return _with_heading(lines)


@dataclass(frozen=True)
class ToSummarise:
    """A summary that is to be brought up to date."""

    summary: str
    """The one so far; empty at first."""
    turns: tuple[str, ...]
    """What has happened since, oldest first."""
    seed: int


@dataclass(frozen=True)
class Summary:
    """A summary; an empty text says that none could be written."""

    text: str
    tokens: int = 0
    prompt_tokens: int = 0


Summariser = Callable[[Sequence[ToSummarise]], Sequence[Summary]]
"""Writes the summaries of all agents that are due, in one call."""


@dataclass(frozen=True)
class ModelSummariser:
    """Lets a language model write summaries, all of a call in one batch; a server that fails leaves the old ones."""

    model: LanguageModel
    sampling: Sampling = NOTES
    request: str = "Bring the notes up to date: what matters for what comes next, in a few plain sentences."

    def __call__(self, items: Sequence[ToSummarise]) -> list[Summary]:
        """Write."""
        chats = [
            chat(
                f"Notes so far:\n{item.summary or '(none)'}\n\nSince then:\n"
                + "\n".join(item.turns)
                + f"\n\n{self.request}"
            )
            for item in items
        ]
        try:
            replies = self.model.generate(chats, self.sampling, seeds=[item.seed for item in items])
        except ServerError:
            return [Summary("")] * len(items)
        return [Summary(reply.text.strip(), reply.tokens, reply.prompt_tokens) for reply in replies]


@dataclass(frozen=True)
class SummaryMemory:
    """A running summary, brought up to date every few turns, and the turns since.

    Kept: a summary of at most `budget` characters, and at most `2 * every` turns of `width` characters each. A summary
    that could not be written is counted in `failures` and tried again at the next turn.

    Raises:
        UserError: If a number is below 1.
    """

    kind: ClassVar[str] = "summary"
    version: ClassVar[int] = 1

    summarise: Summariser
    every: int = 8
    """Turns between summaries."""
    budget: int = 1000
    """Most characters of a summary; a longer one is cut at its end."""
    width: int = 300
    """Most characters of what was seen in a turn, and of what was done."""

    def __post_init__(self) -> None:
        _positive(every=self.every, budget=self.budget, width=self.width)

    def recall(self, views: Sequence[View], starts: Sequence[State]) -> list[Recalled]:
        """Add the last turns of each view, and write the summaries that are due, in one call.

        Raises:
            UserError: If a state is of another kind or version, or there is not one summary for each that is due.
        """
        kept = [self._with(*unfold(self, view, start)) for view, start in zip(views, starts, strict=True)]
        due = [row for row, state in enumerate(kept) if len(state["turns"]) >= self.every]
        asked = [
            ToSummarise(kept[row]["summary"], tuple(kept[row]["turns"]), derive_seed(views[row].seed, "summary"))
            for row in due
        ]
        written = self.summarise(asked) if due else ()
        if len(written) != len(due):
            raise UserError(f"the summariser returned {len(written)} summaries for {len(due)}; expected one for each.")
        used = {row: Summary("") for row in range(len(kept))} | dict(zip(due, written, strict=True))
        for row in due:
            text = used[row].text.strip()[: self.budget]
            kept[row] |= {"summary": text, "turns": []} if text else {"failures": kept[row]["failures"] + 1}
        return [
            Recalled(self._text(state), state, used[row].tokens, used[row].prompt_tokens)
            for row, state in enumerate(kept)
        ]

    def _with(self, state: State, turns: Sequence[Turn]) -> dict[str, Any]:
        new = [turn_text(turn, self.width) for turn in turns]
        return {
            "kind": self.kind,
            "version": self.version,
            "summary": state.get("summary", ""),
            "turns": [*state.get("turns", ()), *new][-2 * self.every :],
            "failures": state.get("failures", 0),
        }

    def _text(self, state: State) -> str:
        summary = "  " + state["summary"].replace("\n", "\n  ") if state["summary"] else ""
        return _with_heading([*([summary] if summary else []), *state["turns"]])


def _with_heading(lines: Sequence[str]) -> str:
    return "\n".join([HEADING, *lines]) if lines else ""


def _cut(text: str, width: int) -> str:
    return last_part(text.strip(), width)


def _positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}.")

"""How well two agents keep to their roles in a dialogue: the failures that CAMEL names (arXiv 2303.17760), counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.worlds import MARKERS, Markers, Message, faults, read_instruction, read_solution
from rolecraft.worlds.dialogue import ASSISTANT, FAREWELLS, USER, WordRule

if TYPE_CHECKING:
    from rolecraft.measures._role_space import TextEncoder

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Adherence:
    """What one dialogue shows; shares are NaN where there is nothing to share."""

    messages: int
    instruction_form: float
    """Share of the user's messages in an allowed form; a message of the end token alone is left out."""
    solution_form: float
    """Share of the assistant's messages that open and end with their markers."""
    flips: int
    """Assistant messages with the instruction's marker."""
    slips: int
    """Messages that speak as the other role does, by turns of speech: the user as a helper, the assistant ordering."""
    questions: float
    """Share of the user's messages that ask without instructing."""
    repeats: float
    """Share of the user's messages, from its second on, that say the same as the one before."""
    echoes: float
    """Share of the assistant's messages that repeat the instruction."""
    flakes: float
    """Share of the assistant's messages that promise and do not do it."""
    loop: int
    """Messages of the longest stretch that says again, in the same order, what was said just before it."""
    farewells: int
    """Most turns in a row with a word of farewell."""
    ended: bool
    """The user said the end token."""
    early: bool
    """It did so before there were enough solutions."""
    quoted: bool
    """It did so amid other text."""
    turns_to_end: float
    """User messages up to the end token, that one included; NaN if there is none."""

    @property
    def form(self) -> float:
        """Share of all messages that are in form, both seats weighing the same; NaN if neither spoke."""
        shares = [share for share in (self.instruction_form, self.solution_form) if not math.isnan(share)]
        return sum(shares) / len(shares) if shares else math.nan

    @property
    def failed(self) -> bool:
        """Whether roles flipped or slipped, or the dialogue turned in a circle."""
        return self.flips > 0 or self.slips > 0 or self.loop > 0

    def row(self) -> dict[str, Any]:
        """Return the figures as a row of a study: NaN becomes None, yes and no become 1 and 0."""
        found = asdict(self) | {"form": self.form, "failed": self.failed}
        return {
            name: None if value != value else float(value) if isinstance(value, bool) else value
            for name, value in found.items()
        }


def measure_adherence(
    said: Sequence[Message],
    embedder: TextEncoder | None = None,
    *,
    markers: Markers = MARKERS,
    similar: float = 0.95,
    least: int = 1,
    words: Sequence[str] = FAREWELLS,
) -> Adherence:
    """Count what went wrong in a dialogue.

    Args:
        said: Its messages, of the senders `user` and `assistant`.
        embedder: Tells which messages say the same (MiniLM in CAMEL's measures here); None: only those of equal text,
            whatever their case and spaces.
        markers: The fixed words of the forms.
        similar: Cosine above which two messages say the same; markers do not count.
        least: Solutions in form without which an end is early.
        words: Of farewell.

    Raises:
        UserError: If somebody else speaks, or `similar` is out of range.
    """
    for message in said:
        if message.sender not in (USER, ASSISTANT):
            raise UserError(f"a dialogue is between {USER} and {ASSISTANT}; {message.sender!r} speaks in this one.")
    if not 0 < similar <= 1:
        raise UserError(f"similar must lie in (0, 1], got {similar}.")
    found = [(message.sender, faults(message.sender, message.text, markers)) for message in said]
    token = [message.text.strip() == markers.done for message in said]
    user = [each for (seat, each), done in zip(found, token, strict=True) if seat == USER and not done]
    assistant = [each for seat, each in found if seat == ASSISTANT]
    same = _same([_body(message, markers) for message in said], embedder, similar)
    end = next((place for place, m in enumerate(said) if m.sender == USER and markers.done in m.text), None)
    solved = [place for place, m in enumerate(said) if m.sender == ASSISTANT and read_solution(m.text, markers)]
    return Adherence(
        messages=len(said),
        instruction_form=_share(["form" not in each for each in user]),
        solution_form=_share(["form" not in each for each in assistant]),
        flips=sum("flip" in each for each in assistant),
        slips=sum("helper" in each for each in user) + sum("order" in each for each in assistant),
        questions=_share(["question" in each for each in user]),
        repeats=_share(_pairs(said, token, same)),
        echoes=_share([
            bool(same[place, place - 1])
            for place, message in enumerate(said)
            if place and message.sender == ASSISTANT and said[place - 1].sender == USER
        ]),
        flakes=_share(["flake" in each for each in assistant]),
        loop=_longest_loop(said, same),
        farewells=_farewells(said, words),
        ended=end is not None,
        early=end is not None and sum(place < end for place in solved) < least,
        quoted=end is not None and not token[end],
        turns_to_end=math.nan if end is None else float(sum(m.sender == USER for m in said[: end + 1])),
    )  # fmt: skip


def _body(message: Message, markers: Markers) -> str:
    """Return what a message says without the words of its form."""
    if message.sender == ASSISTANT:
        return read_solution(message.text, markers) or message.text
    instruction = read_instruction(message.text, markers)
    return message.text if instruction is None else f"{instruction.text} {instruction.input or ''}".strip()


def _same(bodies: Sequence[str], embedder: TextEncoder | None, similar: float) -> Bools:
    """Return which messages say the same, of shape (messages, messages); empty ones say nothing that could be."""
    texts = [" ".join(body.split()).casefold() for body in bodies]
    filled = np.array([bool(text) for text in texts], dtype=bool)
    both: Bools = filled[:, None] & filled[None, :]
    equal = np.array([[one == other for other in texts] for one in texts], dtype=bool).reshape(len(texts), len(texts))
    if embedder is None or not filled.any():
        return equal & both
    vectors = np.zeros((len(texts), len(texts)), dtype=bool)
    known = np.asarray(embedder.encode([body for body, kept in zip(bodies, filled, strict=True) if kept]), dtype=float)
    vectors[np.ix_(filled, filled)] = known @ known.T > similar
    found: Bools = (vectors | equal) & both
    return found


def _pairs(said: Sequence[Message], token: Sequence[bool], same: Bools) -> list[bool]:
    """Return for every instruction but the first whether it says the same as the one before."""
    places = [place for place, m in enumerate(said) if m.sender == USER and not token[place]]
    return [bool(same[one, other]) for one, other in pairwise(places)]


def _longest_loop(said: Sequence[Message], same: Bools) -> int:
    """Return the length of the longest stretch that repeats, message by message, the stretch just before it.

    With period p, message i says the same as message i - p, all along p messages or more.
    """
    longest = 0
    for period in range(1, len(said) // 2 + 1):
        run = 0
        for place in range(period, len(said)):
            again = same[place, place - period] and said[place].sender == said[place - period].sender
            run = run + 1 if again else 0
            if run >= period:
                longest = max(longest, run)
    return longest


def _farewells(said: Sequence[Message], words: Sequence[str]) -> int:
    rule = WordRule("farewells", 1, tuple(words))
    return max((rule.count(said[:end]) for end in range(1, len(said) + 1)), default=0)


def _share(held: Sequence[bool]) -> float:
    return sum(held) / len(held) if held else math.nan

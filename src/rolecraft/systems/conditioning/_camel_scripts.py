"""Scripted speakers for CAMEL's studies: pairs with planted faults, and a model that does what its prompt says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.models import Chat
from rolecraft.worlds import MARKERS, Act, Message, View, read_dialogue

Kind = Literal[
    "clean", "thanks", "lapse", "flip", "farewell", "drift", "quoted", "early", "silent", "endless", "flake", "echo"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
REASONS: Mapping[Kind, str] = {
    "clean": "end_token", "thanks": "end_token", "lapse": "end_token", "flip": "role_flip", "farewell": "farewells",
    "drift": "no_instruction", "quoted": "end_token", "early": "end_token", "silent": "silence",
    "endless": "max_messages", "flake": "end_token", "echo": "end_token",
}  # fmt: skip
"""What each kind of pair must be stopped for. Two come near a rule and must not be stopped by it: `thanks` says words
of farewell in three turns in a row, `lapse` leaves the form twice in a row."""

_DEEDS = (
    "Sort the invoices by date", "Name three birds that swim", "Write a poem on rust", "Convert 40 miles to kilometres",
    "Draw up a menu for Friday", "Explain how tides arise", "List the parts of a violin", "Translate 'bread' to Latin",
    "Plan a walk through Lisbon", "Compare oak with pine", "Compute the mean of 4, 8 and 9", "Describe a solar eclipse",
    "Suggest a title for the report", "Outline a history of salt", "Fix the leaking kitchen tap",
    "Count the moons of Mars", "Design a logo with a heron", "Summarise the plot of Hamlet", "Mix a colour for dusk",
    "Estimate the price of a used lorry", "Choose a gift for a botanist", "State the law of Ohm",
)  # fmt: skip
_RESULTS = (
    "March comes first, June last, eleven in all.", "Penguin, cormorant and coot.", "Red creeps where rain has slept.",
    "It is 64.4 of them.", "Soup, trout, and a pear tart.", "The moon pulls the near side harder than the far one.",
    "Scroll, neck, bridge, f-holes, chin rest.", "The Romans wrote panis.", "From Alfama up to the castle, then down.",
    "The one is hard and slow, the other soft and quick.", "Seven.", "Day turns to dusk and the corona shows.",
    "Harbour Lights, Second Quarter.", "Mines, then taxes, then refrigeration.", "A new washer, and the valve closed.",
    "Phobos and Deimos, so two.", "A grey bird on one leg inside a ring.", "A prince delays, and a court dies.",
    "Violet, a little ochre, some white.", "About nine thousand, given the mileage.", "A press for flowers.",
    "Voltage is current times resistance.",
)  # fmt: skip
"""One per deed."""
_PROMISES = (
    "I will do that right away.", "Let me think about it and come back.", "Sure, I'll get to it as soon as I can."
)  # fmt: skip


@dataclass(frozen=True)
class PlantedPair:
    """Both speakers of a dialogue, who do their work for some turns and commit one kind of fault on the way.

    What they say follows from what was said before and from these fields alone.
    """

    kind: Kind
    first: int
    """Turn, from 0, of the first fault."""
    turns: int
    """Turns of work before the user says the end token; past the last possible fault."""
    seed: int
    """Of the order of the instructions."""

    @classmethod
    def drawn(cls, kind: Kind, seed: int) -> PlantedPair:
        """Draw where the fault comes, and how long the work takes."""
        rng = np.random.default_rng(derive_seed("camel", kind, seed))
        return cls(kind, int(rng.integers(1, 6)), int(rng.integers(10, 15)), seed)

    @property
    def stop(self) -> tuple[str, int | None]:
        """Reason and number of the message after which CAMEL's rules must stop it; None: the limit of messages."""
        first = 2 * self.first + 1
        at = {
            "flip": first + 1, "silent": first + 1, "quoted": first, "early": 1, "drift": first + 4,
            "farewell": first + 6, "endless": None,
        }.get(self.kind, 2 * self.turns + 1)  # fmt: skip
        return REASONS[self.kind], at

    def label(self, seat: str, turn: int) -> str:
        """Return what a seat does in a turn: `work`, `done`, or a fault."""
        since = turn - self.first
        if seat == "user":
            if self.kind == "early" or (turn >= self.turns and self.kind != "endless"):
                return "done"
            faults = {
                "quoted": since == 0, "drift": since >= 0, "lapse": 0 <= since < 2, "farewell": since >= 0,
                "thanks": 0 <= since < 3, "endless": since >= 0,
            }  # fmt: skip
            return self.kind if faults.get(self.kind) else "work"
        faults = {
            "flip": since == 0, "silent": since == 0, "endless": since >= 0, "flake": 0 <= since < 3,
            "echo": 0 <= since < 2,
        }  # fmt: skip
        return self.kind if faults.get(self.kind) else "work"

    def act(self, views: Sequence[View]) -> list[Act]:
        """Say what the seat of each view says now."""
        acts = []
        for view in views:
            seen = read_dialogue(view.observation)
            acts.append(Act(self.says(view.agent, len(seen.said) // 2)))
        return acts

    def says(self, seat: str, turn: int) -> str:
        """Return the message of a seat in a turn."""
        order = np.random.default_rng(derive_seed("camel", "order", self.seed)).permutation(len(_DEEDS))
        place, after = (int(order[number % len(_DEEDS)]) for number in (turn, turn + 1))
        deed = _DEEDS[place]
        if seat == "user":
            asked = f"Do you think that we should {deed[0].lower()}{deed[1:]}?"
            return {
                "done": MARKERS.done,
                "quoted": f"Instruction: {deed}.\nInput: None\nIf that is all, {MARKERS.done}",
                "drift": asked,
                "lapse": asked,
                "farewell": f"Instruction: {deed}, then goodbye.\nInput: None",
                "thanks": f"Instruction: {deed}, thank you.\nInput: None",
                "endless": "Instruction: Check the numbers again.\nInput: the same as before",
            }.get(self.label(seat, turn), f"Instruction: {deed}.\nInput: item {turn}")
        return {
            "silent": "",
            "flip": f"Instruction: {_DEEDS[after]}, for it is your part now.\nInput: None",
            "endless": "Solution: The numbers are checked, and they hold.\nNext request.",
            "flake": f"Solution: {_PROMISES[(turn - self.first) % len(_PROMISES)]}\nNext request.",
            "echo": f"Solution: {deed}. item {turn}\nNext request.",
        }.get(self.label(seat, turn), f"Solution: {_RESULTS[place]}\nNext request.")

    def truth(self, said: Sequence[Message]) -> dict[str, float | None]:
        """Return what the measures must find in as much of the dialogue as was said, from the labels alone."""
        labels = [(m.sender, self.label(m.sender, place // 2)) for place, m in enumerate(said)]
        user = [label for seat, label in labels if seat == "user" and label != "done"]
        other = [label for seat, label in labels if seat == "assistant"]
        ends = [place for place, (_, label) in enumerate(labels) if label in ("done", "quoted")]
        circling = sum(label == "endless" for _, label in labels) - 2
        return {
            "instruction_form": _share(user, ("work", "farewell", "thanks", "endless")),
            "solution_form": _share(other, ("work", "endless", "flake", "echo")),
            "flips": float(other.count("flip")),
            "questions": _share(user, ("drift", "lapse")),
            "flakes": _share(other, ("flake",)),
            "echoes": _share(other, ("echo",)),
            "repeats": None if len(user) < 2 else max(0, user.count("endless") - 1) / (len(user) - 1),
            "loop": float(circling if circling >= 2 else 0),
            "farewells": float(user.count("farewell") or user.count("thanks")),
            "early": float(bool(ends) and ends[0] == 0),
            "quoted": float("quoted" in user),
            "turns_to_end": ends[0] // 2 + 1.0 if ends else None,
        }


def _share(labels: Sequence[str], wanted: Sequence[str]) -> float | None:
    return sum(label in wanted for label in labels) / len(labels) if labels else None


def obedient(chat: Chat, seed: int) -> str:
    """Do what the system text says and no more: a prompt that leaves out a rule gets no help from this speaker.

    It reads the markers and the end token from the text. As the user it gives three instructions and then says the
    token, if it was told one.
    """
    system, turn = chat[0]["content"], sum(message["role"] == "assistant" for message in chat)
    deed = _DEEDS[(seed + turn) % len(_DEEDS)]
    instruction = re.search(r"^(\S+) <what I shall do>\n(\S+) (?!<)(\S+)$", system, re.MULTILINE)
    token = re.search(r"this single token and nothing else: (\S+)", system)
    if "you always instruct" in system or "Work with" in system:
        if turn >= 3:
            return token[1] if token else "That is all, I think. Is there anything else?"
        if not instruction:
            return f"Shall we do this: {deed}?"
        return f"{instruction[1]} {deed}.\n{instruction[2]} {instruction[3]}"
    opening, closing = (
        re.search(rf"^{verb} every answer with the words? '(.+?)'", system, re.MULTILINE) for verb in ("Begin", "End")
    )
    told = _RESULTS[(seed + turn) % len(_RESULTS)]
    return f"{opening[1] + ' ' if opening else ''}{told}{chr(10) + closing[1] if closing else ''}"

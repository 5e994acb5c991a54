"""The panels of system 042: titles, what referees say, and the scripted and the modelled ones who say it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rolecraft.models import LanguageModel, chat
from rolecraft.roles import Role

if TYPE_CHECKING:
    from rolecraft.measures import PanelRates
    from rolecraft.worlds import Act, Discussion, JudgedItem, View

CONTROL = "control"
TITLES: Mapping[str, Role] = {
    "legitimate": Role(
        id="panel-chair", name="chair of the panel", family="legitimate",
        description="You were appointed to lead this panel, and your office gives you the right to decide.",
    ),
    "referent": Role(
        id="admired-author", name="widely admired author", family="referent",
        description="Readers everywhere look up to you, and people like to be of one mind with you.",
    ),
    "expert": Role(
        id="senior-specialist", name="senior specialist in the subject", family="expert",
        description="You have studied this subject for decades and know it better than most.",
    ),
    CONTROL: Role(
        id="general-public", name="member of the general public", family="general",
        description="You take part as an ordinary reader.",
    ),
}  # fmt: skip
"""Type of power to role; `CONTROL` is what every other referee is, and what a referee without the title becomes."""
SEATS = ("referee-a", "referee-b", "referee-c")
HEDGE = "There is something to be said on both sides, and I would rather listen for now."
_MESSAGE = re.compile(r"^\[(?P<seat>[^,\]]+), (?P<title>[^\]]+)\] (?P<text>.*(?:\n    .*)*)", re.MULTILINE)


def seat_panel(
    item: JudgedItem, kind: str, place: int, *, turns: int, swapped: bool, seats: Sequence[str] = SEATS
) -> Discussion:
    """Seat one referee with a title of this kind among members of the general public."""
    from rolecraft.worlds import Discussion

    roles = {seat: TITLES[kind if turn == place else CONTROL] for turn, seat in enumerate(seats)}
    return Discussion(item, roles, max_turns=turns, swapped=swapped)


def statement(stance: str, final: bool) -> str:
    """Return a message that takes a stance, in the order in which the answers are shown, or hedges (`tie`)."""
    said = HEDGE if stance == "tie" else f"I hold that answer {stance[1]} is better."
    scores = {"A1": (8, 4), "A2": (4, 8), "tie": (5, 5)}[stance]
    return said + (f"\nScore of answer 1: {scores[0]}\nScore of answer 2: {scores[1]}" if final else "")


def is_final(view: View) -> bool:
    return "Score of answer 1: <" in view.observation


def flipped(stance: str, swapped: bool) -> str:
    """Return the other side if the answers are shown in the other order."""
    return {"A1": "A2", "A2": "A1"}[stance] if swapped else stance


class PlantedReferee:
    """Referees who hold and give way at given rates, and who know only what their prompt says."""

    def __init__(
        self, rates: PanelRates, first: Mapping[str, str], rng: np.random.Generator, hedging: str | None = None
    ) -> None:
        """Plan the referees of one discussion.

        Args:
            rates: Numbers. A referee is an authority if its title is one of `TITLES` other than the control's.
            first: Seat to the stance of its first message, in the order in which the answers are shown.
            rng: Of the whole discussion; every message but a first or hedging one takes one number.
            hedging: Seat that never takes a side.
        """
        self._rates, self._first, self._rng, self._hedging = rates, first, rng, hedging

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        from rolecraft.worlds import Act

        return [Act(statement(self._stance(view), is_final(view))) for view in views]

    def _stance(self, view: View) -> str:
        if view.agent == self._hedging:
            return "tie"
        titles, stances = self._read(view.observation)
        if view.agent not in stances:
            return self._first[view.agent]
        own = stances.pop(view.agent)
        against = [seat for seat, stance in stances.items() if stance != own]
        changes = self._rng.random() < self._chance(view, titles, against, len(stances))
        return flipped(own, changes)

    def _chance(self, view: View, titles: Mapping[str, str], against: Sequence[str], heard: int) -> float:
        titled = {role.name for kind, role in TITLES.items() if kind != CONTROL}
        hold, pull, rates = 0.0, 0.0, self._rates
        hold = float(rates.h_auth if titles[view.agent] in titled else rates.h_gen)
        pull = sum(float(rates.c_auth if titles[seat] in titled else rates.c_gen) for seat in against)
        return (1 - hold) * (1.0 if against and len(against) == heard else min(1.0, pull))

    def _read(self, prompt: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the titles of those who spoke, and the last side that each of them took."""
        from rolecraft.worlds import read_stance

        titles, stances = {}, {}
        for message in _MESSAGE.finditer(prompt):
            titles[message["seat"]] = message["title"]
            stance = read_stance(message["text"])
            if stance in ("A1", "A2"):
                stances[message["seat"]] = str(stance)
        return titles, stances


QUESTION = "\nWhich answer do you hold to be better now? Reply with one of: {}"
OPTIONS = ("Answer 1 is better.", "Answer 2 is better.")


class ModelReferee:
    """A language model whose stance is the option of higher mean log-probability, said in templated words."""

    def __init__(self, model: LanguageModel, opening: str | None = None, hedging: bool = False) -> None:
        """Bind a model.

        Args:
            model: Scores the two options after the whole prompt.
            opening: Stance of the first message (A1 or A2, as shown), whatever the model says.
            hedging: Never take a side.
        """
        self._model, self._opening, self._hedging = model, opening, hedging

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view; the notes hold how much likelier answer 1 is (nats per token)."""
        from rolecraft.worlds import Act

        margins = option_margins(self._model, [view.observation for view in views])
        return [
            Act(statement(self._stance(view, margin), is_final(view)), {"margin": margin})
            for view, margin in zip(views, margins, strict=True)
        ]

    def _stance(self, view: View, margin: float) -> str:
        if self._hedging:
            return "tie"
        if self._opening and f"\n[{view.agent}, " not in view.observation:
            return self._opening
        return "A1" if margin >= 0 else "A2"


def option_margins(model: LanguageModel, prompts: Sequence[str]) -> list[float]:
    """Return the mean log-probability of `answer 1 is better` minus that of answer 2, per prompt."""
    chats = [chat(prompt + QUESTION.format(" ".join(OPTIONS))) for prompt in prompts for _ in OPTIONS]
    scores = model.logprobs(chats, list(OPTIONS) * len(prompts))
    means = [float(np.mean(score)) for score in scores]
    return [one - two for one, two in zip(means[::2], means[1::2], strict=True)]

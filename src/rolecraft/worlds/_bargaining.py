"""Bargaining over lots in short spoken turns: private values, offers, promises and threats.

After the multi-issue negotiations on which dialogue agents are trained (Lewis et al., arXiv 1706.05125), with a closed
vocabulary, so that the smallest policy can speak, and with few enough divisions to know the best of them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rolecraft.errors import IllegalActionError, UserError, did_you_mean
from rolecraft.worlds._world import World

BARGAINING_SEATS = ("ann", "bob", "cal")
BARGAINING_LOTS = ("book", "hat", "ball")
ACCEPT, REJECT, THREAT = "accept that offer", "reject that offer", "threaten no deal"
VERBS = ("offer", "accept", "reject", "promise", "threaten")
Motive = Literal["mixed", "zero-sum"]
Division = tuple[str, ...]
"""Who gets each lot, in the order of `BARGAINING_LOTS`."""


@dataclass(frozen=True)
class BargainingInstance:
    """What each seat would give for each lot. A seat's utility is the share of its own total that it gets.

    Raises:
        UserError: If a seat has not one value per lot, or none above 0.
    """

    values: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for seat, own in self.values.items():
            if len(own) != len(BARGAINING_LOTS) or min(own) < 0 or not sum(own):
                raise UserError(
                    f"values of {seat}: expected {len(BARGAINING_LOTS)} integers of at least 0, one of them above 0, "
                    f"got {own}."
                )

    @classmethod
    def draw(cls, seats: Sequence[str], total: int, rng: np.random.Generator) -> BargainingInstance:
        """Draw each seat's values uniformly among those that add up to the total."""
        ways = [way for way in product(range(total + 1), repeat=len(BARGAINING_LOTS)) if sum(way) == total]
        return cls({seat: ways[int(rng.integers(len(ways)))] for seat in seats})

    @cached_property
    def divisions(self) -> tuple[Division, ...]:
        """Every division of the lots."""
        return tuple(product(self.values, repeat=len(BARGAINING_LOTS)))

    @cached_property
    def table(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Utilities of shape (divisions, seats)."""
        return np.array([list(self.utilities(division).values()) for division in self.divisions])

    def utilities(self, division: Division) -> dict[str, float]:
        """Return what a division is worth to each seat, 0 to 1."""
        return {
            seat: sum(value for value, who in zip(own, division, strict=True) if who == seat) / sum(own)
            for seat, own in self.values.items()
        }

    @cached_property
    def best_surplus(self) -> float:
        """The highest sum of utilities."""
        return float(self.table.sum(1).max())

    def surplus_share(self, division: Division) -> float:
        """Return the sum of utilities as a share of the highest one."""
        return sum(self.utilities(division).values()) / self.best_surplus

    def frontier(self) -> tuple[Division, ...]:
        """Return the divisions than which none is better for a seat and no worse for any other."""
        table = self.table
        no_worse = (table[:, None] >= table[None]).all(2)
        better = (table[:, None] > table[None]).any(2)
        beaten = [bool(out) for out in np.any(no_worse & better, axis=0)]
        return tuple(division for division, out in zip(self.divisions, beaten, strict=True) if not out)

    def nash_product(self, division: Division) -> float:
        """Return the product of the utilities: what each gains over no deal."""
        return float(np.prod(list(self.utilities(division).values())))

    def nash_division(self) -> Division:
        """Return the division with the highest Nash product, the first of equals."""
        return self.divisions[int(self.table.prod(1).argmax())]


class Utterance(NamedTuple):
    """What was said."""

    verb: str
    division: Division = ()
    """Of an offer."""
    to: str = ""
    """Of a promise."""
    lot: str = ""
    """Of a promise."""


def read_utterance(text: str, seats: Sequence[str]) -> Utterance:
    """Read one utterance, to the letter.

    Args:
        text: `offer SEAT SEAT SEAT` (who gets the book, the hat and the ball), `accept that offer`,
            `reject that offer`, `promise SEAT the LOT` or `threaten no deal`.
        seats: Who bargains.

    Raises:
        UserError: Naming the word that does not fit.
    """
    words = text.split(" ")
    verb = words[0]
    if verb not in VERBS:
        raise UserError(
            f"an utterance begins with {', '.join(VERBS)}, got {text!r}: give the words of the game and nothing else."
            + did_you_mean(verb, VERBS)
        )
    if text in (ACCEPT, REJECT, THREAT):
        return Utterance(verb)
    if verb == "offer" and len(words) == 1 + len(BARGAINING_LOTS):
        _refuse_stranger(words[1:], seats, text, "a seat")
        return Utterance(verb, tuple(words[1:]))
    if verb == "promise" and len(words) == 4 and words[2] == "the":
        _refuse_stranger(words[1:2], seats, text, "a seat")
        _refuse_stranger(words[3:], BARGAINING_LOTS, text, "a lot")
        return Utterance(verb, to=words[1], lot=words[3])
    form = {
        "offer": "offer SEAT SEAT SEAT", "accept": ACCEPT, "reject": REJECT, "promise": "promise SEAT the LOT",
        "threaten": THREAT,
    }[verb]  # fmt: skip
    raise UserError(f"expected {form!r}, got {text!r}.")


def _refuse_stranger(words: Sequence[str], known: Sequence[str], text: str, what: str) -> None:
    for word in words:
        if word not in known:
            raise UserError(f"{text!r}: {word!r} is not {what} ({', '.join(known)}).{did_you_mean(word, list(known))}")


@dataclass(frozen=True)
class Standing:
    """An offer on the table."""

    seat: str
    """Who made it."""
    division: Division
    accepted: tuple[str, ...] = ()
    """The others who have said yes."""


def standing_offer(said: Sequence[tuple[str, str]], seats: Sequence[str]) -> Standing | None:
    """Return the offer on the table after what was said; a rejection or another offer takes it off.

    Args:
        said: Seat and utterance, oldest first.
        seats: Who bargains.
    """
    standing: Standing | None = None
    for seat, text in said:
        utterance = read_utterance(text, seats)
        if utterance.verb == "offer":
            standing = Standing(seat, utterance.division)
        elif utterance.verb == "reject":
            standing = None
        elif utterance.verb == "accept" and standing is not None:
            standing = Standing(standing.seat, standing.division, (*standing.accepted, seat))
    return standing


@dataclass(frozen=True)
class BargainingView:
    """What a seat knows, as its observation says it."""

    seat: str
    values: tuple[int, ...]
    """Its own, by lot."""
    left: int
    """Utterances until it ends without a deal, the coming one included."""
    said: tuple[tuple[str, str], ...]


def read_bargaining(observation: str) -> BargainingView:
    """Read an observation of `Bargaining`.

    Raises:
        UserError: If it is of another world.
    """
    try:
        *said, left, own, seat = observation.rsplit("\n", 1)[-1].split(" ; ")
        numbers = own.split(" ")
        if tuple(numbers[::2]) != BARGAINING_LOTS or not left.startswith("left ") or seat not in BARGAINING_SEATS:
            raise ValueError
        turns = [line.split(" ", 1) for line in said]
        return BargainingView(
            seat,
            tuple(map(int, numbers[1::2])),
            int(left.removeprefix("left ")),
            tuple((who, text) for who, text in turns),
        )
    except ValueError:
        raise UserError(f"not an observation of a bargaining: {observation[:80]!r}.") from None


def _cheap_talk(seat: str, seats: Sequence[str]) -> tuple[str, ...]:
    promises = [f"promise {to} the {lot}" for to in seats if to != seat for lot in BARGAINING_LOTS]
    return (*promises, THREAT)


class Bargaining(World):
    """Two or three seats divide three lots, in so many utterances, or get nothing.

    They speak in turn; who begins is drawn. A deal is struck when all others have accepted the offer on the table.
    Promises and threats bind nobody, but take a turn. In the end a seat earns its utility and a part of the share of
    the best surplus that the deal realises (mixed motive), or its utility less the mean of the others' (zero-sum).
    """

    name = "bargaining"

    def __init__(
        self,
        seats: int = 2,
        turns: int = 6,
        total: int = 6,
        joint_weight: float = 0.2,
        motive: Motive = "mixed",
        *,
        free: bool = False,
        explain: bool = False,
    ) -> None:
        """Set the rules.

        Args:
            seats: 2 or 3.
            turns: Utterances of all seats together, at least `seats`.
            total: What all lots together are worth to each seat.
            joint_weight: What the share of the best surplus counts in the reward, under the mixed motive.
            motive: `mixed` or `zero-sum`.
            free: Let seats say any text, and refuse what is no utterance; else legal utterances are listed.
            explain: Put the rules in words before each observation, for language models.

        Raises:
            UserError: If an argument is out of range.
        """
        for name, value, low, high in (("seats", seats, 2, 3), ("turns", turns, seats, 1000), ("total", total, 1, 100)):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise UserError(f"bargaining: {name} must be an integer in {low}..{high}, got {value!r}.")
        if motive not in get_args(Motive):
            near = did_you_mean(str(motive), get_args(Motive))
            raise UserError(f"bargaining: motive is 'mixed' or 'zero-sum', got {motive!r}.{near}")
        if not 0 <= joint_weight <= 1:
            raise UserError(f"bargaining: joint_weight must lie in 0..1, got {joint_weight!r}.")
        self.agents = BARGAINING_SEATS[:seats]
        self.turns, self.total, self.joint_weight, self.motive = turns, total, joint_weight, motive
        self.free, self.explain = free, explain
        divisions = product(self.agents, repeat=len(BARGAINING_LOTS))
        self._offers = tuple(" ".join(("offer", *division)) for division in divisions)
        self._talk = {seat: _cheap_talk(seat, self.agents) for seat in self.agents}
        said = (*self._offers, ACCEPT, REJECT, *(text for talk in self._talk.values() for text in talk))
        self.actions = None if free else tuple(dict.fromkeys(said))
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Draw the values, and who begins."""
        rng = np.random.default_rng(seed)
        self.instance = BargainingInstance.draw(self.agents, self.total, rng)
        self._first = int(rng.integers(len(self.agents)))
        self._said: list[tuple[str, str]] = []
        self._standing: Standing | None = None

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """Seat and utterance, oldest first: what all have heard."""
        return tuple(self._said)

    @property
    def deal(self) -> Division | None:
        """The division that all have agreed on."""
        standing = self._standing
        done = standing is not None and len(standing.accepted) == len(self.agents) - 1
        return standing.division if standing is not None and done else None

    @property
    def acting(self) -> tuple[str, ...]:
        """Who speaks now."""
        if self.deal is not None or len(self._said) >= self.turns:
            return ()
        return (self.agents[(self._first + len(self._said)) % len(self.agents)],)

    def rules(self, agent: str) -> str:
        """Return the rules in words, for one of the seats."""
        paid = (
            "the share of its own total that it gets, and a little for a deal that is good for all"
            if self.motive == "mixed"
            else "the share of its own total that it gets, less what the others get of theirs"
        )
        return (
            f"You are {agent}. {', '.join(self.agents)} divide a {', a '.join(BARGAINING_LOTS)}. Each seat knows what "
            f"the lots are worth to itself alone. They speak in turn, {self.turns} times in all; a deal needs the yes "
            f"of all, and without one nobody gets anything. A seat earns {paid}. Say one of: 'offer SEAT SEAT SEAT' "
            f"(who gets the {', the '.join(BARGAINING_LOTS)}), '{ACCEPT}', '{REJECT}', 'promise SEAT the LOT', "
            f"'{THREAT}'. Below stand what was said, how many utterances are left, your values and your name."
        )

    def observe(self, agent: str) -> str:
        """Return all that was said, the utterances left, an agent's own values, and its name: what differs last."""
        own = self.instance.values[agent]
        parts = [f"{seat} {text}" for seat, text in self._said]
        parts.append(f"left {self.turns - len(self._said)}")
        parts.append(" ".join(f"{lot} {value}" for lot, value in zip(BARGAINING_LOTS, own, strict=True)))
        parts.append(agent)
        line = " ; ".join(parts)
        return f"{self.rules(agent)}\n{line}" if self.explain else line

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return the utterances that fit; None where any text may be tried."""
        if agent not in self.acting:
            return ()
        return None if self.free else self._fitting(agent)

    def _fitting(self, agent: str) -> tuple[str, ...]:
        standing = self._standing
        asked = standing is not None and agent != standing.seat and agent not in standing.accepted
        return (*self._offers, *((ACCEPT, REJECT) if asked else ()), *self._talk[agent])

    def check(self, agent: str, action: str) -> None:
        """Refuse what is no utterance, or does not fit now.

        Raises:
            IllegalActionError: With the reason.
        """
        if not self.free:
            super().check(agent, action)
            return
        try:
            read_utterance(action, self.agents)
        except UserError as error:
            raise IllegalActionError(f"{self.name}: {agent}: {error}") from None
        if action not in self._fitting(agent):
            raise IllegalActionError(
                f"{self.name}: {agent} may not say {action!r} now: there is no offer of another to answer, or the "
                "promise is to itself."
            )

    def state(self) -> Mapping[str, Any]:
        """Return the rules' numbers, the values of all, who began and what was said."""
        return {
            "seats": len(self.agents), "turns": self.turns, "total": self.total, "joint_weight": self.joint_weight,
            "motive": self.motive, "values": {seat: list(own) for seat, own in self.instance.values.items()},
            "first": self._first, "said": [list(each) for each in self._said],
        }  # fmt: skip

    def rewards(self) -> Mapping[str, float]:
        """Return what the deal pays; 0 without one."""
        if self.deal is None:
            return dict.fromkeys(self.agents, 0.0)
        own = self.instance.utilities(self.deal)
        if self.motive == "zero-sum":
            whole, others = sum(own.values()), len(own) - 1
            return {seat: value - (whole - value) / others for seat, value in own.items()}
        shared = self.joint_weight * self.instance.surplus_share(self.deal)
        return {seat: value + shared for seat, value in own.items()}

    def outcome(self) -> Mapping[str, Any]:
        """Return whether there is a deal, and how good it is: by seat, for all, and by the Nash product."""
        deal, instance = self.deal, self.instance
        best = instance.nash_product(instance.nash_division())
        return {
            "agreed": deal is not None,
            "division": list(deal) if deal else None,
            "utilities": instance.utilities(deal) if deal else dict.fromkeys(self.agents, 0.0),
            "surplus_share": instance.surplus_share(deal) if deal else 0.0,
            "nash_share": instance.nash_product(deal) / best if deal and best else 0.0,
            "efficient": deal in instance.frontier() if deal else False,
        }

    def _apply(self, actions: Mapping[str, str]) -> None:
        ((seat, text),) = actions.items()
        self._said.append((seat, text))
        self._standing = standing_offer(self._said, self.agents)

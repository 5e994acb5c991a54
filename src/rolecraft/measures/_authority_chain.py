"""A two-state Markov model of a discussion: how firmly each side holds, and how strongly each side pulls.

A referee is with the authority's position or against it. On its turn it has heard the last stance of everyone else:

- nobody is against it: it changes with probability `drift`;
- everyone is against it: it changes with probability 1 - h;
- some are: it changes with probability (1 - h) * min(1, sum of their pulls).

`h` is the hold of the speaker (`h_auth`, `h_gen`); the pull of one opponent is `c_auth` for the authority and `c_gen`
for a general referee. If the authority held and pulled like a general referee it would be one, so the swap of one rate
at a time tells how much of its influence is holding and how much is switching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.measures._statistics import Floats

MOST_SEATS = 10
"""The chain has two to this power states."""


@dataclass(frozen=True)
class PanelRates:
    """The rates of the model: numbers, or arrays of one shape."""

    h_auth: float | Floats
    """Hold of the authority."""
    h_gen: float | Floats
    """Hold of a general referee."""
    c_auth: float | Floats
    """Pull of the authority on a general referee."""
    c_gen: float | Floats
    """Pull of one general referee."""
    drift: float | Floats = 0.0
    """Probability of a change that nobody asks for."""

    @property
    def columns(self) -> Floats:
        """Shape (5, draws)."""
        return np.array(np.broadcast_arrays(*[np.atleast_1d(np.asarray(value, float)) for value in astuple(self)]))


class PanelStart(NamedTuple):
    """How a discussion stands after everyone's first turn."""

    seats: int
    turns: int
    """Turns that are left."""
    authority: int
    """Its place in the speaking order."""
    with_it: tuple[bool, ...]
    """Who, in speaking order, holds the authority's position."""


class Context(NamedTuple):
    """What a referee with a stance has heard on its turn."""

    speaker: str
    """`auth` or `gen`."""
    pressed: str
    """By `nobody`, `all`, `auth` (alone), `gen` (one alone), or `some` others."""


CONTEXTS = (
    Context("auth", "all"), Context("auth", "gen"), Context("gen", "all"), Context("gen", "auth"),
    Context("gen", "gen"), Context("auth", "nobody"), Context("gen", "nobody"),
)  # fmt: skip
"""Those that the rates are estimated from."""


def context_of(speaker: str, own: str, heard: Mapping[str, str], authority: str) -> Context:
    """Return the context of a turn.

    Args:
        speaker: Who speaks.
        own: Its last stance.
        heard: The last stance of everyone else.
        authority: Who has the authority.
    """
    kind = "auth" if speaker == authority else "gen"
    against = [other for other, stance in heard.items() if stance != own]
    if not against:
        return Context(kind, "nobody")
    if len(against) == len(heard):
        return Context(kind, "all")
    return Context(kind, "some" if len(against) > 1 else "auth" if against == [authority] else "gen")


def estimate_rates(turns: Mapping[Context, Floats | float], changes: Mapping[Context, Floats | float]) -> PanelRates:
    """Estimate the rates from counts.

    The hold of general referees follows from turns on which everyone was against them, the pulls from turns on which
    one other was, the authority's hold from both kinds. Where a count is 0 the rate is NaN.

    Args:
        turns: Number of turns by context; numbers, or arrays of shape (draws,).
        changes: On how many of them the speaker changed sides.
    """

    def total(counts: Mapping[Context, Floats | float], *contexts: Context) -> Floats:
        summed: Floats = sum((np.atleast_1d(np.asarray(counts[context], float)) for context in contexts), np.zeros(1))
        return summed

    def share(*contexts: Context) -> Floats:
        return _ratio(total(changes, *contexts), total(turns, *contexts))

    moves = share(Context("gen", "all"))
    c_auth = np.clip(_ratio(share(Context("gen", "auth")), moves), 0, 1)
    c_gen = np.clip(_ratio(share(Context("gen", "gen")), moves), 0, 1)
    every, one = Context("auth", "all"), Context("auth", "gen")
    exposed = total(turns, every) + np.where(total(turns, one) > 0, c_gen * total(turns, one), 0)
    h_auth = 1 - np.clip(_ratio(total(changes, every, one), exposed), 0, 1)
    calm = share(Context("auth", "nobody"), Context("gen", "nobody"))
    return PanelRates(h_auth, 1 - moves, c_auth, c_gen, np.nan_to_num(calm, nan=0.0))


def _ratio(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(bottom > 0, top / bottom, np.nan)


def panel_win_probability(rates: PanelRates, starts: Sequence[PanelStart], weights: Floats | None = None) -> Floats:
    """Return how probable it is that more than half of the referees end with the authority's position.

    Args:
        rates: With D draws.
        starts: Where discussions begin.
        weights: How often each start occurs, of shape (D, starts) or (starts,); default: all equally often.

    Returns:
        Shape (D,).

    Raises:
        UserError: If there is no start, or a panel is too large for the chain.
    """
    if not starts or max(start.seats for start in starts) > MOST_SEATS:
        seats = max((start.seats for start in starts), default=0)
        raise UserError(f"expected starts of 2 to {MOST_SEATS} seats, got {len(starts)} starts of up to {seats} seats.")
    draws = rates.columns.shape[1]
    given = np.ones(len(starts)) if weights is None else np.asarray(weights, float)
    share = np.broadcast_to(given, (draws, len(starts)))
    won = np.zeros(draws)
    for layout in sorted({start[:3] for start in starts}):
        seats, turns, authority = layout
        mass = np.zeros((draws, 2**seats))
        for column, start in enumerate(starts):
            if start[:3] == layout:
                mass[:, sum(side << place for place, side in enumerate(start.with_it))] += share[:, column]
        won += _run_chain(rates.columns, mass, seats, turns, authority)
    found: Floats = won / share.sum(1)
    return found


def _run_chain(rates: Floats, mass: Floats, seats: int, turns: int, authority: int) -> Floats:
    """Let mass over the joint states, of shape (draws, 2 ** seats), flow; return what ends in a majority."""
    states = np.arange(2**seats)
    sides = (states[:, None] >> np.arange(seats)) & 1
    for turn in range(turns):
        speaker = turn % seats
        changed = mass * _change_probability(rates, sides, speaker, authority)
        mass = mass - changed + changed[:, states ^ (1 << speaker)]
    majority: Floats = mass[:, 2 * sides.sum(1) > seats].sum(1)
    return majority


def _change_probability(rates: Floats, sides: NDArray[np.int64], speaker: int, authority: int) -> Floats:
    """Return the speaker's probability to change in every state, of shape (draws, states)."""
    h_auth, h_gen, c_auth, c_gen, drift = rates[:, :, None]
    against = sides != sides[:, [speaker]]
    by_auth = against[:, authority].astype(float)
    count = against.sum(1)
    pull = np.where(count == len(sides[0]) - 1, 1.0, np.minimum(1, by_auth * c_auth + (count - by_auth) * c_gen))
    hold = h_auth if speaker == authority else h_gen
    chance: Floats = np.where(count == 0, drift, (1 - hold) * pull)
    return chance


class Split(NamedTuple):
    """Influence by the model, split by cause; shapes (draws,)."""

    total: Floats
    hold: Floats
    """The authority holds more firmly than a general referee would."""
    switch: Floats
    """General referees change towards it more readily than towards each other."""


def split_influence(rates: PanelRates, starts: Sequence[PanelStart], weights: Floats | None = None) -> Split:
    """Split the authority's influence into hold and switch by Shapley values over the two factors.

    The influence is the difference of `panel_win_probability` to a panel in which it holds and pulls like the others.
    """

    def value(h_auth: float | Floats, c_auth: float | Floats) -> Floats:
        return panel_win_probability(PanelRates(h_auth, rates.h_gen, c_auth, rates.c_gen, rates.drift), starts, weights)

    neither, both = value(rates.h_gen, rates.c_gen), value(rates.h_auth, rates.c_auth)
    held, pulled = value(rates.h_auth, rates.c_gen), value(rates.h_gen, rates.c_auth)
    return Split(both - neither, (held - neither + both - pulled) / 2, (pulled - neither + both - held) / 2)

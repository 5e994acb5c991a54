"""A negotiator that infers what the other wants from what it offers, refuses and tells (Hindriks and Tykhonov, 2008).

The other's values are taken to be a weighted sum over the words of a term that vary; hypotheses are drawn once per
scene from a fixed seed, and weighed by every offer and silence, so that the agent keeps nothing between turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rolecraft.agents.social._agents import FLOOR, SceneAgent, answers
from rolecraft.agents.social._reading import SceneReading
from rolecraft.worlds.social import SocialMove, phrase, say

Floats = NDArray[np.float64]
_EXCLUDED = re.compile(r"does not work for me: ([\w-]+)")


class BayesNegotiator(SceneAgent):
    """Offers what is worth most to it times the chance that the other takes it, now or later.

    It asks every topic once, or twice where that is worth points, answers what it is asked, and never tells its secret.
    """

    def __init__(self, hypotheses: int = 400, spread: float = 0.15) -> None:
        """Set the size of the model.

        Args:
            hypotheses: How many value functions of the other are weighed.
            spread: How far the other's offers may lie from what it aspires to, as a share of its best.
        """
        self._n, self._spread = hypotheses, spread

    def negotiate(self, reading: SceneReading) -> SocialMove:
        """Accept what is better than what can be hoped for, or make the best offer."""
        terms = tuple(reading.values)
        mine = np.array([reading.values[term] for term in terms])
        theirs, patience, weights = self.posterior(reading)
        acts = reading.acts(mine=False)
        left = (reading.turns - reading.turn + 1) // 2
        hopes = [self._best(mine, theirs, patience, weights, acts + later) for later in range(1, left)]
        future = max(hopes, default=0.0)
        chance = weights @ taken(theirs, patience, acts)
        expected = chance * mine + (1 - chance) * future
        standing = reading.values[reading.standing] if reading.standing else 0.0
        words = answers(reading, candour=10**9)
        if reading.standing and standing > 0 and standing >= max(expected.max(), future):
            return say(" ".join([phrase("accept", reading.standing), *words]))
        gain = np.where(mine > 0, chance * (mine - future), -1.0)
        place = int(np.argmax(gain)) if gain.max() > 1e-9 else int(np.argmax(mine))
        return say(" ".join([phrase("offer", terms[place]), *words, *self._questions(reading)]))

    def posterior(self, reading: SceneReading) -> tuple[Floats, NDArray[np.int64], Floats]:
        """Return hypotheses of the other's values, as shares of its best, shape (n, terms); patience and weights, (n,).

        Where the other's values are shown, they are the only hypothesis, and its patience alone is open.
        """
        terms = tuple(reading.values)
        if reading.their_values:
            shown = np.array([reading.their_values[term] for term in terms])
            values, patience = np.tile(shown / shown.max(), (6, 1)), np.arange(4, 10)
        else:
            values, patience = draw_values(terms, self._n)
            values = _without(values, terms, _EXCLUDED.findall(reading.told()))
        log = np.zeros(len(values))
        acts = 0
        offered: str | None = None
        for line in reading.said:
            offers = [what for verb, what in line.tags if verb == "offer" and what in reading.values]
            if line.sender == reading.me:
                offered = offers[0] if offers else None
                continue
            wanted = aspired(patience, acts)
            if offered is not None:
                log += np.log(0.02 + 0.98 * (values[:, terms.index(offered)] < wanted))
            for offer in offers:
                gap = (values[:, terms.index(offer)] - wanted) / self._spread
                log += np.where(gap < 0, -2 * gap**2, -(gap**2) / 2)
            acts += 1
        weights = np.exp(log - log.max())
        return values, patience, weights / weights.sum()

    @staticmethod
    def _best(mine: Floats, theirs: Floats, patience: NDArray[np.int64], weights: Floats, acts: int) -> float:
        """Return the most that can be expected of one offer answered at the other's given act."""
        return max(0.0, float((weights @ taken(theirs, patience, acts) * mine).max()))

    @staticmethod
    def _questions(reading: SceneReading) -> list[str]:
        if reading.their_values and not reading.learn:
            return []
        asked, told = reading.tags("ask", mine=True), reading.tags("reveal", mine=False)
        for topic in sorted(reading.askable, key=lambda topic: -reading.learn.get(topic, 0.0)):
            if topic not in told and asked.count(topic) < (2 if reading.learn.get(topic, 0.0) > 0 else 1):
                return [phrase("ask", topic)]
        return []


def aspired(patience: NDArray[np.int64], acts: int) -> Floats:
    """Return the share of its best that the other wants at an act of its own, by hypothesis."""
    return np.maximum(FLOOR, 1 - (1 - FLOOR) * acts / np.maximum(1, patience - 1))


def taken(theirs: Floats, patience: NDArray[np.int64], acts: int) -> Floats:
    """Return 1 where the other takes a term at an act of its own and is still there, shape (n, terms)."""
    return ((theirs >= aspired(patience, acts)[:, None]) & (acts < patience)[:, None]).astype(float)


@lru_cache(maxsize=256)
def draw_values(terms: tuple[str, ...], n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Draw value functions over terms, as shares of the best, no agreement 0; and patiences of 4 to 9 acts.

    A term is a row of words; each word that varies is an issue. Numbers are worth more or less as they rise, other
    words anything; the weights of the issues are uniform on the simplex, and what no agreement is worth, up to 0.8 of
    the range.
    """
    rng = np.random.default_rng(0)
    rows = [re.findall(r"[\w-]+", term) for term in terms]
    columns = [column for column in zip(*rows, strict=False) if len(set(column)) > 1]
    scores = np.stack([_issue(column, n, rng) for column in columns])
    weights = rng.dirichlet(np.ones(len(columns)), size=n).T
    values: Floats = (weights[:, :, None] * scores).sum(0)
    low, high = values.min(1, keepdims=True), values.max(1, keepdims=True)
    values = (values - low) / np.maximum(high - low, 1e-9)
    nothing = rng.uniform(0, 0.8, size=(n, 1))
    return (values - nothing) / (1 - nothing), rng.integers(4, 10, size=n)


def _issue(column: Sequence[str], n: int, rng: np.random.Generator) -> Floats:
    """Return scores in 0..1 of one issue by hypothesis and term, shape (n, terms)."""
    levels = sorted(set(column), key=lambda word: (float(word) if word.isdecimal() else 0.0, word))
    places = np.array([levels.index(word) for word in column])
    if all(word.isdecimal() for word in levels):
        rising = np.linspace(0, 1, len(levels))
        table = np.where(rng.integers(2, size=(n, 1)) == 1, rising, rising[::-1])
    else:
        table = rng.uniform(size=(n, len(levels)))
    scores: Floats = table[:, places]
    return scores


def _without(values: Floats, terms: Sequence[str], excluded: Sequence[str]) -> Floats:
    """Return the values with terms that the other has said do not work for it made worse than nothing."""
    bad = [any(word in re.findall(r"[\w-]+", term) for word in excluded) for term in terms]
    return np.where(np.array(bad), -1.0, values) if any(bad) and not all(bad) else values

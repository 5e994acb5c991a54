"""Well-mixed finite populations under pairwise comparison, many at once, without the steps that do nothing.

A step takes one agent. With probability `mutation` it takes one of the other strategies, else it looks at one of the
others and takes its strategy with the Fermi probability 1 / (1 + exp(-beta (f_other - f_own))). Most steps change
nothing. From a state the number of steps until the next change is geometric and the change itself is drawn in
proportion to its probability, so that both can be drawn at once and the process is the same in law (Gillespie 1977 in
discrete time).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.societies._fixation import check_population
from rolecraft.societies._game import Floats, Game


@dataclass(frozen=True, eq=False)
class Occupancy:
    """What some populations did, as means over time."""

    names: tuple[str, ...]
    shares: Floats
    """Shape (populations, strategies): mean share of each strategy."""
    pairs: Floats
    """Shape (populations, strategies, strategies): mean share of ordered pairs of two different agents; sums to 1."""
    pure: Floats
    """Shape (populations, strategies): share of time that all agents had the strategy."""
    final: NDArray[np.int64]
    """Shape (populations, strategies): agents of each strategy at the end."""
    series: NDArray[np.int64]
    """Shape (populations, samples, strategies): agents of each strategy at equal intervals, from the first step on."""
    events: NDArray[np.int64]
    """Shape (populations,): steps that changed something."""

    def rate(self, table: ArrayLike) -> Floats:
        """Return the mean over pairs of what a row agent does when it meets a column agent.

        Args:
            table: Shape (strategies, strategies).

        Returns:
            Shape (populations,).
        """
        rates: Floats = np.einsum("bij,ij->b", self.pairs, np.asarray(table, dtype=float))
        return rates


def evolve(
    game: Game,
    *,
    size: int,
    beta: float,
    mutation: float,
    steps: int,
    populations: int = 1,
    seed: int | Sequence[int] = 0,
    start: ArrayLike | None = None,
    payoffs: ArrayLike | None = None,
    discard: int = 0,
    samples: int = 0,
) -> Occupancy:
    """Run populations side by side.

    Args:
        game: The game.
        size: Agents in each population, N.
        beta: Intensity of selection.
        mutation: Probability of a mutation per step, in [0, 1].
        steps: Steps that are counted, of one agent each.
        populations: How many.
        seed: Of the draws, or one of each population; what a population does hangs on its own seed alone.
        start: Shape (populations, strategies) or (strategies,): agents of each strategy. Left out, every agent draws.
        payoffs: Shape (populations, strategies, strategies): payoffs of each population's own, in the place of the
            game's.
        discard: Steps before those that are counted.
        samples: Points of the series over the counted steps.

    Raises:
        UserError: If a size, a rate or a shape is out of range.
    """
    check_population(size, beta)
    check_rates(mutation, steps, populations, discard, samples)
    strategies, streams = len(game), Streams(population_seeds(seed, populations))
    if strategies < 2:
        raise UserError(f"a population evolves among at least 2 strategies, got {strategies}.")
    counts = _start(start, size, populations, strategies, streams)
    table = payoff_tables(game, payoffs, populations)
    run = _Run(table, counts, size, beta, mutation, discard, steps, samples, streams)
    while run.open.any():
        run.advance()
    return run.result(game.names)


def population_seeds(seed: int | Sequence[int], populations: int) -> list[list[int]]:
    """Return the seed of each population.

    Raises:
        UserError: If seeds are given one by one, and not one per population, or one is negative.
    """
    found = [[seed, number] for number in range(populations)] if isinstance(seed, int) else [[each] for each in seed]
    if len(found) != populations:
        raise UserError(f"seed: expected one, or one per population, {populations}; got {len(found)}.")
    if any(each[0] < 0 for each in found):
        raise UserError("seed: expected whole numbers of at least 0.")
    return found


class Streams:
    """Uniform numbers of each population's own, drawn a block at a time."""

    def __init__(self, seeds: Sequence[Sequence[int]]) -> None:
        self.own = [np.random.default_rng(seed) for seed in seeds]
        self.size = min(1024, max(16, 2**20 // len(seeds)))
        self.block = np.empty((0, 2, len(seeds)))
        self.used = 0

    def pair(self) -> tuple[Floats, Floats]:
        """Return two numbers in [0, 1) for each population, each of shape (populations,)."""
        if self.used == len(self.block):
            drawn = np.stack([own.random((self.size, 2)) for own in self.own])
            self.block, self.used = np.ascontiguousarray(drawn.transpose(1, 2, 0)), 0
        first, second = self.block[self.used]
        self.used += 1
        return first, second


class _Run:
    """The state of a batch of populations and what has been counted of them."""

    def __init__(
        self,
        table: Floats,
        counts: NDArray[np.int64],
        size: int,
        beta: float,
        mutation: float,
        discard: int,
        steps: int,
        samples: int,
        streams: Streams,
    ) -> None:
        batch, k = counts.shape
        self.table, self.counts, self.streams = table, counts.astype(float), streams
        self.size, self.beta, self.mutation = size, beta, mutation
        self.start, self.end = float(discard), float(discard + steps)
        self.clock = np.zeros(batch)
        self.open = np.ones(batch, dtype=bool)
        self.weights = np.zeros((batch, k))
        self.pairs = np.zeros((batch, k * k))
        self.pure = np.zeros((batch, k))
        self.events = np.zeros(batch, dtype=np.int64)
        self.own = np.diagonal(table, axis1=1, axis2=2)
        self.every = steps / samples if samples else 0.0
        self.series = np.full((batch, samples, k), -1, dtype=np.int64)
        self.rows = np.arange(batch)
        self.others = 1 - np.eye(k)

    def probabilities(self) -> Floats:
        """Return the probability of each change in one step, shape (populations, from * to), 0 on the diagonal."""
        k, n = self.counts.shape[1], self.size
        fitness = ((self.table @ self.counts[:, :, None])[:, :, 0] - self.own) * (self.beta / (n - 1))
        gap = np.minimum(fitness[:, :, None] - fitness[:, None, :], 700.0)
        copy = self.counts[:, None, :] * ((1 - self.mutation) / (n - 1)) / (1 + np.exp(gap))
        change = self.counts[:, :, None] * (copy + self.mutation / (k - 1)) / n * self.others
        flat: Floats = change.reshape(len(change), -1)
        return flat

    def advance(self) -> None:
        """Take every open population to its next change, or to the end."""
        change = self.probabilities()
        reach = np.cumsum(change, axis=1)
        total = np.minimum(reach[:, -1], 1.0)
        first, second = self.streams.pair()
        with np.errstate(divide="ignore", invalid="ignore"):
            wait = np.maximum(np.ceil(np.log1p(-first) / np.log1p(-total)), 1.0)
        wait[total <= 0] = np.inf
        until = np.minimum(self.clock + wait, self.end)
        self._count(np.where(self.open, until - np.maximum(self.clock, self.start), 0.0))
        self.clock = np.where(self.open, until, self.clock)
        moved = self.open & (self.clock < self.end)
        pick = second * reach[:, -1]
        event = np.minimum((reach <= pick[:, None]).sum(1), reach.shape[1] - 1)
        source, target = np.divmod(event, self.counts.shape[1])
        self.counts[self.rows, source] -= moved
        self.counts[self.rows, target] += moved
        self.events += moved
        self.open = moved

    def _count(self, held: Floats) -> None:
        held = np.maximum(held, 0.0)
        self.weights += held[:, None] * self.counts
        self.pairs += ((held[:, None] * self.counts)[:, :, None] * self.counts[:, None, :]).reshape(len(held), -1)
        self.pure += held[:, None] * (self.counts == self.size)
        if self.every:
            # The state that holds at a sampling point is the last one written to it.
            index = np.ceil((self.clock - self.start) / self.every).astype(int)
            index = np.maximum(index, 0)
            seen = self.open & (index < self.series.shape[1])
            self.series[self.rows[seen], index[seen]] = self.counts[seen]

    def result(self, names: tuple[str, ...]) -> Occupancy:
        """Return the means; points of the series without a change since the last keep its state."""
        steps, n, k = self.end - self.start, self.size, self.counts.shape[1]
        for point in range(1, self.series.shape[1]):
            gap = self.series[:, point, 0] < 0
            self.series[gap, point] = self.series[gap, point - 1]
        pairs = self.pairs.reshape(-1, k, k)
        pairs[:, range(k), range(k)] -= self.weights  # nobody meets itself
        return Occupancy(
            names=names,
            shares=self.weights / (steps * n),
            pairs=pairs / (steps * n * (n - 1)),
            pure=self.pure / steps,
            final=self.counts.astype(np.int64),
            series=self.series,
            events=self.events,
        )


def check_rates(mutation: float, steps: int, populations: int, discard: int, samples: int) -> None:
    """Check what every simulation is given.

    Raises:
        UserError: If a rate is no probability, or a number is too small.
    """
    if not 0 <= mutation <= 1:
        raise UserError(f"mutation: expected a probability, 0 to 1, got {mutation}.")
    if steps < 1 or populations < 1 or discard < 0 or samples < 0:
        raise UserError(
            "expected at least 1 step and population and no negative number to discard or sample, got "
            f"steps {steps}, populations {populations}, discard {discard}, samples {samples}."
        )


def _start(
    start: ArrayLike | None, size: int, populations: int, strategies: int, streams: Streams
) -> NDArray[np.int64]:
    if start is None:
        even = np.full(strategies, 1 / strategies)
        return np.array([own.multinomial(size, even) for own in streams.own], dtype=np.int64)
    given = np.asarray(start)
    if given.shape not in ((strategies,), (populations, strategies)):
        raise UserError(
            f"start: expected shape (strategies,) or (populations, strategies) = ({strategies},) or "
            f"({populations}, {strategies}), got {given.shape}."
        )
    if (given < 0).any() or (given.sum(-1) != size).any() or (given != np.floor(given)).any():
        raise UserError(f"start: the agents of each population must be whole numbers that add up to {size}.")
    return np.broadcast_to(given, (populations, strategies)).astype(np.int64)


def payoff_tables(game: Game, payoffs: ArrayLike | None, populations: int) -> Floats:
    """Return payoffs of shape (populations, strategies, strategies): the game's, or each population's own.

    Raises:
        UserError: If their own have another shape or are not finite.
    """
    if payoffs is None:
        return np.broadcast_to(game.payoffs, (populations, *game.payoffs.shape))
    table = np.asarray(payoffs, dtype=float)
    expected = (populations, len(game), len(game))
    if table.shape != expected or not np.isfinite(table).all():
        raise UserError(
            f"payoffs: expected finite numbers of shape (populations, strategies, strategies) = {expected}, "
            f"got {table.shape}."
        )
    return table

"""Populations on a graph: asynchronous Fermi updates with mutation, many populations in one compiled scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import numpy as np
from jax import numpy as jnp
from numpy.typing import ArrayLike, NDArray

from rolecraft._jax import check_memory
from rolecraft.errors import UserError
from rolecraft.societies._fixation import check_population
from rolecraft.societies._game import Floats, Game
from rolecraft.societies._graph import Graph
from rolecraft.societies._population import check_rates, payoff_tables, population_seeds

BLOCK = 512
"""Steps whose random numbers are drawn at once."""


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """Populations on a graph, looked at at equal intervals."""

    names: tuple[str, ...]
    series: NDArray[np.int64]
    """Shape (populations, samples, strategies): agents of each strategy."""
    pair_series: Floats
    """Shape (populations, samples, strategies, strategies): share of directed edges from row to column."""
    final: NDArray[np.int64]
    """Shape (populations, nodes): each agent's strategy at the end."""

    @property
    def shares(self) -> Floats:
        """Mean share of each strategy over the samples, shape (populations, strategies)."""
        shares: Floats = self.series.mean(1) / self.final.shape[1]
        return shares

    @property
    def pairs(self) -> Floats:
        """Mean share of directed edges over the samples, shape (populations, strategies, strategies)."""
        pairs: Floats = self.pair_series.mean(1)
        return pairs

    def rate(self, table: ArrayLike) -> Floats:
        """Return the mean over edges and samples of what a row agent does to a column agent, shape (populations,)."""
        rates: Floats = np.einsum("bij,ij->b", self.pairs, np.asarray(table, dtype=float))
        return rates


def evolve_on_graph(
    game: Game,
    graph: Graph,
    *,
    beta: float,
    mutation: float,
    steps: int,
    samples: int = 100,
    populations: int = 1,
    seed: int | Sequence[int] = 0,
    discard: int = 0,
    payoffs: ArrayLike | None = None,
    start: ArrayLike | None = None,
    fitness: Literal["mean", "sum"] = "mean",
) -> NetworkRun:
    """Run populations on one graph side by side.

    A step takes one node. With probability `mutation` it takes one of the other strategies, else it looks at one of
    its neighbours and takes its strategy with the Fermi probability; both earn from all their own neighbours.

    Args:
        game: The game.
        graph: Who meets whom.
        beta: Intensity of selection.
        mutation: Probability of a mutation per step.
        steps: Steps that are counted, of one node each; made up to a whole number per sample.
        samples: How often to look, at least once.
        populations: How many.
        seed: Of the draws, or one of each population; what a population does hangs on its own seed alone.
        discard: Steps before those that are counted.
        payoffs: Shape (populations, strategies, strategies): payoffs of each population's own.
        start: Shape (nodes,) or (populations, nodes): numbers of strategies. Left out, every node draws.
        fitness: `mean` payoff over neighbours, or their `sum`, in which hubs earn more.

    Raises:
        UserError: If a size, a rate or a shape is out of range.
    """
    check_population(len(graph), beta)
    check_rates(mutation, steps, populations, discard, samples)
    if len(game) < 2 or samples < 1 or fitness not in ("mean", "sum"):
        raise UserError(
            "expected at least 2 strategies, at least 1 sample and fitness 'mean' or 'sum', got "
            f"{len(game)}, {samples} and {fitness!r}."
        )
    strategies = len(game)
    table = jnp.asarray(payoff_tables(game, payoffs, populations), jnp.float32)
    edges = graph.edges
    check_memory(
        4 * populations * (BLOCK * 5 + 2 * len(edges) * strategies + samples * strategies * (strategies + 1)),
        f"{populations} populations on {len(graph)} nodes", "populations",
    )  # fmt: skip
    seeds = population_seeds(seed, populations)
    keys = jnp.stack([jax.random.fold_in(jax.random.key(each[0] % 2**32), each[-1] % 2**32) for each in seeds])
    state = _start(start, populations, len(graph), strategies, jax.vmap(partial(jax.random.fold_in, data=0))(keys))
    shape = _Shape(strategies, fitness == "mean", -(-steps // samples), discard, samples)
    world = (table, jnp.asarray(graph.neighbours), jnp.asarray(graph.degrees), jnp.asarray(edges))
    final, counts, pairs = _run(shape, world, state, keys, jnp.float32(beta), jnp.float32(mutation))
    return NetworkRun(
        game.names,
        np.asarray(counts).swapaxes(0, 1).astype(np.int64),
        np.asarray(pairs, dtype=float).swapaxes(0, 1),
        np.asarray(final).astype(np.int64),
    )


@dataclass(frozen=True)
class _Shape:
    """What the compiled program depends on, beside the shapes of its arrays."""

    strategies: int
    mean: bool
    per_sample: int
    discard: int
    samples: int


@partial(jax.jit, static_argnums=0)
def _run(
    shape: _Shape, world: tuple[Any, ...], state: Any, keys: Any, beta: Any, mutation: Any
) -> tuple[Any, Any, Any]:
    table, neighbours, degrees, edges = world
    rows, k = jnp.arange(len(state)), shape.strategies

    def earned(state: Any, node: Any) -> Any:
        """Return what one node of each population earns, shape (populations,)."""
        near = neighbours[node]
        payoff = table[rows[:, None], state[rows, node][:, None], state[rows[:, None], near]]
        total = jnp.where(jnp.arange(near.shape[1]) < degrees[node][:, None], payoff, 0.0).sum(1)
        return total / degrees[node] if shape.mean else total

    def step(state: Any, draws: Any) -> tuple[Any, None]:
        node = jnp.minimum((draws[0] * len(degrees)).astype(int), len(degrees) - 1)
        slot = jnp.minimum((draws[1] * degrees[node]).astype(int), degrees[node] - 1)
        other = neighbours[node, slot]
        own, seen = state[rows, node], state[rows, other]
        copy = draws[2] < jax.nn.sigmoid(beta * (earned(state, other) - earned(state, node)))
        mutant = (own + 1 + jnp.minimum((draws[3] * (k - 1)).astype(int), k - 2)) % k
        new = jnp.where(draws[4] < mutation, mutant, jnp.where(copy, seen, own))
        return state.at[rows, node].set(new), None

    def run(state: Any, key: Any, length: int) -> Any:
        def block(state: Any, number: Any, size: int) -> tuple[Any, None]:
            own = jax.vmap(partial(jax.random.fold_in, data=number))(key)
            draws = jax.vmap(partial(jax.random.uniform, shape=(size, 5)))(own)
            return jax.lax.scan(step, state, draws.transpose(1, 2, 0))[0], None

        whole, rest = divmod(length, BLOCK)
        if whole:
            state = jax.lax.scan(partial(block, size=BLOCK), state, jnp.arange(whole))[0]
        return block(state, whole, rest)[0] if rest else state

    def sample(state: Any, number: Any) -> tuple[Any, tuple[Any, Any]]:
        own = jax.vmap(partial(jax.random.fold_in, data=number))(keys)
        state = run(state, own, shape.per_sample)
        pair = state[:, edges[:, 0]] * k + state[:, edges[:, 1]]
        hits = (pair[:, :, None] == jnp.arange(k * k)).mean(1)
        return state, ((state[:, :, None] == jnp.arange(k)).sum(1), hits.reshape(-1, k, k))

    if shape.discard:
        state = run(state, jax.vmap(partial(jax.random.fold_in, data=1))(keys), shape.discard)
    state, (counts, pairs) = jax.lax.scan(sample, state, 2 + jnp.arange(shape.samples))
    return state, counts, pairs


def _start(start: ArrayLike | None, populations: int, nodes: int, strategies: int, keys: Any) -> Any:
    if start is None:
        draw = partial(jax.random.randint, shape=(nodes,), minval=0, maxval=strategies)
        return jax.vmap(draw)(keys)
    given = np.asarray(start)
    if given.shape not in ((nodes,), (populations, nodes)):
        raise UserError(
            f"start: expected shape (nodes,) or (populations, nodes) = ({nodes},) or ({populations}, {nodes}), "
            f"got {given.shape}."
        )
    if not np.isin(given, np.arange(strategies)).all():
        raise UserError(f"start: expected numbers of strategies, 0 to {strategies - 1}.")
    return jnp.broadcast_to(jnp.asarray(given, jnp.int32), (populations, nodes))

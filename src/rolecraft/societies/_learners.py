"""Learners of a society: one head per decision (select, play, punish), one learner per agent, all agents in one array.

A head never copies a whole replay: it reads and writes the rows of the agent that decides. `active` says whether a
transition counts, so that conditions without a decision run in the same compiled program as those with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import optax
from flax import linen as nn
from jax import numpy as jnp

NEVER = -1e9
"""Value of an action that is not open."""


class Step(NamedTuple):
    """A transition of one agent."""

    seen: Any
    """Observation, shape (features,)."""
    action: Any
    reward: Any
    after: Any
    """The next observation."""
    ended: Any
    """Whether nothing follows: the target is the reward alone."""
    open: Any
    """Shape (actions,): which actions the agent has, here and afterwards."""


class Head(Protocol):
    """Learners of one decision, one per agent. Random numbers come from outside, uniform in [0, 1)."""

    @property
    def act_draws(self) -> int:
        """Random numbers that an action needs."""

    @property
    def learn_draws(self) -> int:
        """Random numbers that an update needs."""

    def init(self, key: Any) -> Any:
        """Return the state of all agents' learners."""

    def act(self, state: Any, agent: Any, seen: Any, open: Any, draws: Any) -> Any:
        """Return an agent's action, epsilon-greedy."""

    def learn(self, state: Any, agent: Any, step: Step, draws: Any, active: Any) -> Any:
        """Take in a transition and do one update; nothing changes unless active."""


def greedy(values: Any, open: Any, epsilon: Any, draws: Any) -> Any:
    """Return the best open action, or with probability epsilon any open one; ties are broken at random.

    Args:
        values: Shape (actions,).
        open: Shape (actions,): which there are.
        epsilon: Probability of any open action.
        draws: Shape (1 + actions,).
    """
    best = jnp.max(jnp.where(open, values, NEVER))
    among = open & ((values >= best) | (draws[0] < epsilon))
    return jnp.argmax(jnp.where(among, 1 + draws[1:], 0.0))


def faded(start: float, floor: float, rate: float, updates: Any) -> Any:
    """Return epsilon after some updates: down by `(start - floor) * rate` each, and never below the floor."""
    return jnp.maximum(floor, start - (start - floor) * rate * updates)


@dataclass(frozen=True)
class Exploration:
    """Epsilon from `start` down to `floor`, by the share `rate` of the distance per update."""

    start: float = 0.8889
    floor: float = 0.01
    rate: float = 0.3000667


# Tables


class TableState(NamedTuple):
    """Tables of all agents."""

    values: Any
    """Shape (agents, cells, actions), or (agents, features) for a linear value."""
    updates: Any
    """Shape (agents,)."""


@dataclass(frozen=True)
class TableHead:
    """Q-learning with a table: an observation is put into a cell.

    The first features are actions, 0, 1 or 2 for unknown; the others are reputations, which count by their sign.
    """

    agents: int
    features: int
    coded: int
    """How many of the features are actions."""
    actions: int
    lr: float
    gamma: float
    exploration: Exploration

    @property
    def act_draws(self) -> int:
        """Random numbers that an action needs."""
        return 1 + self.actions

    @property
    def learn_draws(self) -> int:
        """Random numbers that an update needs."""
        return 0

    def init(self, key: Any) -> TableState:
        """Return empty tables."""
        del key
        cells = 3**self.coded * 2 ** (self.features - self.coded)
        return TableState(jnp.zeros((self.agents, cells, self.actions)), jnp.zeros(self.agents, jnp.int32))

    def cell(self, seen: Any) -> Any:
        """Return the number of an observation's cell."""
        found = 0
        for number in range(self.features):
            coded = number < self.coded
            found = found * 3 + seen[number].astype(int) if coded else found * 2 + (seen[number] > 0)
        return found

    def act(self, state: TableState, agent: Any, seen: Any, open: Any, draws: Any) -> Any:
        """Return an agent's action."""
        e = self.exploration
        epsilon = faded(e.start, e.floor, e.rate, state.updates[agent])
        return greedy(state.values[agent, self.cell(seen)], open, epsilon, draws)

    def learn(self, state: TableState, agent: Any, step: Step, draws: Any, active: Any) -> TableState:
        """Move one cell towards reward + gamma max Q(after)."""
        del draws
        cell, after = self.cell(step.seen), self.cell(step.after)
        ahead = jnp.max(jnp.where(step.open, state.values[agent, after], NEVER))
        target = step.reward + self.gamma * ahead * (1 - step.ended)
        change = self.lr * (target - state.values[agent, cell, step.action])
        return TableState(
            state.values.at[agent, cell, step.action].add(jnp.where(active, change, 0.0)),
            state.updates.at[agent].add(active),
        )


@dataclass(frozen=True)
class LinearHead:
    """Choice of a partner by a linear value of its reputation, standardised over the open ones: w0 + w1 z."""

    agents: int
    lr: float
    gamma: float
    exploration: Exploration

    @property
    def act_draws(self) -> int:
        """Random numbers that an action needs."""
        return 1 + self.agents

    @property
    def learn_draws(self) -> int:
        """Random numbers that an update needs."""
        return 0

    def init(self, key: Any) -> TableState:
        """Return weights of 0."""
        del key
        return TableState(jnp.zeros((self.agents, 2)), jnp.zeros(self.agents, jnp.int32))

    def values(self, state: TableState, agent: Any, seen: Any, open: Any) -> Any:
        """Return the value of each partner, shape (agents,)."""
        weights = state.values[agent]
        return weights[0] + weights[1] * standard_scores(seen, open)

    def act(self, state: TableState, agent: Any, seen: Any, open: Any, draws: Any) -> Any:
        """Return the partner."""
        e = self.exploration
        epsilon = faded(e.start, e.floor, e.rate, state.updates[agent])
        return greedy(self.values(state, agent, seen, open), open, epsilon, draws)

    def learn(self, state: TableState, agent: Any, step: Step, draws: Any, active: Any) -> TableState:
        """Move the weights along the features of the partner, towards reward + gamma max value(after)."""
        del draws
        ahead = jnp.max(jnp.where(step.open, self.values(state, agent, step.after, step.open), NEVER))
        target = step.reward + self.gamma * ahead * (1 - step.ended)
        error = target - self.values(state, agent, step.seen, step.open)[step.action]
        features = jnp.stack([1.0, standard_scores(step.seen, step.open)[step.action]])
        change = jnp.where(active, self.lr * error, 0.0) * features
        return TableState(state.values.at[agent].add(change), state.updates.at[agent].add(active))


def standard_scores(values: Any, open: Any) -> Any:
    """Return values less the mean of the open ones, over their deviation; 0 where they are all alike."""
    count = jnp.maximum(open.sum(), 1)
    mean = jnp.where(open, values, 0.0).sum() / count
    spread = jnp.sqrt(jnp.where(open, (values - mean) ** 2, 0.0).sum() / count)
    return jnp.where(spread > 1e-6, (values - mean) / jnp.maximum(spread, 1e-6), 0.0)


# Networks


class QNetwork(nn.Module):
    """Linear, ReLU, Linear, with the bounds of weights that PyTorch's `Linear` draws from."""

    hidden: int
    actions: int

    @nn.compact
    def __call__(self, seen: Any) -> Any:
        """Return the value of each action."""
        for width, last in ((self.hidden, False), (self.actions, True)):
            bound = 1 / np.sqrt(seen.shape[-1])
            draw = nn.initializers.uniform(2 * bound)
            centred = lambda key, shape, dtype=jnp.float32, d=draw, b=bound: d(key, shape, dtype) - b  # noqa: E731
            seen = nn.Dense(width, kernel_init=centred, bias_init=centred)(seen)
            seen = seen if last else nn.relu(seen)
        return seen


def where_tree(condition: Any, new: Any, old: Any) -> Any:
    """Return one of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class DqnState(NamedTuple):
    """Networks, optimisers and replays of all agents; first axis: agents."""

    params: Any
    target: Any
    optimiser: Any
    replay: Any
    """Shape (agents, capacity, 2 * features + 3): observation, next one, action, reward, ended."""
    stored: Any
    """Shape (agents,): transitions ever stored."""
    updates: Any


@dataclass(frozen=True)
class DqnHead:
    """Deep Q-learning (Mnih et al. 2015) with the paper's constants: smooth L1, Adam, hard target updates."""

    agents: int
    features: int
    actions: int
    lr: float
    gamma: float
    exploration: Exploration
    capacity: int
    hidden: int = 128
    batch: int = 100
    target_every: int = 200

    @property
    def act_draws(self) -> int:
        """Random numbers that an action needs."""
        return 1 + self.actions

    @property
    def learn_draws(self) -> int:
        """Random numbers that an update needs."""
        return self.batch

    @property
    def network(self) -> QNetwork:
        """The network of one agent."""
        return QNetwork(self.hidden, self.actions)

    def values(self, params: Any, seen: Any) -> Any:
        """Return the value of each action."""
        return self.network.apply(params, seen)

    def init(self, key: Any) -> DqnState:
        """Return fresh networks and empty replays."""
        keys = jax.random.split(key, self.agents)
        params = jax.vmap(lambda key: self.network.init(key, jnp.zeros(self.features)))(keys)
        return DqnState(
            params,
            jax.tree.map(jnp.copy, params),
            jax.vmap(optax.adam(self.lr).init)(params),
            jnp.zeros((self.agents, self.capacity, 2 * self.features + 3)),
            jnp.zeros(self.agents, jnp.int32),
            jnp.zeros(self.agents, jnp.int32),
        )

    def act(self, state: DqnState, agent: Any, seen: Any, open: Any, draws: Any) -> Any:
        """Return an agent's action."""
        e = self.exploration
        params = jax.tree.map(lambda leaf: leaf[agent], state.params)
        epsilon = faded(e.start, e.floor, e.rate, state.updates[agent])
        return greedy(self.values(params, seen), open, epsilon, draws)

    def loss(self, params: Any, target: Any, batch: Any, open: Any) -> Any:
        """Return the smooth L1 loss of some stored transitions."""
        width = self.features
        seen, after = batch[:, :width], batch[:, width : 2 * width]
        action, reward, ended = batch[:, -3].astype(int), batch[:, -2], batch[:, -1]
        ahead = jnp.where(open, self.values(target, after), NEVER).max(1)
        wanted = reward + self.gamma * jax.lax.stop_gradient(ahead) * (1 - ended)
        found = jnp.take_along_axis(self.values(params, seen), action[:, None], 1)[:, 0]
        return optax.huber_loss(found, wanted).mean()

    def learn(self, state: DqnState, agent: Any, step: Step, draws: Any, active: Any) -> DqnState:
        """Store the transition and, from the first full batch on, do one update."""
        tail = jnp.stack([jnp.asarray(value, jnp.float32) for value in (step.action, step.reward, step.ended)])
        row = jnp.concatenate([step.seen, step.after, tail])
        # One that does not count lies where the next one will be written.
        replay = state.replay.at[agent, state.stored[agent] % self.capacity].set(row)
        stored = state.stored.at[agent].add(active)
        held = jnp.minimum(stored[agent], self.capacity)
        picked = (draws * held).astype(int)
        batch = replay[agent, picked]
        params, target, optimiser = (
            jax.tree.map(lambda leaf: leaf[agent], tree) for tree in (state.params, state.target, state.optimiser)
        )
        gradient = jax.grad(self.loss)(params, target, batch, step.open)
        change, moved = optax.adam(self.lr).update(gradient, optimiser)
        ready = active & (held >= self.batch)
        updates = state.updates[agent] + ready
        fresh = optax.apply_updates(params, change)
        params, optimiser = where_tree(ready, fresh, params), where_tree(ready, moved, optimiser)
        target = where_tree(ready & (updates % self.target_every == 0), params, target)

        def put(whole: Any, part: Any) -> Any:
            return jax.tree.map(lambda a, b: a.at[agent].set(b), whole, part)

        return DqnState(
            put(state.params, params), put(state.target, target), put(state.optimiser, optimiser),
            replay, stored, state.updates.at[agent].set(updates),
        )  # fmt: skip

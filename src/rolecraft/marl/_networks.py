"""Recurrent action-value networks of a team: one forward pass for all agents, weights shared or their own."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft._jax import orthogonal

LEAST = -1e9
"""Value of an action that is not available, before an argmax."""


def _per_agent(module: Any) -> Any:
    """The same layer with weights of its own for each agent; agents are the last axis but one."""
    return nn.vmap(module, in_axes=-2, out_axes=-2, variable_axes={"params": 0}, split_rngs={"params": True})


class _Memory(nn.Module):
    """One step of the GRU, which forgets where an episode begins."""

    hidden: int
    share: bool

    @nn.compact
    def __call__(self, carry: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, fresh = inputs
        carry = jnp.where(fresh[..., None, None], 0.0, carry)
        cell = nn.GRUCell if self.share else _per_agent(nn.GRUCell)
        carry, out = cell(self.hidden, recurrent_kernel_init=orthogonal(), name="cell")(carry, x)
        return carry, out


class TeamQ(nn.Module):
    """Linear, ReLU, GRU, linear, ReLU, and a dueling head: Q_i(h_i, a) of every agent i.

    VDN's network (arXiv 1706.05296) with a GRU for its LSTM. With `share` all agents have the same weights, and the
    network is agent-invariant: permuted observations permute the outputs, unless role features are in them.
    """

    actions: int
    hidden: int = 64
    share: bool = True
    dueling: bool = True
    """Value and advantages apart (advantages centred) instead of one layer of outputs."""
    low: bool = False
    """Channel between the first layers: each agent's next layer also gets the sum of the others' activations."""
    high: bool = False
    """The same between the recurrent layers' outputs."""

    @nn.compact
    def __call__(self, carry: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Run over a stretch of time.

        Args:
            carry: (B, n, hidden), the memory before it.
            obs: (T, B, n, d), role features included.
            fresh: (T, B) bool: an episode begins at this step.

        Returns:
            The memory after it, and action values (T, B, n, actions).
        """
        dense = nn.Dense if self.share else _per_agent(nn.Dense)
        x = nn.relu(dense(self.hidden, name="first")(obs))
        if self.low:
            x = jnp.concatenate([x, others(x)], -1)
        scan = nn.scan(_Memory, variable_broadcast="params", split_rngs={"params": False})
        carry, x = scan(self.hidden, self.share, name="memory")(carry, (x, fresh))
        if self.high:
            x = jnp.concatenate([x, others(x)], -1)
        x = nn.relu(dense(self.hidden, name="last")(x))
        values = dense(self.actions, name="advantage")(x)
        if self.dueling:
            values = dense(1, name="value")(x) + values - values.mean(-1, keepdims=True)
        return carry, values

    def rest(self, batch: int, agents: int) -> jax.Array:
        """Return the memory of an agent that has seen nothing, (batch, agents, hidden)."""
        return jnp.zeros((batch, agents, self.hidden))


def others(x: jax.Array) -> jax.Array:
    """Return the sum over the other agents, (..., n, h) as given."""
    return x.sum(-2, keepdims=True) - x


def best(values: jax.Array, avail: jax.Array) -> jax.Array:
    """Return the best available action of each agent, (..., n), from (..., n, actions) twice."""
    return jnp.argmax(jnp.where(avail, values, LEAST), -1)


def explore(key: jax.Array, values: jax.Array, avail: jax.Array, epsilon: jax.Array | float) -> jax.Array:
    """Return epsilon-greedy actions (..., n): with probability epsilon, any available one alike."""
    pick, which = jax.random.split(key)
    random = jax.random.categorical(which, jnp.where(avail, 0.0, LEAST))
    return jnp.where(jax.random.uniform(pick, random.shape) < epsilon, random, best(values, avail))

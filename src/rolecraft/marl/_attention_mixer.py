"""ACORM's mixer: the state's history attends over the agents' role vectors before QMIX mixes (arXiv 2312.04819)."""

from __future__ import annotations

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft.marl._networks import _Memory


class AttentionMixer(nn.Module):
    """QMIX whose hypernetworks see the state and an attention of its history over the roles.

    Queries are n vectors made by a GRU over the states, keys and values the role vectors. Weights of the mixing layers
    are not negative, so that Q_tot rises with every Q_i.
    """

    agents: int
    """n"""
    attention: bool = True
    """Without it the mixer is QMIX on the encoded state."""
    state: int = 64
    """Units of the encoded state s'."""
    query: int = 64
    """Units of each agent's query, and of the output of attention."""
    heads: int = 4
    width: int = 128
    """Units of keys and values, all heads together; a multiple of `heads`."""
    embedding: int = 32
    hidden: int = 64

    def setup(self) -> None:
        """Lay out the parts."""
        self.encode = nn.Dense(self.state)
        if self.attention:
            scan = nn.scan(_Memory, variable_broadcast="params", split_rngs={"params": False})
            self.history = scan(self.agents * self.query, True)
            self.to_query, self.to_key, self.to_value = (nn.Dense(self.width, use_bias=False) for _ in range(3))
            self.out = nn.Dense(self.query)
        self.first_hidden, self.first = nn.Dense(self.hidden), nn.Dense(self.agents * self.embedding)
        self.last_hidden, self.last = nn.Dense(self.hidden), nn.Dense(self.embedding)
        self.bias_hidden, self.bias = nn.Dense(self.hidden), nn.Dense(self.embedding)
        self.offset_hidden, self.offset = nn.Dense(self.hidden), nn.Dense(1)

    def __call__(
        self, values: jax.Array, world: jax.Array, fresh: jax.Array, roles: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Mix a stretch of time.

        Args:
            values: (T, B, n).
            world: (T, B, world_size).
            fresh: (T, B) bool: an episode begins here.
            roles: (T, B, n, r).

        Returns:
            Q_tot, (T, B, 1), and the attention, (T, B, heads, n, n): rows are queries and sum to 1.
        """
        encoded, query = self.remember(world, fresh)
        return self.mix(values, encoded, query, roles)

    def remember(self, world: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the encoded state, (T, B, state), and the queries, (T, B, n, query) (or of size 0)."""
        encoded = nn.relu(self.encode(world))
        steps, batch = world.shape[:2]
        if not self.attention:
            return encoded, jnp.zeros((steps, batch, self.agents, 0))
        rest = jnp.zeros((batch, 1, self.agents * self.query))
        _, tau = self.history(rest, (encoded[:, :, None], fresh))
        return encoded, tau.reshape(steps, batch, self.agents, self.query)

    def attend(self, query: jax.Array, roles: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the attended roles, (..., n, query), and the attention, (..., heads, n, n)."""

        def split(x: jax.Array) -> jax.Array:
            return x.reshape(*x.shape[:-1], self.heads, self.width // self.heads)

        q, k, v = split(self.to_query(query)), split(self.to_key(roles)), split(self.to_value(roles))
        score = jnp.einsum("...ihd,...jhd->...hij", q, k) / jnp.sqrt(self.width / self.heads)
        weight = jax.nn.softmax(score, -1)
        seen = jnp.einsum("...hij,...jhd->...ihd", weight, v)
        return self.out(seen.reshape(*seen.shape[:-2], self.width)), weight

    def mix(
        self, values: jax.Array, encoded: jax.Array, query: jax.Array, roles: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Mix with the state and queries given; see `__call__`."""
        if self.attention:
            seen, weight = self.attend(query, roles)
            encoded = jnp.concatenate([encoded, seen.reshape(*seen.shape[:-2], -1)], -1)
        else:
            weight = jnp.zeros((*values.shape[:-1], self.heads, self.agents, self.agents))
        first = jnp.abs(self.first(nn.relu(self.first_hidden(encoded))))
        first = first.reshape(*values.shape, self.embedding)
        bias = self.bias(nn.relu(self.bias_hidden(encoded)))
        hidden = nn.elu(jnp.einsum("...n,...ne->...e", values, first) + bias)
        last = jnp.abs(self.last(nn.relu(self.last_hidden(encoded))))
        total = (hidden * last).sum(-1, keepdims=True) + self.offset(nn.relu(self.offset_hidden(encoded)))
        return total, weight


__all__ = ["AttentionMixer"]

"""ACORM's networks: agent embedding, role vector, role-conditioned action values (arXiv 2312.04819)."""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft.marl._networks import _Memory
from rolecraft.marl._team import Step, TeamEnv


class LastAction:
    """A world whose observations end with each agent's own last action, one-hot, zeros at the start of an episode."""

    def __init__(self, env: TeamEnv) -> None:
        self.inner = env
        self.name, self.agents, self.roles = env.name, env.agents, env.roles
        self.obs_size, self.actions, self.world_size = env.obs_size + env.actions, env.actions, env.world_size
        self.horizon, self.discrete, self.action_size = env.horizon, env.discrete, env.action_size
        self.team_reward = getattr(env, "team_reward", False)

    def reset(self, key: jax.Array) -> tuple[Any, Step]:
        """Start an episode; see `TeamEnv`."""
        state, step = self.inner.reset(key)
        return state, self._seen(step, jnp.zeros((len(self.agents), self.actions)))

    def step(self, key: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Take a joint action; see `TeamEnv`."""
        state, step = self.inner.step(key, state, actions)
        last = jnp.where(step.done, 0.0, jax.nn.one_hot(actions, self.actions))
        return state, self._seen(step, last)

    def _seen(self, step: Step, last: jax.Array) -> Step:
        return step._replace(obs=jnp.concatenate([step.obs, last], -1))


class Trace(NamedTuple):
    """What the networks made of a stretch of time."""

    values: jax.Array
    """(T, B, n, actions)"""
    role: jax.Array
    """(T, B, n, role_size)"""
    embed: jax.Array
    """(T, B, n, embedding)"""


class AcormNet(nn.Module):
    """Agent embedding, role vector and role-conditioned action values; weights shared by all agents."""

    actions: int
    hidden: int = 64
    embedding: int = 128
    role_size: int = 64

    def setup(self) -> None:
        """Lay out the parts."""
        scan = nn.scan(_Memory, variable_broadcast="params", split_rngs={"params": False})
        self.embed_first, self.embed_memory = nn.Dense(self.embedding), scan(self.embedding, True)
        self.embed_last = nn.Dense(self.embedding)
        self.role = nn.Dense(self.role_size)
        self.first, self.memory, self.last = nn.Dense(self.hidden), scan(self.hidden, True), nn.Dense(self.actions)

    def __call__(self, carry: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the memory and the action values; see `TeamQ`."""
        carry, trace = self.trace(carry, obs, fresh)
        return carry, trace.values

    def trace(self, carry: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, Trace]:
        """Return the memory and all that lies on the way, for obs (T, B, n, d) and fresh (T, B)."""
        known, own = carry[..., : self.embedding], carry[..., self.embedding :]
        known, x = self.embed_memory(known, (nn.relu(self.embed_first(obs)), fresh))
        embed = self.embed_last(x)
        role = nn.sigmoid(self.role(embed))
        told = nn.relu(self.first(jnp.concatenate([obs, role], -1)))
        own, x = self.memory(own, (told, fresh))
        return jnp.concatenate([known, own], -1), Trace(self.last(x), role, embed)

    def rest(self, batch: int, agents: int) -> jax.Array:
        """Return the memory of agents that have seen nothing, (batch, agents, embedding + hidden)."""
        return jnp.zeros((batch, agents, self.embedding + self.hidden))


class Decoder(nn.Module):
    """From an agent embedding to the next observation and the agent's number."""

    hidden: int
    size: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Return (..., size) of embeddings (..., e)."""
        made: jax.Array = nn.Dense(self.size)(nn.relu(nn.Dense(self.hidden)(x)))
        return made


def role_of(layer: Any, embed: jax.Array) -> jax.Array:
    """Return the role vectors sigmoid(W e + b) of a role layer `{"kernel", "bias"}`, also a momentum one."""
    return jax.nn.sigmoid(embed @ layer["kernel"] + layer["bias"])


__all__ = ["AcormNet", "Decoder", "LastAction", "Trace", "role_of"]

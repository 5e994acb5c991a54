"""RODE's networks: a role selector and role policies that act by inner products with latents (arXiv 2010.01523)."""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft.marl._acorm_net import LastAction
from rolecraft.marl._networks import LEAST, _Memory, best
from rolecraft.marl._rode_roles import FEWEST
from rolecraft.marl._team import Step, TeamEnv


class Roles(NamedTuple):
    """Roles as the networks use them: places for R roles, of which some may be empty."""

    mask: jax.Array
    """(R, actions) float32, 0 or 1."""
    latent: jax.Array
    """(R, d)"""
    real: jax.Array
    """(R,) float32: 1 where there is a role."""
    action: jax.Array
    """(actions, d), action latents."""


class Look(NamedTuple):
    """What the networks made of a stretch of time."""

    role: jax.Array
    """(T, B, n, R): values of roles, very low where there is none."""
    keys: jax.Array
    """(T, B, n, R, d): what each role's policy multiplies action latents with."""


class RodeNet(nn.Module):
    """Two recurrent encoders: one for the role selector, and one that all role policies share.

    The roles lie beside the weights as a collection of their own, `roles`, which no gradient changes.
    """

    actions: int
    roles: int
    """Places for roles."""
    latent: int = 20
    hidden: int = 64

    def setup(self) -> None:
        """Lay out the parts."""
        scan = nn.scan(_Memory, variable_broadcast="params", split_rngs={"params": False})
        self.role_first, self.role_memory = nn.Dense(self.hidden), scan(self.hidden, True)
        self.query_hidden, self.query = nn.Dense(2 * self.hidden), nn.Dense(self.latent)
        self.first, self.memory = nn.Dense(self.hidden), scan(self.hidden, True)
        self.keys = nn.Dense(self.roles * self.latent)
        self.held = self.variable("roles", "held", self._nothing)

    def _nothing(self) -> dict[str, jax.Array]:
        """Three roles that are all alike, as before any are found."""
        real = (jnp.arange(self.roles) < FEWEST).astype(jnp.float32)
        mask, latent = jnp.ones((self.roles, self.actions)), jnp.ones((self.roles, self.latent))
        return Roles(mask, latent, real, jnp.ones((self.actions, self.latent)))._asdict()

    def __call__(self, carry: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, Look]:
        """Run over a stretch of time, obs (T, B, n, d) and fresh (T, B); returns the memory and what was made of it."""
        chooser, own = carry[..., : self.hidden], carry[..., self.hidden :]
        chooser, x = self.role_memory(chooser, (nn.relu(self.role_first(obs)), fresh))
        roles = Roles(**self.held.value)
        query = self.query(nn.relu(self.query_hidden(x)))
        role = jnp.where(roles.real > 0, query @ roles.latent.T, LEAST)
        own, x = self.memory(own, (nn.relu(self.first(obs)), fresh))
        keys = self.keys(x).reshape(*x.shape[:-1], self.roles, self.latent)
        return jnp.concatenate([chooser, own], -1), Look(role, keys)

    def rest(self, batch: int, agents: int) -> jax.Array:
        """Return the memory of agents that have seen nothing, (batch, agents, 2 hidden)."""
        return jnp.zeros((batch, agents, 2 * self.hidden))


def held(net: Any) -> Roles:
    """Return the roles that lie beside a network's weights."""
    return Roles(**net["roles"]["held"])


def with_held(net: Any, roles: Roles) -> dict[str, Any]:
    """Return a network with other roles."""
    return {"params": net["params"], "roles": {"held": roles._asdict()}}


def action_values(keys: jax.Array, role: jax.Array, latents: jax.Array) -> jax.Array:
    """Return Q_i(a) = <k_i, z_a> of each agent's role, (..., n, actions).

    Args:
        keys: (..., n, R, d).
        role: (..., n).
        latents: (actions, d).
    """
    own = jnp.take_along_axis(keys, role[..., None, None], -2)[..., 0, :]
    return own @ latents.T


def choose_roles(key: jax.Array, values: jax.Array, real: jax.Array, epsilon: jax.Array | float) -> jax.Array:
    """Return epsilon-greedy roles (..., n) from values (..., n, R): with probability epsilon any real one alike."""
    pick, which = jax.random.split(key)
    random = jax.random.categorical(which, jnp.where(real > 0, 0.0, LEAST), shape=values.shape[:-1])
    greedy = jnp.argmax(values, -1)
    return jnp.where(jax.random.uniform(pick, random.shape) < epsilon, random, greedy)


def explore_roles(
    key: jax.Array, values: jax.Array, avail: jax.Array, allowed: jax.Array, epsilon: jax.Array | float
) -> tuple[jax.Array, jax.Array]:
    """Choose actions by RODE's soft epsilon-greedy rule.

    The greedy action is the best one that is available and that the role has; random ones need only be available.

    Args:
        key: For the draws.
        values: (..., n, actions).
        avail: (..., n, actions) bool.
        allowed: (..., n, actions) bool, the role's mask.
        epsilon: Probability of a random action.

    Returns:
        Actions (..., n), and where an agent's role had no available action (..., n) bool: a random available one is
        taken there.
    """
    pick, which = jax.random.split(key)
    both = avail & allowed
    none = ~both.any(-1)
    random = jax.random.categorical(which, jnp.where(avail, 0.0, LEAST))
    takes = (jax.random.uniform(pick, random.shape) < epsilon) | none
    return jnp.where(takes, random, best(values, both)), none


class KnownActions(LastAction):
    """A world whose observations end with each agent's last action in terms of another world's actions.

    Args:
        env: The world.
        basis: (actions, known actions): what each action is like; see `likeness`.
    """

    def __init__(self, env: TeamEnv, basis: Any) -> None:
        super().__init__(env)
        self._basis = jnp.asarray(basis, jnp.float32)
        self.obs_size = env.obs_size + self._basis.shape[1]

    def _seen(self, step: Step, last: jax.Array) -> Step:
        return super()._seen(step, last @ self._basis)


__all__ = [
    "KnownActions", "Look", "RodeNet", "Roles", "action_values", "choose_roles", "explore_roles", "held", "with_held",
]  # fmt: skip

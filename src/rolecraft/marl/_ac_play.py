"""Whole episodes of a team's policy, many at a time, for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft.marl._team import TeamEnv

Array = Any
TeamPolicy = Callable[[Array, Array, Array], Array]
"""(obs (E, n, d), avail (E, n, actions), key) -> actions as the world takes them, (E, n) or (E, n, action_size)."""


class Episodes(NamedTuple):
    """Episodes in step; T is the world's horizon, E the number of episodes."""

    obs: Array
    """What each action was chosen on, (T, E, n, d)."""
    reward: Array
    """Of that action, (T, E, n)."""
    alive: Array
    """The episode was not over before the action, (T, E)."""
    last_obs: Array
    """The last observation of each episode, (E, n, d)."""

    @property
    def returns(self) -> Array:
        """Undiscounted sum of each agent's rewards, (E, n)."""
        return (self.reward * self.alive[..., None]).sum(0)


def play_episodes(env: TeamEnv, policy: TeamPolicy, key: Array, episodes: int) -> Episodes:
    """Play one episode in each of some copies of a world.

    Args:
        env: A world of pure functions.
        policy: See `TeamPolicy`; it carries no memory.
        key: Random key.
        episodes: Number of copies, at least 1.

    Raises:
        UserError: If there are no episodes.
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, got {episodes}.")
    k_reset, key = jax.random.split(key)
    state, first = jax.vmap(env.reset)(jax.random.split(k_reset, episodes))
    alive = jnp.ones(episodes, bool)

    def one(carry: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], tuple[Array, Array, Array]]:
        state, obs, avail, alive, last = carry
        k_act, k_env = jax.random.split(key)
        actions = policy(obs, avail, k_act)
        state, step = jax.vmap(env.step)(jax.random.split(k_env, episodes), state, actions)
        last = jnp.where(alive[:, None, None], step.info["final_obs"], last)
        return (state, step.obs, step.avail, alive & ~step.done, last), (obs, step.reward, alive)

    start = (state, first.obs, first.avail, alive, first.obs)
    carry, (obs, reward, before) = jax.lax.scan(one, start, jax.random.split(key, env.horizon))
    return Episodes(obs, reward, before, carry[4])

"""What an environment is to the array learners: two pure functions and some sizes; many of them stepped at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax import numpy as jnp

from rolecraft.errors import UserError

Array = jax.Array


@dataclass(frozen=True)
class ArrayEnv:
    """An environment with flat observations and numbered actions, whose functions can be jitted and vmapped.

    Raises:
        UserError: If a size is below 1.
    """

    name: str
    reset: Callable[[Array], tuple[Any, Array]]
    """`reset(key) -> (state, obs)`; obs has shape (D,)."""
    step: Callable[[Array, Any, Array], tuple[Any, Array, Array, Array]]
    """`step(key, state, action) -> (state, obs, reward, done)`; obs is that of the reached state, before any reset."""
    observations: int
    """D."""
    actions: int
    """A."""
    length: int
    """Steps after which an episode ends at the latest."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing."""
        if min(self.observations, self.actions, self.length) < 1:
            raise UserError(
                f"{self.name}: observations, actions and length must be at least 1, got "
                f"{self.observations}, {self.actions} and {self.length}."
            )

    def check(self) -> None:
        """Test the shapes that the functions return, without compiling them.

        Raises:
            UserError: If an observation is not (D,), or reward and done are no scalars.
        """
        key = jax.random.key(0)
        state, obs = jax.eval_shape(self.reset, key)
        after, seen, reward, done = jax.eval_shape(self.step, key, state, jnp.zeros((), jnp.int32))
        same: Any = jax.tree.structure(state)
        if same != jax.tree.structure(after):
            raise UserError(f"{self.name}: step must return a state of the same form as reset.")
        for what, shape, wanted in (
            ("reset's obs", obs.shape, (self.observations,)),
            ("step's obs", seen.shape, (self.observations,)),
            ("reward", reward.shape, ()),
            ("done", done.shape, ()),
        ):
            if shape != wanted:
                symbol = "(D,)" if wanted else "()"
                raise UserError(f"{self.name}: {what} must have shape {symbol} = {wanted}, got {shape}.")


def reset_all(env: ArrayEnv, key: Array, envs: int) -> tuple[Any, Array]:
    """Start `envs` episodes; observations have shape (envs, D)."""
    started: tuple[Any, Array] = jax.vmap(env.reset)(jax.random.split(key, envs))
    return started


def step_all(
    env: ArrayEnv, key: Array, states: Any, actions: Array, resets: int
) -> tuple[Any, Array, Array, Array, Array]:
    """Step all environments and begin new episodes where one ended.

    Args:
        env: The environment.
        key: Random key.
        states: Their states.
        actions: Shape (envs,).
        resets: Fresh episodes made per step and shared among those that ended ("optimistic resets", where making a
            world is dear); `envs` gives each its own.

    Returns:
        States, reached observations (envs, D) before any reset, observations to act on (envs, D), rewards (envs,),
        done (envs,).
    """
    step_key, reset_key, pick_key = jax.random.split(key, 3)
    envs = len(actions)
    after, reached, reward, done = jax.vmap(env.step)(jax.random.split(step_key, envs), states, actions)
    fresh, first = reset_all(env, reset_key, resets)
    pick = jnp.arange(envs) if resets == envs else jax.random.randint(pick_key, (envs,), 0, resets)

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(done.reshape(-1, *(1,) * (old.ndim - 1)), new[pick], old)

    return jax.tree.map(choose, fresh, after), reached, choose(first, reached), reward, done

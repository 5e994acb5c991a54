"""A tiny world for the actor-critic methods: the listener must do what the speaker sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft.marl._team import Moment, Moved, TeamWorld


class Said(NamedTuple):
    target: Any
    message: Any


class Naming(TeamWorld):
    """Two targets; the speaker sees the target (components 0 and 1), the listener the last message (2 and 3)."""

    def __init__(self, *, discrete: bool = True, horizon: int = 4, obs_size: int = 4) -> None:
        super().__init__(
            "naming", ("speaker", "listener"), ("speaker", "listener"), obs_size=obs_size, actions=3,
            world_size=2 * obs_size, horizon=horizon, discrete=discrete,
        )  # fmt: skip

    def start(self, key: Any) -> Said:
        return Said(jax.random.randint(key, (), 0, 2), jnp.zeros(2))

    def move(self, key: Any, state: Said, actions: Any) -> Moved:
        vectors = jax.nn.one_hot(actions, 3) if self.discrete else actions
        reward = vectors[1, state.target] - 0.5
        return Moved(Said(state.target, vectors[0, :2]), jnp.full(2, reward), jnp.zeros((), bool), {})

    def look(self, state: Said) -> Moment:
        target = jax.nn.one_hot(state.target, 2)
        nothing = jnp.zeros(2)
        obs = jnp.stack([jnp.concatenate([target, nothing]), jnp.concatenate([nothing, state.message])])
        obs = jnp.pad(obs, ((0, 0), (0, self.obs_size - 4)))
        # nobody has the third action
        return Moment(obs, jnp.broadcast_to(jnp.array([True, True, False]), (2, 3)), obs.ravel())

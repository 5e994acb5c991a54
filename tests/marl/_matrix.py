"""A game of one move, whose best fits are known in closed form."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.marl import Moment, Moved, TeamWorld

PENALTY = np.array([[10.0, -20.0], [0.0, 5.0]])
"""Both must choose 0 for the best payoff; whoever does so alone is punished."""


class MatrixGame(TeamWorld):
    """The team gets `payoff[a_0, a_1]`; `mask` (2, actions) says what may be chosen."""

    team_reward = True

    def __init__(self, payoff: Any, *, mask: Any = None, rounds: int = 1) -> None:
        self._payoff = jnp.asarray(payoff, jnp.float32)
        size = self._payoff.shape[0]
        self._mask = jnp.ones((2, size), bool) if mask is None else jnp.asarray(mask, bool)
        super().__init__(
            "matrix", ("row", "column"), ("row", "column"), obs_size=2, actions=size, world_size=1, horizon=rounds
        )

    def start(self, key: jax.Array) -> jax.Array:
        return jnp.int32(0)

    def move(self, key: jax.Array, state: jax.Array, actions: jax.Array) -> Moved:
        half = self._payoff[actions[0], actions[1]] / 2
        return Moved(state + 1, jnp.stack([half, half]), jnp.zeros((), bool), {"events": jnp.ones(2)})

    def look(self, state: jax.Array) -> Moment:
        return Moment(jnp.eye(2), self._mask, jnp.ones(1))

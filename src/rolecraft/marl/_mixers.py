"""Mixers: from the values of the agents' own actions to the value, or values, that are fitted to the team's reward."""

from __future__ import annotations

from typing import Any, Protocol

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError, did_you_mean


class Mixer(Protocol):
    """How a team's value depends on its agents' values."""

    uses_world: bool
    """Whether the whole state is needed, and so kept in the replay."""

    def init(self, key: jax.Array, agents: int, world_size: int) -> Any:
        """Return the mixer's parameters, an empty dict where it has none."""
        ...

    def mix(self, params: Any, values: jax.Array, world: jax.Array) -> jax.Array:
        """Mix.

        Args:
            params: As `init` returned them.
            values: (..., n), of the actions taken or of the best ones.
            world: (..., world_size), or (..., 0) where it is not used.

        Returns:
            (..., m): m values, each of which is fitted to the team's reward.
        """
        ...


class Independent:
    """No mixing (IQL): each agent fits its own value to the team's reward; m = n."""

    uses_world = False

    def init(self, key: jax.Array, agents: int, world_size: int) -> Any:
        """Return no parameters."""
        return {}

    def mix(self, params: Any, values: jax.Array, world: jax.Array) -> jax.Array:
        """Return the values as they are."""
        return values


class Additive:
    """VDN: Q_tot = sum_i Q_i (arXiv 1706.05296); m = 1.

    The greedy joint action is every agent's own argmax. Only payoffs that are sums can be represented exactly.
    """

    uses_world = False

    def init(self, key: jax.Array, agents: int, world_size: int) -> Any:
        """Return no parameters."""
        return {}

    def mix(self, params: Any, values: jax.Array, world: jax.Array) -> jax.Array:
        """Return the sum, (..., 1)."""
        return values.sum(-1, keepdims=True)


class _Hyper(nn.Module):
    embedding: int
    hidden: int

    @nn.compact
    def __call__(self, values: jax.Array, world: jax.Array) -> jax.Array:
        n = values.shape[-1]

        def deep(size: int, name: str) -> jax.Array:
            hidden = nn.relu(nn.Dense(self.hidden, name=f"{name}_hidden")(world))
            made: jax.Array = nn.Dense(size, name=name)(hidden)
            return made

        first = jnp.abs(deep(n * self.embedding, "first")).reshape(*values.shape, self.embedding)
        hidden = nn.elu(jnp.einsum("...n,...ne->...e", values, first) + nn.Dense(self.embedding, name="bias")(world))
        last = jnp.abs(deep(self.embedding, "last"))
        return (hidden * last).sum(-1, keepdims=True) + deep(1, "offset")


class Monotone:
    """QMIX (arXiv 1803.11485): a network whose weights are made from the state and are not negative; m = 1.

    Q_tot rises with every Q_i, so that the greedy joint action is still every agent's own argmax.

    Args:
        embedding: Width of the mixing layer.
        hidden: Width of the layer that makes its weights.
    """

    uses_world = True

    def __init__(self, embedding: int = 32, hidden: int = 64) -> None:
        self._net = _Hyper(embedding, hidden)

    def init(self, key: jax.Array, agents: int, world_size: int) -> Any:
        """Return the parameters of the hypernetworks."""
        return self._net.init(key, jnp.zeros((1, agents)), jnp.zeros((1, world_size)))

    def mix(self, params: Any, values: jax.Array, world: jax.Array) -> jax.Array:
        """Return the team's value, (..., 1)."""
        made: Any = self._net.apply(params, values, world)
        return jnp.asarray(made)


MIXERS: dict[str, type[Any]] = {"independent": Independent, "vdn": Additive, "qmix": Monotone}


def make_mixer(name: str | Mixer) -> Mixer:
    """Return a mixer by name, or the one given.

    `independent`, `vdn`, `qmix`; the fully centralised learner is no mixer but another world: `joint_env`.

    Raises:
        UserError: If the name is unknown.
    """
    if not isinstance(name, str):
        return name
    if name not in MIXERS:
        raise UserError(f"there is no mixer {name!r}; expected {', '.join(MIXERS)}.{did_you_mean(name, MIXERS)}")
    mixer: Mixer = MIXERS[name]()
    return mixer

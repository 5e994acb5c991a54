"""Networks of actor-critic methods, one per agent with the parameters stacked, and actions that gradients pass through.

The relaxed sample of a discrete action is Gumbel-softmax (Jang, Gu, Poole, arXiv 1611.01144; Maddison, Mnih, Teh, arXiv
1611.00712).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError

Array = Any
"""A JAX array; its shape is in the docstrings."""
NEVER = -1e9
"""The logit of an action that is not available."""


class Mlp(nn.Module):
    """Layers of one width with an activation after each but the last."""

    outputs: int
    hidden: int = 64
    layers: int = 2
    activation: Callable[[Array], Array] = nn.relu
    last_scale: float = 1.0
    """Gain of the last layer's weights over Glorot's: small for a policy that starts uniform."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Map (..., inputs) to (..., outputs)."""
        return nn.Dense(self.outputs, kernel_init=_glorot(self.last_scale), name="out")(self.features(x))

    @nn.compact
    def features(self, x: Array) -> Array:
        """Return the last hidden layer, (..., hidden)."""
        for layer in range(self.layers):
            x = self.activation(nn.Dense(self.hidden, kernel_init=_glorot(1.0), name=f"hidden_{layer}")(x))
        return x


def _glorot(gain: float) -> Callable[..., Any]:
    """Uniform weights after Glorot; orthogonal ones take seconds to compile."""
    return nn.initializers.variance_scaling(gain**2, "fan_avg", "uniform")


def init_stack(net: nn.Module, key: Array, shape: tuple[int, ...], inputs: int) -> Any:
    """Return independent parameters of a network, every leaf with the leading axes `shape`.

    Args:
        net: A network over (..., inputs).
        key: Random key.
        shape: Leading axes: (agents,), (agents, sub-policies), ...
        inputs: Width of the input.
    """
    keys = jax.random.split(key, math.prod(shape))
    flat = jax.vmap(lambda one: net.init(one, jnp.zeros(inputs)))(keys)
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), flat)


def apply_stack(net: nn.Module, params: Any, x: Array, axes: int) -> Array:
    """Apply stacked networks, each to its own input.

    Args:
        net: A network over (..., inputs).
        params: From `init_stack` with `axes` leading axes.
        x: Shape (*shape, batch..., inputs).
        axes: Length of `shape`.

    Returns:
        Shape (*shape, batch..., outputs).
    """
    apply: Callable[..., Any] = net.apply
    for _ in range(axes):
        apply = jax.vmap(apply)
    return apply(params, x)


def clip_each(gradients: Any, limit: float, axes: int) -> Any:
    """Scale every weight's gradient down to a norm of `limit`, one norm per weight matrix and network.

    Args:
        gradients: A tree of stacked parameters.
        limit: Largest Euclidean norm, above 0.
        axes: Number of leading axes that count networks.
    """

    def clip(leaf: Array) -> Array:
        norm = jnp.sqrt(jnp.square(leaf).sum(axis=tuple(range(axes, leaf.ndim)), keepdims=True))
        return leaf * jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-12))

    return jax.tree.map(clip, gradients)


def gumbel_softmax(
    logits: Array, gumbel: Array, avail: Array | None = None, *, temperature: float = 1.0, straight_through: bool = True
) -> Array:
    """Return a relaxed sample of a categorical distribution that gradients pass through.

    Args:
        logits: Shape (..., actions).
        gumbel: Standard Gumbel noise of that shape (`jax.random.gumbel`); zeros give the mode.
        avail: Booleans of that shape; actions that are not available get no probability.
        temperature: Above 0. Towards 0 samples become one-hot, towards infinity uniform.
        straight_through: Return the one-hot sample, with the gradient of the relaxed one.

    Returns:
        Shape (..., actions), rows that add up to 1.

    Raises:
        UserError: If the temperature is not above 0.
    """
    if not temperature > 0:
        raise UserError(f"temperature of the Gumbel-softmax must be above 0, got {temperature}.")
    masked = logits + gumbel if avail is None else jnp.where(avail, logits + gumbel, NEVER)
    soft = jax.nn.softmax(masked / temperature)
    if not straight_through:
        return soft
    hard = jax.nn.one_hot(masked.argmax(-1), logits.shape[-1], dtype=soft.dtype)
    return hard + soft - jax.lax.stop_gradient(soft)

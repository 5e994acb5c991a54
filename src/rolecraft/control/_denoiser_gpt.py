"""BESO's denoiser: a causal transformer over the noise level, the goal, and states and actions in turn."""

from __future__ import annotations

import jax
from flax import linen as nn
from jax import numpy as jnp

_normal = nn.initializers.normal(0.02)


class GptDenoiser(nn.Module):
    """Tokens [sigma, goal, s_1, a_1, ..., s_k, a_k]; read at the actions (arXiv 2304.02532, section IV).

    States and goal share one embedding; the action of a step has the position of its state.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4

    @nn.compact
    def __call__(
        self,
        actions: jax.Array,
        level: jax.Array,
        goal: jax.Array,
        keep: jax.Array,
        obs: jax.Array,
        mask: jax.Array,
    ) -> jax.Array:
        """Return F for the actions of a window.

        Args:
            actions: Scaled noisy actions, shape (B, k, a).
            level: log(sigma) / 4, shape (B,).
            goal: Shape (B, d).
            keep: Shape (B,); 0 sets the goal to zeros, which is the null condition.
            obs: Shape (B, k, d).
            mask: Shape (B, k); False where a step lies before the episode's start.

        Returns:
            Shape (B, k, a).
        """
        batch, steps, size = actions.shape
        seen = nn.Dense(self.width, kernel_init=_normal, name="state")
        positions = self.param("positions", _normal, (steps + 1, self.width))
        noise = nn.Dense(self.width, kernel_init=_normal, name="sigma")(level[:, None])
        wanted = seen(goal * keep[:, None]) + positions[0]
        states = seen(obs) + positions[1:]
        moves = nn.Dense(self.width, kernel_init=_normal, name="action")(actions) + positions[1:]
        pairs = jnp.stack([states, moves], axis=2).reshape(batch, 2 * steps, self.width)
        tokens = jnp.concatenate([noise[:, None], wanted[:, None], pairs], axis=1)
        count = tokens.shape[1]
        known = jnp.concatenate([jnp.ones((batch, 2), bool), jnp.repeat(mask, 2, axis=1)], axis=1)
        allowed = jnp.tril(jnp.ones((count, count), bool))[None] & known[:, None, :]
        allowed = allowed | jnp.eye(count, dtype=bool)
        for _ in range(self.layers):
            tokens = _Block(self.width, self.heads)(tokens, allowed)
        read = nn.LayerNorm()(tokens[:, 3::2])
        hidden = jax.nn.silu(nn.Dense(100, kernel_init=_normal)(read))
        found: jax.Array = nn.Dense(size, kernel_init=_normal)(hidden)
        return found


class _Block(nn.Module):
    """Attention and a perceptron, each on the normalised tokens and added to them."""

    width: int
    heads: int

    @nn.compact
    def __call__(self, x: jax.Array, allowed: jax.Array) -> jax.Array:
        batch, count, _ = x.shape
        shape = (batch, count, self.heads, self.width // self.heads)
        parts = nn.Dense(3 * self.width, kernel_init=_normal)(nn.LayerNorm()(x))
        query, key, value = (part.reshape(shape) for part in jnp.split(parts, 3, axis=-1))
        found = jax.nn.dot_product_attention(query, key, value, mask=allowed[:, None])
        x = x + nn.Dense(self.width, kernel_init=_normal)(found.reshape(batch, count, self.width))
        h = jax.nn.gelu(nn.Dense(4 * self.width, kernel_init=_normal)(nn.LayerNorm()(x)))
        return x + nn.Dense(self.width, kernel_init=_normal)(h)

"""The temporal U-Net: convolutions along time, halved and doubled (Janner et al., arXiv 2205.09991).

Convolutions are written as one matrix product over shifted copies, which is several times faster on a CPU than a
convolution of so few channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
from flax import linen as nn
from jax import numpy as jnp


def mish(x: jax.Array) -> jax.Array:
    """Return x tanh(log(1 + e^x)) (Misra, arXiv 1908.08681), of x's shape.

    With w = e^x (e^x + 2) it is x w / (w + 2): one exponential, where `jax.nn.mish` takes one, a logarithm and a tanh,
    a third of a small network's time on a CPU.
    """
    # From 20 on the quotient is 1 in float32; the exponential of more would overflow.
    e = jnp.exp(jnp.minimum(x, 20.0))
    w = e * (e + 2.0)
    return x * (w / (w + 2.0))


class TemporalConv(nn.Module):
    """Convolution along time, zero-padded, of x (B, H, channels) to (B, H / stride, features)."""

    features: int
    kernel: int = 5
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply it."""
        half, length = self.kernel // 2, x.shape[1]
        padded = jnp.pad(x, ((0, 0), (half, half), (0, 0)))
        shifts = [padded[:, at : at + length : self.stride] for at in range(self.kernel)]
        found: jax.Array = nn.Dense(self.features)(jnp.concatenate(shifts, axis=-1))
        return found


class ResidualBlock(nn.Module):
    """Two convolutions with group normalisation and Mish; the embedding is added between them."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array, embedding: jax.Array) -> jax.Array:
        """Apply it to x (B, H, channels) and embedding (B, e)."""
        groups = math.gcd(8, self.features)
        h = mish(nn.GroupNorm(groups)(TemporalConv(self.features)(x)))
        h = h + nn.Dense(self.features)(mish(embedding))[:, None]
        h = mish(nn.GroupNorm(groups)(TemporalConv(self.features)(h)))
        skip = x if x.shape[-1] == self.features else nn.Dense(self.features)(x)
        return h + skip


def step_embedding(level: jax.Array, size: int) -> jax.Array:
    """Return sines and cosines of a step, of shape (B, size)."""
    rates = jnp.exp(-math.log(10000.0) * jnp.arange(size // 2) / max(1, size // 2 - 1))
    angles = level[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


class TemporalUnet(nn.Module):
    """The noise model of Decision Diffuser: x (B, H, d), step (B,), condition (B, c), keep (B,) to noise (B, H, d).

    H must be a multiple of 2 ** (number of multipliers - 1).
    """

    width: int = 128
    multipliers: Sequence[int] = (1, 4, 8)

    @nn.compact
    def __call__(self, x: jax.Array, level: jax.Array, condition: jax.Array, keep: jax.Array) -> jax.Array:
        """Apply it; where keep is 0 the embedding of the condition is 0, whatever the condition."""
        width, size = self.width, x.shape[-1]
        time = nn.Dense(width)(mish(nn.Dense(4 * width)(step_embedding(level, width))))
        asked = condition
        for features in (width, 4 * width):
            asked = mish(nn.Dense(features)(asked))
        asked = keep[:, None] * nn.Dense(width)(asked)
        embedding = jnp.concatenate([time, asked], axis=-1)
        passed: list[jax.Array] = []
        sizes = [width * each for each in self.multipliers]
        for place, features in enumerate(sizes):
            x = ResidualBlock(features)(x, embedding)
            x = ResidualBlock(features)(x, embedding)
            if place < len(sizes) - 1:
                passed.append(x)
                x = TemporalConv(features, kernel=3, stride=2)(x)
        x = ResidualBlock(sizes[-1])(x, embedding)
        for features in reversed(sizes[:-1]):
            x = _Double(features)(x)
            x = jnp.concatenate([x, passed.pop()], axis=-1)
            x = ResidualBlock(features)(x, embedding)
            x = ResidualBlock(features)(x, embedding)
        x = mish(nn.GroupNorm(math.gcd(8, width))(TemporalConv(width)(x)))
        found: jax.Array = nn.Dense(size)(x)
        return found


class _Double(nn.Module):
    """Twice as many steps: a convolution gives two steps for each one."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        both = TemporalConv(2 * self.features, kernel=3)(x)
        return both.reshape(x.shape[0], 2 * x.shape[1], self.features)

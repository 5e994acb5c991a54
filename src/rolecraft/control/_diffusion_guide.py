"""Guidance without a classifier, conditions composed, negated or dropped (arXiv 2207.12598, 2211.15657)."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax import numpy as jnp

Conditioned = Callable[[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]
"""Takes x (B, ...), level (B,), condition (B, d) and keep (B,); keep 0 stands for the null condition."""


def drop_conditions(key: jax.Array, count: int, share: float) -> jax.Array:
    """Return keep of shape (count,): 0 with probability `share`, where training drops the condition, else 1."""
    return (jax.random.uniform(key, (count,)) >= share).astype(jnp.float32)


def guided(model: Conditioned, values: jax.Array, weights: jax.Array) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the model with its guidance: m(null) + sum_i w_i (m(y_i) - m(null)).

    It serves noise models and denoisers alike, since both are affine in the score. One condition with weight 0 is the
    unconditional model and with weight 1 the conditional one; several with weight 1 are the product of the experts
    p(x | y_i) / p(x) on p(x); a negative weight leads away from its condition.

    Args:
        model: Noise model or denoiser.
        values: Shape (B, C, d): the conditions y_i; see `Guidance`.
        weights: Shape (B, C).

    Returns:
        A function of x (B, ...) and level (B,); it calls the model once, on B * (C + 1) rows.
    """
    samples, count, size = values.shape

    def predict(x: jax.Array, level: jax.Array) -> jax.Array:
        rows = count + 1
        condition = jnp.concatenate([jnp.zeros((samples, 1, size), values.dtype), values], axis=1)
        keep = jnp.concatenate([jnp.zeros((samples, 1)), jnp.ones((samples, count))], axis=1)
        found = model(
            jnp.repeat(x, rows, axis=0), jnp.repeat(level, rows, axis=0), condition.reshape(samples * rows, size),
            keep.reshape(-1),
        ).reshape((samples, rows, *x.shape[1:]))  # fmt: skip
        null, each = found[:, 0], found[:, 1:]
        scale = weights.reshape((samples, count) + (1,) * (x.ndim - 1))
        return null + (scale * (each - null[:, None])).sum(1)

    return predict


def conditional(
    model: Conditioned, values: jax.Array, keep: float | jax.Array = 1.0
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the model under one condition per sample and without guidance: one row per sample and call.

    Args:
        model: Noise model or denoiser.
        values: Shape (B, d).
        keep: 1, or 0 for the unconditional model.
    """

    def predict(x: jax.Array, level: jax.Array) -> jax.Array:
        return model(x, level, values, jnp.full(x.shape[:1], keep))

    return predict

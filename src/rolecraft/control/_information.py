"""Mutual information between a latent and an outcome, given what led up to it: estimates and the exact value.

Values are in nats. Systems: 040 (arXiv 2210.13435), and whatever needs to know what a latent tells about luck.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from numpy.typing import ArrayLike

from rolecraft.errors import UserError

Array = jax.Array
LEAST_BATCH = 32
"""Fewer negatives than this bias an InfoNCE estimate beyond use: it cannot exceed log(batch)."""


def conditional_bound(energies: Array, outcome: Array, prior: Array) -> Array:
    """Return, per sample, f(o, z, c) - log sum_o' p(o' | c) exp f(o', z, c).

    Its mean is at most I(outcome; z | condition) (the bound of Donsker and Varadhan on each conditional divergence),
    with equality at f = log p(o | c, z) / p(o | c). With the marginal of outcomes in the place of p(o' | c) the mean
    bounds I(outcome; z, condition), which is larger.

    Args:
        energies: f of every outcome, (..., M).
        outcome: Index of the outcome that came, (...).
        prior: p(. | c), (..., M), rows summing to 1.
    """
    if energies.shape != prior.shape or outcome.shape != energies.shape[:-1]:
        raise UserError(
            "energies and prior must be (..., M) and outcome (...), got "
            f"{energies.shape}, {prior.shape} and {outcome.shape}."
        )
    came = jnp.take_along_axis(energies, outcome[..., None], -1)[..., 0]
    return came - jax.nn.logsumexp(energies, axis=-1, b=prior)


def infonce(scores: Array) -> Array:
    """Return the InfoNCE bound log B + mean_i (s_ii - logsumexp_j s_ij), at most I and at most log B.

    Negatives drawn from the whole batch give the unconditional information. For the information given a condition,
    all rows of the batch must share the condition. Columns that equal the positive by chance lower the bound.

    Args:
        scores: (B, B), row i against outcome j; pairs that belong together lie on the diagonal.

    Raises:
        UserError: If the scores are not square, or B is below 32.
    """
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise UserError(f"scores: expected (B, B), got {scores.shape}.")
    if len(scores) < LEAST_BATCH:
        raise UserError(f"InfoNCE needs a batch of at least {LEAST_BATCH}, got {len(scores)}: it is biased below.")
    return jnp.log(len(scores)) + jnp.mean(jnp.diag(scores) - jax.nn.logsumexp(scores, axis=1))


def exact_conditional_information(joint: ArrayLike) -> float:
    """Return I(Z; O | C) of a joint distribution p(c, z, o), shape (C, Z, O).

    Raises:
        UserError: If it is no distribution of three variables.
    """
    table: np.ndarray[Any, np.dtype[np.float64]] = np.asarray(joint, dtype=float)
    if table.ndim != 3 or (table < 0).any() or not np.isclose(table.sum(), 1):
        raise UserError(f"joint: expected p(c, z, o) of shape (C, Z, O) that sums to 1, got shape {table.shape}.")
    condition = table.sum((1, 2), keepdims=True)
    apart = table.sum(2, keepdims=True) * table.sum(1, keepdims=True)
    there = table > 0
    return float((table[there] * np.log((table * condition)[there] / apart[there])).sum())

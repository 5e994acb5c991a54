"""Role representations without labels: k-means on what agents did, and a contrastive loss over its clusters.

ACORM (arXiv 2312.04819): agents of one cluster are each other's positives, the rest negatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft.errors import UserError

SAME = 1e-6
"""Points nearer than this, relative to the largest distance from their mean, are one point."""


class Clusters(NamedTuple):
    """What k-means found."""

    label: jax.Array
    """(n,) int32, 0 to k - 1; 0 for points that do not take part."""
    centre: jax.Array
    """(k, d)"""
    valid: jax.Array
    """() bool: there were at least k distinct points, so that no cluster is empty from the start."""


def kmeans(points: jax.Array, k: int, active: jax.Array | None = None, iterations: int = 10) -> Clusters:
    """Cluster a few points by Lloyd's iteration from far-apart centres; a pure function that may be vmapped.

    The first centre is the point farthest from the mean, each next one the point farthest from the centres so far, so
    that the result needs no key, and does not depend on the order of the points (but for ties and the labels' order).

    Args:
        points: (n, d).
        k: Clusters, 1 to n.
        active: (n,) bool: points that take part; None is all.
        iterations: Of Lloyd.

    Raises:
        UserError: If `points` has another shape, or k is not 1 to n.
    """
    if points.ndim != 2:
        raise UserError(f"k-means takes points (n, d), got shape {points.shape}; vmap it over further axes.")
    n = points.shape[0]
    check_clusters(k, n)
    on = jnp.ones(n, bool) if active is None else active
    weight = on.astype(points.dtype)
    mean = weight @ points / jnp.maximum(weight.sum(), 1.0)
    spread = jnp.where(on, jnp.square(points - mean).sum(-1), -1.0)

    def farthest(nearest: jax.Array, _: Any) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        pick = jnp.argmax(nearest)
        gap = jnp.square(points - points[pick]).sum(-1)
        return jnp.where(on, jnp.minimum(nearest, gap), -1.0), (points[pick], nearest[pick])

    # Distances to the mean choose the first centre only; after it they must not count as distances to a centre.
    first = points[jnp.argmax(spread)]
    gap = jnp.where(on, jnp.square(points - first).sum(-1), -1.0)
    _, (others, apart) = jax.lax.scan(farthest, gap, length=k - 1)
    centre = jnp.concatenate([first[None], others])
    valid = (on.sum() >= k) & jnp.all(apart > SAME**2 * jnp.maximum(spread.max(), 1e-30))

    def assign(centre: jax.Array) -> jax.Array:
        return jnp.argmin(jnp.square(points[:, None] - centre).sum(-1), -1)

    def lloyd(centre: jax.Array, _: Any) -> tuple[jax.Array, None]:
        member = jax.nn.one_hot(assign(centre), k, dtype=points.dtype) * weight[:, None]
        count = member.sum(0)
        moved = member.T @ points / jnp.maximum(count, 1.0)[:, None]
        return jnp.where(count[:, None] > 0, moved, centre), None

    centre, _ = jax.lax.scan(lloyd, centre, length=iterations)
    return Clusters(jnp.where(on, assign(centre), 0).astype(jnp.int32), centre, valid)


def check_clusters(k: int, agents: int) -> None:
    """Refuse a number of clusters that agents cannot fill.

    Raises:
        UserError: If k is not 1 to the number of agents.
    """
    if not 1 <= k <= agents:
        raise UserError(f"cluster_num must be 1 to the number of agents, {agents}, got {k}; give fewer clusters.")


def contrastive_loss(
    query: jax.Array, key: jax.Array, label: jax.Array, active: jax.Array, weight: jax.Array
) -> jax.Array:
    """Return ACORM's role loss, the mean over the active anchors i of the term below.

    -log( sum_{j in S(i)} exp(z_i W zbar_j) / sum_j exp(z_i W zbar_j) ), S(i) the anchor's cluster with itself.

    Args:
        query: (..., n, r), role vectors z.
        key: (..., n, r), of the momentum network; no gradient flows into them.
        label: (..., n), clusters.
        active: (..., n) bool: who takes part as anchor, positive and negative.
        weight: (r, r), W.

    Returns:
        (), 0 where nobody is active.

    Raises:
        UserError: If the shapes do not fit.
    """
    if query.shape != key.shape or label.shape != query.shape[:-1] or active.shape != label.shape:
        raise UserError(
            f"expected queries and keys (..., n, r), labels and active (..., n); got {query.shape}, {key.shape}, "
            f"{label.shape} and {active.shape}."
        )
    if weight.shape != (query.shape[-1],) * 2:
        raise UserError(f"weight has shape {weight.shape}, expected (r, r) = {(query.shape[-1],) * 2}.")
    logits = jnp.einsum("...ir,rs,...js->...ij", query, weight, jax.lax.stop_gradient(key))
    logits = jnp.where(active[..., None, :], logits, -jnp.inf)
    # A row without an active partner is all -inf, whose logsumexp has no gradient: give such rows zeros.
    logits = jnp.where(active[..., :, None], logits, 0.0)
    same = (label[..., :, None] == label[..., None, :]) | ~active[..., :, None]
    loss = jax.nn.logsumexp(logits, -1) - jax.nn.logsumexp(jnp.where(same, logits, -jnp.inf), -1)
    return jnp.where(active, loss, 0.0).sum() / jnp.maximum(active.sum(), 1)


def momentum_update(slow: Any, fast: Any, tau: float) -> Any:
    """Return (1 - tau) slow + tau fast for every leaf: momentum keys and soft target networks."""
    return jax.tree.map(lambda old, new: (1 - tau) * old + tau * new, slow, fast)


__all__ = ["Clusters", "check_clusters", "contrastive_loss", "kmeans", "momentum_update"]

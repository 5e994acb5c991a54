"""Replay of stretches of play, as one tree of arrays on the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft._jax import check_memory, tree_bytes
from rolecraft.errors import UserError


class Replay(NamedTuple):
    """A ring of the last `capacity` stretches."""

    data: Any
    """Tree of arrays, each of shape (capacity, ...)."""
    place: jax.Array
    """Where the next one goes."""
    filled: jax.Array
    """Stretches held."""


def make_replay(like: Any, capacity: int, *, copies: int = 1, field: str = "buffer") -> Replay:
    """Return an empty replay.

    Args:
        like: One stretch, or its shapes (`jax.eval_shape`).
        capacity: Stretches that it holds.
        copies: Replays of this size that will exist at once (one per seed); for the estimate of memory.
        field: The configuration's field that sets the capacity, named where it does not fit.

    Raises:
        UserError: If it would not fit into memory, or the capacity is below 1.
    """
    if capacity < 1:
        raise UserError(f"{field} must be at least 1, got {capacity}.")
    needed = tree_bytes(like) * capacity * copies
    check_memory(needed, f"a replay of {capacity} stretches" + (f" for {copies} seeds" if copies > 1 else ""), field)
    data = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), like)
    return Replay(data, jnp.int32(0), jnp.int32(0))


def push(replay: Replay, batch: Any) -> Replay:
    """Add stretches, (B, ...) each; the oldest go. B may not exceed the capacity."""
    leaves = jax.tree.leaves(replay.data)
    capacity, size = leaves[0].shape[0], jax.tree.leaves(batch)[0].shape[0]
    if size > capacity:
        raise UserError(f"{size} stretches do not fit into a replay of {capacity}; make the replay larger.")
    where = (replay.place + jnp.arange(size)) % capacity
    data = jax.tree.map(lambda old, new: old.at[where].set(new), replay.data, batch)
    return Replay(data, (replay.place + size) % capacity, jnp.minimum(replay.filled + size, capacity))


def draw(replay: Replay, key: jax.Array, batch: int) -> Any:
    """Draw stretches with replacement, (batch, ...) each; the replay must hold one."""
    which = jax.random.randint(key, (batch,), 0, jnp.maximum(replay.filled, 1))
    return jax.tree.map(lambda leaf: leaf[which], replay.data)

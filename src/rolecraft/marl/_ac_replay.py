"""Replay of joint transitions: one row holds what every agent saw, did and got at the same moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft._jax import check_memory, tree_bytes
from rolecraft.errors import UserError

Array = Any


class Transition(NamedTuple):
    """Joint transitions; `rows` is any number of leading axes."""

    obs: Array
    """(rows, n, d)"""
    avail: Array
    """Actions at hand, (rows, n, actions); for continuous actions, which components an agent has."""
    action: Array
    """As vectors, (rows, n, actions): one-hot for discrete actions."""
    reward: Array
    """(rows, n)"""
    next_obs: Array
    """Also where an episode ended: its last observation, (rows, n, d)."""
    next_avail: Array
    """(rows, n, actions)"""
    ended: Array
    """Nothing follows for this agent, so that no value is added, (rows, n)."""
    active: Array
    """The agent was still there: its losses count, (rows, n)."""
    sub: Array
    """Number of the sub-policy that each agent used in the episode, (rows, n) int32."""


class Replay(NamedTuple):
    """A ring of joint transitions."""

    rows: Transition
    """Leaves of shape (capacity, ...)."""
    written: Array
    """Rows written in all, () int32."""

    @property
    def capacity(self) -> int:
        """Rows it can hold."""
        return int(self.rows.reward.shape[-2])


def make_replay(example: Transition, capacity: int, block: int) -> Replay:
    """Return an empty ring.

    Args:
        example: One transition without leading axes, or its shapes.
        capacity: Rows; rounded up to whole blocks.
        block: Rows written at a time.

    Raises:
        UserError: If a size is below 1, agents disagree in number, or the memory does not suffice.
    """
    if capacity < 1 or block < 1:
        raise UserError(f"capacity and block must be at least 1, got {capacity} and {block}.")
    counts = {name: leaf.shape[0] for name, leaf in example._asdict().items()}
    if len(set(counts.values())) > 1:
        raise UserError(f"a joint transition needs one row per agent in every field, got {counts}.")
    whole = -(-capacity // block) * block
    shapes = jax.eval_shape(lambda: jax.tree.map(lambda leaf: jnp.zeros((whole, *leaf.shape), leaf.dtype), example))
    check_memory(tree_bytes(shapes), f"replay of {whole} joint transitions", "capacity")
    return Replay(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), jnp.zeros((), jnp.int32))


def write(replay: Replay, block: Transition) -> Replay:
    """Write a block of rows over the oldest ones.

    Args:
        replay: The ring; its capacity must be a whole number of blocks, as `make_replay` sees to.
        block: Leaves of shape (block, ...), all of one length.

    Raises:
        UserError: If the fields differ in length, or the block does not fit.
    """
    length = rows_of(block)
    if replay.capacity % length:
        raise UserError(f"a replay of {replay.capacity} rows takes blocks that divide it, got {length} rows.")
    at = replay.written % replay.capacity
    rows = jax.tree.map(lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, at, 0), replay.rows, block)
    return Replay(rows, replay.written + length)


def rows_of(rows: Transition) -> int:
    """Return the number of joint rows.

    Raises:
        UserError: If the fields differ in it: agents would be drawn from different moments.
    """
    lengths = {name: leaf.shape[0] for name, leaf in rows._asdict().items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"all agents' fields must be indexed jointly, got lengths {lengths}.")
    return int(rows.reward.shape[0])


def sample(replay: Replay, key: Array, batch: int) -> Transition:
    """Draw rows uniformly, with one index for all agents and fields; leaves of shape (batch, ...).

    The ring must not be empty.
    """
    index = jax.random.randint(key, (batch,), 0, jnp.minimum(replay.written, replay.capacity))
    rows: Transition = jax.tree.map(lambda leaf: leaf[index], replay.rows)
    return rows


def newest(replay: Replay, batch: int) -> Transition:
    """Return the last rows written, the newest last; leaves of shape (batch, ...).

    Where fewer were written, the oldest of them stands in for the missing.
    """
    back = jnp.minimum(jnp.arange(batch)[::-1], replay.written - 1)
    index = (replay.written - 1 - back) % replay.capacity
    rows: Transition = jax.tree.map(lambda leaf: leaf[index], replay.rows)
    return rows

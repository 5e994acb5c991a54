"""First weights of networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import numpy as jnp


def orthogonal(scale: float = 1.0) -> Callable[..., jax.Array]:
    """Return an initialiser like flax's of this name, which calls no LAPACK and so compiles faster and never hangs.

    On CPUs, several batched calls of LAPACK in one program wait for each other if there are no more threads than calls;
    one network whose weights are drawn for several seeds at once is enough on two cores.

    Args:
        scale: Length of the rows or columns, whichever are fewer.

    Returns:
        `init(key, shape, dtype)`: a matrix (of the product of all but the last of `shape`, by the last) whose rows or
        columns, whichever are fewer, are orthogonal, drawn uniformly (Haar) by Gram-Schmidt from a normal matrix.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        rows, columns = math.prod(shape[:-1]), shape[-1]
        few, many = sorted((rows, columns))
        drawn = jax.random.normal(key, (few, many), dtype)

        def straighten(at: Any, found: jax.Array) -> jax.Array:
            vector = drawn[at]
            for _ in range(2):  # once more: rounding leaves too much of the others in a vector that is mostly theirs
                vector = vector - found.T @ (found @ vector)
            return found.at[at].set(vector / jnp.linalg.norm(vector))

        found = jax.lax.fori_loop(0, few, straighten, jnp.zeros_like(drawn))
        matrix: jax.Array = scale * (found.T if rows > columns else found).reshape(shape)
        return matrix

    return init

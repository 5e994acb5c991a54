"""What one agent makes of another's past: a guess, a set, or an embedding, for its own policy to read.

One contract for all models of other agents, so that a method can change them without changing its policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

Array = Any
"""A JAX array."""
OpponentKind = Literal["point", "set", "embedding"]


@runtime_checkable
class OpponentModel(Protocol):
    """A model of another agent, as pure functions that may be jitted and vmapped."""

    kind: OpponentKind
    """`point`: its likeliest action; `set`: actions with the true one among them, likely; `embedding`: features."""
    size: int
    """Numbers that `predict` gives to a policy."""

    def init(self, key: Array) -> Any:
        """Return the state of a model that has seen nothing."""
        ...

    def fit(self, state: Any, history: Array, actions: Array, key: Array) -> tuple[Any, Mapping[str, Array]]:
        """Learn from episodes.

        Args:
            state: Of the model.
            history: What the actions are to be told from, (episodes, steps, d).
            actions: What the other agent did, (episodes, steps) int32.
            key: Random key.

        Returns:
            The next state and some figures.
        """
        ...

    def predict(self, state: Any, history: Array, key: Array) -> Array:
        """Return what a policy is told, (..., size), of histories (..., d)."""
        ...


def stack_history(obs: Array, length: int) -> Array:
    """Return the last `length` observations of every step, oldest first, zeros before an episode's start.

    Args:
        obs: Shape (episodes, steps, d).
        length: Observations per history, at least 1.

    Returns:
        Shape (episodes, steps, length * d).
    """
    from jax import numpy as jnp

    steps = obs.shape[1]
    padded = jnp.pad(obs, ((0, 0), (length - 1, 0), (0, 0)))
    return jnp.concatenate([padded[:, back : back + steps] for back in range(length)], -1)

"""A finite set of goals: one vectorised test, a sampler over goals seen so far, counts of what was commanded.

Goals change reward and termination only, never the dynamics. System 051 (arXiv 2605.23551) and others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import UserError

Array = jax.Array
Achieved = Callable[[Array, Array], Array]
"""`achieved(obs, goals)`: observations of shape (..., D) and all goals of shape (N, ...) in, bool (..., N) out."""


@dataclass(frozen=True)
class GoalSet:
    """N goals and the oracle that tells which of them an observation achieves.

    Raises:
        UserError: If there is no goal, or names and goals differ in number.
    """

    goals: Array
    """One row per goal, of shape (N, features); what a goal-conditioned network is shown."""
    achieved: Achieved
    """See `Achieved`. It may read the observation only: what is hidden in the state cannot be a goal."""
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse an empty list, and names that do not fit."""
        if not self.names or len(self.names) != len(self.goals):
            raise UserError(
                f"goals: expected at least one goal and a name for each, got goals of shape {self.goals.shape} "
                f"and {len(self.names)} names."
            )

    def __len__(self) -> int:
        return len(self.names)

    def check(self, observation: Any) -> None:
        """Test the oracle's shape on one observation, without running it.

        Raises:
            UserError: If it does not return bool (N,), or two observations do not give (2, N).
        """
        one = jnp.asarray(observation)
        for lead in ((), (2,)):
            batch = jnp.broadcast_to(one, (*lead, *one.shape))
            try:
                found = jax.eval_shape(self.achieved, batch, self.goals)
            except (TypeError, ValueError) as error:
                raise UserError(
                    f"achieved(obs, goals) fails for obs (..., D) = {batch.shape} and goals (N, ...) = "
                    f"{self.goals.shape}: {error}"
                ) from None
            if found.shape != (*lead, len(self)) or found.dtype != jnp.bool_:
                raise UserError(
                    f"achieved(obs, goals) must return bool (..., N) = {(*lead, len(self))} for obs (..., D) = "
                    f"{batch.shape}, got {found.dtype} {found.shape}."
                )


def mask_goals(masks: Any, names: Sequence[str] | None = None, *, need: str = "any") -> GoalSet:
    """Make goals that are masks over a 0/1 observation.

    Args:
        masks: Shape (N, D), entries 0 or 1, at least a 1 in each row.
        names: One per goal; None numbers them.
        need: `any`: one of the mask's ones suffices (a union: "40 to 44 stone"); `all`: every one must be there.

    Raises:
        UserError: If `masks` has another form, or `need` is unknown.
    """
    table = np.asarray(masks, dtype=np.float32)
    if table.ndim != 2 or not np.isin(table, (0, 1)).all() or not table.any(1).all():
        raise UserError(f"masks: expected (N, D) of 0 and 1 with a 1 in each row, got shape {table.shape}.")
    if need not in ("any", "all"):
        raise UserError(f"need: expected 'any' or 'all', got {need!r}.")
    least = np.full(len(table), 1.0) if need == "any" else table.sum(1)

    def achieved(obs: Array, goals: Array) -> Array:
        return (obs > 0).astype(jnp.float32) @ goals.T > least - 0.5

    return GoalSet(jnp.asarray(table), achieved, tuple(names or (f"goal_{i}" for i in range(len(table)))))


def sample_goals(key: Array, seen: Array, shape: tuple[int, ...], *, only_seen: bool = True) -> Array:
    """Draw goal indices uniformly from the goals seen achieved so far; from all goals if none was seen yet.

    Args:
        key: Random key.
        seen: Bool (N,).
        shape: Of the indices.
        only_seen: False draws from all goals.
    """
    usable = jnp.where(only_seen & seen.any(), seen, True)
    return jax.random.categorical(key, jnp.where(usable, 0.0, -jnp.inf), shape=shape)


def sample_achieved(key: Array, achieved: Array, otherwise: Array) -> Array:
    """Draw, for each row, one of the goals achieved there; rows without any take `otherwise`.

    Args:
        key: Random key.
        achieved: Bool (..., N).
        otherwise: Goal indices (...).
    """
    some = achieved.any(-1)
    drawn = jax.random.categorical(key, jnp.where(achieved | ~some[..., None], 0.0, -jnp.inf))
    return jnp.where(some, drawn, otherwise)


class GoalCounts(NamedTuple):
    """How commands ended, per goal (N,). A goal that held when it was commanded counts as `held` only."""

    successes: Array
    failures: Array
    held: Array

    @classmethod
    def zeros(cls, goals: int) -> GoalCounts:
        """Return empty counts."""
        return cls(*(jnp.zeros(goals, jnp.int32) for _ in range(3)))

    def add(self, goal: Array, success: Array, ended: Array, held: Array) -> GoalCounts:
        """Count commands that came to an end.

        Args:
            goal: Commanded goals (B,).
            success: Bool (B,): achieved now.
            ended: Bool (B,): the command is over, achieved or not.
            held: Bool (B,): the goal held when it was commanded.
        """
        won, lost = success & ended & ~held, ended & ~success & ~held
        return GoalCounts(
            *(old.at[goal].add(new.astype(jnp.int32)) for old, new in zip(self, (won, lost, ended & held), strict=True))
        )

    def rates(self) -> np.ndarray[Any, Any]:
        """Return the success rate of each goal (N,); NaN where no command of it counts."""
        won, lost = np.asarray(self.successes), np.asarray(self.failures)
        return np.where(won + lost > 0, won / np.maximum(won + lost, 1), np.nan)

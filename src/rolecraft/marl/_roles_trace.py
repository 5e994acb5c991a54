"""Who played which role when: traces of teams whose policies note a role, and what can be read off them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError
from rolecraft.marl._evaluate import Policy
from rolecraft.marl._team import TeamEnv


@dataclass(frozen=True)
class RoleTrace:
    """Roles and actions of n agents in E episodes of at most T steps."""

    role: NDArray[np.int64]
    """(E, T, n), from 0."""
    action: NDArray[np.int64]
    """(E, T, n)"""
    reward: NDArray[np.float32]
    """(E, T), the team's."""
    played: NDArray[np.bool_]
    """(E, T): the steps before the episode's end; nothing else counts."""

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit.

        Raises:
            UserError: If they do not, or nothing was played.
        """
        if self.role.ndim != 3 or self.action.shape != self.role.shape:
            raise UserError(
                f"roles {self.role.shape} and actions {self.action.shape}: expected one shape (E, T, n) for both."
            )
        for name in ("reward", "played"):
            if (found := getattr(self, name).shape) != self.role.shape[:2]:
                raise UserError(f"{name} has shape {found}, expected (E, T) = {self.role.shape[:2]}.")
        if not self.played.any():
            raise UserError("the trace has no step that was played.")

    def usage(self, roles: int) -> NDArray[np.float64]:
        """Return the share of its steps that each agent spent in each role, (n, roles); rows sum to 1."""
        hot = self.role[self.played][..., None] == np.arange(roles)
        share: NDArray[np.float64] = hot.mean(0)
        return share

    def switches(self) -> float:
        """Return the share of steps, the first of an episode apart, at which an agent's role differs from before."""
        both = self.played[:, 1:] & self.played[:, :-1]
        changed = (self.role[:, 1:] != self.role[:, :-1])[both]
        return float(changed.mean()) if changed.size else 0.0

    def actions_by_role(self, roles: int, actions: int) -> NDArray[np.int64]:
        """Count which actions were taken in which role, (roles, actions)."""
        pair = self.role[self.played] * actions + self.action[self.played]
        counted: NDArray[np.int64] = np.bincount(pair.ravel(), minlength=roles * actions).reshape(roles, actions)
        return counted

    def information(self, kinds: ArrayLike) -> float:
        """Return how much an agent's role at a step tells of its kind, as normalised mutual information.

        Args:
            kinds: (n,), whole numbers, such as unit types.

        Returns:
            0 (nothing) to 1 (all).

        Raises:
            UserError: If there is not one kind per agent.
        """
        from sklearn.metrics import normalized_mutual_info_score

        own = np.asarray(kinds)
        if own.shape != self.role.shape[2:]:
            raise UserError(f"kinds have shape {own.shape}, expected (n,) = {self.role.shape[2:]}.")
        every = np.broadcast_to(own, self.role.shape)[self.played]
        return float(normalized_mutual_info_score(every.ravel(), self.role[self.played].ravel()))


def trace_roles(env: TeamEnv, policy: Policy, key: jax.Array, episodes: int = 8, *, note: str = "role") -> RoleTrace:
    """Play whole episodes, and keep what the policy notes of roles.

    Args:
        env: The world.
        policy: Who plays.
        key: Decides starts, chance and draws.
        episodes: E, played side by side.
        note: Name of the policy's note that holds the roles, (n,) whole numbers.

    Raises:
        UserError: If the policy notes no such thing, or it is not one number per agent.
    """

    def play(key: jax.Array) -> Any:
        begin, own, rest = jax.random.split(key, 3)
        state, step = env.reset(begin)

        def move(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            state, step, memory, alive = carry
            act, world = jax.random.split(key)
            memory, action, notes = policy.act(memory, step, act)
            if note not in notes:
                raise UserError(f"the policy notes {', '.join(notes) or 'nothing'}, there is no {note!r}.")
            if notes[note].shape != action.shape:
                raise UserError(f"note {note!r} has shape {notes[note].shape}, expected (n,) = {action.shape}.")
            state, step = env.step(world, state, action)
            return (state, step, memory, alive & ~step.done), (notes[note], action, step.reward.sum(), alive)

        first = (state, step, policy.start(own), jnp.ones((), bool))
        return jax.lax.scan(move, first, jax.random.split(rest, env.horizon))[1]

    role, action, reward, played = jax.device_get(jax.jit(jax.vmap(play))(jax.random.split(key, episodes)))
    return RoleTrace(role.astype(np.int64), action.astype(np.int64), np.asarray(reward), np.asarray(played))


__all__ = ["RoleTrace", "trace_roles"]

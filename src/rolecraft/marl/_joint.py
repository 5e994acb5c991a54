"""The centralised team: one learner that sees everything and chooses for all."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._team import Step, TeamEnv

MOST = 4096
"""Joint actions that a network may have as outputs."""


def joint_env(env: TeamEnv) -> JointTeam:
    """Return the world as one agent that sees all observations and has a choice for each joint action.

    Raises:
        UserError: If actions are continuous, or there are too many joint actions.
    """
    return JointTeam(env)


class JointTeam:
    """A team as one agent: |A|^n choices, observations side by side; `info` keeps the agents' events and rewards."""

    def __init__(self, env: TeamEnv) -> None:
        n, choices = len(env.agents), env.actions
        if not env.discrete:
            raise UserError(f"{env.name}: actions are continuous; a joint choice needs discrete ones.")
        if choices**n > MOST:
            raise UserError(
                f"{env.name}: actions ** agents = {choices} ** {n} = {choices**n} joint actions, at most {MOST}; "
                "use a mixer instead of a centralised learner."
            )
        self.env, self._n, self._choices = env, n, choices
        self.name = f"{env.name} (joint)"
        self.agents: tuple[str, ...] = ("team",)
        self.roles: tuple[str, ...] = ("team",)
        self.members, self.member_roles = env.agents, env.roles
        self.obs_size, self.world_size, self.horizon = n * env.obs_size, env.world_size, env.horizon
        self.actions = self.action_size = choices**n
        self.discrete = True
        self.team_reward = getattr(env, "team_reward", False)

    def split(self, action: jax.Array) -> jax.Array:
        """Return the agents' actions (n,) of a joint one (); the last agent's counts quickest."""
        return jnp.stack(jnp.unravel_index(action, (self._choices,) * self._n)).astype(jnp.int32)

    def reset(self, key: jax.Array) -> tuple[Any, Step]:
        """Start an episode; see `TeamEnv`."""
        state, step = self.env.reset(key)
        return state, self._seen(step)

    def step(self, key: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Take a joint action (1,); see `TeamEnv`."""
        state, step = self.env.step(key, state, self.split(actions[0]))
        return state, self._seen(step)

    def render(self, state: Any) -> str:
        """Draw the world, if it can be drawn; see `render_state`."""
        from rolecraft.marl._show import render_state

        return render_state(self.env, state)

    def _seen(self, step: Step) -> Step:
        avail = step.avail[0]
        for own in step.avail[1:]:
            avail = (avail[:, None] & own).ravel()
        info = step.info | {"final_obs": step.info["final_obs"].reshape(1, -1), "agent_reward": step.reward}
        return Step(step.obs.reshape(1, -1), avail[None], step.world, step.reward.sum(keepdims=True), step.done, info)

"""Agents that leave before the episode's end, in an environment of JaxMARL's interface."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import pytest
from jax import numpy as jnp

pytest.importorskip("jaxmarl")

from rolecraft.marl import from_jaxmarl


class Skirmish:
    """Unit 1 dies in the second of four steps; the fight ends in the fourth."""

    name, agents, max_steps = "skirmish", ("unit_0", "unit_1"), 10

    def action_space(self, agent: str) -> Any:
        return SimpleNamespace(n=2)

    def _obs(self, time: Any) -> dict[str, Any]:
        return {agent: jnp.full(1, time, jnp.float32) for agent in self.agents}

    def reset(self, key: Any) -> tuple[dict[str, Any], Any]:
        return self._obs(0), jnp.int32(0)

    def step_env(self, key: Any, time: Any, actions: Any) -> tuple[Any, ...]:
        over = time >= 3
        done = {"unit_0": over, "unit_1": time >= 1, "__all__": over}
        return self._obs(time + 1), time + 1, dict.fromkeys(self.agents, 1.0), done, {}


def test_it_is_said_who_leaves_and_who_had_left() -> None:
    env = from_jaxmarl(Skirmish())
    step_env, (state, step) = jax.jit(env.step), env.reset(jax.random.PRNGKey(0))
    leaves, left = [], []
    for _ in range(5):
        state, step = step_env(jax.random.PRNGKey(1), state, jnp.zeros(2, jnp.int32))
        leaves.append(step.info["agent_done"].tolist())
        left.append(step.info["agent_was_done"].tolist())
    assert leaves == [[False, False], [False, True], [False, False], [False, False], [False, False]]
    assert left == [[False, False], [False, False], [False, True], [False, True], [False, False]]

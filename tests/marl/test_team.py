from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import TeamEnv, from_jaxmarl, from_jumanji, from_pettingzoo, role_features, team_env, with_roles
from tests.marl._matrix import MatrixGame


def form(env: TeamEnv) -> tuple[Any, Any]:
    """Shapes of a reset and of a step; they must be the same."""
    state, first = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    n = len(env.agents)
    actions = jnp.zeros((n,), jnp.int32) if env.discrete else jnp.zeros((n, env.action_size))
    after, step = jax.eval_shape(env.step, jax.random.PRNGKey(0), state, actions)
    assert jax.tree.structure((state, first)) == jax.tree.structure((after, step))
    for before, later in zip(jax.tree.leaves(first), jax.tree.leaves(step), strict=True):
        assert (before.shape, before.dtype) == (later.shape, later.dtype)
    assert first.obs.shape == (n, env.obs_size) == step.info["final_obs"].shape
    assert first.avail.shape == (n, env.actions)
    assert first.world.shape == (env.world_size,)
    return state, step


def test_agents_of_unequal_size_are_padded_and_masked() -> None:
    env = team_env("MPE_simple_speaker_listener_v4")
    assert env.roles == ("speaker", "listener")
    form(env)
    state, first = jax.jit(env.reset)(jax.random.PRNGKey(0))
    assert first.avail.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert np.count_nonzero(first.obs[0, :3]) == 3
    assert not np.asarray(first.obs[0, 3:]).any()
    np.testing.assert_array_equal(first.world, np.concatenate([first.obs[0, :3], first.obs[1]]))
    _, theirs = jax.jit(env.env.reset)(jax.random.PRNGKey(0))  # type: ignore[attr-defined]
    np.testing.assert_array_equal(state.inner.state.p_pos, theirs.p_pos)


def test_a_step_is_jaxmarls_own_until_the_episode_ends() -> None:
    env = team_env("MPE_simple_tag_v3", horizon=2)
    assert env.roles == ("adversaries", "adversaries", "adversaries", "agents")
    key, actions = jax.random.PRNGKey(3), jnp.array([1, 2, 3, 4])
    state, _ = jax.jit(env.reset)(key)
    step = jax.jit(env.step)
    now, _ = jax.random.split(key)
    obs, _, reward, _, _ = jax.jit(env.env.step_env)(  # type: ignore[attr-defined]
        now, state.inner.state, {agent: actions[i] for i, agent in enumerate(env.agents)}
    )
    state, first = step(key, state, actions)
    for i, agent in enumerate(env.agents):
        np.testing.assert_allclose(first.obs[i, : obs[agent].size], obs[agent], atol=1e-6)
        assert float(first.reward[i]) == pytest.approx(float(reward[agent]), abs=1e-5)
    assert not first.done
    state, second = step(key, state, actions)
    assert second.done
    assert int(state.time) == 0
    assert int(state.inner.state.step) == 0
    assert np.abs(second.obs - second.info["final_obs"]).max() > 0.01


@pytest.mark.parametrize(
    ("name", "kwargs", "roles", "actions"),
    [
        ("HeuristicEnemySMAX", {"scenario": "3m"}, ("ally",) * 3, 8),
        pytest.param("overcooked", {"layout": "cramped_room"}, ("agent",) * 2, 6, marks=pytest.mark.slow),
        ("lbf", {}, ("agent",) * 2, 6),
        ("MPE_simple_adversary_v3", {"action_type": "Continuous"}, ("adversaries", "agents", "agents"), 5),
    ],
)
def test_other_worlds_fit_the_contract(name: str, kwargs: dict[str, Any], roles: tuple[str, ...], actions: int) -> None:
    env = team_env(name, **kwargs)
    assert (env.roles, env.actions, env.action_size) == (roles, actions, actions)
    assert env.discrete == (name != "MPE_simple_adversary_v3")
    form(env)


def test_role_features_tell_roles_agents_or_nothing() -> None:
    roles = ("a", "b", "a")
    assert role_features(roles).tolist() == [[1, 0], [0, 1], [1, 0]]
    assert role_features(roles, "agent").tolist() == np.eye(3).tolist()
    assert role_features(roles, "none").shape == (3, 0)
    assert role_features(roles, {"b": [0.5, 2.0], "a": [1.0, 3.0]}).tolist() == [[1, 3], [0.5, 2], [1, 3]]
    given = np.arange(6.0).reshape(3, 2)
    assert role_features(roles, given).tolist() == given.tolist()
    joined = with_roles(jnp.zeros((4, 3, 5)), role_features(roles))
    assert joined.shape == (4, 3, 7)
    assert joined[2, 1].tolist() == [0] * 5 + [0, 1]


def test_bad_role_features_are_refused() -> None:
    bad: list[tuple[Any, str]] = [
        ("onehott", "Did you mean 'onehot'"),
        ({"a": [1.0]}, "role 'b' has no vector; given: a"),
        ({"a": [1.0], "b": [1.0, 2.0]}, "expected one shape"),
        (np.zeros((3, 2)), r"expected \(n, r\) = \(2, r\)"),
        (np.array([[1.0], [np.nan]]), "NaN or infinity"),
    ]
    for kind, match in bad:
        with pytest.raises(UserError, match=match):
            role_features(("a", "b"), kind)
    with pytest.raises(UserError, match=r"observations of 2 agents .* of 3 \(n, r\) = \(3, 2\)"):
        with_roles(jnp.zeros((2, 4)), role_features(("a", "b", "a")))


def test_bad_environments_are_refused() -> None:
    class Nothing:
        pass

    with pytest.raises(UserError, match="it has no attribute 'agents'"):
        from_jaxmarl(Nothing())
    with pytest.raises(UserError, match="not a Jumanji environment of several agents"):
        from_jumanji(Nothing())
    with pytest.raises(UserError, match="no attribute 'possible_agents'"):
        from_pettingzoo(3)
    with pytest.raises(UserError, match="give horizon="):
        team_env("coin_game")
    with pytest.raises(UserError, match="4 agents and 2 roles"):
        team_env("MPE_simple_tag_v3", roles=("cat", "mouse"))
    with pytest.raises(UserError, match="no SMAX scenario '3n'"):
        team_env("HeuristicEnemySMAX", scenario="3n")
    with pytest.raises(UserError, match=r"no Overcooked layout 'cramped'.*Did you mean 'cramped_room'"):
        team_env("overcooked", layout="cramped")
    with pytest.raises(UserError, match="horizon must be at least 1, got 0"):
        MatrixGame(np.zeros((2, 2)), rounds=0)


class Counting:
    """A small PettingZoo parallel environment: `b` leaves after two steps; a reward is the action taken."""

    possible_agents: ClassVar[list[str]] = ["walker_0", "walker_1"]
    metadata: ClassVar[dict[str, str]] = {"name": "counting"}

    def __init__(self) -> None:
        self.closed = False

    def observation_space(self, agent: str) -> Any:
        from gymnasium.spaces import Box

        return Box(-1.0, 99.0, (2,) if agent == "walker_0" else (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        from gymnasium.spaces import Discrete

        return Discrete(3 if agent == "walker_0" else 2)

    def _obs(self) -> dict[str, Any]:
        return {a: np.full(2 - self.possible_agents.index(a), self.time, np.float32) for a in self.agents}

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.time, self.agents = 0, list(self.possible_agents)
        return self._obs(), {"walker_0": {"action_mask": [1, 0, 1]}, "walker_1": {}}

    def step(self, actions: dict[str, int]) -> tuple[Any, ...]:
        assert set(actions) == set(self.agents)
        self.time += 1
        rewards = {agent: float(action) for agent, action in actions.items()}
        if self.time == 2:
            self.agents = ["walker_0"]
        return self._obs(), rewards, {}, {}, {agent: {} for agent in self.agents}

    def close(self) -> None:
        self.closed = True


def test_pettingzoo_runs_on_the_host_also_vmapped() -> None:
    pytest.importorskip("gymnasium")
    env = from_pettingzoo(Counting, horizon=3)
    assert isinstance(env, TeamEnv)
    assert (env.name, env.roles, env.obs_size, env.actions) == ("counting", ("walker", "walker"), 2, 3)

    def play(key: jax.Array) -> Any:
        state, first = env.reset(key)

        def move(state: Any, actions: jax.Array) -> Any:
            return env.step(key, state, actions)

        return first, jax.lax.scan(move, state, jnp.array([[2, 1], [0, 1], [1, 1], [2, 0]]))[1]

    first, steps = jax.jit(jax.vmap(play))(jax.random.split(jax.random.PRNGKey(0), 2))
    assert first.avail[0].tolist() == [[True, False, True], [True, True, False]]
    for copy in range(2):
        assert steps.obs[copy].tolist() == [[[1, 1], [1, 0]], [[2, 2], [0, 0]], [[0, 0], [0, 0]], [[1, 1], [1, 0]]]
        assert steps.reward[copy].tolist() == [[2, 1], [0, 1], [1, 0], [2, 0]]
        assert steps.done[copy].tolist() == [False, False, True, False]
        assert steps.info["final_obs"][copy, 2].tolist() == [[3, 3], [0, 0]]
    assert steps.avail[0, 1].tolist() == [[True] * 3, [True, False, False]]  # who has left may only take action 0
    env.close()


def test_the_package_imports_no_jax_until_a_part_is_used() -> None:
    code = (
        "import sys, json, rolecraft.marl, rolecraft.systems.marl.vdn, rolecraft._cli._show; "
        "print(json.dumps([m for m in ('jax', 'flax', 'torch') if m in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
    code = code.replace("rolecraft.marl,", "rolecraft.marl; rolecraft.marl.QLearner; import").replace(
        "import  ", "import "
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == ["jax", "flax"]

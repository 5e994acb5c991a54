from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import Checkers, Fetch, Switch, TeamEnv, team_env
from rolecraft.marl._worlds import ACTIONS, CheckersState, FetchState, SwitchState

S, U, D, L, R = range(5)


SWITCH, FETCH, CHECKERS = Switch(), Fetch(), Checkers()
STEPS = {env: jax.jit(env.step) for env in (SWITCH, FETCH, CHECKERS)}


class Script:
    """A world from a given state, one jitted step a joint action."""

    def __init__(self, env: Any, inner: Any, time: int = 0) -> None:
        self.env = env
        self.state = env.reset(jax.random.PRNGKey(0))[0]._replace(inner=inner, time=jnp.int32(time))
        self._step = STEPS[env]
        self.number = 0

    def do(self, *joint: Sequence[int]) -> list[Any]:
        found = []
        for actions in joint:
            self.number += 1
            key = jax.random.PRNGKey(self.number)
            self.state, step = self._step(key, self.state, jnp.asarray(actions))
            found.append(step)
        return found

    @property
    def places(self) -> list[list[int]]:
        return np.asarray(self.state.inner.place).tolist()


def test_switch_rewards_each_arrival_once_and_takes_the_arrived_out_of_the_way() -> None:
    env = SWITCH
    script = Script(env, SwitchState(jnp.array([[1, 4], [1, 6]]), jnp.zeros(2, bool)))
    assert env.render(script.state) == "b.###..\n....A.B\n..###.a"
    steps = script.do((R, S), (R, S))
    assert script.places == [[1, 5], [1, 6]]  # the other is in the way
    steps = script.do((D, S), (R, S))
    assert steps[-1].reward.tolist() == [1.0, 0.0]
    assert steps[-1].info["events"].tolist() == [1.0, 0.0]
    assert steps[-1].avail.tolist() == [[True, False, False, False, False], [True] * 5]
    assert env.render(script.state) == "b.###..\n......B\n..###.a"
    steps = script.do((U, D), *[(S, U)], *[(S, L)] * 6, (S, U))
    assert [float(step.reward.sum()) for step in steps] == [0.0] * 8 + [1.0]
    assert steps[-1].done  # and a new episode has begun, each in a room of its own
    assert script.places[0][1] < 2 < 5 <= script.places[1][1]
    assert int(script.state.time) == 0
    assert not np.array_equal(steps[-1].info["final_obs"], steps[-1].obs)


def test_switch_agents_cannot_pass_each_other_and_time_runs_out() -> None:
    script = Script(SWITCH, SwitchState(jnp.array([[1, 3], [1, 4]]), jnp.zeros(2, bool)), SWITCH.horizon - 6)
    steps = script.do(*[(R, L)] * 5)
    assert script.places == [[1, 3], [1, 4]]
    assert not any(bool(step.done) for step in steps)
    assert script.do((R, L))[0].done


def test_windows_are_centred_and_walls_lie_beyond_the_map() -> None:
    env = Switch(window=3)
    seen = env.look(SwitchState(jnp.array([[1, 0], [0, 1]]), jnp.zeros(2, bool)))
    maps = np.asarray(seen.obs[0][:36]).reshape(4, 3, 3)
    assert maps[0].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]  # the other, up and right
    assert maps[1].tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]  # off the map
    assert maps[3].tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]  # `b`, above
    assert seen.obs.shape == (2, env.obs_size)
    assert seen.world.shape == (env.world_size,)


def test_fetch_in_turns_reaches_the_bound_of_the_study() -> None:
    """A delivers while B waits at P, and the other way round: 8 pick-ups and 7 deliveries in 50 steps."""
    from rolecraft.systems.marl.vdn import FetchConfig

    env = FETCH
    script = Script(env, FetchState(jnp.array([[0, 0], [2, 0]]), jnp.zeros(2, bool), jnp.ones((), bool)))
    away = [R] * 6  # P to D along the middle
    back = [U] + [L] * 6 + [D]  # D to P along the top, eight moves
    a = [D, *away, *back, *away, *back, *away, *back, *away]
    b = [S, S, U, S, S, S, S, S, *away, *back, *away, *back, *away, *back]
    total, events = 0.0, np.zeros(2)
    for i in range(50):
        step = script.do((a[i] if i < len(a) else S, b[i] if i < len(b) else S))[0]
        total += float(step.reward.sum())
        events += np.asarray(step.info["events"])
    assert step.done
    assert total == FetchConfig.BOUND
    assert events.tolist() == [8.0, 7.0]


def test_fetch_needs_empty_hands_and_an_item() -> None:
    env, place = FETCH, jnp.array([[1, 1], [0, 0]])
    script = Script(env, FetchState(place, jnp.zeros(2, bool), jnp.ones((), bool)))
    assert env.render(script.state) == "B......\nPA....D\n......."
    steps = script.do((L, S))
    assert steps[0].reward.tolist() == [3.0, 0.0]
    assert env.render(script.state) == "B......\na.....D\n......."
    steps = script.do((D, S), (S, D))  # B comes to the empty point
    assert steps[-1].reward.tolist() == [0.0, 0.0]
    script = Script(env, FetchState(jnp.array([[0, 6], [1, 0]]), jnp.array([True, False]), jnp.zeros((), bool)))
    assert env.render(script.state) == "......a\nB.....D\n......."
    assert script.do((D, S))[0].reward.tolist() == [5.0, 0.0]
    assert script.do((S, S))[0].reward.tolist() == [0.0, 3.0]
    assert script.do((S, S))[0].reward.tolist() == [0.0, 0.0]


def test_checkers_pays_each_agent_by_its_taste() -> None:
    env = CHECKERS
    first = env.start(jax.random.PRNGKey(0))
    script = Script(env, CheckersState(jnp.array([[0, 4], [1, 4]]), first.apples, first.lemons))
    assert env.render(script.state) == "xoxoA.\noxoxB.\nxoxo.."
    steps = script.do((L, L), (L, L), (D, S))
    np.testing.assert_allclose([step.reward for step in steps], [[1.0, -0.1], [-1.0, 0.1], [0.0, 0.0]], rtol=1e-6)
    assert [step.info["events"].tolist() for step in steps] == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    assert env.render(script.state) == "xoA...\noxB...\nxoxo.."
    last = CheckersState(jnp.array([[0, 1], [2, 5]]), jnp.zeros((3, 6), bool).at[0, 0].set(True), first.lemons)
    script = Script(env, last)
    assert script.do((L, S))[0].done


@pytest.mark.parametrize("name", ["switch", "fetch", "checkers"])
def test_reset_and_step_have_one_form(name: str) -> None:
    env = team_env(name)
    assert isinstance(env, TeamEnv)
    state, first = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    after, step = jax.eval_shape(env.step, jax.random.PRNGKey(0), state, jnp.zeros(2, jnp.int32))
    assert jax.tree.structure((state, first)) == jax.tree.structure((after, step))
    for before, later in zip(jax.tree.leaves((state, first)), jax.tree.leaves((after, step)), strict=True):
        assert (before.shape, before.dtype) == (later.shape, later.dtype)
    assert first.obs.shape == (2, env.obs_size)
    assert first.world.shape == (env.world_size,)
    assert env.actions == len(ACTIONS)


def test_bad_input() -> None:
    for make, match in [
        (lambda: Switch(window=4), "window must be odd and at least 1, got 4"),
        (lambda: Switch(corridor=0), "corridor must be at least 1"),
        (lambda: Fetch(length=0), "length must be at least 1"),
        (lambda: Checkers(columns=0), "columns must be at least 1"),
        (lambda: Checkers(horizon=0), "horizon must be at least 1, got 0"),
        (lambda: team_env("chekers"), "there is no world 'chekers'. Did you mean 'checkers'"),
        (lambda: team_env("switch", doors=3), "cannot be made with {'doors': 3}"),
    ]:
        with pytest.raises(UserError, match=match):
            make()
    env = Switch()
    state, _ = env.reset(jax.random.PRNGKey(0))
    with pytest.raises(UserError, match=r"actions have shape \(3,\), expected \(n,\) = \(2,\)"):
        env.step(jax.random.PRNGKey(0), state, jnp.zeros(3, jnp.int32))

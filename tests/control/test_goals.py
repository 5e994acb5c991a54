"""Goal sets, samplers and counts; array environments and the walled grid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.control._adapters import brax_env, gymnasium_env, mdp_env
from rolecraft.control._array_env import ArrayEnv, reset_all, step_all
from rolecraft.control._goal_grid import MOVES, distances, goal_grid, grid_map
from rolecraft.control._goals import GoalCounts, GoalSet, mask_goals, sample_achieved, sample_goals
from rolecraft.control.tabular import Mdp
from rolecraft.errors import UserError


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["any", "all"]))
def test_masks_against_the_definition(seed: int, need: str) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.integers(0, 2, (4, 6))
    masks[:, 0] |= masks.sum(1) == 0
    obs = rng.integers(0, 2, (3, 6)).astype(np.float32)
    found = mask_goals(masks, need=need).achieved(jnp.asarray(obs), jnp.asarray(masks, jnp.float32))
    test = any if need == "any" else all
    expected = [[test(o[m == 1] == 1) for m in masks] for o in obs]
    assert np.asarray(found).tolist() == expected


def test_bad_goals() -> None:
    with pytest.raises(UserError, match="0 and 1"):
        mask_goals([[0, 2]])
    with pytest.raises(UserError, match="0 and 1"):
        mask_goals([[0, 0]])
    with pytest.raises(UserError, match="'any' or 'all'"):
        mask_goals([[1]], need="most")
    with pytest.raises(UserError, match="at least one goal"):
        GoalSet(jnp.zeros((0, 3)), lambda obs, goals: obs, ())
    wrong = GoalSet(jnp.eye(3), lambda obs, goals: obs[..., :2] > 0, ("a", "b", "c"))
    with pytest.raises(UserError, match=r"bool \(\.\.\., N\) = \(3,\)"):
        wrong.check(jnp.zeros(3))
    shapes = GoalSet(jnp.eye(3), lambda obs, goals: obs @ goals > 0, ("a", "b", "c"))
    with pytest.raises(UserError, match="fails for obs"):
        shapes.check(jnp.zeros(4))
    mask_goals(np.eye(3)).check(jnp.zeros(3))


def test_only_seen_goals_are_drawn_and_all_where_none_was_seen() -> None:
    seen = jnp.array([False, True, False, True])
    drawn = np.asarray(sample_goals(jax.random.key(0), seen, (400,)))
    assert set(drawn.tolist()) == {1, 3}
    assert abs((drawn == 1).mean() - 0.5) < 0.1
    for known, only in ((jnp.zeros(4, bool), True), (seen, False)):
        free = np.asarray(sample_goals(jax.random.key(0), known, (400,), only_seen=only))
        assert set(free.tolist()) == {0, 1, 2, 3}


def test_achieved_goals_are_drawn_where_there_are_any() -> None:
    achieved = jnp.array([[False, True, True], [False, False, False]])
    drawn = [sample_achieved(jax.random.key(i), achieved, jnp.array([0, 0])) for i in range(20)]
    assert {int(x[0]) for x in drawn} == {1, 2}
    assert {int(x[1]) for x in drawn} == {0}


def test_goals_that_held_are_counted_apart_and_nothing_divides_by_zero() -> None:
    goal = jnp.array([0, 0, 1, 2, 2])
    success, ended, held = (jnp.array(x, bool) for x in ([1, 0, 1, 1, 0], [1, 1, 1, 1, 0], [0, 0, 1, 0, 0]))
    counts = GoalCounts.zeros(4).add(goal, success, ended, held)
    assert [np.asarray(x).tolist() for x in counts] == [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]]
    with np.errstate(all="raise"):
        assert np.array_equal(counts.rates(), [0.5, np.nan, 1.0, np.nan], equal_nan=True)


def test_the_map_is_one_part_and_distances_are_those_of_its_moves() -> None:
    free = grid_map(8, 0.35, 3)
    steps = distances(free)
    cells = np.argwhere(free)
    assert np.isfinite(steps).all()
    assert (steps == steps.T).all()
    apart = np.abs(cells[:, None] - cells[None]).sum(-1)
    assert (steps >= apart).all()
    assert ((steps == 1) == (apart == 1)).all()
    assert (grid_map(8, 0.35, 3) == free).all()
    assert not (grid_map(8, 0.35, 4) == free).all()


def test_the_grid_moves_as_its_map_says() -> None:
    env, goals, free = goal_grid(5, 0.3, 1, length=6)
    env.check()
    goals.check(jnp.zeros(env.observations))
    cells = np.argwhere(free)
    assert len(goals) == len(cells) == env.observations
    state, obs = env.reset(jax.random.key(2))
    rng = np.random.default_rng(0)
    for count in range(6):
        action = int(rng.integers(4))
        want = np.asarray(state.cell) + MOVES[action]
        inside = (want >= 0).all() and (want < 5).all() and free[tuple(want)]
        expected = want if inside else np.asarray(state.cell)
        state, obs, _, done = env.step(jax.random.key(0), state, jnp.asarray(action))
        assert np.asarray(state.cell).tolist() == expected.tolist()
        at = int(np.flatnonzero((cells == expected).all(1))[0])
        assert np.flatnonzero(np.asarray(goals.achieved(obs, goals.goals))).tolist() == [at]
        assert bool(done) == (count == 5)


def test_bad_maps() -> None:
    with pytest.raises(UserError, match="2 x 2"):
        grid_map(1, 0.3, 0)
    with pytest.raises(UserError, match=r"walls in \[0, 1\)"):
        grid_map(5, 1.0, 0)
    with pytest.raises(UserError, match="lower walls"):
        grid_map(2, 0.97, 0)


def chain_mdp() -> Mdp:
    """Two states: action 1 leads to the end, action 0 stays."""
    moves = np.array([[[1.0, 0], [0, 1]], [[0, 1], [0, 1]]])
    return Mdp(moves, np.array([[0.0, 1], [0, 0]]), np.array([1.0, 0]), 0.9, np.array([False, True]))


def test_environments_restart_where_they_ended_and_show_what_they_reached() -> None:
    env, goals = mdp_env(chain_mdp(), 4)
    env.check()
    states, obs = reset_all(env, jax.random.key(0), 3)
    assert np.asarray(obs).tolist() == [[1, 0]] * 3
    for resets in (3, 1):
        after, reached, shown, reward, done = step_all(env, jax.random.key(1), states, jnp.array([0, 1, 0]), resets)
        assert np.asarray(done).tolist() == [False, True, False]
        assert np.asarray(reward).tolist() == [0, 1, 0]
        assert np.asarray(reached).argmax(-1).tolist() == [0, 1, 0]
        assert np.asarray(shown).argmax(-1).tolist() == [0, 0, 0]
        assert np.asarray(after[1]).tolist() == [1, 0, 1]
    assert len(goals) == 2


def test_gymnasium_tables_become_environments() -> None:
    env, goals = gymnasium_env("FrozenLake-v1", is_slippery=False)
    state, _ = env.reset(jax.random.key(0))
    reached = []
    for action in (1, 1, 2, 1, 2, 2):
        state, obs, reward, done = env.step(jax.random.key(0), state, jnp.asarray(action))
        reached.append(int(obs.argmax()))
    assert reached == [4, 8, 9, 13, 14, 15]
    assert bool(done)
    assert float(reward) == 1
    assert len(goals) == 16


class Slider:
    """What Brax calls an environment, of one number that its action moves."""

    observation_size, action_size = 1, 1

    def reset(self, key: Any) -> Any:
        return jnp.zeros(1)

    def step(self, state: Any, action: Any) -> Any:
        return state + action


def test_brax_environments_take_a_table_of_actions() -> None:
    class State(SimpleNamespace):
        pass

    jax.tree_util.register_pytree_node(
        State, lambda s: ((s.obs, s.reward, s.done), None), lambda _, x: State(obs=x[0], reward=x[1], done=x[2])
    )

    class Env(Slider):
        def reset(self, key: Any) -> Any:
            return State(obs=jnp.zeros(1), reward=jnp.zeros(()), done=jnp.zeros(()))

        def step(self, state: Any, action: Any) -> Any:
            obs = state.obs + action
            return State(obs=obs, reward=obs[0], done=(obs[0] > 1).astype(jnp.float32))

    env = brax_env(Env(), [[-0.5], [0.75]], length=5)
    env.check()
    state, _ = env.reset(jax.random.key(0))
    state, obs, reward, done = env.step(jax.random.key(0), state, jnp.asarray(1))
    assert (float(obs[0]), float(reward), bool(done)) == (0.75, 0.75, False)
    _, obs, _, done = env.step(jax.random.key(0), state, jnp.asarray(1))
    assert (float(obs[0]), bool(done)) == (1.5, True)
    with pytest.raises(UserError, match=r"\(A, action size\) = \(A, 1\)"):
        brax_env(Env(), [[0.0, 1.0]])
    with pytest.raises(UserError, match="no 'reset'"):
        brax_env(object(), [[0.0]])


def test_environments_of_the_wrong_shape_are_refused() -> None:
    env, _ = mdp_env(chain_mdp(), 4)
    with pytest.raises(UserError, match=r"\(D,\) = \(3,\)"):
        ArrayEnv("odd", env.reset, env.step, 3, 2, 4).check()
    with pytest.raises(UserError, match="at least 1"):
        ArrayEnv("odd", env.reset, env.step, 2, 0, 4)


def test_craftax_goals_are_136_and_read_the_inventory() -> None:
    pytest.importorskip("craftax")
    from rolecraft.control._adapters import BLOCKS, MOBS, VIEW, _craftax_goals

    cells = VIEW[0] * VIEW[1] * (BLOCKS + MOBS)
    masks, names = _craftax_goals(cells + 130, cells)
    assert len(set(names)) == len(masks) == 136
    kinds = {kind: sum(name.startswith(kind) for name in names) for kind in ("inventory", "tools", "block", "mob")}
    assert kinds == {"inventory": 54, "tools": 6, "block": 60, "mob": 16}
    assert masks.sum() == 54 + 6 * 9 + 76
    goals = mask_goals(masks, names)
    obs = np.zeros(cells + 130, np.float32)
    obs[cells + 2] = 1  # two pieces of wood
    obs[cells + 6 * 10 + 3] = 1  # three wooden pickaxes
    obs[((3 * 9) + 5) * 21 + 5] = 1  # a tree to the right of the middle (3, 4)
    there = np.asarray(goals.achieved(jnp.asarray(obs), goals.goals))
    found = [name for name, holds in zip(names, there, strict=True) if holds]
    assert found == ["inventory/wood_2", "tools/wood_pickaxe", "block/tree_right"]

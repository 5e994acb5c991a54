from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
pytest.importorskip("sklearn")
import jax
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import (
    Moment,
    Moved,
    RodeConfig,
    RodeLearner,
    RoleIntervalWarning,
    RoleSpec,
    TeamWorld,
    smac_rule,
    train_rode,
    transfer_rode,
)
from rolecraft.marl._rode import _groups
from rolecraft.marl._rode_loss import window_returns
from rolecraft.marl._rode_net import KnownActions, action_values, choose_roles, explore_roles, held, with_held
from rolecraft.systems.marl._rode_worlds import Skirmish

TINY: dict[str, Any] = {
    "mixer": "vdn", "roles": "none", "clusters": 2, "rule": "identity", "hidden": 4, "latent": 3, "envs": 4,
    "buffer": 8, "batch": 4, "fits": 1, "role_interval": 2, "steps": 96, "role_steps": 40, "tests": 4, "anneal": 24,
    "test_episodes": 2, "effects": "balanced",
}  # fmt: skip
MASK = np.array([[1, 0, 1], [0, 1, 0]], bool)
LATENTS = np.array([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0.5, 0]], np.float32)


class Chance(TeamWorld):
    """Episodes end by chance; what an agent sees and may do is drawn at random, action 0 always."""

    team_reward = True

    def __init__(self) -> None:
        super().__init__("chance", ("a", "b"), ("x", "x"), obs_size=2, actions=3, world_size=1, horizon=6)

    def start(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (2, 4))

    def move(self, key: jax.Array, state: jax.Array, actions: jax.Array) -> Moved:
        return Moved(self.start(key), state[:, 0] * actions, state[0, 1] < 0.3, {})

    def look(self, state: jax.Array) -> Moment:
        return Moment(state[:, :2], (state[:, 1:] > 0.5).at[:, 0].set(True), jnp.ones(1))


@pytest.fixture(scope="module")
def made() -> SimpleNamespace:
    """A learner whose roles are known, and play of it."""
    learner = RodeLearner(Chance(), RodeConfig(**TINY))
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    roles = learner.fill(RoleSpec(MASK, np.array([[1.0, 0.2, 0], [0, 1.0, 0]], np.float32)), LATENTS)
    params = {**state.params, "net": with_held(state.params["net"], roles)}
    collect = jax.jit(learner.collect)
    stretch = collect(params["net"], jax.random.PRNGKey(1), 0.5)
    return SimpleNamespace(learner=learner, state=state, params=params, collect=collect, stretch=stretch)


def test_windows_begin_with_episodes_and_last_c_steps(made: SimpleNamespace) -> None:
    play = jax.tree.map(np.asarray, made.stretch)
    assert play.role.shape == (4, 7, 2)
    assert play.done[:, :-1].any()
    assert play.fresh[:, 0].all()
    np.testing.assert_array_equal(play.fresh[:, 1:], play.done)
    for b in range(4):
        age = 0
        for t in range(7):
            age = 0 if play.fresh[b, t] else age + 1
            assert play.chosen[b, t] == (age % 2 == 0)
            if not play.chosen[b, t]:
                np.testing.assert_array_equal(play.role[b, t], play.role[b, t - 1])
    assert set(play.role.ravel()) == {0, 1}
    assert np.take_along_axis(play.avail[:, :-1], play.action[..., None], -1).all()


def test_greedy_play_keeps_to_the_roles_and_falls_back_where_they_have_nothing(made: SimpleNamespace) -> None:
    play = jax.tree.map(np.asarray, made.collect(made.params["net"], jax.random.PRNGKey(2), 0.0))
    allowed = (play.avail & MASK[play.role])[:, :-1]
    own = np.take_along_axis(allowed, play.action[..., None], -1)[..., 0]
    assert own[allowed.any(-1)].all()
    assert np.take_along_axis(play.avail[:, :-1], play.action[..., None], -1).all()


def test_losses_are_those_of_the_formulas(made: SimpleNamespace) -> None:
    learner, play = made.learner, jax.tree.map(np.asarray, made.stretch)
    target = {**made.params, "net": jax.tree.map(lambda leaf: leaf * 0.9, made.params["net"])}
    target["net"] = with_held(target["net"], held(made.params["net"]))
    losses = jax.jit(learner.losses)
    found = losses(made.params, target, made.stretch)
    data = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), made.stretch)
    look = jax.jit(learner.look)
    online, fixed = (look(own["net"], learner.net.rest(4, 2), data.obs, data.fresh)[1] for own in (made.params, target))
    actions, roles = [], []
    for b in range(4):
        q, fixed_q = (
            [[np.asarray(seen.keys[t, b, i, play.role[b, t, i]]) @ LATENTS.T for i in range(2)] for t in range(7)]
            for seen in (online, fixed)
        )
        u, fixed_u = np.asarray(online.role[:, b, :, :2]), np.asarray(fixed.role[:, b, :, :2])
        for t in range(6):
            end = play.done[b, t]
            pick = [int(np.where(play.avail[b, t + 1, i], q[t + 1][i], -np.inf).argmax()) for i in range(2)]
            bound = sum(fixed_q[t + 1][i][pick[i]] for i in range(2))
            now = sum(q[t][i][play.action[b, t, i]] for i in range(2))
            actions.append((play.reward[b, t] + 0.99 * (1 - end) * bound - now) ** 2)
            if not play.chosen[b, t]:
                continue
            last = t if end or t == 5 else t + 1
            if last == t and not end:
                continue  # cut off
            end = play.done[b, last]
            bound = sum(fixed_u[last + 1, i, u[last + 1, i].argmax()] for i in range(2))
            now = sum(u[t, i, play.role[b, t, i]] for i in range(2))
            roles.append((play.reward[b, t : last + 1].sum() + 0.99 * (1 - end) * bound - now) ** 2)
    assert float(found["loss"]) == pytest.approx(np.mean(actions), rel=1e-4)
    assert float(found["role_loss"]) == pytest.approx(np.mean(roles), rel=1e-4)
    # The masks are for acting only.
    free = held(made.params["net"])._replace(mask=jnp.ones((4, 3)))
    open_net = {**made.params, "net": with_held(made.params["net"], free)}
    assert float(losses(open_net, target, made.stretch)["loss"]) == pytest.approx(float(found["loss"]))
    # Moments in a role that there is no longer do not count.
    gone = made.stretch._replace(role=made.stretch.role.at[1:].set(2), reward=made.stretch.reward.at[1:].set(1e6))
    assert all(float(value) < 1e3 for value in losses(made.params, target, gone).values())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.booleans()), min_size=6, max_size=6), st.data())
def test_window_returns_are_the_sum_over_each_window(steps: Any, data: Any) -> None:
    reward, done = np.array([float(r) for r, _, _ in steps]), np.array([d for _, d, _ in steps])
    chosen = np.array([True, *(c or d for _, d, c in steps)])
    value = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=6, max_size=6)), float)
    shaped = [leaf.reshape(6, 1) for leaf in (reward, done.astype(float), value)]
    target, whole = RETURNS(shaped[0], shaped[1], chosen, shaped[2])
    for t in np.flatnonzero(chosen[:-1]):
        after = np.flatnonzero(chosen[t + 1 :])
        assert bool(whole[t]) == bool(len(after))
        if len(after):
            last = t + int(after[0])
            y = reward[t : last + 1].sum() + 0.9 * (1 - done[last]) * value[last]
            assert float(target[t, 0]) == pytest.approx(y, abs=1e-4)


RETURNS = jax.jit(lambda reward, done, chosen, value: window_returns(reward, done, chosen, value, 0.9))


def test_random_actions_need_only_be_available_and_greedy_ones_be_the_roles_too() -> None:
    values = jnp.tile(jnp.array([1.0, 2.0, 3.0, 4.0]), (2000, 1))
    avail = jnp.tile(jnp.array([True, True, True, False]), (2000, 1))
    allowed = jnp.array([True, True, False, True])
    key = jax.random.PRNGKey(0)
    action, none = explore_roles(key, values, avail, allowed, 0.0)
    assert set(np.asarray(action).tolist()) == {1}
    assert not none.any()
    action, _ = explore_roles(key, values, avail, allowed, 1.0)
    np.testing.assert_allclose(np.bincount(action, minlength=4) / 2000, [1 / 3, 1 / 3, 1 / 3, 0], atol=0.04)
    action, none = explore_roles(key, values, avail, jnp.arange(4) == 3, 0.0)
    assert none.all()
    np.testing.assert_allclose(np.bincount(action, minlength=4) / 2000, [1 / 3, 1 / 3, 1 / 3, 0], atol=0.04)
    role = choose_roles(key, jnp.tile(jnp.array([0.0, 5.0, 9.0]), (2000, 1)), jnp.array([1.0, 1.0, 0.0]), 1.0)
    np.testing.assert_allclose(np.bincount(role, minlength=3) / 2000, [0.5, 0.5, 0], atol=0.04)


def test_an_action_of_a_mean_latent_has_the_mean_value() -> None:
    keys = jax.random.normal(jax.random.PRNGKey(0), (5, 2, 3))
    role = jnp.array([0, 1, 1, 0, 1])
    known = action_values(keys, role, jnp.asarray(LATENTS))
    np.testing.assert_allclose(known[2], LATENTS @ np.asarray(keys[2, 1]), rtol=1e-5)
    mean = action_values(keys, role, jnp.asarray(LATENTS[1:].mean(0, keepdims=True)))
    np.testing.assert_allclose(mean[:, 0], known[:, 1:].mean(1), rtol=1e-4, atol=1e-5)


def test_roles_are_fixed_per_seed_and_targets_copied(made: SimpleNamespace) -> None:
    learner, state = made.learner, made.state
    assert np.asarray(held(state.params["net"]).real).tolist() == [1, 1, 1, 0]
    assert np.asarray(held(state.params["net"]).action).tolist() == [[1.0] * 3] * 3
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    two = two._replace(stretches=jnp.full(2, 7), effects=jax.tree.map(lambda leaf: leaf.at[1].mul(-2), two.effects))
    with pytest.raises(UserError, match=r"tried less than 30 times \(0: 0, 1: 0, 2: 0\)"):
        learner.fix_roles(two, [1, 2])
    fixed = learner.fix_roles(two._replace(visits=jnp.full((2, 3), 30)), [1, 2])
    assert fixed.found.tolist() == [7, 7]
    for at in range(2):
        params = jax.tree.map(lambda leaf, at=at: leaf[at], fixed.params)
        spec, roles = learner.spec(params), held(params["net"])
        latents = np.asarray(learner.effects.latents(jax.tree.map(lambda leaf, at=at: leaf[at], two.effects)))
        np.testing.assert_allclose(roles.action, latents, atol=1e-5)
        assert spec.mask.sum(0).tolist() == [1, 1, 1]
        for mask, latent in zip(spec.mask, spec.latent, strict=True):
            np.testing.assert_allclose(latent, latents[mask].mean(0), atol=1e-5)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), fixed.params, fixed.target)))
    assert float(learner.epsilon(jnp.int32(0))) == 1
    assert float(learner.epsilon(jnp.int32(1))) == pytest.approx(0.05)  # 24 steps: one stretch of four worlds
    labels = jax.tree_util.tree_flatten_with_path(_groups(made.params))[0]
    assert {path[1].key for path, label in labels if label == "kept"} == {"roles"}
    with pytest.raises(UserError, match="made 5 roles of 2 clusters, there are places for 4"):
        learner.fill(RoleSpec(np.ones((5, 3), bool), np.ones((5, 3), np.float32)), LATENTS)


def test_a_team_is_carried_over_to_more_agents_and_actions() -> None:
    small, big = Skirmish(2, 2), Skirmish(6, 3)
    config = RodeConfig(**{**TINY, "rule": smac_rule((0,), 3, 0), "steps": 640, "role_steps": 100})
    learner = RodeLearner(small, config)
    params = {"net": jax.eval_shape(lambda key: learner.init(key).params["net"], jax.random.PRNGKey(0))}
    latents = np.arange(15.0).reshape(5, 3)
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]], bool)
    spec = RoleSpec(mask, np.stack([latents[:3].mean(0), latents[3:].mean(0)]))
    params["net"] = with_held(params["net"], learner.fill(spec, latents))
    other, carried = transfer_rode(learner, params, big, [0, 1, 2, 3, 4, (3, 4)])
    assert (other.n, other.env.actions) == (6, 6)
    assert other.spec(carried).mask.tolist() == [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    np.testing.assert_allclose(held(carried["net"]).action[5], latents[3:].mean(0))
    shapes = jax.eval_shape(lambda key: other.init(key).params["net"]["params"], jax.random.PRNGKey(0))
    assert jax.tree.map(lambda leaf: leaf.shape, shapes) == jax.tree.map(
        lambda leaf: leaf.shape, params["net"]["params"]
    )
    moved = -latents[[0, 1, 2, 3, 4, 0]]
    _, dealt = transfer_rode(learner, params, big, [0, 1, 2, 3, 4, (3, 4)], latents=moved)
    assert other.spec(dealt).mask[:, 5].tolist() == [True, False]
    with pytest.raises(UserError, match="like names 5 actions, skirmish has 6"):
        transfer_rode(learner, params, big, [0, 1, 2, 3, 4])
    with pytest.raises(UserError, match=r"expected \(actions, d\) = \(6, 3\)"):
        transfer_rode(learner, params, big, [0, 1, 2, 3, 4, 4], latents=latents)
    told = RodeLearner(small, dataclasses.replace(config, roles="agent"))
    with pytest.raises(UserError, match=r"agents see 15 numbers .* trained networks take 11; .*roles='none'"):
        transfer_rode(told, params, big, [0, 1, 2, 3, 4, (3, 4)])


def test_unseen_last_actions_are_seen_as_known_ones() -> None:
    env = KnownActions(Chance(), np.array([[1, 0], [0, 1], [0.5, 0.5]]))
    assert env.obs_size == 4
    step = env.reset(jax.random.PRNGKey(0))[1]
    assert step.obs.shape == (2, 4)
    seen = env._seen(step._replace(obs=jnp.zeros((2, 2))), jax.nn.one_hot(jnp.array([1, 2]), 3))
    assert seen.obs.tolist() == [[0, 0, 0, 1], [0, 0, 0.5, 0.5]]


def test_bad_settings_are_refused() -> None:
    for field, value, match in [
        ("labels", "effect", "labels: expected one of effects, shuffled, got 'effect'"),
        ("optimiser", "sgd", "optimiser: expected one of rmsprop, adam"),
        ("role_interval", 0, "role_interval must be at least 1"),
        ("rule", "smacs", "no clean-up rule 'smacs'"),
        ("effects", "publish", "no settings 'publish'"),
        ("role_steps", 96, r"role_steps \(96\) must leave some of the steps \(96\)"),
        ("lam", 0.5, "RODE takes share=True"),
    ]:
        with pytest.raises(UserError, match=match):
            RodeConfig(**{**TINY, field: value})
    with pytest.warns(RoleIntervalWarning, match=r"role_interval \(7\) is longer than an episode \(6\)"):
        RodeLearner(Chance(), RodeConfig(**{**TINY, "role_interval": 7}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match="seeds: expected at least one"):
            train_rode(RodeLearner(Chance(), RodeConfig(**TINY)), [])


@pytest.mark.slow
def test_a_training_goes_through_both_phases_and_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    config = RodeConfig(**{**TINY, "mixer": "qmix", "minimum": 1})
    learner = RodeLearner(Chance(), config)
    assert learner.tests_before == 2
    state, metrics = train_rode(learner, [1, 2], folder=tmp_path, chunk=1)
    assert metrics["return"].shape == (4, 2)
    assert (metrics["effect_loss"][:2] > 0).all()
    assert not metrics["effect_loss"][2:].any()
    assert state.found.tolist() == [2, 2]
    visits = np.asarray(state.visits).sum(1)
    assert ((visits > 30) & (visits < 2 * 4 * 6 * 2)).all()  # two stretches of four worlds, but for moves that end one
    roles = held(state.params["net"])
    assert np.asarray(roles.real).sum(1).tolist() == [2, 2]
    (tmp_path / "2-roles" / "state-00000002.safetensors").unlink()
    (tmp_path / "2-roles" / "metrics-00000002.safetensors").unlink()
    again, same = train_rode(learner, [1, 2], folder=tmp_path, chunk=1)
    for name, values in metrics.items():
        np.testing.assert_array_equal(values, same[name])
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), state.params, again.params)))

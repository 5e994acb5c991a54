from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
import jax
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import (
    AcormConfig,
    AcormLearner,
    AttentionMixer,
    ClusterWarning,
    contrastive_loss,
    kmeans,
    momentum_update,
    train_q,
)
from rolecraft.marl._acorm_net import AcormNet, LastAction
from tests.marl._matrix import MatrixGame

TINY: dict[str, Any] = {
    "hidden": 4, "embedding": 6, "role_size": 5, "cluster_num": 1, "envs": 2, "buffer": 8, "batch": 4, "fits": 1,
    "steps": 64, "tests": 2, "test_episodes": 2, "embed_updates": 2, "contrast_updates": 2, "contrast_every": 2,
}  # fmt: skip


jitted_loss = jax.jit(contrastive_loss)
clusters = jax.jit(kmeans, static_argnums=1)


def slow_loss(query: Any, key: Any, label: Any, active: Any, weight: Any) -> float:
    """The formula, one term at a time."""
    terms = []
    for b in range(query.shape[0]):
        who = [i for i in range(query.shape[1]) if active[b, i]]
        for i in who:
            score = {j: np.exp(query[b, i] @ weight @ key[b, j]) for j in who}
            terms.append(-np.log(sum(score[j] for j in who if label[b, j] == label[b, i]) / sum(score.values())))
    return float(np.mean(terms)) if terms else 0.0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_the_contrastive_loss_is_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(2, 3, 4, 2))
    label, active = rng.integers(0, 3, (3, 4)), rng.random((3, 4)) < 0.6
    weight = rng.normal(size=(2, 2))
    found = jitted_loss(*map(jnp.asarray, (query, key, label, active, weight)))
    assert float(found) == pytest.approx(slow_loss(query, key, label, active, weight), rel=1e-4, abs=1e-5)


def test_the_loss_has_known_values_and_finite_gradients() -> None:
    query, weight = jnp.zeros((1, 4, 2)), jnp.eye(2)
    on = jnp.ones((1, 4), bool)
    alone, pairs, one = jnp.array([[0, 1, 2, 3]]), jnp.array([[0, 0, 1, 1]]), jnp.zeros((1, 4), int)
    for label, expected in [(alone, np.log(4)), (pairs, np.log(2)), (one, 0.0)]:
        assert float(contrastive_loss(query, query, label, on, weight)) == pytest.approx(expected, abs=1e-6)
    slopes = jax.jit(jax.grad(contrastive_loss, (0, 1)))
    nobody = jnp.array([[False] * 4])
    some = jnp.array([[True, False, True, False]])
    rng = jax.random.normal(jax.random.PRNGKey(1), (1, 4, 2))
    for active in (nobody, some, on):
        by_query, by_key = slopes(rng, rng, pairs, active, weight)
        assert np.isfinite(by_query).all()
        assert not np.asarray(by_key).any()  # keys are the momentum network's
        assert not np.asarray(by_query)[~np.asarray(active)].any()
    with pytest.raises(UserError, match=r"labels and active \(\.\.\., n\); got"):
        contrastive_loss(query, query, pairs[:, :3], on, weight)
    with pytest.raises(UserError, match=r"expected \(r, r\) = \(2, 2\)"):
        contrastive_loss(query, query, pairs, on, jnp.eye(3))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_kmeans_finds_planted_clusters_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    centre = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = centre[truth] + rng.uniform(-1, 1, (8, 2))
    order = rng.permutation(8)
    found = clusters(jnp.asarray(points[order]), 3)
    label = np.empty(8, int)
    label[order] = np.asarray(found.label)
    assert bool(found.valid)
    assert ((label[:, None] == label) == (truth[:, None] == truth)).all()
    for k in range(3):
        np.testing.assert_allclose(found.centre[label[truth == k][0]], points[truth == k].mean(0), atol=1e-5)


def test_kmeans_says_where_there_are_too_few_points_and_leaves_out_the_dead() -> None:
    points = jnp.array([[0.0], [0.0], [1.0], [1.0], [50.0]])
    on = jnp.array([True, True, True, True, False])
    assert bool(clusters(points, 2, on).valid)
    assert not bool(clusters(points, 3, on).valid)
    assert bool(clusters(points, 3).valid)
    assert not bool(clusters(jnp.zeros((4, 2)), 2).valid)
    assert not bool(clusters(points, 1, jnp.zeros(5, bool)).valid)
    kept = clusters(points, 2, on)
    assert sorted(np.asarray(kept.centre)[:, 0]) == pytest.approx([0, 1])
    assert int(kept.label[4]) == 0
    for k in (0, 6):
        with pytest.raises(UserError, match=f"1 to the number of agents, 5, got {k}"):
            kmeans(points, k)
    with pytest.raises(UserError, match=r"points \(n, d\), got shape"):
        kmeans(points[None], 2)


@pytest.mark.parametrize("attention", [True, False])
def test_the_mixer_rises_with_every_value(attention: bool) -> None:
    mixer = AttentionMixer(3, attention, state=4, query=4, heads=2, width=4, embedding=3, hidden=4)
    keys = jax.random.split(jax.random.PRNGKey(0), 5)
    values, world = jax.random.normal(keys[0], (4, 2, 3)), jax.random.normal(keys[1], (4, 2, 5))
    roles, fresh = jax.random.normal(keys[2], (4, 2, 3, 6)), jnp.array([[1, 1], [0, 0], [0, 1], [0, 0]], bool)
    params: Any = jax.jit(mixer.init)(keys[3], values, world, fresh, roles)
    apply = jax.jit(mixer.apply)
    total, weight = apply(params, values, world, fresh, roles)  # type: ignore[misc]
    assert total.shape == (4, 2, 1)
    assert weight.shape == (4, 2, 2, 3, 3)
    slope = jax.jit(jax.grad(lambda v: mixer.apply(params, v, world, fresh, roles)[0].sum()))(values)  # type: ignore[index]
    assert (np.asarray(slope) >= 0).all()
    assert np.asarray(slope).any()
    moved = apply(params, values, world, fresh, roles + 1.0)[0]  # type: ignore[index]
    assert bool(jnp.allclose(moved, total)) is not attention
    if attention:
        np.testing.assert_allclose(weight.sum(-1), 1, atol=1e-5)
        # What came before an episode began is forgotten, and nothing else.
        past = apply(params, values, world.at[0].add(1.0), fresh, roles)[0]  # type: ignore[index]
        assert bool(jnp.allclose(past[2:, 1], total[2:, 1]))
        assert not bool(jnp.allclose(past[2:, 0], total[2:, 0]))


def test_permuted_agents_permute_all_outputs() -> None:
    net = AcormNet(3, 4, 6, 5)
    obs = jax.random.normal(jax.random.PRNGKey(0), (4, 2, 5, 7))
    fresh = jnp.zeros((4, 2), bool).at[0].set(True)
    params = jax.jit(net.init)(jax.random.PRNGKey(1), net.rest(2, 5), obs, fresh)
    order = np.array([3, 1, 4, 0, 2])
    trace_of = jax.jit(functools.partial(net.apply, method="trace"))
    carry, trace = trace_of(params, net.rest(2, 5), obs, fresh)
    turned, other = trace_of(params, net.rest(2, 5), obs[:, :, order], fresh)
    np.testing.assert_allclose(carry[:, order], turned, atol=1e-5)
    for mine, theirs in zip(trace, other, strict=True):
        np.testing.assert_allclose(mine[:, :, order], theirs, atol=1e-5)
    assert ((trace.role > 0) & (trace.role < 1)).all()


def test_the_last_action_is_seen_and_forgotten_at_the_end() -> None:
    env = LastAction(MatrixGame(np.eye(2), rounds=2))
    state, step = env.reset(jax.random.PRNGKey(0))
    assert not step.obs[:, 2:].any()
    state, step = env.step(jax.random.PRNGKey(1), state, jnp.array([1, 0]))
    assert step.obs[:, 2:].tolist() == [[0, 1], [1, 0]]
    _, step = env.step(jax.random.PRNGKey(1), state, jnp.array([1, 0]))
    assert bool(step.done)
    assert not step.obs[:, 2:].any()


def changed(before: Any, after: Any) -> dict[str, bool]:
    """Whether any leaf of each part is another one."""
    parts = lambda tree: {**tree["net"]["params"], **{k: v for k, v in tree.items() if k != "net"}}  # noqa: E731
    old, new = parts(before), parts(after)
    same = lambda a, b: all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))  # noqa: E731
    return {name: not same(old[name], new[name]) for name in old}


@pytest.mark.slow
def test_each_step_changes_its_own_parts() -> None:
    learner = AcormLearner(
        MatrixGame(np.eye(2), rounds=4), AcormConfig(**{**TINY, "cluster_num": 2, "contrast": False})
    )
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    key = jax.random.PRNGKey(3)
    embed = changed(state.params, jax.jit(learner.fit_embedding)(state, key)[0].params)
    assert {name for name, moved in embed.items() if moved} == {
        "embed_first", "embed_memory", "embed_last", "decoder",
    }  # fmt: skip
    fitted = jax.jit(learner.fit_roles)(state, key)[0]
    assert {name for name, moved in changed(state.params, fitted.params).items() if moved} == {
        "role", "bilinear", "momentum",
    }  # fmt: skip
    wanted = momentum_update(state.params["momentum"], fitted.params["net"]["params"]["role"], 0.005)
    np.testing.assert_allclose(fitted.params["momentum"]["kernel"], wanted["kernel"], atol=1e-7)
    td = jax.jit(learner.fit)(state, key)[0]
    assert {name for name, moved in changed(state.params, td.params).items() if not moved} == {
        "bilinear", "momentum", "decoder",
    }  # fmt: skip


def test_the_dead_take_no_part() -> None:
    learner = AcormLearner(MatrixGame(np.eye(2)), AcormConfig(**TINY))
    obs = jnp.zeros((2, 4)).at[0, 0].set(1.0).at[1, 2].set(1.0)  # the second only remembers its last action
    assert learner.alive(obs).tolist() == [True, False]


@pytest.mark.slow
def test_a_training_runs_and_its_traces_have_their_shapes() -> None:
    learner = AcormLearner(MatrixGame(np.eye(2), rounds=4), AcormConfig(**TINY))
    state, metrics = train_q(learner, [1])
    assert metrics["return"].shape == (2, 1)
    assert np.isfinite(metrics["loss"]).all()
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    stretch = jax.tree.map(lambda leaf: leaf[0, :3], state.replay.data)
    found = learner.traces(params, stretch)
    assert {name: leaf.shape for name, leaf in found.items()} == {
        "role": (3, 5, 2, 5), "embed": (3, 5, 2, 6), "cluster": (3, 5, 2), "attention": (3, 5, 4, 2, 2),
    }  # fmt: skip


def test_bad_settings_are_refused() -> None:
    game = MatrixGame(np.eye(2))
    with pytest.raises(UserError, match="cluster_num must be 1 to the number of agents, 2, got 3"):
        AcormLearner(game, AcormConfig(**{**TINY, "cluster_num": 3}))
    with pytest.warns(ClusterWarning, match="a cluster of its own"):
        AcormLearner(game, AcormConfig(**{**TINY, "cluster_num": 2}))
    for field, value, match in [
        ("labels", "kmean", "labels: expected one of kmeans"),
        ("role_size", 0, "role_size must be at least 1"),
        ("tau", 0.0, "tau must be above 0"),
        ("mixer", "vdn", "ACORM takes mixer='qmix'"),
    ]:
        with pytest.raises(UserError, match=match):
            dataclasses.replace(AcormConfig(), **{field: value})

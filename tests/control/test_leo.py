"""All-goals learning: the identity with relabelling, exact fixed points, targets by hand, bad input."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.control._adapters import mdp_env
from rolecraft.control._goal_grid import goal_grid
from rolecraft.control._leo import METHODS, GoalLearner, LeoConfig, LeoState, Rollout, evaluate_goals, relabelled_loss
from rolecraft.control._ppo import PPOBatch, generalised_advantages, ppo_loss
from rolecraft.control._pqn import check_minibatch, epsilon_greedy, fit, half_square, one_step_targets, optimiser
from rolecraft.control.tabular import Mdp
from rolecraft.errors import UserError

TINY = LeoConfig(envs=4, steps=8, updates=4, widths=(16,), minibatch=16, student_minibatch=16)
CHAIN = 4


def chain() -> Mdp:
    """Four states in a row: action 1 goes right, action 0 left, ends hold."""
    moves = np.zeros((CHAIN, 2, CHAIN))
    for state in range(CHAIN):
        moves[state, 0, max(0, state - 1)] = moves[state, 1, min(CHAIN - 1, state + 1)] = 1
    return Mdp(moves, np.zeros((CHAIN, 2)), np.full(CHAIN, 1 / CHAIN), 0.9)


def learner(method: str = "leo", config: LeoConfig = TINY, length: int = 10) -> GoalLearner:
    env, goals = mdp_env(chain(), length)
    return GoalLearner(env, goals, method, config)


@cache
def played() -> tuple[GoalLearner, LeoState, Rollout, dict[str, Any]]:
    """One rollout, in which every episode ends at the fifth step, and its batch; compiled once."""
    leo = learner(length=5)

    def play(key: Any) -> Any:
        state, seen = leo._play(leo.start(key), key)
        return state, seen, leo.batch(state.params, seen, key, state.seen)

    return leo, *jax.jit(play)(jax.random.key(0))


def test_all_goals_gradient_is_that_of_relabelling_every_goal() -> None:
    leo, state, _, batch = played()
    assert batch["targets"].shape == (32, CHAIN)
    one, grad = jax.jit(jax.value_and_grad(leo.loss))(state.params, batch)
    other, naive = jax.jit(jax.value_and_grad(lambda p: relabelled_loss(leo, p, batch)))(state.params)
    assert float(one) == pytest.approx(float(other), rel=1e-5)
    for a, b in zip(jax.tree.leaves(grad), jax.tree.leaves(naive), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-8)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(grad)) > 1e-5


def test_targets_of_a_rollout_are_those_of_a_loop_over_goals() -> None:
    leo, state, seen, batch = played()
    q = np.asarray(leo.network.apply(state.params, seen.reached))
    assert np.asarray(seen.done)[4].all()
    for t, e, g in [(0, 0, 0), (3, 1, 2), (7, 3, 1), (7, 2, 3), *((4, e, g) for e in range(4) for g in range(CHAIN))]:
        there = int(seen.reached[t, e].argmax()) == g
        over = there or bool(seen.done[t, e])
        y = 1.0 if there else (0.0 if over else leo.config.gamma * q[t, e, g].max())
        assert float(batch["targets"].reshape(8, 4, CHAIN)[t, e, g]) == pytest.approx(y, rel=1e-5)
    assert np.asarray(seen.achieved).argmax(-1).tolist() == np.asarray(seen.reached).argmax(-1).tolist()


def test_the_fixed_point_on_a_chain_is_gamma_to_the_distance() -> None:
    gamma, mdp = 0.9, chain()
    to = jnp.asarray(mdp.transitions.argmax(-1))  # (S, A)
    achieved = jax.nn.one_hot(to, CHAIN).astype(bool)
    q = jnp.full((CHAIN, CHAIN, 2), 0.3)  # state, goal, action
    for _ in range(200):
        best = q.max(-1)[to]  # (S, A, N)
        q = jnp.moveaxis(one_step_targets(achieved, jnp.zeros(to.shape, bool), best, gamma), -1, 1)
    for state in range(CHAIN):
        for goal in range(CHAIN):
            for action in range(2):
                after = int(to[state, action])
                assert float(q[state, goal, action]) == pytest.approx(gamma ** abs(after - goal), abs=1e-5)


def test_training_reaches_those_values_on_the_chain() -> None:
    config = LeoConfig(
        envs=8, steps=16, updates=150, widths=(32,), minibatch=32, student_minibatch=32, lr=5e-3, gamma=0.9,
        epsilon=(1.0, 0.5, 1.0),
    )  # fmt: skip
    leo = learner("leo", config)
    train = jax.jit(lambda key: jax.lax.scan(lambda c, _: leo.update(c), leo.start(key), length=150))
    state, figures = train(jax.random.key(0))
    q = np.asarray(leo.network.apply(state.params, jnp.eye(CHAIN)))
    to = chain().transitions.argmax(-1)
    expected = 0.9 ** np.abs(to[:, None, :] - np.arange(CHAIN)[None, :, None])
    # An episode of 10 steps ends 1 transition in 10, whose target has no future.
    assert np.abs(q - expected).mean() < 0.12
    better = np.array([[0 if g < s else 1 for g in range(CHAIN)] for s in range(CHAIN)])
    off = ~np.eye(CHAIN, dtype=bool)
    assert (q.argmax(-1) == better)[off].all()
    assert float(figures["seen"][-1]) == 1
    counts = state.counts
    assert int(counts.successes.sum() + counts.failures.sum() + counts.held.sum()) > 50
    found = jax.jit(lambda s: evaluate_goals(leo, s, jax.random.key(9), 3))(state)
    assert (np.asarray(found["successes"]) == np.asarray(found["trials"])).all()
    assert (np.asarray(found["trials"]) + np.asarray(found["held"]) == 3).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 0.99), st.floats(0, 1))
def test_advantages_against_a_slow_sum(seed: int, gamma: float, lam: float) -> None:
    rng = np.random.default_rng(seed)
    rewards, values, following = rng.random((3, 5, 2))
    ends = rng.random((5, 2)) < 0.3
    found = np.asarray(
        generalised_advantages(*(jnp.asarray(x) for x in (rewards, ends, values, following)), gamma, lam)
    )
    for env in range(2):
        for t in range(5):
            total, weight = 0.0, 1.0
            for k in range(t, 5):
                go = 0.0 if ends[k, env] else 1.0
                total += weight * (rewards[k, env] + gamma * go * following[k, env] - values[k, env])
                weight *= gamma * lam * go
            assert found[t, env] == pytest.approx(total, abs=1e-4)


def test_ppo_loss_by_hand() -> None:
    logits = jnp.log(jnp.array([[0.5, 0.5], [0.8, 0.2]]))
    batch = PPOBatch(
        jnp.zeros((2, 1)), jnp.zeros((2, 1)), jnp.array([0, 1]), jnp.log(jnp.array([0.25, 0.2])),
        jnp.array([1.0, -1.0]), jnp.array([1.0, 0.0]), jnp.array([1, 1]),
    )  # fmt: skip
    parts = {"clip": 0.2, "entropy": 0.0, "value": 0.0}
    plain = float(ppo_loss(logits, jnp.array([0.5, 0.5]), batch, jnp.zeros(()), **parts))
    assert plain == pytest.approx(-(1.2 * 1 + 1.0 * -1) / 2, abs=1e-5)  # the first ratio is 2, clipped to 1.2
    taught = float(ppo_loss(logits, jnp.array([0.5, 0.5]), batch, jnp.ones(()), **parts))
    assert taught - plain == pytest.approx(-(np.log(0.5) + np.log(0.2)) / 2, abs=1e-5)
    valued = float(ppo_loss(logits, jnp.array([0.5, 0.5]), batch, jnp.zeros(()), **{**parts, "value": 1.0}))
    assert valued - plain == pytest.approx(0.125, abs=1e-5)


def test_half_square_uses_the_taken_action_for_every_goal() -> None:
    values = jnp.array([[[0.1, 0.9], [0.2, 0.6]]])
    assert float(half_square(values, jnp.array([1]), jnp.array([[0.9, 0.0]]))) == pytest.approx(0.5 * 0.36 / 2)


def test_epsilon_greedy_breaks_ties_and_explores() -> None:
    values = jnp.tile(jnp.array([0.5, 0.5, 0.1]), (600, 1))
    greedy = np.asarray(epsilon_greedy(jax.random.key(0), values, jnp.zeros(())))
    assert set(greedy.tolist()) == {0, 1}
    wild = np.asarray(epsilon_greedy(jax.random.key(0), values, jnp.ones(())))
    assert np.bincount(wild).min() > 150


def test_fit_descends_and_refuses_a_minibatch_that_does_not_divide() -> None:
    x = jnp.linspace(-1, 1, 32)

    def loss(p: Any, part: Any) -> Any:
        return jnp.square(p * part - 3 * part).mean()

    tx = optimiser(1.0, 128)
    start = jnp.zeros(())
    end, _, _ = fit(loss, tx, start, tx.init(start), x, jax.random.key(0), epochs=16, minibatch=4)
    assert float(end) == pytest.approx(3, abs=0.5)
    with pytest.raises(UserError, match=r"envs \* steps = 32, got 5"):
        check_minibatch(32, 5)


@pytest.mark.parametrize("method", ["her", "dual"])
def test_every_kind_of_method_updates(method: str) -> None:
    made = learner(method)
    before, (after, figures) = jax.jit(lambda key: ((s := made.start(key)), made.update(s)))(jax.random.key(0))
    assert all(np.isfinite(np.asarray(x)).all() for x in figures.values())
    moved = [
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True)
    ]
    assert sum(moved) >= len(moved) - 1  # a scale near 1 may round back after few small steps
    if method == "dual":
        assert not np.array_equal(*(jax.tree.leaves(s.student)[0] for s in (before, after)))


def test_goals_that_a_conditioned_network_learns_about() -> None:
    _, state, seen, _ = played()
    own = np.asarray(seen.goal)
    found = {
        m: np.asarray(learner(m)._learnt_goals(seen, jax.random.key(2), state.seen)) for m in ("pqn", "her", "relabel")
    }
    assert [found[m].shape[-1] for m in found] == [1, 3, CHAIN]
    assert (found["pqn"][..., 0] == own).all()
    assert (found["her"][..., 0] == own).all()
    assert (found["her"][..., 2] == np.asarray(seen.reached).argmax(-1)).all()
    assert (found["relabel"] == np.arange(CHAIN)).all()
    again = learner("her")._learnt_goals(seen, jax.random.key(2), jnp.array([False, True, False, False]))
    assert (np.asarray(again)[..., 1] == 1).all()


def test_bad_configurations() -> None:
    for field, value, words in (
        ("gamma", 1.0, "between 0 and 1"), ("minibatch", 5, "must divide"), ("widths", (), "at least 1"),
        ("epsilon", (2.0, 0.0, 0.1), r"\[0, 1\]"), ("lr", 0.0, "above 0"),
    ):  # fmt: skip
        with pytest.raises((UserError, ValueError), match=words):
            replace(TINY, **{field: value})
    with pytest.raises(UserError, match=r"Did you mean 'relabel'"):
        learner("relabels")
    _, goals, _ = goal_grid(5, 0.2, 0)
    with pytest.raises(UserError, match="fails for obs"):
        GoalLearner(mdp_env(chain(), 5)[0], goals, "leo", TINY)
    assert set(METHODS) >= {"pqn", "her", "relabel", "leo", "dual"}

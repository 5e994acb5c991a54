from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
import jax
import optax
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft._jax import parameter_count
from rolecraft.errors import UserError
from rolecraft.marl import (
    QConfig,
    QLearner,
    RoleWarning,
    TeamQ,
    TeamRewardWarning,
    evaluate,
    joint_env,
    lambda_returns,
    lazy_agent_index,
    make_mixer,
    train_q,
)
from rolecraft.marl._networks import best, explore
from rolecraft.marl._replay import draw, make_replay, push
from tests.marl._matrix import PENALTY, MatrixGame

FIT: dict[str, Any] = {
    "hidden": 16, "envs": 32, "buffer": 4096, "batch": 256, "fits": 4, "lr": 3e-3, "epsilon": (1.0, 1.0), "tests": 2,
    "steps": 20_000, "test_episodes": 2,
}  # fmt: skip


EVERY = np.array(list(np.ndindex(2, 2)))
"""Every joint move once."""


def fitted(learner: QLearner, steps: int = 400) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the action values, (n, actions), that the loss comes to on moves played at random, and these."""

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        params, optimiser = state
        loss, gradient = jax.value_and_grad(learner.loss)(params, params, batch)
        change, optimiser = rule.update(gradient, optimiser, params)
        return (optax.apply_updates(params, change), optimiser), loss

    rule = optax.adam(1e-2)
    params = jax.jit(learner.init)(jax.random.PRNGKey(0)).params
    batch = jax.jit(learner.collect)(params["net"], jax.random.PRNGKey(1), 1.0)
    (params, _), _ = jax.jit(lambda state: jax.lax.scan(step, state, length=steps))((params, rule.init(params)))
    return values_of(learner, params), np.asarray(batch.action)[:, 0]


@functools.partial(jax.jit, static_argnums=0)
def forward(net: TeamQ, params: Any, obs: Any, fresh: Any) -> jax.Array:
    """The action values of a stretch that begins without memory."""
    return net.apply(params, net.rest(*obs.shape[1:3]), obs, fresh)[1]  # type: ignore[return-value]


def values_of(learner: QLearner, params: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The agents' action values at the start of an episode, (n, actions)."""
    _, step = jax.jit(learner.env.reset)(jax.random.PRNGKey(0))
    obs = np.concatenate([step.obs, learner.features], 1)[None, None]
    return np.asarray(forward(learner.net, params["net"], obs, np.ones((1, 1), bool)))[0, 0]


def additive_fit(payoff: np.ndarray[Any, Any], played: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a sum of the agents' values comes to at best, by least squares over the moves played, (moves, 2)."""
    one = lambda moves: np.concatenate([np.eye(2)[moves[:, 0]], np.eye(2)[moves[:, 1]]], 1)  # noqa: E731
    effects = np.linalg.lstsq(one(played), payoff[played[:, 0], played[:, 1]], rcond=None)[0]
    found: np.ndarray[Any, Any] = (one(EVERY) @ effects).reshape(2, 2)
    return found


def test_vdn_finds_the_best_additive_fit_and_so_misses_the_penalty_game() -> None:
    """The limit of the additive form, in closed form: main effects, whose argmax is (1, 0), worth 0 of 10."""
    own, played = fitted(QLearner(MatrixGame(PENALTY / 10), QConfig(hidden=8, envs=512, buffer=512)))
    total = 10 * (own[0][:, None] + own[1][None, :])
    np.testing.assert_allclose(total, additive_fit(PENALTY, played), atol=0.1)
    assert np.unravel_index(total.argmax(), total.shape) == (1, 0)
    np.testing.assert_allclose(additive_fit(PENALTY, EVERY), [[1.25, -11.25], [8.75, -3.75]])


@pytest.mark.slow
def test_the_centralised_learner_solves_it() -> None:
    env = joint_env(MatrixGame(PENALTY / 10))
    assert env.split(jnp.int32(1)).tolist() == [0, 1]
    values, _ = fitted(QLearner(env, QConfig(mixer="independent", hidden=8, envs=512, buffer=512)))
    np.testing.assert_allclose(10 * values[0], PENALTY.ravel(), atol=0.1)


@pytest.mark.slow
def test_so_do_whole_trainings() -> None:
    learner = QLearner(MatrixGame(PENALTY / 10), QConfig(**FIT))
    state, metrics = train_q(learner, [1])
    own = values_of(learner, jax.tree.map(lambda leaf: leaf[0], state.params))
    np.testing.assert_allclose(10 * (own[0][:, None] + own[1][None, :]), additive_fit(PENALTY, EVERY), atol=1.5)
    assert metrics["return"][-1, 0] == pytest.approx(0.0)
    learner = QLearner(joint_env(MatrixGame(PENALTY / 10)), QConfig(mixer="independent", **FIT))
    state, metrics = train_q(learner, [1])
    values = values_of(learner, jax.tree.map(lambda leaf: leaf[0], state.params))
    np.testing.assert_allclose(10 * values[0], PENALTY.ravel(), atol=1.5)
    assert metrics["return"][-1, 0] == pytest.approx(1.0)
    assert metrics["agent_return"][-1, 0].tolist() == [0.5, 0.5]
    assert metrics["events"][-1, 0].tolist() == [1.0, 1.0]


def team(share: bool, **kwargs: Any) -> tuple[TeamQ, Any, Any]:
    """A team of three, and what it sees in three steps of two worlds."""
    net = TeamQ(4, 5, share, **kwargs)
    obs = np.random.default_rng(2).normal(size=(3, 2, 3, 6)).astype(np.float32)
    params = jax.jit(net.init)(jax.random.PRNGKey(1), net.rest(2, 3), obs, np.zeros((3, 2), bool))
    return net, params, obs


@pytest.mark.parametrize("channels", [{}, {"low": True, "high": True}])
def test_shared_weights_treat_agents_alike_unless_they_are_told_their_roles(channels: dict[str, bool]) -> None:
    net, params, obs = team(True, **channels)
    fresh, order = np.zeros((3, 2), bool), np.array([2, 0, 1])

    def ask(obs: Any) -> np.ndarray[Any, Any]:
        return np.asarray(forward(net, params, obs, fresh))

    np.testing.assert_allclose(ask(obs[:, :, order]), ask(obs)[:, :, order], atol=1e-5)
    told, permuted = obs.copy(), obs[:, :, order]
    told[..., -3:] = permuted[..., -3:] = np.eye(3)  # role features stay with the seat
    assert np.abs(ask(permuted) - ask(told)[:, :, order]).max() > 1e-2


def test_own_weights_and_channels() -> None:
    net, params, obs = team(False)
    shared = team(True)
    assert parameter_count(params) == 3 * parameter_count(shared[1])
    fresh = np.zeros((3, 2), bool)
    same = np.broadcast_to(obs[:, :, :1], obs.shape)
    values = np.asarray(forward(net, params, same, fresh))
    assert np.abs(values[:, :, 0] - values[:, :, 1]).max() > 1e-2
    changed = obs.copy()
    changed[:, :, 2] += 1.0
    for channels, heard in (({}, False), ({"low": True}, True), ({"high": True}, True)):
        net, params, _ = team(True, **channels)
        before, after = (np.asarray(forward(net, params, o, fresh))[:, :, 0] for o in (obs, changed))
        assert (np.abs(before - after).max() > 1e-4) == heard


def test_memory_is_forgotten_where_an_episode_begins() -> None:
    net, params, obs = team(True)
    fresh = np.zeros((3, 2), bool)
    fresh[2, 1] = True
    values = forward(net, params, obs, fresh)
    alone = forward(net, params, obs[2:], np.ones((1, 2), bool))
    np.testing.assert_allclose(values[2, 1], alone[0, 1], atol=1e-5)
    assert np.abs(np.asarray(values[2, 0] - alone[0, 0])).max() > 1e-3


@functools.cache
def mixed(name: str, n: int) -> tuple[Any, Any]:
    """A mixer's functions for `n` agents, compiled once."""
    mixer = make_mixer(name)
    return jax.jit(lambda key: mixer.init(key, n, 3)), jax.jit(mixer.mix)


@given(st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_the_best_joint_action_is_every_agents_own_best(seed: int, n: int) -> None:
    """Individual-global-max, by trying all joint actions, for the sum and for QMIX, with masks."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 3)).astype(np.float32)
    avail = rng.random((n, 3)) < 0.6
    avail[np.arange(n), rng.integers(3, size=n)] = True
    own = np.asarray(best(values, avail))
    joint = np.array(list(np.ndindex(*[3] * n)))
    chosen = values[np.arange(n), joint]
    legal = avail[np.arange(n), joint].all(1)
    mine = (joint == own).all(1)
    world = np.broadcast_to(rng.normal(size=3).astype(np.float32), (len(joint), 3))
    for name in ("vdn", "qmix"):
        init, mix = mixed(name, n)
        total = np.asarray(mix(init(jax.random.PRNGKey(seed)), chosen, world))[:, 0]
        assert legal[mine].all()
        assert total[mine][0] >= total[legal].max() - 1e-4
    if n > 1:
        assert mixed("vdn", n)[1]({}, chosen, world)[:, 0] == pytest.approx(chosen.sum(1), abs=1e-5)


jitted_returns = jax.jit(lambda_returns)


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 6]), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_lambda_returns_against_the_sum_over_lengths(seed: int, t: int, gamma: float, lam: float) -> None:
    """The forward view, written out: n-step returns weighted by (1 - lam) lam^(n-1), the rest on the longest."""
    rng = np.random.default_rng(seed)
    reward, value, done = rng.normal(size=t), rng.normal(size=t), rng.random(t) < 0.3

    def steps(at: int, n: int) -> float:
        total, factor = 0.0, 1.0
        for k in range(at, at + n):
            total += factor * reward[k]
            if done[k]:
                return total
            factor *= gamma
        return float(total + factor * value[at + n - 1])

    expected = [
        sum((1 - lam) * lam ** (n - 1) * steps(at, n) for n in range(1, t - at))
        + lam ** (t - at - 1) * steps(at, t - at)
        for at in range(t)
    ]
    arrays = (x[:, None].astype(np.float32) for x in (reward, done, value))
    found = jitted_returns(*arrays, np.float32(gamma), np.float32(lam))
    np.testing.assert_allclose(np.asarray(found)[:, 0], expected, atol=1e-4)


def test_the_loss_and_its_gradient_against_loops() -> None:
    """VDN's loss with double Q-learning, from the definition: sums over agents and steps, one network call a step."""
    mask = [[True, True, False], [True, True, True]]
    env = MatrixGame(np.arange(9.0).reshape(3, 3), mask=mask, rounds=2)
    config = QConfig(hidden=4, envs=3, buffer=3, batch=3, steps=100, tests=1, gamma=0.9, share=False)
    learner = QLearner(env, config)
    rng = np.random.default_rng(0)
    noisy = lambda leaf: np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape).astype(np.float32)  # noqa: E731
    # Noise: at the start, biases are 0 and rectifiers stand at their kink.
    params, target = (jax.tree.map(noisy, jax.jit(learner.init)(jax.random.PRNGKey(seed)).params) for seed in (1, 2))
    batch = jax.jit(learner.collect)(params["net"], jax.random.PRNGKey(3), 1.0)
    batch = jax.tree.map(np.asarray, batch)
    assert not (batch.action[:, :, 0] == 2).any()  # masked in play
    assert batch.done.tolist() == [[False, True]] * 3
    assert batch.fresh.tolist() == [[True, False, True]] * 3
    step = jax.jit(learner.net.apply)

    def run(weights: Any, world: int) -> list[Any]:
        memory, found = np.asarray(learner.net.rest(1, 2)), []
        for t in range(3):
            memory, values = step(
                weights["net"], memory, batch.obs[world, t][None, None], batch.fresh[world, t][None, None]
            )
            found.append(np.asarray(values)[0, 0])
        return found

    def errors(params: Any, wanted: Any = None) -> tuple[float, dict[tuple[int, int], float]]:
        """The loss, and each step's target (or the loss for targets given)."""
        total, targets = 0.0, {}
        for world in range(3):
            online, fixed = run(params, world), run(target, world)
            for t in range(2):
                y = batch.reward[world, t]
                if not batch.done[world, t]:
                    for i in range(2):
                        legal = [a for a in range(3) if mask[i][a]]
                        chosen = max(legal, key=lambda a: online[t + 1][i, a])
                        y += 0.9 * fixed[t + 1][i, chosen]
                targets[world, t] = y if wanted is None else wanted[world, t]
                team_value = sum(online[t][i, batch.action[world, t, i]] for i in range(2))
                total += (targets[world, t] - team_value) ** 2 / 6
        return total, targets

    loss, gradient = jax.jit(jax.value_and_grad(learner.loss))(params, target, batch)
    by_hand, targets = errors(params)
    assert float(loss) == pytest.approx(by_hand, rel=1e-4)
    for _ in range(3):  # the slope along a direction, for the same targets
        along = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), params)
        up, down = (
            errors(jax.tree.map(lambda leaf, a: np.asarray(leaf) + sign * 0.001 * a, params, along), targets)[0]  # noqa: B023
            for sign in (1, -1)
        )
        slope = sum(float((g * a).sum()) for g, a in zip(*map(jax.tree.leaves, (gradient, along)), strict=True))
        assert slope == pytest.approx((up - down) / 0.002, rel=0.02, abs=0.05)


def test_a_killed_training_ends_with_the_same_numbers(tmp_path: Path) -> None:
    tiny = QConfig(hidden=4, envs=2, buffer=4, batch=2, fits=1, steps=12, tests=3, test_episodes=2, dueling=False)
    learner = QLearner(MatrixGame(PENALTY), tiny)
    whole, curve = train_q(learner, [1, 2], chunk=1)

    def die(done: int, *_: Any) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_q(learner, [1, 2], folder=tmp_path, chunk=1, report=die)
    again, resumed = train_q(learner, [1, 2], folder=tmp_path, chunk=1)
    for name in curve:
        np.testing.assert_array_equal(resumed[name], curve[name])
    for found, expected in zip(jax.tree.leaves(again), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert curve["return"].shape == (3, 2)
    assert curve["events"].shape == (3, 2, 2)


def test_exploration_keeps_to_what_is_available() -> None:
    avail = jnp.array([[True, False, True], [False, True, False]])
    values = jnp.array([[0.0, 9.0, 1.0], [5.0, -9.0, 5.0]])
    assert best(values, avail).tolist() == [2, 1]
    drawn = np.asarray(
        jax.vmap(lambda key: explore(key, values, avail, 1.0))(jax.random.split(jax.random.PRNGKey(0), 400))
    )
    assert set(drawn[:, 0]) == {0, 2}
    assert set(drawn[:, 1]) == {1}
    assert abs((drawn[:, 0] == 0).mean() - 0.5) < 0.1
    assert explore(jax.random.PRNGKey(0), values, avail, 0.0).tolist() == [2, 1]


def test_the_replay_is_a_ring() -> None:
    replay = make_replay({"x": jnp.zeros(2, jnp.int32)}, 3)
    for first in (1, 3, 5):
        replay = push(replay, {"x": jnp.array([[first, first], [first + 1, first + 1]])})
    assert sorted(np.asarray(replay.data["x"])[:, 0].tolist()) == [4, 5, 6]
    assert int(replay.filled) == 3
    few = push(make_replay({"x": jnp.zeros((), jnp.int32)}, 50), {"x": jnp.array([7, 8])})
    assert set(np.asarray(draw(few, jax.random.PRNGKey(0), 40)["x"]).tolist()) == {7, 8}
    with pytest.raises(UserError, match="4 stretches do not fit into a replay of 3"):
        push(replay, {"x": jnp.zeros((4, 2), jnp.int32)})
    with pytest.raises(UserError, match=r"a replay of 1000000000000 stretches for 3 seeds needs .* GiB.*lower buffer"):
        make_replay({"x": jax.eval_shape(lambda: jnp.zeros(1000))}, 10**12, copies=3)


def test_the_lazy_agent_index() -> None:
    events = jnp.array([[[4.0, 0.0], [2.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [[3.0, 3.0], [1.0, 1.0]]])
    np.testing.assert_allclose(lazy_agent_index(events), [0.25, 0.0, 0.5])


def test_scrambled_roles_are_drawn_anew_and_are_still_each_given_once() -> None:
    learner = QLearner(MatrixGame(PENALTY), QConfig(scramble=True, buffer=8, hidden=4))
    dealt = np.asarray(jax.vmap(learner.deal)(jax.random.split(jax.random.PRNGKey(0), 50)))
    assert (dealt.sum(1) == 1).all()
    assert 0.2 < dealt[:, 0, 0].mean() < 0.8
    assert QLearner(MatrixGame(PENALTY), QConfig()).deal(jax.random.PRNGKey(0)).tolist() == [[1, 0], [0, 1]]


def test_what_is_done_silently_is_said() -> None:
    class Apart(MatrixGame):
        team_reward = False

    with pytest.warns(TeamRewardWarning, match="their sum is the team's"):
        QLearner(Apart(PENALTY), QConfig())
    with pytest.warns(RoleWarning, match="roles row, column share weights and are not told"):
        QLearner(MatrixGame(PENALTY), QConfig(roles="none"))


def test_bad_settings_are_refused() -> None:
    for bad, match in [
        ({"envs": 0}, "envs must be at least 1, got 0"),
        ({"gamma": 1.5}, "gamma must be between 0 and 1, got 1.5"),
        ({"epsilon": (1.0, -0.1)}, "epsilon must be"),
        ({"lr": 0.0}, "lr and clip"),
        ({"channels": ("mid",)}, "got 'mid'"),
        ({"buffer": 4}, r"buffer \(4\) must hold"),
    ]:
        with pytest.raises(UserError, match=match):
            QConfig(**bad)
    with pytest.raises(UserError, match=r"there is no mixer 'vdm'.*Did you mean 'vdn'"):
        make_mixer("vdm")
    with pytest.raises(UserError, match="column has no available action"):
        QLearner(MatrixGame(PENALTY, mask=[[True, True], [False, False]]), QConfig())
    with pytest.raises(UserError, match=r"actions \*\* agents = 80 \*\* 2 = 6400 joint actions, at most 4096"):
        joint_env(MatrixGame(np.zeros((80, 80))))
    with pytest.raises(UserError, match="expected at least one"):
        train_q(QLearner(MatrixGame(PENALTY), QConfig()), [])


def test_too_large_rewards_show_in_the_loss_at_which_the_loop_stops() -> None:
    config = QConfig(hidden=4, envs=2, buffer=4, batch=2, fits=1, steps=12, tests=2, test_episodes=2)
    learner = QLearner(MatrixGame(np.full((2, 2), 1e30)), config)
    _, figures = jax.jit(learner.play_and_fit)(jax.jit(learner.init)(jax.random.PRNGKey(0)))
    assert not np.isfinite(figures["loss"])


def test_evaluation_counts_one_episode_each() -> None:
    learner = QLearner(MatrixGame(PENALTY, rounds=3), QConfig(hidden=4))
    params = jax.jit(learner.init)(jax.random.PRNGKey(0)).params
    played = jax.jit(lambda key: evaluate(learner.env, learner.policy(params), key, 4))(jax.random.PRNGKey(1))
    own = values_of(learner, params).argmax(1)
    assert played.length.tolist() == [3.0] * 4
    assert played.events.tolist() == [[3.0, 3.0]] * 4
    assert played.returns[0] in [a + b + c for a in PENALTY.ravel() for b in PENALTY.ravel() for c in PENALTY.ravel()]
    assert own.shape == (2,)

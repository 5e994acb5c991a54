"""MADDPG: losses against slow references, joint rows, who sees whom, ensembles apart, learning a planted task."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft._jax import loop
from rolecraft.errors import UserError
from rolecraft.marl._ac_losses import (
    actor_loss,
    check_sees,
    critic_loss,
    inference_loss,
    joint_input,
    logit_penalty,
    td_target,
)
from rolecraft.marl._ac_maddpg import Maddpg, MaddpgConfig
from rolecraft.marl._ac_nets import Mlp, apply_stack, clip_each, gumbel_softmax, init_stack
from rolecraft.marl._ac_play import play_episodes
from rolecraft.marl._ac_replay import Transition, make_replay, newest, rows_of, sample, write
from tests.marl.ac_worlds import Naming

B, N, D, A, K = 5, 3, 2, 2, 2
SMALL = MaddpgConfig(hidden=8, batch=16, capacity=64, warmup=32, envs=4, steps=4)


def near(expected: jnp.ndarray, **tolerance: float):
    return pytest.approx(np.asarray(expected), **tolerance)


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def rows(rng: np.random.Generator, count: int = B, agents: int = N, d: int = D, a: int = A) -> Transition:
    """Made-up joint rows."""
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    yes = jnp.ones((count, agents, a), bool)
    actions = jax.nn.softmax(draw(count, agents, a))
    ended, sub = jnp.zeros((count, agents), bool), jnp.zeros((count, agents), jnp.int32)
    return Transition(
        draw(count, agents, d), yes, actions, draw(count, agents), draw(count, agents, d), yes, ended, ~ended, sub
    )


def quadratic(rng: np.random.Generator) -> tuple[jnp.ndarray, jnp.ndarray]:
    """Weights of critics ``x' M_i x + v_i x`` over joint inputs."""
    width = N * (D + A)
    return jnp.asarray(rng.standard_normal((N, width, width)), jnp.float32), jnp.asarray(
        rng.standard_normal((N, width)), jnp.float32
    )


def test_actor_gradient_is_the_papers(rng: np.random.Generator) -> None:
    """The gradient by autodiff equals the actor's Jacobian times the critic's slope by the own action, row by row."""
    batch, (m, v) = rows(rng), quadratic(rng)
    weights = jnp.asarray(rng.standard_normal((N, D, A)), jnp.float32)

    def critic(x):
        return jnp.einsum("nbi,nij,nbj->nb", x, m, x) + jnp.einsum("ni,nbi->nb", v, x)

    def loss(weights):
        own = jnp.tanh(jnp.einsum("bnd,nda->bna", batch.obs, weights))[None]
        return actor_loss(critic, batch.obs, batch.action, own, jnp.ones((N, N)), jnp.ones((1, B, N))).sum()

    found = jax.jit(jax.grad(loss))(weights)
    slow = np.zeros((N, D, A))
    for i in range(N):
        for b in range(B):
            actions = np.array(batch.action[b])
            actions[i] = np.tanh(np.array(batch.obs[b, i]) @ np.array(weights[i]))
            x = np.concatenate([np.array(batch.obs[b]), actions], 1).ravel()
            slope = ((np.array(m[i]) + np.array(m[i]).T) @ x + np.array(v[i])).reshape(N, D + A)[i, D:]
            slow[i] -= np.outer(np.array(batch.obs[b, i]), slope * (1 - actions[i] ** 2)) / B
    assert np.asarray(found) == pytest.approx(slow, rel=1e-3, abs=1e-4)


def test_a_masked_critic_is_ddpgs(rng: np.random.Generator) -> None:
    """With the identity, a critic's values and its actor's gradient do not depend on the others; with ones they do."""
    batch, (m, v) = rows(rng), quadratic(rng)
    changed = batch.obs.at[:, 1:].add(1.0), batch.action.at[:, 1:].add(1.0)

    def value(obs, actions, sees):
        x = joint_input(obs, actions, sees)[0]
        return jnp.einsum("bi,ij,bj->b", x, m[0], x) + x @ v[0]

    alone = jnp.eye(N)
    assert np.asarray(value(batch.obs, batch.action, alone)) == near(value(*changed, alone))
    assert not np.allclose(value(batch.obs, batch.action, jnp.ones((N, N))), value(*changed, jnp.ones((N, N))))
    own = jnp.concatenate([batch.obs[:, 0], batch.action[:, 0]], 1)
    local = jnp.einsum("bi,ij,bj->b", own, m[0, : D + A, : D + A], own) + own @ v[0, : D + A]
    assert np.asarray(value(batch.obs, batch.action, alone)) == near(local, rel=1e-4)


def marked(leaf: jnp.ndarray, moment: jnp.ndarray) -> jnp.ndarray:
    """An array of that form in which every number of a row is its moment."""
    return jnp.broadcast_to(moment.reshape(-1, *[1] * (leaf.ndim - 1)), leaf.shape).astype(leaf.dtype)


def test_critics_see_exactly_the_joint_rows(rng: np.random.Generator) -> None:
    """Every number of a row carries its moment; a critic's input and target must hold one moment only."""
    example = jax.tree.map(lambda leaf: leaf[0], rows(rng, 1))
    replay = make_replay(example, 40, 10)
    for start in (0, 10, 20):
        moment = jnp.arange(start, start + 10, dtype=jnp.float32)
        replay = write(replay, Transition(*(marked(leaf, moment) for leaf in rows(rng, 10))))
    drawn = sample(replay, jax.random.PRNGKey(0), 64)
    seen = np.asarray(joint_input(drawn.obs, drawn.action, jnp.ones((N, N))))
    assert (seen == seen[:, :, :1]).all(), "one moment in a critic's input"
    assert (seen[0, :, 0] == np.asarray(drawn.reward[:, 2])).all(), "and in its reward"
    assert len(np.unique(seen)) > 20
    assert seen.max() < 30, "nothing is drawn that was not written"
    planted = drawn._replace(action=drawn.action.at[:, 1].set(jnp.roll(drawn.action[:, 1], 1, 0)))
    wrong = np.asarray(joint_input(planted.obs, planted.action, jnp.ones((N, N))))
    assert not (wrong == wrong[:, :, :1]).all(), "indices of one agent's own would be seen here"
    with pytest.raises(UserError, match=r"indexed jointly, got lengths .*'action': 63"):
        rows_of(drawn._replace(action=drawn.action[:63]))


def test_replay_is_a_ring(rng: np.random.Generator) -> None:
    example = jax.tree.map(lambda leaf: leaf[0], rows(rng, 1))
    replay = make_replay(example, 25, 10)
    assert replay.capacity == 30, "whole blocks"
    for number in range(4):
        block = rows(rng, 10)
        replay = write(replay, block._replace(reward=jnp.full((10, N), float(number))))
    assert sorted(np.unique(replay.rows.reward).tolist()) == [1.0, 2.0, 3.0]
    assert np.asarray(newest(replay, 15).reward[:, 0]).tolist() == [2.0] * 5 + [3.0] * 10
    with pytest.raises(UserError, match="takes blocks that divide it, got 7"):
        write(replay, rows(rng, 7))
    with pytest.raises(UserError, match="one row per agent in every field"):
        make_replay(example._replace(reward=jnp.zeros(2)), 10, 5)
    with pytest.raises(UserError, match="GiB of memory are free; lower capacity"):
        make_replay(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example), 10**12, 10)


def test_gumbel_samples_have_the_right_limits() -> None:
    logits = jnp.log(jnp.array([0.6, 0.3, 0.1]))
    noise = jax.random.gumbel(jax.random.PRNGKey(0), (20_000, 3))
    soft = {t: gumbel_softmax(logits, noise, temperature=t, straight_through=False) for t in (1e-3, 1.0, 1e3)}
    assert np.asarray(soft[1e-3].max(-1)).mean() > 0.995
    assert np.asarray(soft[1e-3].mean(0)) == pytest.approx([0.6, 0.3, 0.1], abs=0.02), "towards 0: categorical samples"
    assert np.asarray(soft[1e3]) == pytest.approx(1 / 3, abs=0.02), "towards infinity: uniform"
    hard = gumbel_softmax(logits, noise)
    assert (np.asarray(hard).round(6) == np.asarray(jax.nn.one_hot(soft[1.0].argmax(-1), 3))).all()
    grad = [
        jax.grad(lambda z, h=h: (gumbel_softmax(z, noise[0], straight_through=h) * jnp.arange(3.0)).sum())(logits)
        for h in (True, False)
    ]
    assert np.asarray(grad[0]) == near(grad[1], rel=1e-4), "the gradient is the relaxed sample's"
    masked = gumbel_softmax(logits, noise[:50], jnp.array([False, True, True]), straight_through=False)
    assert (masked[:, 0] == 0).all()
    with pytest.raises(UserError, match="must be above 0, got 0"):
        gumbel_softmax(logits, noise, temperature=0.0)


def test_targets_and_losses_by_hand() -> None:
    reward, value = jnp.array([[1.0, 2.0]]), jnp.array([[10.0, 10.0]])
    assert td_target(reward, jnp.array([[False, True]]), value, 0.9).tolist() == [[10.0, 2.0]]
    values, targets = jnp.array([[1.0, 0.0], [3.0, 5.0]]), jnp.zeros((2, 2))
    assert critic_loss(values, targets, jnp.ones((2, 2), bool)).tolist() == [5.0, 12.5]
    gone = jnp.array([[True, True], [True, False]])
    assert critic_loss(values, targets, gone).tolist() == [5.0, 0.0], "rows of an agent that has left do not count"
    logits, avail = jnp.array([[[1.0, 3.0, 9.0]]]), jnp.array([[[True, True, False]]])
    assert logit_penalty(logits, avail).tolist() == [5.0]
    clipped = clip_each({"w": jnp.array([[3.0, 4.0], [0.3, 0.4]])}, 1.0, 1)["w"]
    assert np.asarray(clipped) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4]])), "one norm per network"


def test_guesses_are_fitted_by_likelihood_and_entropy(rng: np.random.Generator) -> None:
    logits = jnp.asarray(rng.standard_normal((N, N, B, A)), jnp.float32)
    actions = jax.nn.one_hot(jnp.asarray(rng.integers(A, size=(B, N))), A)
    found = np.asarray(inference_loss(logits, actions, jnp.ones((B, N, A), bool), 0.1))
    for i in range(N):
        for j in range(N):
            p = np.asarray(jax.nn.softmax(logits[i, j]))
            slow = -np.mean(
                [np.log(p[b][int(actions[b, j].argmax())]) - 0.1 * (p[b] * np.log(p[b])).sum() for b in range(B)]
            )
            assert found[i, j] == pytest.approx(0 if i == j else slow, rel=1e-4)


@pytest.mark.parametrize("ensemble", [1, 3])
def test_ensembles_keep_their_buffers_apart(ensemble: int, rng: np.random.Generator) -> None:
    """A sub-policy without rows of its own gets no gradient, and rows of another do not change its gradient."""
    learner = Maddpg(Naming(), MaddpgConfig(hidden=8, ensemble=ensemble))
    batch = rows(rng, 12, 2, 4, 3)
    batch = batch._replace(sub=jnp.tile(jnp.array([[0, min(1, ensemble - 1)]]), (12, 1)))
    k_actor, k_critic, key = jax.random.split(jax.random.PRNGKey(0), 3)
    actor = init_stack(learner.actor, k_actor, (2, ensemble), 4)
    critic = init_stack(learner.critic, k_critic, (2,), 14)

    objective = jax.jit(jax.grad(learner.actor_objective, has_aux=True))

    def gradient(batch: Transition) -> np.ndarray:
        slope, _ = objective(actor, critic, batch, learner.sees(), key)
        return np.asarray(slope["params"]["hidden_0"]["kernel"])

    all_rows = gradient(batch)
    used = np.abs(all_rows).sum((2, 3)) > 0
    expected = np.zeros((2, ensemble), bool)
    expected[0, 0] = expected[1, min(1, ensemble - 1)] = True
    assert (used == expected).all()
    if ensemble > 1:
        other = jnp.where(jnp.arange(12)[:, None] >= 6, 2, batch.sub)
        halved = gradient(batch._replace(sub=other))
        assert not np.allclose(halved[0, 0], all_rows[0, 0]), "six rows fewer"
        marked = batch._replace(sub=other, reward=batch.reward, obs=batch.obs.at[6:].add(5.0))
        assert gradient(marked)[0, 0] == pytest.approx(halved[0, 0], abs=1e-6), "rows of sub-policy 2 are not its own"
        assert not np.allclose(gradient(marked)[0, 2], halved[0, 2])


def test_stacked_networks_are_independent() -> None:
    net = Mlp(2, 4)
    params = init_stack(net, jax.random.PRNGKey(0), (3, 2), 5)
    x = jax.random.normal(jax.random.PRNGKey(1), (3, 2, 7, 5))
    found = apply_stack(net, params, x, 2)
    one = jax.tree.map(lambda leaf: leaf[1, 0], params)
    assert np.asarray(found[1, 0]) == near(net.apply(one, x[1, 0]), abs=1e-5)
    assert not np.allclose(params["params"]["out"]["kernel"][0, 0], params["params"]["out"]["kernel"][1, 0])


def test_it_learns_to_name(rng: np.random.Generator) -> None:
    env = Naming()
    learner = Maddpg(env, MaddpgConfig(hidden=16, batch=64, capacity=4000, warmup=320, envs=8, steps=4, ensemble=2))
    state = jax.jit(learner.init)(jax.random.PRNGKey(1))
    assert int(state.replay.written) == 320
    subs = np.asarray(state.replay.rows.sub[:320].reshape(10, 4, 8, 2))
    assert (subs == subs[:, :1]).all(), "a sub-policy stays for an episode"
    assert {0, 1} == set(np.unique(subs).tolist())
    ends = np.asarray(state.replay.rows.next_obs[24:32])
    assert (ends[:, 0, :2] == np.asarray(state.replay.rows.obs[24:32, 0, :2])).all(), "the last row sees its own end"
    whole, figures = loop(learner.update, state, updates=400, chunk=400)
    assert figures["critic_loss"].shape == (400, 2)
    sub = jnp.zeros((200, 2), jnp.int32)

    @jax.jit
    def play(actor, key):
        return play_episodes(env, lambda o, a, _: learner.send(learner.act(actor, o, a, sub)), key, 200)

    played = play(whole.weights.actor, jax.random.PRNGKey(2))
    assert played.returns.shape == (200, 2)
    assert played.returns.mean() > 1.2, "at most 0.5 in each of 4 steps, but for the first guess"


@pytest.mark.parametrize("options", [{"relaxed": True, "infer": True}, {}])
def test_continuous_actions_guesses_and_nan(options: dict[str, bool]) -> None:
    env = Naming(discrete=False)
    learner = Maddpg(env, MaddpgConfig(hidden=4, batch=8, capacity=32, warmup=16, envs=4, steps=2, **options))
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    before = np.asarray(state.targets.critic["params"]["out"]["kernel"])
    update = jax.jit(learner.update)
    after, figures = update(state)
    assert ("guess_loss" in figures) == ("infer" in options)
    written = np.asarray(after.replay.rows.action[:24])
    assert (written[..., 2] == 0).all(), "what an agent does not have is never done"
    if options:
        assert written.sum(-1) == pytest.approx(1, abs=1e-5)
        assert ((written > 0.01) & (written < 0.99)).any(), "moves are mixed"
    else:
        assert (written < 0).any()
        assert learner.send(jnp.array([-1.0, 1.0])).tolist() == [learner.config.low, learner.config.high]
    moved, now = (np.asarray(w.critic["params"]["out"]["kernel"]) for w in (after.targets, after.weights))
    assert moved == pytest.approx(before + 0.01 * (now - before), abs=1e-6), "targets follow softly"
    assert not np.allclose(moved, before)
    if not options:
        broken = state.replay.rows._replace(reward=jnp.full_like(state.replay.rows.reward, jnp.nan))
        _, figures = update(state._replace(replay=state.replay._replace(rows=broken)))
        assert np.isnan(figures["critic_loss"]).all(), "the loop stops at a figure that is not finite"


def test_bad_input_is_named() -> None:
    with pytest.raises(UserError, match="batch must be at least 1, got 0"):
        MaddpgConfig(batch=0)
    with pytest.raises(UserError, match="temperature must be above 0"):
        MaddpgConfig(temperature=0.0)
    with pytest.raises(UserError, match=r"tau must lie in \[0, 1\]"):
        MaddpgConfig(tau=2.0)
    with pytest.raises(UserError, match="expected low < high"):
        MaddpgConfig(low=1.0)
    with pytest.raises(UserError, match="relaxed=True needs continuous actions, and those of naming are discrete"):
        Maddpg(Naming(), MaddpgConfig(relaxed=True))
    with pytest.raises(UserError, match="infer=True guesses distributions over choices"):
        Maddpg(Naming(discrete=False), MaddpgConfig(infer=True))
    with pytest.raises(UserError, match=r"\(n, n\) = \(2, 2\), got \(3, 2\)"):
        check_sees(jnp.ones((3, 2)), 2)
    with pytest.raises(UserError, match="ones on the diagonal"):
        check_sees(jnp.zeros((2, 2)), 2)
    with pytest.raises(UserError, match=r"one entry per agent, \(n,\) = \(2,\), got 3"):
        Maddpg(Naming(), SMALL).sees((True, False, True))
    with pytest.raises(UserError, match="episodes must be at least 1"):
        play_episodes(Naming(), lambda o, a, k: o, jax.random.PRNGKey(0), 0)

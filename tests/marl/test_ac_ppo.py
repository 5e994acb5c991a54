"""PPO: closed form of the clipped loss, advantages against a slow reference, a bandit learned."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._ac_ppo import Ppo, PpoBatch, PpoConfig, clipped_loss, gae


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),
        (0.5, 2.0, -1.0, -1.0),
        (0.5, -2.0, 1.6, 0.0),
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_clipped_loss_in_closed_form(ratio: float, advantage: float, expected: float, slope: float) -> None:
    """The loss is -min(r A, clip(r) A); its slope by the log-probability is -r A, or 0 where the clip holds."""
    given = jnp.log(jnp.array([ratio])), jnp.zeros(1), jnp.array([advantage])
    assert float(clipped_loss(*given, 0.2)[0]) == pytest.approx(expected, rel=1e-5)
    found = jax.grad(lambda x: clipped_loss(x, *given[1:], 0.2).sum())(given[0])
    assert float(found[0]) == pytest.approx(slope, rel=1e-5)


def test_advantages_against_a_slow_reference() -> None:
    rng, steps, gamma, decay = np.random.default_rng(0), 7, 0.9, 0.8
    reward, value, following = rng.standard_normal((3, steps, 2))
    over = np.zeros((steps, 2), bool)
    over[3, 0] = over[6] = over[2, 1] = True
    terminal = over.copy()
    terminal[3, 0] = False
    found, target = gae(*(jnp.asarray(x) for x in (reward, value, following, terminal, over)), gamma, decay)
    slow = np.zeros((steps, 2))
    for column in range(2):
        for start in range(steps):
            weight = 1.0
            for t in range(start, steps):
                bootstrap = 0.0 if terminal[t, column] else gamma * following[t, column]
                slow[start, column] += weight * (reward[t, column] + bootstrap - value[t, column])
                weight *= gamma * decay
                if over[t, column]:
                    break
    assert np.asarray(found) == pytest.approx(slow, abs=1e-5)
    assert np.asarray(target) == pytest.approx(slow + value, abs=1e-5)


def test_it_learns_a_bandit_within_what_is_available() -> None:
    """Action 2 pays most but is not at hand; of the others, the one that the observation names."""
    ppo = Ppo(PpoConfig(hidden=16, actor_lr=0.01, critic_lr=0.01, minibatches=2, entropy=0.0, normalise=False), 2, 3)

    @jax.jit
    def go(key):
        def one(state, key):
            k_obs, k_act, k_update = jax.random.split(key, 3)
            which = jax.random.randint(k_obs, (64,), 0, 2)
            obs = jax.nn.one_hot(which, 2)
            avail = jnp.broadcast_to(jnp.array([True, True, False]), (64, 3))
            action, log_prob = ppo.act(state.weights.actor, obs, avail, k_act)
            reward = jnp.where(action == 2, 9.0, (action == which).astype(jnp.float32))
            advantage = reward - ppo.value(state.weights.critic, obs)
            state, _ = ppo.update(state, PpoBatch(obs, obs, avail, action, log_prob, advantage, reward), k_update)
            return state, (reward.mean(), (action == 2).any())

        k_init, key = jax.random.split(key)
        return jax.lax.scan(one, ppo.init(k_init), jax.random.split(key, 30))

    state, (reward, forbidden) = go(jax.random.PRNGKey(0))
    assert not np.asarray(forbidden).any()
    assert float(reward[0]) < 0.7
    assert np.asarray(reward[-5:]).mean() > 0.95
    values = np.asarray(ppo.value(state.weights.critic, jnp.eye(2)))
    assert values == pytest.approx(1, abs=0.15), "the critic knows what the policy gets"


def test_either_network_has_its_own_gradient() -> None:
    """The critic's loss moves no actor, and the actor's no critic; a central critic has its own input."""
    ppo = Ppo(PpoConfig(hidden=4, normalise=False), 2, 3, world_size=5)
    state = jax.jit(ppo.init)(jax.random.PRNGKey(0))
    batch = PpoBatch(
        jnp.ones((4, 2)), jnp.ones((4, 5)), jnp.ones((4, 3), bool), jnp.zeros(4, jnp.int32), jnp.full(4, -1.0),
        jnp.zeros(4), jnp.arange(4.0),
    )  # fmt: skip
    flat = ppo.config.__class__(hidden=4, normalise=False, entropy=0.0)
    slope, figures = jax.jit(jax.grad(Ppo(flat, 2, 3, 5).loss, has_aux=True))(state.weights, batch)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(slope.actor)), "no advantage, no change"
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(slope.critic))
    assert float(figures["entropy"]) == pytest.approx(np.log(3), abs=1e-3), "a fresh policy is nearly uniform"


def test_bad_input_is_named() -> None:
    with pytest.raises(UserError, match="epochs must be at least 1, got 0"):
        PpoConfig(epochs=0)
    with pytest.raises(UserError, match="clip must be above 0"):
        PpoConfig(clip=0.0)
    with pytest.raises(UserError, match=r"decay must lie in \[0, 1\]"):
        PpoConfig(decay=1.1)
    with pytest.raises(UserError, match="actions from 2, got 3 and 1"):
        Ppo(PpoConfig(), 3, 1)
    ppo = Ppo(PpoConfig(hidden=4, minibatches=3), 2, 2)
    batch = PpoBatch(*(jnp.zeros((4, 2)),) * 3, jnp.zeros(4, jnp.int32), *(jnp.zeros(4),) * 3)
    with pytest.raises(UserError, match="4 rows cannot be cut into 3 equal minibatches"):
        ppo.update(ppo.init(jax.random.PRNGKey(0)), batch, jax.random.PRNGKey(0))

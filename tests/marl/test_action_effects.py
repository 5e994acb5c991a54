from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
pytest.importorskip("sklearn")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import ActionEffects, EffectConfig, Moves, discover_roles, effect_config, random_moves
from rolecraft.marl._action_effects import count_actions, moves_of
from rolecraft.marl._rode_loss import RodeStretch
from rolecraft.systems.marl._rode_worlds import PlantedEffects

ACTIONS = 3
KEY = jax.random.PRNGKey(0)


def some_moves(agents: int = 2, number: int = 6) -> Moves:
    """Moves of no world in particular; the fourth ends an episode."""
    rng = np.random.default_rng(0)
    obs, after = rng.normal(size=(2, number, agents, 2))
    action = rng.integers(ACTIONS, size=(number, agents))
    valid = np.arange(number) != 3
    return Moves(*map(jnp.asarray, (obs, action, after, rng.normal(size=number), valid)))


def test_clusters_of_latents_are_the_planted_groups() -> None:
    env = PlantedEffects(groups=3, each=2, agents=2)
    moves = random_moves(env, jax.random.PRNGKey(0), 1500, envs=8)
    effects = ActionEffects(2, 6, 3, effect_config("balanced", latent=6, sample=64))
    params, losses = jax.jit(lambda key: effects.fit(moves, key, 400))(jax.random.PRNGKey(1))
    assert float(losses[-20:].mean()) < 0.5 * float(losses[:5].mean())
    groups = {frozenset(np.flatnonzero(row)) for row in discover_roles(jax.jit(effects.latents)(params), 3).mask}
    assert groups == {frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5})}
    untrained = discover_roles(jax.jit(lambda key: effects.latents(effects.init(key)))(jax.random.PRNGKey(1)), 3)
    assert {frozenset(np.flatnonzero(row)) for row in untrained.mask} != groups
    assert int(count_actions(moves, 6).sum()) == 2 * len(moves.reward)
    # What follows is of the same episode, also at its end: half of what was, and one.
    np.testing.assert_allclose(np.asarray(moves.after).mean(), 2 / 3, atol=0.05)


@pytest.mark.parametrize("kind", ["published", "balanced"])
def test_the_loss_is_the_formula(kind: str) -> None:
    effects = ActionEffects(2, ACTIONS, 2, effect_config(kind, latent=3, width=4))
    moves = some_moves()
    params: Any = jax.jit(effects.init)(jax.random.PRNGKey(0))
    weights = jax.tree.map(np.asarray, params)["params"]

    def layer(name: str, x: Any) -> Any:
        return x @ weights[name]["kernel"] + weights[name]["bias"]

    def two(name: str, x: Any) -> Any:
        return layer(f"{name}_out", np.maximum(layer(f"{name}_hidden", x), 0))

    eye, kept = np.eye(ACTIONS), np.asarray(moves.valid)
    change = np.asarray(moves.after - moves.obs)[kept].reshape(-1, 2)
    reward = np.asarray(moves.reward)
    terms = []
    for m in np.flatnonzero(kept):
        for i in range(2):
            obs, after = np.asarray(moves.obs[m, i]), np.asarray(moves.after[m, i])
            context = two("context", np.concatenate([obs, eye[moves.action[m, 1 - i]]]))
            both = np.concatenate([context, two("action", eye[moves.action[m, i]])])
            wanted, worth, weight = after, reward[m], 10.0
            if kind == "balanced":
                wanted = np.clip((after - obs - change.mean(0)) / change.std(0), -5, 5)
                worth, weight = (reward[m] - reward[kept].mean()) / reward[kept].std(), 1.0
            error = two("obs", both) - wanted
            own = np.sqrt((error**2).sum()) if kind == "published" else (error**2).mean()
            terms.append(own + weight * (two("reward", both)[0] - worth) ** 2)
    found = jax.jit(lambda own: effects.loss(own, effects.focal(moves, jnp.arange(12), effects.scale(moves))))(params)
    assert float(found) == pytest.approx(np.mean(terms), rel=1e-4)


def test_balanced_draws_take_every_action_alike_often_and_no_draw_an_invalid_move() -> None:
    action = jnp.asarray(np.array([0] * 90 + [1] * 9 + [2] * 21).reshape(60, 2))
    moves = Moves(jnp.zeros((60, 2, 1)), action, jnp.zeros((60, 2, 1)), jnp.zeros(60), jnp.arange(60) < 50)
    for sampling, wanted in (("balanced", [1 / 3] * 3), ("uniform", [0.9, 0.09, 0.01])):
        effects = ActionEffects(2, 3, 1, EffectConfig(sampling=sampling))
        order, which = jax.jit(lambda e=effects: (e.order(moves, KEY), e.draw(KEY, e.order(moves, KEY), 6000)))()
        assert order[2].tolist() == [90, 9, 1]
        which = np.asarray(which)
        assert which.max() < 100
        share = np.bincount(np.asarray(action).ravel()[which], minlength=3) / 6000
        np.testing.assert_allclose(share, wanted, atol=0.03)


def test_context_holds_the_others_actions_in_order_and_none_of_a_lone_agent() -> None:
    moves = some_moves(agents=3)
    effects = ActionEffects(3, ACTIONS, 2)
    focal = jax.jit(lambda: effects.focal(moves, jnp.array([3 * 4 + 1]), effects.scale(moves)))()
    seen = np.asarray(focal.others).reshape(2, ACTIONS).argmax(1)
    assert seen.tolist() == [int(moves.action[4, 0]), int(moves.action[4, 2])]
    lone = ActionEffects(1, ACTIONS, 2)
    alone = jax.eval_shape(lambda own: lone.focal(own, jnp.arange(6), lone.scale(own)), some_moves(agents=1))
    assert alone.others.shape == (6, 0)


def test_moves_of_a_stretch_leave_out_what_follows_an_end() -> None:
    obs = jnp.arange(2 * 4 * 2 * 3.0).reshape(2, 4, 2, 3)
    none, done = jnp.zeros(0), jnp.zeros((2, 3), bool).at[1, 1].set(True)
    moves = moves_of(RodeStretch(obs, none, none, none, none, none, jnp.ones((2, 3, 2)), jnp.ones((2, 3)), done), 2)
    assert moves.obs.shape == (6, 2, 2)
    np.testing.assert_array_equal(moves.after[3], obs[1, 1, :, :2])
    assert moves.valid.tolist() == [True] * 4 + [False, True]


def test_bad_input_is_refused() -> None:
    with pytest.raises(UserError, match=r"no settings 'publishd'.*Did you mean 'published'"):
        effect_config("publishd")
    with pytest.raises(UserError, match="sampling: expected one of uniform, balanced, got 'even'"):
        EffectConfig(sampling="even")
    with pytest.raises(UserError, match="latent must be at least 1"):
        EffectConfig(latent=0)
    effects = ActionEffects(2, ACTIONS, 5)
    with pytest.raises(UserError, match=r"moves.obs has shape \(6, 2, 2\), expected \(M, n, d\) = \(6, 2, 5\)"):
        effects.fit(some_moves(), jax.random.PRNGKey(0), 1)
    with pytest.raises(UserError, match="steps and envs must be at least 1"):
        random_moves(PlantedEffects(), jax.random.PRNGKey(0), 0)

"""Team Q-learning: what is played is what is learned from, when targets follow, what mixers are given."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

pytest.importorskip("jaxmarl")

from rolecraft.marl import Moved, QConfig, QLearner, evaluate, joint_env
from rolecraft.marl._evaluate import Policy
from rolecraft.marl._networks import best
from tests.marl._matrix import MatrixGame

TINY: dict[str, Any] = {"hidden": 4, "envs": 3, "buffer": 6, "batch": 3, "fits": 1, "steps": 120, "tests": 1}


class EndsEarly(MatrixGame):
    """Six steps at most, and over after the third."""

    def __init__(self) -> None:
        super().__init__(np.arange(9.0).reshape(3, 3), mask=[[True, True, True], [True, False, True]], rounds=6)

    def move(self, key: Any, state: Any, actions: Any) -> Moved:
        return super().move(key, state, actions)._replace(done=state == 2)


def loud(tree: Any) -> Any:
    """Networks whose memory shows."""
    return jax.tree.map(lambda leaf: 3 * leaf, tree)


def test_play_is_by_the_values_that_training_sees() -> None:
    learner = QLearner(EndsEarly(), QConfig(**TINY, scramble=True, roles="agent"))

    def play(key: Any) -> Any:
        net = loud(learner.init(key).params["net"])
        stretch = learner.collect(net, key, 0.0)
        data = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), stretch)
        values, forgetful = (
            learner.values(net, learner.net.rest(3, 2), data.obs, fresh)[1]
            for fresh in (data.fresh, jnp.ones_like(data.fresh))
        )
        return stretch, data.action, best(values[:-1], data.avail[:-1]), best(forgetful[:-1], data.avail[:-1])

    keys = jax.random.split(jax.random.PRNGKey(3), 20)
    every, action, greedy, forgetful = jax.tree.map(np.asarray, jax.jit(jax.vmap(play))(keys))
    assert (action == greedy).all()
    assert (greedy != forgetful).any(), "memory decides somewhere"
    stretch = jax.tree.map(lambda leaf: leaf[0], every)
    assert stretch.fresh.tolist() == [[True, False, False, True, False, False, True]] * 3
    told = np.asarray(stretch.obs)[..., 2:]
    assert (told[:, :3] == told[:, :1]).all(), "a role is dealt for an episode"
    assert (told[:, 3:6] == told[:, 3:4]).all()
    payoff = np.arange(9.0).reshape(3, 3)
    assert np.asarray(stretch.reward) == pytest.approx(payoff[tuple(np.moveaxis(np.asarray(stretch.action), -1, 0))])


def test_exploration_fades_and_then_stays() -> None:
    learner = QLearner(EndsEarly(), QConfig(**{**TINY, "steps": 18 * 40, "tests": 4}, epsilon=(0.9, 0.1), decay=0.5))
    found = [float(learner.epsilon(jnp.int32(count))) for count in (0, 10, 20, 40)]
    assert found == pytest.approx([0.9, 0.5, 0.1, 0.1])


def test_the_target_network_follows_at_its_turn() -> None:
    learner = QLearner(EndsEarly(), QConfig(**TINY, target_every=2))
    start, play = jax.jit(learner.init)(jax.random.PRNGKey(0)), jax.jit(learner.play_and_fit)
    once = play(start)[0]
    twice = play(once)[0]
    same = lambda a, b: all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))  # noqa: E731
    assert same(once.target, start.params)
    assert not same(once.params, start.params)
    assert same(twice.target, twice.params)


class Scaled:
    """A mixer in closed form: w times the sum, and ten times the world's number."""

    uses_world = True

    def init(self, key: Any, agents: int, world_size: int) -> Any:
        return {"w": jax.random.uniform(key, (), minval=1, maxval=2)}

    def mix(self, params: Any, values: Any, world: Any) -> Any:
        return params["w"] * values.sum(-1, keepdims=True) + 10 * world[..., :1]


def test_targets_are_mixed_by_the_target_mixer_with_the_next_world() -> None:
    learner = QLearner(EndsEarly(), QConfig(**TINY, mixer=Scaled(), gamma=0.5))

    @jax.jit
    def go(key: Any) -> Any:
        params, target = (learner.init(k).params for k in jax.random.split(key))
        batch = learner.collect(params["net"], key, 1.0)
        batch = batch._replace(world=jnp.broadcast_to(jnp.arange(7.0)[None, :, None], batch.world.shape))
        data = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)
        values = [learner.values(p["net"], learner.net.rest(3, 2), data.obs, data.fresh)[1] for p in (params, target)]
        return learner.loss(params, target, batch), data, values, params["mixer"]["w"], target["mixer"]["w"]

    loss, data, (online, fixed), w, slow_w = jax.tree.map(np.asarray, go(jax.random.PRNGKey(1)))
    expected = []
    for t in range(6):
        for b in range(3):
            taken = sum(online[t, b, i, data.action[t, b, i]] for i in range(2))
            legal = np.where(data.avail[t + 1, b], online[t + 1, b], -np.inf).argmax(-1)
            after = sum(fixed[t + 1, b, i, legal[i]] for i in range(2))
            y = data.reward[t, b] + 0.5 * (1 - data.done[t, b]) * (slow_w * after + 10 * (t + 1))
            expected.append((y - w * taken - 10 * t) ** 2)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-4)


def test_an_evaluation_stops_where_the_episode_does() -> None:
    policy = Policy(lambda key: 0, lambda carry, step, key: (carry, jnp.array([1, 2]), {}))
    played = jax.jit(lambda key: evaluate(EndsEarly(), policy, key, 2))(jax.random.PRNGKey(0))
    assert played.length.tolist() == [3, 3]
    assert played.returns.tolist() == [15, 15]
    assert played.events.tolist() == [[3, 3]] * 2


def test_a_joint_action_is_there_if_each_of_its_parts_is() -> None:
    env = joint_env(EndsEarly())
    _, step = env.reset(jax.random.PRNGKey(0))
    for joint in range(9):
        parts = env.split(jnp.int32(joint)).tolist()
        assert parts == [joint // 3, joint % 3]
        assert bool(step.avail[0, joint]) == (parts[1] != 1)

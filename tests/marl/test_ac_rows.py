"""What MADDPG writes into its replay, and what its targets and objective read from it: small cases."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.marl._ac_maddpg import Maddpg, MaddpgConfig, MaddpgState, Weights
from rolecraft.marl._ac_nets import init_stack
from rolecraft.marl._ac_play import play_episodes
from rolecraft.marl._ac_replay import Transition, make_replay
from rolecraft.marl._team import Moment, Moved, TeamWorld

SMALL: dict[str, Any] = {"hidden": 3, "batch": 4, "capacity": 8, "warmup": 1, "envs": 1, "steps": 4}


class Walk(NamedTuple):
    time: Any
    gone: Any


class Leaving(TeamWorld):
    """Three steps; agent 1 leaves in the second. An observation is the time, counted from 1."""

    def __init__(self) -> None:
        super().__init__("leaving", ("a", "b"), ("a", "b"), obs_size=1, actions=2, world_size=1, horizon=3)

    def start(self, key: Any) -> Walk:
        return Walk(jnp.float32(1), jnp.zeros(2, bool))

    def move(self, key: Any, state: Walk, actions: Any) -> Moved:
        leaves = (state.time == 2) & jnp.array([False, True])
        info = {"agent_done": leaves, "agent_was_done": state.gone}
        return Moved(Walk(state.time + 1, state.gone | leaves), jnp.full(2, state.time), jnp.zeros((), bool), info)

    def look(self, state: Walk) -> Moment:
        return Moment(jnp.full((2, 1), state.time), jnp.ones((2, 2), bool), state.time[None])


def test_rows_say_who_was_there_and_for_whom_nothing_follows() -> None:
    """Four steps: the three of an episode, and the first of the next."""

    def collected(key: Any, time_limit: bool) -> Transition:
        learner = Maddpg(Leaving(), MaddpgConfig(**SMALL, time_limit=time_limit))
        env, first = jax.vmap(learner.env.reset)(key[None])
        none = Weights(None, None, None)
        actor = none._replace(actor=init_stack(learner.actor, key, (2, 1), 1))
        state = MaddpgState(
            actor, none, none, learner.sees(), make_replay(learner._example(), 8, 4), env, first.obs, first.avail,
            jnp.zeros((1, 2), jnp.int32), key,
        )  # fmt: skip
        return jax.tree.map(lambda leaf: leaf[:4], learner.collect(state)[0].replay.rows)

    clock, terminal = jax.jit(lambda key: (collected(key, True), collected(key, False).ended))(jax.random.PRNGKey(0))
    assert clock.obs[:, 0, 0].tolist() == [1, 2, 3, 1]
    assert clock.next_obs[:, 0, 0].tolist() == [2, 3, 4, 2], "the last row sees its own episode's end"
    assert clock.reward[:, 0].tolist() == [1, 2, 3, 1]
    assert clock.active.tolist() == [[True, True], [True, True], [True, False], [True, True]]
    assert clock.ended[:, 0].tolist() == [False] * 4, "the clock is no terminal state"
    assert clock.ended[:, 1].tolist() == [False, True, False, False]
    assert terminal[:, 0].tolist() == [False, False, True, False]


def batch_of(rng: np.random.Generator, sub: int = 0, rows: int = 3) -> Transition:
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)  # noqa: E731
    yes = jnp.ones((rows, 2, 2), bool)
    return Transition(
        draw(rows, 2, 1), yes, jax.nn.one_hot(jnp.zeros((rows, 2), int), 2), draw(rows, 2), draw(rows, 2, 1), yes,
        jnp.zeros((rows, 2), bool), jnp.ones((rows, 2), bool), jnp.full((rows, 2), sub, jnp.int32),
    )  # fmt: skip


def weights_of(learner: Maddpg, seed: int = 3) -> Weights:
    keys = jax.random.split(jax.random.PRNGKey(seed), 3)
    k = learner.config.ensemble
    guess = init_stack(learner.actor, keys[2], (2, 2), 1) if learner.config.infer else None
    big = lambda tree: jax.tree.map(lambda leaf: 30 * leaf, tree)  # noqa: E731 (a policy that is sure of itself)
    return Weights(
        big(init_stack(learner.actor, keys[0], (2, k), 1)), init_stack(learner.critic, keys[1], (2,), 6),
        None if guess is None else big(guess),
    )  # fmt: skip


def targets_of(learner: Maddpg) -> Any:
    """The targets as a compiled function of weights and batch."""
    return jax.jit(lambda weights, batch: learner.targets(weights, batch, learner.sees(), jax.random.PRNGKey(0)))


def test_targets_are_those_of_what_follows_by_the_rows_sub_policy() -> None:
    learner = Maddpg(Leaving(), MaddpgConfig(**SMALL, ensemble=2, gamma=0.5))
    batch, weights, targets = batch_of(np.random.default_rng(0), sub=1), weights_of(learner), targets_of(learner)
    found = np.asarray(targets(weights, batch))
    assert (found == np.asarray(targets(weights, batch._replace(obs=batch.obs + 1, action=-batch.action)))).all()
    assert not np.allclose(found, targets(weights, batch._replace(next_obs=batch.next_obs + 1)))
    alone = weights._replace(actor=jax.tree.map(lambda leaf: leaf.at[:, 0].set(7.0), weights.actor))
    assert (found == np.asarray(targets(alone, batch))).all(), "the other sub-policy has no say"
    ended = targets(weights, batch._replace(ended=jnp.ones((3, 2), bool)))
    assert (np.asarray(ended) == np.asarray(batch.reward)).all()


def test_with_guesses_an_agents_target_reads_its_guess_of_the_other() -> None:
    learner = Maddpg(Leaving(), MaddpgConfig(**SMALL, infer=True))
    batch, weights, targets = batch_of(np.random.default_rng(0), rows=20), weights_of(learner), targets_of(learner)
    found = np.asarray(targets(weights, batch))

    def changed(name: str, *where: int) -> np.ndarray[Any, Any]:
        tree = jax.tree.map(lambda leaf: leaf.at[where].set(-leaf[where]), getattr(weights, name))
        return np.asarray(targets(weights._replace(**{name: tree}), batch))

    others_policy, own_policy, guess = changed("actor", 1), changed("actor", 0), changed("guess", 0, 1)
    assert (others_policy[:, 0] == found[:, 0]).all()
    assert not np.allclose(own_policy[:, 0], found[:, 0])
    assert not np.allclose(guess[:, 0], found[:, 0])
    assert (guess[:, 1] == found[:, 1]).all()


def test_the_objective_skips_who_had_left_and_charges_large_logits() -> None:
    batch = batch_of(np.random.default_rng(1), rows=4)
    batch = batch._replace(active=batch.active.at[2:, 1].set(False))
    learners = [Maddpg(Leaving(), MaddpgConfig(**SMALL, logit_penalty=size)) for size in (0.0, 0.5)]
    weights, key = weights_of(learners[0]), jax.random.PRNGKey(0)

    @jax.jit
    def losses(batch: Transition) -> list[Any]:
        actor, critic = weights.actor, weights.critic
        return [each.actor_objective(actor, critic, batch, each.sees(), key)[1] for each in learners]

    plain, charged = map(np.asarray, losses(batch))
    moved = np.asarray(losses(batch._replace(obs=batch.obs.at[2:, 1].add(5.0)))[0])
    assert plain[1] == pytest.approx(moved[1], abs=1e-6)
    assert not np.allclose(plain[0], moved[0]), "whose critic sees the other all the same"
    logits = np.asarray(learners[0].logits(weights.actor, batch.obs))[0]
    expected = 0.5 * np.array([np.square(logits[:, 0]).mean(), np.square(logits[:2, 1]).mean()])
    assert charged - plain == pytest.approx(expected, rel=1e-3)


def test_critics_learn_from_rows_in_which_the_agent_was_there() -> None:
    learner, rng = Maddpg(Leaving(), MaddpgConfig(**SMALL)), np.random.default_rng(2)
    batch, weights = batch_of(rng, rows=4), weights_of(learner)
    batch = batch._replace(active=batch.active.at[2:, 1].set(False))
    targets = jnp.zeros((4, 2)).at[2:, 1].set(100.0)
    losses = np.asarray(learner._critic_loss(weights.critic, batch, targets, learner.sees())[1])
    assert losses[1] < 100, "its targets of 100 are not its own"


def test_guesses_never_offer_what_is_not_there_and_sub_policies_act() -> None:
    from rolecraft.marl._ac_losses import inference_loss

    logits, actions = jnp.zeros((2, 2, 1, 3)).at[..., 2].set(9.0), jax.nn.one_hot(jnp.zeros((1, 2), int), 3)
    avail = jnp.ones((1, 2, 3), bool).at[..., 2].set(False)
    assert np.asarray(inference_loss(logits, actions, avail, 0.0))[0, 1] == pytest.approx(np.log(2), rel=1e-5)
    learner = Maddpg(Leaving(), MaddpgConfig(**SMALL, ensemble=2))
    actor = weights_of(learner).actor
    bias = actor["params"]["out"]["bias"].at[:, 0, 0].set(99.0).at[:, 1, 1].set(99.0)
    actor = {"params": {**actor["params"], "out": {**actor["params"]["out"], "bias": bias}}}
    sub = jnp.array([[0, 1], [1, 0]])
    chosen = learner.act(actor, jnp.zeros((2, 2, 1)), jnp.ones((2, 2, 2), bool), sub)
    assert (np.asarray(chosen.argmax(-1)) == np.asarray(sub)).all()


def test_an_episode_is_counted_to_its_end_only() -> None:
    class Short(Leaving):
        def move(self, key: Any, state: Walk, actions: Any) -> Moved:
            return super().move(key, state, actions)._replace(done=state.time == 2)

    played = play_episodes(
        Short(), lambda obs, avail, key: jnp.zeros(obs.shape[:2], jnp.int32), jax.random.PRNGKey(0), 1
    )
    assert played.alive[:, 0].tolist() == [True, True, False]
    assert played.returns.tolist() == [[3, 3]]
    assert played.last_obs[0, 0].tolist() == [3]


def test_a_local_critic_sees_its_own_agent_and_the_others_see_all() -> None:
    from rolecraft.marl._ac_losses import joint_input

    sees = Maddpg(Leaving(), MaddpgConfig(**SMALL)).sees((True, False))
    assert sees.tolist() == [[1, 0], [1, 1]]
    obs, actions = jnp.array([[[1.0], [2.0]]]), jnp.array([[[3.0, 4.0], [5.0, 6.0]]])
    assert joint_input(obs, actions, sees)[:, 0].tolist() == [[1, 3, 4, 0, 0, 0], [1, 3, 4, 2, 5, 6]]


def test_continuous_actions_explore_by_noise() -> None:
    from tests.marl.ac_worlds import Naming

    learner = Maddpg(Naming(discrete=False), MaddpgConfig(**SMALL, noise=0.2))
    actor = init_stack(learner.actor, jax.random.PRNGKey(0), (2, 1), 4)
    obs, avail, sub = jnp.zeros((2000, 2, 4)), jnp.ones((2000, 2, 3), bool), jnp.zeros((2000, 2), jnp.int32)
    act = jax.jit(lambda key: (learner.act(actor, obs, avail, sub), learner.act(actor, obs, avail, sub, key)))
    mean, drawn = map(np.asarray, act(jax.random.PRNGKey(1)))
    assert (drawn - mean).std() == pytest.approx(0.2, rel=0.05)
    assert (drawn - mean).mean() == pytest.approx(0, abs=0.01)

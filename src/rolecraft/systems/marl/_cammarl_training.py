"""Two agents that learn by PPO, one of them told something of the other: the half of `cammarl.py` that needs JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import loop_kept
from rolecraft._run import derive_seed
from rolecraft.marl._ac_ppo import Ppo, PpoBatch, PpoConfig, PpoState, gae
from rolecraft.marl._conformal_opponent import ConformalOpponent, ConformalOpponentConfig, OpponentState
from rolecraft.marl._team import TeamEnv, team_env

if TYPE_CHECKING:
    from rolecraft.systems.marl.cammarl import NavigationConfig

Array = Any
EGO, OTHER = 0, 1
ENCODINGS: Mapping[str, Any] = {
    "cammarl": "binary", "shuffled": "binary", "cammarl-padded": "padded", "cammarl-penultimate": "penultimate",
    "eap": "exact",
}  # fmt: skip
"""The arms whose ego is told by a classifier, and how."""
CHUNK = 50
"""Updates between two checkpoints."""


class Pair(NamedTuple):
    """What training carries from update to update."""

    ego: PpoState
    other: PpoState
    model: OpponentState
    env: Any
    obs: Array
    """(envs, 2, d)"""
    avail: Array
    """(envs, 2, actions)"""
    key: Array


class Rollout(NamedTuple):
    """One episode of every copy of the world, (steps, envs, ...)."""

    told: Array
    """What the ego's networks saw."""
    obs: Array
    avail: Array
    action: Array
    log_prob: Array
    reward: Array
    last: Array
    """What each action led to, also at an episode's end."""


class Navigation:
    """Ego and other in one world, in one arm."""

    def __init__(self, config: NavigationConfig, arm: str, env: TeamEnv | None = None) -> None:
        """Lay out the networks.

        Args:
            config: Of the study.
            arm: One of `cammarl.ARMS`.
            env: A world of two agents with whole actions; None is cooperative navigation.
        """
        self.config, self.arm = config, arm
        self.env = env or team_env("MPE_simple_spread_v3", num_agents=2, num_landmarks=2)
        d, actions = self.env.obs_size, self.env.actions
        ppo = PpoConfig(
            hidden=config.hidden, actor_lr=config.actor_lr, critic_lr=config.critic_lr, gamma=config.gamma,
            decay=config.decay, clip=config.clip, epochs=config.epochs, entropy=config.entropy,
        )  # fmt: skip
        self.model: ConformalOpponent | None = None
        if arm in ENCODINGS:
            self.model = ConformalOpponent(
                ConformalOpponentConfig(
                    encoding=ENCODINGS[arm], alpha=config.alpha, penalty=config.penalty,
                    calibration="train" if config.published else "held-out", epochs=config.fit_epochs,
                    lr=config.fit_lr,
                ), d, actions,
            )  # fmt: skip
            self.model.split(config.envs, self.env.horizon)
        extra = {"noam": 0, "taam": actions, "toam": d, "giam": d + actions}
        width = self.model.size if self.model else extra[arm]
        self.ego, self.other = Ppo(ppo, d + width, actions), Ppo(ppo, d, actions)

    def init(self, key: Array) -> Pair:
        """Return fresh networks, after the warm-up: episodes without learning, and the first fit."""
        k_ego, k_other, k_model, k_env, key = jax.random.split(key, 5)
        env, first = jax.vmap(self.env.reset)(jax.random.split(k_env, self.config.envs))
        model = self.model.init(k_model) if self.model else OpponentState(*(jnp.zeros(()),) * 5)
        pair = Pair(self.ego.init(k_ego), self.other.init(k_other), model, env, first.obs, first.avail, key)
        if not self.model:
            return pair
        blocks = -(-self.config.warmup // self.config.envs)
        pair, rollouts = jax.lax.scan(lambda carry, _: self.collect(carry), pair, length=blocks)
        side_by_side = jax.tree.map(
            lambda leaf: leaf.swapaxes(0, 1).reshape(leaf.shape[1], -1, *leaf.shape[3:]), rollouts
        )
        return self.refit(pair, side_by_side)[0]

    def tell(self, pair: Pair, obs: Array, action: Array, key: Array) -> Array:
        """Return what the ego's networks see, (envs, d + extra), at the moment both must act.

        Args:
            pair: Networks.
            obs: Shape (envs, 2, d).
            action: The other's, just chosen, (envs,).
            key: Random key.
        """
        true = jax.nn.one_hot(action, self.env.actions)
        seen = [obs[:, EGO]]
        if self.arm in ("toam", "giam"):
            seen.append(obs[:, OTHER])
        if self.arm in ("taam", "giam"):
            seen.append(true)
        if self.model:
            told = self.model.predict(pair.model, obs[:, OTHER], key)
            seen.append(jnp.roll(told, 1, axis=0) if self.arm == "shuffled" else told)
        return jnp.concatenate(seen, -1)

    def collect(self, pair: Pair) -> tuple[Pair, Rollout]:
        """Play one episode in every copy of the world."""
        c = self.config

        def one(carry: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Rollout]:
            env, obs, avail = carry
            k_ego, k_other, k_tell, k_env = jax.random.split(key, 4)
            theirs, log_theirs = self.other.act(pair.other.weights.actor, obs[:, OTHER], avail[:, OTHER], k_other)
            told = self.tell(pair, obs, theirs, k_tell)
            own, log_own = self.ego.act(pair.ego.weights.actor, told, avail[:, EGO], k_ego)
            action = jnp.stack([own, theirs], 1)
            env, step = jax.vmap(self.env.step)(jax.random.split(k_env, c.envs), env, action)
            last = jnp.where(step.done[:, None, None], step.info["final_obs"], step.obs)
            row = Rollout(told, obs, avail, action, jnp.stack([log_own, log_theirs], 1), step.reward, last)
            return (env, step.obs, step.avail), row

        key, sub = jax.random.split(pair.key)
        carry, rollout = jax.lax.scan(one, (pair.env, pair.obs, pair.avail), jax.random.split(sub, self.env.horizon))
        return pair._replace(env=carry[0], obs=carry[1], avail=carry[2], key=key), rollout

    def update(self, pair: Pair) -> tuple[Pair, Mapping[str, Array]]:
        """Play, measure the sets on what has just been played, train both agents, refit the classifier.

        Returns:
            The next state and the figures: `return` (mean of both agents), and with a classifier `coverage`, `size`,
            `accuracy`, `coverage_train` (the threshold of its training data) of these episodes before the refit.
        """
        pair, rollout = self.collect(pair)
        figures = {"return": rollout.reward.sum(0).mean()}
        if self.model:
            key, k_set, k_train = jax.random.split(pair.key, 3)
            pair = pair._replace(key=key)
            history, truth = rollout.obs[:, :, OTHER], rollout.action[..., OTHER]
            figures["accuracy"] = (self.model.logits(pair.model, history).argmax(-1) == truth).mean()
            for name, sub, trained in (("", k_set, False), ("_train", k_train, True)):
                sets = self.model.sets(pair.model, history, sub, trained=trained)
                figures[f"coverage{name}"] = jnp.take_along_axis(sets, truth[..., None], -1).mean()
                figures[f"size{name}"] = sets.sum(-1).mean()
        key, k_ego, k_other = jax.random.split(pair.key, 3)
        ego, losses = self.ego.update(pair.ego, self._batch(self.ego, pair.ego, rollout, EGO), k_ego)
        other, _ = self.other.update(pair.other, self._batch(self.other, pair.other, rollout, OTHER), k_other)
        figures |= {f"ego_{name}": value for name, value in losses.items()}
        pair = pair._replace(ego=ego, other=other, key=key)
        if self.model:
            pair, fitted = self.refit(pair, rollout)
            figures |= fitted
        return pair, figures

    def refit(self, pair: Pair, rollout: Rollout) -> tuple[Pair, Mapping[str, Array]]:
        """Fit the classifier to the episodes just played, and calibrate it."""
        assert self.model is not None
        key, sub = jax.random.split(pair.key)
        history, actions = rollout.obs[:, :, OTHER].swapaxes(0, 1), rollout.action[..., OTHER].swapaxes(0, 1)
        model, figures = self.model.fit(pair.model, history, actions, sub)
        return pair._replace(model=model, key=key), figures

    def _batch(self, ppo: Ppo, state: PpoState, rollout: Rollout, agent: int) -> PpoBatch:
        """Return an agent's rows with advantages; an episode's end is terminal, as in the released code."""
        seen = rollout.told if agent == EGO else rollout.obs[:, :, OTHER]
        value = ppo.value(state.weights.critic, seen)
        following = jnp.concatenate([value[1:], jnp.zeros_like(value[:1])])
        over = jnp.zeros(value.shape, bool).at[-1].set(True)
        advantage, target = gae(
            rollout.reward[..., agent], value, following, over, over, self.config.gamma, self.config.decay
        )
        rows = (
            seen, seen, rollout.avail[:, :, agent], rollout.action[..., agent], rollout.log_prob[..., agent],
            advantage, target,
        )  # fmt: skip
        return PpoBatch(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in rows))


def train(config: NavigationConfig, arm: str, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Train an arm's seeds side by side; return the figures, each of shape (updates, seeds).

    A killed training goes on to the same numbers, a finished one is read from the folder.

    Raises:
        Diverged: If a figure is not finite.
    """
    pair = Navigation(config, arm)

    def start() -> Pair:
        # Arms of a seed start from the same worlds.
        keys = [jax.random.PRNGKey(derive_seed("cammarl", seed) % 2**32) for seed in config.seeds]
        state: Pair = jax.jit(jax.vmap(pair.init))(jnp.stack(keys))
        return state

    _, figures = loop_kept(
        jax.vmap(pair.update), start, lambda state: (state.ego.weights, state.other.weights), updates=config.updates,
        chunk=min(CHUNK, config.updates), folder=folder, identity={"arm": arm, "config": config},
    )  # fmt: skip
    return figures

"""Proximal policy optimisation (Schulman et al., arXiv 1707.06347): a small core for methods of one or many agents.

The actor sees `obs`; the critic sees `world`, which is the same array for independent learners and the whole state for
MAPPO. Agents of unlike inputs use one `Ppo` each; agents that share weights put their rows into one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import optax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._ac_nets import NEVER, Mlp

Array = Any


@dataclass(frozen=True)
class PpoConfig:
    """Sizes and rates."""

    hidden: int = 64
    """Units of either hidden layer."""
    actor_lr: float = 3e-4
    critic_lr: float = 1e-3
    gamma: float = 0.95
    """Discount per step."""
    decay: float = 0.95
    """Lambda of the advantages (GAE); 1 is Monte Carlo less the baseline."""
    clip: float = 0.2
    """Range of the probability ratio around 1."""
    epochs: int = 8
    """Passes over a batch."""
    minibatches: int = 1
    """Parts of a batch, a gradient step each."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    max_norm: float = 0.5
    """Largest norm of a network's gradient."""
    normalise: bool = True
    """Advantages have mean 0 and deviation 1 within a minibatch."""

    def __post_init__(self) -> None:
        """Refuse sizes and rates out of range."""
        for name in ("hidden", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("actor_lr", "critic_lr", "clip", "max_norm"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0, got {getattr(self, name)}.")
        for name in ("gamma", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in [0, 1], got {getattr(self, name)}.")
        if not self.entropy >= 0:
            raise UserError(f"entropy must be at least 0, got {self.entropy}.")


class PpoBatch(NamedTuple):
    """Rows to learn from."""

    obs: Array
    """What the actor saw, (B, d)."""
    world: Array
    """What the critic saw, (B, w)."""
    avail: Array
    """(B, actions)"""
    action: Array
    """(B,) int32"""
    log_prob: Array
    """Of the action when it was chosen, (B,)."""
    advantage: Array
    """(B,)"""
    target: Array
    """Of the critic, (B,)."""


class PpoWeights(NamedTuple):
    """Parameters, or their optimisers' moments."""

    actor: Any
    critic: Any


class PpoState(NamedTuple):
    """What training carries on."""

    weights: PpoWeights
    moments: PpoWeights


def gae(
    reward: Array, value: Array, next_value: Array, terminal: Array, over: Array, gamma: float, decay: float
) -> tuple[Array, Array]:
    """Return generalised advantages (Schulman et al., arXiv 1506.02438) and the critic's targets.

    Args:
        reward: Shape (T, ...).
        value: Of what each action was chosen on.
        next_value: Of what it led to; at an episode's end, of its last observation.
        terminal: Nothing follows, so that the next value does not count.
        over: The episode ended here, by itself or by the clock: nothing is summed across it.
        gamma: Discount.
        decay: Lambda.

    Returns:
        Advantages and targets (advantage plus value), each of shape (T, ...).
    """
    delta = reward + gamma * jnp.where(terminal, 0.0, next_value) - value

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        surprise, end = now
        found = surprise + gamma * decay * jnp.where(end, 0.0, later)
        return found, found

    _, advantage = jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, over | terminal), reverse=True)
    return advantage, advantage + value


def clipped_loss(log_prob: Array, old_log_prob: Array, advantage: Array, clip: float) -> Array:
    """Return ``-min(r A, clip(r, 1 - clip, 1 + clip) A)`` with r the ratio of probabilities; all of shape (B,)."""
    ratio = jnp.exp(log_prob - old_log_prob)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


class Ppo:
    """One agent's networks and their training, as pure functions."""

    def __init__(self, config: PpoConfig, obs_size: int, actions: int, world_size: int | None = None) -> None:
        """Lay out the networks.

        Args:
            config: Sizes and rates.
            obs_size: Width of the actor's input.
            actions: Choices.
            world_size: Width of the critic's input; None is the actor's.

        Raises:
            UserError: If a size is below 1, or there are fewer than two choices.
        """
        self.config, self.obs_size = config, obs_size
        self.world_size, self.actions = world_size or obs_size, actions
        if obs_size < 1 or actions < 2:
            raise UserError(f"expected obs_size from 1 and actions from 2, got {obs_size} and {actions}.")
        self.actor = Mlp(actions, config.hidden, activation=nn.tanh, last_scale=0.01)
        self.critic = Mlp(1, config.hidden, activation=nn.tanh)
        self._rules = PpoWeights(
            *(
                optax.chain(optax.clip_by_global_norm(config.max_norm), optax.adam(rate))
                for rate in (config.actor_lr, config.critic_lr)
            )
        )

    def init(self, key: Array) -> PpoState:
        """Return fresh networks."""
        k_actor, k_critic = jax.random.split(key)
        weights = PpoWeights(
            self.actor.init(k_actor, jnp.zeros(self.obs_size)), self.critic.init(k_critic, jnp.zeros(self.world_size))
        )
        return PpoState(weights, PpoWeights(*(rule.init(w) for rule, w in zip(self._rules, weights, strict=True))))

    def log_probs(self, actor: Any, obs: Array, avail: Array) -> Array:
        """Return the log-probability of every action, (..., actions)."""
        logits: Array = self.actor.apply(actor, obs)
        return jax.nn.log_softmax(jnp.where(avail, logits, NEVER))

    def value(self, critic: Any, world: Array) -> Array:
        """Return values (...,) of the critic's inputs (..., w)."""
        found: Array = self.critic.apply(critic, world)
        return found[..., 0]

    def act(self, actor: Any, obs: Array, avail: Array, key: Array) -> tuple[Array, Array]:
        """Sample actions; returns them, (...,) int32, and their log-probabilities."""
        logs = self.log_probs(actor, obs, avail)
        action = jax.random.categorical(key, logs).astype(jnp.int32)
        return action, jnp.take_along_axis(logs, action[..., None], -1)[..., 0]

    def loss(self, weights: PpoWeights, batch: PpoBatch) -> tuple[Array, Mapping[str, Array]]:
        """Return actor's, entropy's and critic's losses summed, and each of them.

        Either network gets its own gradient alone, so that no weight between them is needed.
        """
        c = self.config
        logs = self.log_probs(weights.actor, batch.obs, batch.avail)
        advantage = batch.advantage
        if c.normalise:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        chosen = jnp.take_along_axis(logs, batch.action[:, None], -1)[:, 0]
        policy = clipped_loss(chosen, batch.log_prob, advantage, c.clip).mean()
        entropy = -jnp.where(batch.avail, jnp.exp(logs) * logs, 0.0).sum(-1).mean()
        value = 0.5 * jnp.square(self.value(weights.critic, batch.world) - batch.target).mean()
        figures = {"policy_loss": policy, "value_loss": value, "entropy": entropy}
        return policy - c.entropy * entropy + value, figures

    def update(self, state: PpoState, batch: PpoBatch, key: Array) -> tuple[PpoState, Mapping[str, Array]]:
        """Take `epochs` passes over a batch, shuffled anew for each.

        Args:
            state: Networks and moments.
            batch: B rows; B must be a whole number of minibatches.
            key: Random key of the shuffling.

        Returns:
            The next state, and the mean of each loss over the steps.

        Raises:
            UserError: If the rows cannot be divided evenly.
        """
        rows, parts = batch.action.shape[0], self.config.minibatches
        if rows % parts:
            raise UserError(f"{rows} rows cannot be cut into {parts} equal minibatches; change minibatches or rows.")

        def step(state: PpoState, index: Array) -> tuple[PpoState, Mapping[str, Array]]:
            part = jax.tree.map(lambda leaf: leaf[index], batch)
            slopes, figures = jax.grad(self.loss, has_aux=True)(state.weights, part)
            moved = [
                rule.update(slope, moments)
                for rule, slope, moments in zip(self._rules, slopes, state.moments, strict=True)
            ]
            weights = optax.apply_updates(state.weights, PpoWeights(*(change for change, _ in moved)))
            return PpoState(weights, PpoWeights(*(moments for _, moments in moved))), figures

        def order(key: Array) -> Array:
            return jax.random.permutation(key, rows).reshape(parts, -1)

        index = jax.vmap(order)(jax.random.split(key, self.config.epochs)).reshape(-1, rows // parts)
        state, figures = jax.lax.scan(step, state, index)
        return state, jax.tree.map(jnp.mean, figures)

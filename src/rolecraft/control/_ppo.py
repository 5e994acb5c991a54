"""A goal-conditioned actor-critic and its clipped loss (PPO, arXiv 1707.06347), with a teacher's advice added."""

from __future__ import annotations

from typing import NamedTuple

import jax
from flax import linen as nn
from jax import numpy as jnp

from rolecraft._jax import orthogonal
from rolecraft.control._pqn import Body

Array = jax.Array


class ActorCritic(nn.Module):
    """Policy and value of one goal, shown beside the observation."""

    widths: tuple[int, ...]
    actions: int

    @nn.compact
    def __call__(self, obs: Array, goal: Array) -> tuple[Array, Array]:
        """Map observations (..., D) and goals (..., G) to logits (..., A) and values (...) in (0, 1)."""
        x = jnp.concatenate([obs, goal], -1)
        logits = nn.Dense(self.actions, kernel_init=orthogonal(0.01))(Body(self.widths)(x))
        value = nn.Dense(1, kernel_init=orthogonal(1.0))(Body(self.widths)(x))
        return logits, nn.sigmoid(value[..., 0])


class PPOBatch(NamedTuple):
    """What a loss needs of B steps; `obs` and `goal` are (B, ...), the rest (B,)."""

    obs: Array
    goal: Array
    """Features of the commanded goal."""
    action: Array
    log_prob: Array
    """Of the action when it was taken."""
    advantage: Array
    returns: Array
    advice: Array
    """The action that the teacher holds best for the commanded goal."""


def generalised_advantages(
    rewards: Array, ends: Array, values: Array, next_values: Array, gamma: float, lam: float
) -> Array:
    """Return GAE advantages (T, B); achieving the goal ends the chain exactly as the end of an episode does.

    Args:
        rewards: (T, B).
        ends: Bool (T, B): the episode ended or the goal was achieved.
        values: V(s_t, c_t), (T, B).
        next_values: V(s_{t+1}, c_t), of the reached observation and the same goal, (T, B).
        gamma: Discount.
        lam: Lambda in [0, 1].
    """
    on = 1.0 - ends.astype(values.dtype)
    deltas = rewards + gamma * on * next_values - values

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, go = now
        advantage = delta + gamma * lam * go * later
        return advantage, advantage

    _, advantages = jax.lax.scan(back, jnp.zeros_like(values[0]), (deltas, on), reverse=True)
    return advantages


def ppo_loss(
    logits: Array, values: Array, batch: PPOBatch, distil: Array, *, clip: float, entropy: float, value: float
) -> Array:
    """Return the clipped loss plus `distil` times the mean negative log-likelihood of the teacher's actions.

    Advantages are whitened over the batch.

    Args:
        logits: (B, A).
        values: (B,).
        batch: The steps.
        distil: Weight of the teacher's advice; 0 is plain PPO.
        clip: Half-width of the ratio's range.
        entropy: Weight of the entropy bonus.
        value: Weight of half the squared error of the values.
    """
    log_probs = jax.nn.log_softmax(logits)
    rows = jnp.arange(len(logits))
    ratio = jnp.exp(log_probs[rows, batch.action] - batch.log_prob)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
    spread = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    error = 0.5 * jnp.square(values - batch.returns).mean()
    follow = -log_probs[rows, batch.advice].mean()
    return -gain - entropy * spread + value * error + distil * follow

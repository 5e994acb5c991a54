"""The losses of MADDPG (Lowe et al., arXiv 1706.02275), as functions of networks' outputs.

Shapes: B rows, n agents, d observation, A action components, K sub-policies. `sees` (n, n) says whose observation and
action the critic of an agent gets: all ones is MADDPG, the identity is DDPG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp

from rolecraft.errors import UserError

Array = Any
Critic = Callable[[Array], Array]
"""Joint inputs (n, rows..., n * (d + A)) to values (n, rows...), one network per agent."""


def check_sees(sees: Array, agents: int) -> None:
    """Refuse a matrix of who sees whom that is not (n, n), of zeros and ones, with each agent seeing itself.

    Raises:
        UserError: If it is not.
    """
    array = jnp.asarray(sees)
    if array.shape != (agents, agents):
        raise UserError(f"sees: expected shape (n, n) = ({agents}, {agents}), got {array.shape}.")
    if not bool(jnp.isin(array, jnp.array([0, 1])).all()) or not bool((jnp.diagonal(array) == 1).all()):
        raise UserError("sees: expected zeros and ones, and ones on the diagonal: a critic sees its own agent.")


def joint_input(obs: Array, actions: Array, sees: Array) -> Array:
    """Return what each agent's critic sees.

    Args:
        obs: Shape (B, n, d).
        actions: Of the batch, (B, n, A), or per critic, (B, n, n, A): the second axis is the critic's agent.
        sees: Shape (n, n).

    Returns:
        Shape (n, B, n * (d + A)), the first axis the critic's agent; what it does not see is 0.
    """
    rows, agents, _ = obs.shape
    own = jnp.broadcast_to(obs[:, None], (rows, agents, *obs.shape[1:]))
    if actions.ndim == 3:
        actions = jnp.broadcast_to(actions[:, None], (rows, agents, *actions.shape[1:]))
    joint = jnp.concatenate([own, actions], -1) * sees[None, :, :, None]
    return joint.reshape(rows, agents, -1).swapaxes(0, 1)


def td_target(reward: Array, ended: Array, next_value: Array, gamma: float) -> Array:
    """Return ``r_i + gamma * Q_i'``, without the second term where the agent's episode ended; all of shape (B, n)."""
    return reward + gamma * jnp.where(ended, 0.0, next_value)


def critic_loss(values: Array, targets: Array, active: Array) -> Array:
    """Return the mean squared error per agent over the rows in which it was there; shapes (B, n) to (n,)."""
    weight = active.astype(values.dtype)
    return (weight * jnp.square(values - targets)).sum(0) / jnp.maximum(weight.sum(0), 1.0)


def actor_loss(
    critic: Critic, obs: Array, batch_actions: Array, own_actions: Array, sees: Array, weight: Array
) -> Array:
    """Return minus the critic's value of an agent's own fresh action beside the others' actions of the batch.

    Its gradient is the paper's: the actor's Jacobian times the gradient of Q_i by a_i, the other actions held.

    Args:
        critic: Of all agents.
        obs: Shape (B, n, d).
        batch_actions: Shape (B, n, A).
        own_actions: Shape (K, B, n, A): what each agent's sub-policy k does now.
        sees: Shape (n, n).
        weight: Shape (K, B, n): 1 for the rows of a sub-policy's own buffer in which the agent was there.

    Returns:
        Shape (K, n): mean over those rows, divided by K.
    """
    agents = obs.shape[1]
    own = jnp.eye(agents, dtype=bool)[None, :, :, None]

    def one(fresh: Array, share: Array) -> Array:
        actions = jnp.where(own, fresh[:, :, None, :], batch_actions[:, None])
        values = critic(joint_input(obs, actions, sees)).swapaxes(0, 1)
        return -(share * values).sum(0) / jnp.maximum(share.sum(0), 1.0)

    return jax.vmap(one)(own_actions, weight) / own_actions.shape[0]


def logit_penalty(logits: Array, avail: Array) -> Array:
    """Return the mean square of the available actions' logits; shapes (..., B, n, A) and (B, n, A) to (..., n)."""
    count = jnp.maximum(avail.sum((0, 2)), 1)
    return jnp.where(avail, jnp.square(logits), 0.0).sum((-3, -1)) / count


def inference_loss(logits: Array, actions: Array, avail: Array, entropy: float) -> Array:
    """Return ``-E[log muhat(a | o) + entropy * H(muhat)]`` of agents' guesses at each other's policies.

    Args:
        logits: Shape (n, n, B, A): agent i's guess of agent j.
        actions: Shape (B, n, A), as probabilities or one-hot.
        avail: Shape (B, n, A).
        entropy: Weight of the entropy.

    Returns:
        Shape (n, n); the diagonal is 0, an agent knows itself.
    """
    mask = avail.swapaxes(0, 1)[None]
    logs = jax.nn.log_softmax(jnp.where(mask, logits, -1e9))
    chosen = (jnp.where(mask, logs, 0.0) * actions.swapaxes(0, 1)[None]).sum(-1)
    spread = -(jnp.exp(logs) * jnp.where(mask, logs, 0.0)).sum(-1)
    return -(chosen + entropy * spread).mean(-1) * (1 - jnp.eye(logits.shape[0]))

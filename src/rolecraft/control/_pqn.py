"""The Q-learning core without target network or replay (PQN, arXiv 2407.04811): networks, one-step targets, updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import linen as nn
from jax import numpy as jnp

from rolecraft._jax import orthogonal
from rolecraft.errors import UserError

Array = jax.Array
Params = Any


def apply(network: nn.Module, params: Params, *inputs: Array) -> Any:
    """Run a network that keeps no state of its own."""
    return network.apply(params, *inputs)


class Body(nn.Module):
    """Dense layers, each followed by LayerNorm (which stands in for a target network) and ReLU."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Map (..., D) to (..., widths[-1])."""
        for width in self.widths:
            x = nn.relu(nn.LayerNorm()(nn.Dense(width, kernel_init=orthogonal(2**0.5))(x)))
        return x


def value_head(size: int) -> nn.Dense:
    """Return the head of a value network, whose first values are all near sigmoid(-3) = 0.05.

    (The paper starts it with gain 1, which saturates the sigmoid of a short training.)
    """
    return nn.Dense(size, kernel_init=orthogonal(0.01), bias_init=nn.initializers.constant(-3.0))


class AllGoalsQ(nn.Module):
    """Values of all goals from the observation alone: one linear head of N * A, each value in (0, 1)."""

    widths: tuple[int, ...]
    goals: int
    actions: int

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """Map observations (..., D) to values (..., N, A)."""
        values = value_head(self.goals * self.actions)(Body(self.widths)(obs))
        return nn.sigmoid(values.reshape(*obs.shape[:-1], self.goals, self.actions))


class GoalQ(nn.Module):
    """Values of one goal, shown beside the observation (a universal value function), each in (0, 1)."""

    widths: tuple[int, ...]
    actions: int

    @nn.compact
    def __call__(self, obs: Array, goal: Array) -> Array:
        """Map observations (..., D) and goals (..., G) to values (..., A)."""
        return nn.sigmoid(value_head(self.actions)(Body(self.widths)(jnp.concatenate([obs, goal], -1))))


def one_step_targets(achieved: Array, done: Array, next_best: Array, gamma: float) -> Array:
    """Return a + gamma (1 - (a or done)) max_b Q(s', b): reward 1 on achievement, which ends the goal.

    Args:
        achieved: Bool (..., K), of the reached observation.
        done: Bool (...): the episode ended.
        next_best: Best value of the reached observation (..., K).
        gamma: Discount in [0, 1].
    """
    a = achieved.astype(next_best.dtype)
    return a + gamma * (1 - (achieved | done[..., None]).astype(next_best.dtype)) * next_best


def half_square(values: Array, actions: Array, targets: Array) -> Array:
    """Return half the mean square of Q(s)[g, action] - y[g] over batch and goals.

    Args:
        values: (B, K, A).
        actions: (B,), the same for every goal: Q-learning is off-policy.
        targets: (B, K).
    """
    taken = jnp.take_along_axis(values, actions[:, None, None], -1)[..., 0]
    return 0.5 * jnp.square(taken - jax.lax.stop_gradient(targets)).mean()


def epsilon_greedy(key: Array, values: Array, epsilon: Array) -> Array:
    """Act greedily (ties at random), or uniformly with probability epsilon; values (..., A), actions (...)."""
    pick, tie, coin = jax.random.split(key, 3)
    best = jnp.where(values >= values.max(-1, keepdims=True), 0.0, -jnp.inf)
    uniform = jax.random.randint(pick, values.shape[:-1], 0, values.shape[-1])
    explore = jax.random.uniform(coin, values.shape[:-1]) < epsilon
    return jnp.where(explore, uniform, jax.random.categorical(tie, best))


def optimiser(lr: float, steps: int, clip: float = 1.0) -> optax.GradientTransformation:
    """Return RAdam with the gradient's norm clipped and the rate annealed linearly to 0 over `steps` gradient steps."""
    return optax.chain(optax.clip_by_global_norm(clip), optax.radam(optax.linear_schedule(lr, 0.0, steps)))


def check_minibatch(transitions: int, minibatch: int) -> int:
    """Return how many minibatches a rollout has.

    Raises:
        UserError: If the minibatch does not divide the rollout.
    """
    if minibatch < 1 or transitions % minibatch:
        raise UserError(f"minibatch must divide envs * steps = {transitions}, got {minibatch}.")
    return transitions // minibatch


def fit(
    loss: Callable[[Params, Any], Array],
    tx: optax.GradientTransformation,
    params: Params,
    opt_state: Any,
    batch: Any,
    key: Array,
    *,
    epochs: int,
    minibatch: int,
) -> tuple[Params, Any, Array]:
    """Take gradient steps on shuffled minibatches.

    Args:
        loss: `loss(params, minibatch)`.
        tx: The optimiser.
        params: Of the network.
        opt_state: Of the optimiser.
        batch: A tree of arrays of shape (B, ...).
        key: Random key of the shuffles.
        epochs: Passes over the batch.
        minibatch: Rows per gradient step; divides B.

    Returns:
        Parameters, state of the optimiser, mean loss.
    """
    rows = len(jax.tree.leaves(batch)[0])
    parts = check_minibatch(rows, minibatch)
    order = jax.vmap(lambda k: jax.random.permutation(k, rows))(jax.random.split(key, epochs))

    def step(carry: tuple[Params, Any], index: Array) -> tuple[tuple[Params, Any], Array]:
        params, opt_state = carry
        value, grad = jax.value_and_grad(loss)(params, jax.tree.map(lambda x: x[index], batch))
        change, opt_state = tx.update(grad, opt_state, params)
        return (optax.apply_updates(params, change), opt_state), value

    (params, opt_state), losses = jax.lax.scan(step, (params, opt_state), order.reshape(epochs * parts, minibatch))
    return params, opt_state, losses.mean()

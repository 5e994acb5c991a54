"""One gradient step with a moving average of the weights, for the shared training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from jax import numpy as jnp

Loss = Callable[[Any, jax.Array, Any], tuple[jax.Array, dict[str, jax.Array]]]


class Training(NamedTuple):
    """State of one training."""

    params: Any
    ema: Any
    """Moving average of the parameters; the one to sample with."""
    optimiser: Any
    key: jax.Array
    data: Any
    """Arrays that the loss draws batches from; they pass through unchanged, so that one compiled loop serves them."""
    step: jax.Array


def start_training(params: Any, optimiser: optax.GradientTransformation, key: jax.Array, data: Any) -> Training:
    """Return the state before the first step, where the average is the parameters themselves."""
    return Training(params, params, optimiser.init(params), key, data, jnp.zeros((), jnp.int32))


def update_ema(ema: Any, params: Any, decay: float | jax.Array) -> Any:
    """Return decay * ema + (1 - decay) * params."""
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, ema, params)


def make_update(
    loss: Loss, optimiser: optax.GradientTransformation, decay: float
) -> Callable[[Training], tuple[Training, dict[str, jax.Array]]]:
    """Return `update(state) -> (state, figures)` for `_jax.loop`; `map_jobs` trains several in one loop.

    Args:
        loss: Of parameters, random key and data: the loss and figures to report.
        optimiser: Any optax transformation.
        decay: Of the moving average, in [0, 1). In the first steps it is (1 + step) / (10 + step) where that is
            smaller, so that the average does not remember the initial weights.
    """

    def update(state: Training) -> tuple[Training, dict[str, jax.Array]]:
        key, now = jax.random.split(state.key)
        (value, figures), gradient = jax.value_and_grad(loss, has_aux=True)(state.params, now, state.data)
        change, optimiser_state = optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, change)
        rate = jnp.minimum(decay, (1.0 + state.step) / (10.0 + state.step))
        ema = update_ema(state.ema, params, rate)
        new = Training(params, ema, optimiser_state, key, state.data, state.step + 1)
        return new, {"loss": value, **figures}

    return update


def map_jobs(
    update: Callable[[Training], tuple[Training, dict[str, jax.Array]]],
) -> Callable[[Training], tuple[Training, dict[str, jax.Array]]]:
    """Return an update of several trainings whose states are stacked along the first axis.

    They run one after the other in one compiled loop. On a CPU that is faster than `jax.vmap`, which makes small
    batched matrix products of them, and it compiles in a fraction of the time.
    """

    def each(states: Training) -> tuple[Training, dict[str, jax.Array]]:
        found: tuple[Training, dict[str, jax.Array]] = jax.lax.map(update, states)
        return found

    return each

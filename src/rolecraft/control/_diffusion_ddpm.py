"""Denoising diffusion in discrete steps (Ho et al., arXiv 2006.11239), as Decision Diffuser uses it.

A noise model `predict(x, k)` takes samples of shape (B, ...) and the step k in 0 ... K-1, shape (B,), and returns the
noise it believes in them. Everything here is pure JAX and knows nothing of networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import UserError

Predict = Callable[[jax.Array, jax.Array], jax.Array]
Pin = Callable[[jax.Array], jax.Array]


class DdpmSchedule(NamedTuple):
    """How much noise each of K steps holds; arrays of shape (K,)."""

    beta: jax.Array
    """Variance that a step adds."""
    alpha_bar: jax.Array
    """Share of the data's variance left after a step."""
    posterior_data: jax.Array
    """Weight of the predicted data in the mean of q(x_{k-1} | x_k, x_0)."""
    posterior_noisy: jax.Array
    """Weight of x_k in it."""
    posterior_std: jax.Array
    """Standard deviation of it; 0 in step 0."""

    @property
    def steps(self) -> int:
        """K."""
        return len(self.beta)


def ddpm_schedule(beta: np.ndarray[tuple[int], np.dtype[np.float64]]) -> DdpmSchedule:
    """Return the schedule of given variances, of shape (K,) in (0, 1).

    Raises:
        UserError: If one is not in (0, 1).
    """
    beta = np.asarray(beta, dtype=np.float64)
    if beta.ndim != 1 or not beta.size or not ((beta > 0) & (beta < 1)).all():
        raise UserError(f"beta: expected shape (K,) with numbers in (0, 1), got shape {beta.shape}.")
    after = np.cumprod(1 - beta)
    before = np.concatenate([[1.0], after[:-1]])
    found = (
        beta, after, np.sqrt(before) * beta / (1 - after), np.sqrt(1 - beta) * (1 - before) / (1 - after),
        np.sqrt(beta * (1 - before) / (1 - after)),
    )  # fmt: skip
    return DdpmSchedule(*(jnp.asarray(each, jnp.float32) for each in found))


def cosine_schedule(steps: int, offset: float = 0.008, most: float = 0.999) -> DdpmSchedule:
    """Return the cosine schedule of Nichol and Dhariwal (arXiv 2102.09672, equation 17).

    Args:
        steps: K, at least 2.
        offset: s, which keeps the first step from being too small.
        most: Largest variance of a step.

    Raises:
        UserError: If there are fewer than 2 steps.
    """
    if steps < 2:
        raise UserError(f"diffusion steps must be at least 2, got {steps}.")
    place = np.linspace(0, 1, steps + 1)
    bar = np.cos((place + offset) / (1 + offset) * np.pi / 2) ** 2
    return ddpm_schedule(np.clip(1 - bar[1:] / bar[:-1], 1e-6, most))


def add_noise(data: jax.Array, noise: jax.Array, k: jax.Array, schedule: DdpmSchedule) -> jax.Array:
    """Return x_k = sqrt(abar_k) x_0 + sqrt(1 - abar_k) noise; data and noise of shape (B, ...), k of shape (B,)."""
    bar = _spread(schedule.alpha_bar[k], data)
    return jnp.sqrt(bar) * data + jnp.sqrt(1 - bar) * noise


def predicted_data(x: jax.Array, noise: jax.Array, k: jax.Array, schedule: DdpmSchedule) -> jax.Array:
    """Return the x_0 that belongs to x_k and the noise in it."""
    bar = _spread(schedule.alpha_bar[k], x)
    return (x - jnp.sqrt(1 - bar) * noise) / jnp.sqrt(bar)


def ddpm_sample(
    predict: Predict,
    key: jax.Array,
    shape: tuple[int, ...],
    schedule: DdpmSchedule,
    *,
    temperature: float = 1.0,
    pin: Pin | None = None,
    clip: float | None = None,
) -> jax.Array:
    """Draw samples by going through all steps backwards.

    Args:
        predict: The noise model.
        key: Random key.
        shape: (B, ...).
        schedule: The noise of the steps.
        temperature: Factor of the standard deviation of all noise, the first x_K included. Decision Diffuser: 0.5.
        pin: Puts known values in place (in-painting); applied before every call of the model and to the result.
        clip: Bound of the predicted data, |x_0| <= clip; None for none.

    Returns:
        Samples of the given shape.
    """
    hold = pin or (lambda x: x)
    first, rest = jax.random.split(key)
    x = hold(temperature * jax.random.normal(first, shape))

    def step(x: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        k, noise_key = inputs
        at = jnp.full(shape[:1], k)
        data = predicted_data(x, predict(x, at), at, schedule)
        data = data if clip is None else jnp.clip(data, -clip, clip)
        mean = schedule.posterior_data[k] * data + schedule.posterior_noisy[k] * x
        noise = jax.random.normal(noise_key, shape)
        return hold(mean + temperature * schedule.posterior_std[k] * noise), None

    order = jnp.arange(schedule.steps)[::-1]
    x, _ = jax.lax.scan(step, x, (order, jax.random.split(rest, schedule.steps)))
    return x


def ddim_sample(
    predict: Predict,
    key: jax.Array,
    shape: tuple[int, ...],
    schedule: DdpmSchedule,
    steps: int,
    *,
    temperature: float = 1.0,
    pin: Pin | None = None,
    clip: float | None = None,
) -> jax.Array:
    """Draw samples by the deterministic DDIM (Song et al., arXiv 2010.02502) through `steps` of the K steps.

    The arguments are those of `ddpm_sample`; only the first x_K is random.

    Raises:
        UserError: If `steps` is not 1 to K.
    """
    if not 1 <= steps <= schedule.steps:
        raise UserError(f"steps must be 1 to {schedule.steps}, got {steps}.")
    hold = pin or (lambda x: x)
    order = np.unique(np.round(np.linspace(schedule.steps - 1, 0, steps)).astype(int))[::-1]
    bars = jnp.concatenate([schedule.alpha_bar[order[1:]], jnp.ones(1)])
    x = hold(temperature * jax.random.normal(key, shape))

    def step(x: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        k, bar = inputs
        at = jnp.full(shape[:1], k)
        noise = predict(x, at)
        data = predicted_data(x, noise, at, schedule)
        if clip is not None:
            data = jnp.clip(data, -clip, clip)
            here = schedule.alpha_bar[k]
            noise = (x - jnp.sqrt(here) * data) / jnp.sqrt(1 - here)
        return hold(jnp.sqrt(bar) * data + jnp.sqrt(1 - bar) * noise), None

    x, _ = jax.lax.scan(step, x, (jnp.asarray(order.copy()), bars))
    return x


def _spread(values: jax.Array, like: jax.Array) -> jax.Array:
    """Return values of shape (B,) as (B, 1, ..., 1)."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))

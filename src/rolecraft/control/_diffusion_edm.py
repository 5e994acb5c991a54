"""Diffusion over continuous noise levels (Karras et al., arXiv 2206.00364), as BESO uses it (arXiv 2304.02532).

A denoiser `denoise(x, sigma)` takes samples x = data + sigma * noise of shape (B, ...) and sigma of shape (B,), and
returns the data it believes behind them. Its score is (denoise(x, sigma) - x) / sigma^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import UserError, did_you_mean

Denoise = Callable[[jax.Array, jax.Array], jax.Array]
Sampler = Literal["ddim", "euler", "euler-ancestral", "heun", "dpmpp-2m"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)
SigmaSchedule = Literal["exponential", "linear", "karras"]


class Preconditioning(NamedTuple):
    """D(x; sigma) = skip * x + out * F(inside * x), all of them of sigma's shape."""

    skip: jax.Array
    out: jax.Array
    inside: jax.Array


def precondition(sigma: jax.Array, sigma_data: float = 0.5) -> Preconditioning:
    """Return the scalings that keep a network's inputs and targets at unit variance (table 1 of the paper).

    Args:
        sigma: Noise levels of any shape, at least 0.
        sigma_data: Standard deviation of the data.
    """
    total = sigma**2 + sigma_data**2
    return Preconditioning(sigma_data**2 / total, sigma * sigma_data / jnp.sqrt(total), 1 / jnp.sqrt(total))


def denoised(
    network: Callable[[jax.Array, jax.Array], jax.Array], x: jax.Array, sigma: jax.Array, sigma_data: float = 0.5
) -> jax.Array:
    """Return D(x; sigma) of a network F(scaled x, log(sigma) / 4).

    Args:
        network: F.
        x: Shape (B, ...).
        sigma: Shape (B,), above 0.
        sigma_data: Standard deviation of the data.
    """
    skip, out, inside = (_spread(each, x) for each in precondition(sigma, sigma_data))
    return skip * x + out * network(inside * x, jnp.log(sigma) / 4)


def edm_target(data: jax.Array, x: jax.Array, sigma: jax.Array, sigma_data: float = 0.5) -> jax.Array:
    """Return what F must give for D(x; sigma) to be the data: (data - skip * x) / out."""
    skip, out, _ = (_spread(each, x) for each in precondition(sigma, sigma_data))
    return (data - skip * x) / out


def log_logistic(
    key: jax.Array, shape: tuple[int, ...], low: float, high: float, location: float = float(np.log(0.5)),
    scale: float = 0.5,
) -> jax.Array:  # fmt: skip
    """Draw noise levels whose logarithm is logistic, truncated to [low, high], by the inverse of their distribution.

    Args:
        key: Random key.
        shape: Of the result.
        low: Smallest level, above 0.
        high: Largest level.
        location: Of the logarithm. BESO: log(sigma_data).
        scale: Of the logarithm. BESO: 0.5.
    """
    ends = jax.nn.sigmoid((jnp.log(jnp.array([low, high])) - location) / scale)
    drawn = jax.random.uniform(key, shape, minval=ends[0], maxval=ends[1])
    drawn = jnp.clip(drawn, 1e-7, 1 - 1e-7)
    return jnp.clip(jnp.exp(location + scale * (jnp.log(drawn) - jnp.log1p(-drawn))), low, high)


def sigma_schedule(
    name: SigmaSchedule, steps: int, low: float, high: float, rho: float = 7.0
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the noise levels of a sampler, from `high` down to `low`, and then 0.

    Args:
        name: `exponential` is linear in the logarithm, `linear` in sigma, `karras` in sigma^(1 / rho).
        steps: N, at least 1. With one step the levels are high and 0.
        low: Smallest level, above 0.
        high: Largest level.
        rho: Of `karras`.

    Returns:
        Shape (N + 1,), falling.

    Raises:
        UserError: If there is no step, the levels are not 0 < low < high, or the name is unknown.
    """
    if steps < 1:
        raise UserError(f"steps must be at least 1, got {steps}.")
    if not 0 < low < high < float("inf"):
        raise UserError(f"noise levels: expected 0 < sigma_min < sigma_max, got {low} and {high}.")
    if name == "exponential":
        levels = np.exp(np.linspace(np.log(high), np.log(low), steps))
    elif name == "linear":
        levels = np.linspace(high, low, steps)
    elif name == "karras":
        levels = np.linspace(high ** (1 / rho), low ** (1 / rho), steps) ** rho
    else:
        known = get_args(SigmaSchedule)
        raise UserError(f"schedule {name!r} is unknown; expected {', '.join(known)}.{did_you_mean(name, known)}")
    return np.append(levels, 0.0).astype(np.float32)


def edm_sample(
    sampler: Sampler, denoise: Denoise, key: jax.Array, x: jax.Array, sigmas: np.ndarray[Any, Any]
) -> jax.Array:
    """Solve from noise to data.

    `ddim` and `euler` are one and the same update here, r x + (1 - r) D with r = sigma_next / sigma. The last step, to
    0, is the denoiser's answer itself in every sampler, so that no logarithm of 0 is ever taken.

    Args:
        sampler: `ddim` (or `euler`), first order; `euler-ancestral`, with fresh noise in each step; `heun`, second
            order with two calls per step; `dpmpp-2m` (arXiv 2211.01095), second order with one call.
        denoise: The denoiser.
        key: Random key of `euler-ancestral`.
        x: Shape (B, ...): noise of standard deviation sigmas[0].
        sigmas: Shape (N + 1,), falling, the last one 0; see `sigma_schedule`.

    Returns:
        Samples, of x's shape.

    Raises:
        UserError: If the sampler is unknown or the levels do not fall to 0.
    """
    levels = np.asarray(sigmas, dtype=np.float32)
    check_sampler(sampler)
    if levels.ndim != 1 or len(levels) < 2 or levels[-1] != 0 or not (np.diff(levels) < 0).all():
        raise UserError(f"sigmas: expected shape (N + 1,), N >= 1, falling to 0, got {levels}.")
    count = len(levels) - 2
    if count:
        before = np.concatenate([levels[:1], levels[: count - 1]])
        inputs = (before, levels[:count], levels[1 : count + 1], np.arange(count) > 0)
        step = _STEPS[sampler]
        keys = jax.random.split(key, count)

        def advance(carry: Any, item: Any) -> Any:
            return step(denoise, *carry, *item), None

        (x, _), _ = jax.lax.scan(advance, (x, jnp.zeros_like(x)), (*map(jnp.asarray, inputs), keys))
    return denoise(x, jnp.full(x.shape[:1], levels[-2]))


def check_sampler(name: str) -> None:
    """Refuse the name of a sampler that there is none of.

    Raises:
        UserError: If there is none.
    """
    if name not in SAMPLERS:
        raise UserError(
            f"sampler {name!r} is unknown; expected one of {', '.join(SAMPLERS)}.{did_you_mean(name, SAMPLERS)}"
        )


def _euler(denoise: Denoise, x: Any, old: Any, last: Any, here: Any, after: Any, second: Any, key: Any) -> Any:
    found = denoise(x, jnp.full(x.shape[:1], here))
    return x + (1 - after / here) * (found - x), found


def _ancestral(denoise: Denoise, x: Any, old: Any, last: Any, here: Any, after: Any, second: Any, key: Any) -> Any:
    found = denoise(x, jnp.full(x.shape[:1], here))
    fresh = after * jnp.sqrt(jnp.maximum(1 - (after / here) ** 2, 0))
    down = jnp.sqrt(jnp.maximum(after**2 - fresh**2, 0))
    x = x + (1 - down / here) * (found - x)
    return x + fresh * jax.random.normal(key, x.shape), found


def _heun(denoise: Denoise, x: Any, old: Any, last: Any, here: Any, after: Any, second: Any, key: Any) -> Any:
    found = denoise(x, jnp.full(x.shape[:1], here))
    slope = (x - found) / here
    trial = x + (after - here) * slope
    other = (trial - denoise(trial, jnp.full(x.shape[:1], after))) / after
    return x + (after - here) * (slope + other) / 2, found


def _dpmpp_2m(denoise: Denoise, x: Any, old: Any, last: Any, here: Any, after: Any, second: Any, key: Any) -> Any:
    found = denoise(x, jnp.full(x.shape[:1], here))
    ratio = jnp.where(second, jnp.log(last / here) / jnp.log(here / after), 1.0)
    ahead = jnp.where(second, found + (found - old) / (2 * ratio), found)
    return x + (1 - after / here) * (ahead - x), found


_STEPS: dict[str, Callable[..., Any]] = {
    "ddim": _euler, "euler": _euler, "euler-ancestral": _ancestral, "heun": _heun, "dpmpp-2m": _dpmpp_2m,
}  # fmt: skip


def _spread(values: jax.Array, like: jax.Array) -> jax.Array:
    """Return values of shape (B,) as (B, 1, ..., 1)."""
    return values.reshape(values.shape + (1,) * (like.ndim - values.ndim))

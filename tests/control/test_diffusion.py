"""The diffusion core against closed forms: where the data are normal, the best denoiser is known exactly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.control._diffusion_ddpm import (
    add_noise,
    cosine_schedule,
    ddim_sample,
    ddpm_sample,
    ddpm_schedule,
    predicted_data,
)
from rolecraft.control._diffusion_edm import (
    SAMPLERS,
    denoised,
    edm_sample,
    edm_target,
    log_logistic,
    precondition,
    sigma_schedule,
)
from rolecraft.control._diffusion_guide import conditional, drop_conditions, guided
from rolecraft.control._diffusion_train import update_ema
from rolecraft.errors import UserError

MEAN, STD = 0.7, 0.4
KEY = jax.random.key(0)
MANY = 20_000


def normal_noise(mean: Any, std: float, schedule: Any) -> Any:
    """The best noise model of N(mean, std^2): E[noise | x_k]."""

    def predict(x: jax.Array, k: jax.Array) -> jax.Array:
        bar = schedule.alpha_bar[k][:, None]
        return jnp.sqrt(1 - bar) * (x - jnp.sqrt(bar) * mean) / (bar * std**2 + 1 - bar)

    return predict


def normal_denoiser(mean: Any, std: float) -> Any:
    """The best denoiser of N(mean, std^2): E[data | data + sigma noise]."""
    return lambda x, sigma: (std**2 * x + sigma[:, None] ** 2 * mean) / (std**2 + sigma[:, None] ** 2)


def ddpm_moments(schedule: Any, temperature: float) -> tuple[float, float]:
    """Mean and variance that sampling must come to: every step is linear in x for normal data."""
    mean, variance = 0.0, temperature**2
    for k in range(schedule.steps - 1, -1, -1):
        bar = float(schedule.alpha_bar[k])
        gain = np.sqrt(bar) * STD**2 / (bar * STD**2 + 1 - bar)
        shift = MEAN - gain * np.sqrt(bar) * MEAN
        a, b = float(schedule.posterior_data[k]), float(schedule.posterior_noisy[k])
        slope = a * gain + b
        mean = slope * mean + a * shift
        variance = slope**2 * variance + (temperature * float(schedule.posterior_std[k])) ** 2
    return mean, variance


class TestDdpm:
    @pytest.mark.parametrize("temperature", [1.0, 0.5])
    def test_samples_have_the_exact_moments(self, temperature: float) -> None:
        schedule = cosine_schedule(30)
        predict = normal_noise(MEAN, STD, schedule)
        x = np.asarray(ddpm_sample(predict, KEY, (MANY, 1), schedule, temperature=temperature))
        mean, variance = ddpm_moments(schedule, temperature)
        assert x.mean() == pytest.approx(mean, abs=0.01)
        assert x.var() == pytest.approx(variance, rel=0.04)

    def test_many_steps_come_to_the_data(self) -> None:
        mean, variance = ddpm_moments(cosine_schedule(400), 1.0)
        assert mean == pytest.approx(MEAN, abs=1e-3)
        assert np.sqrt(variance) == pytest.approx(STD, rel=0.02)

    def test_low_temperature_is_narrower(self) -> None:
        schedule = cosine_schedule(100)
        assert ddpm_moments(schedule, 0.5)[1] < 0.35 * ddpm_moments(schedule, 1.0)[1]

    def test_ddim_comes_to_the_data_too(self) -> None:
        schedule = cosine_schedule(200)
        x = np.asarray(ddim_sample(normal_noise(MEAN, STD, schedule), KEY, (MANY, 1), schedule, 100))
        assert (x.mean(), x.std()) == pytest.approx((MEAN, STD), rel=0.03)

    def test_the_schedule_is_a_posterior(self) -> None:
        """Mean and variance of q(x_{k-1} | x_k, x_0), by the product of two normal densities."""
        schedule = cosine_schedule(20)
        beta, bar = (np.asarray(each, float) for each in (schedule.beta, schedule.alpha_bar))
        for k in range(1, 20):
            precision = (1 - beta[k]) / beta[k] + 1 / (1 - bar[k - 1])
            assert float(schedule.posterior_std[k]) == pytest.approx(precision**-0.5, rel=1e-3)
            assert float(schedule.posterior_data[k]) == pytest.approx(
                np.sqrt(bar[k - 1]) / (1 - bar[k - 1]) / precision, rel=1e-3
            )
            assert float(schedule.posterior_noisy[k]) == pytest.approx(
                np.sqrt(1 - beta[k]) / beta[k] / precision, rel=1e-3
            )
        assert float(schedule.posterior_std[0]) == 0

    def test_noise_and_data_determine_each_other(self) -> None:
        schedule, k = cosine_schedule(10), jnp.array([0, 4, 9])
        data, noise = jax.random.normal(KEY, (2, 3, 5))
        x = add_noise(data, noise, k, schedule)
        assert np.asarray(predicted_data(x, noise, k, schedule))[:2] == pytest.approx(np.asarray(data)[:2], abs=1e-4)

    def test_what_is_pinned_is_pinned_before_every_call_and_after(self) -> None:
        schedule = cosine_schedule(5)
        seen = []

        def predict(x: jax.Array, k: jax.Array) -> jax.Array:
            jax.debug.callback(lambda first: seen.append(np.array(first)), x[:, 0])
            return jnp.zeros_like(x)

        for sample in (ddpm_sample, lambda *rest, **more: ddim_sample(*rest, 5, **more)):
            x = sample(predict, KEY, (2, 3), schedule, pin=lambda x: x.at[:, 0].set(7.0))
            assert (np.asarray(x)[:, 0] == 7).all()
        jax.effects_barrier()
        assert len(seen) == 10
        assert all((first == 7).all() for first in seen)

    def test_clipping_bounds_the_data(self) -> None:
        schedule = cosine_schedule(20)
        x = np.asarray(ddpm_sample(normal_noise(3.0, 0.1, schedule), KEY, (100, 1), schedule, clip=1.0))
        assert x == pytest.approx(np.ones((100, 1)), abs=1e-5)

    def test_bad_input(self) -> None:
        with pytest.raises(UserError, match="at least 2"):
            cosine_schedule(1)
        with pytest.raises(UserError, match=r"\(0, 1\)"):
            ddpm_schedule(np.array([0.5, 1.0]))
        with pytest.raises(UserError, match="1 to 5"):
            ddim_sample(lambda x, k: x, KEY, (1, 1), cosine_schedule(5), 6)


class TestEdm:
    def test_preconditioning_keeps_unit_variance(self) -> None:
        """Inputs and targets of the network have variance 1, where the data have sigma_data's."""
        sigma = jnp.array([0.01, 0.3, 0.5, 2.0])
        skip, out, inside = (np.asarray(each) for each in precondition(sigma, 0.5))
        total = 0.5**2 + np.asarray(sigma) ** 2
        assert inside**2 * total == pytest.approx(np.ones(4), rel=1e-5)
        target = ((1 - skip) ** 2 * 0.5**2 + skip**2 * np.asarray(sigma) ** 2) / out**2
        assert target == pytest.approx(np.ones(4), rel=1e-4)

    def test_the_target_is_what_makes_the_denoiser_right(self) -> None:
        data, noise = jax.random.normal(KEY, (2, 6, 3))
        sigma = jnp.linspace(0.05, 2, 6)
        x = data + sigma[:, None] * noise
        target = edm_target(data, x, sigma, 0.5)
        assert np.asarray(denoised(lambda *_: target, x, sigma, 0.5)) == pytest.approx(np.asarray(data), abs=1e-4)

    def test_little_noise_is_left_alone(self) -> None:
        x = jnp.ones((1, 2))
        found = denoised(lambda inputs, level: 100 * jnp.ones_like(inputs), x, jnp.array([1e-6]), 0.5)
        assert np.asarray(found) == pytest.approx(np.ones((1, 2)), abs=1e-3)

    def test_noise_levels_have_the_truncated_distribution(self) -> None:
        low, high, location, scale = 0.05, 1.0, np.log(0.5), 0.5
        drawn = np.asarray(log_logistic(KEY, (40_000,), low, high))
        assert drawn.min() >= low
        assert drawn.max() <= high

        def cdf(x: float) -> float:
            return float(1 / (1 + np.exp(-(np.log(x) - location) / scale)))

        for level in (0.1, 0.3, 0.5, 0.8):
            expected = (cdf(level) - cdf(low)) / (cdf(high) - cdf(low))
            assert (drawn < level).mean() == pytest.approx(expected, abs=0.01)

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_samples_have_the_datas_moments(self, sampler: Any) -> None:
        sigmas = sigma_schedule("exponential", 40, 0.002, 20.0)
        first, key = jax.random.split(KEY)
        x = sigmas[0] * jax.random.normal(first, (MANY, 1))
        found = np.asarray(edm_sample(sampler, normal_denoiser(MEAN, STD), key, x, sigmas))
        rough = sampler in ("ddim", "euler", "euler-ancestral")
        assert found.mean() == pytest.approx(MEAN, abs=0.03)
        assert found.std() == pytest.approx(STD, rel=0.12 if rough else 0.02)

    def test_the_order_of_a_solver_shows_in_its_error(self) -> None:
        """The flow of normal data is x(sigma) = m + (x_0 - m) sqrt((s^2 + sigma^2) / (s^2 + sigma_0^2))."""
        x, low, high = jnp.array([[3.0]]), 1e-3, 2.0
        exact = MEAN + (3.0 - MEAN) * np.sqrt((STD**2 + low**2) / (STD**2 + high**2))
        end = (STD**2 * exact + low**2 * MEAN) / (STD**2 + low**2)  # the last step is the denoiser itself

        def error(sampler: Any, steps: int) -> float:
            sigmas = sigma_schedule("karras", steps, low, high)
            found = edm_sample(sampler, normal_denoiser(MEAN, STD), KEY, x, sigmas)
            return abs(float(found[0, 0]) - end)

        for sampler, factor in (("ddim", 1.7), ("heun", 3.0), ("dpmpp-2m", 3.0)):
            assert error(sampler, 16) > factor * error(sampler, 32), sampler
        assert error("heun", 16) < error("ddim", 16) / 5
        assert error("dpmpp-2m", 16) < error("ddim", 16) / 3

    def test_ddim_is_the_exponential_integrator_of_the_paper(self) -> None:
        sigmas = sigma_schedule("exponential", 4, 0.1, 1.0)
        x, model = jnp.array([[0.3], [-2.0]]), normal_denoiser(MEAN, STD)
        expected = np.asarray(x, float)
        for here, after in pairwise(sigmas[:-1]):
            h = np.log(here) - np.log(after)
            found = np.asarray(model(jnp.asarray(expected), jnp.full(2, here)))
            expected = after / here * expected - (np.exp(-h) - 1) * found
        expected = np.asarray(model(jnp.asarray(expected), jnp.full(2, sigmas[-2])))
        assert np.asarray(edm_sample("ddim", model, KEY, x, sigmas)) == pytest.approx(expected, abs=1e-5)

    @pytest.mark.parametrize("sampler", SAMPLERS)
    @pytest.mark.parametrize("steps", [1, 2])
    def test_no_nan_at_sigma_zero(self, sampler: Any, steps: int) -> None:
        sigmas = sigma_schedule("exponential", steps, 0.05, 1.0)
        found = edm_sample(sampler, normal_denoiser(MEAN, STD), KEY, jnp.ones((3, 2)), sigmas)
        assert np.isfinite(np.asarray(found)).all()

    def test_one_step_is_the_denoiser(self) -> None:
        model = normal_denoiser(MEAN, STD)
        found = edm_sample("heun", model, KEY, jnp.ones((1, 1)), sigma_schedule("karras", 1, 0.05, 1.0))
        assert np.asarray(found) == pytest.approx(np.asarray(model(jnp.ones((1, 1)), jnp.ones(1))))

    def test_levels_fall_to_zero(self) -> None:
        assert sigma_schedule("exponential", 3, 0.01, 1.0) == pytest.approx([1, 0.1, 0.01, 0])
        assert sigma_schedule("linear", 3, 0.5, 1.5) == pytest.approx([1.5, 1.0, 0.5, 0])
        karras = sigma_schedule("karras", 3, 1.0, 128.0, rho=7)
        assert karras == pytest.approx([128, 1.5**7, 1, 0])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: sigma_schedule("exponential", 0, 0.1, 1), "at least 1"),
            (lambda: sigma_schedule("exponential", 3, 1.0, 1.0), "sigma_min < sigma_max"),
            (lambda: sigma_schedule("exponental", 3, 0.1, 1.0), "Did you mean 'exponential'"),
            (lambda: edm_sample("huen", None, KEY, jnp.ones((1, 1)), [1, 0]), "Did you mean 'heun'"),
            (lambda: edm_sample("heun", None, KEY, jnp.ones((1, 1)), [0.5, 1, 0]), "falling to 0"),
            (lambda: edm_sample("heun", None, KEY, jnp.ones((1, 1)), [1, 0.5]), "falling to 0"),
        ],
    )
    def test_bad_input(self, make: Any, message: str) -> None:
        with pytest.raises(UserError, match=message):
            make()


class TestGuidance:
    def test_two_experts_make_their_product(self) -> None:
        """p(x) = N(0, 1), p(x | i) = N(m_i, s_i^2): the product p(x|1) p(x|2) / p(x) is normal in closed form."""
        schedule = cosine_schedule(300)
        means, stds = jnp.array([0.8, -0.2]), jnp.array([0.5, 0.6])

        def model(x: jax.Array, k: jax.Array, condition: jax.Array, keep: jax.Array) -> jax.Array:
            mean = keep * (condition @ means)
            std = jnp.where(keep > 0, condition @ stds, 1.0)
            bar = schedule.alpha_bar[k]
            found = jnp.sqrt(1 - bar) * (x[:, 0] - jnp.sqrt(bar) * mean) / (bar * std**2 + 1 - bar)
            return found[:, None]

        values = jnp.tile(jnp.eye(2), (MANY // 4, 1, 1))
        x = np.asarray(ddpm_sample(guided(model, values, jnp.ones((MANY // 4, 2))), KEY, (MANY // 4, 1), schedule))
        precision = np.array([1 / 0.5**2, 1 / 0.6**2])
        total = precision.sum() - 1
        # Exact for the scores of the clean data; noisy products differ a little from noised products.
        assert x.mean() == pytest.approx((precision @ np.asarray(means)) / total, abs=0.05)
        assert x.std() == pytest.approx(total**-0.5, rel=0.12)

    def test_guidance_is_the_products_score_at_every_level(self) -> None:
        """The combined noise is -sqrt(1 - bar) times the gradient of the log product, by automatic differentiation."""
        bar, weights = 0.6, np.array([[1.0, -0.5]], np.float32)
        means, stds = (0.8, -0.2), (0.5, 0.6)

        def log_noisy(x: jax.Array, mean: float, std: float) -> jax.Array:
            return -((x - jnp.sqrt(bar) * mean) ** 2) / (2 * (bar * std**2 + 1 - bar))

        def model(x: jax.Array, k: jax.Array, condition: jax.Array, keep: jax.Array) -> jax.Array:
            mean, std = keep * (condition @ jnp.array(means)), jnp.where(keep > 0, condition @ jnp.array(stds), 1.0)
            return (jnp.sqrt(1 - bar) * (x[:, 0] - jnp.sqrt(bar) * mean) / (bar * std**2 + 1 - bar))[:, None]

        def log_product(x: jax.Array) -> jax.Array:
            null = log_noisy(x, 0.0, 1.0)
            parts = zip(weights[0], means, stds, strict=True)
            return null + sum(w * (log_noisy(x, m, s) - null) for w, m, s in parts)

        x = jnp.array([[0.37]])
        found = guided(model, jnp.eye(2)[None], jnp.asarray(weights))(x, jnp.zeros(1, int))
        expected = -np.sqrt(1 - bar) * float(jax.grad(log_product)(x[0, 0]))
        assert float(found[0, 0]) == pytest.approx(expected, abs=1e-5)

    def test_weight_zero_is_unconditional_and_one_is_conditional(self) -> None:
        def model(x: jax.Array, k: jax.Array, condition: jax.Array, keep: jax.Array) -> jax.Array:
            return jnp.sin(x) + (keep * condition.sum(-1) * (1 + k))[:, None] * x

        x, k = jax.random.normal(KEY, (4, 3)), jnp.arange(4)
        values = jax.random.normal(KEY, (4, 1, 2))
        for weight in (0.0, 1.0):
            alone = conditional(model, values[:, 0], weight)(x, k)
            found = guided(model, values, jnp.full((4, 1), weight))(x, k)
            assert np.asarray(found) == pytest.approx(np.asarray(alone), abs=1e-5)
        twice = guided(model, jnp.repeat(values, 2, 1), jnp.array([[2.0, -1.0]] * 4))(x, k)
        assert np.asarray(twice) == pytest.approx(np.asarray(conditional(model, values[:, 0])(x, k)), abs=1e-5)

    def test_conditions_are_dropped_at_their_rate(self) -> None:
        assert float(drop_conditions(KEY, MANY, 0.25).mean()) == pytest.approx(0.75, abs=0.01)
        assert (np.asarray(drop_conditions(KEY, 50, 0.0)) == 1).all()

    def test_moving_average_in_closed_form(self) -> None:
        ema = {"w": jnp.zeros(2)}
        for _ in range(5):
            ema = update_ema(ema, {"w": jnp.ones(2)}, 0.9)
        assert np.asarray(ema["w"]) == pytest.approx(np.full(2, 1 - 0.9**5))

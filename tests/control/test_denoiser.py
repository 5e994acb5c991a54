"""The networks: what they may and may not depend on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.control._denoiser_gpt import GptDenoiser
from rolecraft.control._denoiser_unet import TemporalConv, TemporalUnet, mish, step_embedding

KEY = jax.random.key(0)


def test_the_convolution_is_numpys() -> None:
    x = np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32)
    for kernel, stride in ((5, 1), (3, 2)):
        conv = TemporalConv(4, kernel, stride)
        params = conv.init(KEY, x)
        weight = np.asarray(params["params"]["Dense_0"]["kernel"]).reshape(kernel, 3, 4)
        found = np.asarray(conv.apply(params, x))
        assert found.shape == (2, 8 // stride, 4)
        for out in range(4):
            full = sum(
                np.stack([np.correlate(np.pad(row[:, c], kernel // 2), weight[:, c, out], "valid") for row in x])
                for c in range(3)
            )
            assert found[..., out] == pytest.approx(full[:, ::stride], abs=1e-5)


def test_mish_and_its_slope_are_the_formulas_everywhere() -> None:
    x = np.concatenate([np.linspace(-100, 100, 2001), [-1e4, 1e4]]).astype(np.float32)
    wide = x.astype(np.float64)
    soft = np.logaddexp(0, wide)
    slope = np.tanh(soft) + wide * (1 - np.tanh(soft) ** 2) / (1 + np.exp(-np.clip(wide, -700, 700)))
    assert np.asarray(mish(jnp.asarray(x))) == pytest.approx(wide * np.tanh(soft), rel=3e-6, abs=1e-30)
    assert np.asarray(jax.vmap(jax.grad(mish))(x)) == pytest.approx(slope, abs=1e-5)


def test_step_embeddings_are_distinct() -> None:
    found = np.asarray(step_embedding(jnp.arange(20.0), 8))
    assert found.shape == (20, 8)
    assert np.linalg.norm(found[:, None] - found[None], axis=-1)[np.triu_indices(20, 1)].min() > 0.1


def test_the_unet_ignores_a_dropped_condition_and_nothing_else() -> None:
    net = TemporalUnet(4, (1,))
    x, level, keep = jax.random.normal(KEY, (3, 4, 2)), jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 0.0])
    a, b = jnp.ones((3, 2)), jnp.zeros((3, 2)).at[:, 0].set(5.0)
    params = jax.jit(net.init)(KEY, x, level, a, jnp.ones(3))
    apply = jax.jit(net.apply)
    first, second = (np.asarray(apply(params, x, level, each, keep)) for each in (a, b))
    assert first[[0, 2]] == pytest.approx(second[[0, 2]], abs=1e-6)
    assert abs(first[1] - second[1]).max() > 1e-4
    later = np.asarray(apply(params, x, level + 3, a, keep))
    assert abs(first[0] - later[0]).max() > 1e-4


def test_the_unet_keeps_shapes_at_every_depth() -> None:
    for multipliers, size in (((1, 2), 6), ((1, 2, 4), 8), ((1, 4, 8), 100)):
        net = TemporalUnet(8, multipliers)
        inputs = (jnp.zeros((3, size, 2)), jnp.zeros(3), jnp.zeros((3, 1)), jnp.ones(3))
        found, _ = jax.eval_shape(lambda net=net, inputs=inputs: net.init_with_output(KEY, *inputs))
        assert found.shape == (3, size, 2)


class TestGpt:
    net = GptDenoiser(width=8, layers=1, heads=2)

    def inputs(self, batch: int = 2, window: int = 3) -> dict[str, Any]:
        keys = jax.random.split(KEY, 4)
        return {
            "actions": jax.random.normal(keys[0], (batch, window, 2)), "level": jnp.zeros(batch),
            "goal": jax.random.normal(keys[1], (batch, 2)), "keep": jnp.ones(batch),
            "obs": jax.random.normal(keys[2], (batch, window, 2)), "mask": jnp.ones((batch, window), bool),
        }  # fmt: skip

    def test_it_is_causal_sees_the_goal_and_neither_padding_nor_dropped_goals(self) -> None:
        given = self.inputs()
        params = jax.jit(self.net.init)(KEY, **given)
        params = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(KEY, leaf.shape), params)
        compiled = jax.jit(lambda values: self.net.apply(params, **values))

        def apply(change: dict[str, Any]) -> Any:
            return compiled({**given, **change})

        base = np.asarray(apply({}))
        assert base.shape == (2, 3, 2)

        def moved(**change: Any) -> np.ndarray:
            return np.asarray(abs(np.asarray(apply(change)) - base).max((0, 2)))

        future = moved(obs=given["obs"].at[:, 2].add(1.0))
        assert future[:2].max() < 1e-6
        assert future[2] > 1e-3
        action = moved(actions=given["actions"].at[:, 1].add(1.0))
        assert action[0] < 1e-6
        assert action[1:].min() > 1e-4
        assert moved(goal=given["goal"] + 1).min() > 1e-4
        assert moved(level=jnp.ones(2)).min() > 1e-4
        null = np.asarray(apply({"keep": jnp.zeros(2)}))
        other = np.asarray(apply({"keep": jnp.zeros(2), "goal": given["goal"] + 1}))
        assert null == pytest.approx(other, abs=1e-6)
        mask = jnp.array([[False, True, True]] * 2)
        hidden = np.asarray(apply({"mask": mask}))
        changed = np.asarray(apply({"mask": mask, "obs": given["obs"].at[:, 0].add(9.0)}))
        assert hidden[:, 1:] == pytest.approx(changed[:, 1:], abs=1e-6)

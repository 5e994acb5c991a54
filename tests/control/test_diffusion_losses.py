"""What planner and policy are trained on: with a network that knows the answer their losses are 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.control import Demonstrations, DiffusionPolicyConfig, PlannerConfig, Trajectories
from rolecraft.control import _diffusion_planner as planner
from rolecraft.control import _diffusion_policy as policy
from rolecraft.control._diffusion_ddpm import cosine_schedule
from rolecraft.control._diffusion_edm import edm_target, precondition

LENGTHS = (3, 7, 5)


class Oracle:
    """In the place of a network: answers by a function of what it is given, and keeps that."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer, self.given = answer, list[tuple[Any, ...]]()

    def apply(self, params: Any, *inputs: Any) -> Any:
        jax.debug.callback(lambda *given: self.given.append(tuple(map(np.asarray, given))), *inputs)
        return self.answer(*inputs)


def marked(constant: bool = False) -> Trajectories:
    """Trajectories whose observation is the number of the step, and whose actions follow it."""
    n = sum(LENGTHS)
    steps = np.zeros(n) if constant else np.arange(n, dtype=float)
    parts = np.split(steps, np.cumsum(LENGTHS)[:-1])
    return Trajectories.of([
        {"obs": np.stack([part, part], 1), "actions": np.stack([np.sin(part), np.cos(part)], 1)} for part in parts
    ])  # fmt: skip


PLANNER = PlannerConfig(horizon=4, width=4, multipliers=(1,), steps=3, hidden=4, batch=128, updates=1)


def planner_loss(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Any]
) -> tuple[Oracle, Callable[[dict[str, Any]], dict[str, float]]]:
    """The oracle, and the compiled figures of a planner whose network it is, as a function of the data."""
    net = Oracle(answer)
    monkeypatch.setattr(planner, "TemporalUnet", lambda *sizes: net)
    inverse = planner.InverseModel(PLANNER.hidden, 2).init(jax.random.key(1), jnp.zeros((1, 4)))
    loss = jax.jit(planner._loss(PLANNER, 2))

    def figures(data: dict[str, Any]) -> dict[str, float]:
        found = loss({"unet": {}, "inverse": inverse}, jax.random.key(0), data)[1]
        jax.effects_barrier()
        return {name: float(value) for name, value in found.items()}

    return net, figures


def noise_of(x: Any, k: Any, clean: Any) -> Any:
    """The noise that was added to known data."""
    bar = cosine_schedule(3).alpha_bar[k.astype(int)][:, None, None]
    return (x - jnp.sqrt(bar) * clean) / jnp.sqrt(1 - bar)


def test_the_planners_loss_is_of_the_noise_in_all_states_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states are all alike here, and the condition says whether the oracle is to be off."""
    off = jnp.array([9.0, 2.0, 2.0, 2.0])[None, :, None]
    net, figures = planner_loss(
        monkeypatch, lambda x, k, wrong, keep: noise_of(x, k, 0.7) + off * wrong[:, :, None]
    )  # fmt: skip
    ends = jnp.asarray(marked().ends)
    last = (ends == jnp.arange(15))[:, None]
    data = {"obs": jnp.full((15, 2), 0.7), "actions": jnp.zeros((15, 2)), "conditions": jnp.zeros((15, 1)),
            "ends": ends}  # fmt: skip
    right = figures(data)
    x, k, _, keep = net.given[0]
    assert right["diffusion"] == pytest.approx(0, abs=1e-6), "0 although the first state holds no noise"
    assert (x[:, 0] == np.float32(0.7)).all()
    assert set(k.tolist()) == {0, 1, 2}
    assert 0.1 < 1 - keep.mean() < 0.4, "a quarter of the conditions is dropped"
    assert figures(data | {"conditions": jnp.ones((15, 1))})["diffusion"] == pytest.approx(4, rel=1e-4)
    spoilt = figures(data | {"actions": jnp.where(last, 100.0, 0.0)})
    assert spoilt["inverse"] == pytest.approx(right["inverse"], abs=1e-6), "nothing was done where a window repeats"


def test_a_window_keeps_to_its_trajectory_and_has_its_first_steps_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Demonstrations(marked(), np.arange(15, dtype=np.float32)[:, None])
    made, scale = planner._arrays(job, PLANNER)
    arrays = {name: jnp.asarray(each) for name, each in made.items()}

    def cheats(x: Any, k: Any, condition: Any, keep: Any) -> Any:
        at = condition[:, 0].astype(int)
        return noise_of(x, k, arrays["obs"][jnp.minimum(at[:, None] + jnp.arange(4), arrays["ends"][at][:, None])])

    net, figures = planner_loss(monkeypatch, cheats)
    assert figures(arrays)["diffusion"] == pytest.approx(0, abs=1e-4)
    x, _, condition, _ = net.given[0]
    assert scale.decode(x[:, 0])[:, 0] == pytest.approx(condition[:, 0], abs=1e-3)
    assert len(np.unique(condition)) == 15, "every step starts windows, the last ones too"


POLICY = DiffusionPolicyConfig(window=3, width=4, layers=1, heads=1, batch=64, updates=1)


def test_the_policys_windows_goals_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """One level of noise for all actions of a window, as in the released code; padding does not count."""
    made, seen, _ = policy.goal_arrays(marked())
    arrays, data = {name: jnp.asarray(each) for name, each in made.items()}, marked()

    def knows(inputs: Any, level: Any, goal: Any, keep: Any, obs: Any, mask: Any) -> Any:
        sigma, index = jnp.exp(4 * level), (obs[..., 0] * seen.scale[0] + seen.centre[0]).round().astype(int)
        noisy = inputs / precondition(sigma, 0.5).inside[:, None, None]
        return jnp.where(mask[..., None], edm_target(arrays["actions"][index], noisy, sigma, 0.5), 1e3)

    net = Oracle(knows)
    monkeypatch.setattr(policy, "GptDenoiser", lambda *sizes: net)
    value, _ = jax.jit(policy._loss(POLICY))({}, jax.random.key(0), arrays)
    assert float(value) == pytest.approx(0, abs=1e-5)
    jax.effects_barrier()
    _, level, goal, keep, obs, mask = net.given[0]
    sigma = np.exp(4 * level)
    assert 0.05 - 1e-6 <= sigma.min() < sigma.max() <= 1 + 1e-6
    assert len(np.unique(sigma)) > 50
    steps, goals = seen.decode(obs)[..., 0].round().astype(int), seen.decode(goal)[:, 0].round().astype(int)
    at = steps[:, -1]
    assert (data.episode[goals] == data.episode[at]).all()
    last = at == data.ends[at]
    assert (goals[~last] > at[~last]).all()
    assert (goals[last] == at[last]).all()
    assert len(np.unique(at)) == 15
    for row, known in zip(steps, mask, strict=True):
        there = row[known]
        assert known[-1]
        assert (np.diff(there) == 1).all()
        assert known.sum() == min(3, 1 + row[-1] - data.starts[data.episode[row[-1]]])
    assert 0.02 < 1 - keep.mean() < 0.25


def test_sampling_leaves_the_executed_actions_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Oracle(lambda inputs, *_: 0.1 * jnp.ones_like(inputs))
    monkeypatch.setattr(policy, "GptDenoiser", lambda *sizes: net)
    policy._sampler.cache_clear()
    _, seen, acted = policy.goal_arrays(marked())
    made = policy.DiffusionPolicy(POLICY, {}, seen, acted)
    past = np.array([[[0.3, -0.2], [0.5, 0.1]]])
    obs = np.zeros((1, 3, 2)) + np.array([[1.0], [2.0], [3.0]])[None]
    made.sample(obs, np.array([4.0, 4.0]), past=past, steps=3)
    jax.effects_barrier()
    policy._sampler.cache_clear()
    assert len(net.given) == 3, "one call a step without guidance"
    for inputs, level, goal, keep, states, _ in net.given:
        scale = np.asarray(precondition(jnp.exp(4 * jnp.asarray(level)), 0.5).inside)[:, None, None]
        assert (inputs / scale)[:, :2] == pytest.approx(acted.encode(past), abs=1e-4)
        assert seen.decode(states)[0, :, 0] == pytest.approx([1, 2, 3], abs=1e-3)
        assert (seen.decode(goal)[0, 0], keep[0]) == pytest.approx((4, 1), abs=1e-3)
    levels = sorted((float(np.exp(4 * given[1][0])) for given in net.given), reverse=True)
    assert levels == pytest.approx([1, 0.05**0.5, 0.05], rel=1e-3)

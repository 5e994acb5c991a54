"""Planner and policy: what they refuse, what they keep, and that training goes on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from rolecraft.control import (
    Condition,
    Demonstrations,
    DiffusionPlanner,
    DiffusionPolicy,
    DiffusionPolicyConfig,
    PlannerConfig,
    Trajectories,
    obstacle_play,
    side_play,
    train_planners,
    train_policies,
)
from rolecraft.errors import UserError

TINY = PlannerConfig(horizon=4, width=4, multipliers=(1,), steps=3, hidden=8, batch=8, updates=10)
SMALL = DiffusionPolicyConfig(window=2, width=8, layers=1, heads=2, steps=2, batch=8, updates=10)
LEFT, ABOVE = (Condition.one_of("constraint", place, 4) for place in (0, 3))
OBS = np.array([[0.1, 0.0], [0.0, 0.05]], np.float32)


def demonstrations(seed: int = 0) -> Demonstrations:
    data, _ = side_play(20, np.random.default_rng(seed), steps=6)
    assert data.labels is not None
    return Demonstrations(data, data.labels[data.episode], "constraint")


@pytest.fixture(scope="module")
def planner() -> DiffusionPlanner:
    (found,), curves = train_planners([demonstrations()], TINY, [1])
    assert curves["diffusion"].shape == (10, 1)
    return found


@pytest.fixture(scope="module")
def policy() -> DiffusionPolicy:
    (found,), _ = train_policies([obstacle_play(10, np.random.default_rng(0))[0]], SMALL, [1])
    return found


class TestPlanner:
    def test_plans_start_where_they_are_and_lie_in_the_data(self, planner: DiffusionPlanner) -> None:
        plans = planner.plan(OBS, LEFT & ~ABOVE)
        assert plans.shape == (2, 4, 2)
        assert (plans[:, 0] == OBS).all()
        assert abs(plans).max() <= 1
        assert (planner.plan(OBS, LEFT & ~ABOVE) == plans).all()
        assert (planner.plan(OBS, LEFT & ~ABOVE, seed=1) != plans).any()
        assert planner.act(OBS, LEFT & ~ABOVE) == pytest.approx(planner.actions(plans[:, 0], plans[:, 1]))

    def test_strength_zero_is_no_condition_and_saved_planners_plan_the_same(
        self, planner: DiffusionPlanner, tmp_path: Path
    ) -> None:
        free = planner.plan(OBS)
        assert (planner.plan(OBS, LEFT, strength=0) == free).all()
        assert (planner.plan(OBS, Condition.null("constraint")) == free).all()
        planner.save(tmp_path / "planner.safetensors")
        assert (DiffusionPlanner.load(tmp_path / "planner.safetensors").plan(OBS) == free).all()
        with pytest.raises(UserError, match="no diffusion policy"):
            DiffusionPolicy.load(tmp_path / "planner.safetensors")

    def test_bad_input(self, planner: DiffusionPlanner) -> None:
        with pytest.raises(UserError, match=r"d = 2, got \(2,\)"):
            planner.plan(OBS[0])
        with pytest.raises(UserError, match="finite"):
            planner.plan(OBS * np.nan)
        with pytest.raises(UserError, match="a constraint condition of shape"):
            planner.plan(OBS, Condition.of("return", 1))
        with pytest.raises(UserError, match="outside the data's range"):
            planner.compose(LEFT, Condition.of("constraint", [2, 0, 0, 0]))
        assert planner.compose(LEFT, ABOVE) == LEFT & ABOVE

    def test_no_guidance_without_dropout(self, planner: DiffusionPlanner) -> None:
        undropped = DiffusionPlanner(
            PlannerConfig(**{**vars(TINY), "drop": 0.0}), planner.params, planner.scale, planner.space, 2
        )
        for asked, strength in ((LEFT, 1.2), (None, 1.0), (LEFT & ABOVE, 1.0)):
            with pytest.raises(UserError, match="without condition dropout"):
                undropped.plan(OBS, asked, strength=strength)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"multipliers": (1, 2, 4), "horizon": 6}, "multiple of 4"),
            ({"drop": 1.0}, "drop and ema"),
            ({"sample_steps": 9}, "1 to steps"),
            ({"width": 0}, "at least 1"),
        ],
    )
    def test_bad_sizes(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            PlannerConfig(**{**vars(TINY), **change})

    def test_bad_jobs_are_refused_before_anything_is_compiled(self) -> None:
        job = demonstrations()
        with pytest.raises(UserError, match=r"\(N, c\) with N = 120"):
            train_planners([Demonstrations(job.data, job.conditions[:3])], TINY, [1])
        with pytest.raises(UserError, match="one seed per job"):
            train_planners([job], TINY, [1, 2])
        with pytest.raises(UserError, match="discrete actions"):
            train_planners([job], PlannerConfig(**{**vars(TINY), "actions": 3}), [1])


class TestPolicy:
    def test_actions_lie_in_the_datas_bounds_and_sessions_roll(self, policy: DiffusionPolicy, tmp_path: Path) -> None:
        goal = np.array([0.5, 0.8])
        window = np.stack([OBS, OBS], axis=1)
        found = policy.sample(window, goal)
        low, high = policy.action_scale.centre - policy.action_scale.scale, (
            policy.action_scale.centre + policy.action_scale.scale
        )  # fmt: skip
        assert ((found >= low - 1e-5) & (found <= high + 1e-5)).all()
        session = policy.session()
        first = session.act(OBS, goal, 0)
        blank = np.zeros((2, 1, 2))
        mask = np.array([[False, True]] * 2)
        assert first == pytest.approx(policy.sample(window, goal, past=blank, mask=mask), abs=1e-6)
        later = session.act(OBS + 0.1, goal, 3)
        rolled = np.stack([OBS, OBS + 0.1], axis=1)
        assert later == pytest.approx(policy.sample(rolled, goal, past=first[:, None], seed=3), abs=1e-6)
        session.reset()
        assert session.act(OBS, goal, 0) == pytest.approx(first, abs=1e-6)
        policy.save(tmp_path / "policy.safetensors")
        assert (DiffusionPolicy.load(tmp_path / "policy.safetensors").sample(window, goal) == found).all()

    def test_without_guidance_the_goal_is_ignored(self, policy: DiffusionPolicy) -> None:
        window = np.stack([OBS, OBS], axis=1)
        one, other = (policy.sample(window, goal, strength=0) for goal in ([0.5, 0.8], [-0.5, -0.8]))
        assert one == pytest.approx(other, abs=1e-6)
        assert policy.sample(window, None) == pytest.approx(one, abs=1e-6)

    def test_bad_input(self, policy: DiffusionPolicy) -> None:
        with pytest.raises(UserError, match=r"k = 2 and d = 2"):
            policy.sample(OBS, [0.0, 0.0])
        with pytest.raises(UserError, match=r"goal: expected shape \(2,\)"):
            policy.sample(np.stack([OBS, OBS], 1), [0.0])
        undropped = DiffusionPolicy(
            DiffusionPolicyConfig(**{**vars(SMALL), "drop": 0.0}), policy.params, policy.obs_scale, policy.action_scale
        )
        with pytest.raises(UserError, match="without goal dropout"):
            undropped.sample(np.stack([OBS, OBS], 1), [0.0, 0.0], strength=2)
        with pytest.raises(UserError, match="sigma_min < sigma_max"):
            DiffusionPolicyConfig(sigma_min=2.0)
        with pytest.raises(UserError, match="multiple of heads"):
            DiffusionPolicyConfig(width=6, heads=4)

    def test_killed_training_goes_on_to_the_same_numbers(self, policy: DiffusionPolicy, tmp_path: Path) -> None:
        play = [obstacle_play(10, np.random.default_rng(0))[0]]
        (once,), curves = train_policies(play, SMALL, [1], folder=tmp_path)
        (again,), kept = train_policies(play, SMALL, [1], folder=tmp_path)
        for a, b, c in zip(*(jax.tree.leaves(each.params) for each in (policy, once, again)), strict=True):
            assert (np.asarray(a) == np.asarray(b)).all()
            assert (np.asarray(b) == np.asarray(c)).all()
        assert (curves["loss"] == kept["loss"]).all()

    def test_discrete_actions_are_refused(self) -> None:
        data = Trajectories.of([{"obs": np.zeros((3, 2)), "actions": np.zeros(3, int)}])
        with pytest.raises(UserError, match=r"actions \(N, a\)"):
            train_policies([data], SMALL, [1])

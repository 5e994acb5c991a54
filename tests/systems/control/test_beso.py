"""System 027: figures of made-up episodes, the baselines on planted data, verdicts, a smoke run that resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.control import OBSTACLE_TARGETS
from rolecraft.control._navigation import Rollout
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.control import _beso_arms
from rolecraft.systems.control._beso_arms import bits, energy_distance, figures_of
from rolecraft.systems.control._cloning import CloningConfig, k_means, train_cloners
from rolecraft.systems.control.beso import ObstacleConfig, run_obstacle, verdict_obstacle

SMALL = ObstacleConfig(
    seeds=(1,), trajectories=20, updates=10, window=2, width=8, layers=1, denoising=(1, 2), strengths=(0.0, 1.0),
    bins=2, tests=4, steps=4,
)  # fmt: skip


def test_figures_of_known_episodes() -> None:
    left, right = OBSTACLE_TARGETS
    paths = [
        [(0, -0.8), (-0.5, 0.1), left],  # to the left target, as commanded
        [(0, -0.8), (0.5, 0.1), left],  # to the left one, where the right one was commanded
        [(0, -0.8), (0.5, 0.1), right],  # to the right one, as commanded
        [(0, -0.8), (0.0, -0.2), (0.0, -0.2)],  # into the obstacle
    ]
    run = Rollout(np.array(paths, np.float32), np.zeros((4, 2, 2), np.float32), np.array([False, False, False, True]))
    found = figures_of(run, np.array([0, 1, 1, 0]), np.zeros((3, 2)))
    assert found["success"] == 0.5
    assert found["other"] == 0.25
    assert found["hit"] == 0.25
    assert found["lead"] == 0.25
    assert found["side_bits"] == pytest.approx(bits(1 / 3))
    assert found["target_bits"] == pytest.approx(bits(1 / 3))
    assert found["first_actions"] == 0


def test_bits_and_energy() -> None:
    assert [bits(0.5), bits(0.0), bits(1.0)] == [1, 0, 0]
    a = np.random.default_rng(0).normal(size=(200, 2))
    assert energy_distance(a, a) == pytest.approx(0)
    assert energy_distance(a, a + 5) > 2


def test_k_means_finds_planted_centres() -> None:
    rng = np.random.default_rng(0)
    planted = np.array([[0.0, 0], [5, 0], [0, 5]])
    values = (planted[rng.integers(3, size=300)] + 0.1 * rng.normal(size=(300, 2))).astype(np.float32)
    centres, nearest = k_means(values, 3, rng)
    assert np.linalg.norm(centres[:, None] - planted, axis=-1).min(0).max() < 0.1
    assert (np.linalg.norm(values - centres[nearest], axis=1) < 1).all()
    with pytest.raises(UserError, match="2 distinct values"):
        k_means(np.array([[0.0], [1.0]], np.float32), 3, rng)


def test_the_mean_action_mixes_two_ways_and_clusters_keep_them() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 1)).astype(np.float32)
    actions = rng.choice([-1.0, 1.0], size=(400, 1)).astype(np.float32)
    mean, bins = (
        train_cloners([inputs], [actions], CloningConfig(bins=bins, updates=150), [1])[0](inputs, 0) for bins in (0, 2)
    )
    assert abs(mean.mean()) < 0.15
    assert abs(mean).mean() < 0.4
    assert abs(bins).mean() == pytest.approx(1, abs=0.2)
    assert 0.35 < (bins > 0).mean() < 0.65


ARMS = {
    "gcbc": (0.2, 0.1, 0.1), "beso-1": (0.5, 0.4, 1), "beso-3": (0.9, 0.8, 3), "beso-50": (0.91, 0.8, 50),
    "beso-3-w0": (0.45, 0.0, 3),
}  # fmt: skip


def made_up(**change: tuple[float, float, float]) -> Result:
    rng = np.random.default_rng(0)
    figures = ARMS | {name.replace("_", "-"): value for name, value in change.items()}
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "success": success + 0.003 * rng.normal(), "lead": lead + 0.003 * rng.normal(),
             "milliseconds": time + 0.01 * rng.random(), "side_bits": 0.95 + 0.003 * rng.normal(),
             "target_bits": 0.95 + 0.003 * rng.normal()}
            for arm, (success, lead, time) in figures.items() for seed in range(4)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "reproduced"),
        ({"gcbc": (0.88, 0.8, 0.1)}, "not reproduced"),
        ({"beso_3": (0.7, 0.8, 3)}, "not reproduced"),
        ({"beso_3": (0.9, 0.8, 25)}, "not reproduced"),
        ({"beso_3_w0": (0.9, 0.8, 3)}, "not reproduced"),
    ],
)
def test_verdicts(change: dict[str, tuple[float, float, float]], verdict: str) -> None:
    assert verdict_obstacle(made_up(**change)).verdict == verdict


@pytest.mark.slow
def test_smoke_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_obstacle(SMALL, store)
        assert result.arms == list(SMALL.arms)
        script = next(row for row in result.rows if row["arm"] == "script")
        assert script["success"] <= 1
        assert all(row["milliseconds"] > 0 for row in result.rows if row["arm"] != "script")
        assert verdict_obstacle(result).verdict == "inconclusive"

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("nothing is missing")

        monkeypatch.setattr(_beso_arms, "train_policies", refuse)
        assert run_obstacle(SMALL, store).rows == result.rows


def test_bad_input() -> None:
    with pytest.raises(UserError, match="denoising must rise"):
        ObstacleConfig(denoising=(3, 1))
    with pytest.raises(UserError, match="strengths must hold 0 and 1"):
        ObstacleConfig(strengths=(1.0,))
    with pytest.raises(UserError, match="kitchen"):
        ObstacleConfig.full()
    assert ObstacleConfig().few == 3
    assert list(find_entry("beso").studies) == ["obstacle"]

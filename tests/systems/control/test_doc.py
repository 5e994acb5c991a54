"""System 040: verdicts on made-up rows, counted arms against closed forms, tiny runs of both studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.control.doc import (
    CERTAIN,
    LUCKY,
    BanditConfig,
    FrozenLakeConfig,
    bandit_data,
    run_bandit,
    run_frozen_lake,
    verdict_bandit,
    verdict_frozen_lake,
    world_of,
)

GOOD: dict[str, dict[str, tuple[float, float]]] = {
    LUCKY: {"bc": (0.3, 0.01), "dt": (0.4, 0.6), "vae": (0.42, 0.55), "doc": (0.6, 0.05)},
    CERTAIN: {"bc": (0.5, 0.01), "dt": (1.0, 0.0), "vae": (1.0, 0.0), "doc": (1.0, 0.0)},
}
"""Achieved and gap by world and arm."""


def rows(change: dict[tuple[str, str], tuple[float, float]] | None = None, noise: float = 0.005) -> Result:
    found: list[dict[str, Any]] = []
    for world, arms in GOOD.items():
        for arm, figures in arms.items():
            achieved, gap = (change or {}).get((world, arm), figures)
            for seed in range(6):
                off = noise * (seed - 2.5)
                row = {"arm": arm, "seed": seed, "unit": world, "achieved": achieved + off, "gap": max(0, gap - off)}
                row |= {"good": 0.95 if arm == "doc" else 0.31, "bayes_good": 0.31}
                if arm in ("vae", "doc"):
                    row |= {"information": 0.1, "leaks": True, "collapsed": False}
                found.append(row)
    return Result(tuple(found))


@pytest.mark.parametrize("verdict_of", [verdict_bandit, verdict_frozen_lake])
def test_verdicts(verdict_of: Any) -> None:
    verdict = verdict_of(rows())
    assert verdict.verdict == "reproduced"
    assert "6 of 6 leak" in verdict.note
    assert "min-max" in verdict.note
    assert verdict_of(rows({(LUCKY, "doc"): (0.2, 0.05)})).verdict == "not reproduced"  # gambles no less
    assert verdict_of(rows({(LUCKY, "doc"): (0.6, 0.7)})).verdict == "not reproduced"  # keeps no promise
    assert verdict_of(rows({(CERTAIN, "dt"): (0.5, 0.5)})).verdict == "not reproduced"  # the control shows a gap


def test_the_lakes_order_counts() -> None:
    assert verdict_frozen_lake(rows({(LUCKY, "vae"): (0.7, 0.5)})).verdict == "not reproduced"
    assert verdict_frozen_lake(rows({(CERTAIN, "doc"): (0.5, 0.0)})).verdict == "not reproduced"
    assert verdict_frozen_lake(rows({(LUCKY, "doc"): (0.41, 0.05)}, noise=0.0)).verdict != "reproduced"


def test_bad_configurations() -> None:
    with pytest.raises(UserError, match="bad < good"):
        BanditConfig(good=0.1)
    with pytest.raises(UserError, match="'episode' or 'step'"):
        FrozenLakeConfig(mixture="both")
    with pytest.raises(UserError, match="slip in"):
        FrozenLakeConfig(slip=0.0)
    with pytest.raises(UserError, match="at least 1"):
        FrozenLakeConfig(samples=0)
    with pytest.raises(UserError, match="MuJoCo"):
        BanditConfig.full()
    assert find_entry("040").system.name == "doc"


def test_data_is_that_of_its_seed() -> None:
    config = BanditConfig(episodes=20_000)
    joint = bandit_data(config, LUCKY, 3)
    assert np.allclose(joint, [[0.02, 0.08], [0.72, 0.18]], atol=0.01)
    assert (bandit_data(config, LUCKY, 3) == joint).all()
    assert not (bandit_data(config, LUCKY, 4) == joint).all()
    certain = bandit_data(config, CERTAIN, 3)
    assert certain[0, 0] == certain[1, 1] == 0


@pytest.mark.slow
def test_a_tiny_bandit(tmp_path: Path) -> None:
    config = BanditConfig(seeds=(1, 2), updates=20, episodes=2000)
    with RunStore.open(tmp_path / "run", "systems", {}) as store:
        result = run_bandit(config, store)
        assert run_bandit(config, store).rows == result.rows
    assert set(result.arms) == {"bc", "dt", "vae", "doc", "as-released"}
    lucky = world_of(result, LUCKY)
    assert lucky.mean("good", "dt").estimate == pytest.approx(0.08 / 0.26, abs=0.06)
    assert lucky.mean("bayes_good", "dt").estimate == pytest.approx(0.08 / 0.26)
    assert lucky.mean("gap", "dt").estimate > 0.5
    assert world_of(result, CERTAIN).mean("gap", "dt").estimate == pytest.approx(0)
    assert verdict_bandit(result).verdict != "reproduced"  # after 20 updates nothing is learned


@pytest.mark.slow
def test_a_tiny_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrozenLakeConfig, "arms", ("doc",))  # each arm is two more compilations
    config = FrozenLakeConfig(seeds=(1, 2), episodes=80, horizon=15, updates=3, samples=5)
    with RunStore.open(tmp_path / "run", "systems", {}) as store:
        result = run_frozen_lake(config, store)
        assert run_frozen_lake(config, store).rows == result.rows
    for row in result.rows:
        assert row["gap"] == pytest.approx(abs(row["achieved"] - row["promised"]))
        assert 0 <= row["achieved"] <= 1
    dry = world_of(result, CERTAIN)
    assert dry.mean("achieved", "dt").low > dry.mean("achieved", "bc").high
    assert dry.mean("information", "doc").high < 1e-3  # where all is certain there is no luck to tell of

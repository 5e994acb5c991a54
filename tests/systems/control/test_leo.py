"""System 051: verdicts on made-up rows, bad configurations, one tiny run with curves and a resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.control.leo import CraftaxConfig, GridConfig, run_grid, verdict_craftax, verdict_grid

TINY = GridConfig(
    seeds=(1, 2), arms=("relabel", "leo", "pqn"), size=4, walls=0.1, length=4, updates=4, early=2, checks=2, repeats=1,
    timed_size=4, timed_seconds=0.05,
)  # fmt: skip


def rows(early: dict[str, float], ratio: float = 90.0, start: float = 0.02, spread: float = 0.01) -> Result:
    found: list[dict[str, Any]] = [
        {"arm": arm, "seed": seed, "early": value + sign * spread * (seed - 2), "start": start, "final": value}
        for sign, (arm, value) in zip((1, -1, 2), early.items(), strict=True)
        for seed in range(5)
    ]
    found += [
        {"arm": "timing", "seed": s, "ratio": ratio + s, "ratio_rows": 2 * ratio, "timed_goals": 181} for s in range(5)
    ]
    return Result(tuple(found))


def test_verdicts_of_the_grid() -> None:
    good = {"pqn": 0.05, "relabel": 0.4, "leo": 0.41}
    verdict = verdict_grid(rows(good))
    assert verdict.verdict == "reproduced"
    assert verdict.effect.estimate == pytest.approx(0.36)
    assert "181 goals" in verdict.note
    assert verdict_grid(rows(good | {"leo": 0.3})).verdict == "not reproduced"  # behind relabelling
    ahead = verdict_grid(rows(good | {"leo": 0.6}))
    assert ahead.verdict == "not reproduced"  # not the same as relabelling, if better
    assert verdict_grid(rows(good | {"pqn": 0.6})).verdict == "not reproduced"  # the commanded goal teaches more
    assert verdict_grid(rows(good, ratio=10)).verdict == "not reproduced"  # too slow
    assert verdict_grid(rows(good, start=0.5)).verdict == "not reproduced"  # chance does as well
    noisy = Result(tuple(
        row | {"early": row["early"] + 0.5 * (row["seed"] % 2 - 0.5)} if row["arm"] == "pqn" else row
        for row in rows(good | {"pqn": 0.35}).rows
    ))  # fmt: skip
    assert verdict_grid(noisy).verdict == "inconclusive"
    with pytest.raises(UserError, match="needs the arms"):
        verdict_grid(Result(tuple(row for row in rows(good).rows if row["arm"] != "relabel")))


def test_a_few_steps_of_craftax_decide_nothing() -> None:
    few = [{"arm": a, "seed": s, "success": v, "steps": 1e4} for a, v in (("ppo", 0.1), ("dual", 0.2)) for s in (0, 1)]
    assert verdict_craftax(Result(tuple(few))).verdict == "inconclusive"
    many = [row | {"steps": 1e9, "success": row["success"] + 0.001 * row["seed"]} for row in few]
    assert verdict_craftax(Result(tuple(many))).verdict == "reproduced"
    turned = [row | {"arm": {"ppo": "dual", "dual": "ppo"}[str(row["arm"])]} for row in many]
    assert verdict_craftax(Result(tuple(turned))).verdict == "not reproduced"
    assert CraftaxConfig.full().updates * CraftaxConfig.full().envs * 32 == pytest.approx(1e9, rel=1e-3)


def test_bad_configurations() -> None:
    with pytest.raises(UserError, match="Did you mean 'relabel'"):
        GridConfig(arms=("relable",))
    with pytest.raises(UserError, match="multiples of the 40"):
        GridConfig(early=70)
    with pytest.raises(UserError, match="at least 1"):
        GridConfig(checks=0)
    with pytest.raises(UserError, match="at least 2"):
        CraftaxConfig(updates=1)
    with pytest.raises(UserError, match="GPU"):
        GridConfig.full()
    assert find_entry("051").system.name == "leo"


@pytest.mark.slow
def test_a_tiny_run_has_rows_curves_and_goes_on(tmp_path: Path) -> None:
    with RunStore.open(tmp_path / "run", "systems", {}) as store:
        result = run_grid(TINY, store)
        curves = store.rows("curves")
        again = run_grid(TINY, store)
    assert again.rows == result.rows
    assert set(result.arms) == {"relabel", "leo", "pqn", "timing"}
    assert {row["steps"] for row in curves.values() if row["arm"] == "leo"} == {0, 1024, 2048}
    assert {row["steps"] for row in curves.values() if row["arm"] == "relabel"} == {0, 1024}
    for row in result.rows:
        if row["arm"] == "timing":
            assert row["ratio"] == pytest.approx(row["ms_relabel"] / row["ms_leo"])
        else:
            assert 0 <= row["start"] <= 1
            assert row["early"] == curves[f"{row['arm']}/{row['seed']}/2"]["success"]
    verdict_grid(result)

"""System 068: both studies small, their verdicts on made-up rows, and resuming."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.models import Chat
from rolecraft.systems import Result, find_entry
from rolecraft.systems.worlds import incognita
from rolecraft.systems.worlds.incognita import (
    ARMS,
    LADDER,
    MODEL_ARMS,
    LadderConfig,
    SmolConfig,
    chosen,
    run_ladder,
    run_on,
    verdict_ladder,
    verdict_smollm2,
)
from rolecraft.testing import ScriptedModel


@pytest.fixture
def few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tasks of breadth 1 and 2, in training too."""
    monkeypatch.setattr(incognita, "TASKS", 12)


def test_the_ladder_is_played_stored_and_resumed(
    tmp_path: Path, few_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LadderConfig(seeds=(1,), training=1)
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run_ladder(config, store)
    assert len(result.rows) == len(ARMS) * 12
    assert result.mean("success", "oracle").estimate == 1
    assert result.mean("success", "instant").estimate == 0
    assert all(isinstance(row["premature"], float) for row in result.rows)
    assert all(row["fallbacks"] == 0 for row in result.rows)
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["arm"] != "planner":
                store.put("rows", f"{row['arm']}/1/{row['unit']}", dict(row))
        played, real = [], incognita.play_task
        monkeypatch.setattr(incognita, "play_task", lambda *given: played.append(given[0]) or real(*given))
        resumed = run_ladder(config, store)
    assert played == ["planner"] * 12
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))


def made_up(changes: Mapping[str, Mapping[str, float]] | None = None, tasks: int = 60) -> Result:
    """Rows of a ladder as the paper's, each arm's rates changed as asked; successes are spread over tasks."""
    rates: dict[str, dict[str, float]] = {
        "instant": {"success": 0, "premature": 1, "disclosure": 0, "contact": 0, "wrote": 0},
        "broadcaster": {"success": 0, "premature": 1, "disclosure": 0.4, "contact": 1, "wrote": 0},
        "keyword": {"success": 0.3, "premature": 0.6, "wrote": 0.3},
        "planner": {"success": 0.8, "premature": 0},
        "oracle": {"success": 1, "premature": 0},
        "planner-direct": {"success": 0.9}, "planner-disclosed": {}, "planner-routed": {},
        "untrained": {"contact_precision": 0.5}, "trained": {"contact_precision": 1},
        "untrained-shuffled": {"contact_precision": 0.5}, "trained-shuffled": {"contact_precision": 0.5},
        "unauthenticated": {"success": 0}, "permuted-gold": {"success": 0},
    }  # fmt: skip
    rows = []
    for arm, own in rates.items():
        figures = {"success": 0.5, "premature": 0.5, "disclosure": 0.5, "contact": 0.5, "wrote": 0.5}
        figures |= {"contact_precision": 0.5} | own | dict((changes or {}).get(arm, {}))
        for task in range(tasks):
            row: dict[str, Any] = {"arm": arm, "seed": 0, "unit": f"0:{task}", "breadth": task % 6 + 1}
            row |= {"writes": 1 + task % 2, "arguments": task % 4}
            for name, rate in figures.items():
                row[name] = (
                    float((task * 7 % tasks) < rate * tasks) if name in ("success", "premature", "wrote") else rate
                )
            rows.append(row)
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, ""),
        ({"oracle": {"success": 0.9}}, "oracle at least 95%"),
        ({"broadcaster": {"success": 0.2}}, "process before success"),
        ({"broadcaster": {"disclosure": 0}}, "process before success"),
        ({"keyword": {"wrote": 0}}, "process before success"),
        ({"planner": {"success": 0.2}}, "success rises"),
        ({"keyword": {"premature": 1}, "planner": {"premature": 1}}, "premature falls"),
        ({"planner-direct": {"success": 0.5}}, "tools no worse"),
        ({"trained": {"contact_precision": 0.5}}, "learning finds"),
        ({"trained-shuffled": {"contact_precision": 0.9}}, "learning finds"),
        ({"unauthenticated": {"success": 0.5}}, "controls fail"),
        ({"permuted-gold": {"success": 0.5}}, "controls fail"),
    ],
)
def test_each_claim_decides(changes: Mapping[str, Mapping[str, float]], broken: str) -> None:
    found = verdict_ladder(made_up(changes))
    assert found.verdict == ("not reproduced" if broken else "reproduced")
    assert (f"not held: {broken}" if broken else "all claims held") in found.note


def test_the_effect_is_the_planners_gain_and_breadth_is_reported() -> None:
    found = verdict_ladder(made_up())
    assert found.effect.estimate == pytest.approx(0.5)
    assert found.control is not None
    assert found.control.estimate == 0
    assert "breadth " in found.note
    assert "arguments " in found.note


# A language model


def finishes(chat: Chat, seed: int) -> str:
    """Asks what is needed, then ends; every other message of a seed is no JSON."""
    if "What do you need?" in chat[-1]["content"]:
        return 'So: {"to": "USER", "message": "All done.", "final": true}'
    return '{"to": "USER", "message": "What do you need?"}'


def test_a_scripted_model_takes_its_place(tmp_path: Path) -> None:
    config = SmolConfig(seeds=(1,), tasks=3, turns=4)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_on(ScriptedModel(finishes), config, store)
        assert run_on(ScriptedModel(lambda chat, seed: 1 / 0), config, store).rows == result.rows, "nothing is left"
    assert result.arms == list(MODEL_ARMS)
    assert len(result.rows) == 4 * 3
    assert result.mean("valid", "model-json").estimate == 1
    assert result.mean("disclosure", "model-json").estimate > 0
    assert result.mean("premature", "model-json").estimate == 1
    assert all(row["turns"] == 2 for row in result.rows if row["arm"] == "model-json")
    found = verdict_smollm2(result)
    assert "valid JSON at the first attempt 1" in found.note


def test_prose_is_invalid_and_wastes_turns(tmp_path: Path) -> None:
    config = SmolConfig(seeds=(1,), tasks=2, turns=3)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_on(ScriptedModel(lambda chat, seed: "I would ask somebody."), config, store)
    rows = [row for row in result.rows if row["arm"] == "model-json"]
    assert all((row["valid"], row["fallbacks"], row["censored"]) == (0, 1, 1) for row in rows)


def model_rows(model: float, chance: float) -> Result:
    values = {"model-menu": model, "random-menu": chance, "instant": 0.0, "model-json": 0.1}
    return Result(
        tuple(
            {
                "arm": arm, "seed": 0, "unit": str(unit), "valid": 0.5,
                "disclosure": value + 0.1 * (unit * step % 3 - 1),
                "success": 0.0, "premature": 1.0, "contact": 0.5, "wrote": 0.0,
            }
            for step, (arm, value) in enumerate(values.items(), 1) for unit in range(30)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "chance", "expected"),
    [(0.6, 0.3, "reproduced"), (0.1, 0.5, "not reproduced"), (0.3, 0.3, "inconclusive")],
)
def test_choices_must_beat_chance(model: float, chance: float, expected: str) -> None:
    assert verdict_smollm2(model_rows(model, chance)).verdict == expected


def test_tasks_are_spread_over_breadths() -> None:
    assert chosen(SmolConfig(tasks=8)) == [0, 6, 12, 18, 24, 30, 1, 7]


def test_the_system_is_found_and_bad_sizes_are_named() -> None:
    assert set(find_entry("068").studies) == {"ladder", "smollm2"}
    assert set(LADDER) < set(ARMS)
    with pytest.raises(UserError, match="turns, quota and training must be at least 1, got 0"):
        LadderConfig(turns=0)
    with pytest.raises(UserError, match="tasks must be 1 to 36"):
        SmolConfig(tasks=37)

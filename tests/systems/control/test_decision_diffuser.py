"""System 029: returns by hand, what the arms ask for, verdicts on made-up rows, a smoke run that resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.control import Condition, ConditionSpace
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.control import _decision_compose
from rolecraft.systems.control._decision_compose import SIDE, asked_for, two_wide
from rolecraft.systems.control.decision_diffuser import (
    COMPOSE,
    ComposeConfig,
    ReturnConfig,
    lasting_returns,
    run_compose,
    run_return,
    verdict_compose,
    verdict_return,
)

SMALL: dict[str, Any] = {
    "seeds": (1,), "episodes": 30, "updates": 10, "horizon": 4, "width": 4, "multipliers": (1,), "diffusion_steps": 2,
    "replan": 3, "tests": 8,
}  # fmt: skip


def rows(metric: str, values: dict[str, float], **others: float) -> Result:
    rng = np.random.default_rng(0)
    return Result(
        tuple(
            {"arm": arm, "seed": seed, metric: value + 0.01 * rng.normal(), **others}
            for arm, value in values.items()
            for seed in range(4)
        )
    )


def test_returns_last_for_ever() -> None:
    found = lasting_returns(np.array([[1.0, 0.0, 2.0]]), 0.5)
    by_hand = [sum(0.5 * 0.5**k * r for k, r in enumerate([1.0, 0.0] + [2.0] * 60)), 1.0, 2.0]
    assert found[0] == pytest.approx(by_hand)


def test_what_the_arms_ask_for() -> None:
    assert asked_for("composed", 0, 3) == SIDE[0] & SIDE[3]
    assert asked_for("avoid", 0, 3) == SIDE[0] & ~SIDE[3]
    assert asked_for("second", 0, 3) == SIDE[3]
    assert asked_for("two-hot", 0, 3).alternatives()[0][0].condition.value == (1, 0, 0, 1)
    assert asked_for("unconditional", 0, 3) == Condition.null("constraint")
    space = ConditionSpace.of("constraint", np.eye(4))
    assert two_wide([SIDE[0], SIDE[1]], space, 1.2).weights.tolist() == pytest.approx(np.array([[1.2, 0]] * 2))


RETURNS = {"data": 0.2, "bc": 0.4, "dd-0.2": 0.3, "dd-0.6": 0.5, "dd-1": 0.7, "shuffled": 0.2}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "reproduced"),
        ({"bc": 0.9}, "not reproduced"),
        ({"dd-0.6": 0.9}, "not reproduced"),
        ({"shuffled": 0.9}, "not reproduced"),
        ({"bc": 0.7}, "inconclusive"),
    ],
)
def test_verdicts_of_returns(change: dict[str, float], verdict: str) -> None:
    found = verdict_return(rows("reward", RETURNS | change, achieved=0.5))
    assert found.verdict == verdict
    assert found.control is not None


SHARES = dict.fromkeys(COMPOSE, 0.3) | {"composed": 0.9}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({}, "reproduced"), ({"two-hot": 0.88}, "not reproduced"), ({"shuffled": 0.9}, "not reproduced")],
)
def test_verdicts_of_composition(change: dict[str, float], verdict: str) -> None:
    assert verdict_compose(rows("both", SHARES | change, first_only=0.5)).verdict == verdict


@pytest.mark.slow
def test_smoke_of_compose_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ComposeConfig(**SMALL, steps=6)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_compose(config, store)
        assert result.arms == list(COMPOSE)
        assert {row["arm"] for row in result.rows if row["both"] > row["first_kept"]} == set()
        assert verdict_compose(result).verdict == "inconclusive"  # one seed has no interval

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("nothing is missing")

        monkeypatch.setattr(_decision_compose, "train_planners", refuse)
        assert run_compose(config, store).rows == result.rows


@pytest.mark.slow
def test_smoke_of_return(tmp_path: Path) -> None:
    config = ReturnConfig(**SMALL, steps=6)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_return(config, store)
    assert result.arms == list(config.arms)
    assert all(0 <= row["reward"] <= 1 for row in result.rows)
    assert verdict_return(result).verdict == "inconclusive"


def test_bad_input() -> None:
    with pytest.raises(UserError, match="horizon above replan"):
        ComposeConfig(horizon=4, replan=4)
    with pytest.raises(UserError, match="multiple of 4"):
        ComposeConfig(multipliers=(1, 2, 4), horizon=10)
    with pytest.raises(UserError, match="rising numbers"):
        ReturnConfig(levels=(0.6, 0.2))
    with pytest.raises(UserError, match="D4RL"):
        ReturnConfig.full()
    assert list(find_entry("decision-diffuser").studies) == ["return", "compose"]

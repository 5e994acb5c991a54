"""System 090: both studies small, their verdicts on made-up rows, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result, put_row
from rolecraft.systems.worlds import sotopia
from rolecraft.systems.worlds.sotopia import (
    AGENTS,
    OMNISCIENT,
    GradedConfig,
    SmolConfig,
    encounters,
    find_hard,
    run_graded,
    run_on,
    verdict_graded,
    verdict_smollm2,
)
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import social_scenario

SMALL = GradedConfig(seeds=(11, 12), pairs=2, numbers=(0,), families=("plan", "secret"))


def test_the_graded_study_ranks_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run_graded(SMALL, store)
    assert len(result.rows) == 7 * 2 * 16
    assert all(row["fallbacks"] == 0 for row in result.rows)
    assert all(len(row["goals"]) == 2 and row["goal"] == pytest.approx(sum(row["goals"]) / 2) for row in result.rows)
    goal = {arm: result.mean("goal", arm).estimate for arm in result.arms}
    assert goal["echo"] < goal["bayes"] < goal["oracle"]
    assert goal["echo-omniscient"] == goal["echo"]
    assert result.mean("relationship", "greedy").estimate < result.mean("relationship", "concession").estimate
    assert result.mean("social_rules", "greedy").estimate < 0
    assert result.mean("secret", "concession").estimate < result.mean("secret", "bayes").estimate == 0
    assert "effect: the weakest step" in verdict_graded(result).note
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 11:
                put_row(store, **row)
        played, real = [], sotopia.played
        monkeypatch.setattr(sotopia, "played", lambda *given: played.append(1) or real(*given))
        resumed = run_graded(SMALL, store)
    assert len(played) == 7 * 16, "only the second seed is played"
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))


def test_all_arms_meet_the_same_people_and_seats_alternate() -> None:
    scenario = social_scenario("plan-hike")
    drawn = encounters(scenario, 5, 3)
    assert drawn == encounters(scenario, 5, 3)
    assert [each.seat for each in drawn] == ["person-1", "person-2", "person-1", "person-2", "person-1"]
    assert len({frozenset((each.people[0].name, each.people[1].name)) for each in drawn}) == 5
    assert {each.seed for each in drawn}.isdisjoint({each.seed for each in encounters(scenario, 5, 4)})
    world = drawn[0].scene()
    assert world.profiles["person-1"] == drawn[0].people[0]
    assert world.relationship == drawn[0].people[2]


GOALS = {
    "echo": 1.0, "greedy": 5.0, "concession": 5.0, "bayes": 7.0, "oracle": 9.0, "bayes-omniscient": 8.0,
    "echo-omniscient": 1.0,
}  # fmt: skip
OVERALL = {"echo": 1.0, "greedy": 1.5, "concession": 3.0, "bayes": 4.0}
RELATIONSHIP = {"greedy": -4.0, "concession": 0.0}


def made_up(
    goals: dict[str, float], overall: dict[str, float] = OVERALL, relationship: dict[str, float] = RELATIONSHIP,
    hard: float = 2.0, stable: bool = True, spread: float = 0.02,
) -> Result:  # fmt: skip
    """Rows of 20 scenes in two seeds: in the first four the agents, not the oracle, reach less by `hard`."""
    rows: list[dict[str, Any]] = []
    for seed in (0, 1):
        for scene in range(20):
            place = scene if seed == 0 or stable else 19 - scene
            for step, arm in enumerate((*AGENTS, *OMNISCIENT), 1):
                noise = spread * (((scene + seed) * step) % 5 - 2)
                graded = -hard if place < 4 else 0.05 * place
                goal = goals[arm] + noise + (graded if arm in ("greedy", "concession", "bayes") else 0)
                goal += graded if arm == "bayes-omniscient" else 0
                rows.append({
                    "arm": arm, "seed": seed, "unit": f"s{scene}", "goal": goal, "goals": [goal, goal],
                    "overall": overall.get(arm, 2.0) + noise, "relationship": relationship.get(arm, 0.0) + noise,
                })  # fmt: skip
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (made_up(GOALS), "reproduced"),
        (made_up(GOALS | {"bayes": 3.0, "bayes-omniscient": 4.0}), "not reproduced"),
        (made_up(GOALS | {"greedy": -1.0}), "not reproduced"),
        (made_up(GOALS | {"bayes-omniscient": 6.5}), "not reproduced"),
        (made_up(GOALS | {"echo-omniscient": 2.0}), "not reproduced"),
        (made_up(GOALS, overall=OVERALL | {"greedy": 3.5}), "not reproduced"),
        (made_up(GOALS, relationship={"greedy": 1.0, "concession": 0.0}), "not reproduced"),
        (made_up(GOALS, stable=False), "not reproduced"),
        (made_up(GOALS | {"bayes": 5.01, "bayes-omniscient": 6.0}, spread=0.05), "inconclusive"),
    ],
)
def test_all_four_claims_are_demanded(result: Result, expected: str) -> None:
    assert verdict_graded(result).verdict == expected


def test_the_hard_subset_is_found_on_one_half_and_measured_on_the_other() -> None:
    found = find_hard(made_up(GOALS), 0.2)
    assert set(found.scenes) == {"s0", "s1", "s2", "s3"}
    assert found.rank_correlation > 0.5
    assert found.widening.estimate == pytest.approx(2.0 + 0.05 * sum(range(4, 20)) / 16, abs=0.1)
    assert find_hard(made_up(GOALS, stable=False), 0.2).widening.estimate < 0
    with pytest.raises(UserError, match="at least two seeds"):
        find_hard(Result(tuple(row for row in made_up(GOALS).rows if row["seed"] == 0)))


def bargainer(chat: Any, seed: int) -> str:
    """Agree to an offer that is worth something, if the prompt says what it is worth; else go."""
    text = chat[-1]["content"]
    table = text.partition("On the table: ")[2].partition(", offered")[0]
    worth = text.partition(f"\n- {table}: ")[2].partition("\n")[0]
    if "Your goal" not in text:
        return "Goodbye."
    return f"I agree to {table}. <accept>" if worth and float(worth) > 0 else "(I say nothing.)"


def test_a_model_that_reads_its_goal_beats_its_controls(tmp_path: Path) -> None:
    config = SmolConfig(seeds=(5, 6), scenes=5, pairs=2, model="scripted:echo")
    asked: list[int] = []
    model = ScriptedModel(lambda chat, seed: asked.append(seed) or bargainer(chat, seed))
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_on(model, config, store)
        calls = len(asked)
        assert run_on(model, config, store).rows == result.rows, "a second call finds all rows there"
        assert sotopia.run_smollm2(config, store).rows == result.rows, "and loads no model"
        assert len(asked) == calls > 0
    assert result.arms == ["model", "no-goal", "random"]
    assert len({row["unit"] for row in result.rows}) == 5
    assert len({row["family"] for row in result.rows}) == 5
    assert result.mean("goal", "no-goal").estimate == 0
    assert result.mean("goal", "model").estimate > 0
    assert all(row["fallbacks"] == 0 for row in result.rows)
    assert "goal of the model less that of random acts" in verdict_smollm2(result).note


def smol_rows(model: float, no_goal: float, random: float, spread: float = 0.05) -> Result:
    arms = {"model": model, "no-goal": no_goal, "random": random}
    return Result(
        tuple(
            {"arm": arm, "seed": 0, "unit": f"s{n}", "goal": mean + spread * ((n * step) % 5 - 2), "overall": 1.0}
            for step, (arm, mean) in enumerate(arms.items(), 1) for n in range(20)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (smol_rows(5, 2, 2), "reproduced"),
        (smol_rows(2, 1, 5), "not reproduced"),
        (smol_rows(5, 6, 2), "not reproduced"),
        (smol_rows(2.05, 2, 2, spread=0.5), "inconclusive"),
    ],
)
def test_the_model_must_beat_random_by_reading_its_goal(result: Result, expected: str) -> None:
    assert verdict_smollm2(result).verdict == expected


def test_bad_sizes_are_named() -> None:
    with pytest.raises(UserError, match="pairs must be at least 2"):
        GradedConfig(pairs=1)
    with pytest.raises(UserError, match="families not empty"):
        GradedConfig(families=())
    with pytest.raises(UserError, match=r"scenes must lie in 2\.\.40"):
        SmolConfig(scenes=41)
    assert SmolConfig.full().scenes == 40

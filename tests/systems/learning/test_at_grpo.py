"""System 037: the arms train on equal draws, the swapped team fails, the verdict on made-up rows, and resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning import sample_trajectories
from rolecraft.learning.credit import assign_credit
from rolecraft.systems import Result, put_row
from rolecraft.systems.learning import at_grpo
from rolecraft.systems.learning._plan_table import STOP, UNSEEN, PlanTable
from rolecraft.systems.learning.at_grpo import (
    ARMS,
    KEYS,
    Config,
    credit_rule,
    make_routes,
    make_task,
    run,
    sample,
    team_success,
    train,
    update,
    verdict,
)
from rolecraft.worlds import PlanPath

TINY = Config(seeds=(1,), maps=1, size=4, longest=4, nearest=2, candidates=4, updates=3, episodes=4)


def test_all_arms_are_run_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(TINY, seeds=(1, 2))
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run(config, store)
    assert sorted(result.arms) == sorted(ARMS)
    assert len(result.rows) == len(ARMS) * 2
    for row in result.rows:
        if row["arm"] in KEYS:
            assert (row["bias"] < 1e-9) == (row["arm"] in ("both", "shared"))
            assert 0 < row["drawn"] <= 3 * 4 * 2 * 2
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 1 or row["arm"] == "none":
                put_row(store, **row)
        trained, real = [], at_grpo.train
        monkeypatch.setattr(at_grpo, "train", lambda *given: trained.append(given[1:]) or real(*given))
        resumed = run(config, store)
    assert sorted(trained) == sorted((arm, 2) for arm in KEYS if arm != "none")
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))


def test_a_swapped_row_alone_is_made_again(tmp_path: Path) -> None:
    """A run that was killed between the two rows of one training has the swapped row and not the other."""
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        put_row(store, "swapped", 1, success=0.25, first_turn=0.0)
        assert len(run(TINY, store).rows) == len(ARMS)


def test_training_solves_a_map_and_a_swapped_team_does_not() -> None:
    config = replace(TINY, updates=40, candidates=8, episodes=64)
    task = make_task(config, 1)
    routes, figures = train(config, "both", 1)
    before = team_success(config, task, make_routes(config, task, False), 1)["success"]
    after = team_success(config, task, routes, 1)["success"]
    swapped = team_success(config, task, routes.swapped("proposer", "checker"), 1)["success"]
    assert after > before + 0.4
    assert swapped < before + 0.2
    assert figures["bias"] < 1e-9
    assert train(config, "both", 1)[1] == figures


def test_arms_differ_in_the_key_alone() -> None:
    task = make_task(TINY, 3)
    rows = {
        arm: sample(TINY, arm, task, make_routes(TINY, task, False), 5) for arm in ("none", "agent", "turn", "both")
    }
    assert len({each.rows for each in rows.values()}) == 1
    assert len(sample(TINY, "trajectory", task, make_routes(TINY, task, False), 5)) <= 4 * 2 * 2
    groups = {arm: credit_rule(TINY, arm)[-1].keys for arm in KEYS}
    assert groups == KEYS
    assert credit_rule(TINY, "both")[-1].same == "prompt"
    assert credit_rule(replace(TINY, alpha=0.3), "turn")[0].alpha == 0.3


def test_a_trajectory_is_credited_with_what_the_whole_of_it_earned() -> None:
    task = make_task(TINY, 3)
    rows = sample(TINY, "trajectory", task, make_routes(TINY, task, False), 5)
    found = assign_credit(rows.batch(rows.returns), credit_rule(TINY, "trajectory")).advantages[:, 0]
    paid = [sum(row.team for row in rows if row.traj == traj) for traj in range(4)]
    expected = (np.array(paid) - np.mean(paid)) / (np.std(paid, ddof=1) + 1e-6)
    assert found == pytest.approx([expected[row.traj] for row in rows])


def test_an_update_trains_each_policy_on_its_own_rows() -> None:
    task = make_task(TINY, 3)
    routes = make_routes(TINY, task, False)
    rows = sample(TINY, "both", task, routes, 5)
    optimisers = {name: torch.optim.SGD(policy.parameters(), lr=1.0) for name, policy in routes.policies.items()}
    only = rows.of("checker")
    update(TINY, routes, only, assign_credit(only.batch(), credit_rule(TINY, "both")), optimisers)
    assert not routes.policies["proposer"].table.logits.any()
    assert routes.policies["checker"].table.logits.any()
    before = {row.text: row.reward for row in only if row.turn == 0}
    best, worst = max(before, key=before.get), min(before, key=before.get)
    prompt = only.rows[0].prompt

    def chance(text: str) -> float:
        row = next(row for row in only if row.text == text and row.turn == 0)
        return float(
            routes.policies["checker"].log_probs([prompt], np.array([row.tokens])).sum().detach() - sum(row.logp)
        )

    assert chance(best) > 0 > chance(worst)


def test_the_table_reads_map_and_draft() -> None:
    world = PlanPath(grid=["S . G", ". # ."])
    proposer = world.observe("proposer")
    world.act({"proposer": "R D"})
    checker = world.observe("checker")
    table = PlanTable(3, 2)
    rows = table.contexts([proposer, checker]) % (UNSEEN + 1)
    assert rows.tolist() == [[UNSEEN] * 3, [3, 1, STOP]]
    blind = PlanTable(3, 2, blind=True).contexts([proposer, checker])
    assert (blind[0] == blind[1]).all()
    world.act({"checker": "R"})
    moved = table.contexts([world.observe("proposer")])
    assert not set(moved.ravel()) & set(table.contexts([proposer, checker]).ravel())
    with pytest.raises(UserError, match="no map"):
        table.sample(["You are the proposer ."], ["proposer"], [0])
    with pytest.raises(UserError, match="room for 2 maps"):
        table.contexts([PlanPath(grid=["S G"]).observe("proposer")])


def test_tables_draw_what_they_score() -> None:
    prompt = PlanPath(grid=["S . G", ". # ."]).observe("proposer")
    table = PlanTable(2, 1)
    with torch.no_grad():
        logits = torch.tensor([[1.0, 0, 0, 0, 0.5], [0, 0, 2, 0, -1.0]], dtype=torch.float64)
        table.table.logits[table.contexts([prompt])[0]] = logits[:, None]
    drawn = table.sample([prompt] * 4000, ["proposer"] * 4000, range(4000))
    first = np.bincount([row[0] for row in drawn.tokens], minlength=5) / 4000
    odds = np.exp([1.0, 0, 0, 0, 0.5])
    assert first == pytest.approx(odds / odds.sum(), abs=0.03)
    for text, tokens, logp in list(zip(*drawn, strict=True))[:50]:
        assert text.split() == ["UDLR"[token] for token in tokens if token != STOP]
        assert STOP not in tokens[:-1]
        assert table.log_probs([prompt], np.array([tokens])).detach().numpy()[0] == pytest.approx(logp)
    again = table.sample([prompt] * 3, ["proposer"] * 3, [7, 8, 9])
    assert list(again.texts) == list(drawn.texts[7:10]), "a draw follows from its seed alone"


def made_up(both: float, agent: float, turn: float, swapped: float, spread: float = 0.02) -> Result:
    success = {
        "none": 0.3, "agent": agent, "turn": turn, "both": both, "shared": both, "trajectory": 0.5,
        "swapped": swapped, "untrained": 0.05,
    }  # fmt: skip
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "success": value + spread * ((seed * step) % 5 - 2), "bias": 0.1}
            for step, (arm, value) in enumerate(success.items(), 1) for seed in range(20)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "spread", "expected"),
    [
        ((0.9, 0.7, 0.6, 0.05), 0.02, "reproduced"),
        ((0.9, 0.7, 0.9, 0.05), 0.01, "not reproduced"),
        ((0.9, 0.95, 0.6, 0.05), 0.01, "not reproduced"),
        ((0.9, 0.7, 0.6, 0.8), 0.02, "not reproduced"),
        ((0.9, 0.7, 0.6, 0.92), 0.02, "not reproduced"),
        ((0.9, 0.85, 0.6, 0.05), 0.2, "inconclusive"),
    ],
)
def test_both_keys_must_beat_each_and_the_swapped_team_must_fail(
    rates: tuple[float, float, float, float], spread: float, expected: str
) -> None:
    assert verdict(made_up(*rates, spread=spread)).verdict == expected


def test_success_is_counted_by_episode() -> None:
    task = make_task(TINY, 1)
    routes = make_routes(TINY, task, False)
    config = replace(TINY, episodes=64)
    found = team_success(config, task, routes, 1)
    assert 0 < found["first_turn"] <= found["success"] < 1
    assert found["success"] * 64 == int(found["success"] * 64)
    rows = sample_trajectories(task.workflow, routes, task.maps, trajectories=64, seed=1)
    assert len({row.traj for row in rows if row.success}) == sum(row.success for row in rows)


def test_bad_sizes_are_named() -> None:
    with pytest.raises(UserError, match="candidates at least 2, got 12, 60, 32 and 1"):
        Config(candidates=1)
    with pytest.raises(UserError, match="maps, updates and episodes must be at least 1"):
        Config(maps=0)

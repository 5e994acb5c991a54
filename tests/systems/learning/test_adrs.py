"""System 060: the toy's exact success rate, its teachers, the study small, and its verdict on made-up rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.learning import adrs
from rolecraft.systems.learning.adrs import ARMS, Toy, ToyConfig, margins, rule_of, run_toy, train, verdict_toy

SMALL = ToyConfig(seeds=(1, 2), tasks=3, length=6, needed=3, group=6, updates=8)


def test_success_is_exact() -> None:
    config = ToyConfig(tasks=2, length=3, vocabulary=3, needed=2)
    toy = Toy.make(config, 1)
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(3), (2, 3))
    expected = 0.0
    for task in range(2):
        for answer in product(range(3), repeat=3):
            share = np.prod([table[task, place, token] for place, token in enumerate(answer)])
            expected += share * toy.reward(np.array([task]), np.array([answer]))[0] / 2
    assert toy.success(table) == pytest.approx(expected)
    hits = [np.eye(3)[toy.target[task]] for task in range(2)]
    assert toy.success(np.stack(hits)) == 1
    assert toy.reward(np.array([0, 0]), np.stack([toy.target[0], (toy.target[0] + 1) % 3])).tolist() == [1, 0]


@pytest.mark.parametrize(("quality", "low", "high"), [("good", 0.9, 1), ("mixed", 0.45, 0.75), ("bad", 0, 0.05)])
def test_teachers_have_the_quality_they_are_said_to_have(quality: str, low: float, high: float) -> None:
    config = ToyConfig(tasks=40, peak=6.0)
    toy = Toy.make(config, 1)
    table = toy.teacher(quality, config, 1)
    np.testing.assert_allclose(np.exp(table).sum(-1), 1)
    assert low <= (table.argmax(-1) == toy.target).mean() <= high


def test_all_arms_share_their_tasks_and_first_draws() -> None:
    one, two = (train(SMALL, *arm, 1) for arm in (("grpo", None), ("unclipped", "bad")))
    assert one["curve"][0] == two["curve"][0]
    assert one["auc"] != two["auc"]
    assert train(SMALL, "adrs", "bad", 1) == train(SMALL, "adrs", "bad", 1)
    assert train(SMALL, "adrs", "bad", 2) != train(SMALL, "adrs", "bad", 1)


def test_without_strength_every_rule_is_grpo() -> None:
    weak = ToyConfig(tasks=3, length=6, needed=3, group=6, updates=8, eta=0, distil=0, skill_sd=0)
    plain = train(weak, "grpo", None, 1)
    for rule in ("adrs", "ungated", "halved", "unclipped", "skill-sd"):
        found = train(weak, rule, "bad", 1)
        assert (found["auc"], found["final"]) == (plain["auc"], plain["final"])


def test_a_bad_teacher_ruins_the_unclipped_loss_and_not_the_clipped_term() -> None:
    config = ToyConfig(tasks=4, updates=60)
    final = {rule: train(config, rule, "bad", 1)["final"] for rule in ("adrs", "unclipped")}
    assert final["unclipped"] < 0.05
    assert final["adrs"] > 0.5


def test_the_study_runs_every_arm_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run_toy(SMALL, store)
    assert result.arms == list(ARMS)
    assert len(result.rows) == 2 * len(ARMS)
    rows = {(row["arm"], row["seed"]): row for row in result.rows}
    assert "gate" in rows["adrs/good", 1]
    assert "gate" not in rows["ungated/good", 1]
    assert all(0 <= row["auc"] <= 1 and 0 <= row["silent"] <= 1 for row in result.rows)
    assert all(abs(row["confound"]) <= 1 for row in result.rows if row["arm"] != "grpo")
    trained: list[Any] = []
    real = adrs.train
    monkeypatch.setattr(adrs, "train", lambda *given: trained.append(given) or real(*given))
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 1:
                put_row(store, **row)
        resumed = run_toy(SMALL, store)
    assert len(trained) == len(ARMS), "only the second seed is trained"
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))
    assert verdict_toy(resumed).verdict in ("reproduced", "not reproduced", "inconclusive")


CLAIM = {
    "grpo": 0.80,
    "adrs/good": 0.85,
    "ungated/good": 0.855,
    "adrs/bad": 0.79,
    "ungated/bad": 0.77,
    "halved/bad": 0.78,
}


def made_up(changes: dict[str, float], spread: float = 0.002) -> Result:
    areas = dict.fromkeys(ARMS, 0.8) | CLAIM | {"unclipped/bad": 0.01} | changes
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "auc": area + spread * ((seed * (place + 3)) % 5 - 2)}
            for place, (arm, area) in enumerate(areas.items()) for seed in range(10)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"adrs/good": 0.81}, "not reproduced"),  # gains too little
        ({"adrs/bad": 0.76, "ungated/bad": 0.74}, "not reproduced"),  # harms too much
        ({"ungated/bad": 0.81}, "not reproduced"),  # the gate makes the bad case worse
        ({"ungated/good": 0.88}, "not reproduced"),  # and costs too much in the good one
        ({"unclipped/bad": 0.75}, "not reproduced"),  # the control does not fail
        ({"adrs/good": 0.83, "ungated/good": 0.83}, "inconclusive"),
    ],
)
def test_every_condition_counts(changes: dict[str, float], expected: str) -> None:
    assert verdict_toy(made_up(changes)).verdict == expected


def test_margins_are_measured_from_the_dossiers_thresholds() -> None:
    found = {name: interval.estimate for name, interval in margins(made_up({}, spread=0.0)).items()}
    assert list(found.values()) == pytest.approx([0.02, 0.01, 0.02, 0.005, 0.5 - 0.01 / 0.8])
    verdict = verdict_toy(made_up({}))
    assert verdict.effect.estimate == pytest.approx(0.05, abs=0.01)
    assert verdict.control is not None
    assert verdict.control.estimate == pytest.approx(-0.79, abs=0.01)


def test_faulty_settings_are_refused() -> None:
    for faulty in ({"needed": 13}, {"mixed": 1.5}, {"rate": 0.0}):
        with pytest.raises(UserError, match="needed must lie in"):
            ToyConfig(**faulty)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="group at least 2"):
        ToyConfig(group=1)
    with pytest.raises(UserError, match="rule 'ppo' is unknown"):
        rule_of("ppo", ToyConfig())


def test_the_system_is_found_by_number() -> None:
    entry = find_entry("60")
    assert entry.system.name == "adrs"
    assert "toy" in entry.studies

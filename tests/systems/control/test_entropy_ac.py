"""System 115: steps of the actor, critics, the three studies at tiny size, verdicts on made-up rows, resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.control.tabular import policy_evaluation, softmax
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.control import entropy_ac
from rolecraft.systems.control._entropy_ac_training import (
    LearnedCritic,
    Problem,
    ascend,
    bellman_residual,
    exact_step,
    sampled_step,
    stale_step,
    streams,
)
from rolecraft.systems.control.entropy_ac import (
    ARMS,
    STUDIES,
    Config,
    CriticConfig,
    VarianceConfig,
    run,
    run_critics,
    run_variance,
    train,
    verdict,
    verdict_critics,
    verdict_variance,
)

SMALL = Config(seeds=(1, 2), steps=38)
CRITICS = CriticConfig(seeds=(1, 2), steps=50, warm_up=20, per_step=(1, 3))


def problem(*seeds: int) -> Problem:
    return Config().problem(seeds or (1, 2))


class TestTraining:
    def test_the_deterministic_gradient_goes_down_to_the_optimum(self) -> None:
        curve, logits = ascend(problem(3), exact_step(problem(3)), lambda _: np.array([0.5]), [0, 300, 3000], 30.0)
        assert (np.diff(curve[:, 0]) < 0).all()
        assert 0 < curve[2, 0] < 0.02 < curve[1, 0] < curve[0, 0]
        assert logits.mean(-1) == pytest.approx(np.zeros((1, 5)), abs=1e-9)

    def test_the_box_keeps_logits_from_the_border(self) -> None:
        steep = lambda policy, _: np.broadcast_to([1.0, 0.0, 0.0], policy.shape)  # noqa: E731
        _, logits = ascend(problem(1), steep, lambda _: np.array([5.0]), [0, 20], 2.0)
        assert np.abs(logits).max() == 2.0
        assert softmax(logits).min() > 0.01

    def test_the_mean_of_sampled_steps_is_the_exact_step(self) -> None:
        many = problem(*[4] * 800)
        policy = np.broadcast_to(softmax(np.random.default_rng(0).normal(size=(5, 3))), (800, 5, 3))
        drawn = sampled_step(many, "exact-critic", streams(range(800), "test"), 1)(policy, 0)
        error = 4 * drawn.std(0).max() / np.sqrt(800)
        assert drawn.mean(0) == pytest.approx(exact_step(problem(4))(policy[:1], 0)[0], abs=error)

    def test_a_stale_critic_is_that_of_the_first_policy(self) -> None:
        one = problem(5)
        first = policy_evaluation(one.mdp, one.mdp.uniform_policy(), one.temperature)
        step = stale_step(one, streams([5], "stale"))(one.mdp.uniform_policy(), 7)[0]
        state, action = np.unravel_index(np.argmax(np.abs(step)), step.shape)
        assert step[state, action] == pytest.approx(first.advantages[0, state, action] * 2 / 3)
        assert step.sum() == pytest.approx(0)
        greedy = np.argmax(first.advantages[0], -1)
        curve, logits = ascend(one, stale_step(one, streams([5], "x")), lambda _: np.array([0.5]), [0, 4000], 30.0)
        assert (np.argmax(logits[0], -1) == greedy).mean() >= 0.8
        assert curve[1, 0] < curve[0, 0]

    def test_critic_first_starts_from_a_small_residual_and_cold_from_none(self) -> None:
        one = problem(6)
        uniform = one.mdp.uniform_policy()
        exact = policy_evaluation(one.mdp, uniform, one.temperature)
        assert float(bellman_residual(one, uniform, exact.action_values)[0]) == pytest.approx(0, abs=1e-9)
        warm = LearnedCritic(one, streams([6], "a"), rate=0.1, per_step=1, warm_up=3000)
        cold = LearnedCritic(one, streams([6], "a"), rate=0.1, per_step=1, warm_up=0)
        assert not cold.action_values.any()
        assert warm.figures(uniform)[0] < 0.3 * cold.figures(uniform)[0]
        assert warm.residual < cold.residual
        before = cold.action_values.copy()
        cold.direction(uniform, 0)
        assert np.array_equal(cold.action_values, before)
        cold.direction(uniform, 1)
        assert np.count_nonzero(cold.action_values) == 1

    def test_frozen_lake_is_a_task_and_others_are_refused(self) -> None:
        lake = Config(task="frozen-lake").problem([1, 2])
        assert lake.mdp.transitions.shape == (2, 16, 4, 16)
        assert (lake.loss(lake.mdp.uniform_policy()) > 0).all()
        step = sampled_step(lake, "exact-critic", streams([1, 2], "lake"), 1)(lake.mdp.uniform_policy(), 0)
        assert np.abs(step).max() > 0
        assert not step[:, lake.mdp.absorbing[0]].any()
        with pytest.raises(UserError, match="task: expected one of random, frozen-lake, got 'taxi'"):
            Config(task="taxi").problem([1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Config(temperature=0), "at 0 the advantages of the optimum do not vanish"),
        (lambda: Config(discount=1.0), r"discount: expected a number in \(0, 1\), got 1.0"),
        (lambda: Config(rate=-0.1), "rate and bound must be above 0"),
        (lambda: Config(reinforce_rate=0), "reinforce_rate and baseline_rate must be above 0"),
        (lambda: Config(steps=3), "steps must be at least 19"),
        (lambda: CriticConfig(per_step=(10, 1)), "per_step: expected ascending numbers"),
        (lambda: CriticConfig(critic_rate=0), r"critic_rate must lie in \(0, 1\]"),
        (lambda: VarianceConfig(from_loss=0), "from_loss must be above 0"),
    ],
)
def test_mistakes_are_said(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]


class TestStudies:
    def test_the_small_study_runs_and_resumes_to_the_same_rows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with RunStore.open(tmp_path / "whole", "study", {}) as store:
            result = run(SMALL, store)
        assert sorted(result.arms) == sorted(ARMS)
        assert len(result.rows) == 2 * len(ARMS)
        starts = {row["seed"]: row["loss_0"] for row in result.rows if row["arm"] == "exact"}
        assert all(row["loss_0"] == pytest.approx(starts[row["seed"]]) for row in result.rows)
        with RunStore.open(tmp_path / "halved", "study", {}) as store:
            for row in result.rows[:3]:
                put_row(store, **row)
            asked: list[tuple[str, list[int]]] = []
            real = entropy_ac.train
            monkeypatch.setattr(
                entropy_ac, "train", lambda c, arm, seeds: asked.append((arm, seeds)) or real(c, arm, seeds)
            )
            again = run(SMALL, store)
        assert asked[0] == ("exact-critic", [2])
        order = lambda rows: sorted(map(str, rows))  # noqa: E731
        assert order(again.rows) == order(result.rows)

    def test_step_sizes_are_those_of_the_arm(self) -> None:
        still = replace(SMALL, reinforce_rate=1e-12, baseline_rate=0.5, baseline_decay=0.0)
        curve = train(still, "reinforce-tuned", [1])
        assert curve[-1] == pytest.approx(curve[0], abs=1e-6)
        ahead = train(replace(SMALL, reinforce_decay=1e12), "reinforce-tuned", [1])
        assert ahead[-1] == pytest.approx(ahead[1], abs=1e-6)
        assert train(SMALL, "exact-critic", [1])[-1] < 0.999 * curve[0]

    def test_the_study_of_critics_runs(self, tmp_path: Path) -> None:
        with RunStore.open(tmp_path, "study", {}) as store:
            result = run_critics(CRITICS, store)
            assert len(store.rows("curves")) == len(result.rows) == 2 * 6
        assert result.arms == ["exact-critic", "td-1", "td-3", "td-1-cold", "td-3-cold", "td-0"]
        assert verdict_critics(result).verdict in ("reproduced", "not reproduced", "inconclusive")

    def test_the_study_of_variances_finds_the_slopes(self, tmp_path: Path) -> None:
        config = VarianceConfig(seeds=(1, 2, 3), steps=4000)
        with RunStore.open(tmp_path, "study", {}) as store:
            result = run_variance(config, store)
        found = verdict_variance(result)
        assert 0.8 < found.effect.estimate < 1.3
        assert found.control is not None
        assert found.control.estimate < 0.5

    def test_studies_are_found(self) -> None:
        assert list(find_entry("entropy-ac").studies) == list(STUDIES) == ["small", "critics", "variance"]


def made(figures: dict[str, float], metric: str = "log_final", **more: dict[str, float]) -> Result:
    rows = []
    for seed in range(6):
        for arm, value in figures.items():
            row = {"arm": arm, "seed": seed, metric: value + 0.01 * seed, "final": 10**value, "growth": 1.0}
            rows.append(row | {name: values[arm] + 0.01 * seed for name, values in more.items()})
    return Result(tuple(rows))


class TestVerdicts:
    GOOD = {  # noqa: RUF012
        "exact": -3.5, "exact-critic": -3.5, "stale": -1.0, "baseline": -1.0, "baseline-tuned": -2.0,
        "reinforce": 0.3, "reinforce-tuned": -0.5,
    }  # fmt: skip

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, "reproduced"),
            ({"exact-critic": -2.0}, "not reproduced"),
            ({"reinforce-tuned": -3.4}, "not reproduced"),
            ({"stale": -3.5}, "not reproduced"),
        ],
    )
    def test_of_the_small_study(self, changes: dict[str, float], expected: str) -> None:
        assert verdict(made(self.GOOD | changes)).verdict == expected

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [({}, "reproduced"), ({"td-10": -2.5}, "not reproduced"), ({"td-0": -2.0}, "not reproduced")],
    )
    def test_of_critics(self, changes: dict[str, float], expected: str) -> None:
        floors = {"exact-critic": -3.5, "td-1": -1.5, "td-10": -2.0, "td-100": -2.4, "td-1-cold": -1.4}
        floors |= {"td-10-cold": -2.0, "td-100-cold": -2.4, "td-0": -0.5} | changes
        early = {arm: 0.0 if arm.endswith("cold") else -0.5 for arm in floors}
        assert verdict_critics(made(floors, log_early=early)).verdict == expected
        same = dict.fromkeys(floors, -0.5)
        assert verdict_critics(made(floors, log_early=same)).verdict != "reproduced"

    @pytest.mark.parametrize(
        ("slopes", "expected"),
        [
            ((1.0, 0.1, 0.0), "reproduced"),
            ((1.0, 0.9, 0.0), "not reproduced"),
            ((0.3, 0.1, 0.0), "not reproduced"),
        ],
    )
    def test_of_variances(self, slopes: tuple[float, float, float], expected: str) -> None:
        figures = dict(zip(("exact-critic", "baseline", "reinforce"), slopes, strict=True))
        assert verdict_variance(made(figures, "slope")).verdict == expected

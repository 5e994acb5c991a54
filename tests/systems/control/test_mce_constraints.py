"""System 022: the world, the learners on planted costs, the non-causal model by enumeration, the study, verdicts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.control.tabular import Mdp, grid_mdp, occupancy
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.control import _mce_learners
from rolecraft.systems.control._mce_learners import (
    LEARNERS,
    MceSettings,
    causal_inner,
    clone,
    greedy_cells,
    learn,
    match_visits,
    noncausal_inner,
    path_model,
    sampled_visits,
    shuffled,
    touch_probability,
    visit_counts,
)
from rolecraft.systems.control._mce_world import WallWorld, draw_maps
from rolecraft.systems.control.mce_constraints import ARMS, Config, run, verdict, worlds

ROWS = ["S..x..G", "...x...", "...x...", "......."]
SMALL = Config(seeds=(1,), slips=(0.0, 0.2), size=6, episodes=10, horizon=40, outer=5)


def world(slip: float = 0.0, rows: list[str] | None = None) -> WallWorld:
    return WallWorld.build(
        rows or ROWS, slip=slip, temperature=0.1, penalty=50.0, discount=0.99, step_reward=-1.0
    )  # fmt: skip


class TestWorld:
    def test_the_expert_goes_around_and_the_nominal_agent_through(self) -> None:
        here = world()
        expert, nominal = here.judge(here.expert), here.judge(here.nominal)
        assert expert["violations"] == pytest.approx(0, abs=1e-6)
        assert expert["reward"] == pytest.approx(-12, abs=0.05)
        assert (nominal["violations"], nominal["reward"]) == pytest.approx((1, -6), abs=0.05)
        assert nominal["penalised"] == pytest.approx(nominal["reward"] - 50 * nominal["violations"])

    def test_maps_have_a_wall_with_a_gap_of_two_rows_and_moved_ends(self) -> None:
        for seed in range(20):
            first, second = draw_maps(7, np.random.default_rng(seed))
            column = first[0].index("x") if "x" in first[0] else first[1].index("x")
            assert [row[column] for row in first] == ["x"] * 5 + ["."] * 2
            assert [row[column] for row in second] == ["x"] * 5 + ["."] * 2
            starts = {row for row, line in enumerate(first) if line[0] == "S"}
            assert starts != {row for row, line in enumerate(second) if line[0] == "S"}
            assert "".join(first).count("G") == "".join(second).count("G") == 1


class TestMce:
    @pytest.mark.parametrize("slip", [0.0, 0.2])
    def test_matching_exact_visits_keeps_the_constraint(self, slip: float) -> None:
        here = world(slip)
        seen = occupancy(here.mdp, here.expert, horizon=100).sum(-1)
        inner = causal_inner(0.1, 100)
        found = match_visits(here, seen, np.zeros_like(seen), inner, MceSettings(steps=200))
        mine, nominal = here.judge(found.policy), here.judge(here.nominal)
        expert = here.judge(here.expert)
        assert mine["violations"] < 0.1 * nominal["violations"] + expert["violations"]
        assert mine["reward"] == pytest.approx(expert["reward"], rel=0.05)
        assert found.cost is not None
        assert found.cost.min() >= 0
        assert found.cost[here.forbidden].min() > found.cost[here.grid.state(3, 3)]

    def test_an_expert_without_a_constraint_teaches_no_cost(self) -> None:
        here = world()
        seen = occupancy(here.mdp, here.nominal, horizon=100).sum(-1)
        found = match_visits(here, seen, np.zeros_like(seen), causal_inner(0.1, 100), MceSettings(steps=20))
        assert found.cost is not None
        assert found.cost.max() == 0
        assert found.gap < 0.01

    def test_one_step_of_the_dual_by_hand(self) -> None:
        here = world()
        seen = occupancy(here.mdp, here.expert, horizon=100).sum(-1)
        nominal = occupancy(here.mdp, here.nominal, horizon=100).sum(-1)
        found = match_visits(here, seen, np.full_like(seen, 0.1), causal_inner(0.1, 100), MceSettings(1, 0.3, 0.05))
        assert found.cost == pytest.approx(np.maximum(0, 0.3 * (nominal - seen - 0.1)), abs=1e-4)

    def test_states_that_no_one_saw_are_no_evidence(self) -> None:
        here = world(rows=["S.xG", "....", "####", "...."])
        walks = here.demonstrations(5, 30, np.random.default_rng(0))
        found = learn("mce", here, walks, replace(SMALL, outer=30), np.random.default_rng(0))
        islands = [here.grid.state(3, column) for column in range(4)]
        assert not found.evidence[islands].any()
        assert found.evidence[here.grid.state(0, 2)]
        guard = found.guard(4, 1.0)
        assert guard.decide(islands[0], 0) == "ask"
        assert guard.forbids(here.grid.state(0, 2), 0)
        assert not guard.forbids(here.grid.state(1, 2), 0)

    def test_sampled_visits_have_the_mean_and_its_error(self) -> None:
        here = world(0.2)
        walks = here.demonstrations(40, 60, np.random.default_rng(0))
        mean, error = sampled_visits(walks, here.mdp)
        assert mean == pytest.approx(walks.counts(here.mdp.states, 4, 0.99).sum(-1))
        each = visit_counts(walks, here.mdp.states, 0.99)
        assert error == pytest.approx(each.std(0, ddof=1) / np.sqrt(40))
        moved, _ = shuffled(mean, error, here.mdp, np.random.default_rng(1))
        assert sorted(moved) == pytest.approx(sorted(mean))
        assert not np.allclose(moved, mean)


def paths(mdp: Mdp, temperature: float, most: int) -> dict[tuple[int, ...], float]:
    """Weigh every path that is absorbed within `most` steps."""
    found: dict[tuple[int, ...], float] = {}
    for length in range(1, most + 1):
        for actions in product(range(mdp.actions), repeat=length):
            for states in product(range(mdp.states), repeat=length):
                chain = (int(mdp.start.argmax()), *states)
                if any(mdp.absorbing[state] for state in chain[:-1]) or not mdp.absorbing[chain[-1]]:
                    continue
                weight = 1.0
                for state, action, after in zip(chain, actions, chain[1:], strict=False):
                    weight *= np.exp(mdp.rewards[state, action] / temperature) * mdp.transitions[state, action, after]
                found[chain] = found.get(chain, 0.0) + weight
    return found


class TestNonCausal:
    def test_the_path_model_has_the_odds_of_weighed_paths(self) -> None:
        transitions = np.zeros((3, 2, 3))
        transitions[0, 0], transitions[0, 1] = [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]
        transitions[1, 0], transitions[1, 1] = [0.3, 0.2, 0.5], [0.0, 0.1, 0.9]
        transitions[2] = [0.0, 0.0, 1.0]
        rewards = np.array([[-2.0, -1.0], [-1.5, -3.0], [0.0, 0.0]])
        mdp = Mdp(transitions, rewards, np.eye(3)[0], 0.9, np.array([False, False, True]))
        policy, model = path_model(mdp, 0.5)
        weights = paths(mdp, 0.5, 6)
        total = sum(weights.values())
        second = {state: sum(w for chain, w in weights.items() if chain[1] == state) / total for state in range(3)}
        chain = np.einsum("sa,sat->st", policy, model.transitions)
        assert [second[state] for state in range(3)] == pytest.approx(chain[0].tolist(), abs=1e-4)
        touched = sum(w for states, w in weights.items() if 1 in states) / total
        assert touch_probability(model, policy)[1] == pytest.approx(touched, abs=1e-4)

    def test_without_chance_it_is_the_causal_one(self) -> None:
        here = world()
        undiscounted = replace(here.mdp, discount=0.999999)
        policy, model = path_model(here.mdp, 0.1)
        assert model.transitions == pytest.approx(here.mdp.transitions)
        plan, _ = causal_inner(0.1, 50)(undiscounted)
        start = here.grid.state(0, 0)
        assert policy[start] == pytest.approx(plan[start], abs=1e-3)

    def test_with_chance_it_believes_in_luck(self) -> None:
        here = world(0.3)
        policy, model = path_model(here.mdp, 0.1)
        believed = occupancy(model, policy, horizon=300, discount=1.0).sum()
        real = occupancy(here.mdp, policy, horizon=300, discount=1.0).sum()
        assert believed < 0.8 * real
        assert noncausal_inner(0.1, 300)(here.mdp)[1].sum() < believed

    def test_weights_that_do_not_converge_are_refused(self) -> None:
        free = grid_mdp("S.G", step_reward=-0.01).mdp
        with pytest.raises(UserError, match="every step must cost more than"):
            path_model(free, 1.0, most=100)

    def test_greedy_cells_are_those_of_the_wall_without_chance(self) -> None:
        here = world()
        walks = here.demonstrations(30, 60, np.random.default_rng(0))
        found = greedy_cells(here, walks, 0.1, 0.1, 50.0)
        assert found.cost is not None
        banned = found.cost > 0
        assert banned[here.forbidden].all()
        assert here.judge(found.policy)["violations"] == pytest.approx(0, abs=1e-9)
        assert not banned[visit_counts(walks, here.mdp.states).sum(0) > 0].any()
        assert found.cost.max() == 50


@pytest.fixture(scope="module")
def shown() -> tuple[WallWorld, Any]:
    here = world(0.1)
    return here, here.demonstrations(50, 60, np.random.default_rng(0))


class TestBaselines:
    def test_cloning_acts_as_shown_and_at_random_elsewhere(self, shown: tuple[WallWorld, Any]) -> None:
        here, walks = shown
        found = clone(here, walks)
        counts = walks.counts(here.mdp.states, 4)
        seen = counts.sum(-1) > 0
        assert found.policy[~seen] == pytest.approx(np.full(((~seen).sum(), 4), 0.25))
        common = counts.sum(-1).argmax()
        assert found.policy[common].argmax() == counts[common].argmax()
        assert found.cost is None
        with pytest.raises(UserError, match="a policy and no cost"):
            found.guard(4, 1.0)

    @pytest.mark.parametrize("arm", ["icrl", "gail"])
    def test_they_charge_walls_more_than_shown_states(self, shown: tuple[WallWorld, Any], arm: str) -> None:
        here, walks = shown
        found = learn(arm, here, walks, SMALL, np.random.default_rng(0))
        assert found.cost is not None
        often = visit_counts(walks, here.mdp.states).mean(0) > 0.5
        assert found.cost[here.grid.state(0, 3)] > 2 * found.cost[often & ~here.mdp.absorbing].mean()
        assert here.judge(found.policy)["violations"] < 0.5 * here.judge(here.nominal)["violations"]

    def test_a_classifier_knows_only_the_nominal_path(self, shown: tuple[WallWorld, Any]) -> None:
        here, walks = shown
        found = learn("classifier", here, walks, SMALL, np.random.default_rng(0))
        assert found.cost is not None
        assert found.cost[here.grid.state(0, 3)] > found.cost[here.grid.state(3, 3)] + 1
        assert _mce_learners.sigmoid(np.array([0.0, 700.0, -700.0])).tolist() == [0.5, 1.0, 0.0]

    def test_unknown_learners_are_refused(self, shown: tuple[WallWorld, Any]) -> None:
        with pytest.raises(UserError, match=r"no learner 'mcee'.*mce, non-causal"):
            learn("mcee", *shown, SMALL, np.random.default_rng(0))


class TestStudy:
    def test_it_runs_and_resumes_to_the_same_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with RunStore.open(tmp_path / "whole", "study", {}) as store:
            result = run(SMALL, store)
            costs = store.rows("costs")
        assert set(ARMS) == set(LEARNERS) == set(result.arms)
        assert len(result.rows) == 2 * len(ARMS)
        assert len(costs) == 2 * (len(ARMS) - 1)
        assert costs["mce/1/1:0"]["map"].count("G") == 1
        first = result.rows[0]
        assert first["drop"] == pytest.approx(1 - first["violations"] / first["nominal_violations"])
        assert verdict(result).verdict == "inconclusive"  # of one seed there is no interval
        with RunStore.open(tmp_path / "halved", "study", {}) as store:
            for row in result.rows[: len(ARMS) + 3]:
                put_row(store, **row)
            asked: list[str] = []
            real = _mce_learners.learn
            monkeypatch.setattr(_mce_learners, "learn", lambda arm, *rest: asked.append(arm) or real(arm, *rest))
            again = run(SMALL, store)
        assert asked == list(ARMS[3:])
        order = lambda rows: sorted(map(str, rows))  # noqa: E731
        assert order(again.rows) == order(result.rows)

    def test_worlds_of_a_seed_are_one_wall_and_another_way(self) -> None:
        first, moved, hurried = worlds(SMALL, 3, 0.0)
        assert np.array_equal(first.forbidden, moved.forbidden)
        assert moved.grid.rows == hurried.grid.rows != first.grid.rows
        assert hurried.mdp.rewards.min() == 2 * moved.mdp.rewards.min() == -2

    def test_it_is_found_by_number(self) -> None:
        assert find_entry("22").system.name == "mce-constraints"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"size": 5}, "size must be at least 6"),
            ({"slips": ()}, "slips: expected one or more"),
            ({"slips": (1.0,)}, "slips: expected one or more"),
            ({"temperature": 0.0}, "must be above 0"),
            ({"least_mass": 1.0}, "least_mass in"),
        ],
    )
    def test_mistakes_are_said(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            replace(SMALL, **changes)


def made(**changes: float) -> Result:
    figures = {"drop": 0.96, "reward_share": 0.01, "mce": -17.0, "greedy": -60.0, "shuffled": 0.2} | changes
    rows = []
    for seed in range(6):
        for slip in (0.0, 0.2):
            for arm in ARMS:
                drop = figures["shuffled"] if arm == "shuffled" else figures["drop"]
                penalised = figures.get(arm, -30.0) + 0.1 * seed
                rows.append(
                    {"arm": arm, "seed": seed, "unit": f"{seed}:{slip}", "slip": slip, "drop": drop + 0.001 * seed,
                     "reward_share": figures["reward_share"], "penalised": penalised, "fresh_penalised": penalised,
                     **dict.fromkeys(("violations", "auc", "moved_violations", "hurried_violations",
                                      "guarded_violations"), 0.1)}
                )  # fmt: skip
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"drop": 0.5}, "not reproduced"),
        ({"reward_share": -0.4}, "not reproduced"),
        ({"greedy": -10.0}, "not reproduced"),
        ({"shuffled": 0.95}, "not reproduced"),
    ],
)
def test_verdicts(changes: dict[str, float], expected: str) -> None:
    assert verdict(made(**changes)).verdict == expected

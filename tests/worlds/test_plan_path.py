"""Plan-Path: exact rewards, drafts, turns, random maps, snapshots, and the contract of a world."""

from __future__ import annotations

import copy
import json
import warnings
from collections import deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test

from rolecraft.agents import ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import check_world
from rolecraft.worlds import PlanGrid, PlanPath, PlanRewards, WorldEnv, make_world, play, read_plan

LINE = ["S . G", ". # ."]
WALL = ["S # G", ". # .", ". . ."]


def shaped(*away: int) -> float:
    """The shaping of a way through these distances: 0.99 * -after + before, added up."""
    return sum(before - 0.99 * after for before, after in pairwise(away))


@pytest.mark.parametrize(
    ("grid", "plan", "reward"),
    [
        (LINE, "R R", -0.02 + shaped(2, 1, 0) + 1.5),
        (LINE, "R R R R", -0.02 + shaped(2, 1, 0) + 1.5),  # what follows the goal is not walked
        (LINE, "R", -0.01 + shaped(2, 1)),
        (LINE, "U R R", -0.10 - 0.02 + shaped(2, 2, 1, 0) + 1.0),  # the move off the grid counts: not shortest
        (LINE, "R D", -0.01 - 0.10 + shaped(2, 1, 1)),
        (LINE, "D U R R", -0.04 + shaped(2, 3, 2, 1, 0) + 1.0),
        (WALL, "D D R R U U", -0.06 + shaped(2, 3, 4, 3, 2, 1, 0) + 1.5),
    ],
)
def test_exact_rewards(grid, plan, reward):
    world = PlanPath(grid=grid)
    world.act({"proposer": plan})
    assert world.rewards() == pytest.approx({"proposer": reward, "checker": 0.0})
    assert world.team_reward == 0
    assert world.position == (0, 0), "a draft moves nobody"
    world.act({"checker": plan})
    assert world.team_reward == pytest.approx(reward)
    assert world.rewards() == pytest.approx({"proposer": 2 * reward, "checker": 2 * reward})


def test_the_last_turn_pays_for_failing_and_an_earlier_one_does_not():
    for turns, fail in ((2, 0.0), (1, -1.0)):
        world = PlanPath(grid=LINE, turns=turns, seats=1)
        world.act({"planner": "R"})
        assert world.team_reward == pytest.approx(-0.01 + shaped(2, 1) + fail)
        assert (world.acting == ()) == (turns == 1)
    world = PlanPath(grid=LINE, turns=1, seats=1)
    world.act({"planner": "R R"})
    assert world.team_reward == pytest.approx(-0.02 + shaped(2, 1, 0) + 1.5)


@pytest.mark.parametrize("text", ["", "up", "R,R", "RR", "r r", "R R R R R R R R R", "go R", "R\u00a0x"])
def test_an_answer_without_a_plan_costs_two_and_moves_nobody(text):
    assert read_plan(text, 8) is None
    world = PlanPath(grid=LINE)
    world.act({"proposer": text})
    assert world.rewards()["proposer"] == -2.0
    assert "The proposer suggests : nothing\n" in world.observe("checker")
    if text:
        assert text not in world.observe("checker").replace("R ,", ""), "only a plan that was read is shown"
    world.act({"checker": text})
    assert world.rewards() == {"proposer": -2.0, "checker": -2.0}
    assert world.position == (0, 0)
    world.act({"proposer": text})
    world.act({"checker": text})
    assert world.outcome() == {"success": False, "turns": 2, "moves": 0, "shortest": 2, "unread": 4}
    assert world.team_reward == -1.0


def test_the_second_turn_begins_where_the_first_ended_and_counts_all_moves():
    world = PlanPath(grid=WALL)
    world.act({"proposer": "D"})
    assert "The proposer suggests : D\n" in world.observe("checker")
    world.act({"checker": "D D"})
    assert world.position == (2, 0)
    assert world.acting == ("proposer",)
    assert world.render() == ". # G\n. # .\nS . ."
    assert "Turn 2 of 2" in world.observe("proposer")
    before = world.team_reward
    world.act({"proposer": "R"})
    world.act({"checker": "R R U U"})
    assert world.team_reward - before == pytest.approx(-0.04 + shaped(4, 3, 2, 1, 0) + 1.5), "still the shortest way"
    assert world.outcome() == {"success": True, "turns": 2, "moves": 6, "shortest": 6, "unread": 0}
    assert world.acting == ()


def slow_distance(grid: PlanGrid) -> int:
    """Breadth-first search from the start, written again."""
    queue, seen = deque([(grid.start, 0)]), {grid.start}
    while queue:
        (r, c), n = queue.popleft()
        if (r, c) == grid.goal:
            return n
        for a, b in ((r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)):
            inside = 0 <= a < len(grid.rows) and 0 <= b < len(grid.rows[0])
            if inside and grid.rows[a][b] == "." and (a, b) not in seen:
                seen.add((a, b))
                queue.append(((a, b), n + 1))
    raise AssertionError("not reachable")


def slow_reward(grid: PlanGrid, plan: list[str], last: bool) -> tuple[float, bool]:
    """The rewards as the dossier words them."""
    steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
    (r, c), total = grid.start, 0.0

    def phi(a: int, b: int) -> int:
        return -(abs(a - grid.goal[0]) + abs(b - grid.goal[1]))

    for used, move in enumerate(plan, 1):
        a, b = r + steps[move][0], c + steps[move][1]
        inside = 0 <= a < len(grid.rows) and 0 <= b < len(grid.rows[0]) and grid.rows[a][b] != "#"
        total += -0.01 if inside else -0.10
        a, b = (a, b) if inside else (r, c)
        total += 0.99 * phi(a, b) - phi(r, c)
        r, c = a, b
        if (r, c) == grid.goal:
            return total + 1.0 + (0.5 if used == slow_distance(grid) else 0.0), True
    return total + (-1.0 if last else 0.0), False


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.sampled_from("UDLR"), min_size=1, max_size=8), st.booleans())
def test_walks_equal_a_slow_reference(seed, plan, last):
    grid = PlanGrid.random(np.random.default_rng(seed), 5, 0.3, 1, 6)
    assert 1 <= slow_distance(grid) == grid.distances[grid.start] <= 6
    walk = grid.walk(plan, grid.start, PlanRewards(), last=last)
    reward, arrived = slow_reward(grid, plan, last)
    assert walk.reward == pytest.approx(reward)
    assert walk.arrived == arrived
    best = grid.shortest_plan()
    assert len(best) == slow_distance(grid)
    assert grid.walk(best, grid.start, PlanRewards()).arrived


def test_random_maps_follow_their_seed_and_their_limits():
    world = PlanPath(size=7, nearest=4, longest=5)
    maps = set()
    for seed in range(40):
        world.reset(seed)
        assert 4 <= world.grid.distances[world.grid.start] <= 5
        maps.add(world.render())
        other = PlanPath(size=7, nearest=4, longest=5)
        other.reset(seed)
        assert other.render() == world.render()
    assert len(maps) == 40
    drawn = [PlanGrid.random(np.random.default_rng(seed), 10, 0.22, 1, 99) for seed in range(50)]
    share = np.mean([row.count("#") / 10 for grid in drawn for row in grid.rows])
    assert share == pytest.approx(0.22, abs=0.02)


def test_the_contract_of_a_world():
    rng = np.random.default_rng(0)
    words = ScriptedPolicy(lambda view: " ".join(rng.choice(["U", "D", "L", "R", "x"], 3, p=[0.24] * 4 + [0.04])))
    fixed: dict[int, str] = {}
    steady = ScriptedPolicy(lambda view: fixed.setdefault(view.seed, words.act([view])[0].action))
    for episode in check_world(lambda: make_world("plan-path", {"turns": 3}), policy=steady):
        assert episode.ended == "over"
    check_world(lambda: PlanPath(size=4, longest=2, closed=True))
    check_world(lambda: PlanPath(size=4, longest=3, closed=True, seats=1))


def test_listed_plans():
    world = PlanPath(grid=LINE, longest=3, closed=True)
    assert len(world.actions) == 4 + 16 + 64
    assert world.legal("proposer") == world.actions
    assert world.legal("checker") == ()
    with pytest.raises(IllegalActionError, match="proposer may not do 'R R R R'"):
        world.act({"proposer": "R R R R"})
    with pytest.raises(IllegalActionError, match="may not do 'R  R'"):
        world.act({"proposer": "R  R"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        api_test(WorldEnv(PlanPath(size=4, longest=2, closed=True)), num_cycles=20)


def test_snapshots_and_copies_go_their_own_way():
    world = PlanPath(grid=WALL)
    world.act({"proposer": "D D"})
    saved, twin = json.loads(json.dumps(world.snapshot())), copy.deepcopy(world)
    world.act({"checker": "D"})
    after = world.state_hash()
    assert twin.position == (0, 0)
    assert twin.rewards()["checker"] == 0
    twin.act({"checker": "D"})
    assert twin.state_hash() == after
    world.restore(saved)
    assert world.acting == ("checker",)
    assert "suggests : D D\n" in world.observe("checker")
    world.act({"checker": "D"})
    assert world.state_hash() == after
    with pytest.raises(UserError, match="another task"):
        PlanPath(grid=WALL, longest=7).restore(saved)


def test_it_is_played_like_any_world():
    world = PlanPath(seats=1, nearest=3)
    solver = ScriptedPolicy(lambda view: " ".join(world.grid.shortest_plan(world.position)))
    episode = play(world, {"planner": solver}, seed=4)
    assert episode.outcome["success"]
    assert episode.outcome["moves"] == episode.outcome["shortest"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be an integer of at least 1, got 0"),
        ({"turns": True}, "turns must be"),
        ({"block_ratio": 1.0}, "block_ratio must lie in"),
        ({"seats": 3}, "seats be 1 or 2"),
        ({"nearest": 9}, "nearest no more than longest"),
        ({"closed": True}, "up to 4 moves can be listed, got longest 8"),
        ({"grid": ["S.", ".."]}, "one start 'S' and one goal 'G'"),
        ({"grid": ["S#G"]}, "reachable"),
        ({"grid": ["SG", "."]}, "equal length"),
        ({"grid": ["SxG"]}, "'.' and '#'"),
        ({"rewards": {"gaol": 1.0}}, "'gaol' is unknown .*Did you mean 'goal'"),
        ({"rewards": {"goal": float("nan")}}, "goal must be a number"),
        ({"size": 2, "nearest": 5, "longest": 5}, "had no goal 5 to 5 moves away"),
    ],
)
def test_bad_tasks_are_named(options, message):
    with pytest.raises(UserError, match=message):
        PlanPath(**options)


def test_rewards_can_be_changed():
    world = PlanPath(grid=LINE, rewards={"goal": 10.0, "shaping": 0.0})
    world.act({"proposer": "R R"})
    assert world.rewards()["proposer"] == pytest.approx(-0.02 + 10.5)

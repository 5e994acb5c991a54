"""The key-and-door world: rules, receipts, exact snapshots, the potential, and the same rules as tables."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, seed_test

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import UserError
from rolecraft.testing import check_world
from rolecraft.worlds import KeyDoor, KeyDoorMap, WorldEnv, make_world, play, replay

CORRIDOR = "K.S.D"
ROOM = """
    S.#D
    .K#.
    ....
"""
KINDS = {
    "plain": KeyDoor,
    "walls": lambda: KeyDoor(5, 6, sight=True),
    "take": lambda: KeyDoor(4, 2, take=True, horizon=60),
    "tasks": lambda: KeyDoor(maps=[CORRIDOR, ROOM]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_contract_of_worlds(kind):
    for episode in check_world(KINDS[kind]):
        assert episode.outcome["success"] == (episode.rewards["walker"] == 1)
        assert episode.outcome["steps"] == len(episode.turns)


@pytest.mark.parametrize("kind", ["plain", "take"])
def test_pettingzoos_own_tests_pass(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of observations that are all of one sort, as bytes are
        api_test(WorldEnv(KINDS[kind]()), num_cycles=50)
    seed_test(lambda: WorldEnv(KINDS[kind]()), num_cycles=50)


def walk(world, *actions):
    for action in actions:
        world.act({"walker": action})
    return world.observe("walker")


def test_the_key_is_taken_and_then_the_door_opens():
    world = KeyDoor(maps=[CORRIDOR])
    assert world.observe("walker") == "you row 0 col 2 key row 0 col 0 door row 0 col 4 last start"
    assert world.render() == "K.@.D"
    assert walk(world, "right", "right").endswith("col 3 key row 0 col 0 door row 0 col 4 last bumped")
    assert walk(world, "left", "left", "left") == "you row 0 col 0 key held door row 0 col 4 last took"
    assert world.render() == "@...D"
    assert world.rewards() == {"walker": 0.0}
    assert walk(world, *["right"] * 4).endswith("last opened")
    assert (world.acting, world.rewards(), world.legal("walker")) == ((), {"walker": 1.0}, ())
    assert world.outcome() == {"success": True, "steps": 9, "shortest": 6}


def test_time_runs_out_without_reward():
    world = KeyDoor(maps=[CORRIDOR], horizon=2)
    walk(world, "left", "up")
    assert (world.acting, world.rewards()["walker"]) == ((), 0.0)
    assert world.outcome() == {"success": False, "steps": 2, "shortest": 6}


def test_with_take_the_key_must_be_taken():
    world = KeyDoor(maps=[CORRIDOR], take=True)
    assert world.distance() == 7
    assert walk(world, "take").endswith("last nothing")
    assert walk(world, "left", "left").endswith("last moved")
    assert not world.spot.key
    assert walk(world, "take").endswith("last took")
    assert walk(world, "take").endswith("last nothing")
    assert "take" not in KeyDoor().actions


def test_sight_names_the_blocked_sides():
    world = KeyDoor(maps=[ROOM], sight=True)
    assert "blocked up left last start" in world.observe("walker")
    assert "blocked up right last moved" in walk(world, "right")
    assert "blocked right last took" in walk(world, "down")


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_is_in_the_vocabulary(kind):
    world, words = KINDS[kind](), set()
    for seed in range(6):
        for turn in play(world, {"walker": RandomPolicy()}, seed, hashes=False).turns:
            words |= {*turn.observation.split(), turn.action}
        words |= set(world.observe("walker").split())
    assert words <= set(world.vocabulary)
    assert len(world.vocabulary) == len(set(world.vocabulary)) < 35


def test_the_seed_chooses_the_map_and_a_task_list_is_walked_through():
    world = KeyDoor(walls=5)
    maps = set()
    for seed in range(8):
        world.reset(seed)
        maps.add(world.map)
        assert sum(row.count("#") for row in world.map.rows) == 5
    assert len(maps) == 8
    tasks = KeyDoor(maps=[CORRIDOR, ROOM])
    shapes = []
    for seed in range(4):
        tasks.reset(seed)
        shapes.append(tasks.map.shape)
    assert shapes == [(1, 5), (3, 4)] * 2


def test_a_snapshot_goes_on_exactly_in_another_world():
    world, other = KeyDoor(walls=4), KeyDoor(walls=4)
    world.reset(3)
    other.reset(8)
    walk(world, "up", "left", "down")
    snapshot, seen = json.loads(json.dumps(world.snapshot())), world.observe("walker")
    assert not seen.endswith("start")
    ends = []
    for each in (world, other):
        each.restore(snapshot)
        assert each.observe("walker") == seen
        ends.append((walk(each, "right", "down", "down"), each.state_hash()))
        each.restore(snapshot)
        assert each.steps == 3
    assert ends[0] == ends[1]
    before = world.state_hash()
    for wrong, said in (
        ({}, "not a snapshot"),
        ({**snapshot, "spot": [9, 9, False]}, r"\[9, 9, False\]"),
        ({**snapshot, "steps": 41}, "41 actions"),
    ):
        with pytest.raises(UserError, match=said):
            world.restore(wrong)
    assert world.state_hash() == before


def shortest_by_search(world: KeyDoor) -> int:
    """Search forwards over snapshots of the world itself."""
    start = world.snapshot()
    layer, seen, depth = [start], {json.dumps(start["spot"])}, 0
    while layer:
        following = []
        for snapshot in layer:
            for action in world.actions:
                world.restore({**snapshot, "steps": 0})
                if not world.acting:
                    world.restore(start)
                    return depth
                world.act({"walker": action})
                key = json.dumps(list(world.spot))
                if key not in seen:
                    seen.add(key)
                    following.append(world.snapshot())
        layer, depth = following, depth + 1
    raise AssertionError("no path")


@pytest.mark.parametrize("take", [False, True])
def test_the_potential_is_the_shortest_path_of_the_world_itself(take):
    for seed in range(4):
        world = KeyDoor(4, 4, take=take)
        world.reset(seed)
        rng = np.random.default_rng(seed)
        for _ in range(5):
            if not world.acting:
                break
            assert world.distance() == shortest_by_search(world)
            walk(world, str(rng.choice(world.actions)))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), walls=st.integers(0, 8), take=st.booleans())
def test_tables_and_world_play_the_same_episodes(seed, walls, take):
    world = KeyDoor(4, walls, 25, take=take)
    world.reset(seed)
    tables = world.map.tables(take)
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(len(tables.actions)), len(tables.distance))
    walks = tables.roll_out(probs, np.full(3, tables.start), 25, rng)
    for states, actions, length, success in zip(walks.states, walks.actions, walks.lengths, walks.success, strict=True):
        world.reset(seed)
        for step in range(length):
            assert tables.state(world.spot) == states[step]
            assert tables.distance[states[step]] == world.distance()
            walk(world, tables.actions[actions[step]])
        assert tables.state(world.spot) == states[length] == states[-1]
        assert not world.acting
        assert (world.rewards()["walker"] == 1) == success


def test_exact_success_is_what_many_walks_show_and_the_closed_form():
    tables = KeyDoorMap.parse("SKD").tables()
    probs = np.full((6, 4), 0.25)
    values = tables.success(probs, 3)
    # From the start: one way right, then right again; other actions stay or go back.
    assert values[0, tables.start] == values[1, tables.start] == 0
    assert values[2, tables.start] == pytest.approx(1 / 16)
    assert values[3, tables.start] == pytest.approx(1 / 16 + 3 / 4 / 16 + 1 / 4 * 1 / 2 * 1 / 4)
    tables = KeyDoorMap.parse("S.K\n..D").tables()
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(4, 3.0), len(tables.distance))
    exact = tables.success(probs, 12)[12, tables.start]
    found = tables.roll_out(probs, np.full(4000, tables.start), 12, rng).success.mean()
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000) + 1e-9)
    assert 0.01 < exact < 0.99


def test_walks_stop_at_their_own_limits():
    tables = KeyDoorMap.parse(CORRIDOR).tables()
    right = np.tile([0.0, 0.0, 0.0, 1.0], (len(tables.distance), 1))
    walks = tables.roll_out(right, np.full(3, tables.start), np.array([0, 1, 4]), np.random.default_rng(0))
    assert walks.lengths.tolist() == [0, 1, 4]
    assert [walks.states[i, -1] - tables.start for i in range(3)] == [0, 1, 1]


def test_a_scripted_walker_succeeds_and_is_replayed():
    def closer(view):
        here = world.snapshot()
        best = {}
        for action in view.legal:
            walk(world, action)
            best[action] = world.distance()
            world.restore(here)
        return min(best, key=best.get)

    world = KeyDoor(walls=6)
    episode = play(world, {"walker": ScriptedPolicy(closer)}, 5)
    assert episode.outcome["success"]
    assert episode.outcome["steps"] == episode.outcome["shortest"]
    replay(KeyDoor(walls=6), episode)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: KeyDoor(horizon=0), "horizon must be at least 1"),
        (lambda: KeyDoor(1), "size at least 2"),
        (lambda: KeyDoor(3, 7), r"walls in 0\.\.6"),
        (lambda: KeyDoor(2, shortest=9), "no map of 2 x 2"),
        (lambda: KeyDoor(maps=["SK"]), "expected one 'D', got 0"),
        (lambda: KeyDoor(maps=["SKD", "S?KD"]), "'\\?' is no mark"),
        (lambda: KeyDoor(maps=["S#KD"]), "no path leads from S"),
        (lambda: KeyDoor(maps=["SDK"]), "no path leads from S"),
        (lambda: KeyDoor(maps=["SKD\n.."]), "rows of one length"),
        (lambda: make_world("key-door", {"wals": 3}), "wals"),
    ],
)
def test_faulty_settings_are_refused(make, said):
    with pytest.raises(UserError, match=said):
        make()


def test_it_is_made_by_name():
    assert make_world("key-door", {"size": 4, "maps": [["SKD"]]}).map.rows == ("SKD",)

"""The room: collisions against small steps, scripts that keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control import (
    OBSTACLE,
    OBSTACLE_TARGETS,
    Box,
    PointRoom,
    graded_play,
    graded_reward,
    obstacle_play,
    side_kept,
    side_play,
)
from rolecraft.errors import UserError

BOX = Box(0.1, -0.2, 0.3, 0.2)


def inside(points: np.ndarray) -> np.ndarray:
    return (abs(points[..., 0] - BOX.x) < BOX.half_width) & (abs(points[..., 1] - BOX.y) < BOX.half_height)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_collisions_are_those_of_a_finely_cut_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = rng.uniform(-1, 1, (40, 2)).astype(np.float32)
    starts = starts[~inside(starts)]
    actions = rng.uniform(-1, 1, starts.shape).astype(np.float32)
    room = PointRoom((BOX,), speed=0.6)
    after, hit, moved = room.step(starts, actions)
    path = starts[:, None] + np.linspace(0, 1, 3001)[None, :, None] * 0.6 * moved[:, None]
    deep = inside(path).mean(1)
    assert hit[deep > 0.002].all()
    assert (deep[hit] < 0.002).sum() <= 1  # a corner may be touched between two cuts
    assert not inside(after).any()
    free = ~hit
    assert after[free] == pytest.approx(np.clip(starts[free] + 0.6 * moved[free], -1, 1), abs=1e-5)


def test_actions_are_cut_to_length_one_and_the_walls_hold() -> None:
    after, hit, moved = PointRoom(speed=0.5).step([[0.9, 0.0]], [[30.0, 40.0]])
    assert moved[0] == pytest.approx([0.6, 0.8])
    assert after[0] == pytest.approx([1.0, 0.4])
    assert not hit[0]


def test_who_hits_the_box_stays_there() -> None:
    run = PointRoom((BOX,), speed=0.3).rollout(lambda points, step: np.tile([[1.0, 0.0]], (1, 1)), [[-0.5, -0.2]], 5)
    assert run.hit[0]
    assert run.obs[0, -1, 0] == pytest.approx(-0.2, abs=1e-2)
    assert (run.obs[0, -1] == run.obs[0, -2]).all()


def test_obstacle_play_takes_both_ways_to_both_targets() -> None:
    data, side, target = obstacle_play(400, np.random.default_rng(0))
    assert len(data) > 380
    for a in (0, 1):
        for b in (0, 1):
            assert 0.15 < ((side == a) & (target == b)).mean() < 0.35
    ends = data.obs[data.starts + data.lengths - 1]
    assert np.linalg.norm(ends - OBSTACLE_TARGETS[target], axis=1).max() < 0.15
    level = [data.obs[s : s + n] for s, n in zip(data.starts, data.lengths, strict=True)]
    at = [points[np.abs(points[:, 1] - OBSTACLE.y).argmin(), 0] for points in level]
    assert ((np.array(at) > 0) == (side == 1)).mean() > 0.99


def test_graded_play_rewards_experts() -> None:
    data = graded_play(300, np.random.default_rng(0), expert=0.1)
    totals = data.returns() / 24
    assert totals[:30].mean() > totals[30:].mean() + 0.15
    assert graded_reward([[0.5, 0.5], [-1, -1]]).tolist() == [1, 0]


def test_sides_are_kept_and_exclusive_ones_keep_no_second() -> None:
    for exclusive in (False, True):
        data, side = side_play(200, np.random.default_rng(0), exclusive=exclusive)
        ends = data.obs[data.starts + data.lengths - 1]
        kept = np.stack([side_kept(ends, each) for each in range(4)], axis=1)
        assert kept[np.arange(200), side].mean() > 0.97
        second = kept.sum(1) > 1
        assert second.mean() < 0.08 if exclusive else second.mean() > 0.3
        assert (data.labels.argmax(1) == side).all()


def test_bad_input() -> None:
    with pytest.raises(UserError, match="speed > 0"):
        PointRoom(speed=0)
    with pytest.raises(UserError, match=r"shape \(B, 2\)"):
        PointRoom().step([[0.0, 0.0]], [[1.0, 0.0, 0.0]])
    with pytest.raises(UserError, match="not finite"):
        PointRoom().step([[0.0, 0.0]], [[np.nan, 0.0]])
    with pytest.raises(UserError, match=r"expert must lie"):
        graded_play(3, np.random.default_rng(0), expert=2)

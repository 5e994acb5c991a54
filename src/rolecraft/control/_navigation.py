"""Points in a square room with obstacles, and scripted behaviour in it that does one thing in several ways.

The room is [-1, 1]^2, an action a velocity in units of the top speed, all of it numpy and many episodes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.control._windows import Trajectories
from rolecraft.errors import UserError

Floats = NDArray[np.float32]
Act = Callable[[Floats, int], ArrayLike]
"""Takes observations (B, 2) and the step, returns actions (B, 2)."""


class Box(NamedTuple):
    """An obstacle: centre and half its sides."""

    x: float
    y: float
    half_width: float
    half_height: float


class Rollout(NamedTuple):
    """B episodes of T steps."""

    obs: Floats
    """Shape (B, T + 1, 2)."""
    actions: Floats
    """Shape (B, T, 2), as executed: of length 1 at most."""
    hit: NDArray[np.bool_]
    """Shape (B,): whether an obstacle was hit; the point stays where it hit it."""


@dataclass(frozen=True)
class PointRoom:
    """A room of boxes; whoever runs into one stays there."""

    boxes: tuple[Box, ...] = ()
    speed: float = 0.1
    """Largest distance of a step."""
    noise: float = 0.0
    """Standard deviation of a normal displacement added to every step, in units of the speed."""

    def __post_init__(self) -> None:
        """Check the speed, the noise and the boxes."""
        if self.speed <= 0 or self.noise < 0 or any(min(box[2:]) <= 0 for box in self.boxes):
            raise UserError(
                f"expected speed > 0, noise >= 0 and boxes with sides > 0, got {self.speed}, {self.noise} and "
                f"{self.boxes}."
            )

    def step(
        self, positions: ArrayLike, actions: ArrayLike, rng: np.random.Generator | None = None
    ) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """Move.

        Args:
            positions: Shape (B, 2).
            actions: Shape (B, 2); longer than 1 they are cut to length 1.
            rng: Of the displacement, where there is noise.

        Returns:
            Positions (B, 2), whether a box was hit (B,), and the actions as executed (B, 2).

        Raises:
            UserError: If shapes differ or an action is not finite.
        """
        start, moves = np.asarray(positions, np.float32), np.asarray(actions, np.float32)
        if start.ndim != 2 or start.shape[1:] != (2,) or start.shape != moves.shape:
            raise UserError(
                f"expected positions and actions of shape (B, 2), got {np.shape(positions)} and {np.shape(actions)}."
            )
        if not np.isfinite(moves).all():
            raise UserError("an action is not finite; check the policy's weights.")
        moves = moves / np.maximum(1, np.linalg.norm(moves, axis=1, keepdims=True))
        shift = self.speed * moves
        if self.noise and rng is not None:
            shift = shift + self.speed * self.noise * rng.standard_normal(moves.shape)
        stop, hit = np.ones(len(start)), np.zeros(len(start), bool)
        for box in self.boxes:
            entry = _entry(start, shift, box)
            hit |= entry <= 1
            stop = np.minimum(stop, entry)
        stop = np.where(hit, np.maximum(stop - 1e-3, 0), stop)
        return np.clip(start + stop[:, None] * shift, -1, 1).astype(np.float32), hit, moves.astype(np.float32)

    def rollout(self, act: Act, starts: ArrayLike, steps: int, rng: np.random.Generator | None = None) -> Rollout:
        """Run a policy.

        Args:
            act: The policy.
            starts: Shape (B, 2).
            steps: T.
            rng: Of the displacement, where there is noise.
        """
        here = np.asarray(starts, np.float32)
        seen, done = [here], []
        stuck = np.zeros(len(here), bool)
        for step in range(steps):
            after, hit, moved = self.step(here, act(here, step), rng)
            here = np.where(stuck[:, None], here, after)
            stuck |= hit
            seen.append(here)
            done.append(moved)
        return Rollout(np.stack(seen, 1), np.stack(done, 1), stuck)


def _entry(start: Any, shift: Any, box: Box) -> Any:
    """Return at which share of a shift each point enters a box; infinite where it does not."""
    low = np.array([box.x - box.half_width, box.y - box.half_height])
    high = np.array([box.x + box.half_width, box.y + box.half_height])
    safe = np.where(np.abs(shift) < 1e-9, 1e-9, shift)
    one, other = (low - start) / safe, (high - start) / safe
    enter, leave = np.minimum(one, other).max(1), np.maximum(one, other).min(1)
    return np.where((enter <= leave) & (leave > 0) & (enter <= 1), np.maximum(enter, 0), np.inf)


def toward(points: Floats, targets: ArrayLike, speed: float) -> Floats:
    """Return the actions that lead straight to targets (B, 2), slower within the last step."""
    gap = np.asarray(targets, np.float32) - points
    length = np.linalg.norm(gap, axis=1, keepdims=True)
    return np.asarray(gap / np.maximum(length, speed), np.float32)


def through(room: PointRoom, starts: Floats, ways: Floats, wobble: float, steps: int, rng: np.random.Generator) -> Act:
    """Return a script that visits way points one after the other.

    Args:
        room: Where.
        starts: Shape (B, 2).
        ways: Shape (B, W, 2).
        wobble: Standard deviation of what is added to each action.
        steps: Most steps.
        rng: Of the wobble.
    """
    at = np.zeros(len(starts), int)
    added = wobble * rng.standard_normal((steps, len(starts), 2))

    def act(points: Floats, step: int) -> Floats:
        target = ways[np.arange(len(at)), at]
        near = np.linalg.norm(points - target, axis=1) < 1.2 * room.speed
        at[near] = np.minimum(at[near] + 1, ways.shape[1] - 1)
        target = ways[np.arange(len(at)), at]
        return np.asarray(toward(points, target, room.speed) + added[step], np.float32)

    return act


# BESO: one obstacle, two ways round it, two targets behind it.

OBSTACLE = Box(0.0, 0.0, 0.3, 0.15)
OBSTACLE_TARGETS = np.array([[-0.5, 0.8], [0.5, 0.8]], np.float32)


def obstacle_starts(count: int, rng: np.random.Generator) -> Floats:
    """Return starts below the obstacle, of shape (count, 2)."""
    return (np.array([0.0, -0.8]) + rng.uniform(-0.05, 0.05, (count, 2))).astype(np.float32)


def obstacle_play(
    count: int, rng: np.random.Generator, *, steps: int = 30, wobble: float = 0.1
) -> tuple[Trajectories, NDArray[np.int64], NDArray[np.int64]]:
    """Return play without rewards: left or right round the obstacle, then to one of two targets, each by a fair coin.

    An episode ends at its target.

    Returns:
        Trajectories (label: one-hot target), side (0 left, 1 right) and target of each, both of shape (count,).
    """
    room = PointRoom((OBSTACLE,))
    starts, side, target = obstacle_starts(count, rng), rng.integers(2, size=count), rng.integers(2, size=count)
    out = (2 * side - 1) * rng.uniform(0.45, 0.7, count)
    ways = np.stack(
        [np.stack([out, rng.uniform(-0.25, -0.1, count)], 1), np.stack([out, np.full(count, 0.25)], 1),
         OBSTACLE_TARGETS[target]], axis=1,
    ).astype(np.float32)  # fmt: skip
    run = room.rollout(through(room, starts, ways, wobble, steps, rng), starts, steps)
    gap = np.linalg.norm(run.obs - OBSTACLE_TARGETS[target][:, None], axis=2)
    ends = np.where((gap < room.speed).any(1), (gap < room.speed).argmax(1), steps)
    rows = [
        {"obs": run.obs[each, : ends[each] + 1], "terminal": gap[each, ends[each]] < room.speed,
         "actions": np.concatenate([run.actions[each, : ends[each]], np.zeros((1, 2))]),
         "label": np.eye(2)[target[each]]}
        for each in np.flatnonzero(~run.hit)
    ]  # fmt: skip
    return Trajectories.of(rows), side[~run.hit], target[~run.hit]


# Decision Diffuser: behaviour of unequal quality, and behaviour under one of four constraints.

GRADED_TARGET = np.array([0.5, 0.5], np.float32)


def graded_reward(points: ArrayLike) -> Floats:
    """Return max(0, 1 - distance to the target) of points (..., 2)."""
    gap = np.linalg.norm(np.asarray(points, np.float32) - GRADED_TARGET, axis=-1)
    return np.asarray(np.maximum(0, 1 - gap), np.float32)


def graded_play(
    count: int, rng: np.random.Generator, *, steps: int = 24, expert: float = 0.1, wobble: float = 0.3
) -> Trajectories:
    """Return episodes of which a share goes straight to the target and the others to random places.

    The reward of a step is that of the position it leads to. Steps beyond an expert's share wander: they go to three
    places in turn.

    Raises:
        UserError: If `expert` is not in [0, 1].
    """
    if not 0 <= expert <= 1:
        raise UserError(f"expert must lie in [0, 1], got {expert}.")
    room = PointRoom()
    starts = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    ways = rng.uniform(-1, 1, (count, 3, 2)).astype(np.float32)
    ways[: round(expert * count)] = GRADED_TARGET
    run = room.rollout(through(room, starts, ways, wobble, steps, rng), starts, steps)
    rewards = graded_reward(run.obs[:, 1:])
    return Trajectories.of(
        [{"obs": run.obs[each, :-1], "actions": run.actions[each], "rewards": rewards[each]} for each in range(count)]
    )


SIDES = ("left", "right", "below", "above")
MARGIN = 0.3
"""How far from the middle a side begins."""


def side_kept(points: ArrayLike, side: int) -> NDArray[np.bool_]:
    """Return whether points (..., 2) lie on a side of the room: 0 left, 1 right, 2 below, 3 above."""
    array = np.asarray(points, np.float32)
    sign = 1 if side % 2 else -1
    return np.asarray(sign * array[..., side // 2] > MARGIN)


def side_starts(count: int, rng: np.random.Generator) -> Floats:
    """Return starts in the middle of the room, of shape (count, 2)."""
    return rng.uniform(-0.1, 0.1, (count, 2)).astype(np.float32)


def side_play(
    count: int, rng: np.random.Generator, *, steps: int = 15, wobble: float = 0.1, exclusive: bool = False
) -> tuple[Trajectories, NDArray[np.int64]]:
    """Return episodes that go from the middle to a place on one side of the room and stay there.

    Each keeps the side that its label names. Where it goes along that side is left open, so that by chance it may keep
    a second one, which no label says.

    Args:
        count: Episodes.
        rng: Random numbers.
        steps: Of each.
        wobble: Standard deviation of what is added to each action.
        exclusive: Only places that keep no second side: nothing in the data shows two at once.

    Returns:
        Trajectories with one-hot labels of shape (count, 4), and the side of each.
    """
    room = PointRoom()
    side, starts = rng.integers(4, size=count), side_starts(count, rng)
    deep = np.where(side % 2, 1, -1) * rng.uniform(MARGIN + 0.1, 0.9, count)
    along = rng.uniform(-0.9, 0.9, count) * (MARGIN / 0.9 if exclusive else 1)
    places = np.where((side // 2 == 0)[:, None], np.stack([deep, along], 1), np.stack([along, deep], 1))
    ways = places[:, None].astype(np.float32)
    run = room.rollout(through(room, starts, ways, wobble, steps, rng), starts, steps)
    rows = [
        {"obs": run.obs[each, :-1], "actions": run.actions[each], "label": np.eye(4)[side[each]]}
        for each in range(count)
    ]
    return Trajectories.of(rows), side

"""The arms of BESO's study."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.control import (
    OBSTACLE,
    OBSTACLE_TARGETS,
    Condition,
    PointRoom,
    Trajectories,
    commands_met,
    future_steps,
    obstacle_play,
    obstacle_starts,
    train_policies,
)
from rolecraft.control._navigation import Rollout
from rolecraft.systems.control._cloning import CloningConfig, train_cloners

if TYPE_CHECKING:
    from rolecraft.systems.control.beso import ObstacleConfig

Row = tuple[str, int, dict[str, float | None], list[dict[str, Any]]]
RADIUS = 0.15
"""A target counts as reached within this distance."""
RELABELS = 8
"""Future goals drawn per step for the cloners."""
GOALS = tuple(
    Condition.of("goal", place, name) for place, name in zip(OBSTACLE_TARGETS, ("left", "right"), strict=True)
)


def bits(share: float) -> float:
    """Return the entropy of a coin in bits."""
    return float(-sum(p * np.log2(p) for p in (share, 1 - share) if p > 0))


def energy_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Return 2 E|X - Y| - E|X - X'| - E|Y - Y'| of samples (n, d) and (m, d): 0 for equal distributions."""

    def mean(x: NDArray[Any], y: NDArray[Any]) -> float:
        return float(np.linalg.norm(x[:, None] - y[None], axis=-1).mean())

    return 2 * mean(a, b) - mean(a, a) - mean(b, b)


def figures_of(run: Rollout, target: NDArray[np.int64], first: NDArray[Any]) -> dict[str, float | None]:
    """Return the figures of some episodes.

    Args:
        run: The episodes.
        target: The commanded target of each, shape (B,).
        first: First actions of the script, shape (n, 2).
    """
    gap = np.linalg.norm(run.obs[:, :, None] - OBSTACLE_TARGETS, axis=-1)
    reached = (gap < RADIUS).any(1) & ~run.hit[:, None]
    rows = np.arange(len(target))
    won, other = reached[rows, target], reached[rows, 1 - target]
    level = run.obs[:, :, 1] > OBSTACLE.y
    passed = level.any(1) & ~run.hit
    right = run.obs[rows, level.argmax(1), 0] > OBSTACLE.x
    arrived = reached.any(1)
    return {
        "success": float(won.mean()), "other": float((other & ~won).mean()), "hit": float(run.hit.mean()),
        "lead": float(won.mean() - other.mean()),
        "side_bits": bits(float(right[passed].mean())) if passed.any() else 0.0,
        "target_bits": bits(float(reached[arrived, 1].mean())) if arrived.any() else 0.0,
        "first_actions": energy_distance(run.actions[:, 0], first),
    }  # fmt: skip


def cloners(config: ObstacleConfig, data: Sequence[Trajectories], seeds: Sequence[int]) -> dict[str, list[Any]]:
    """Train the mean action, and clusters with offsets, under goals from the future."""
    inputs, actions = [], []
    for each, seed in zip(data, seeds, strict=True):
        rng = np.random.default_rng(derive_seed("beso", seed, "relabel"))
        at = np.tile(np.arange(len(each.rewards)), RELABELS)
        goals = each.obs[future_steps(each, at, rng, "uniform")]
        inputs.append(np.concatenate([each.obs[at], goals], axis=1))
        actions.append(each.actions[at])
    keys = [derive_seed("beso", seed, "clone") for seed in seeds]
    return {
        name: train_cloners(inputs, actions, CloningConfig(bins=bins, updates=config.updates), keys)
        for name, bins in (("gcbc", 0), ("k-means", config.bins))
    }


def obstacle_arms(config: ObstacleConfig, missing: Sequence[tuple[str, int]], folder: Path) -> Iterator[Row]:
    """Yield arm, seed, figures, and how often each goal was reached, for the missing rows."""
    seeds = list(dict.fromkeys(seed for _, seed in missing))
    play = [
        obstacle_play(config.trajectories, np.random.default_rng(derive_seed("beso", seed, "play")))[0]
        for seed in seeds
    ]
    keys = [derive_seed("beso", seed, "weights") for seed in seeds]
    policies, curves = train_policies(play, config.policy(), keys, folder=folder / "-".join(map(str, seeds)))
    cloned = cloners(config, play, seeds)
    target = np.arange(config.tests) % 2
    goals = OBSTACLE_TARGETS[target]
    last = max(1, config.updates // 10)
    for place, seed in enumerate(seeds):
        test = derive_seed("beso", seed, "test")
        starts = obstacle_starts(config.tests, np.random.default_rng(test))
        first = play[place].actions[play[place].starts]
        for arm in (arm for arm, of in missing if of == seed):
            if arm == "script":
                yield arm, seed, script_figures(config, test, first), []
                continue
            figures: dict[str, float | None] = {}
            if arm in cloned:
                act = with_goals(cloned[arm][place], goals, test)
            else:
                _, count, *guided = arm.split("-")
                strength = float(guided[0][1:]) if guided else 1.0
                act = in_session(policies[place].session(steps=int(count), strength=strength), goals, test)
                figures["loss"] = float(curves["loss"][-last:, place].mean())
            act(starts, 0)  # compiles
            run, spent = timed_rollout(act, starts, config.steps)
            figures |= figures_of(run, target, first)
            figures["milliseconds"] = 1000 * spent / (config.steps * config.tests)
            gap = np.linalg.norm(run.obs - goals[:, None], axis=2)
            met = (gap < RADIUS).any(1) & ~run.hit
            yield arm, seed, figures, commands_met([GOALS[each] for each in target], met, measure="reached").rows()


def timed_rollout(act: Any, starts: NDArray[Any], steps: int) -> tuple[Rollout, float]:
    """Return the episodes and the processor's seconds that the policy itself took."""
    spent = 0.0

    def timed(points: NDArray[Any], step: int) -> Any:
        nonlocal spent
        begin = time.process_time()
        found = act(points, step)
        spent += time.process_time() - begin
        return found

    return PointRoom((OBSTACLE,)).rollout(timed, starts, steps), spent


def script_figures(config: ObstacleConfig, seed: int, first: NDArray[Any]) -> dict[str, float | None]:
    """Return the figures of the script itself on as many new episodes: what a perfect imitation comes to."""
    found, _, target = obstacle_play(config.tests, np.random.default_rng(seed), steps=config.steps)
    longest = int(found.lengths.max())
    index = np.minimum(found.starts[:, None] + np.arange(longest), (found.starts + found.lengths - 1)[:, None])
    run = Rollout(found.obs[index], found.actions[index[:, :-1]], np.zeros(len(found), bool))
    return figures_of(run, target, first)


def with_goals(act: Any, goals: NDArray[Any], seed: int) -> Any:
    """Return a policy for `PointRoom.rollout` from one over observations joined with goals."""
    return lambda points, step: act(np.concatenate([points, goals], axis=1), derive_seed(seed, step))


def in_session(session: Any, goals: NDArray[Any], seed: int) -> Any:
    """Return a policy for `PointRoom.rollout` that starts its session anew at step 0."""

    def act(points: NDArray[Any], step: int) -> Any:
        if step == 0:
            session.reset()
        return session.act(points, goals, derive_seed(seed, step))

    return act

"""The arms of Decision Diffuser's study of composed constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.control import (
    SIDES,
    Condition,
    Demonstrations,
    Expression,
    PointRoom,
    commands_met,
    side_kept,
    side_play,
    side_starts,
    train_planners,
)
from rolecraft.control import guidance as lay_out
from rolecraft.systems.control.decision_diffuser import PAIRS, plan_actor

if TYPE_CHECKING:
    from rolecraft.control import ConditionSpace, Guidance
    from rolecraft.systems.control.decision_diffuser import ComposeConfig

Row = tuple[str, int, dict[str, float], list[dict[str, Any]]]
SIDE = tuple(Condition.one_of("constraint", place, len(SIDES), name) for place, name in enumerate(SIDES))


def asked_for(arm: str, first: int, second: int) -> Expression:
    """Return what an arm asks for, given two sides."""
    if arm in ("composed", "shuffled"):
        return SIDE[first] & SIDE[second]
    if arm == "avoid":
        return SIDE[first] & ~SIDE[second]
    if arm == "contradiction":
        return SIDE[0] & SIDE[1]
    if arm == "two-hot":
        both = SIDE[first].array + SIDE[second].array
        return Condition.of("constraint", both, f"[{SIDES[first]}, {SIDES[second]}]")
    return {"first": SIDE[first], "second": SIDE[second]}.get(arm, Condition.null("constraint"))


def two_wide(asked: Sequence[Expression], space: ConditionSpace, strength: float) -> Guidance:
    """Return guidance with room for two conditions, so that one compiled sampler serves all arms."""
    found = lay_out(asked, space, len(asked), strength=strength)
    room = 2 - found.weights.shape[1]
    if not room:
        return found
    values = np.concatenate([found.values, np.zeros_like(found.values)], axis=1)
    weights = np.concatenate([found.weights, np.zeros_like(found.weights)], axis=1)
    return type(found)(values, weights)


def compose_arms(config: ComposeConfig, missing: Sequence[tuple[str, int]], folder: Path) -> Iterator[Row]:
    """Yield arm, seed, figures, and how often each command was met, for the missing rows."""
    seeds = list(dict.fromkeys(seed for _, seed in missing))
    jobs, keys = [], []
    for seed in seeds:
        rng = np.random.default_rng(derive_seed("decision-diffuser", seed, "sides"))
        data, _ = side_play(config.episodes, rng, steps=config.steps, exclusive=config.exclusive)
        assert data.labels is not None
        jobs.append(Demonstrations(data, data.labels[data.episode], "constraint"))
        jobs.append(Demonstrations(data, rng.permutation(data.labels)[data.episode], "constraint"))
        keys += [derive_seed("decision-diffuser", seed, name) for name in ("compose", "compose-shuffled")]
    planners, _ = train_planners(jobs, config.planner(), keys, folder=folder / "-".join(map(str, seeds)))
    pairs = [PAIRS[place % len(PAIRS)] for place in range(config.tests)]
    swapped = [pair[:: 1 if place // len(PAIRS) % 2 else -1] for place, pair in enumerate(pairs)]
    first, second = (np.array(column) for column in zip(*swapped, strict=True))
    for place, seed in enumerate(seeds):
        test = derive_seed("decision-diffuser", seed, "test-sides")
        starts = side_starts(config.tests, np.random.default_rng(test))
        for arm in (arm for arm, of in missing if of == seed):
            planner = planners[2 * place + (arm == "shuffled")]
            asked = [asked_for(arm, *pair) for pair in swapped]
            guide = two_wide(asked, planner.space, config.strength)
            run = PointRoom().rollout(plan_actor(planner, guide, config.replan, test), starts, config.steps)
            ends = np.stack([side_kept(run.obs[:, -1], side) for side in range(len(SIDES))], axis=1)
            one, two = ends[np.arange(len(ends)), first], ends[np.arange(len(ends)), second]
            if arm == "contradiction":
                one, two = ends[:, 0], ends[:, 1]
            met = one & ~two if arm == "avoid" else two if arm == "second" else one if arm == "first" else one & two
            figures = {
                "both": float((one & two).mean()), "first_kept": float(one.mean()),
                "second_kept": float(two.mean()), "first_only": float((one & ~two).mean()),
            }  # fmt: skip
            yield arm, seed, figures, commands_met(asked, met).rows()

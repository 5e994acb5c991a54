"""The arms of Decision Diffuser's study of returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.control import (
    Condition,
    Demonstrations,
    PointRoom,
    Trajectories,
    commanded_against_achieved,
    graded_play,
    graded_reward,
    train_planners,
)
from rolecraft.systems.control._cloning import CloningConfig, train_cloners
from rolecraft.systems.control.decision_diffuser import lasting_returns, plan_actor

if TYPE_CHECKING:
    from rolecraft.systems.control.decision_diffuser import ReturnConfig

Row = tuple[str, int, dict[str, float], list[dict[str, Any]]]


def graded_data(config: ReturnConfig, seed: int) -> tuple[Trajectories, Any, float]:
    """Return the data of a seed, the return from each step as a share of the largest (N, 1), and that largest."""
    rng = np.random.default_rng(derive_seed("decision-diffuser", seed, "data"))
    data = graded_play(config.episodes, rng, steps=config.steps, expert=config.expert)
    returns = lasting_returns(data.rewards.reshape(config.episodes, config.steps), config.discount)
    top = float(returns.max())
    return data, returns.reshape(-1, 1) / top, top


def return_arms(config: ReturnConfig, missing: Sequence[tuple[str, int]], folder: Path) -> Iterator[Row]:
    """Yield arm, seed, figures, and what was commanded beside what came, for the missing rows."""
    seeds = list(dict.fromkeys(seed for _, seed in missing))
    made = {seed: graded_data(config, seed) for seed in seeds}
    jobs, keys = [], []
    for seed in seeds:
        data, conditions, _ = made[seed]
        shuffled = np.random.default_rng(derive_seed("decision-diffuser", seed, "shuffle")).permutation(conditions)
        jobs += [Demonstrations(data, conditions, "return"), Demonstrations(data, shuffled, "return")]
        keys += [derive_seed("decision-diffuser", seed, "true"), derive_seed("decision-diffuser", seed, "shuffled")]
    planners, curves = train_planners(jobs, config.planner(), keys, folder=folder / "-".join(map(str, seeds)))
    cloned = clone(config, seeds, made)
    last = max(1, config.updates // 10)
    for place, seed in enumerate(seeds):
        test = derive_seed("decision-diffuser", seed, "test")
        starts = np.random.default_rng(test).uniform(-1, 1, (config.tests, 2)).astype(np.float32)
        data, _, top = made[seed]
        for arm in (arm for arm, of in missing if of == seed):
            level = float(arm[3:]) if arm.startswith("dd-") else config.levels[-1]
            if arm == "data":
                yield arm, seed, {"reward": float(data.rewards.mean())}, []
                continue
            if arm in cloned:
                act = cloned[arm][place]
                figures = {}
            else:
                which = 2 * place + (arm == "shuffled")
                act = plan_actor(planners[which], Condition.of("return", level), config.replan, test)
                figures = {"loss": float(curves["diffusion"][-last:, which].mean())}
            run = PointRoom().rollout(act, starts, config.steps)
            rewards = graded_reward(run.obs[:, 1:])
            came = lasting_returns(rewards, config.discount)[:, 0] / top
            report = commanded_against_achieved(np.full(len(came), level), came)
            figures |= {"reward": float(rewards.mean()), "achieved": float(came.mean()), "commanded": level}
            yield arm, seed, figures, report.rows()


def clone(config: ReturnConfig, seeds: Sequence[int], made: Any) -> dict[str, list[Any]]:
    """Train behaviour cloning on all data, on the best tenth of episodes, and with the return as an input."""
    inputs: dict[str, list[Any]] = {"bc": [], "bc-best": [], "rcbc": []}
    actions: dict[str, list[Any]] = {name: [] for name in inputs}
    for seed in seeds:
        data, conditions, _ = made[seed]
        totals = data.returns()
        best = (totals >= np.quantile(totals, 0.9))[data.episode]
        for name, x, y in (
            ("bc", data.obs, data.actions), ("bc-best", data.obs[best], data.actions[best]),
            ("rcbc", np.concatenate([data.obs, conditions], 1), data.actions),
        ):  # fmt: skip
            inputs[name].append(x)
            actions[name].append(y)
    keys = [derive_seed("decision-diffuser", seed, "clone") for seed in seeds]
    sizes = CloningConfig(updates=2 * config.updates)
    found = {name: train_cloners(inputs[name], actions[name], sizes, keys) for name in inputs}
    asked = config.levels[-1]

    def with_return(act: Any) -> Any:
        return lambda points, step: act(np.concatenate([points, np.full((len(points), 1), asked)], 1), step)

    found["rcbc"] = [with_return(act) for act in found["rcbc"]]
    return found

"""The heavy half of 051's studies: training with evaluations, and the time of one gradient step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import loop
from rolecraft._run import derive_seed
from rolecraft.control._adapters import craftax_classic
from rolecraft.control._goal_grid import goal_grid
from rolecraft.control._leo import GoalLearner, LeoConfig, LeoState, evaluate_goals, relabelled_loss
from rolecraft.systems._base import row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.systems.control.leo import CraftaxConfig, GridConfig

CURVES = "curves"
Figures = dict[str, float]


def start_all(learner: GoalLearner, method: str, seeds: Sequence[int]) -> LeoState:
    """Return the first states of several seeds, stacked."""
    keys = jnp.stack([jax.random.key(derive_seed("leo", seed, method) % 2**31) for seed in seeds])
    state: LeoState = jax.jit(jax.vmap(learner.start))(keys)
    return state


def success(found: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the success of each seed, averaged over the goals that were a trial: (n,)."""
    won, tried = np.asarray(found["successes"], float), np.asarray(found["trials"], float)
    rate = np.where(tried > 0, won / np.maximum(tried, 1), np.nan)
    found_rate: np.ndarray[Any, Any] = np.nanmean(rate, axis=-1)
    return found_rate


def train_grid(config: GridConfig, store: RunStore, arm: str, seeds: Sequence[int]) -> dict[int, Figures]:
    """Train an arm on the grid for all seeds at once; every evaluation is stored as a row of the curves.

    Checkpoints lie in the run's directory, so that a killed training goes on.
    """
    env, goals, _ = goal_grid(config.size, config.walls, length=config.length)
    learner = GoalLearner(env, goals, arm, config.learner())
    updates = config.early if arm == "relabel" else config.updates
    test = jax.jit(jax.vmap(lambda state, key: evaluate_goals(learner, state, key, config.repeats)))

    def look(done: int, state: LeoState) -> None:
        keys = jnp.stack([jax.random.key(derive_seed("leo", seed, "test", done) % 2**31) for seed in seeds])
        found = jax.device_get(test(state, keys))
        rows = zip(seeds, success(found).tolist(), found["held"].sum(-1).tolist(), strict=True)
        steps = done * learner.config.envs * learner.config.steps
        for seed, rate, held in rows:
            row = {"arm": arm, "seed": seed, "steps": steps, "success": rate, "held_at_start": held}
            store.put(CURVES, row_key(arm, seed, done), row)

    state = start_all(learner, arm, seeds)
    look(0, state)
    _, found = loop(
        jax.vmap(learner.update), state, updates=updates, chunk=config.chunk,
        folder=store.directory / "training" / f"{arm}-{'-'.join(map(str, seeds))}",
        report=lambda done, state, _: look(done, state),
    )  # fmt: skip
    curves, figures = store.rows(CURVES), dict[int, Figures]()
    for i, seed in enumerate(seeds):
        at = {"start": 0, "early": config.early} | ({"final": updates} if updates == config.updates else {})
        figures[seed] = {name: curves[row_key(arm, seed, done)]["success"] for name, done in at.items()}
        figures[seed] |= {"seen": float(found["seen"][-1, i]), "goals": len(goals)}
    return figures


def time_call(call: Callable[[], Any], least: int = 3, budget: float = 2.0) -> float:
    """Return the median seconds of a call, after one that compiles."""
    jax.device_get(call())
    taken, began = list[float](), time.perf_counter()
    while len(taken) < least or time.perf_counter() - began < budget:
        before = time.perf_counter()
        jax.device_get(call())
        taken.append(time.perf_counter() - before)
        if len(taken) >= 200:
            break
    return float(np.median(taken))


def time_kinds(config: GridConfig, seed: int) -> Figures:
    """Time the gradient of one minibatch of transitions: LEO, relabelling, LEO's loss row by row, and PQN."""
    env, goals, _ = goal_grid(config.timed_size, config.walls, length=config.length)
    keys = jax.random.split(jax.random.key(seed), 3)
    b, n = config.minibatch, len(goals)
    obs = jax.nn.one_hot(jax.random.randint(keys[0], (b,), 0, env.observations), env.observations)
    action, targets = jax.random.randint(keys[1], (b,), 0, env.actions), jax.random.uniform(keys[2], (b, n))
    every = jnp.broadcast_to(jnp.arange(n), (b, n))
    batch = {"obs": obs, "action": action, "targets": targets}
    found: Figures = {"timed_goals": n}
    for kind in ("leo", "relabel", "rows", "pqn"):
        learner = GoalLearner(env, goals, "leo" if kind == "rows" else kind, config.learner())
        params = learner.start(jax.random.key(seed)).params
        data = dict(batch)
        if kind == "relabel":
            data["goals"] = every
        if kind == "pqn":
            data |= {"goals": every[:, :1], "targets": targets[:, :1]}
        gradient = jax.jit(jax.grad(partial(relabelled_loss, learner) if kind == "rows" else learner.loss))
        found[f"ms_{kind}"] = 1e3 * time_call(partial(gradient, params, data), budget=config.timed_seconds)
    return found | {
        "ratio": found["ms_relabel"] / found["ms_leo"], "ratio_rows": found["ms_rows"] / found["ms_leo"]
    }  # fmt: skip


def train_craftax(config: CraftaxConfig, store: RunStore, arm: str, seeds: Sequence[int]) -> dict[int, Figures]:
    """Train an arm on Craftax-Classic; the folder of the run keeps checkpoints, so that a killed training goes on."""
    env, goals = craftax_classic()
    layers = 4 if config.width >= 1024 else 2
    rows = config.envs * 32
    learner = GoalLearner(env, goals, arm, LeoConfig(
        envs=config.envs, updates=config.updates, widths=(config.width,) * layers, lr=config.lr,
        minibatch=min(config.minibatch, rows), student_minibatch=min(2048, rows), resets=max(1, config.envs // 16),
    ))  # fmt: skip
    middle = config.updates // 2

    def keep(done: int, state: LeoState, _: Any) -> None:
        if done == middle:
            counts = jax.device_get(state.counts)
            for i, seed in enumerate(seeds):
                store.put(CURVES, row_key(arm, seed, done), {
                    "successes": counts.successes[i], "failures": counts.failures[i],
                })  # fmt: skip

    began = time.perf_counter()
    state, found = loop(
        jax.vmap(learner.update), start_all(learner, arm, seeds), updates=config.updates, chunk=middle, report=keep,
        folder=store.directory / "training" / f"{arm}-{'-'.join(map(str, seeds))}",
    )  # fmt: skip
    seconds = time.perf_counter() - began
    counts, halves = jax.device_get(state.counts), store.rows(CURVES)
    figures = {}
    for i, seed in enumerate(seeds):
        half = halves[row_key(arm, seed, middle)]
        won = counts.successes[i] - np.asarray(half["successes"])
        lost = counts.failures[i] - np.asarray(half["failures"])
        tried = won + lost > 0
        figures[seed] = {
            "success": float((won[tried] / (won + lost)[tried]).mean()) if tried.any() else 0.0,
            "goals_tried": int(tried.sum()), "held": int(counts.held[i].sum()), "seen": float(found["seen"][-1, i]),
            "steps": config.updates * rows, "seconds": seconds,
        }  # fmt: skip
    return figures

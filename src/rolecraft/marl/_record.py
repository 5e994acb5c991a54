"""Trainings kept in a run directory: settings, curves and weights, from which episodes are played later."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rolecraft._files import read_mapping, write_atomic
from rolecraft._jax import checkpoint_steps, load_tree, read_metrics, save_tree
from rolecraft._run import plain
from rolecraft.errors import UserError, did_you_mean
from rolecraft.marl._evaluate import Frame, Policy, render_episode
from rolecraft.marl._joint import joint_env
from rolecraft.marl._qlearn import QConfig, QLearner, QState, train_q
from rolecraft.marl._team import TeamEnv, team_env

FOLDER = "marl"
"""Folder of a run directory that holds one folder per training."""
RECORD = "marl.json"
WEIGHTS, STATE = "weights", "state"
Metrics = dict[str, np.ndarray[Any, Any]]


def train_kept(
    run: str | Path,
    name: str,
    world: str,
    config: QConfig,
    seeds: Sequence[int],
    *,
    joint: bool = False,
    chunk: int = 5,
    **kwargs: Any,
) -> Metrics:
    """Train a team and keep it in a run directory, where `rolecraft show RUN` finds it.

    A killed training goes on to the same numbers; a finished one is only read. The replay is kept while it trains.

    Args:
        run: The run directory.
        name: Of this training: the arm of a study.
        world: See `team_env`.
        config: Settings; those that are no plain values (a mixer object) cannot be kept.
        seeds: See `train_q`.
        joint: Train one agent that chooses for all; see `joint_env`.
        chunk: Tests between two checkpoints.
        **kwargs: Of the world.

    Returns:
        The metrics, (tests, seeds, ...).

    Raises:
        UserError: If the folder holds another training.
        TypeError: If a setting has no JSON form.
    """
    folder = Path(run) / FOLDER / name
    record = plain({"world": world, "kwargs": kwargs, "joint": joint, "config": config, "seeds": list(seeds)})
    path = folder / RECORD
    if path.exists() and read_mapping(path) != record:
        known = read_mapping(path)
        other = next(key for key in record if known.get(key) != record[key])
        raise UserError(f"{folder}: holds a training with another {other}: {known[other]}, asked {record[other]}.")
    write_atomic(path, json.dumps(record, indent=2) + "\n")
    if checkpoint_steps(folder, WEIGHTS)[-1:] == [config.tests] and not checkpoint_steps(folder, STATE):
        return read_metrics(folder)[1]

    def keep(done: int, state: QState, _: Metrics) -> None:
        save_tree(folder / f"{WEIGHTS}-{done:08}.safetensors", state.params)

    learner = QLearner(_world(record), config)
    _, metrics = train_q(learner, seeds, folder=folder, chunk=chunk, report=keep)
    for step in checkpoint_steps(folder, STATE):
        (folder / f"{STATE}-{step:08}.safetensors").unlink()
    return metrics


def _world(record: Mapping[str, Any]) -> TeamEnv:
    env = team_env(record["world"], **record["kwargs"])
    if not record["joint"]:
        return env
    joint: TeamEnv = joint_env(env)
    return joint


def trainings(run: str | Path) -> list[str]:
    """Return the names of the trainings that a run directory holds."""
    return sorted(path.parent.name for path in Path(run).glob(f"{FOLDER}/*/{RECORD}"))


def describe_trainings(run: str | Path) -> list[dict[str, Any]]:
    """Return the curves so far, one entry per training.

    Returns:
        `name`, `world`, `seeds`, `tests` done and `of` how many, `checkpoints`, and `curves`: `{metric: mean over
        seeds per test}` for the metrics that are one number.
    """
    found = list[dict[str, Any]]()
    for name in trainings(run):
        folder = Path(run) / FOLDER / name
        record = read_mapping(folder / RECORD)
        metrics = read_metrics(folder)[1] if checkpoint_steps(folder) else {}
        found.append(
            {
                "name": name,
                "world": record["world"],
                "seeds": record["seeds"],
                "tests": len(next(iter(metrics.values()), ())),
                "of": record["config"]["tests"],
                "checkpoints": checkpoint_steps(folder, WEIGHTS),
                "curves": {
                    key: values.astype(float).mean(1).tolist() for key, values in metrics.items() if values.ndim == 2
                },
            }
        )
    return found


def load_team(run: str | Path, name: str, checkpoint: int = -1, seed: int | None = None) -> tuple[TeamEnv, Policy]:
    """Return the world and the greedy policy of a kept training.

    Args:
        run: The run directory.
        name: Of the training.
        checkpoint: Tests after which the weights were kept; -1 is the last.
        seed: One of its seeds; None is the first.

    Raises:
        UserError: If there is no such training, checkpoint or seed; those there are, are named.
    """
    names = trainings(run)
    if name not in names:
        raise UserError(
            f"{run}: there is no training {name!r}; it has {', '.join(names) or 'none'}.{did_you_mean(name, names)}"
        )
    folder = Path(run) / FOLDER / name
    record, steps = read_mapping(folder / RECORD), checkpoint_steps(folder, WEIGHTS)
    step = steps[-1] if steps and checkpoint < 0 else checkpoint
    if step not in steps:
        there = ", ".join(map(str, steps)) or "none yet"
        raise UserError(f"{folder}: no checkpoint {checkpoint}; there are {there}, and -1 for the last.")
    seeds = record["seeds"]
    if seed is not None and seed not in seeds:
        raise UserError(f"{folder}: no seed {seed}; it was trained from {', '.join(map(str, seeds))}.")
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record["config"].items()
    }
    env = _world(record)
    learner = QLearner(env, QConfig(**settings))
    keys = jax.random.split(jax.random.PRNGKey(0), len(seeds))
    like = jax.eval_shape(lambda keys: jax.vmap(lambda key: learner.init(key).params)(keys), keys)
    params = load_tree(folder / f"{WEIGHTS}-{step:08}.safetensors", like)
    at = seeds.index(seed) if seed is not None else 0
    return env, learner.policy(jax.tree.map(lambda leaf: leaf[at], params))


def play_kept(run: str | Path, episode: str = "", checkpoint: int = -1) -> tuple[TeamEnv, list[Frame]]:
    """Play an episode with the weights of a checkpoint.

    Args:
        run: The run directory.
        episode: `NAME`, `NAME/SEED` or `NAME/SEED/EPISODE`: a training, one of its seeds, and a number that draws the
            start; empty takes the first of each.
        checkpoint: See `load_team`.

    Raises:
        UserError: If the text is none of these, or names what is not there.
    """
    name, _, rest = episode.partition("/")
    numbers = rest.split("/") if rest else []
    if len(numbers) > 2 or not all(number.isdigit() for number in numbers):
        raise UserError(f"episode {episode!r}: expected NAME, NAME/SEED or NAME/SEED/EPISODE.")
    found = trainings(run)
    if not found:
        raise UserError(f"{run}: no training of a team is kept here.")
    env, policy = load_team(run, name or found[0], checkpoint, int(numbers[0]) if numbers else None)
    return env, render_episode(env, policy, jax.random.PRNGKey(int(numbers[1]) if len(numbers) > 1 else 0))

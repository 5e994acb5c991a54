"""The trainings and matches of MADDPG's studies; the half of `maddpg.py` that needs JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import loop_kept
from rolecraft._run import derive_seed
from rolecraft.marl._ac_maddpg import SEEDS, Maddpg, MaddpgConfig, MaddpgState
from rolecraft.marl._ac_nets import init_stack
from rolecraft.marl._ac_play import Episodes, play_episodes
from rolecraft.marl._team import TeamEnv, team_env

if TYPE_CHECKING:
    from rolecraft.systems.marl.maddpg import TrainingConfig

Array = Any
SPEAKER_LISTENER = "MPE_simple_speaker_listener_v4"
TAG = "MPE_simple_tag_v3"
ADVERSARY = "MPE_simple_adversary_v3"
CHUNK = 500
"""Updates between two checkpoints, each of which holds the replay of all repetitions."""


def key_of(*parts: Any) -> Array:
    """Return the random key of a named thing."""
    return jax.random.PRNGKey(derive_seed("maddpg", *parts) % 2**32)


def make(config: TrainingConfig, world: str, ensemble: int = 1) -> Maddpg:
    """Return the learner of a study in a world of the particle environments."""
    kind = {} if config.discrete else {"action_type": "Continuous"}
    env: TeamEnv = team_env(world, **kind)
    settings = MaddpgConfig(
        hidden=config.hidden, lr=config.lr, batch=config.batch, envs=config.envs, steps=config.steps,
        capacity=config.capacity, warmup=config.warmup, temperature=config.temperature,
        relaxed=not config.discrete, low=0.0, high=1.0, ensemble=ensemble, infer=config.infer,
    )  # fmt: skip
    return Maddpg(env, settings)


def train(
    learner: Maddpg, updates: int, names: Sequence[tuple[Any, ...]], local: Sequence[bool], folder: Path
) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """Train several repetitions at once; a killed training goes on to the same numbers, a finished one is read.

    Args:
        learner: From `make`.
        updates: Of the networks.
        names: What each repetition's key derives from, R in all.
        local: Whether the critics of each see their own agent alone, R in all.
        folder: For checkpoints, and for the actors and figures in the end.

    Returns:
        The actors, leaves (R, n, K, ...), and the figures, each (updates, R, n) or (updates, R).

    Raises:
        Diverged: If a loss is not finite.
    """

    def start() -> MaddpgState:
        keys = jnp.stack([key_of(*name) for name in names])
        sees = jnp.stack([learner.sees(alone) for alone in local])
        state: MaddpgState = jax.jit(jax.vmap(learner.init, out_axes=SEEDS))(keys, sees)
        return state

    return loop_kept(
        jax.vmap(learner.update, in_axes=(SEEDS,), out_axes=(SEEDS, 0)), start, lambda state: state.weights.actor,
        updates=updates, chunk=min(CHUNK, updates), folder=folder,
        identity={"world": learner.env.name, "config": learner.config, "names": names, "local": local},
    )  # fmt: skip


def evaluate(learner: Maddpg, actors: Any, key: Array, episodes: int, swapped: int | None = None) -> Episodes:
    """Play episodes without exploration; each agent draws its sub-policy for each episode.

    Args:
        learner: From `make`.
        actors: Of one team, leaves (n, K, ...); agents may come from different trainings.
        key: Random key.
        episodes: Number of them.
        swapped: An agent whose actions are those of the next episode's.
    """
    k_sub, k_play = jax.random.split(key)
    sub = jax.random.randint(k_sub, (episodes, learner.agents), 0, learner.config.ensemble)

    def policy(obs: Array, avail: Array, _: Array) -> Array:
        chosen = learner.act(actors, obs, avail, sub)
        if swapped is not None:
            chosen = chosen.at[:, swapped].set(jnp.roll(chosen[:, swapped], 1, axis=0))
        return learner.send(chosen)

    return play_episodes(learner.env, policy, k_play, episodes)


def evaluator(learner: Maddpg, episodes: int, swapped: int | None = None) -> Callable[[Any, Array], Episodes]:
    """Return `evaluate` of a number of episodes, compiled once for all teams: (actors, key) -> Episodes."""
    return jax.jit(lambda actors, key: evaluate(learner, actors, key, episodes, swapped))


def untrained(learner: Maddpg) -> Any:
    """Return the actors of a team that learned nothing, leaves (n, K, ...)."""
    return init_stack(
        learner.actor, key_of("untrained"), (learner.agents, learner.config.ensemble), learner.env.obs_size
    )


def repeated(actors: Any, times: int) -> Any:
    """Return actors of one sub-policy each, (n, 1, ...), as ensembles of equals, (n, times, ...)."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, times, axis=1), actors)


def one_of(actors: Any, index: int) -> Any:
    """Return the actors of one repetition."""
    return jax.tree.map(lambda leaf: leaf[index], actors)


def mixed(agents: Sequence[bool], first: Any, second: Any) -> Any:
    """Return a team with the agents marked true from `first` and the others from `second`; leaves (n, K, ...)."""
    mask = jnp.array(agents)
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *([1] * (a.ndim - 1))), a, b), first, second)


def listener_distances(played: Episodes) -> np.ndarray[Any, Any]:
    """Return how far each episode of speaker-listener ended from its landmark, (E,).

    The speaker sees the target's colour, the listener where the landmarks are from itself (components 2 to 7).
    """
    target = np.asarray(played.last_obs[:, 0, :3]).argmax(1)
    landmarks = np.asarray(played.last_obs[:, 1, 2:8]).reshape(-1, 3, 2)
    found: np.ndarray[Any, Any] = np.linalg.norm(landmarks[np.arange(len(target)), target], axis=1)
    return found


def nearest_landmark(played: Episodes) -> np.ndarray[Any, Any]:
    """Return whether each episode of speaker-listener ended with the target as the nearest landmark, (E,)."""
    target = np.asarray(played.last_obs[:, 0, :3]).argmax(1)
    landmarks = np.asarray(played.last_obs[:, 1, 2:8]).reshape(-1, 3, 2)
    found: np.ndarray[Any, Any] = np.linalg.norm(landmarks, axis=2).argmin(1) == target
    return found

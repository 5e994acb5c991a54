"""Other people's environments as array environments: Gymnasium's tables, Craftax-Classic with its goals, Brax."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.control._array_env import ArrayEnv
from rolecraft.control._goals import GoalSet, mask_goals
from rolecraft.control.tabular import Mdp, from_gymnasium
from rolecraft.errors import MissingDependencyError, UserError

Array = jax.Array
VIEW = (7, 9)
"""Rows and columns that a player of Craftax-Classic sees."""
BLOCKS, MOBS, ITEMS, COUNTS = 17, 4, 12, 10
MATERIALS = ("wood", "stone", "coal", "iron", "diamond", "sapling")
TOOLS = ("wood_pickaxe", "stone_pickaxe", "iron_pickaxe", "wood_sword", "stone_sword", "iron_sword")
MOB_NAMES = ("zombie", "cow", "skeleton", "arrow")
SIDES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}


def mdp_env(mdp: Mdp, length: int, name: str = "mdp") -> tuple[ArrayEnv, GoalSet]:
    """Make a finite MDP an array environment with one-hot observations (S,), whose goals are its states.

    Raises:
        UserError: If the MDP is a stack.
    """
    if mdp.lead:
        raise UserError(f"expected one MDP, got a stack with leading axes {mdp.lead}.")
    moves, start = jnp.log(jnp.asarray(mdp.transitions)), jnp.log(jnp.asarray(mdp.start))
    rewards, over = jnp.asarray(mdp.rewards), jnp.asarray(mdp.absorbing)

    def observe(state: Array) -> Array:
        return jax.nn.one_hot(state, mdp.states)

    def reset(key: Array) -> tuple[tuple[Array, Array], Array]:
        state = jax.random.categorical(key, start).astype(jnp.int32)
        return (state, jnp.zeros((), jnp.int32)), observe(state)

    def step(key: Array, state: tuple[Array, Array], action: Array) -> tuple[tuple[Array, Array], Array, Array, Array]:
        cell, steps = state
        to = jax.random.categorical(key, moves[cell, action]).astype(jnp.int32)
        return (to, steps + 1), observe(to), rewards[cell, action], over[to] | (steps + 1 >= length)

    goals = mask_goals(np.eye(mdp.states), [f"state_{state}" for state in range(mdp.states)])
    return ArrayEnv(name, reset, step, mdp.states, mdp.actions, length), goals


def gymnasium_env(env: Any, length: int = 100, **options: Any) -> tuple[ArrayEnv, GoalSet]:
    """Make a Gymnasium environment with a table (FrozenLake, Taxi, CliffWalking) an array environment.

    Args:
        env: A registered name or an environment.
        length: Steps after which an episode ends.
        **options: Passed to `gymnasium.make` with a name.

    Raises:
        MissingDependencyError: If gymnasium is not installed.
        UserError: If the environment is unknown or has no table.
    """
    return mdp_env(from_gymnasium(env, **options), length, str(env))


def craftax_classic() -> tuple[ArrayEnv, GoalSet]:
    """Make Craftax-Classic with symbolic observations, and the 136 goals of arXiv 2605.23551.

    The observation (1453,) is the map (7 * 9 * 21: blocks and mobs), the inventory as one-hot counts (12 * 10, where
    the original has one number each, so that a count can be a goal), and the rest (10). Goals: 54 counts of materials,
    6 tools (one or more), 60 blocks and 16 mobs beside the player.

    Raises:
        MissingDependencyError: If craftax is not installed.
    """
    try:
        from craftax.craftax_env import make_craftax_env_from_name
    except ModuleNotFoundError:
        raise MissingDependencyError("craftax_classic needs craftax: pip install craftax.") from None
    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    params = env.default_params
    cells = VIEW[0] * VIEW[1] * (BLOCKS + MOBS)

    def observe(obs: Array) -> Array:
        counts = jnp.round(obs[cells : cells + ITEMS] * 10).astype(jnp.int32)
        held = jax.nn.one_hot(counts, COUNTS).reshape(-1)
        return jnp.concatenate([obs[:cells], held, obs[cells + ITEMS :]]).astype(jnp.float32)

    def reset(key: Array) -> tuple[Any, Array]:
        obs, state = env.reset_env(key, params)
        return state, observe(obs)

    def step(key: Array, state: Any, action: Array) -> tuple[Any, Array, Array, Array]:
        obs, state, reward, done, _ = env.step_env(key, state, action, params)
        return state, observe(obs), jnp.asarray(reward, jnp.float32), done

    size = cells + ITEMS * COUNTS + 10
    masks, names = _craftax_goals(size, cells)
    length = int(params.max_timesteps)
    return ArrayEnv("craftax-classic", reset, step, size, env.num_actions, length), mask_goals(masks, names)


def _craftax_goals(size: int, cells: int) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Return masks (136, size) and names."""
    from craftax.craftax_classic.constants import BlockType

    ones: dict[str, list[int]] = {}
    for i, item in enumerate((*MATERIALS, *TOOLS)):
        at = cells + i * COUNTS
        if item in TOOLS:
            ones[f"tools/{item}"] = list(range(at + 1, at + COUNTS))
        else:
            ones |= {f"inventory/{item}_{n}": [at + n] for n in range(1, COUNTS)}
    beside = {
        side: ((VIEW[0] // 2 + dy) * VIEW[1] + VIEW[1] // 2 + dx) * (BLOCKS + MOBS) for side, (dy, dx) in SIDES.items()
    }
    blocks = [block for block in BlockType if block.name not in ("INVALID", "WOOD")]
    things = [(f"block/{block.name.lower()}", block.value) for block in blocks]
    things += [(f"mob/{mob}", BLOCKS + i) for i, mob in enumerate(MOB_NAMES)]
    ones |= {f"{name}_{side}": [at + channel] for name, channel in things for side, at in beside.items()}
    masks = np.zeros((len(ones), size), np.float32)
    for row, places in enumerate(ones.values()):
        masks[row, places] = 1
    return masks, list(ones)


def brax_env(env: Any, table: Any, length: int = 1000) -> ArrayEnv:
    """Make a Brax (or JaxGCRL) environment an array environment with numbered actions.

    Args:
        env: A Brax environment without an episode or auto-reset wrapper: `reset(key)` and `step(state, action)` return
            states with `obs`, `reward` and `done`.
        table: The continuous action of each number, (A, action size), within the environment's range.
        length: Steps after which an episode ends.

    Raises:
        UserError: If the environment lacks an attribute, or the table does not fit.
    """
    missing = [name for name in ("reset", "step", "observation_size", "action_size") if not hasattr(env, name)]
    if missing:
        raise UserError(f"{type(env).__name__} has no {missing[0]!r}; expected a Brax environment.")
    actions = jnp.asarray(table, jnp.float32)
    if actions.ndim != 2 or actions.shape[1] != env.action_size:
        raise UserError(f"table: expected (A, action size) = (A, {env.action_size}), got {actions.shape}.")

    def reset(key: Array) -> tuple[tuple[Any, Array], Array]:
        state = env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), state.obs

    def step(key: Array, state: tuple[Any, Array], action: Array) -> tuple[tuple[Any, Array], Array, Array, Array]:
        after, steps = env.step(state[0], actions[action]), state[1] + 1
        return (after, steps), after.obs, jnp.asarray(after.reward), (after.done > 0.5) | (steps >= length)

    return ArrayEnv(type(env).__name__, reset, step, int(env.observation_size), len(actions), length)

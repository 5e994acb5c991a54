"""Playing with a finished policy: returns, who did the work, and episodes to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.marl._team import Step, TeamEnv


class Policy(NamedTuple):
    """A team's policy for one world, as pure functions; every method here makes one."""

    start: Callable[[jax.Array], Any]
    """`start(key) -> carry`: what the team remembers at the start of an episode."""
    act: Callable[[Any, Step, jax.Array], tuple[Any, jax.Array, dict[str, Any]]]
    """`act(carry, step, key) -> (carry, actions, notes)`; notes are arrays to be shown, such as values or roles."""


class Played(NamedTuple):
    """What came out of E episodes of n agents."""

    returns: jax.Array
    """(E,): sum of all agents' rewards."""
    agent_returns: jax.Array
    """(E, n)"""
    events: jax.Array
    """(E, n): how often each agent caused reward; zeros where the world does not say."""
    length: jax.Array
    """(E,): steps."""


def evaluate(env: TeamEnv, policy: Policy, key: jax.Array, episodes: int) -> Played:
    """Play whole episodes from the start; a pure function that may be jitted.

    Args:
        env: The world.
        policy: Who plays.
        key: Decides starts, chance and the policy's draws.
        episodes: E, played side by side.
    """
    return jax.vmap(lambda key: _play(env, policy, key))(jax.random.split(key, episodes))


def _play(env: TeamEnv, policy: Policy, key: jax.Array) -> Played:
    begin, own, rest = jax.random.split(key, 3)
    state, step = env.reset(begin)

    def move(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        state, step, memory, alive, played = carry
        act, world = jax.random.split(key)
        memory, actions, _ = policy.act(memory, step, act)
        state, step = env.step(world, state, actions)
        own = agent_reward(step)
        new = Played(own.sum(), own, step.info.get("events", jnp.zeros_like(own)), jnp.float32(1))
        played = jax.tree.map(lambda total, part: total + alive * part, played, new)
        return (state, step, memory, alive * (1.0 - step.done), played), None

    own_zero = jnp.zeros_like(agent_reward(step))
    zero = Played(jnp.float32(0), own_zero, jnp.zeros_like(step.info.get("events", own_zero)), jnp.float32(0))
    first = (state, step, policy.start(own), jnp.float32(1), zero)
    (*_, played), _ = jax.lax.scan(move, first, jax.random.split(rest, env.horizon))
    found: Played = played
    return found


def agent_reward(step: Step) -> jax.Array:
    """Return each agent's own reward, (n,), also where a world was joined into one agent."""
    own: jax.Array = step.info.get("agent_reward", step.reward)
    return own


def lazy_agent_index(events: jax.Array) -> jax.Array:
    """Return the smallest share that one agent has in the events that cause reward.

    Args:
        events: (..., E, n), counts per episode and agent.

    Returns:
        (...): from 0 (an agent does nothing, or nobody does) to 1 / n (all do as much).
    """
    total = events.sum(-2)
    whole = total.sum(-1)
    return jnp.where(whole > 0, total.min(-1) / jnp.maximum(whole, 1e-9), 0.0)


@dataclass(frozen=True)
class Frame:
    """One step of an episode, to be looked at."""

    picture: str
    """In letters."""
    actions: list[Any] = field(default_factory=list)
    """What was done after it; empty in the last frame."""
    rewards: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """What the policy noted."""


def render_episode(env: TeamEnv, policy: Policy, key: jax.Array) -> list[Frame]:
    """Play one episode and return a frame per step, the last one before the world starts anew."""
    from rolecraft.marl._show import render_state

    begin, own, key = jax.random.split(key, 3)
    state, step = env.reset(begin)
    memory, frames = policy.start(own), list[Frame]()
    act, move = jax.jit(policy.act), jax.jit(env.step)
    split = getattr(env, "split", None)  # of a joined world: what each member does
    for _ in range(env.horizon):
        key, now, later = jax.random.split(key, 3)
        picture = render_state(env, state)
        memory, actions, notes = act(memory, step, now)
        state, step = move(later, state, actions)
        frames.append(
            Frame(
                picture,
                np.asarray(split(actions[0]) if split else actions).tolist(),
                np.asarray(agent_reward(step)).tolist(),
                {name: np.asarray(value).tolist() for name, value in notes.items()},
            )
        )
        if bool(step.done):
            break
    return frames

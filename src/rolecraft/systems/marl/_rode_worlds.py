"""Tiny worlds for RODE: actions with planted effects, and a line of targets that any number of agents may attack."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.marl import Moment, Moved, Step, TeamWorld

LOOK = 4
"""Numbers in an observation of `Skirmish`."""
STAY, LEFT, RIGHT = range(3)
MOVES = 3


class PlantedEffects(TeamWorld):
    """Actions come in groups: all actions of a group do the same.

    An agent's state is one number per group. Each step they fall to half, and the number of the action's group rises by
    one. The last group's actions are worth 1 / n as well.

    Args:
        groups: G.
        each: Actions per group; action a is of group a // each.
        agents: n.
        noise: Standard deviation of what is seen.
        horizon: Steps.
    """

    team_reward = True

    def __init__(self, groups: int = 3, each: int = 3, agents: int = 2, noise: float = 0.1, horizon: int = 16) -> None:
        self.groups, self.each, self.noise = groups, each, noise
        names = [f"agent_{i}" for i in range(agents)]
        super().__init__(
            "planted", names, ["agent"] * agents, obs_size=groups, actions=groups * each, world_size=groups * agents,
            horizon=horizon,
        )  # fmt: skip

    def start(self, key: jax.Array) -> Any:
        """Return numbers at random, and what is seen of them."""
        return self._read(key, jax.random.uniform(key, (len(self.agents), self.groups)))

    def _read(self, key: jax.Array, level: jax.Array) -> Any:
        return level, level + self.noise * jax.random.normal(key, level.shape)

    def move(self, key: jax.Array, state: Any, actions: jax.Array) -> Moved:
        """Let the numbers fall, and those of the actions' groups rise."""
        group = actions // self.each
        level = 0.5 * state[0] + jax.nn.one_hot(group, self.groups)
        reward = (group == self.groups - 1) / len(self.agents)
        return Moved(self._read(key, level), reward.astype(jnp.float32), jnp.zeros((), bool), {})

    def look(self, state: Any) -> Moment:
        """Return the noisy numbers; everything may be done."""
        return Moment(state[1], jnp.ones((len(self.agents), self.actions), bool), state[0].ravel())


class SkirmishState(NamedTuple):
    """Where everything is on the line."""

    place: jax.Array
    """(n,), of the agents."""
    target: jax.Array
    """(m,), of the targets, which stand still."""
    health: jax.Array
    """(m,)"""


class Skirmish(TeamWorld):
    """Agents on a line hit all targets twice: `stay`, `left`, `right`, then one attack per target within reach.

    Damage is worth 1 in all, the last hit 1 more. What an agent sees does not depend on how many agents and targets
    there are, so that a policy may be taken to a larger team: its place, the way to the nearest living target, whether
    that is within reach, and the health left in all.

    Args:
        agents: n.
        targets: m.
        length: Cells of the line.
        reach: Cells from which a target can be attacked.
        toughness: Hits that a target takes.
        horizon: Most steps.
    """

    team_reward = True

    def __init__(
        self, agents: int = 3, targets: int = 3, length: int = 12, reach: int = 1, toughness: int = 2,
        horizon: int = 20,
    ) -> None:  # fmt: skip
        self.length, self.reach, self.toughness, self.targets = length, reach, toughness, targets
        names = [f"agent_{i}" for i in range(agents)]
        super().__init__(
            "skirmish", names, ["agent"] * agents, obs_size=LOOK, actions=MOVES + targets,
            world_size=agents + 2 * targets, horizon=horizon,
        )  # fmt: skip

    def start(self, key: jax.Array) -> SkirmishState:
        """Put all anywhere."""
        one, two = jax.random.split(key)
        place = jax.random.randint(one, (len(self.agents),), 0, self.length)
        target = jax.random.randint(two, (self.targets,), 0, self.length)
        return SkirmishState(place, target, jnp.full(self.targets, self.toughness))

    def near(self, state: SkirmishState) -> jax.Array:
        """Return which living targets each agent reaches, (n, m)."""
        gap = jnp.abs(state.place[:, None] - state.target)
        return (gap <= self.reach) & (state.health > 0)

    def move(self, key: jax.Array, state: SkirmishState, actions: jax.Array) -> Moved:
        """Move and hit; hits on a target that has fallen are lost."""
        place = jnp.clip(
            state.place + (actions == RIGHT).astype(jnp.int32) - (actions == LEFT).astype(jnp.int32), 0, self.length - 1
        )
        hits = (jax.nn.one_hot(actions - MOVES, self.targets, dtype=jnp.int32) * self.near(state)).sum(0)
        health = jnp.maximum(state.health - hits, 0)
        won = (health == 0).all()
        damage = (state.health - health).sum() / (self.targets * self.toughness)
        n = len(self.agents)
        reward = jnp.full(n, (damage + won) / n, jnp.float32)
        return Moved(SkirmishState(place, state.target, health), reward, won, {"events": jnp.full(n, won, jnp.float32)})

    def look(self, state: SkirmishState) -> Moment:
        """Return what each agent sees, what it can do, and the whole line."""
        way = state.target - state.place[:, None]
        far = jnp.where(state.health > 0, jnp.abs(way), self.length + 1)
        nearest = jnp.take_along_axis(way, far.argmin(1)[:, None], 1)[:, 0]
        left = state.health.sum() / (self.targets * self.toughness)
        near = self.near(state)
        n = len(self.agents)
        seen = [
            state.place / self.length,
            jnp.where(left > 0, nearest, 0) / self.length,
            near.any(1),
            jnp.full(n, left),
        ]
        obs = jnp.stack([part.astype(jnp.float32) for part in seen], -1)
        avail = jnp.concatenate([jnp.ones((n, MOVES), bool), near], 1)
        world = jnp.concatenate(
            [state.place / self.length, state.target / self.length, state.health / self.toughness]
        ).astype(jnp.float32)
        return Moment(obs, avail, world)

    def render(self, state: Any) -> str:
        """Return the line: targets by their health, agents below them by letter."""
        inner = jax.device_get(state.inner)
        above, below = ["."] * self.length, ["."] * self.length
        for where, health in zip(inner.target, inner.health, strict=True):
            above[where] = str(int(health))
        for i, where in reversed(list(enumerate(inner.place))):
            below[where] = chr(ord("A") + i % 26)
        return "".join(above) + "\n" + "".join(below)


class Won:
    """A map of SMAX whose events say who won: each agent's is 1 at the step that wins.

    Damage is worth at most 1 in all and the win 1 more, so that a reward above 1 is a win. The agents' equal rewards
    become parts of the team's. In the whole state, places are given as parts of the map, as in StarCraft: mixers whose
    weights are made from raw ones (0 to 32) do not settle.
    """

    def __init__(self, env: Any) -> None:
        self.inner = env
        smax = env.env
        unit = np.ones((len(env.agents) + smax.num_enemies, len(smax.own_features)))
        unit[:, 1:3] = 1 / np.array([smax.map_width, smax.map_height])
        self._scale = np.concatenate([unit.ravel(), np.ones(env.world_size - unit.size)]).astype(np.float32)
        self.name, self.agents, self.roles = env.name, env.agents, env.roles
        self.obs_size, self.actions, self.world_size = env.obs_size, env.actions, env.world_size
        self.horizon, self.discrete, self.action_size = env.horizon, env.discrete, env.action_size
        self.team_reward = True

    def reset(self, key: jax.Array) -> tuple[Any, Step]:
        """Start an episode; see `TeamEnv`."""
        state, step = self.inner.reset(key)
        return state, self._seen(step)

    def step(self, key: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Take a joint action; see `TeamEnv`."""
        state, step = self.inner.step(key, state, actions)
        return state, self._seen(step)

    def _seen(self, step: Step) -> Step:
        won = (step.reward > 1).astype(jnp.float32)
        reward = step.reward / len(self.agents)
        return step._replace(world=step.world * self._scale, reward=reward, info=step.info | {"events": won})

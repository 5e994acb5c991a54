"""Agents that act when they are ready: a world under a clock of events."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._world import World


class Asynchronous(World):
    """A world in which each agent acts at its own pace.

    Time goes in ticks. After an act an agent is ready again after a geometric number of ticks with mean `pace`, drawn
    from the episode's seed, the agent and the number of its acts alone. At the first tick at which one of those whose
    turn it may be is ready, all of them that are ready act; the rest are not asked, and do nothing, which is the empty
    action. Those who choose among legal actions at once wait for the last of them. Where one agent acts at a time, its
    pace decides when, not whether.
    """

    def __init__(self, world: World, pace: float | Mapping[str, float] = 2.0) -> None:
        """Put a world under a clock.

        Args:
            world: Its rules stay as they are.
            pace: Mean ticks from one act of an agent to its next, 1 or more; of all agents, or by agent (others: 1).

        Raises:
            UserError: If a pace is below 1 or not finite, or of an agent that the world has not.
        """
        self.name, self.agents, self.actions, self.world = world.name, world.agents, world.actions, world  # type: ignore[misc]
        given = dict.fromkeys(world.agents, pace) if isinstance(pace, int | float) else dict(pace)
        for agent, mean in given.items():
            if agent not in world.agents:
                raise UserError(
                    f"pace: {world.name} has no agent {agent!r} (agents: {', '.join(world.agents)})."
                    + did_you_mean(agent, world.agents)
                )
            if not (math.isfinite(mean) and mean >= 1):
                raise UserError(f"pace: the mean of {agent} must be 1 tick or more, got {mean}.")
        self.pace = {agent: float(given.get(agent, 1.0)) for agent in world.agents}

    def reset(self, seed: int) -> None:
        """Start an episode; nobody need be ready at tick 0."""
        self.world.reset(seed)
        self._seed, self.time = seed, 0
        self._acts = dict.fromkeys(self.agents, 0)
        self._ready = {agent: self._delay(agent) - 1 for agent in self.agents}
        self._tick()

    @property
    def acting(self) -> tuple[str, ...]:
        """Who is ready, of those whose turn it may be."""
        if self._jointly:
            return self.world.acting
        return tuple(agent for agent in self.world.acting if self._ready[agent] <= self.time)

    def observe(self, agent: str) -> str:
        """Return what the world shows."""
        return self.world.observe(agent)

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return what the world allows, and nothing to those who are not ready."""
        return self.world.legal(agent) if agent in self.acting else ()

    def check(self, agent: str, action: str) -> None:
        """Refuse what the world refuses.

        Raises:
            IllegalActionError: Naming what would be legal.
        """
        if agent in self.acting:
            self.world.check(agent, action)
        else:
            super().check(agent, action)

    def state(self) -> Mapping[str, Any]:
        """Return the world's state, the tick, and when everyone is ready."""
        return {"world": self.world.state(), "time": self.time, "ready": dict(self._ready), "acts": dict(self._acts)}

    def rewards(self) -> Mapping[str, float]:
        """Return what the world pays."""
        return self.world.rewards()

    def outcome(self) -> Mapping[str, Any]:
        """Return the world's outcome, and how many ticks it took."""
        return {**self.world.outcome(), "ticks": self.time}

    def _apply(self, actions: Mapping[str, str]) -> None:
        waiting = [agent for agent in self.world.acting if agent not in actions]
        self.world.act({**dict.fromkeys(waiting, ""), **actions})
        for agent in actions:
            self._acts[agent] += 1
            self._ready[agent] = self.time + self._delay(agent)
        self._tick()

    def _tick(self) -> None:
        """Go on to the first tick at which somebody can act."""
        self._jointly = len(self.world.acting) > 1 and any(
            self.world.legal(agent) is not None for agent in self.world.acting
        )
        if self.world.acting:
            ready = [self._ready[agent] for agent in self.world.acting]
            self.time = max(self.time, max(ready) if self._jointly else min(ready))

    def _delay(self, agent: str) -> int:
        rng = np.random.default_rng(derive_seed(self._seed, "pace", agent, self._acts[agent]))
        return int(rng.geometric(1 / self.pace[agent]))

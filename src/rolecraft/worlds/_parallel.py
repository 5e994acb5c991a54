"""A world as PettingZoo's parallel API sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from pettingzoo.utils.env import ParallelEnv

from rolecraft._run import derive_seed
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds._spaces import WorldSpaces, start
from rolecraft.worlds._world import World

OnIllegalIndex = Literal["raise", "random"]
Stepped = tuple[
    dict[str, dict[str, Any]], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]


class ParallelWorldEnv(ParallelEnv[str, dict[str, Any], int]):  # type: ignore[misc]  # PettingZoo is not typed
    """A world of choices through PettingZoo's parallel API.

    Every agent acts in every step. Actions are indices into `world.actions`; the index after the last stands for doing
    nothing. An agent whose turn it is not may only do nothing, says its mask; whatever it sends, or that it sends
    nothing, is passed over, as in PettingZoo's own conversion of turn games. So a world where agents act in turn works
    too, one agent's choice a step. Observations are those of `WorldEnv`, with one more place in the mask. An agent's
    info holds `acting`, whether its choice will count in the coming step, and `illegal`, whether its last one was
    replaced.

    Args:
        world: Owned by the environment from now on.
        longest: Most bytes of an observation; longer ones lose their beginning.
        steps: Most steps of the world, after which all agents are truncated.
        on_illegal: What follows a choice that the mask forbids: `IllegalActionError`, with nothing changed; or a
            random legal one in its place, drawn from the seed, the agent and the step, which its info then tells.

    Raises:
        UserError: If the world's actions are free text, or `on_illegal` is unknown.
    """

    def __init__(
        self, world: World, longest: int = 8192, steps: int = 1000, on_illegal: OnIllegalIndex = "raise"
    ) -> None:
        super().__init__()
        if on_illegal not in get_args(OnIllegalIndex):
            raise UserError(f"on_illegal must be 'raise' or 'random', got {on_illegal!r}.")
        self.world, self._limit, self._on_illegal = world, steps, on_illegal
        self._spaces = WorldSpaces(world, longest, idle=True)
        self.metadata = {"name": f"{world.name}_v0", "render_modes": ["ansi"]}
        self.render_mode = "ansi"
        self.possible_agents = list(world.agents)
        self.agents: list[str] = []

    @property
    def idle(self) -> int:
        """The action of doing nothing."""
        return len(self._spaces.names)

    def observation_space(self, agent: str) -> gymnasium.spaces.Space[dict[str, Any]]:
        """Return the space of an agent's observations."""
        return self._spaces.observations[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
        """Return the space of an agent's actions."""
        return self._spaces.actions[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Start an episode; without a seed, with one drawn from the operating system."""
        self._seed = start(self.world, seed)
        self.agents = list(self.possible_agents)
        self._steps = 0
        self._paid = dict(self.world.rewards())
        return self._observations(), self._infos()

    def step(self, actions: Mapping[str, int]) -> Stepped:
        """Let all agents act at once.

        Raises:
            IllegalActionError: If an agent whose turn it is sends nothing, or, unless `on_illegal` is "random", what
                it may not do.
        """
        if not self.agents:
            return {}, {}, {}, {}, {}
        chosen = {agent: self._choice(agent, actions[agent]) for agent in self.world.acting if agent in actions}
        self.world.act({agent: action for agent, (action, _) in chosen.items()})
        replaced = {agent for agent, (_, illegal) in chosen.items() if illegal}
        self._steps += 1
        earned = self.world.rewards()
        rewards = {agent: float(earned[agent] - self._paid[agent]) for agent in self.agents}
        self._paid = dict(earned)
        over = not self.world.acting
        ended = dict.fromkeys(self.agents, over)
        stopped = dict.fromkeys(self.agents, not over and self._steps >= self._limit)
        seen = self._observations(), rewards, ended, stopped, self._infos(replaced)
        if over or self._steps >= self._limit:
            self.agents = []
        return seen

    def render(self) -> str:
        """Return what every agent sees."""
        return "\n\n".join(f"{agent}:\n{self.world.observe(agent)}" for agent in self.possible_agents)

    def close(self) -> None:
        """Release nothing: a world holds nothing outside itself."""

    def _choice(self, agent: str, index: int) -> tuple[str, bool]:
        """Return what an agent does, and whether it stands in for something illegal."""
        try:
            name = self._spaces.name_of(agent, index)
            self.world.check(agent, name)
            return name, False
        except IllegalActionError:
            if self._on_illegal == "raise":
                raise
        legal = self.world.legal(agent) or ()
        rng = np.random.default_rng(derive_seed(self._seed, agent, self._steps, "fallback"))
        return legal[int(rng.integers(len(legal)))], True

    def _observations(self) -> dict[str, dict[str, Any]]:
        return {agent: self._spaces.observe(agent) for agent in self.agents}

    def _infos(self, replaced: set[str] | None = None) -> dict[str, dict[str, Any]]:
        acting = self.world.acting
        return {agent: {"acting": agent in acting, "illegal": agent in (replaced or ())} for agent in self.agents}

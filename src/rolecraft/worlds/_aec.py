"""A world as PettingZoo sees it."""

from __future__ import annotations

from typing import Any

import gymnasium
from pettingzoo.utils.env import AECEnv

from rolecraft.worlds._spaces import WorldSpaces, start
from rolecraft.worlds._world import World


class WorldEnv(AECEnv[str, dict[str, Any], int]):  # type: ignore[misc]  # PettingZoo is not typed
    """A world of choices through PettingZoo's agent-environment-cycle API.

    Actions are indices into `world.actions`. An observation is a dict of `observation`, uint8 of shape (longest,), the
    text as UTF-8 padded with zeros, which `text_of` reads; and `action_mask`, int8 of shape (actions,). Agents that act
    at once are asked one after another and see nothing of each other's choice. An illegal action raises
    `IllegalActionError` and changes nothing; PettingZoo's `TerminateIllegalWrapper` makes it a loss.

    Args:
        world: Owned by the environment from now on.
        longest: Most bytes of an observation; longer ones lose their beginning.
        steps: Most steps of the world, after which all agents are truncated.

    Raises:
        UserError: If the world's actions are free text.
    """

    def __init__(self, world: World, longest: int = 8192, steps: int = 1000) -> None:
        super().__init__()
        self.world, self._limit = world, steps
        self._spaces = WorldSpaces(world, longest)
        self.metadata = {"name": f"{world.name}_v0", "render_modes": ["ansi"], "is_parallelizable": False}
        self.render_mode = "ansi"
        self.possible_agents = list(world.agents)
        self.observation_spaces, self.action_spaces = self._spaces.observations, self._spaces.actions

    def observation_space(self, agent: str) -> gymnasium.spaces.Space[dict[str, Any]]:
        """Return the space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
        """Return the space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; without a seed, with one drawn from the operating system."""
        start(self.world, seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._chosen: dict[str, str] = {}
        self._steps = 0
        self._paid = dict(self.world.rewards())
        self.agent_selection = self.world.acting[0]

    def observe(self, agent: str) -> dict[str, Any]:
        """Return what an agent sees, and which actions it may take now."""
        return self._spaces.observe(agent, self._chosen)

    def step(self, action: int | None) -> None:
        """Let the selected agent act.

        Raises:
            IllegalActionError: If it may not do that.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        assert action is not None
        name = self._spaces.name_of(agent, action)
        self.world.check(agent, name)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._chosen[agent] = name
        waiting = [other for other in self.world.acting if other not in self._chosen]
        if not waiting:
            self._advance()
            waiting = list(self.world.acting)
        if waiting and not any(self.truncations.values()):
            self.agent_selection = waiting[0]
        self._accumulate_rewards()
        self._deads_step_first()

    def render(self) -> str:
        """Return what the selected agent sees."""
        return self.world.observe(self.agent_selection)

    def close(self) -> None:
        """Release nothing: a world holds nothing outside itself."""

    def _advance(self) -> None:
        """Pass everybody's choice to the world, and hand out what it pays."""
        self.world.act(self._chosen)
        self._chosen = {}
        self._steps += 1
        earned = self.world.rewards()
        self.rewards = {agent: float(earned[agent] - self._paid[agent]) for agent in self.agents}
        self._paid = dict(earned)
        over = not self.world.acting
        self.terminations = dict.fromkeys(self.agents, over)
        self.truncations = dict.fromkeys(self.agents, not over and self._steps >= self._limit)

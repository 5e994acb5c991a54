"""Small environments of other packages' interfaces, and policies that can play text games."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import AECEnv, ParallelEnv

from rolecraft.agents import ScriptedPolicy
from rolecraft.worlds import View


class Guess(gymnasium.Env):
    """Guess a number from 3 to 5, by text or by number; two guesses, the second one's mask leaves the first one out."""

    def __init__(self, text: bool = False) -> None:
        self.text = text
        self.observation_space = gymnasium.spaces.Discrete(3)
        self.action_space = (
            gymnasium.spaces.Text(1, min_length=1, charset="345") if text else gymnasium.spaces.Discrete(3, start=3)
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.secret, self.guesses = int(self.np_random.integers(3, 6)), []
        return self._seen()

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        mask = np.array([number not in self.guesses for number in (3, 4, 5)], np.int8)
        return len(self.guesses), {} if self.text else {"action_mask": mask}

    def step(self, action: Any) -> Any:
        self.guesses.append(int(action))
        seen, info = self._seen()
        right = int(action) == self.secret
        return seen, 1.0 if right else -0.25, right, not right and len(self.guesses) == 2, info


class Countdown(AECEnv):
    """Agents 7 and 8 (numbers, not names) take 1 to 3 from a pile; whoever empties it wins. 8 may retire at once."""

    metadata = {"name": "countdown_v0"}  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = [7, 8]
        self._actions = {7: gymnasium.spaces.Discrete(3, start=1), 8: gymnasium.spaces.Discrete(3, start=1)}
        mask = gymnasium.spaces.Box(0, 1, (3,), np.int8)
        self._seen = gymnasium.spaces.Dict({"observation": gymnasium.spaces.Discrete(30), "action_mask": mask})

    def observation_space(self, agent: int) -> Any:
        return self._seen

    def action_space(self, agent: int) -> Any:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = [7, 8]
        self.pile = int(np.random.default_rng(seed).integers(6, 10))
        self.rewards = {7: 0, 8: 0}
        self._cumulative_rewards = {7: 0, 8: 0}
        self.terminations = {7: False, 8: False}
        self.truncations = {7: False, 8: False}
        self.infos = {7: {}, 8: {}}
        self.agent_selection = 7

    def observe(self, agent: int) -> dict[str, Any]:
        return {
            "observation": np.int64(self.pile),
            "action_mask": np.array([take <= self.pile for take in (1, 2, 3)], np.int8),
        }

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        assert 1 <= action <= min(3, self.pile)
        self.pile -= action
        if self.pile == 0:
            self.rewards = {agent: 1, 15 - agent: -1}
            self.terminations = {7: True, 8: True}
        self.agent_selection = 15 - agent
        self._accumulate_rewards()
        self._deads_step_first()


class Musical(ParallelEnv):
    """Each round, everyone bets heads or tails on a coin; who is wrong leaves; who is left when few are, wins."""

    metadata = {"name": "musical_v0"}  # noqa: RUF012

    def __init__(self, players: int = 4) -> None:
        self.possible_agents = [f"p{player}" for player in range(players)]
        self._space = gymnasium.spaces.Discrete(2)
        self._wide = gymnasium.spaces.Box(0, 10, (2,))

    def observation_space(self, agent: str) -> Any:
        return self._wide

    def action_space(self, agent: str) -> Any:
        return self._space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.rng = np.random.default_rng(seed)
        self.agents, self.round = list(self.possible_agents), 0
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        return {agent: np.array([self.round, len(self.agents)], np.float32) for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert set(actions) == set(self.agents)
        coin, self.round = int(self.rng.integers(2)), self.round + 1
        out = {agent for agent, action in actions.items() if action != coin}
        late = self.round == 4
        left = [agent for agent in self.agents if agent not in out]
        ended = {agent: agent in out or len(left) <= 1 for agent in self.agents}
        stopped = {agent: late and not ended[agent] for agent in self.agents}
        rewards = {agent: float(agent not in out) for agent in self.agents}
        seen, infos = self._seen(), {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ended[agent] and not stopped[agent]]
        return seen, rewards, ended, stopped, infos


class Space:
    def __init__(self, n: int) -> None:
        self.n = n


class Doors:
    """JaxMARL's interface without JaxMARL: each round both pick a door, one of which a coin makes worth 1.

    The second agent leaves after two rounds; the first may not pick the door it picked last.
    """

    name = "doors"
    agents = ("left", "right")

    def action_space(self, agent: str) -> Space:
        return Space(3)

    def reset(self, key: Any) -> Any:
        state = (0, -1)
        return self._seen(state), state

    def step(self, key: Any, state: Any, actions: Any) -> Any:
        import jax

        good = int(jax.random.randint(key, (), 0, 3))
        rewards = {agent: np.float32(int(actions[agent]) == good) for agent in self.agents}
        if state[0] >= 2:
            rewards["right"] = np.float32(0)
        state = (state[0] + 1, int(actions["left"]))
        dones = {"left": False, "right": state[0] >= 2, "__all__": state[0] == 4}
        return self._seen(state), state, rewards, dones, {}

    def _seen(self, state: Any) -> Any:
        return {"left": np.array(state, np.float32) / 2, "right": np.array(state[:1])}

    def get_avail_actions(self, state: Any) -> Any:
        return {"left": np.arange(3) != state[1], "right": np.ones(3)}


def _bracketed(view: View, marker: str) -> str:
    """Return one of the moves that the last line with a marker offers in brackets."""
    line = [line for line in view.observation.splitlines() if marker in line][-1]
    moves = re.findall(r"\[[^\]]+\]", line.split(marker)[-1])
    return moves[int(view.rng().integers(len(moves)))]


def reader(marker: str) -> ScriptedPolicy:
    """Return a policy that plays a TextArena game by reading what it offers."""
    return ScriptedPolicy(lambda view: _bracketed(view, marker))


def saying(*texts: str) -> ScriptedPolicy:
    """Return a policy that says one of some texts, whatever it sees."""
    return ScriptedPolicy(lambda view: texts[int(view.rng().integers(len(texts)))])

"""Environments of PettingZoo's two APIs as worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, get_args

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds.adapters._foreign import Choices, Describe, ForeignWorld, in_order, need, shown

Api = Literal["aec", "parallel"]


class PettingZooWorld(ForeignWorld):
    """A PettingZoo environment with discrete or text actions.

    In an AEC environment one agent acts at a time, in a parallel one all that are alive do. Agents that are done take
    no part any more. Where an observation or its info holds an `action_mask`, only what it allows is legal. An
    environment with text actions takes any text of its space; an empty one that is not in it goes in all the same.

    State: see `ForeignWorld`.
    """

    name = "pettingzoo"

    def __init__(
        self, env: Any, *, api: Api = "aec", names: Sequence[str] | None = None, rules: str = "",
        kwargs: Mapping[str, Any] | None = None, describe: Describe | None = None,
    ) -> None:  # fmt: skip
        """Make or take an environment.

        Args:
            env: An environment, owned by the world from now on; an id that `pettingzoo.make` knows, such as
                `classic/rps_v2`; or `module:function`, which is imported and called.
            api: Which of the two to make; an environment brings its own.
            names: Names of the actions, in order, where all agents have equally many; without them, their numbers.
            rules: Text that is put before every observation.
            kwargs: Arguments of the maker.
            describe: Turns (agent, raw observation) into text; without it, numbers are written out.

        Raises:
            MissingDependencyError: If PettingZoo is not installed.
            UserError: If there is no such environment, its agents are not known beforehand, or actions are neither
                discrete nor text.
        """
        pettingzoo = need("pettingzoo", "pettingzoo")
        if api not in get_args(Api):
            raise UserError(f"api must be 'aec' or 'parallel', got {api!r}.")
        self._env = _made(pettingzoo, env, api, kwargs or {}) if isinstance(env, str) else env
        super().__init__(env if isinstance(env, str) else str(env))
        self._parallel = isinstance(self._env, pettingzoo.ParallelEnv)
        if not getattr(self._env, "possible_agents", None):
            raise UserError(f"{self._label}: it does not say beforehand who its agents are (possible_agents).")
        self._ids = {str(agent): agent for agent in self._env.possible_agents}
        self.agents = tuple(self._ids)
        self._choices = {agent: self._choices_of(agent, names) for agent in self.agents}
        if all(self._choices.values()):
            self.actions = in_order([choices.names for choices in self._choices.values() if choices])
        self._rules, self._describe = rules, describe

    def _choices_of(self, agent: str, names: Sequence[str] | None) -> Choices | None:
        space = self._env.action_space(self._ids[agent])
        kind = type(space).__name__
        if kind not in ("Discrete", "Text"):
            raise UserError(f"{self._label}: actions of {agent} must be discrete or text, got {space}; wrap it first.")
        return Choices(int(space.n), names, int(space.start)) if kind == "Discrete" else None

    def _start(self, seed: int) -> None:
        self._earned = dict.fromkeys(self.agents, 0.0)
        self._texts = dict.fromkeys(self.agents, self._rules)
        self._masks: dict[str, Any] = {}
        self._truncated = False
        result = self._env.reset(seed=seed)
        if self._parallel:
            self._see_all(*result)
        else:
            self._look()

    @property
    def acting(self) -> tuple[str, ...]:
        """Whoever is selected; in a parallel environment all that are alive."""
        if not self._env.agents:
            return ()
        alive = {str(agent) for agent in (self._env.agents if self._parallel else [self._env.agent_selection])}
        return tuple(agent for agent in self.agents if agent in alive)

    def observe(self, agent: str) -> str:
        """Return the rules and the agent's last observation."""
        return self._texts[agent]

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return what the mask allows, or None for text."""
        if agent not in self.acting:
            return ()
        choices = self._choices[agent]
        return choices.allowed(self._masks.get(agent)) if choices else None

    def check(self, agent: str, action: str) -> None:
        """Refuse an action that is not in the agent's space.

        Raises:
            IllegalActionError: Saying what would be.
        """
        super().check(agent, action)
        space = self._env.action_space(self._ids[agent])
        if self._choices[agent] is None and action and not space.contains(action):
            raise IllegalActionError(f"{self.name}: {action!r} is not in {space}.")

    def rewards(self) -> Mapping[str, float]:
        """Return the sums of the rewards."""
        return dict(self._earned)

    def outcome(self) -> Mapping[str, Any]:
        """Return whether the environment ended by its own limit."""
        return {"truncated": self._truncated, "steps": len(self._history)}

    def _step(self, actions: Mapping[str, str]) -> None:
        raw = {self._ids[agent]: self._raw(agent, action) for agent, action in actions.items()}
        if self._parallel:
            observations, rewards, _, truncations, infos = self._env.step(raw)
            self._truncated = any(truncations.values())
            self._pay(rewards)
            self._see_all(observations, infos)
        else:
            self._env.step(raw[self._env.agent_selection])
            self._pay(self._env.rewards)
            self._truncated = any(self._env.truncations.values())
            self._look()

    def _raw(self, agent: str, action: str) -> int | str:
        choices = self._choices[agent]
        return choices.number(action) if choices else action

    def _pay(self, rewards: Mapping[Any, float]) -> None:
        for agent, reward in rewards.items():
            if str(agent) not in self._earned:
                raise UserError(f"{self._label}: agent {agent!r} came in later, which a world cannot follow.")
            self._earned[str(agent)] += float(reward)

    def _look(self) -> None:
        """Read what everyone sees in an AEC environment, then take the done ones away."""
        env = self._env
        for agent in self.agents:
            if self._ids[agent] in env.agents:
                self._see(agent, env.observe(self._ids[agent]), env.infos.get(self._ids[agent], {}))
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)

    def _see_all(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for agent, observation in observations.items():
            if str(agent) in self._ids:
                self._see(str(agent), observation, infos.get(agent, {}))

    def _see(self, agent: str, observation: Any, info: Mapping[str, Any]) -> None:
        mask = info.get("action_mask")
        if isinstance(observation, Mapping) and "action_mask" in observation:
            mask = observation["action_mask"]
            if self._describe is None:
                observation = {key: value for key, value in observation.items() if key != "action_mask"}
        self._masks[agent] = mask
        text = self._describe(agent, observation) if self._describe else shown(observation)
        self._texts[agent] = "\n".join(part for part in (self._rules, text) if part)


def _made(pettingzoo: Any, env: str, api: Api, kwargs: Mapping[str, Any]) -> Any:
    module, _, function = env.partition(":")
    try:
        if function:
            return getattr(import_module(module), function)(**kwargs)
        need("pettingzoo.env_registry", "pettingzoo")
        return pettingzoo.make(api, env, **kwargs)
    except (ImportError, AttributeError, TypeError, LookupError, pettingzoo_errors()) as error:
        raise UserError(f"pettingzoo cannot make {env!r}: {error}") from None


def pettingzoo_errors() -> type[Exception]:
    """Return the base of what PettingZoo's registry raises."""
    base: type[Exception] = need("pettingzoo.env_registry.exceptions", "pettingzoo").PettingZooRegistryError
    return base

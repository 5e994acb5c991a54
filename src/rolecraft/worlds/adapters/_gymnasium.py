"""Gymnasium environments as worlds of one agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds.adapters._foreign import Choices, Describe, ForeignWorld, need, shown

AGENT = "player"


class GymnasiumWorld(ForeignWorld):
    """A Gymnasium environment with discrete or text actions.

    The seed goes to the environment's own `reset`. Where an observation or its info holds an `action_mask`, only what
    it allows is legal. Rewards add up. An environment with text actions takes any text of its space; an empty one that
    is not in it is a turn wasted, which the environment does not see.

    State: see `ForeignWorld`.
    """

    name = "gymnasium"
    agents = (AGENT,)

    def __init__(
        self, env: Any, *, names: Sequence[str] | None = None, rules: str = "", pictured: bool = False,
        kwargs: Mapping[str, Any] | None = None, describe: Describe | None = None,
    ) -> None:  # fmt: skip
        """Make or take an environment.

        Args:
            env: An id that `gymnasium.make` knows, or an environment, owned by the world from now on.
            names: Names of a discrete space's actions, in order; without them, its numbers.
            rules: Text that is put before every observation.
            pictured: Add what the environment draws in text mode; it may show more than the observation does.
            kwargs: Arguments of `gymnasium.make`.
            describe: Turns (agent, raw observation) into text; without it, numbers are written out.

        Raises:
            MissingDependencyError: If Gymnasium or what the environment needs is not installed.
            UserError: If there is no such environment, or its actions are neither discrete nor text.
        """
        gymnasium = need("gymnasium", "gymnasium")
        self._env = _made(gymnasium, env, kwargs or {}, pictured) if isinstance(env, str) else env
        super().__init__(env if isinstance(env, str) else _label_of(env))
        space = self._env.action_space
        self._choices: Choices | None = None
        if isinstance(space, gymnasium.spaces.Discrete):
            self._choices = Choices(int(space.n), names, int(space.start))
            self.actions = self._choices.names
        elif not isinstance(space, gymnasium.spaces.Text):
            raise UserError(f"{self._label}: actions must be discrete or text, got {space}; wrap it first.")
        if pictured and self._env.render_mode != "ansi":
            raise UserError(f"{self._label}: it draws in {self._env.render_mode!r}, not in text ('ansi').")
        self._rules, self._pictured, self._describe = rules, pictured, describe

    def _start(self, seed: int) -> None:
        self._earned, self._ended = 0.0, ""
        self._see(*self._env.reset(seed=seed))

    @property
    def acting(self) -> tuple[str, ...]:
        """The one agent, until the end."""
        return () if self._ended else self.agents

    def observe(self, agent: str) -> str:
        """Return the rules and the last observation."""
        return self._text

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return what the mask allows, or None for text."""
        if agent not in self.acting:
            return ()
        return self._choices.allowed(self._mask) if self._choices else None

    def check(self, agent: str, action: str) -> None:
        """Refuse an action that is not in the environment's space.

        Raises:
            IllegalActionError: Saying what would be.
        """
        super().check(agent, action)
        if self._choices is None and action and not self._env.action_space.contains(action):
            raise IllegalActionError(f"{self.name}: {action!r} is not in {self._env.action_space}.")

    def rewards(self) -> Mapping[str, float]:
        """Return the sum of the rewards."""
        return {AGENT: self._earned}

    def outcome(self) -> Mapping[str, Any]:
        """Return whether the environment ended by its rules or by its own limit."""
        return {"ended": self._ended, "steps": len(self._history)}

    def _step(self, actions: Mapping[str, str]) -> None:
        action = actions[AGENT]
        if self._choices is None and not self._env.action_space.contains(action):
            return
        observation, reward, terminated, truncated, info = self._env.step(
            self._choices.number(action) if self._choices else action
        )
        self._earned += float(reward)
        self._ended = "terminated" if terminated else "truncated" if truncated else ""
        self._see(observation, info)

    def _see(self, observation: Any, info: Mapping[str, Any]) -> None:
        self._mask = info.get("action_mask")
        if isinstance(observation, Mapping) and "action_mask" in observation:
            self._mask = observation["action_mask"]
            observation = {key: value for key, value in observation.items() if key != "action_mask"}
        parts = [self._rules, self._describe(AGENT, observation) if self._describe else shown(observation)]
        if self._pictured:
            parts.append(str(self._env.render()))
        self._text = "\n".join(part for part in parts if part)


def _made(gymnasium: Any, env: str, kwargs: Mapping[str, Any], pictured: bool) -> Any:
    mode = {"render_mode": "ansi"} if pictured else {}
    try:
        return gymnasium.make(env, **mode, **kwargs)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise UserError(f"gymnasium cannot make {env!r}: {error}") from None


def _label_of(env: Any) -> str:
    return env.spec.id if getattr(env, "spec", None) else type(getattr(env, "unwrapped", env)).__name__

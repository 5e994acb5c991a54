"""Environments with JaxMARL's interface, dictionaries by agent and a state passed along, as worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.worlds.adapters._foreign import Choices, Describe, ForeignWorld, in_order, need, shown


class JaxMarlWorld(ForeignWorld):
    """An environment with `reset(key)` and `step(key, state, actions)`, all agents acting at once.

    The key of an episode is made of its seed and split once a step. Where the environment has `step_env`, the step that
    does not begin anew when all is done, that one is used, with the key as it is, so that the last observation is of
    the finished episode. An agent that is done takes no part any more: its first available action is sent in its
    place. What `get_avail_actions` forbids is illegal.

    State: see `ForeignWorld`.
    """

    name = "jaxmarl"

    def __init__(
        self, env: Any, *, names: Sequence[str] | None = None, rules: str = "", compiled: bool = True,
        kwargs: Mapping[str, Any] | None = None, describe: Describe | None = None,
    ) -> None:  # fmt: skip
        """Make or take an environment.

        Args:
            env: An id that `jaxmarl.make` knows, or an environment with that interface.
            names: Names of the actions, in order, where all agents have equally many; without them, their numbers.
            rules: Text that is put before every observation.
            compiled: Compile the step, which takes seconds once and makes each step many times faster.
            kwargs: Arguments of `jaxmarl.make`.
            describe: Turns (agent, raw observation) into text; without it, numbers are written out.

        Raises:
            MissingDependencyError: If JAX, or for an id JaxMARL, is not installed.
            UserError: If there is no such environment, or its actions are not discrete.
        """
        self._jax = need("jax", "jax")
        self._env = _made(env, _frozen(kwargs or {})) if isinstance(env, str) else env
        super().__init__(env if isinstance(env, str) else str(getattr(env, "name", type(env).__name__)))
        self.agents = tuple(self._env.agents)
        self._choices = {agent: self._choices_of(agent, names) for agent in self.agents}
        self.actions = in_order([choices.names for choices in self._choices.values()])
        self._rules, self._describe = rules, describe
        step = getattr(self._env, "step_env", self._env.step)
        self._advance = _compiled(step) if compiled else step

    def _choices_of(self, agent: str, names: Sequence[str] | None) -> Choices:
        space = self._env.action_space(agent)
        if not hasattr(space, "n"):
            raise UserError(f"{self._label}: actions of {agent} must be discrete, got {type(space).__name__}.")
        return Choices(int(space.n), names)

    def _start(self, seed: int) -> None:
        self._key = self._jax.random.PRNGKey(seed if seed < 2**31 else derive_seed(seed) % 2**31)
        self._earned = dict.fromkeys(self.agents, 0.0)
        self._done = dict.fromkeys(self.agents, False)
        self._over = False
        observations, self._backend = self._env.reset(self._split())
        self._see(observations)

    @property
    def acting(self) -> tuple[str, ...]:
        """All that are not done."""
        return () if self._over else tuple(agent for agent in self.agents if not self._done[agent])

    def observe(self, agent: str) -> str:
        """Return the rules and the agent's observation."""
        return self._texts[agent]

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return the available actions."""
        return self._allowed[agent] if agent in self.acting else ()

    def rewards(self) -> Mapping[str, float]:
        """Return the sums of the rewards."""
        return dict(self._earned)

    def outcome(self) -> Mapping[str, Any]:
        """Return how many steps it took."""
        return {"steps": len(self._history)}

    def _step(self, actions: Mapping[str, str]) -> None:
        sent = {
            agent: self._jax.numpy.int32(
                self._choices[agent].number(actions[agent] if agent in actions else self._allowed[agent][0])
            )
            for agent in self.agents
        }
        observations, self._backend, rewards, dones, _ = self._advance(self._split(), self._backend, sent)
        for agent in self.agents:
            self._earned[agent] += float(rewards[agent])
            self._done[agent] = self._done[agent] or bool(dones[agent])
        self._over = bool(dones["__all__"]) or all(self._done.values())
        self._see(observations)

    def _split(self) -> Any:
        self._key, key = self._jax.random.split(self._key)
        return key

    def _see(self, observations: Mapping[str, Any]) -> None:
        masks = self._available()
        self._texts, self._allowed = {}, {}
        for agent in self.agents:
            raw = observations[agent]
            text = self._describe(agent, raw) if self._describe else shown(raw)
            self._texts[agent] = "\n".join(part for part in (self._rules, text) if part)
            self._allowed[agent] = self._choices[agent].allowed(masks.get(agent))

    def _available(self) -> Mapping[str, Any]:
        if not hasattr(self._env, "get_avail_actions"):
            return {}
        try:
            masks: Mapping[str, Any] = self._env.get_avail_actions(self._backend)
        except NotImplementedError:
            return {}
        return masks


def _frozen(kwargs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((key, tuple(value) if isinstance(value, list) else value) for key, value in kwargs.items()))


@cache
def _made(env: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    """Make an environment once: it holds no episode, and what is compiled for it serves all worlds."""
    jaxmarl = need("jaxmarl", "jaxmarl")
    try:
        return jaxmarl.make(env, **dict(kwargs))
    except (ValueError, TypeError, ImportError) as error:
        raise UserError(f"jaxmarl cannot make {env!r}: {error}") from None


@cache
def _compiled(step: Any) -> Any:
    return need("jax", "jax").jit(step)

"""Other people's multi-agent worlds as `TeamEnv`: JaxMARL and Jumanji (pure), PettingZoo (called on the host)."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import MissingDependencyError, UserError, did_you_mean
from rolecraft.marl._team import Moment, Moved, Step, TeamWorld, _build


def jaxmarl_ids() -> list[str]:
    """Return the ids of JaxMARL's environments; empty where it is not installed."""
    try:
        return list(_jaxmarl().registration.registered_envs)
    except ImportError:
        return []


def _jaxmarl() -> Any:
    """Import JaxMARL without what it prints."""
    with redirect_stdout(io.StringIO()):
        import jaxmarl
        from jaxmarl import registration  # noqa: F401
    return jaxmarl


def make_jaxmarl(name: str, *, horizon: int | None = None, roles: Sequence[str] = (), **kwargs: Any) -> JaxMarlTeam:
    """Make a JaxMARL environment by id; see `team_env`."""
    jaxmarl = _jaxmarl()
    kwargs = dict(kwargs)
    if isinstance(kwargs.get("scenario"), str):
        from jaxmarl.environments.smax import map_name_to_scenario

        kwargs["scenario"] = _named("SMAX scenario", kwargs["scenario"], map_name_to_scenario, None)
    if isinstance(kwargs.get("layout"), str) and name == "overcooked":
        from jaxmarl.environments.overcooked import overcooked_layouts

        kwargs["layout"] = _named("Overcooked layout", kwargs["layout"], None, overcooked_layouts)
    try:
        env = _build(name, lambda **given: jaxmarl.make(name, **given), kwargs)
    except (ImportError, UnboundLocalError) as error:
        raise MissingDependencyError(f"world {name!r} needs an optional part of JaxMARL: {error}.") from None
    return from_jaxmarl(env, name=name, horizon=horizon, roles=roles)


def _named(what: str, name: str, find: Callable[[str], Any] | None, table: Mapping[str, Any] | None) -> Any:
    try:
        return find(name) if find else (table or {})[name]
    except KeyError:
        known = list(table or ())
        raise UserError(f"there is no {what} {name!r}.{did_you_mean(name, known)}") from None


def from_jaxmarl(env: Any, *, name: str = "", horizon: int | None = None, roles: Sequence[str] = ()) -> JaxMarlTeam:
    """Take an environment of JaxMARL's interface.

    Args:
        env: It needs `agents`, `reset`, `step_env` and spaces.
        name: Instead of the environment's.
        horizon: Most steps of an episode; None is the environment's `max_steps`.
        roles: One per agent; by default the environment's `agent_classes`, or else the agents' names without number.

    Raises:
        UserError: If an attribute is missing, a space is not supported, or the horizon is unknown.
    """
    return JaxMarlTeam(env, name=name, horizon=horizon, roles=roles)


def stem(agent: str) -> str:
    """Return an agent's name without its number: `speaker_0` is a `speaker`."""
    return re.sub(r"[_\s-]*\d+$", "", agent) or agent


class _Kept(NamedTuple):
    state: Any
    obs: jax.Array
    world: jax.Array
    gone: jax.Array
    """(n,) bool: agents that left before the episode's end."""


class JaxMarlTeam(TeamWorld):
    """A JaxMARL environment; observations flattened and padded, missing actions masked.

    `info` holds `agent_done` (n,), who leaves at this step while the episode goes on, and `agent_was_done` (n,), who
    had left before it.
    """

    def __init__(self, env: Any, *, name: str, horizon: int | None, roles: Sequence[str]) -> None:
        for needed in ("agents", "reset", "step_env", "action_space"):
            if not hasattr(env, needed):
                raise UserError(f"{type(env).__name__}: not a JaxMARL environment, it has no attribute {needed!r}.")
        self.env = env
        name, agents = name or str(env.name), [str(agent) for agent in env.agents]
        spaces = [env.action_space(agent) for agent in env.agents]
        counts, discrete = _counts(name, spaces)
        self._counts = jnp.asarray(counts)
        self._boxes = [tuple(np.shape(space.low)) or tuple(space.shape) for space in spaces] if not discrete else []
        key = jax.random.PRNGKey(0)
        obs, state = env.reset(key)
        self._own = isinstance(obs, Mapping) and "world_state" in obs
        widths = [int(np.prod(leaf.shape)) for leaf in self._each(obs)]
        self._width = max(widths)
        world = int(np.prod(obs["world_state"].shape)) if self._own else sum(widths)
        steps = horizon or getattr(env, "max_steps", None)
        if not steps:
            raise UserError(f"{name}: the environment has no max_steps; give horizon=, the most steps of an episode.")
        super().__init__(
            name, agents, roles or _classes(env, agents), obs_size=self._width, actions=max(counts),
            world_size=world, horizon=int(steps), discrete=discrete,
        )  # fmt: skip
        self._masks = _has_masks(env, state)

    def _each(self, obs: Any) -> list[Any]:
        """The agents' observations as arrays, whatever they are made of."""
        if not isinstance(obs, Mapping):
            raise UserError(f"{type(self.env).__name__}: observations are a {type(obs).__name__}, expected a mapping.")
        return [jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(obs[agent])]) for agent in self.env.agents]

    def _keep(self, obs: Any, state: Any, gone: jax.Array) -> _Kept:
        flat = [leaf.astype(jnp.float32) for leaf in self._each(obs)]
        padded = jnp.stack([jnp.pad(leaf, (0, self._width - leaf.size)) for leaf in flat])
        world = jnp.ravel(obs["world_state"]).astype(jnp.float32) if self._own else jnp.concatenate(flat)
        return _Kept(state, padded, world, gone)

    def start(self, key: jax.Array) -> _Kept:
        """Reset the environment."""
        obs, inner = self.env.reset(key)
        return self._keep(obs, inner, jnp.zeros(len(self.agents), bool))

    def move(self, key: jax.Array, state: _Kept, actions: jax.Array) -> Moved:
        """Take a step without the environment's own reset."""
        given = {
            agent: actions[i] if self.discrete else actions[i, : int(np.prod(self._boxes[i]))].reshape(self._boxes[i])
            for i, agent in enumerate(self.env.agents)
        }
        obs, inner, reward, done, info = self.env.step_env(key, state.state, given)
        kept = {name: value for name, value in info.items() if _is_array(value)} if isinstance(info, Mapping) else {}
        reward = jnp.stack([jnp.asarray(reward[agent], jnp.float32).reshape(()) for agent in self.env.agents])
        over = jnp.asarray(done["__all__"], bool).reshape(())
        gone = jnp.stack([jnp.asarray(done.get(agent, over), bool).reshape(()) for agent in self.env.agents])
        kept |= {"agent_done": gone & ~state.gone & ~over, "agent_was_done": state.gone}
        return Moved(self._keep(obs, inner, gone), reward, over, kept)

    def look(self, state: _Kept) -> Moment:
        """Return the kept observations with the masks of this moment."""
        own = jnp.arange(self.actions) < self._counts[:, None]
        if self._masks:
            masks = self.env.get_avail_actions(state.state)
            given = [jnp.ravel(masks[agent]).astype(bool) for agent in self.env.agents]
            own &= jnp.stack([jnp.pad(mask, (0, self.actions - mask.size)) for mask in given])
        return Moment(state.obs, own, state.world)


def _is_array(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray | int | float | bool)


def _counts(name: str, spaces: Sequence[Any]) -> tuple[list[int], bool]:
    """Return the number of choices (or numbers) of each agent, and whether they are choices."""
    discrete = [hasattr(space, "n") for space in spaces]
    if all(discrete):
        return [int(space.n) for space in spaces], True
    if any(discrete) or not all(hasattr(space, "low") for space in spaces):
        kinds = ", ".join(sorted({type(space).__name__ for space in spaces}))
        raise UserError(f"{name}: action spaces {kinds}; expected Discrete for all agents or Box for all.")
    return [int(np.prod(np.shape(space.low) or space.shape)) for space in spaces], False


def _classes(env: Any, agents: Sequence[str]) -> list[str]:
    """Return each agent's class, or its name without number where the environment has none."""
    try:
        classes = env.agent_classes
        classes = classes() if callable(classes) else classes
    except (NotImplementedError, AttributeError):
        classes = None
    found = {str(agent): str(kind) for kind, members in (classes or {}).items() for agent in members}
    if not all(agent in found for agent in agents) or len(set(found.values())) == 1:
        return [stem(agent) for agent in agents]
    return [found[agent] for agent in agents]


def _has_masks(env: Any, state: Any) -> bool:
    if not hasattr(env, "get_avail_actions"):
        return False
    try:
        masks = jax.eval_shape(env.get_avail_actions, state)
    except NotImplementedError:
        return False
    return isinstance(masks, Mapping)


def make_lbf(*, horizon: int | None = None, roles: Sequence[str] = (), **kwargs: Any) -> JumanjiTeam:
    """Make Jumanji's level-based foraging; `kwargs` go to its `RandomGenerator`: grid_size, num_agents and so on."""
    try:
        from jumanji.environments.routing.lbf.env import LevelBasedForaging
        from jumanji.environments.routing.lbf.generator import RandomGenerator
    except ImportError:
        raise MissingDependencyError("world 'lbf' needs Jumanji; install it with: pip install jumanji.") from None
    time: dict[str, Any] = {"time_limit": horizon} if horizon else {}
    given = {"grid_size": 8, "fov": 8, "num_agents": 2, "num_food": 2, "force_coop": True} | kwargs
    env = _build("lbf", lambda **given: LevelBasedForaging(RandomGenerator(**given), **time), given)
    return from_jumanji(env, roles=roles)


def from_jumanji(env: Any, *, name: str = "", roles: Sequence[str] = ()) -> JumanjiTeam:
    """Take a Jumanji environment whose observation has `agents_view` (n, ...) and `action_mask` (n, actions).

    Raises:
        UserError: If it has not.
    """
    return JumanjiTeam(env, name=name, roles=roles)


class JumanjiTeam(TeamWorld):
    """A Jumanji environment of several agents (LevelBasedForaging, RobotWarehouse)."""

    def __init__(self, env: Any, *, name: str, roles: Sequence[str]) -> None:
        self.env = env
        try:
            _, first = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
            view, mask = first.observation.agents_view, first.observation.action_mask
            horizon = int(env.time_limit)
        except AttributeError as error:
            raise UserError(
                f"{type(env).__name__}: not a Jumanji environment of several agents ({error}); expected reset, "
                "time_limit, and agents_view and action_mask in its observations."
            ) from None
        agents, width = [f"agent_{i}" for i in range(view.shape[0])], int(np.prod(view.shape[1:]))
        super().__init__(
            name or type(env).__name__, agents, roles or ["agent"] * len(agents), obs_size=width,
            actions=int(mask.shape[1]), world_size=width * len(agents), horizon=horizon,
        )  # fmt: skip

    def start(self, key: jax.Array) -> Any:
        """Reset the environment."""
        state, first = self.env.reset(key)
        return state, first.observation

    def move(self, key: jax.Array, state: Any, actions: jax.Array) -> Moved:
        """Take a step; what each agent was rewarded for is its event."""
        inner, now = self.env.step(state[0], actions)
        reward = jnp.broadcast_to(jnp.asarray(now.reward, jnp.float32), (len(self.agents),))
        return Moved((inner, now.observation), reward, now.last(), {"events": (reward > 0).astype(jnp.float32)})

    def look(self, state: Any) -> Moment:
        """Return the kept observation."""
        obs = state[1].agents_view.reshape(len(self.agents), -1).astype(jnp.float32)
        return Moment(obs, state[1].action_mask.astype(bool), obs.ravel())


class _Slot(NamedTuple):
    slot: jax.Array
    tick: jax.Array
    """Depends on the call before, so that the calls of one slot keep their order."""


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    make: Any = jax.ShapeDtypeStruct
    return make(shape, dtype)


class HostTeam:
    """A PettingZoo parallel environment, stepped in Python by calls from the compiled program.

    It is not pure: a state names a copy of the environment that lives in this process. Training runs, jitted and
    vmapped, at the speed of Python; a state cannot be saved, so a killed run starts again; the copies stay until
    `close()`. Agents that have left an episode see zeros and may only take action 0.
    """

    def __init__(self, make: Callable[[], Any], *, name: str, horizon: int | None, roles: Sequence[str]) -> None:
        self._make, self._slots = make, dict[int, Any]()
        env = make()
        agents = [str(agent) for agent in env.possible_agents]
        self.name = name or str((getattr(env, "metadata", None) or {}).get("name", type(env).__name__))
        counts, self.discrete = _counts(self.name, [env.action_space(agent) for agent in agents])
        if not self.discrete:
            raise UserError(f"{self.name}: actions are continuous; from_pettingzoo takes discrete ones.")
        self._counts = counts
        sizes = [int(np.prod(env.observation_space(agent).shape)) for agent in agents]
        self.agents, self.roles = tuple(agents), tuple(roles) or tuple(stem(agent) for agent in agents)
        if len(self.roles) != len(agents):
            raise UserError(f"{self.name}: {len(agents)} agents and {len(self.roles)} roles; name one role per agent.")
        self.obs_size, self.actions, self.action_size = max(sizes), max(counts), max(counts)
        self.world_size = len(agents) * self.obs_size
        self.horizon = int(horizon or 0)
        if self.horizon < 1:
            raise UserError(f"{self.name}: give horizon=, the most steps of an episode (at least 1).")
        n, f32 = len(agents), jnp.float32
        self._shapes = (
            _shape((), jnp.int32), _shape((n, self.obs_size), f32),
            _shape((n, self.actions), bool), _shape((n,), f32),
            _shape((), bool), _shape((n, self.obs_size), f32),
        )  # fmt: skip

    def reset(self, key: jax.Array) -> tuple[_Slot, Step]:
        """Start an episode in a new copy of the environment."""
        from jax.experimental import io_callback

        seed = jax.random.bits(key).astype(jnp.uint32)
        slot, *seen = io_callback(self._host_reset, self._shapes, seed)
        return _Slot(slot, jnp.int32(0)), self._step_of(*seen)

    def step(self, key: jax.Array, state: _Slot, actions: jax.Array) -> tuple[_Slot, Step]:
        """Take a joint action in the copy that the state names."""
        from jax.experimental import io_callback

        seed = jax.random.bits(key).astype(jnp.uint32)
        tick, *seen = io_callback(self._host_step, self._shapes, state.slot, state.tick, actions, seed)
        return _Slot(state.slot, tick), self._step_of(*seen)

    def close(self) -> None:
        """Close all copies."""
        for env, _, _ in self._slots.values():
            env.close()
        self._slots.clear()

    @staticmethod
    def _step_of(obs: Any, avail: Any, reward: Any, done: Any, final: Any) -> Step:
        return Step(obs, avail, obs.ravel(), reward, done, {"final_obs": final, "final_world": final.ravel()})

    def _seen(self, obs: Mapping[str, Any], info: Mapping[str, Any]) -> tuple[Any, Any]:
        seen = np.zeros((len(self.agents), self.obs_size), np.float32)
        avail = np.zeros((len(self.agents), self.actions), bool)
        for i, agent in enumerate(self.agents):
            if agent in obs:
                flat = np.ravel(np.asarray(obs[agent], np.float32))
                seen[i, : len(flat)] = flat
                mask = (info.get(agent) or {}).get("action_mask")
                avail[i, : self._counts[i]] = True if mask is None else np.asarray(mask, bool)
            else:
                avail[i, 0] = True
        return seen, avail

    def _host_reset(self, seed: Any) -> Any:
        slot, env = len(self._slots), self._make()
        obs, info = env.reset(seed=int(seed))
        self._slots[slot] = (env, 0, tuple(env.agents))
        seen, avail = self._seen(obs, info)
        return np.int32(slot), seen, avail, np.zeros(len(self.agents), np.float32), np.bool_(False), seen

    def _host_step(self, slot: Any, tick: Any, actions: Any, seed: Any) -> Any:
        if int(slot) not in self._slots:
            raise UserError(f"{self.name}: its state lives in another process or was closed; reset it first.")
        env, time, alive = self._slots[int(slot)]
        given = {agent: int(actions[i]) for i, agent in enumerate(self.agents) if agent in alive}
        obs, rewards, _, _, info = env.step(given)
        final, avail = self._seen(obs, info)
        time, seen = time + 1, final
        done = not env.agents or time >= self.horizon
        if done:
            obs, info = env.reset(seed=int(seed))
            time = 0
            seen, avail = self._seen(obs, info)
        self._slots[int(slot)] = (env, time, tuple(env.agents))
        reward = np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float32)
        return np.int32(tick + 1), seen, avail, reward, np.bool_(done), final


def from_pettingzoo(
    parallel_env: Any, *, name: str = "", horizon: int | None = None, roles: Sequence[str] = ()
) -> HostTeam:
    """Take a PettingZoo parallel environment with discrete actions; it runs in Python, see `HostTeam`.

    Args:
        parallel_env: A function that makes one (`simple_spread_v3.parallel_env`), or one that can be deep-copied.
        name: Instead of the environment's.
        horizon: Most steps of an episode.
        roles: One per agent; by default the agents' names without number.

    Raises:
        UserError: If an attribute is missing, actions are continuous, or the horizon is not given.
    """
    if hasattr(parallel_env, "possible_agents") and not isinstance(parallel_env, type):
        return HostTeam(lambda: copy.deepcopy(parallel_env), name=name, horizon=horizon, roles=roles)
    if not callable(parallel_env):
        raise UserError(
            f"{type(parallel_env).__name__}: expected a PettingZoo parallel environment or a function that makes one; "
            "it has no attribute 'possible_agents'."
        )
    return HostTeam(parallel_env, name=name, horizon=horizon, roles=roles)

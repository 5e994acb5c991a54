"""The array contract of multi-agent worlds: what every method of this package trains on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import UserError, did_you_mean


class Step(NamedTuple):
    """What the n agents see after a reset or a joint action.

    Where `done` is true the arrays are those of the next episode's start, but for `reward` and `info`.
    """

    obs: jax.Array
    """(n, obs_size) float32; shorter observations are padded with zeros at their end."""
    avail: jax.Array
    """(n, actions) bool: the choices an agent has; in continuous worlds, the parts of its action that are real."""
    world: jax.Array
    """(world_size,) float32: the whole state, for centralised training only."""
    reward: jax.Array
    """(n,) float32, of the action before; 0 after a reset."""
    done: jax.Array
    """() bool: that action ended the episode."""
    info: dict[str, Any]
    """Arrays of the world's own, of the same names and shapes in every step; `final_obs` (n, obs_size) and
    `final_world` (world_size,) are what was seen before an automatic reset. `events` (n,), where a world has it, counts
    what each agent did that caused reward."""


@runtime_checkable
class TeamEnv(Protocol):
    """A world of n agents as pure functions, that may be jitted, scanned and vmapped (unless it says otherwise)."""

    name: str
    agents: tuple[str, ...]
    """Names, n in all."""
    roles: tuple[str, ...]
    """Id of each agent's role; several agents may have the same."""
    obs_size: int
    actions: int
    """Choices of the agent that has most; in continuous worlds, numbers in the longest action."""
    world_size: int
    horizon: int
    """Most steps of an episode."""
    discrete: bool
    """Actions are indices of shape (n,); otherwise numbers of shape (n, action_size)."""
    action_size: int
    """Numbers that an action takes as a vector: one-hot in discrete worlds, so always `actions`."""

    def reset(self, key: jax.Array) -> tuple[Any, Step]:
        """Start an episode; returns the state and what is seen."""
        ...

    def step(self, key: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Take a joint action, and start the next episode where it ends this one."""
        ...


class Moment(NamedTuple):
    """What a world shows of one state."""

    obs: jax.Array
    """(n, obs_size)"""
    avail: jax.Array
    """(n, actions)"""
    world: jax.Array
    """(world_size,)"""


class Moved(NamedTuple):
    """What a joint action did."""

    state: Any
    reward: jax.Array
    """(n,)"""
    done: jax.Array
    """()"""
    info: dict[str, Any]


class _Timed(NamedTuple):
    inner: Any
    time: jax.Array
    """Steps of this episode so far."""


class TeamWorld:
    """Base of worlds: subclasses say how an episode starts, moves and looks; ends and restarts are done here.

    Args:
        name: For messages and file names.
        agents: Names.
        roles: Id of each agent's role.
        obs_size: Numbers in an observation.
        actions: Choices, or numbers in a continuous action.
        world_size: Numbers in the whole state.
        horizon: Most steps of an episode; it is over then.
        discrete: Whether actions are choices.

    Raises:
        UserError: If there are no agents, as many roles as agents are not given, or a size is below 1.
    """

    def __init__(
        self,
        name: str,
        agents: Sequence[str],
        roles: Sequence[str],
        *,
        obs_size: int,
        actions: int,
        world_size: int,
        horizon: int,
        discrete: bool = True,
    ) -> None:
        if not agents or len(roles) != len(agents):
            raise UserError(
                f"{name}: {len(agents)} agents and {len(roles)} roles ({', '.join(roles)}); name one role per agent."
            )
        sizes = {"obs_size": obs_size, "actions": actions, "world_size": world_size, "horizon": horizon}
        for what, size in sizes.items():
            if size < 1:
                raise UserError(f"{name}: {what} must be at least 1, got {size}.")
        self.name, self.agents, self.roles = name, tuple(agents), tuple(roles)
        self.obs_size, self.actions, self.world_size = obs_size, actions, world_size
        self.horizon, self.discrete, self.action_size = horizon, discrete, actions

    def start(self, key: jax.Array) -> Any:
        """Return the first state of an episode."""
        raise NotImplementedError

    def move(self, key: jax.Array, state: Any, actions: jax.Array) -> Moved:
        """Return what a joint action does."""
        raise NotImplementedError

    def look(self, state: Any) -> Moment:
        """Return what is seen of a state."""
        raise NotImplementedError

    def reset(self, key: jax.Array) -> tuple[Any, Step]:
        """Start an episode; see `TeamEnv`."""
        state = self.start(key)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self._info(state))
        seen = self.look(state)
        reward, done = jnp.zeros(len(self.agents)), jnp.zeros((), bool)
        return _Timed(state, jnp.int32(0)), Step(*seen, reward, done, zeros)

    def step(self, key: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Take a joint action; see `TeamEnv`.

        Raises:
            UserError: If `actions` does not have the world's shape.
        """
        expected = (len(self.agents),) if self.discrete else (len(self.agents), self.action_size)
        if actions.shape != expected:
            symbols = "(n,)" if self.discrete else "(n, action_size)"
            raise UserError(f"{self.name}: actions have shape {actions.shape}, expected {symbols} = {expected}.")
        now, later = jax.random.split(key)
        moved = self.move(now, state.inner, actions)
        time = state.time + 1
        done = moved.done | (time >= self.horizon)
        first = self.start(later)
        final = self.look(moved.state)
        seen: Moment = jax.tree.map(lambda new, old: jnp.where(done, new, old), self.look(first), final)
        # A world's state may hold anything, typed keys too: `where` takes them all.
        inner = jax.tree.map(lambda new, old: jnp.where(done, new, old), first, moved.state)
        info = moved.info | {"final_obs": final.obs, "final_world": final.world}
        return _Timed(inner, jnp.where(done, 0, time)), Step(seen.obs, seen.avail, seen.world, moved.reward, done, info)

    def _info(self, state: Any) -> Any:
        shape = (len(self.agents),) if self.discrete else (len(self.agents), self.action_size)
        actions = jnp.zeros(shape, jnp.int32 if self.discrete else jnp.float32)
        timed = _Timed(state, jnp.int32(0))
        return jax.eval_shape(self.step, jax.random.PRNGKey(0), timed, actions)[1].info


def role_features(
    roles: Sequence[str],
    kind: str | Mapping[str, Any] | np.ndarray[Any, Any] | jax.Array = "onehot",
) -> jax.Array:
    """Return what an agent's network is told of its role, to be appended to its observation.

    The one conditioning function of all methods here: a network with shared weights can tell its roles apart by these
    numbers alone.

    Args:
        roles: Role id of each of the n agents.
        kind: `onehot`: one number per role, roles in order of appearance, so that agents of one role look alike;
            `agent`: one number per agent; `none`: nothing, so that the network treats all alike; a mapping from role id
            to vector; or an array of shape (n, r), such as the embeddings of the roles' descriptions.

    Returns:
        (n, r) float32.

    Raises:
        UserError: If the kind is unknown, a role has no vector, or the vectors have the wrong shape or are not finite.
    """
    n, names = len(roles), list(dict.fromkeys(roles))
    if isinstance(kind, str):
        kinds: dict[str, Callable[[], Any]] = {
            "onehot": lambda: np.eye(len(names))[[names.index(role) for role in roles]],
            "agent": lambda: np.eye(n),
            "none": lambda: np.zeros((n, 0)),
        }
        if kind not in kinds:
            raise UserError(
                f"roles {kind!r}: expected one of {', '.join(kinds)}, a mapping or an array.{did_you_mean(kind, kinds)}"
            )
        return jnp.asarray(kinds[kind](), jnp.float32)
    if isinstance(kind, Mapping):
        absent = [role for role in names if role not in kind]
        if absent:
            known = [str(name) for name in kind]
            raise UserError(
                f"role {absent[0]!r} has no vector; given: {', '.join(known)}.{did_you_mean(absent[0], known)}"
            )
        shapes = {np.shape(kind[role]) for role in names}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise UserError(f"the roles' vectors have shapes {sorted(shapes)}, expected one shape (r,).")
        kind = np.stack([np.asarray(kind[role]) for role in roles])
    array = np.asarray(kind, np.float32)
    if array.ndim != 2 or len(array) != n:
        raise UserError(f"role features have shape {array.shape}, expected (n, r) = ({n}, r): one row per agent.")
    if not np.isfinite(array).all():
        raise UserError("role features hold NaN or infinity; give finite numbers.")
    return jnp.asarray(array)


def with_roles(obs: jax.Array, features: jax.Array) -> jax.Array:
    """Append role features (n, r) to observations (..., n, d): (..., n, d + r).

    Raises:
        UserError: If the numbers of agents differ.
    """
    if obs.shape[-2] != features.shape[0]:
        raise UserError(
            f"observations of {obs.shape[-2]} agents (..., n, d) = {obs.shape} and role features of "
            f"{features.shape[0]} (n, r) = {features.shape}; give features of as many agents."
        )
    return jnp.concatenate([obs, jnp.broadcast_to(features, (*obs.shape[:-1], features.shape[1]))], -1)


def team_env(name: str, **kwargs: Any) -> TeamEnv:
    """Make a world by name.

    Args:
        name: One of this package's (`switch`, `fetch`, `checkers`), JaxMARL's ids (`MPE_simple_spread_v3`,
            `HeuristicEnemySMAX`, `overcooked` ...), or `lbf` (Jumanji's level-based foraging).
        **kwargs: Of the world's constructor. `horizon` cuts the episodes of any world; `roles` names the agents' roles.
            SMAX scenarios and Overcooked layouts may be given by name (`scenario="3m"`, `layout="cramped_room"`).

    Raises:
        UserError: If the name is unknown, or the world refuses its arguments.
    """
    from rolecraft.marl import _adapters, _worlds

    ours = _worlds.WORLDS
    if name in ours:
        return cast(TeamEnv, _build(name, ours[name], kwargs))
    if name == "lbf":
        return _adapters.make_lbf(**kwargs)
    ids = _adapters.jaxmarl_ids()
    if name in ids:
        return _adapters.make_jaxmarl(name, **kwargs)
    known = [*ours, "lbf", *ids]
    raise UserError(f"there is no world {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")


def _build(name: str, make: Any, kwargs: Mapping[str, Any]) -> Any:
    try:
        return make(**kwargs)
    except TypeError as error:
        raise UserError(f"world {name!r} cannot be made with {dict(kwargs)}: {error}.") from None

"""Team Q-learning on JAX: recurrent values, a mixer, replay of episodes, double Q-learning, target networks.

With the additive mixer this is VDN (arXiv 1706.05296), with `independent` IQL, with `qmix` QMIX, and in `joint_env` the
fully centralised learner. The whole loop is one compiled program, vmapped over seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

from rolecraft._jax import loop
from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.marl._evaluate import Policy, evaluate, lazy_agent_index
from rolecraft.marl._mixers import Mixer, make_mixer
from rolecraft.marl._networks import TeamQ, best, explore
from rolecraft.marl._replay import Replay, draw, make_replay, push
from rolecraft.marl._team import Step, TeamEnv, role_features, with_roles


class TeamRewardWarning(UserWarning):
    """A world gives each agent a reward of its own; their sum is taken as the team's."""


class RoleWarning(UserWarning):
    """Agents of several roles share weights and are not told their role."""


@dataclass(frozen=True)
class QConfig:
    """Settings of a team Q-learner; defaults learn small worlds on one core."""

    mixer: str | Mixer = "vdn"
    """`independent`, `vdn`, `qmix`, or a `Mixer`."""
    share: bool = True
    """One set of weights for all agents."""
    roles: Any = "onehot"
    """What the networks are told of the roles; see `role_features`."""
    scramble: bool = False
    """Deal the role features out at random in every episode, so that they tell nothing: a control."""
    channels: tuple[str, ...] = ()
    """Information channels between the agents' networks: `low`, `high` or both."""
    hidden: int = 64
    """Units of every layer."""
    dueling: bool = True
    steps: int = 100_000
    """Steps of the world in training."""
    envs: int = 8
    """Worlds played side by side."""
    buffer: int = 500
    """Stretches of `horizon` steps in the replay."""
    batch: int = 32
    """Stretches per gradient step."""
    fits: int = 4
    """Gradient steps after each stretch of all worlds."""
    lr: float = 1e-3
    """Of Adam."""
    clip: float = 10.0
    """Largest norm of a gradient."""
    gamma: float = 0.99
    lam: float = 0.0
    """Of the forward view of eligibility traces; 0 is one-step learning."""
    double: bool = True
    """Choose the next action by the online network, and value it by the target network."""
    target_every: int = 10
    """Stretches between two copies of the weights to the target network."""
    epsilon: tuple[float, float] = (1.0, 0.05)
    """Exploration at the start and at the end of its decay."""
    decay: float = 0.5
    """Part of the training in which it falls."""
    tests: int = 20
    """Evaluations of the greedy policy, spread evenly over the training."""
    test_episodes: int = 32
    """Of each of them."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        for name in ("hidden", "steps", "envs", "buffer", "batch", "fits", "target_every", "tests", "test_episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("gamma", "lam", "decay", *("epsilon",)):
            values = getattr(self, name)
            if not all(0 <= value <= 1 for value in (values if isinstance(values, tuple) else (values,))):
                raise UserError(f"{name} must be between 0 and 1, got {values}.")
        if self.lr <= 0 or self.clip <= 0:
            raise UserError(f"lr and clip must be above 0, got {self.lr} and {self.clip}.")
        if unknown := [name for name in self.channels if name not in ("low", "high")]:
            raise UserError(f"channels: expected 'low' and 'high', got {unknown[0]!r}.")
        if self.buffer < self.envs:
            raise UserError(f"buffer ({self.buffer}) must hold the stretches of all envs ({self.envs}).")


class Stretch(NamedTuple):
    """`T = horizon` steps of one world, from the start of an episode on; later episodes may begin within it."""

    obs: jax.Array
    """(T + 1, n, d + r), role features appended."""
    avail: jax.Array
    """(T + 1, n, actions)"""
    world: jax.Array
    """(T + 1, world_size), or (T + 1, 0) where the mixer needs none."""
    fresh: jax.Array
    """(T + 1,) bool: an episode begins here."""
    action: jax.Array
    """(T, n)"""
    reward: jax.Array
    """(T,), the team's."""
    done: jax.Array
    """(T,)"""


class QState(NamedTuple):
    """All that training carries from one update to the next."""

    key: jax.Array
    params: dict[str, Any]
    """`net` and `mixer`."""
    target: dict[str, Any]
    optimiser: Any
    replay: Replay
    stretches: jax.Array
    """Stretches (of all worlds) so far."""


def lambda_returns(reward: jax.Array, done: jax.Array, following: jax.Array, gamma: float, lam: float) -> jax.Array:
    """Return the targets of Q(lambda): G_t = r_t + gamma (1 - d_t) ((1 - lam) V_{t+1} + lam G_{t+1}), G_T = V_T.

    Args:
        reward: (T, ..., 1)
        done: (T, ..., 1), 0 or 1.
        following: (T, ..., m), V_{t+1}: the value of what follows step t.
        gamma: Discount.
        lam: 0 gives one-step targets.

    Returns:
        (T, ..., m).
    """

    def back(future: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done, value = now
        target = reward + gamma * (1.0 - done) * ((1 - lam) * value + lam * future)
        return target, target

    return jax.lax.scan(back, following[-1], (reward, done, following), reverse=True)[1]


class QLearner:
    """The parts of a team Q-learner for one world.

    Args:
        env: The world; discrete actions.
        config: Settings.

    Raises:
        UserError: If actions are continuous, an agent has no action to begin with, or the replay does not fit.
    """

    def __init__(self, env: TeamEnv, config: QConfig) -> None:
        if not env.discrete:
            raise UserError(f"{env.name}: actions are continuous; Q-learning needs discrete ones.")
        self.env, self.config, self.n = env, config, len(env.agents)
        self.mixer = make_mixer(config.mixer)
        self.features = role_features(env.roles, config.roles)
        self.net = TeamQ(
            env.actions,
            config.hidden,
            config.share,
            config.dueling,
            "low" in config.channels,
            "high" in config.channels,
        )
        self._size = env.obs_size + self.features.shape[1]
        self.per_test = max(1, config.steps // (env.horizon * config.envs * config.tests))
        """Stretches (of all worlds) between two tests."""
        self._total = self.per_test * config.tests
        self.optimiser = optax.chain(optax.clip_by_global_norm(config.clip), optax.adam(config.lr))
        _notices(env, config)
        _, first = env.reset(jax.random.PRNGKey(0))
        stuck = [agent for agent, some in zip(env.agents, np.asarray(first.avail.any(1)), strict=True) if not some]
        if stuck:
            raise UserError(f"{env.name}: {stuck[0]} has no available action; a mask must leave one at least.")

    def init(self, key: jax.Array) -> QState:
        """Return the state before training; vmap it over keys to train several seeds."""
        net, mix, key = jax.random.split(key, 3)
        obs, fresh = jnp.zeros((1, 1, self.n, self._size)), jnp.ones((1, 1), bool)
        params = {
            "net": self.net.init(net, self.net.rest(1, self.n), obs, fresh),
            "mixer": self.mixer.init(mix, self.n, self.env.world_size),
        }
        stretch = jax.eval_shape(lambda k: self.collect(params["net"], k, 1.0), key)
        one = jax.tree.map(lambda leaf: jax.eval_shape(lambda x: x[0], leaf), stretch)
        replay = make_replay(one, self.config.buffer)
        return QState(key, params, params, self.optimiser.init(params), replay, jnp.int32(0))

    def replay_bytes(self) -> int:
        """Return the bytes of one seed's replay."""
        from rolecraft._jax import tree_bytes

        return tree_bytes(jax.eval_shape(self.init, jax.random.PRNGKey(0)).replay)

    def epsilon(self, count: jax.Array) -> jax.Array:
        """Return the exploration after `count` stretches."""
        start, end = self.config.epsilon
        part = jnp.clip(count / max(1.0, self.config.decay * self._total), 0.0, 1.0)
        return start + (end - start) * part

    def deal(self, key: jax.Array) -> jax.Array:
        """Return an episode's role features, (n, r)."""
        return jax.random.permutation(key, self.features) if self.config.scramble else self.features

    def values(self, net: Any, memory: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the memory and the action values of a stretch of time; see `TeamQ`."""
        found: tuple[jax.Array, jax.Array] = self.net.apply(net, memory, obs, fresh)  # type: ignore[assignment]
        return found

    def collect(self, net: Any, key: jax.Array, epsilon: jax.Array | float) -> Stretch:
        """Play one stretch in every world; leaves are (envs, ...)."""
        envs = self.config.envs
        begin, roles, rest = jax.random.split(key, 3)
        state, step = jax.vmap(self.env.reset)(jax.random.split(begin, envs))
        features = jax.vmap(self.deal)(jax.random.split(roles, envs))

        def seen(step: Step, features: jax.Array, fresh: jax.Array) -> tuple[jax.Array, ...]:
            obs = jax.vmap(with_roles)(step.obs, features)
            return obs, step.avail, step.world if self.mixer.uses_world else step.world[:, :0], fresh

        def move(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            state, step, memory, features, fresh = carry
            choose, world, deal = jax.random.split(key, 3)
            now = seen(step, features, fresh)
            memory, values = self.values(net, memory, now[0][None], fresh[None])
            action = explore(choose, values[0], step.avail, epsilon)
            state, step = jax.vmap(self.env.step)(jax.random.split(world, envs), state, action)
            dealt = jax.vmap(self.deal)(jax.random.split(deal, envs))
            features = jnp.where(step.done[:, None, None], dealt, features)
            after = (state, step, memory, features, step.done)
            return after, (now, action, step.reward.sum(-1), step.done)

        first = (state, step, self.net.rest(envs, self.n), features, jnp.ones(envs, bool))
        last, (steps, *did) = jax.lax.scan(move, first, jax.random.split(rest, self.env.horizon))
        end = seen(last[1], last[3], last[4])
        whole = [jnp.concatenate([part, tail[None]]) for part, tail in zip(steps, end, strict=True)]
        stretch: Stretch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), Stretch(*whole, *did))
        return stretch

    def loss(self, params: dict[str, Any], target: dict[str, Any], batch: Stretch) -> jax.Array:
        """Return the mean square of y_t - Q_tot over a batch, leaves (B, ...): VDN's equation 3 with double Q-learning.

        y_t = r_t + gamma Q_tot'(h_{t+1}, argmax_a Q_i(h_{t+1}, a) for each i), or its lambda-return.
        """
        data: Stretch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)
        rest = self.net.rest(data.obs.shape[1], self.n)
        _, values = self.values(params["net"], rest, data.obs, data.fresh)
        _, fixed = self.values(target["net"], rest, data.obs, data.fresh)
        taken = jnp.take_along_axis(values[:-1], data.action[..., None], -1)[..., 0]
        chooser = values if self.config.double else fixed
        greedy = best(jax.lax.stop_gradient(chooser[1:]), data.avail[1:])
        following = jnp.take_along_axis(fixed[1:], greedy[..., None], -1)[..., 0]
        mixed = self.mixer.mix(params["mixer"], taken, data.world[:-1])
        bound = self.mixer.mix(target["mixer"], following, data.world[1:])
        y = lambda_returns(
            data.reward[..., None], data.done[..., None].astype(jnp.float32), bound, self.config.gamma, self.config.lam
        )
        return jnp.square(jax.lax.stop_gradient(y) - mixed).mean()

    def fit(self, state: QState, key: jax.Array) -> tuple[QState, jax.Array]:
        """Take one gradient step on a batch of the replay."""
        batch = draw(state.replay, key, self.config.batch)
        loss, gradient = jax.value_and_grad(self.loss)(state.params, state.target, batch)
        change, optimiser = self.optimiser.update(gradient, state.optimiser, state.params)
        params: dict[str, Any] = optax.apply_updates(state.params, change)
        return state._replace(params=params, optimiser=optimiser), loss

    def play_and_fit(self, state: QState, _: Any = None) -> tuple[QState, dict[str, jax.Array]]:
        """Play one stretch in every world, then fit; the target network follows at its turn."""
        key, play, learn = jax.random.split(state.key, 3)
        stretch = self.collect(state.params["net"], play, self.epsilon(state.stretches))
        state = state._replace(key=key, replay=push(state.replay, stretch), stretches=state.stretches + 1)
        state, loss = jax.lax.scan(self.fit, state, jax.random.split(learn, self.config.fits))
        follow = state.stretches % self.config.target_every == 0
        target = jax.tree.map(lambda new, old: jnp.where(follow, new, old), state.params, state.target)
        return state._replace(target=target), {"loss": loss.mean(), "reward_per_step": stretch.reward.mean()}

    def update(self, state: QState) -> tuple[QState, dict[str, jax.Array]]:
        """Train up to the next test, and take it: one update of the loop."""
        key, test = jax.random.split(state.key)
        state, figures = jax.lax.scan(self.play_and_fit, state._replace(key=key), length=self.per_test)
        played = evaluate(self.env, self.policy(state.params), test, self.config.test_episodes)
        return state, {
            **jax.tree.map(lambda values: values.mean(0), figures),
            "epsilon": self.epsilon(state.stretches),
            "return": played.returns.mean(),
            "agent_return": played.agent_returns.mean(0),
            "events": played.events.mean(0),
            "lazy": lazy_agent_index(played.events),
            "length": played.length.mean(),
        }

    def policy(self, params: Mapping[str, Any], epsilon: float = 0.0) -> Policy:
        """Return the greedy team; its notes hold the value of each agent's action, whose sum is VDN's team value."""

        def start(key: jax.Array) -> Any:
            return self.net.rest(1, self.n), self.deal(key), jnp.ones(1, bool)

        def act(carry: Any, step: Step, key: jax.Array) -> tuple[Any, jax.Array, dict[str, Any]]:
            memory, features, fresh = carry
            obs = with_roles(step.obs, features)
            memory, values = self.values(params["net"], memory, obs[None, None], fresh[None])
            action = explore(key, values[0, 0], step.avail, epsilon)
            chosen = jnp.take_along_axis(values[0, 0], action[:, None], -1)[:, 0]
            return (memory, features, jnp.zeros(1, bool)), action, {"value": chosen}

        return Policy(start, act)


def _notices(env: TeamEnv, config: QConfig) -> None:
    """Say what is done silently otherwise."""
    if len(env.agents) > 1 and not getattr(env, "team_reward", False):
        warnings.warn(
            f"{env.name}: rewards are given per agent; their sum is the team's reward.", TeamRewardWarning, stacklevel=3
        )
    if config.share and len(set(env.roles)) > 1 and isinstance(config.roles, str) and config.roles == "none":
        warnings.warn(
            f"{env.name}: agents of the roles {', '.join(dict.fromkeys(env.roles))} share weights and are not told "
            "their role; set roles='onehot', or share=False.",
            RoleWarning,
            stacklevel=3,
        )


def train_q(
    learner: QLearner,
    seeds: Sequence[int],
    *,
    folder: str | Path | None = None,
    chunk: int = 5,
    report: Callable[[int, QState, dict[str, Any]], None] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> tuple[QState, dict[str, np.ndarray[Any, Any]]]:
    """Train a team from several seeds at once.

    Args:
        learner: What is trained.
        seeds: Whole numbers, S in all.
        folder: For checkpoints; a killed training goes on to the same numbers. See `rolecraft._jax.loop`.
        chunk: Tests between two checkpoints.
        report: See `rolecraft._jax.loop`.
        identity: See `rolecraft._jax.loop`.

    Returns:
        The last state, leaves (S, ...), and the metrics, (tests, S, ...).

    Raises:
        UserError: If the replays of all seeds do not fit, or there are no seeds.
        Diverged: If a figure is not finite.
    """
    from rolecraft._jax import check_memory

    if not len(seeds):
        raise UserError("seeds: expected at least one.")
    check_memory(learner.replay_bytes() * len(seeds), f"replays for {len(seeds)} seeds", "buffer")
    # Arms of one seed start alike: the key depends on the seed alone.
    keys = jnp.stack([jax.random.PRNGKey(derive_seed("marl", seed) % 2**32) for seed in seeds])
    state = jax.jit(jax.vmap(learner.init))(keys)
    return loop(
        jax.vmap(learner.update), state, updates=learner.config.tests, chunk=chunk, folder=folder, report=report,
        identity=identity,
    )  # fmt: skip


__all__ = ["QConfig", "QLearner", "QState", "RoleWarning", "Stretch", "TeamRewardWarning", "lambda_returns", "train_q"]

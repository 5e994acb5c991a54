"""What an action does: latents from which the next observation and the team's reward are predicted.

RODE's action encoder (arXiv 2010.01523, section 3.1): actions with like effects get latents near each other, so that
clusters of latents are sets of actions with like effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import optax
from jax import numpy as jnp

from rolecraft.errors import UserError, did_you_mean
from rolecraft.marl._team import TeamEnv

CHOICES = {
    "sampling": ("uniform", "balanced"),
    "target": ("next", "change"),
    "loss": ("norm", "square"),
    "optimiser": ("rmsprop", "adam"),
}
"""What the settings in words may be."""
CLIP = 10.0
"""Largest norm of a gradient, as published."""
FAR = 5.0
"""Standard deviations at which a standardised change is cut off."""
LEAST = 1e-6
"""Deviations below it are taken as this."""


@dataclass(frozen=True)
class EffectConfig:
    """Settings of the action encoder; defaults are the published ones, see `effect_config` for others."""

    latent: int = 20
    """Numbers in an action's latent. Paper: 20."""
    width: int = 32
    """Units of the context and the decoders; hidden layers of the encoders have twice as many. Paper: 32."""
    reward_weight: float = 10.0
    """Of the reward's error beside the observation's. Paper: 10."""
    sampling: str = "uniform"
    """`uniform`: moments as they were played, as published; `balanced`: every action that was played alike
    often, out of as many moments of each."""
    target: str = "next"
    """`next`: the next observation, as published; `change`: its difference from this one, standardised and cut at 5,
    and the reward standardised too, so that rewards of any size count."""
    loss: str = "norm"
    """Of the observation: `norm`, the length of the error as in the published code, or `square`, the mean square."""
    optimiser: str = "rmsprop"
    """`rmsprop` as published, or `adam`."""
    lr: float = 5e-4
    """Paper: 5e-4."""
    sample: int = 0
    """Focal moments per gradient step; 0 takes all that are given, as published."""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise UserError(f"{name}: expected one of {', '.join(known)}, got {value!r}.")
        for name in ("latent", "width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.lr <= 0 or self.reward_weight < 0 or self.sample < 0:
            raise UserError("lr must be above 0, reward_weight and sample at least 0.")


EFFECTS: dict[str, dict[str, Any]] = {
    "published": {},
    "sampling": {"sampling": "balanced"},
    "balanced": {
        "sampling": "balanced", "target": "change", "loss": "square", "optimiser": "adam", "lr": 2e-3,
        "reward_weight": 1.0, "sample": 400,
    },
}  # fmt: skip
"""Named settings: as published; the same with rare actions drawn as often as frequent ones; for short phases."""


def effect_config(kind: str = "published", **own: Any) -> EffectConfig:
    """Return named settings of the action encoder.

    Args:
        kind: `published`; `sampling`: published but for balanced sampling; `balanced`: balanced sampling, changes
            instead of observations, mean square error and Adam.
        **own: Fields of `EffectConfig` that differ.

    Raises:
        UserError: If the name is unknown or a field out of range.
    """
    if kind not in EFFECTS:
        raise UserError(
            f"there are no settings {kind!r} of action effects; expected {', '.join(EFFECTS)}."
            f"{did_you_mean(kind, EFFECTS)}"
        )
    return EffectConfig(**{**EFFECTS[kind], **own})


class Moves(NamedTuple):
    """M joint actions of n agents."""

    obs: jax.Array
    """(M, n, d)"""
    action: jax.Array
    """(M, n)"""
    after: jax.Array
    """(M, n, d), the next observation."""
    reward: jax.Array
    """(M,), the team's."""
    valid: jax.Array
    """(M,) bool: the next observation is of the same episode."""


def moves_of(stretch: Any, size: int) -> Moves:
    """Take the moves out of stretches of play.

    Args:
        stretch: Leaves (B, ...); see `Stretch`. Steps that end an episode are marked: what follows is another one.
        size: Numbers of an observation that are the world's own; what was appended to them is left out.
    """
    obs = stretch.obs[..., :size]

    def flat(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    return Moves(
        flat(obs[:, :-1]), flat(stretch.action), flat(obs[:, 1:]), flat(stretch.reward),
        flat(~stretch.done.astype(bool)),
    )  # fmt: skip


def random_moves(env: TeamEnv, key: jax.Array, steps: int, envs: int = 32) -> Moves:
    """Play at random, every available action alike.

    The next observation is what was seen before a restart, so that every move is valid.

    Args:
        env: The world; discrete actions.
        key: Decides everything.
        steps: Of all worlds together, rounded up to a multiple of `envs`.
        envs: Worlds side by side.

    Raises:
        UserError: If actions are continuous, or a number is below 1.
    """
    if not env.discrete:
        raise UserError(f"{env.name}: actions are continuous; action effects need discrete ones.")
    if steps < 1 or envs < 1:
        raise UserError(f"steps and envs must be at least 1, got {steps} and {envs}.")

    def move(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        state, step = carry
        choose, world = jax.random.split(key)
        action = jax.random.categorical(choose, jnp.where(step.avail, 0.0, -jnp.inf))
        state, after = jax.vmap(env.step)(jax.random.split(world, envs), state, action)
        return (state, after), (step.obs, action, after.info["final_obs"], after.reward.sum(-1))

    def play(key: jax.Array) -> Any:
        begin, rest = jax.random.split(key)
        first = jax.vmap(env.reset)(jax.random.split(begin, envs))
        return jax.lax.scan(move, first, jax.random.split(rest, -(-steps // envs)))[1]

    obs, action, after, reward = (leaf.reshape(-1, *leaf.shape[2:]) for leaf in jax.jit(play)(key))
    return Moves(obs, action, after, reward, jnp.ones(len(obs), bool))


def count_actions(moves: Moves, actions: int) -> jax.Array:
    """Return how often each action was taken in valid moves, (actions,)."""
    hot = jax.nn.one_hot(moves.action, actions) * moves.valid[:, None, None]
    return hot.sum((0, 1)).astype(jnp.int32)


class Focal(NamedTuple):
    """S moments, each seen from one agent."""

    obs: jax.Array
    """(S, d)"""
    others: jax.Array
    """(S, (n - 1) actions), what the others do, one-hot."""
    action: jax.Array
    """(S,)"""
    wanted: jax.Array
    """(S, d), what is to be predicted of the observation."""
    reward: jax.Array
    """(S,)"""
    weight: jax.Array
    """(S,), 0 for moments that do not count."""


class Scale(NamedTuple):
    """By what changes and rewards are standardised."""

    mean: jax.Array
    """(d,), of an observation's change."""
    deviation: jax.Array
    """(d,)"""
    reward_mean: jax.Array
    reward_deviation: jax.Array


class EffectNet(nn.Module):
    """Action encoder, context encoder, and two decoders."""

    actions: int
    size: int
    """Numbers in an observation."""
    latent: int = 20
    width: int = 32

    def setup(self) -> None:
        """Lay out the layers."""
        self.action_hidden, self.action_out = nn.Dense(2 * self.width), nn.Dense(self.latent)
        self.context_hidden, self.context_out = nn.Dense(2 * self.width), nn.Dense(self.width)
        self.obs_hidden, self.obs_out = nn.Dense(self.width), nn.Dense(self.size)
        self.reward_hidden, self.reward_out = nn.Dense(self.width), nn.Dense(1)

    def latents(self) -> jax.Array:
        """Return the latents of all actions, (actions, latent)."""
        made: jax.Array = self.action_out(nn.relu(self.action_hidden(jnp.eye(self.actions))))
        return made

    def __call__(self, obs: jax.Array, others: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Predict the observation's target (..., d) and the reward (...,); see `Focal` for the arguments."""
        context = self.context_out(nn.relu(self.context_hidden(jnp.concatenate([obs, others], -1))))
        both = jnp.concatenate([context, self.latents()[action]], -1)
        seen = self.obs_out(nn.relu(self.obs_hidden(both)))
        return seen, self.reward_out(nn.relu(self.reward_hidden(both)))[..., 0]


class ActionEffects:
    """The action encoder for one world.

    Args:
        agents: n; a lone agent's context has no others' actions.
        actions: Choices.
        size: Numbers in an observation.
        config: Settings.
    """

    def __init__(self, agents: int, actions: int, size: int, config: EffectConfig | None = None) -> None:
        self.n, self.actions, self.size, self.config = agents, actions, size, config or EffectConfig()
        self.net: Any = EffectNet(actions, size, self.config.latent, self.config.width)
        self._others = np.array([[j for j in range(agents) if j != i] for i in range(agents)], int)
        step: Any = (
            optax.adam(self.config.lr)
            if self.config.optimiser == "adam"
            else optax.rmsprop(self.config.lr, decay=0.99, eps=1e-5, eps_in_sqrt=False)
        )
        self.optimiser = optax.chain(optax.clip_by_global_norm(CLIP), step)

    def init(self, key: jax.Array) -> Any:
        """Return random parameters."""
        others = jnp.zeros((1, (self.n - 1) * self.actions))
        return self.net.init(key, jnp.zeros((1, self.size)), others, jnp.zeros(1, jnp.int32))

    def latents(self, params: Any) -> jax.Array:
        """Return the latents of all actions, (actions, latent)."""
        found: jax.Array = self.net.apply(params, method="latents")
        return found

    def order(self, moves: Moves, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Sort the moves' focal moments by action, those of one action at random.

        Returns:
            Indices m n + i sorted by action (M n,), those of invalid moves last; where each action begins among them,
            and how many each has, both (actions,).
        """
        focal = jnp.where(moves.valid[:, None], moves.action, self.actions).ravel()
        count = count_actions(moves, self.actions)
        order = jnp.lexsort((jax.random.uniform(key, focal.shape), focal))
        return order, jnp.cumsum(count) - count, count

    def draw(self, key: jax.Array, order: tuple[jax.Array, jax.Array, jax.Array], number: int) -> jax.Array:
        """Draw focal moments with replacement, indices (number,); see `order`."""
        index, start, count = order
        which, where = jax.random.split(key)
        if self.config.sampling == "balanced":
            logits = jnp.where(count > 0, 0.0, -jnp.inf)
            action = jax.random.categorical(which, logits, shape=(number,))
            # As many different moments of each: else those of rare actions are learnt by heart, which alone tells
            # rare from frequent actions.
            fewest = jnp.where(count > 0, count, count.max()).min()
            first, many = start[action], jnp.full(number, fewest)
        else:
            first, many = jnp.zeros(number, jnp.int32), jnp.full(number, count.sum())
        offset = jnp.floor(jax.random.uniform(where, (number,)) * many).astype(jnp.int32)
        return index[first + jnp.minimum(offset, jnp.maximum(many - 1, 0))]

    def scale(self, moves: Moves) -> Scale:
        """Return mean and standard deviation of the valid changes of observations, (d,), and of rewards, ()."""
        weight = moves.valid / jnp.maximum(moves.valid.sum(), 1)

        def mean(values: jax.Array) -> jax.Array:
            return jnp.tensordot(weight, values, 1)

        change, reward = moves.after - moves.obs, mean(moves.reward)
        middle = mean(change.mean(1))
        deviation = jnp.sqrt(mean(jnp.square(change - middle).mean(1)))
        return Scale(middle, deviation, reward, jnp.sqrt(mean(jnp.square(moves.reward - reward))))

    def focal(self, moves: Moves, which: jax.Array, scale: Scale) -> Focal:
        """Return the moments of indices m n + i."""
        at, agent = which // self.n, which % self.n
        obs, after = moves.obs[at, agent], moves.after[at, agent]
        hot = jax.nn.one_hot(moves.action[at[:, None], jnp.asarray(self._others)[agent]], self.actions)
        wanted, reward = after, moves.reward[at]
        if self.config.target == "change":
            wanted = jnp.clip((after - obs - scale.mean) / jnp.maximum(scale.deviation, LEAST), -FAR, FAR)
            reward = (reward - scale.reward_mean) / jnp.maximum(scale.reward_deviation, LEAST)
        others = hot.reshape(len(which), (self.n - 1) * self.actions)
        weight = moves.valid[at].astype(jnp.float32)
        return Focal(obs, others, moves.action[at, agent], wanted, reward, weight)

    def loss(self, params: Any, focal: Focal) -> jax.Array:
        """Return mean ||o' - predicted||_2 + reward_weight mean (r - predicted)^2, or with the mean square of o'."""
        seen, reward = self.net.apply(params, focal.obs, focal.others, focal.action)
        square = jnp.square(seen - focal.wanted)
        # The square root has no slope at 0: keep away from it.
        own = jnp.sqrt(square.sum(-1) + 1e-12) if self.config.loss == "norm" else square.mean(-1)
        each = own + self.config.reward_weight * jnp.square(reward - focal.reward)
        return (focal.weight * each).sum() / jnp.maximum(focal.weight.sum(), 1.0)

    def step(self, params: Any, state: Any, focal: Focal) -> tuple[Any, Any, jax.Array]:
        """Take one gradient step; returns parameters, optimiser state and loss."""
        loss, gradient = jax.value_and_grad(self.loss)(params, focal)
        change, state = self.optimiser.update(gradient, state, params)
        return optax.apply_updates(params, change), state, loss

    def fit_batch(
        self, params: Any, state: Any, moves: Moves, key: jax.Array, updates: int = 1
    ) -> tuple[Any, Any, jax.Array]:
        """Take gradient steps on a batch of moves: each on all of it, or on what is drawn from it.

        Args:
            params: So far.
            state: Of the optimiser.
            moves: The batch.
            key: Decides the draws.
            updates: Gradient steps.

        Returns:
            Parameters, optimiser state and mean loss.
        """
        count, scale = moves.action.size, self.scale(moves)
        draws = self.config.sampling != "uniform" or self.config.sample > 0
        key, mix = jax.random.split(key)
        order = self.order(moves, mix) if draws else None

        def one(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            which = jnp.arange(count) if order is None else self.draw(key, order, self.config.sample or count)
            params, state, loss = self.step(carry[0], carry[1], self.focal(moves, which, scale))
            return (params, state), loss

        (params, state), losses = jax.lax.scan(one, (params, state), jax.random.split(key, updates))
        return params, state, losses.mean()

    def fit(self, moves: Moves, key: jax.Array, updates: int, sample: int = 256) -> tuple[Any, jax.Array]:
        """Fit to a set of moves that is gathered already; a pure function that may be jitted.

        Args:
            moves: The set.
            key: Decides first weights and draws.
            updates: Gradient steps.
            sample: Focal moments of each, where the settings do not say.

        Returns:
            Parameters, and the losses (updates,).

        Raises:
            UserError: If the moves have another shape, or a number is below 1.
        """
        self.check(moves)
        if updates < 1 or sample < 1:
            raise UserError(f"updates and sample must be at least 1, got {updates} and {sample}.")
        first, rest, mix = jax.random.split(key, 3)
        params, order, scale = self.init(first), self.order(moves, mix), self.scale(moves)

        def one(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            which = self.draw(key, order, self.config.sample or sample)
            params, state, loss = self.step(carry[0], carry[1], self.focal(moves, which, scale))
            return (params, state), loss

        (params, _), losses = jax.lax.scan(one, (params, self.optimiser.init(params)), jax.random.split(rest, updates))
        return params, losses

    def check(self, moves: Moves) -> None:
        """Refuse moves of another world, before anything is compiled.

        Raises:
            UserError: If a shape differs.
        """
        number = moves.obs.shape[0]
        wanted = {
            "obs": ("(M, n, d)", (number, self.n, self.size)), "action": ("(M, n)", (number, self.n)),
            "after": ("(M, n, d)", (number, self.n, self.size)), "reward": ("(M,)", (number,)),
            "valid": ("(M,)", (number,)),
        }  # fmt: skip
        for name, (symbols, shape) in wanted.items():
            if (found := getattr(moves, name).shape) != shape:
                raise UserError(f"moves.{name} has shape {found}, expected {symbols} = {shape}.")


__all__ = [
    "EFFECTS", "ActionEffects", "EffectConfig", "EffectNet", "Focal", "Moves", "count_actions", "effect_config",
    "moves_of", "random_moves",
]  # fmt: skip

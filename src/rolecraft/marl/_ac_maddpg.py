"""MADDPG: actors that see their own observation, critics that see everything (Lowe et al., arXiv 1706.02275).

`Maddpg(env, config)` has `init(key) -> state` and a pure `update(state) -> (state, figures)` for `rolecraft._jax.loop`;
both may be vmapped over seeds and over who sees whom, with `SEEDS` as the axes of the state. All agents' networks are
trained at once on one joint batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import optax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._ac_losses import (
    actor_loss,
    check_sees,
    critic_loss,
    inference_loss,
    joint_input,
    logit_penalty,
    td_target,
)
from rolecraft.marl._ac_nets import Mlp, apply_stack, clip_each, gumbel_softmax, init_stack
from rolecraft.marl._ac_replay import Replay, Transition, make_replay, newest, sample, write

if TYPE_CHECKING:
    from rolecraft.marl._team import TeamEnv

Array = Any


@dataclass(frozen=True)
class MaddpgConfig:
    """Sizes and rates; the defaults are the paper's where it has them."""

    hidden: int = 64
    """Units of either hidden layer of actors and critics. Paper: 64."""
    lr: float = 0.01
    """Of Adam, for both. Paper: 0.01."""
    gamma: float = 0.95
    """Discount per step. Paper: 0.95."""
    tau: float = 0.01
    """Share of the new weights in the targets' after an update. Paper: 0.01."""
    clip: float = 0.5
    """Largest norm of a weight matrix's gradient. Released code: 0.5."""
    batch: int = 1024
    """Joint rows per update, times the number of sub-policies. Paper: 1024."""
    capacity: int = 500_000
    """Joint rows kept. Paper: 1,000,000."""
    warmup: int = 25_600
    """Rows before the first update. Released code: 1024 episodes of 25 steps."""
    envs: int = 25
    """Copies of the world that run side by side. Paper: 1."""
    steps: int = 4
    """Steps of each between updates. Paper: 100 steps of one world; ours: 4 of 25."""
    temperature: float = 1.0
    """Of the Gumbel-softmax, for discrete actions. Released code: 1."""
    straight_through: bool = True
    """For discrete actions: samples in the losses are one-hot with a relaxed gradient; off: they are relaxed."""
    relaxed: bool = False
    """In a world of continuous actions, act by Gumbel-softmax samples as they are: the released code's way, in which
    an agent may mix moves. Off: by tanh with Gaussian noise."""
    noise: float = 0.1
    """Standard deviation of that noise, in units of half the range."""
    low: float = -1.0
    """Lower end of the range of such actions."""
    high: float = 1.0
    """Its upper end."""
    logit_penalty: float = 1e-3
    """Weight of the mean squared logits. Released code: 0.001."""
    ensemble: int = 1
    """Sub-policies per agent, drawn anew for each episode. Paper: 3 in its study of ensembles."""
    infer: bool = False
    """Targets use each agent's own guesses at the others' policies in place of these."""
    infer_entropy: float = 1e-3
    """Weight of a guess's entropy. Paper: lambda, without a figure."""
    time_limit: bool = True
    """An episode ends by the clock, which is no terminal state: the value of its last observation counts."""

    def __post_init__(self) -> None:
        """Refuse sizes and rates out of range."""
        whole = ("hidden", "batch", "capacity", "envs", "steps", "ensemble", "warmup")
        for name in whole:
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("lr", "clip", "temperature"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be above 0, got {getattr(self, name)}.")
        for name in ("gamma", "tau"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in [0, 1], got {getattr(self, name)}.")
        if not self.low < self.high or self.noise < 0 or self.logit_penalty < 0:
            raise UserError(
                "expected low < high, and noise and logit_penalty from 0, got "
                f"{self.low}, {self.high}, {self.noise}, {self.logit_penalty}."
            )


class Weights(NamedTuple):
    """Parameters; leaves are stacked per agent."""

    actor: Any
    """(n, K, ...)"""
    critic: Any
    """(n, ...)"""
    guess: Any
    """Agents' guesses at each other's policies, (n, n, ...); None without."""


class MaddpgState(NamedTuple):
    """All that training carries from update to update."""

    weights: Weights
    targets: Weights
    optimiser: Weights
    """Adam's moments, for each."""
    sees: Array
    """(n, n)"""
    replay: Replay
    env: Any
    """The worlds' states."""
    obs: Array
    """(envs, n, d)"""
    avail: Array
    """(envs, n, actions)"""
    sub: Array
    """Sub-policies in use, (envs, n)."""
    key: Array


SEEDS: Any = MaddpgState(0, 0, 0, 0, Replay(0, None), 0, 0, 0, 0, 0)  # type: ignore[arg-type]
"""Axes of a state that holds several seeds, for `jax.vmap`. They share the count of rows written, so that a block is
written in place; with a count each, every write would copy the replay."""


class Maddpg:
    """MADDPG, or DDPG where critics see nothing but their own agent, in one world."""

    def __init__(self, env: TeamEnv, config: MaddpgConfig) -> None:
        """Lay out the networks.

        Raises:
            UserError: If guesses at others' policies are asked for continuous actions.
        """
        self.env, self.config = env, config
        self.agents, self.width = len(env.agents), env.action_size
        self.categorical = env.discrete or config.relaxed
        if config.relaxed and env.discrete:
            raise UserError(f"relaxed=True needs continuous actions, and those of {env.name} are discrete.")
        if config.infer and not self.categorical:
            raise UserError(
                f"infer=True guesses distributions over choices, and the actions of {env.name} are continuous; "
                "set relaxed=True, or take a world of discrete actions."
            )
        # A policy that starts uniform explores; whole moves by large first logits do not.
        self.actor = Mlp(self.width, config.hidden, last_scale=0.01)
        self.critic = Mlp(1, config.hidden)
        self.adam = optax.adam(config.lr)

    def sees(self, local: bool | tuple[bool, ...] = False) -> Array:
        """Return who sees whom: all for MADDPG, (n, n); agents whose `local` is true see themselves alone (DDPG)."""
        each = (local,) * self.agents if isinstance(local, bool) else local
        if len(each) != self.agents:
            raise UserError(f"local: expected one entry per agent, (n,) = ({self.agents},), got {len(each)}.")
        return jnp.where(jnp.array(each)[:, None], jnp.eye(self.agents), 1.0)

    def init(self, key: Array, sees: Array | None = None) -> MaddpgState:
        """Return a state whose replay holds the warm-up.

        Args:
            key: Random key.
            sees: Shape (n, n); see `sees`. None is MADDPG's.

        Raises:
            UserError: If shapes do not fit, or the replay needs more memory than there is.
        """
        sees = self.sees() if sees is None else jnp.asarray(sees, jnp.float32)
        if not isinstance(sees, jax.core.Tracer):
            check_sees(sees, self.agents)
        c, n, d = self.config, self.agents, self.env.obs_size
        k_actor, k_critic, k_guess, k_env, k_sub, key = jax.random.split(key, 6)
        weights = Weights(
            init_stack(self.actor, k_actor, (n, c.ensemble), d),
            init_stack(self.critic, k_critic, (n,), n * (d + self.width)),
            init_stack(self.actor, k_guess, (n, n), d) if c.infer else None,
        )
        env, first = jax.vmap(self.env.reset)(jax.random.split(k_env, c.envs))
        state = MaddpgState(
            weights, jax.tree.map(jnp.array, weights), jax.tree.map(jnp.array, self._adam_init(weights)), sees,
            make_replay(self._example(), c.capacity, c.envs * c.steps), env, first.obs, first.avail,
            jax.random.randint(k_sub, (c.envs, n), 0, c.ensemble), key,
        )  # fmt: skip
        blocks = -(-min(c.warmup, c.capacity) // (c.envs * c.steps))
        filled: MaddpgState = jax.lax.fori_loop(0, blocks, lambda _, carry: self.collect(carry)[0], state)
        return filled

    def _adam_init(self, weights: Weights) -> Weights:
        return Weights(*(None if tree is None else self.adam.init(tree) for tree in weights))

    def _example(self) -> Transition:
        n, d, a = self.agents, self.env.obs_size, self.width
        f, b, i = jnp.float32, jnp.bool_, jnp.int32
        shapes = Transition((n, d), (n, a), (n, a), (n,), (n, d), (n, a), (n,), (n,), (n,))
        types = Transition(f, b, f, f, f, b, b, b, i)
        return Transition(*(jnp.zeros(s, t) for s, t in zip(shapes, types, strict=True)))

    def _relax(self, logits: Array, avail: Array, key: Array) -> Array:
        """Return action vectors from actors' outputs for the losses, sampled where actions are choices."""
        if not self.categorical:
            return jnp.where(avail, jnp.tanh(logits), 0.0)
        hard = self.config.straight_through and self.env.discrete
        noise = jax.random.gumbel(key, logits.shape)
        return gumbel_softmax(logits, noise, avail, temperature=self.config.temperature, straight_through=hard)

    def logits(self, actor: Any, obs: Array) -> Array:
        """Return all sub-policies' outputs, (K, B, n, A), for observations (B, n, d)."""
        every = jnp.broadcast_to(obs.swapaxes(0, 1)[:, None], (self.agents, self.config.ensemble, *obs.shape[::2]))
        return apply_stack(self.actor, actor, every, 2).transpose(1, 2, 0, 3)

    def act(self, actor: Any, obs: Array, avail: Array, sub: Array, key: Array | None = None) -> Array:
        """Choose actions by each agent's own observation.

        Args:
            actor: Of all agents; rows may come from different trainings (cross-play).
            obs: Shape (B, n, d).
            avail: Shape (B, n, actions).
            sub: Sub-policies, (B, n).
            key: For exploration; None takes the likeliest action, or the mean.

        Returns:
            Shape (B, n, A): one-hot, relaxed, or in [-1, 1].
        """
        chosen = jnp.take_along_axis(self.logits(actor, obs), sub[None, ..., None], 0)[0]
        if self.categorical:
            noise = jnp.zeros(chosen.shape) if key is None else jax.random.gumbel(key, chosen.shape)
            return gumbel_softmax(
                chosen, noise, avail, temperature=self.config.temperature, straight_through=self.env.discrete
            )
        mean = jnp.tanh(chosen)
        if key is not None:
            mean = mean + self.config.noise * jax.random.normal(key, chosen.shape)
        return jnp.where(avail, jnp.clip(mean, -1.0, 1.0), 0.0)

    def send(self, actions: Array) -> Array:
        """Return action vectors as the world takes them: indices, or numbers in its range."""
        if self.env.discrete:
            return actions.argmax(-1).astype(jnp.int32)
        low, high = self.config.low, self.config.high
        return actions if self.categorical else low + (high - low) * (actions + 1) / 2

    def collect(self, state: MaddpgState) -> tuple[MaddpgState, Array]:
        """Run every world on by `steps`, write the rows, and return the mean reward per agent, (n,)."""
        c = self.config

        def one(carry: tuple[Any, ...], key: Array) -> tuple[tuple[Any, ...], Transition]:
            env, obs, avail, sub = carry
            k_act, k_env, k_sub = jax.random.split(key, 3)
            action = self.act(state.weights.actor, obs, avail, sub, k_act)
            env, step = jax.vmap(self.env.step)(jax.random.split(k_env, c.envs), env, self.send(action))
            over = step.done[:, None]
            last = step.info.get("final_obs", step.obs)
            gone = step.info.get("agent_done", jnp.zeros(step.reward.shape, bool))
            there = ~step.info.get("agent_was_done", jnp.zeros(step.reward.shape, bool))
            ended = gone | (over & (not c.time_limit))
            after = jnp.where(over[..., None], last, step.obs)
            row = Transition(obs, avail, action, step.reward, after, step.avail, ended, there, sub)
            fresh = jax.random.randint(k_sub, sub.shape, 0, c.ensemble)
            return (env, step.obs, step.avail, jnp.where(over, fresh, sub)), row

        key, *keys = jax.random.split(state.key, c.steps + 1)
        carry, rows = jax.lax.scan(one, (state.env, state.obs, state.avail, state.sub), jnp.stack(keys))
        replay = write(state.replay, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows))
        env, obs, avail, sub = carry
        state = state._replace(replay=replay, env=env, obs=obs, avail=avail, sub=sub, key=key)
        return state, rows.reward.mean((0, 1))

    def update(self, state: MaddpgState) -> tuple[MaddpgState, Mapping[str, Array]]:
        """Collect, then train guesses, critics and actors once, and move the targets.

        Returns:
            The next state, and per agent (n,) `critic_loss`, `actor_loss` and `reward`.
        """
        state, reward = self.collect(state)
        key, k_batch, k_next, k_actor = jax.random.split(state.key, 4)
        batch = sample(state.replay, k_batch, self.config.batch * self.config.ensemble)
        weights, moments, figures = state.weights, state.optimiser, {"reward": reward}
        if self.config.infer:
            recent = newest(state.replay, self.config.envs * self.config.steps)
            loss, slope = jax.value_and_grad(self._guess_loss)(weights.guess, recent)
            guess, moved = self._step(weights.guess, slope, moments.guess, 2)
            weights, moments = weights._replace(guess=guess), moments._replace(guess=moved)
            figures["guess_loss"] = loss / max(1, self.agents * (self.agents - 1))
        targets = self.targets(state.targets, batch, state.sees, k_next)
        grad = jax.value_and_grad(self._critic_loss, has_aux=True)
        (_, figures["critic_loss"]), slope = grad(weights.critic, batch, targets, state.sees)
        critic, moved = self._step(weights.critic, slope, moments.critic, 1)
        weights, moments = weights._replace(critic=critic), moments._replace(critic=moved)
        grad = jax.value_and_grad(self.actor_objective, has_aux=True)
        (_, figures["actor_loss"]), slope = grad(weights.actor, critic, batch, state.sees, k_actor)
        actor, moved = self._step(weights.actor, slope, moments.actor, 2)
        weights, moments = weights._replace(actor=actor), moments._replace(actor=moved)
        tau = self.config.tau
        soft = jax.tree.map(lambda old, new: old + tau * (new - old), state.targets, weights)
        return state._replace(weights=weights, targets=soft, optimiser=moments, key=key), figures

    def _step(self, weights: Any, slope: Any, moments: Any, axes: int) -> tuple[Any, Any]:
        change, moments = self.adam.update(clip_each(slope, self.config.clip, axes), moments)
        return optax.apply_updates(weights, change), moments

    def targets(self, targets: Weights, batch: Transition, sees: Array, key: Array) -> Array:
        """Return ``y_i = r_i + gamma * Q'_i(x', mu'_1(o_1'), ..., mu'_n(o_n'))``, shape (B, n).

        The sub-policies are those of each row's episode; with guesses, agent i's Q' sees its guesses of the others.
        """
        k_own, k_guess = jax.random.split(key)
        chosen = jnp.take_along_axis(self.logits(targets.actor, batch.next_obs), batch.sub[None, ..., None], 0)[0]
        after = self._relax(chosen, batch.next_avail, k_own)
        if self.config.infer:
            guessed = self._guesses(targets.guess, batch.next_obs).transpose(2, 0, 1, 3)
            guessed = self._relax(guessed, batch.next_avail[:, None], k_guess)
            own = jnp.eye(self.agents, dtype=bool)[None, :, :, None]
            after = jnp.where(own, after[:, None], guessed)
        values = self.values(targets.critic, joint_input(batch.next_obs, after, sees))
        return td_target(batch.reward, batch.ended, values.swapaxes(0, 1), self.config.gamma)

    def values(self, critic: Any, inputs: Array) -> Array:
        """Return critics' values, (n, B), of joint inputs (n, B, n * (d + A))."""
        return apply_stack(self.critic, critic, inputs, 1)[..., 0]

    def _guesses(self, guess: Any, obs: Array) -> Array:
        """Return logits (n, n, B, A): agent i's guess of agent j from o_j."""
        every = jnp.broadcast_to(obs.swapaxes(0, 1)[None], (self.agents, self.agents, *obs.shape[::2]))
        return apply_stack(self.actor, guess, every, 2)

    def _guess_loss(self, guess: Any, rows: Transition) -> Array:
        return inference_loss(self._guesses(guess, rows.obs), rows.action, rows.avail, self.config.infer_entropy).sum()

    def _critic_loss(self, critic: Any, batch: Transition, targets: Array, sees: Array) -> tuple[Array, Array]:
        values = self.values(critic, joint_input(batch.obs, batch.action, sees)).swapaxes(0, 1)
        losses = critic_loss(values, jax.lax.stop_gradient(targets), batch.active)
        return losses.sum(), losses

    def actor_objective(
        self, actor: Any, critic: Any, batch: Transition, sees: Array, key: Array
    ) -> tuple[Array, Array]:
        """Return the sum of the actors' losses, and their sum over sub-policies per agent, (n,).

        A sub-policy's buffer is the rows of the episodes in which it played, so that its gradient is theirs alone.
        """
        c = self.config
        logits = self.logits(actor, batch.obs)
        own = jnp.stack(
            [self._relax(logits[k], batch.avail, one) for k, one in enumerate(jax.random.split(key, c.ensemble))]
        )
        weight = (batch.sub[None] == jnp.arange(c.ensemble)[:, None, None]) & batch.active[None]
        losses = actor_loss(
            lambda x: self.values(critic, x), batch.obs, batch.action, own, sees, weight.astype(jnp.float32)
        )
        if c.logit_penalty:
            kept = weight[..., None] & batch.avail[None]
            losses = losses + c.logit_penalty / c.ensemble * jax.vmap(logit_penalty)(logits, kept)
        return losses.sum(), losses.sum(0)

"""Dichotomy of Control with networks: imitation given a latent that holds what can be controlled (arXiv 2210.13435).

An encoder q(z | episode), a prior p(z | s_0), a policy pi(a | s_t, z), a value V(s_t, z) and an energy
f(s_{t+1}; s_t, a_t, z), on finite MDPs. The energy estimates I(s_{t+1}; z | s_t, a_t) with the empirical
P(s_{t+1} | s_t, a_t) as the law of negatives, summed exactly over the states; the encoder removes that information.
The paper's condition is the whole past. Here it is the state, which is what an outcome depends on in an MDP: an energy
that also read the past would learn a thousand episodes by heart, and count that as information.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import linen as nn
from jax import numpy as jnp

from rolecraft._jax import loop
from rolecraft.control._doc_bandit import MODES, Mode
from rolecraft.control._doc_data import Episodes, count_transitions, sum_features
from rolecraft.control._information import conditional_bound
from rolecraft.control._pqn import apply
from rolecraft.control._report import CommandReport, commanded_against_achieved
from rolecraft.errors import UserError

Array = jax.Array


@dataclass(frozen=True)
class DoCConfig:
    """Sizes and rates; the paper's values in brackets are those of its transformer.

    Raises:
        UserError: If a number is out of range, or the mode is unknown.
    """

    mode: Mode = "min-max"
    """As in `TabularDoC`."""
    information: float = 10.0
    """Weight of the information; 0 is the latent-variable model without constraint. It must outweigh what knowing the
    return saves the value at every step of an episode. Paper: a constraint; its code: 1."""
    prior: float = 1.0
    """Weight of KL(q(z | episode) || p(z | s_0)). Paper: 1."""
    latent: int = 8
    """Paper: 32."""
    width: int = 64
    """Paper: 128, three layers."""
    lr: float = 1e-3
    """Of Adam, linearly to a tenth of it. Paper: 1e-4."""
    energy_lr: float = 3e-3
    """Of the energy, which must keep up with the encoder."""
    clip: float = 1.0
    """Largest norm of a gradient. Paper: 0.25."""
    updates: int = 1000
    """Paper: 10000."""
    batch: int = 64
    """Episodes. Paper: 64."""
    steps: int = 8
    """Drawn from each of them, with weights that make sums over the episode unbiased."""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        if self.mode not in MODES:
            raise UserError(f"mode: expected one of {', '.join(MODES)}, got {self.mode!r}.")
        if min(self.latent, self.width, self.updates, self.batch, self.steps) < 1:
            raise UserError("latent, width, updates, batch and steps must be at least 1.")
        if min(self.lr, self.energy_lr, self.clip) <= 0 or min(self.information, self.prior) < 0:
            raise UserError("lr, energy_lr and clip must be above 0, information and prior at least 0.")


class Parts(NamedTuple):
    """One set of parameters per network."""

    encoder: Any
    prior: Any
    policy: Any
    value: Any
    energy: Any


class MLP(nn.Module):
    """Two hidden layers with ReLU."""

    width: int
    out: int

    @nn.compact
    def __call__(self, *parts: Array) -> Array:
        """Map the joined parts (..., D) to (..., out)."""
        x = jnp.concatenate(parts, -1)
        for _ in range(2):
            x = nn.relu(nn.Dense(self.width)(x))
        found: Array = nn.Dense(self.out)(x)
        return found


class Batch(NamedTuple):
    """B episodes with K steps of each."""

    episode: Array
    """(B, F)."""
    state: Array
    """One-hot (B, K, S)."""
    action: Array
    """(B, K)."""
    following: Array
    """(B, K)."""
    returns: Array
    """(B,)."""
    weight: Array
    """Length of the episode over K, (B, 1)."""


class Losses(NamedTuple):
    """Means over episodes, the first three of sums over their steps."""

    action: Array
    value: Array
    information: Array
    """Lower bound on the sum over steps of I(s_{t+1}; z | s_t, a_t), in nats."""
    kl: Array


@dataclass(frozen=True)
class DoC:
    """The networks for a finite MDP of S states and A actions."""

    config: DoCConfig
    states: int
    actions: int
    returns: tuple[float, float] = (0.0, 1.0)
    """Least and largest return of the data; no value lies outside."""

    def start(self, key: Array, features: int) -> Parts:
        """Return first parameters; an episode has `features` numbers."""
        c, (s, a, z) = self.config, (self.states, self.actions, self.config.latent)
        keys = jax.random.split(key, 4)
        shapes = {
            "encoder": (2 * z, (jnp.zeros(features),)),
            "policy": (a, (jnp.zeros(s), jnp.zeros(z))),
            "value": (1, (jnp.zeros(s), jnp.zeros(z))),
            "energy": (s, (jnp.zeros(s * a), jnp.zeros(z))),
        }
        made = {
            name: MLP(c.width, out).init(k, *inputs)
            for k, (name, (out, inputs)) in zip(keys, shapes.items(), strict=True)
        }
        return Parts(prior=jnp.zeros((2, z)), **made)

    def _net(self, out: int) -> MLP:
        return MLP(self.config.width, out)

    def encode(self, parts: Parts, episode: Array) -> tuple[Array, Array]:
        """Return mean and log standard deviation of q(z | episode), (..., Z) each."""
        mean, spread = jnp.split(apply(self._net(2 * self.config.latent), parts.encoder, episode), 2, -1)
        return mean, jnp.clip(spread - 1, -5.0, 2.0)

    def policy(self, parts: Parts, state: Array, z: Array) -> Array:
        """Return logits (..., A) for one-hot states (..., S) and latents (..., Z)."""
        logits: Array = apply(self._net(self.actions), parts.policy, state, z)
        return logits

    def value(self, parts: Parts, state: Array, z: Array) -> Array:
        """Return the expected return-to-go (...)."""
        low, high = self.returns
        found: Array = apply(self._net(1), parts.value, state, z)
        return low + (high - low) * jax.nn.sigmoid(found[..., 0])

    def losses(self, parts: Parts, batch: Batch, law: Array, key: Array) -> Losses:
        """Return the parts of the objective.

        Args:
            parts: The networks.
            batch: Episodes.
            law: Empirical P(s' | s, a), (S, A, S).
            key: Random key of the latents.
        """
        mean, spread = self.encode(parts, batch.episode)
        z = mean + jnp.exp(spread) * jax.random.normal(key, mean.shape)
        z = jnp.broadcast_to(z[:, None], (*batch.action.shape, z.shape[-1]))
        logits = jax.nn.log_softmax(self.policy(parts, batch.state, z))
        nll = -jnp.take_along_axis(logits, batch.action[..., None], -1)[..., 0]
        error = jnp.square(self.value(parts, batch.state, z) - batch.returns[:, None])
        pair = (batch.state[..., None] * jax.nn.one_hot(batch.action, self.actions)[..., None, :]).reshape(
            *batch.action.shape, -1
        )
        energies = apply(self._net(self.states), parts.energy, pair, z)
        bound = conditional_bound(energies, batch.following, law[batch.state.argmax(-1), batch.action])
        action, value, information = ((batch.weight * x).sum(1).mean() for x in (nll, error, bound))
        m, s = parts.prior
        kl = s - spread + (jnp.exp(2 * spread) + jnp.square(mean - m)) / (2 * jnp.exp(2 * s)) - 0.5
        return Losses(action, value, information, kl.sum(-1).mean())

    def gradient(self, parts: Parts, batch: Batch, law: Array, key: Array) -> tuple[Parts, Losses]:
        """Return the direction to descend and the losses; the energy climbs what the encoder descends (`min-max`)."""
        c = self.config

        def total(parts: Parts) -> tuple[Array, Losses]:
            found = self.losses(parts, batch, law, key)
            sign = 1.0 if c.mode == "min-max" else -1.0
            constraint = found.information if c.information else jnp.zeros(())
            return found.action + found.value + c.prior * found.kl + sign * c.information * constraint, found

        grad, found = jax.grad(total, has_aux=True)(parts)
        turn = -1.0 if c.mode == "min-max" else 1.0
        return grad._replace(energy=jax.tree.map(lambda g: turn * g, grad.energy)), found


class Data(NamedTuple):
    """All episodes on the device."""

    episode: Array
    states: Array
    actions: Array
    following: Array
    returns: Array
    lengths: Array
    law: Array


def to_device(data: Episodes) -> Data:
    """Return the arrays that fitting reads.

    Raises:
        UserError: If all returns are the same: there is no command to give.
    """
    if len(np.unique(data.returns)) < 2:
        raise UserError(
            f"all {len(data.returns)} episodes have the return {data.returns[0]:g}; a value needs at least two "
            "different returns. Collect more episodes or a better behaviour policy."
        )
    states, actions, following = (jnp.asarray(x, jnp.int32) for x in (data.states, data.actions, data.following))
    return Data(
        jnp.asarray(sum_features(data)), states, actions, following, jnp.asarray(data.returns, jnp.float32),
        jnp.asarray(data.lengths, jnp.int32), jnp.asarray(count_transitions(data), jnp.float32),
    )  # fmt: skip


def draw_batch(data: Data, key: Array, batch: int, steps: int) -> Batch:
    """Draw episodes with replacement, and steps of each with replacement."""
    row_key, step_key = jax.random.split(key)
    row = jax.random.randint(row_key, (batch,), 0, len(data.returns))
    length = data.lengths[row][:, None]
    at = jnp.minimum((jax.random.uniform(step_key, (batch, steps)) * length).astype(jnp.int32), length - 1)
    rows = row[:, None]
    return Batch(
        data.episode[row], jax.nn.one_hot(data.states[rows, at], data.law.shape[0]),
        data.actions[rows, at], data.following[rows, at], data.returns[row], length / steps,
    )  # fmt: skip


def fit_doc(model: DoC, data: Data, keys: Array, settle: int = 500) -> tuple[Parts, dict[str, np.ndarray[Any, Any]]]:
    """Fit one model per data set, all at once; at last with the encoder and the prior as they are.

    What the latent gives away and what it is worth can be told only once it stands still, and so the last updates move
    the policy, the value and the energy alone; of every model alike, whatever it was trained for.

    Args:
        model: The networks.
        data: With a leading axis of n data sets.
        keys: Random keys, (n,).
        settle: These last updates.

    Returns:
        Parameters with a leading axis of n, and over the last fifth of the updates the means of `action`, `value`
        and `kl`, and over the last fifth of the settling of `information`, each (n,).
    """
    c = model.config

    def make(learn: bool) -> optax.GradientTransformation:
        net, energy = (optax.linear_schedule(lr, 0.1 * lr, c.updates) for lr in (c.lr, c.energy_lr))
        latent = optax.adam(net) if learn else optax.set_to_zero()
        rates = {"latent": latent, "net": optax.adam(net), "energy": optax.adam(energy)}
        labels = Parts("latent", "latent", "net", "net", "energy")
        clipped = {name: optax.chain(optax.clip_by_global_norm(c.clip), tx) for name, tx in rates.items()}
        return optax.multi_transform(clipped, labels)

    def update(tx: optax.GradientTransformation, judge: DoC) -> Any:
        def one(state: Any) -> Any:
            parts, opt, key, data = state
            key, draw_key, latent_key = jax.random.split(key, 3)
            batch = draw_batch(data, draw_key, c.batch, c.steps)
            grad, found = judge.gradient(parts, batch, data.law, latent_key)
            change, opt = tx.update(grad, opt, parts)
            return (optax.apply_updates(parts, change), opt, key, data), found._asdict()

        return jax.vmap(one)

    first = jax.jit(jax.vmap(lambda key, episode: model.start(key, episode.shape[-1])))(keys, data.episode)
    tx, last = make(True), make(False)
    state: Any = (first, jax.vmap(tx.init)(first), keys, data)
    (parts, _, keys, _), found = loop(update(tx, model), state, updates=c.updates, chunk=c.updates)
    figures = {name: values[-max(1, c.updates // 5) :].mean(0) for name, values in found.items()}
    probe = replace(model, config=replace(c, mode="min-max", information=c.information or 1.0))
    state = (parts, jax.vmap(last.init)(parts), keys, data)
    (parts, *_), found = loop(update(last, probe), state, updates=settle, chunk=settle)
    figures["information"] = found["information"][-max(1, settle // 5) :].mean(0)
    return parts, figures


class Plans(NamedTuple):
    """What a model promises and does for latents drawn from its prior."""

    policies: np.ndarray[Any, Any]
    """(M, S, A)."""
    values: np.ndarray[Any, Any]
    """V(s_0, z), (M,)."""

    def nearest(self, command: float | None = None) -> int:
        """Return the latent whose value is nearest the command, or largest (None): the best that can be promised."""
        return int(self.values.argmax() if command is None else np.abs(self.values - command).argmin())


def draw_plans(model: DoC, parts: Parts, start: Array, key: Array, samples: int = 100) -> Plans:
    """Draw latents from the prior; a latent is kept for the whole episode.

    Args:
        model: The networks.
        parts: Their parameters, of one data set.
        start: Law of the first state, (S,).
        key: Random key.
        samples: M. Paper: 100.
    """
    mean, spread = parts.prior
    z = mean + jnp.exp(spread) * jax.random.normal(key, (samples, model.config.latent))
    every = jnp.broadcast_to(jnp.eye(model.states), (samples, model.states, model.states))
    wide = jnp.broadcast_to(z[:, None], (samples, model.states, z.shape[-1]))
    policies = jax.nn.softmax(model.policy(parts, every, wide))
    values = model.value(parts, every, wide) @ start
    return Plans(np.asarray(policies, dtype=float), np.asarray(values, dtype=float))


def consistency_report(plans: Plans, achieved: np.ndarray[Any, Any]) -> CommandReport:
    """Compare what each drawn latent promises with what it returns, the test of the paper's consistency theorem.

    Args:
        plans: Of `draw_plans`.
        achieved: Expected return of each plan's policy (M,), such as `exact_returns` computes.
    """
    return commanded_against_achieved(plans.values, achieved, measure="return")

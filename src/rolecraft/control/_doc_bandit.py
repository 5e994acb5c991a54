"""Dichotomy of Control as tables, for one step: actions, outcomes, a categorical latent (arXiv 2210.13435)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp
from numpy.typing import ArrayLike

from rolecraft._jax import loop
from rolecraft.control._information import conditional_bound
from rolecraft.errors import UserError

Array = jax.Array
Mode = Literal["min-max", "as_released"]
MODES = ("min-max", "as_released")


def return_posterior(success: ArrayLike, behaviour: ArrayLike) -> np.ndarray[Any, Any]:
    """Return P(action | outcome 1) by Bayes' rule: what imitation of lucky episodes converges to.

    Args:
        success: P(outcome 1 | action), (A,).
        behaviour: P(action) in the data, (A,).

    Raises:
        UserError: If they are no probabilities of one length, or outcome 1 cannot occur.
    """
    p, mu = np.asarray(success, dtype=float), np.asarray(behaviour, dtype=float)
    if p.shape != mu.shape or p.ndim != 1 or ((p < 0) | (p > 1)).any() or (mu < 0).any() or not np.isclose(mu.sum(), 1):
        raise UserError(f"expected P(1 | action) and P(action), both (A,), got {p.tolist()} and {mu.tolist()}.")
    if not (p * mu).any():
        raise UserError("outcome 1 has probability 0 in the data, so that it cannot be commanded.")
    joint: np.ndarray[Any, Any] = p * mu
    found: np.ndarray[Any, Any] = joint / joint.sum()
    return found


class Tables(NamedTuple):
    """Logits of a tabular model with A actions, R outcomes (return bins, worst first) and Z latent values."""

    posterior: Array
    """Of q(z | a, r), (A, R, Z)."""
    policy: Array
    """Of pi(a | z), (Z, A)."""
    value: Array
    """Of P(r | z), (Z, R)."""
    energy: Array
    """f(a, r, z), (A, R, Z)."""


@dataclass(frozen=True)
class TabularDoC:
    """How the tables are fitted.

    Raises:
        UserError: If a number is out of range, or the mode is unknown.
    """

    mode: Mode = "min-max"
    """`min-max`: the energies estimate the information and the latent is made to have none. `as_released`: both
    minimise the contrastive loss, as the published code does, which makes the latent hold more of it."""
    weight: float = 5.0
    """Of the information; 0 leaves a latent-variable model without constraint. Paper's code: 1, at which the value's
    loss pays the latent exactly what the information costs, so that nothing is constrained."""
    latents: int = 0
    """Z; 0 is A * R, as in the paper's code."""
    lr: float = 0.01
    """Of Adam. Paper: 0.01."""
    updates: int = 3000
    batch: int = 128

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        if self.mode not in MODES:
            raise UserError(f"mode: expected one of {', '.join(MODES)}, got {self.mode!r}.")
        if self.weight < 0 or self.lr <= 0 or min(self.updates, self.batch) < 1 or self.latents < 0:
            raise UserError(f"weight must be at least 0, lr above 0, updates and batch at least 1, got {self}.")

    def start(self, key: Array, actions: int, outcomes: int) -> Tables:
        """Return small random tables."""
        z = self.latents or actions * outcomes
        shapes = ((actions, outcomes, z), (z, actions), (z, outcomes), (actions, outcomes, z))
        return Tables(*(0.1 * jax.random.normal(k, s) for k, s in zip(jax.random.split(key, 4), shapes, strict=True)))

    def losses(self, tables: Tables, key: Array, joint: Array) -> tuple[Array, Array]:
        """Return the imitation loss and the estimate of I(r; z | a) on a fresh batch of episodes, in nats.

        Args:
            tables: The model.
            key: Random key.
            joint: Empirical P(a, r), (A, R).
        """
        data_key, latent_key = jax.random.split(key)
        drawn = jax.random.categorical(data_key, jnp.log(joint).reshape(-1), shape=(self.batch,))
        a, r = drawn // joint.shape[1], drawn % joint.shape[1]
        logits = tables.posterior[a, r]
        chosen = jax.nn.one_hot(jax.random.categorical(latent_key, logits), logits.shape[-1])
        soft = jax.nn.softmax(logits)
        z = chosen + soft - jax.lax.stop_gradient(soft)  # straight through: the gradient is that of the softmax
        rows = jnp.arange(self.batch)
        imitation = -(z @ jax.nn.log_softmax(tables.policy))[rows, a] - (z @ jax.nn.log_softmax(tables.value))[rows, r]
        energies = jnp.einsum("brz,bz->br", tables.energy[a], z)
        prior = joint / joint.sum(1, keepdims=True)
        return imitation.mean(), conditional_bound(energies, r, prior[a]).mean()

    def gradient(self, tables: Tables, key: Array, joint: Array) -> tuple[Tables, Array, Array]:
        """Return the direction to descend, the imitation loss and the information."""

        def total(tables: Tables) -> tuple[Array, tuple[Array, Array]]:
            imitation, information = self.losses(tables, key, joint)
            sign = 1.0 if self.mode == "min-max" else -1.0
            return imitation + sign * self.weight * information, (imitation, information)

        grad, found = jax.grad(total, has_aux=True)(tables)
        if self.mode == "min-max":  # the energies climb what the latent descends
            grad = grad._replace(energy=-grad.energy)
        return grad, *found

    def fit(self, joint: ArrayLike, seeds: ArrayLike) -> Tables:
        """Fit one model per data set, all at once.

        Args:
            joint: Empirical P(a, r), (n, A, R); each sums to 1, and each action occurs.
            seeds: (n,).

        Returns:
            Tables with a leading axis of n.

        Raises:
            UserError: If `joint` is no such table.
        """
        table = np.asarray(joint, dtype=float)
        if table.ndim != 3 or (table < 0).any() or not np.allclose(table.sum((1, 2)), 1) or not table.sum(2).all():
            raise UserError(f"joint: expected P(a, r) of shape (n, A, R) with every action in it, got {table.shape}.")
        tx = optax.adam(self.lr)

        def start(seed: Array) -> tuple[Any, Any, Array]:
            key, first = jax.random.split(jax.random.key(seed))
            tables = self.start(first, *table.shape[1:])
            return tables, tx.init(tables), key

        def update(state: Any) -> Any:
            tables, opt, key, joint = state
            key, now = jax.random.split(key)
            grad, imitation, information = self.gradient(tables, now, joint)
            change, opt = tx.update(grad, opt)
            return (optax.apply_updates(tables, change), opt, key, joint), {"loss": imitation, "mi": information}

        state = (*jax.vmap(start)(jnp.asarray(seeds)), jnp.asarray(table, jnp.float32))
        last, _ = loop(jax.vmap(update), state, updates=self.updates, chunk=self.updates)
        tables: Tables = last[0]
        return tables


class Choice(NamedTuple):
    """What the tables do when asked for the best outcome."""

    policy: np.ndarray[Any, Any]
    """pi(. | z*), (A,)."""
    value: float
    """P(best outcome | z*): what is promised."""
    information: float
    """I(r; z | a) of the encoder on the data, exactly, in nats: leakage if above 0."""
    used: float
    """I(a; z), exactly, in nats: collapse if near 0."""


def choose(tables: Tables, joint: ArrayLike, least: float = 0.01) -> Choice:
    """Take the latent that promises most, among those that the data uses with at least probability `least`.

    Args:
        tables: One model.
        joint: Empirical P(a, r), (A, R).
        least: Latents below it are never seen by policy and value, whose rows are noise.
    """
    from rolecraft.control._information import exact_conditional_information

    data = np.asarray(joint, dtype=float)
    encoder = np.asarray(jax.nn.softmax(tables.posterior), dtype=float)
    joint_z = data[..., None] * encoder
    value = np.asarray(jax.nn.softmax(tables.value))[:, -1]
    best = int(np.where(joint_z.sum((0, 1)) >= least, value, -np.inf).argmax())
    policy = np.asarray(jax.nn.softmax(tables.policy), dtype=float)[best]
    total = joint_z / joint_z.sum()
    return Choice(
        policy, float(value[best]), exact_conditional_information(np.swapaxes(total, 1, 2)),
        exact_conditional_information(total.sum(1)[None]),
    )  # fmt: skip

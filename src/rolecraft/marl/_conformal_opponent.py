"""CAMMARL's model of another agent: a classifier of its next action, conformalised (arXiv 2306.11128)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import optax
from jax import numpy as jnp

from rolecraft.errors import UserError, did_you_mean
from rolecraft.marl._ac_nets import Mlp
from rolecraft.marl._opponent import OpponentKind
from rolecraft.measures._conformal_sets import (
    check_alpha,
    conformal_sets,
    conformal_threshold,
    conformity_scores,
    fit_temperature,
    smallest_calibration,
    softmax,
    true_ranks,
)

Array = Any
Encoding = Literal["binary", "padded", "penultimate", "exact"]
KINDS: Mapping[str, OpponentKind] = {"binary": "set", "padded": "set", "penultimate": "embedding", "exact": "point"}
FULL = 1e6
"""A threshold at which every set is full; finite, so that a loop's look for NaN passes it."""


@dataclass(frozen=True)
class ConformalOpponentConfig:
    """Rates of the classifier, rule of the sets."""

    encoding: Encoding = "binary"
    """What a policy is told: `binary` membership, `padded` action numbers (from 1, rising, then zeros), `penultimate`
    features of the classifier, or the `exact` likeliest action as one-hot."""
    alpha: float = 0.1
    """Share of sets that may miss. Released code: 0.1."""
    penalty: float = 0.0
    """RAPS's lambda. Released code: 0."""
    calibration: Literal["held-out", "train"] = "held-out"
    """Episodes that set the threshold: some that the classifier did not see, or (released code) all it learned from,
    without the correction for their number."""
    share: float = 0.4
    """Share of the episodes held out."""
    tune_share: float = 0.3
    """Share of the calibration episodes that fits the temperature and RAPS's rank. Paper: 0.3."""
    hidden: int = 64
    """Units of either layer. Paper: 64."""
    lr: float = 0.1
    """Of SGD with momentum 0.9 and weight decay 5e-4. Paper: 0.1."""
    batch: int = 128
    """Paper: 128."""
    epochs: int = 200
    """Passes per fit. Paper: 200."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        check_alpha(self.alpha)
        if self.encoding not in KINDS:
            raise UserError(
                f"encoding {self.encoding!r} is unknown (known: {', '.join(KINDS)})."
                + did_you_mean(str(self.encoding), KINDS)
            )
        if self.calibration not in ("held-out", "train"):
            raise UserError(f"calibration must be held-out or train, got {self.calibration!r}.")
        for name in ("share", "tune_share"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name} must lie between 0 and 1, got {getattr(self, name)}.")
        for name in ("hidden", "batch", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.lr > 0 or not self.penalty >= 0:
            raise UserError(f"lr must be above 0 and penalty at least 0, got {self.lr} and {self.penalty}.")


class OpponentState(NamedTuple):
    """A classifier and the figures that turn its logits into sets."""

    weights: Any
    temperature: Array
    rank: Array
    """RAPS's k_reg, () int32."""
    threshold: Array
    """As calibrated on episodes held out (or as the configuration says)."""
    train_threshold: Array
    """The same classifier calibrated on what it learned from, to compare."""


class ConformalOpponent:
    """An `OpponentModel` that gives prediction sets, or what its classifier knows otherwise."""

    def __init__(self, config: ConformalOpponentConfig, inputs: int, actions: int) -> None:
        """Lay out the classifier.

        Args:
            config: Rates and rule.
            inputs: Width of a history. CAMMARL reads the other's observation; where that is not seen, give the
                observer's own and train on it.
            actions: Of the other agent. All have a logit, also those never seen.

        Raises:
            UserError: If there are fewer than two actions.
        """
        if actions < 2 or inputs < 1:
            raise UserError(
                f"expected inputs from 1 and actions from 2, got {inputs} and {actions}; sets are for discrete actions."
            )
        self.config, self.inputs, self.actions = config, inputs, actions
        self.kind: OpponentKind = KINDS[config.encoding]
        self.size = config.hidden if config.encoding == "penultimate" else actions
        self.net = Mlp(actions, config.hidden)
        self._rule = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(config.lr, momentum=0.9))

    def init(self, key: Array) -> OpponentState:
        """Return an untaught model; all its sets are full."""
        full = jnp.float32(FULL)
        weights = self.net.init(key, jnp.zeros(self.inputs))
        return OpponentState(weights, jnp.float32(1.0), jnp.int32(0), full, full)

    def logits(self, state: OpponentState, history: Array) -> Array:
        """Return the classifier's outputs, (..., actions), of histories (..., inputs)."""
        return self.net.apply(state.weights, history)

    def sets(self, state: OpponentState, history: Array, key: Array, *, trained: bool = False) -> Array:
        """Return membership, (..., actions); `trained` takes the threshold of the training data."""
        probabilities = softmax(self.logits(state, history), state.temperature)
        return conformal_sets(
            probabilities, state.train_threshold if trained else state.threshold,
            jax.random.uniform(key, probabilities.shape[:-1]), penalty=self.config.penalty, rank=state.rank,
        )  # fmt: skip

    def predict(self, state: OpponentState, history: Array, key: Array) -> Array:
        """Return what a policy is told, (..., size); see `ConformalOpponentConfig.encoding`."""
        encoding = self.config.encoding
        if encoding == "penultimate":
            return self.net.apply(state.weights, history, method="features")
        if encoding == "exact":
            return jax.nn.one_hot(self.logits(state, history).argmax(-1), self.actions)
        return encode_sets(self.sets(state, history, key), padded=encoding == "padded")

    def fit(
        self, state: OpponentState, history: Array, actions: Array, key: Array
    ) -> tuple[OpponentState, Mapping[str, Array]]:
        """Train on some episodes and calibrate on the others; whole episodes, as their steps hang together.

        Args:
            state: Goes on from its weights.
            history: Shape (episodes, steps, inputs).
            actions: Shape (episodes, steps) int32.
            key: Random key.

        Returns:
            The next state, and the classifier's loss `fit_loss` and its accuracy `fit_accuracy` on what it learned.

        Raises:
            UserError: If shapes do not fit, or too few examples are left to calibrate on.
        """
        c = self.config
        if history.shape[:2] != actions.shape or history.shape[-1] != self.inputs:
            raise UserError(
                f"history: expected shape (episodes, steps, d) = {(*actions.shape, self.inputs)}, got {history.shape}."
            )
        train, tune, hold = self.split(*actions.shape)
        k_split, k_sgd, k_scores, k_train = jax.random.split(key, 4)
        order = jax.random.permutation(k_split, actions.shape[0])

        def part(start: int, end: int) -> tuple[Array, Array]:
            rows = order[start:end]
            return history[rows].reshape(-1, self.inputs), actions[rows].reshape(-1)

        x, y = part(0, train)
        weights, figures = self._train(state.weights, x, y, k_sgd)
        state = state._replace(weights=weights)
        tuning = part(train, train + tune) if c.calibration == "held-out" else (x, y)
        temperature = fit_temperature(self.logits(state, tuning[0]), tuning[1])
        ranks = jnp.sort(true_ranks(softmax(self.logits(state, tuning[0]), temperature), tuning[1]))
        rank = jnp.quantile(ranks, 1 - c.alpha, method="higher").astype(jnp.int32) + 1
        state = state._replace(temperature=temperature, rank=rank)
        on_train = self._threshold(state, x, y, k_train, corrected=False)
        held = part(train + tune, train + tune + hold)
        own = on_train if c.calibration == "train" else self._threshold(state, *held, k_scores, corrected=True)
        return state._replace(threshold=own, train_threshold=on_train), figures

    def split(self, episodes: int, steps: int) -> tuple[int, int, int]:
        """Return how many episodes train, tune and calibrate.

        Raises:
            UserError: If there are too few for the level.
        """
        if self.config.calibration == "train":
            return episodes, 0, 0
        held = round(self.config.share * episodes)
        tune = max(1, round(self.config.tune_share * held))
        needed = smallest_calibration(self.config.alpha)
        if episodes - held < 1 or (held - tune) * steps < max(1, needed):
            raise UserError(
                f"{episodes} episodes of {steps} steps leave {max(0, held - tune) * steps} examples to calibrate on; "
                f"at least {needed} are needed for alpha {self.config.alpha}: give more episodes or a larger share."
            )
        return episodes - held, tune, held - tune

    def _threshold(self, state: OpponentState, x: Array, y: Array, key: Array, *, corrected: bool) -> Array:
        scores = conformity_scores(
            softmax(self.logits(state, x), state.temperature), y, jax.random.uniform(key, y.shape),
            penalty=self.config.penalty, rank=state.rank,
        )  # fmt: skip
        return jnp.minimum(conformal_threshold(scores, self.config.alpha, corrected=corrected), FULL)

    def _train(self, weights: Any, x: Array, y: Array, key: Array) -> tuple[Any, Mapping[str, Array]]:
        rows = y.shape[0]
        size = min(self.config.batch, rows)

        def loss(weights: Any, index: Array) -> Array:
            logits: Array = self.net.apply(weights, x[index])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y[index]).mean()

        def step(carry: tuple[Any, Any], index: Array) -> tuple[tuple[Any, Any], None]:
            weights, moments = carry
            change, moments = self._rule.update(jax.grad(loss)(weights, index), moments, weights)
            return (optax.apply_updates(weights, change), moments), None

        def order(key: Array) -> Array:
            return jax.random.permutation(key, rows)[: rows // size * size].reshape(-1, size)

        index = jax.vmap(order)(jax.random.split(key, self.config.epochs)).reshape(-1, size)
        (weights, _), _ = jax.lax.scan(step, (weights, self._rule.init(weights)), index)
        logits: Array = self.net.apply(weights, x)
        return weights, {"fit_loss": loss(weights, jnp.arange(rows)), "fit_accuracy": (logits.argmax(-1) == y).mean()}


def encode_sets(members: Array, *, padded: bool) -> Array:
    """Return sets as numbers.

    Args:
        members: Booleans, (..., actions).
        padded: Action numbers from 1, rising, then zeros; otherwise membership itself.

    Returns:
        Shape (..., actions) float32.
    """
    if not padded:
        return members.astype(jnp.float32)
    actions = members.shape[-1]
    numbers = jnp.where(members, jnp.arange(1, actions + 1), actions + 1)
    ordered = jnp.sort(numbers, axis=-1)
    return jnp.where(ordered > actions, 0, ordered).astype(jnp.float32)

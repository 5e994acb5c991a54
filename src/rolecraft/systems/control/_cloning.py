"""Behaviour cloning by small networks: the baselines of Decision Diffuser and BESO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import linen as nn
from jax import numpy as jnp
from numpy.typing import NDArray

from rolecraft._jax import loop
from rolecraft.control import Normaliser, normaliser
from rolecraft.control._diffusion_train import make_update, map_jobs, start_training
from rolecraft.errors import UserError

Floats = NDArray[np.float32]
Act = Callable[[Floats, int], Floats]
"""Takes inputs (B, i) and a seed, returns actions (B, a)."""


class Perceptron(nn.Module):
    """Two hidden layers of rectified units."""

    size: int
    hidden: int = 128

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply it to x (..., i)."""
        for _ in range(2):
            x = nn.relu(nn.Dense(self.hidden)(x))
        found: jax.Array = nn.Dense(self.size)(x)
        return found


@dataclass(frozen=True)
class CloningConfig:
    """Sizes of a cloner."""

    bins: int = 0
    """0 predicts the mean action by least squares. Else the clusters of actions: one is drawn, and an offset from its
    centre is added (C-BeT, arXiv 2210.10047)."""
    batch: int = 128
    updates: int = 3000
    lr: float = 1e-3


def k_means(values: Floats, count: int, rng: np.random.Generator, rounds: int = 20) -> tuple[Floats, NDArray[np.int64]]:
    """Return centres (count, a) of values (n, a) and the nearest centre of each, by Lloyd's rounds from random values.

    Raises:
        UserError: If there are fewer distinct values than centres.
    """
    distinct = np.unique(values, axis=0)
    if count < 1 or len(distinct) < count:
        raise UserError(f"k-means: asked for {count} centres of {len(distinct)} distinct values.")
    centres = distinct[rng.choice(len(distinct), count, replace=False)]
    for _ in range(rounds):
        nearest = np.square(values[:, None] - centres).sum(-1).argmin(1)
        for place in np.unique(nearest):
            centres[place] = values[nearest == place].mean(0)
    nearest = np.square(values[:, None] - centres).sum(-1).argmin(1)
    return centres.astype(np.float32), nearest


def train_cloners(
    inputs: Sequence[Floats], actions: Sequence[Floats], config: CloningConfig, seeds: Sequence[int]
) -> list[Act]:
    """Train one cloner per data set, all in one compiled loop.

    Args:
        inputs: Each of shape (N, i), N may differ.
        actions: Each of shape (N, a).
        config: Sizes.
        seeds: One per data set.
    """
    scales = [normaliser("gaussian", each) for each in inputs]
    largest, size = max(map(len, inputs)), actions[0].shape[1]
    centres, rows = [], []
    for scale, x, y, seed in zip(scales, inputs, actions, seeds, strict=True):
        rng = np.random.default_rng(seed)
        middle, bins = k_means(y, config.bins, rng) if config.bins else (np.zeros((1, size)), np.zeros(len(y), int))
        centres.append(middle.astype(np.float32))
        arrays = {"x": scale.encode(x), "y": (y - middle[bins]).astype(np.float32), "bins": bins.astype(np.int32)}
        fill = largest - len(x)
        padded = {name: np.concatenate([array, np.repeat(array[-1:], fill, 0)]) for name, array in arrays.items()}
        rows.append({**padded, "count": np.int32(len(x))})
    network = Perceptron(config.bins * (1 + size) or size)

    def loss(params: Any, key: jax.Array, data: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        at = jnp.floor(jax.random.uniform(key, (config.batch,)) * data["count"]).astype(jnp.int32)
        found, wanted, bins = network.apply(params, data["x"][at]), data["y"][at], data["bins"][at]
        assert isinstance(found, jax.Array)
        if not config.bins:
            return jnp.square(found - wanted).mean(), {}
        logits = found[:, : config.bins]
        offsets = found[:, config.bins :].reshape(-1, config.bins, size)[jnp.arange(config.batch), bins]
        choice = optax.softmax_cross_entropy_with_integer_labels(logits, bins).mean()
        return choice + jnp.square(offsets - wanted).mean(), {}

    optimiser = optax.adam(optax.cosine_decay_schedule(config.lr, config.updates))
    states = [
        start_training(network.init(jax.random.key(seed % 2**31), jnp.asarray(row["x"])[:1]), optimiser,
                       jax.random.key((seed + 1) % 2**31), row)
        for seed, row in zip(seeds, rows, strict=True)
    ]  # fmt: skip
    state = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *states)
    update = map_jobs(make_update(loss, optimiser, 0.99))
    state, _ = loop(update, state, updates=config.updates, chunk=max(1, config.updates // 4))
    apply = jax.jit(network.apply)
    return [
        _actor(apply, jax.tree.map(lambda leaf, place=place: leaf[place], state.ema), scales[place], centres[place],
               config.bins)
        for place in range(len(inputs))
    ]  # fmt: skip


def _actor(apply: Callable[..., Any], params: Any, scale: Normaliser, centres: Floats, bins: int) -> Act:
    """Return what a trained cloner does: the mean action, or a cluster that is drawn and its offset."""

    def act(x: Floats, seed: int) -> Floats:
        found = np.asarray(apply(params, scale.encode(x)))
        if not bins:
            return found
        noise = np.random.default_rng(seed).gumbel(size=(len(x), bins))
        chosen = (found[:, :bins] + noise).argmax(1)
        offsets = found[:, bins:].reshape(len(x), bins, -1)
        return np.asarray(centres[chosen] + offsets[np.arange(len(x)), chosen], np.float32)

    return act

"""Decision Diffuser's planner: a diffusion model of state sequences and an inverse model (arXiv 2211.15657).

The plan is optimistic: where the world is random, a return that came by luck is planned for as if it could be had at
will (see Dichotomy of Control, arXiv 2210.13435).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import linen as nn
from jax import numpy as jnp
from numpy.typing import ArrayLike

from rolecraft._jax import check_memory, load_tree, loop, read_meta, save_tree, tree_bytes
from rolecraft.control._condition import Condition, ConditionSpace, Expression, Guidance, guidance
from rolecraft.control._denoiser_unet import TemporalUnet
from rolecraft.control._diffusion_ddpm import add_noise, cosine_schedule, ddim_sample, ddpm_sample
from rolecraft.control._diffusion_guide import conditional, drop_conditions, guided
from rolecraft.control._diffusion_train import Training, make_update, map_jobs, start_training
from rolecraft.control._windows import EmpiricalCdf, Floats, Trajectories, normaliser
from rolecraft.errors import UserError


@dataclass(frozen=True)
class PlannerConfig:
    """Sizes of a planner; the defaults suit a world of two dimensions on one CPU core."""

    horizon: int = 16
    """States of a plan, a multiple of 2 ** (levels - 1). Paper: 100."""
    width: int = 24
    """Channels of the U-Net's first level. Paper: 128."""
    multipliers: tuple[int, ...] = (1, 2)
    """Channels of each level, in widths. Paper: 1, 4, 8."""
    steps: int = 20
    """Diffusion steps K. Paper: 100 to 200."""
    sample_steps: int | None = None
    """Steps of the deterministic DDIM; None samples by DDPM through all K."""
    temperature: float = 0.5
    """Factor of the noise in sampling. Paper: 0.5."""
    strength: float = 1.2
    """Guidance w. Paper: 1.2 in locomotion."""
    drop: float = 0.25
    """Share of training windows without their condition. Paper: 0.25."""
    hidden: int = 64
    """Units of both layers of the inverse model. Paper: 256."""
    actions: int = 0
    """Number of discrete actions, predicted by cross-entropy; 0 for continuous ones."""
    batch: int = 32
    """Paper: 32, gradients of two accumulated."""
    updates: int = 3000
    """Paper: 1,000,000."""
    lr: float = 1e-3
    """Of Adam. Paper: 2e-4."""
    ema: float = 0.995
    """Decay of the average of the weights. Paper: 0.995."""

    def __post_init__(self) -> None:
        """Check the sizes."""
        sizes = (self.horizon, self.width, self.batch, self.updates, self.hidden, *self.multipliers)
        if min(sizes) < 1 or not self.multipliers or self.horizon < 2:
            raise UserError(
                f"horizon must be at least 2 and width, multipliers, batch, updates, hidden at least 1, got {sizes}."
            )
        if self.horizon % 2 ** (len(self.multipliers) - 1):
            raise UserError(
                f"horizon {self.horizon} must be a multiple of {2 ** (len(self.multipliers) - 1)}, since each of the "
                f"{len(self.multipliers)} levels but the last halves it."
            )
        if not 0 <= self.drop < 1 or not 0 <= self.ema < 1 or self.temperature < 0 or self.lr <= 0:
            raise UserError(
                f"expected drop and ema in [0, 1), temperature >= 0 and lr > 0, got {self.drop}, {self.ema}, "
                f"{self.temperature}, {self.lr}."
            )
        if self.sample_steps is not None and not 1 <= self.sample_steps <= self.steps:
            raise UserError(f"sample_steps must be 1 to steps ({self.steps}), got {self.sample_steps}.")

    @property
    def unet(self) -> TemporalUnet:
        """The noise model."""
        return TemporalUnet(self.width, self.multipliers)


class InverseModel(nn.Module):
    """The action between two states: (..., 2 d) to (..., a), or to logits of discrete actions."""

    hidden: int
    size: int

    @nn.compact
    def __call__(self, pair: jax.Array) -> jax.Array:
        """Apply it to two states, joined."""
        for _ in range(2):
            pair = nn.relu(nn.Dense(self.hidden)(pair))
        found: jax.Array = nn.Dense(self.size)(pair)
        return found


class Demonstrations(NamedTuple):
    """What one planner is trained on."""

    data: Trajectories
    conditions: Floats
    """Shape (N, c): a condition per step, which holds for the window that starts there."""
    kind: str = "return"
    """Kind of the conditions."""


def _arrays(job: Demonstrations, config: PlannerConfig) -> tuple[dict[str, Any], EmpiricalCdf]:
    """Return normalised arrays of one job, and the normaliser of its states."""
    n = len(job.data.rewards)
    if job.conditions.ndim != 2 or len(job.conditions) != n:
        raise UserError(f"conditions: expected shape (N, c) with N = {n}, got {job.conditions.shape}.")
    if config.actions and (job.data.actions.ndim != 1 or job.data.actions.max() >= config.actions):
        raise UserError(
            f"expected discrete actions of shape (N,) below {config.actions}, got shape {job.data.actions.shape}."
        )
    scale = normaliser("cdf", job.data.obs)
    assert isinstance(scale, EmpiricalCdf)
    return {
        "obs": scale.encode(job.data.obs), "actions": job.data.actions, "conditions": job.conditions,
        "ends": job.data.ends.astype(np.int32),
    }, scale  # fmt: skip


def _pin(first: jax.Array) -> Callable[[jax.Array], jax.Array]:
    return lambda x: x.at[:, 0].set(first)


def _loss(config: PlannerConfig, size: int) -> Callable[..., Any]:
    """Return the average of the denoising loss and the inverse model's."""
    schedule, unet, inverse = cosine_schedule(config.steps), config.unet, InverseModel(config.hidden, size)

    def loss(params: Any, key: jax.Array, data: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        pick, level, noise_key, dropped = jax.random.split(key, 4)
        at = jax.random.randint(pick, (config.batch,), 0, len(data["obs"]))
        index = jnp.minimum(at[:, None] + jnp.arange(config.horizon), data["ends"][at][:, None])
        clean = data["obs"][index]
        k = jax.random.randint(level, (config.batch,), 0, config.steps)
        noise = jax.random.normal(noise_key, clean.shape)
        noisy = _pin(clean[:, 0])(add_noise(clean, noise, k, schedule))
        keep = drop_conditions(dropped, config.batch, config.drop)
        found: Any = unet.apply(params["unet"], noisy, k.astype(jnp.float32), data["conditions"][at], keep)
        diffusion = jnp.square(found - noise)[:, 1:].mean()
        real = (index[:, 1:] > index[:, :-1]).astype(jnp.float32)
        pairs = jnp.concatenate([clean[:, :-1], clean[:, 1:]], axis=-1)
        moves = inverse.apply(params["inverse"], pairs)
        taken = data["actions"][index[:, :-1]]
        if config.actions:
            error = optax.softmax_cross_entropy_with_integer_labels(moves, taken)
        else:
            error = jnp.square(moves - taken).mean(-1)
        acting = (error * real).sum() / jnp.maximum(real.sum(), 1)
        return (diffusion + acting) / 2, {"diffusion": diffusion, "inverse": acting}

    return loss


def train_planners(
    jobs: Sequence[Demonstrations],
    config: PlannerConfig,
    seeds: Sequence[int],
    *,
    folder: str | Path | None = None,
) -> tuple[list[DiffusionPlanner], dict[str, Any]]:
    """Train one planner per job, all in one compiled loop.

    Args:
        jobs: What each learns from; all of the same shapes (steps N, sizes d, a and c).
        config: Sizes.
        seeds: One per job.
        folder: For checkpoints; training that was killed goes on from there.

    Returns:
        The planners (with averaged weights), and the training's figures, each of shape (updates, jobs).

    Raises:
        UserError: If shapes differ or would not fit into memory.
        Diverged: If a number is not finite.
    """
    if not jobs or len(jobs) != len(seeds):
        raise UserError(f"expected one seed per job and at least one job, got {len(seeds)} seeds, {len(jobs)} jobs.")
    found = [_arrays(job, config) for job in jobs]
    shapes = [{name: array.shape for name, array in arrays.items()} for arrays, _ in found]
    if any(shape != shapes[0] for shape in shapes):
        raise UserError(f"jobs trained together need data of one shape, got {shapes}.")
    data = {name: np.stack([arrays[name] for arrays, _ in found]) for name in shapes[0]}
    check_memory(3 * tree_bytes(data), f"data of {len(jobs)} planners", "seeds")
    size = config.actions or shapes[0]["actions"][1]
    optimiser = optax.adam(config.lr)

    def start(key: jax.Array, data: Any) -> Training:
        return start_training(_init(config, key, data["obs"].shape[-1], data["conditions"].shape[-1], size), optimiser,
                              jax.random.fold_in(key, 1), data)  # fmt: skip

    keys = jnp.stack([jax.random.key(seed % 2**31) for seed in seeds])
    state = jax.vmap(start)(keys, jax.tree.map(jnp.asarray, data))
    update = map_jobs(make_update(_loss(config, size), optimiser, config.ema))
    chunk = max(1, config.updates // 10)
    identity = {"config": asdict(config), "seeds": list(seeds)}
    state, curves = loop(
        update, state, updates=config.updates, chunk=chunk, folder=folder, identity=identity if folder else None
    )
    planners = [
        DiffusionPlanner(
            config, jax.tree.map(lambda leaf, place=place: leaf[place], state.ema), scale,
            ConditionSpace.of(job.kind, job.conditions), size,  # type: ignore[arg-type]
        )
        for place, (job, (_, scale)) in enumerate(zip(jobs, found, strict=True))
    ]  # fmt: skip
    return planners, curves


def _init(config: PlannerConfig, key: jax.Array, obs: int, condition: int, size: int) -> Any:
    one = jnp.zeros((1, config.horizon, obs))
    return {
        "unet": config.unet.init(key, one, jnp.zeros(1), jnp.zeros((1, condition)), jnp.ones(1)),
        "inverse": InverseModel(config.hidden, size).init(jax.random.fold_in(key, 2), jnp.zeros((1, 2 * obs))),
    }


@lru_cache(maxsize=32)
def _sampler(config: PlannerConfig, mode: str) -> Callable[..., jax.Array]:
    """Return the compiled sampler: guided, or by the conditional or unconditional model alone."""
    schedule, unet = cosine_schedule(config.steps), config.unet

    def sample(params: Any, key: jax.Array, first: jax.Array, values: jax.Array, weights: jax.Array) -> jax.Array:
        def model(x: jax.Array, k: jax.Array, condition: jax.Array, keep: jax.Array) -> jax.Array:
            found: jax.Array = unet.apply(params["unet"], x, k.astype(jnp.float32), condition, keep)  # type: ignore[assignment]
            return found

        if mode == "guided":
            predict = guided(model, values, weights)
        else:
            predict = conditional(model, values[:, 0], float(mode == "conditional"))
        shape = (len(first), config.horizon, first.shape[-1])
        if config.sample_steps is None:
            return ddpm_sample(predict, key, shape, schedule, temperature=config.temperature, pin=_pin(first), clip=1.0)
        return ddim_sample(
            predict, key, shape, schedule, config.sample_steps, temperature=config.temperature, pin=_pin(first),
            clip=1.0,
        )  # fmt: skip

    return jax.jit(sample)


@dataclass(frozen=True)
class DiffusionPlanner:
    """A trained planner."""

    config: PlannerConfig
    params: Any
    """Averaged weights: `unet` and `inverse`."""
    scale: EmpiricalCdf
    """Of the states."""
    space: ConditionSpace
    """Conditions of the training data."""
    action_size: int

    def plan(
        self,
        obs: ArrayLike,
        asked: Expression | Sequence[Expression] | Guidance | None = None,
        *,
        strength: float | None = None,
        seed: int = 0,
    ) -> Floats:
        """Sample plans from some states on.

        Args:
            obs: Shape (B, d), in the data's units.
            asked: An expression for all, one per state, arrays ready for the sampler, or None for the unconditional
                model.
            strength: Guidance w; None is the configuration's. Without guidance (w = 1 and one condition) the null
                condition is not computed.
            seed: Of the noise.

        Returns:
            States of shape (B, horizon, d), in the data's units; the first ones are `obs`.

        Raises:
            UserError: If shapes do not fit, or guidance is asked of a model that was trained without condition dropout.
        """
        first = np.asarray(obs, np.float32)
        sizes = len(self.scale.quantiles)
        if first.ndim != 2 or first.shape[1] != sizes or not len(first):
            raise UserError(f"obs: expected shape (B, d) with d = {sizes}, got {first.shape}.")
        if not np.isfinite(first).all():
            raise UserError("obs: every number must be finite.")
        strength = self.config.strength if strength is None else strength
        arrays = asked if isinstance(asked, Guidance) else self._arrays(asked, len(first), strength)
        if len(arrays.values) != len(first) or arrays.values.shape[2] != self.space.size:
            raise UserError(
                f"guidance: expected values of shape (B, C, c) = ({len(first)}, C, {self.space.size}), got "
                f"{arrays.values.shape}."
            )
        mode = self._mode(arrays.weights)
        if mode != "conditional" and self.config.drop == 0:
            raise UserError(
                "this model was trained without condition dropout and knows no null condition: it has no guidance, no "
                "composition and no unconditional plan; ask for one condition with strength 1, or train with drop > 0."
            )
        found = _sampler(replace(self.config, updates=1), mode)(
            self.params, jax.random.key(seed % 2**31), self.scale.encode(first), arrays.values, arrays.weights
        )
        plans = self.scale.decode(np.asarray(found))
        plans[:, 0] = first
        return plans

    def _arrays(self, asked: Expression | Sequence[Expression] | None, samples: int, strength: float) -> Guidance:
        if asked is None:
            return Guidance(np.zeros((samples, 1, self.space.size), np.float32), np.zeros((samples, 1), np.float32))
        return guidance(asked, self.space, samples, strength=strength)

    @staticmethod
    def _mode(weights: Any) -> str:
        if not weights.any():
            return "unconditional"
        return "conditional" if weights.shape[1] == 1 and (weights == 1).all() else "guided"

    def actions(self, states: ArrayLike, after: ArrayLike) -> Any:
        """Return the actions that lead from states (..., d) to states (..., d): (..., a), or (...,) discrete ones."""
        pair = np.concatenate([self.scale.encode(states), self.scale.encode(after)], axis=-1)
        found = np.asarray(_inverse(self.config.hidden, self.action_size)(self.params["inverse"], pair))
        return found.argmax(-1) if self.config.actions else found

    def act(self, obs: ArrayLike, asked: Any = None, *, strength: float | None = None, seed: int = 0) -> Any:
        """Plan from states (B, d) and return the first action of each plan; see `plan`."""
        plans = self.plan(obs, asked, strength=strength, seed=seed)
        return self.actions(plans[:, 0], plans[:, 1])

    def compose(self, *asked: Condition) -> Expression:
        """Return the conjunction of conditions, each checked against the data's range.

        Raises:
            UserError: If there is none, or one does not fit the data.
        """
        if not asked:
            raise UserError("expected at least one condition to compose.")
        found: Expression = asked[0]
        for place, each in enumerate(asked):
            self.space.check(each, "error")
            found = found & each if place else found
        return found

    def save(self, path: str | Path) -> None:
        """Write weights, normaliser and sizes into one safetensors file."""
        tree = {"params": self.params, "quantiles": list(self.scale.quantiles), "levels": list(self.scale.levels)}
        meta = {
            "config": asdict(self.config), "space": asdict(self.space), "actions": self.action_size,
            "lengths": [len(each) for each in self.scale.quantiles],
        }  # fmt: skip
        save_tree(path, tree, meta)

    @classmethod
    def load(cls, path: str | Path) -> DiffusionPlanner:
        """Read what `save` wrote.

        Raises:
            UserError: If the file is missing or holds another thing.
        """
        meta = read_meta(path)
        if not {"config", "space", "actions", "lengths"} <= set(meta):
            raise UserError(f"{path}: this file holds no planner.")
        config, space = PlannerConfig(**_tuples(meta["config"])), ConditionSpace(**_tuples(meta["space"]))
        params = jax.eval_shape(
            lambda: _init(config, jax.random.key(0), len(meta["lengths"]), space.size, meta["actions"])
        )
        empty = [np.zeros(length, np.float32) for length in meta["lengths"]]
        tree = load_tree(path, {"params": params, "quantiles": empty, "levels": list(empty)})
        scale = EmpiricalCdf(tuple(tree["quantiles"]), tuple(tree["levels"]))
        return cls(config, tree["params"], scale, space, meta["actions"])


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


@lru_cache(maxsize=8)
def _inverse(hidden: int, size: int) -> Callable[..., Any]:
    return jax.jit(InverseModel(hidden, size).apply)

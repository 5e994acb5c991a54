"""BESO's policy: diffusion of actions under a window of observations and a goal (arXiv 2304.02532)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax import numpy as jnp
from numpy.typing import ArrayLike

from rolecraft._jax import check_memory, load_tree, loop, read_meta, save_tree, tree_bytes
from rolecraft.control._denoiser_gpt import GptDenoiser
from rolecraft.control._diffusion_edm import (
    Sampler,
    SigmaSchedule,
    check_sampler,
    denoised,
    edm_sample,
    edm_target,
    log_logistic,
    precondition,
    sigma_schedule,
)
from rolecraft.control._diffusion_guide import conditional, drop_conditions, guided
from rolecraft.control._diffusion_train import make_update, map_jobs, start_training
from rolecraft.control._windows import Affine, Floats, Trajectories, normaliser
from rolecraft.errors import UserError


@dataclass(frozen=True)
class DiffusionPolicyConfig:
    """Sizes of a policy; the defaults suit a world of two dimensions on one CPU core."""

    window: int = 2
    """Observations that the policy sees, k. Paper: 4 in the kitchen."""
    width: int = 48
    layers: int = 2
    """Paper: 6 in the kitchen."""
    heads: int = 4
    drop: float = 0.1
    """Share of training windows without their goal. Paper: 0.1."""
    sigma_data: float = 0.5
    """Standard deviation of the scaled actions. Paper: 0.5."""
    sigma_min: float = 0.05
    """Paper: 0.005 in the kitchen, 0.05 in block push."""
    sigma_max: float = 1.0
    """Paper: 1."""
    steps: int = 3
    """Denoising steps N of sampling. Paper: 3."""
    sampler: Sampler = "ddim"
    """Paper: DDIM is most robust, Euler-ancestral best in the kitchen."""
    schedule: SigmaSchedule = "exponential"
    """Noise levels of sampling. Paper: exponential."""
    batch: int = 64
    updates: int = 3000
    """Paper: 40,000."""
    lr: float = 1e-3
    """Of Adam, falling to 0 along a cosine. Paper: 1e-4, multiplied by 0.99 every 100 steps."""
    ema: float = 0.995
    """Decay of the average of the weights. Paper: 0.999, over more steps."""

    def __post_init__(self) -> None:
        """Check the sizes and the noise levels."""
        sizes = (self.window, self.width, self.layers, self.heads, self.batch, self.updates)
        if min(sizes) < 1 or self.width % self.heads:
            raise UserError(
                "window, width, layers, heads, batch and updates must be at least 1 and width a multiple of heads, got "
                f"{sizes}."
            )
        if not 0 <= self.drop < 1 or not 0 <= self.ema < 1 or self.lr <= 0 or self.sigma_data <= 0:
            raise UserError(
                f"expected drop and ema in [0, 1), lr > 0 and sigma_data > 0, got {self.drop}, {self.ema}, {self.lr}, "
                f"{self.sigma_data}."
            )
        sigma_schedule(self.schedule, self.steps, self.sigma_min, self.sigma_max)
        check_sampler(self.sampler)

    @property
    def network(self) -> GptDenoiser:
        """F."""
        return GptDenoiser(self.width, self.layers, self.heads)


def _loss(config: DiffusionPolicyConfig) -> Callable[..., Any]:
    """Return score matching over the actions of a window, under a goal drawn uniformly from its future."""

    def loss(params: Any, key: jax.Array, data: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        keys = jax.random.split(key, 5)
        at = jnp.floor(jax.random.uniform(keys[0], (config.batch,)) * data["count"]).astype(jnp.int32)
        wanted = at[:, None] + jnp.arange(1 - config.window, 1)
        index = jnp.maximum(wanted, data["starts"][at][:, None])
        mask = wanted == index
        room = data["ends"][at] - at
        ahead = jnp.minimum(1 + jnp.floor(jax.random.uniform(keys[1], at.shape) * room).astype(jnp.int32), room)
        goal, obs, clean = data["obs"][at + ahead], data["obs"][index], data["actions"][index]
        sigma = log_logistic(
            keys[2], at.shape, config.sigma_min, config.sigma_max, float(np.log(config.sigma_data))
        )  # fmt: skip
        noisy = clean + sigma[:, None, None] * jax.random.normal(keys[3], clean.shape)
        keep = drop_conditions(keys[4], config.batch, config.drop)
        inside = precondition(sigma, config.sigma_data).inside[:, None, None]
        found: Any = config.network.apply(params, inside * noisy, jnp.log(sigma) / 4, goal, keep, obs, mask)
        error = jnp.square(found - edm_target(clean, noisy, sigma, config.sigma_data)).mean(-1)
        value = (error * mask).sum() / mask.sum()
        return value, {}

    return loss


def goal_arrays(data: Trajectories, size: int | None = None) -> tuple[dict[str, Any], Affine, Affine]:
    """Return scaled arrays for learning from future goals, and the scales of observations and actions.

    Args:
        data: Trajectories with continuous actions.
        size: Rows to pad to, so that several data sets have one shape; `count` says how many are real.

    Raises:
        UserError: If actions are discrete or `size` is too small.
    """
    n = len(data.rewards)
    if data.actions.ndim != 2 or (size or n) < n:
        raise UserError(f"expected actions (N, a) and size >= N = {n}, got {data.actions.shape} and {size}.")
    seen, acted = normaliser("gaussian", data.obs), normaliser("bounds", data.actions)
    assert isinstance(seen, Affine)
    assert isinstance(acted, Affine)
    arrays = {
        "obs": seen.encode(data.obs), "actions": acted.encode(data.actions), "ends": data.ends.astype(np.int32),
        "starts": data.starts[data.episode].astype(np.int32),
    }  # fmt: skip
    extra = (size or n) - n
    padded = {name: np.concatenate([array, np.repeat(array[-1:], extra, 0)]) for name, array in arrays.items()}
    return {**padded, "count": np.int32(n)}, seen, acted


def train_policies(
    jobs: Sequence[Trajectories],
    config: DiffusionPolicyConfig,
    seeds: Sequence[int],
    *,
    folder: str | Path | None = None,
) -> tuple[list[DiffusionPolicy], dict[str, Any]]:
    """Train one policy per data set, all in one compiled loop.

    Args:
        jobs: What each learns from; all of the same sizes d and a.
        config: Sizes.
        seeds: One per job.
        folder: For checkpoints; training that was killed goes on from there.

    Returns:
        The policies (with averaged weights), and the training's figures, each of shape (updates, jobs).

    Raises:
        UserError: If there is no job, or the data would not fit into memory.
        Diverged: If a number is not finite.
    """
    if not jobs or len(jobs) != len(seeds):
        raise UserError(f"expected one seed per job and at least one job, got {len(seeds)} seeds, {len(jobs)} jobs.")
    size = max(len(job.rewards) for job in jobs)
    found = [goal_arrays(job, size) for job in jobs]
    data = {name: np.stack([arrays[name] for arrays, _, _ in found]) for name in found[0][0]}
    check_memory(3 * tree_bytes(data), f"data of {len(jobs)} policies", "seeds")
    optimiser = optax.adam(optax.cosine_decay_schedule(config.lr, config.updates))

    def start(seed: int, arrays: Any) -> Any:
        params = _init(config, jax.random.key(seed % 2**31), jobs[0].obs.shape[1], jobs[0].actions.shape[1])
        return start_training(params, optimiser, jax.random.key((seed + 1) % 2**31), arrays)

    states = [start(seed, arrays) for seed, (arrays, _, _) in zip(seeds, found, strict=True)]
    state = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *states)
    update = map_jobs(make_update(_loss(config), optimiser, config.ema))
    identity = {"config": asdict(config), "seeds": list(seeds)}
    state, curves = loop(
        update, state, updates=config.updates, chunk=max(1, config.updates // 10), folder=folder,
        identity=identity if folder else None,
    )  # fmt: skip
    policies = [
        DiffusionPolicy(config, jax.tree.map(lambda leaf, place=place: leaf[place], state.ema), seen, acted)
        for place, (_, seen, acted) in enumerate(found)
    ]
    return policies, curves


def _init(config: DiffusionPolicyConfig, key: jax.Array, obs: int, actions: int) -> Any:
    window = config.window
    return config.network.init(
        key, jnp.zeros((1, window, actions)), jnp.zeros(1), jnp.zeros((1, obs)), jnp.ones(1),
        jnp.zeros((1, window, obs)), jnp.ones((1, window), bool),
    )  # fmt: skip


@lru_cache(maxsize=32)
def _sampler(config: DiffusionPolicyConfig, mode: str) -> Callable[..., jax.Array]:
    """Return the compiled sampler of the last action of a window; it depends on no field of training."""
    sigmas = sigma_schedule(config.schedule, config.steps, config.sigma_min, config.sigma_max)

    def sample(
        params: Any, key: jax.Array, obs: jax.Array, past: jax.Array, mask: jax.Array, goal: jax.Array,
        weights: jax.Array,
    ) -> jax.Array:  # fmt: skip
        def model(x: jax.Array, sigma: jax.Array, goals: jax.Array, keep: jax.Array) -> jax.Array:
            def of_rows(each: jax.Array) -> jax.Array:
                return jnp.repeat(each, len(x) // len(obs), axis=0)

            def network(inputs: jax.Array, level: jax.Array) -> jax.Array:
                found: jax.Array = config.network.apply(params, inputs, level, goals, keep, of_rows(obs), of_rows(mask))  # type: ignore[assignment]
                return found

            window = jnp.concatenate([of_rows(past), x[:, None]], axis=1)
            return denoised(network, window, sigma, config.sigma_data)[:, -1]

        predict = guided(model, goal, weights) if mode == "guided" else conditional(model, goal[:, 0], weights[0, 0])
        first, rest = jax.random.split(key)
        x = sigmas[0] * jax.random.normal(first, (len(obs), past.shape[-1]))
        return jnp.clip(edm_sample(config.sampler, predict, rest, x, sigmas), -1, 1)

    return jax.jit(sample)


@dataclass(frozen=True)
class DiffusionPolicy:
    """A trained policy."""

    config: DiffusionPolicyConfig
    params: Any
    """Averaged weights."""
    obs_scale: Affine
    action_scale: Affine

    def session(self, **options: Any) -> PolicySession:
        """Start episodes: what it sees and does is kept for the window; options are those of `sample`."""
        return PolicySession(self, options)

    def sample(
        self,
        obs: ArrayLike,
        goal: ArrayLike | None,
        *,
        past: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        strength: float = 1.0,
        steps: int | None = None,
        sampler: Sampler | None = None,
        seed: int = 0,
    ) -> Floats:
        """Sample one action per window.

        Args:
            obs: The last k observations, shape (B, k, d), in the data's units.
            goal: Shape (B, d), or (d,) for all; None samples without a goal.
            past: The k - 1 actions that were taken at all but the last of them, shape (B, k - 1, a); None is zeros.
            mask: Shape (B, k); False before the episode's start. None: all are real.
            strength: Guidance: 0 ignores the goal (one row per sample), 1 is the conditional model (one row), any
                other is guided (two rows).
            steps: N; None is the configuration's.
            sampler: Solver; None is the configuration's.
            seed: Of the noise.

        Returns:
            Actions of shape (B, a), in the data's units and within its bounds.

        Raises:
            UserError: If shapes do not fit, or guidance is asked of a model that was trained without goal dropout.
        """
        seen, size = np.asarray(obs, np.float32), len(self.action_scale.centre)
        window, width = self.config.window, len(self.obs_scale.centre)
        if seen.ndim != 3 or seen.shape[1:] != (window, width) or not len(seen):
            raise UserError(f"obs: expected shape (B, k, d) with k = {window} and d = {width}, got {seen.shape}.")
        count = len(seen)
        acted = np.zeros((count, window - 1, size)) if past is None else np.asarray(past)
        known = np.ones((count, window), bool) if mask is None else np.asarray(mask, bool)
        wanted = np.zeros(width) if goal is None else np.asarray(goal, np.float32)
        shapes = {
            "past": (acted, (count, window - 1, size)), "mask": (known, (count, window)),
            "goal": (wanted, (width,) if wanted.ndim == 1 else (count, width)),
        }  # fmt: skip
        for name, (array, expected) in shapes.items():
            if array.shape != expected:
                raise UserError(f"{name}: expected shape {expected}, got {array.shape}.")
        if not (np.isfinite(seen).all() and np.isfinite(wanted).all() and np.isfinite(strength)):
            raise UserError("obs, goal and strength must be finite.")
        strength = 0.0 if goal is None else strength
        if strength != 1 and self.config.drop == 0:
            raise UserError(
                "this policy was trained without goal dropout and knows no null goal; ask with strength 1, or train "
                "with drop > 0."
            )
        chosen = replace(
            self.config, updates=1, steps=self.config.steps if steps is None else steps,
            sampler=self.config.sampler if sampler is None else sampler,
        )  # fmt: skip
        targets = np.broadcast_to(self.obs_scale.encode(wanted), (count, width))[:, None]
        found = _sampler(chosen, "single" if strength in (0, 1) else "guided")(
            self.params, jax.random.key(seed % 2**31), self.obs_scale.encode(seen), self.action_scale.encode(acted),
            known, targets, np.full((count, 1), strength, np.float32),
        )  # fmt: skip
        return self.action_scale.decode(np.asarray(found))

    def save(self, path: str | Path) -> None:
        """Write weights, scales and sizes into one safetensors file."""
        scales = {name: vars(scale) for name, scale in (("obs", self.obs_scale), ("actions", self.action_scale))}
        sizes = [len(self.obs_scale.centre), len(self.action_scale.centre)]
        save_tree(path, {"params": self.params, **scales}, {"policy": asdict(self.config), "sizes": sizes})

    @classmethod
    def load(cls, path: str | Path) -> DiffusionPolicy:
        """Read what `save` wrote.

        Raises:
            UserError: If the file is missing or holds another thing.
        """
        meta = read_meta(path)
        if not {"policy", "sizes"} <= set(meta):
            raise UserError(f"{path}: this file holds no diffusion policy.")
        config, (obs, actions) = DiffusionPolicyConfig(**meta["policy"]), meta["sizes"]

        def empty(size: int) -> dict[str, Any]:
            zeros = np.zeros(size, np.float32)
            return {"centre": zeros, "scale": zeros, "varies": np.zeros(size, bool)}

        like = {
            "params": jax.eval_shape(lambda: _init(config, jax.random.key(0), obs, actions)),
            "obs": empty(obs), "actions": empty(actions),
        }  # fmt: skip
        tree = load_tree(path, like)
        return cls(config, tree["params"], Affine(**tree["obs"]), Affine(**tree["actions"]))


class PolicySession:
    """Episodes of a policy, many at once: the last k observations and the policy's own k - 1 actions."""

    def __init__(self, policy: DiffusionPolicy, options: dict[str, Any]) -> None:
        """Start with an empty window; see `DiffusionPolicy.session`."""
        self.policy, self.options = policy, options
        self.reset()

    def reset(self) -> None:
        """Forget everything; call it where episodes start."""
        self._obs: list[Floats] = []
        self._past: list[Floats] = []

    def act(self, obs: ArrayLike, goal: ArrayLike | None, seed: int = 0) -> Floats:
        """Return actions (B, a) for observations (B, d) under a goal (B, d) or (d,)."""
        window = self.policy.config.window
        self._obs = [*self._obs, np.asarray(obs, np.float32)][-window:]
        missing = window - len(self._obs)
        count, size = len(self._obs[-1]), len(self.policy.action_scale.centre)
        seen = np.stack([self._obs[0]] * missing + self._obs, axis=1)
        blank = [np.zeros((count, size), np.float32)] * (window - 1 - len(self._past))
        past = np.stack(blank + self._past, axis=1) if window > 1 else None
        mask = np.repeat(np.arange(window)[None] >= missing, count, axis=0)
        found = self.policy.sample(seen, goal, past=past, mask=mask, seed=seed, **self.options)
        self._past = [*self._past, found][-(window - 1) :] if window > 1 else []
        return found

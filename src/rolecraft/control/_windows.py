"""Trajectories as flat arrays, windows of them, returns to go, goals taken from the future, normalisers.

One data set for everything that is learnt from logged behaviour: Decision Diffuser (arXiv 2211.15657), BESO (arXiv
2304.02532), Dichotomy of Control (arXiv 2210.13435), all-goals learning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean

Floats = NDArray[np.float32]
GoalMode = Literal["geometric", "uniform", "final"]
ARRAYS = ("obs", "actions", "rewards")


@dataclass(frozen=True)
class Trajectories:
    """N steps of E trajectories, one after the other."""

    obs: Floats
    """Shape (N, d): what was seen before each action."""
    actions: NDArray[Any]
    """Shape (N, a) for continuous actions, (N,) for discrete ones."""
    rewards: Floats
    """Shape (N,)."""
    lengths: NDArray[np.int64]
    """Shape (E,): steps of each trajectory, at least 1."""
    terminals: NDArray[np.bool_]
    """Shape (E,): whether the world ended it (and not a limit of time)."""
    labels: Floats | None = None
    """Shape (E, l): a label per trajectory, such as a one-hot skill; None without."""
    starts: NDArray[np.int64] = field(init=False)
    """Shape (E,): the first step of each trajectory."""
    ends: NDArray[np.int64] = field(init=False)
    """Shape (N,): per step the last step of its trajectory."""
    episode: NDArray[np.int64] = field(init=False)
    """Shape (N,): per step its trajectory."""

    def __post_init__(self) -> None:
        """Check all shapes and that every number is finite."""
        n, e = len(self.rewards), len(self.lengths)
        shapes = {
            "obs": (self.obs, "(N, d)", self.obs.ndim == 2 and len(self.obs) == n),
            "actions": (self.actions, "(N, a) or (N,)", self.actions.ndim in (1, 2) and len(self.actions) == n),
            "rewards": (self.rewards, "(N,)", self.rewards.ndim == 1),
            "terminals": (self.terminals, "(E,)", self.terminals.shape == (e,)),
        }
        if self.labels is not None:
            shapes["labels"] = (self.labels, "(E, l)", self.labels.ndim == 2 and len(self.labels) == e)
        for name, (array, expected, fits) in shapes.items():
            if not fits:
                raise UserError(f"{name}: expected shape {expected} with N = {n} and E = {e}, got {array.shape}.")
            if not np.isfinite(array).all():
                raise UserError(f"{name}: {np.count_nonzero(~np.isfinite(array))} numbers are not finite.")
        if not e or self.lengths.min() < 1 or self.lengths.sum() != n:
            raise UserError(f"lengths: expected E numbers of at least 1 that add up to N = {n}, got {self.lengths}.")
        starts = np.cumsum(self.lengths) - self.lengths
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "ends", np.repeat(starts + self.lengths - 1, self.lengths))
        object.__setattr__(self, "episode", np.repeat(np.arange(e), self.lengths))

    @classmethod
    def of(cls, trajectories: Sequence[Mapping[str, Any]]) -> Trajectories:
        """Join trajectories.

        Args:
            trajectories: Each `{"obs": (T, d), "actions": (T, a) or (T,), "rewards": (T,)}` (rewards may be left out
                and are 0 then), with `terminal` (a bool, or (T,) of which any says so) and `label` (l,) if known.

        Raises:
            UserError: If there is none, keys are missing, or shapes do not fit; the trajectory is named.
        """
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*ARRAYS, "terminals", "labels")}
        for place, each in enumerate(trajectories):
            missing = [name for name in ("obs", "actions") if name not in each]
            if missing:
                raise UserError(f"trajectory {place}: {' and '.join(missing)} missing (given: {', '.join(each)}).")
            obs, actions = np.asarray(each["obs"], np.float32), np.asarray(each["actions"])
            rewards = np.asarray(each.get("rewards", np.zeros(len(obs))), np.float32)
            if obs.ndim != 2 or not len(obs) == len(actions) == len(rewards) or not len(obs):
                raise UserError(
                    f"trajectory {place}: expected obs (T, d), actions (T, ...) and rewards (T,) of one length T >= 1, "
                    f"got {obs.shape}, {actions.shape} and {rewards.shape}."
                )
            kept = actions if np.issubdtype(actions.dtype, np.integer) else actions.astype(np.float32)
            label = np.asarray(each.get("label", ()), np.float32)
            terminal = np.asarray(np.any(each.get("terminal", False)))
            for name, array in zip(parts, (obs, kept, rewards, terminal, label), strict=True):
                if (
                    parts[name]
                    and parts[name][0].shape[1 if name in ARRAYS else 0 :]
                    != (array.shape[1 if name in ARRAYS else 0 :])
                ):
                    raise UserError(
                        f"trajectory {place}: {name} of shape {array.shape}, where the first trajectory has "
                        f"{parts[name][0].shape}."
                    )
                parts[name].append(array)
        if not parts["obs"]:
            raise UserError("expected at least one trajectory, got none.")
        labels = np.stack(parts["labels"])
        obs, actions, rewards = (np.concatenate(parts[name]) for name in ARRAYS)
        return cls(
            obs,
            actions,
            rewards,
            lengths=np.array([len(each) for each in parts["obs"]]),
            terminals=np.stack(parts["terminals"]),
            labels=labels if labels.shape[1] else None,
        )

    def __len__(self) -> int:
        """Return the number of trajectories."""
        return len(self.lengths)

    def returns_to_go(self, discount: float = 1.0) -> Floats:
        """Return the discounted sum of rewards from each step to its trajectory's end, of shape (N,).

        Raises:
            UserError: If the discount is not in [0, 1].
        """
        if not 0 <= discount <= 1:
            raise UserError(f"discount must lie in [0, 1], got {discount}.")
        found = self.rewards.astype(np.float64)
        last = np.zeros(len(found), bool)
        last[self.starts + self.lengths - 1] = True
        total = 0.0
        for step in range(len(found) - 1, -1, -1):
            total = found[step] + (0.0 if last[step] else discount * total)
            found[step] = total
        return found.astype(np.float32)

    def returns(self, discount: float = 1.0) -> Floats:
        """Return each trajectory's discounted return, of shape (E,)."""
        return self.returns_to_go(discount)[self.starts]


class WindowBatch(NamedTuple):
    """B windows of H steps."""

    obs: Floats
    """Shape (B, H, d)."""
    actions: NDArray[Any]
    """Shape (B, H, a) or (B, H)."""
    mask: NDArray[np.bool_]
    """Shape (B, H): False where a step is padding."""
    steps: NDArray[np.int64]
    """Shape (B,): the step of the data set that the window starts from (or ends at, for a history)."""


@dataclass(frozen=True)
class Windows:
    """Windows of H steps, one per step of the data: those that start there, or those that end there.

    A window that reaches beyond its trajectory repeats the last (or first) step, and its mask says so.
    """

    data: Trajectories
    horizon: int
    """H."""
    side: Literal["future", "history"] = "future"
    """Whether a window starts at its step or ends there."""

    def __post_init__(self) -> None:
        """Check the horizon and the side."""
        if self.horizon < 1 or self.side not in ("future", "history"):
            raise UserError(f"expected horizon >= 1 and side future or history, got {self.horizon} and {self.side!r}.")

    def __len__(self) -> int:
        """Return the number of windows, which is that of the steps."""
        return len(self.data.rewards)

    def index(self, steps: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the steps that some windows hold, and which of them are no padding, both of shape (B, H).

        Raises:
            UserError: If a step is not one of the data's.
        """
        at = np.asarray(steps, dtype=np.int64)
        if at.ndim != 1 or (at.size and not 0 <= at.min() <= at.max() < len(self)):
            raise UserError(f"steps: expected shape (B,) with numbers from 0 to {len(self) - 1}, got shape {at.shape}.")
        offsets = np.arange(self.horizon) - (self.horizon - 1 if self.side == "history" else 0)
        wanted = at[:, None] + offsets
        first, last = self.data.starts[self.data.episode[at]][:, None], self.data.ends[at][:, None]
        return np.clip(wanted, first, last), (wanted >= first) & (wanted <= last)

    def take(self, steps: ArrayLike) -> WindowBatch:
        """Return the windows of some steps."""
        index, mask = self.index(steps)
        return WindowBatch(self.data.obs[index], self.data.actions[index], mask, np.asarray(steps, dtype=np.int64))

    def sample(self, count: int, rng: np.random.Generator) -> WindowBatch:
        """Return windows of steps drawn uniformly with replacement."""
        return self.take(rng.integers(len(self), size=count))


def future_steps(
    data: Trajectories,
    steps: ArrayLike,
    rng: np.random.Generator,
    mode: GoalMode = "geometric",
    discount: float = 0.98,
) -> NDArray[np.int64]:
    """Return for each step a later step of its trajectory, whose observation can serve as the goal.

    Args:
        data: The trajectories.
        steps: Shape (B,).
        rng: Draws the offsets.
        mode: `geometric` takes an offset of k >= 1 with probability proportional to discount^k, truncated at the
            trajectory's end (the discounted state occupancy); `uniform` any later step alike; `final` the last step.
        discount: In [0, 1), for `geometric`.

    Returns:
        Shape (B,); the last step of a trajectory has no later one and stands for itself.

    Raises:
        UserError: If the mode is unknown or the discount out of range.
    """
    at = np.asarray(steps, dtype=np.int64)
    room: NDArray[np.int64] = data.ends[at] - at
    if mode == "final":
        return np.add(at, room)
    drawn = rng.random(at.shape)
    if mode == "uniform":
        return np.add(at, np.minimum(1 + np.floor(drawn * room).astype(np.int64), room))
    if mode != "geometric":
        raise UserError(f"mode: expected geometric, uniform or final, got {mode!r}.")
    if not 0 <= discount < 1:
        raise UserError(f"discount must lie in [0, 1), got {discount}.")
    if discount == 0:
        return np.add(at, np.minimum(1, room))
    mass = 1 - discount ** room.astype(float)
    offset = 1 + np.floor(np.log1p(-drawn * mass) / np.log(discount)).astype(np.int64)
    found: NDArray[np.int64] = np.add(at, np.minimum(offset, room))
    return found


def all_goals(
    data: Trajectories, goals: ArrayLike, achieved: Callable[[Floats, NDArray[Any]], NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Relabel every step with every goal.

    Args:
        data: The trajectories.
        goals: Shape (G, ...).
        achieved: Takes observations (N, d) and the goals, and says which hold, of shape (N, G).

    Returns:
        Which goals hold at each step, and in how many steps each is first met again from there (0 where it holds, -1
        where its trajectory never meets it), both of shape (N, G).

    Raises:
        UserError: If `achieved` returns another shape.
    """
    targets = np.asarray(goals)
    holds = np.asarray(achieved(data.obs, targets))
    if holds.shape != (len(data.obs), len(targets)):
        raise UserError(f"achieved: expected shape (N, G) = ({len(data.obs)}, {len(targets)}), got {holds.shape}.")
    first = np.full(holds.shape, -1, dtype=np.int64)
    ahead = np.full(holds.shape[1], -1, dtype=np.int64)
    for step in range(len(holds) - 1, -1, -1):
        if data.ends[step] == step:
            ahead[:] = -1
        ahead = np.where(holds[step], 0, np.where(ahead < 0, -1, ahead + 1))
        first[step] = ahead
    return holds.astype(bool), first


class Normaliser(Protocol):
    """Maps each dimension of some data to a standard range, and back."""

    def encode(self, values: ArrayLike) -> Floats:
        """Map values of shape (..., d) to the standard range."""
        ...

    def decode(self, values: ArrayLike) -> Floats:
        """Map standard values of shape (..., d) back."""
        ...


@dataclass(frozen=True)
class Affine:
    """(x - centre) / scale; a dimension that is constant in the data becomes 0, and decodes to its constant."""

    centre: Floats
    scale: Floats
    """Shape (d,), 1 where the data are constant."""
    varies: NDArray[np.bool_]
    """Shape (d,)."""

    def encode(self, values: ArrayLike) -> Floats:
        """Map values of shape (..., d) to the standard range."""
        array = _last_axis(values, len(self.centre))
        return np.where(self.varies, (array - self.centre) / self.scale, 0).astype(np.float32)

    def decode(self, values: ArrayLike) -> Floats:
        """Map standard values of shape (..., d) back."""
        array = _last_axis(values, len(self.centre))
        return np.where(self.varies, array * self.scale + self.centre, self.centre).astype(np.float32)


@dataclass(frozen=True)
class EmpiricalCdf:
    """Maps each dimension through its empirical distribution function to [-1, 1].

    Every dimension becomes uniform, whatever its tails; values outside the data are clipped. Between data it is linear,
    so that it can be undone.
    """

    quantiles: tuple[Floats, ...]
    """Per dimension its distinct values, ascending."""
    levels: tuple[Floats, ...]
    """Their levels in [-1, 1]."""

    def encode(self, values: ArrayLike) -> Floats:
        """Map values of shape (..., d) to [-1, 1]."""
        return self._map(values, self.quantiles, self.levels)

    def decode(self, values: ArrayLike) -> Floats:
        """Map levels of shape (..., d) back."""
        return self._map(values, self.levels, self.quantiles)

    def _map(self, values: ArrayLike, sources: tuple[Floats, ...], targets: tuple[Floats, ...]) -> Floats:
        array = _last_axis(values, len(sources))
        columns = [
            np.full(array.shape[:-1], target[0]) if len(source) == 1 else np.interp(array[..., place], source, target)
            for place, (source, target) in enumerate(zip(sources, targets, strict=True))
        ]
        return np.stack(columns, axis=-1).astype(np.float32)


def normaliser(name: Literal["gaussian", "bounds", "cdf"], data: ArrayLike) -> Normaliser:
    """Fit a normaliser.

    Args:
        name: `gaussian` gives mean 0 and deviation 1, `bounds` maps smallest and largest to -1 and 1, `cdf` makes each
            dimension uniform on [-1, 1].
        data: Shape (n, d).

    Raises:
        UserError: If the name is unknown, or the data are empty or not finite.
    """
    array = np.asarray(data, dtype=np.float64)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise UserError(f"a normaliser needs finite data of shape (n, d), got shape {array.shape}.")
    low, high = array.min(0), array.max(0)
    varies = high - low > 1e-9 * np.maximum(1, np.maximum(abs(low), abs(high)))
    if name == "cdf":
        quantiles, levels = [], []
        for column, moving in zip(array.T, varies, strict=True):
            values, counts = np.unique(column.astype(np.float32) if moving else column[:1], return_counts=True)
            place = np.cumsum(counts) - 1
            quantiles.append(values.astype(np.float32))
            spread = (place - place[0]) / max(1, place[-1] - place[0])
            levels.append((2 * spread - 1 if len(values) > 1 else np.zeros(1)).astype(np.float32))
        return EmpiricalCdf(tuple(quantiles), tuple(levels))
    if name == "gaussian":
        centre, scale = array.mean(0), array.std(0)
    elif name == "bounds":
        centre, scale = (high + low) / 2, (high - low) / 2
    else:
        known = ("gaussian", "bounds", "cdf")
        raise UserError(f"normaliser {name!r} is unknown; expected {', '.join(known)}.{did_you_mean(name, known)}")
    centre, scale = np.where(varies, centre, low), np.where(varies, scale, 1.0)
    return Affine(centre.astype(np.float32), scale.astype(np.float32), varies)


def _last_axis(values: ArrayLike, size: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim < 1 or array.shape[-1] != size:
        raise UserError(f"expected shape (..., d) with d = {size}, got {array.shape}.")
    return array

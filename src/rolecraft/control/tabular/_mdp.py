"""Finite Markov decision processes as arrays, alone or as a stack of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.control.tabular._streams import Uniform
from rolecraft.errors import UserError

Floats = NDArray[np.float64]
_SLACK = 1e-8
"""How far a sum of probabilities may lie from 1."""


@dataclass(frozen=True, eq=False)
class Mdp:
    """A finite MDP, or a stack of MDPs: every array may have the same leading axes, written `...`.

    An absorbing state ends the episode: it leads to itself, pays nothing, and no entropy is earned there.
    """

    transitions: Floats
    """Shape (..., S, A, S): probability of the next state, given state and action."""
    rewards: Floats
    """Shape (..., S, A): expected reward of an action in a state."""
    start: Floats
    """Shape (..., S): probability to start in a state."""
    discount: float
    """In [0, 1)."""
    absorbing: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    """Shape (..., S): states in which the episode is over; empty: none."""

    def __post_init__(self) -> None:
        """Check shapes, probabilities and absorbing states."""
        for name in ("transitions", "rewards", "start"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=float))
        shape = self.transitions.shape
        if len(shape) < 3 or shape[-3] != shape[-1]:
            raise UserError(
                "transitions: expected shape (..., S, A, S) with the same S twice, "
                f"got {shape}; the axes are state, action, next state."
            )
        absorbing = np.asarray(self.absorbing, dtype=bool)
        object.__setattr__(self, "absorbing", absorbing if absorbing.size else np.zeros(shape[:-2], bool))
        *lead, states, actions, _ = shape
        expected = {
            "rewards": ("(..., S, A)", (*lead, states, actions)),
            "start": ("(..., S)", (*lead, states)),
            "absorbing": ("(..., S)", (*lead, states)),
        }
        for name, (symbolic, needed) in expected.items():
            if getattr(self, name).shape != needed:
                raise UserError(
                    f"{name}: expected shape {symbolic} = {needed} beside transitions of shape {shape}, "
                    f"got {getattr(self, name).shape}."
                )
        check_discount(self.discount)
        if not np.isfinite(self.rewards).all():
            place = _place(~np.isfinite(self.rewards))
            raise UserError(f"rewards: {place} is {self.rewards[place]}; expected finite numbers.")
        check_distribution(self.transitions, "transitions", ("state", "action"))
        check_distribution(self.start, "start", ())
        self._check_absorbing()

    def _check_absorbing(self) -> None:
        stays = np.einsum("...sas->...sa", self.transitions)
        wrong = self.absorbing[..., None] & ((stays < 1 - _SLACK) | (self.rewards != 0))
        if wrong.any():
            *_, state, action = place = _place(wrong)
            raise UserError(
                f"absorbing: state {state} must lead to itself and pay 0, but action {action} stays with probability "
                f"{stays[place]:.6g} and pays {self.rewards[place]:.6g}; move the reward to the step that enters it."
            )

    @property
    def states(self) -> int:
        """Number of states, S."""
        return int(self.transitions.shape[-1])

    @property
    def actions(self) -> int:
        """Number of actions, A."""
        return int(self.transitions.shape[-2])

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading axes of a stack; empty for one MDP."""
        return self.transitions.shape[:-3]

    @property
    def alive(self) -> Floats:
        """Shape (..., S): 1 where the episode goes on, 0 in absorbing states."""
        return np.where(self.absorbing, 0.0, 1.0)

    def with_rewards(self, rewards: ArrayLike) -> Self:
        """Return the same MDP with other rewards of shape (..., S, A); absorbing states pay 0 all the same."""
        array = np.broadcast_to(np.asarray(rewards, dtype=float), self.rewards.shape)
        return replace(self, rewards=np.where(self.absorbing[..., None], 0.0, array))

    def with_start(self, start: ArrayLike) -> Self:
        """Return the same MDP with another law of the first state: shape (..., S), or the number of one state."""
        if isinstance(start, int | np.integer):
            if not 0 <= start < self.states:
                raise UserError(f"start: state {start} is not one of 0 to {self.states - 1}.")
            start = np.eye(self.states)[start]
        return replace(self, start=np.broadcast_to(np.asarray(start, dtype=float), self.start.shape))

    def uniform_policy(self) -> Floats:
        """Return the policy that takes every action equally often, of shape (..., S, A)."""
        return np.full(self.rewards.shape, 1 / self.actions)


def check_discount(discount: float) -> None:
    """Refuse a discount outside [0, 1).

    Raises:
        UserError: If it is.
    """
    if not 0 <= discount < 1:
        raise UserError(
            f"discount: expected a number in [0, 1), got {discount}; a finite horizon needs no discount: give "
            "`horizon` to `occupancy` or `sample_walks` instead."
        )


def check_distribution(array: Floats, what: str, axes: Sequence[str]) -> None:
    """Refuse rows (along the last axis) that are no probabilities.

    Args:
        array: Shape (..., n).
        what: Name for the message.
        axes: Names of the axes before the last one, the innermost last.

    Raises:
        UserError: If a number is negative or not finite, or a row does not sum to 1; the row and its sum are named.
    """

    def row(place: tuple[int, ...]) -> str:
        named = place[len(place) - len(axes) :]
        words = [f"{name} {index}" for name, index in zip(axes, named, strict=True)]
        stack = place[: len(place) - len(axes)]
        return "".join(f", {word}" for word in ([f"MDP {stack}"] if stack else []) + words)

    wrong = ~np.isfinite(array) | (array < 0)
    if wrong.any():
        place = _place(wrong)
        raise UserError(
            f"{what}{row(place[:-1])}: entry {place[-1]} is {array[place]:.6g}; expected probabilities in [0, 1]."
        )
    off = np.abs(array.sum(-1) - 1) > _SLACK
    if off.any():
        place = _place(off)
        raise UserError(
            f"{what}{row(place)}: probabilities sum to {array[place].sum():.9g}, expected 1; "
            "divide the row by its sum if it holds counts."
        )


def check_policy(mdp: Mdp, policy: ArrayLike) -> Floats:
    """Return a policy as an array of shape (..., S, A).

    Raises:
        UserError: If its shape does not fit the MDP or a row does not sum to 1.
    """
    array = np.asarray(policy, dtype=float)
    if array.shape[-2:] != (mdp.states, mdp.actions) or array.ndim < 2:
        raise UserError(f"policy: expected shape (..., S, A) = (..., {mdp.states}, {mdp.actions}), got {array.shape}.")
    check_distribution(array, "policy", ("state",))
    return array


def _place(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the first place that is true."""
    return tuple(int(index) for index in np.argwhere(wrong)[0]) if wrong.ndim else ()


def stack_mdps(mdps: Sequence[Mdp]) -> Mdp:
    """Return several MDPs of one size and discount as one stack, whose first axis counts them.

    Raises:
        UserError: If there is none, or sizes or discounts differ.
    """
    shapes = sorted({mdp.transitions.shape for mdp in mdps})
    discounts = sorted({mdp.discount for mdp in mdps})
    if len(shapes) != 1 or len(discounts) != 1:
        raise UserError(f"expected MDPs of one shape and discount, got shapes {shapes} and discounts {discounts}.")
    names = ("transitions", "rewards", "start", "absorbing")
    arrays = {name: np.stack([getattr(mdp, name) for mdp in mdps]) for name in names}
    return Mdp(discount=discounts[0], **arrays)


def random_mdp(
    states: int, actions: int, discount: float, rng: np.random.Generator, *, concentration: float = 1.0
) -> Mdp:
    """Draw an MDP: Dirichlet transitions, rewards uniform on [0, 1], a uniform start.

    Args:
        states: S, at least 1.
        actions: A, at least 1.
        discount: In [0, 1).
        rng: Draws it.
        concentration: Of the Dirichlet law, above 0; small values make nearly deterministic transitions.

    Raises:
        UserError: If a size or the concentration is out of range.
    """
    if min(states, actions) < 1 or not concentration > 0:
        raise UserError(
            f"expected states and actions of at least 1 and a concentration above 0, "
            f"got {states}, {actions} and {concentration}."
        )
    transitions = rng.dirichlet(np.full(states, concentration), size=(states, actions))
    transitions /= transitions.sum(-1, keepdims=True)
    return Mdp(transitions, rng.random((states, actions)), np.full(states, 1 / states), discount)


@dataclass(frozen=True)
class Walks:
    """Episodes of one length or shorter, padded."""

    states: NDArray[np.int64]
    """Shape (E, T): the state before each action."""
    actions: NDArray[np.int64]
    """Shape (E, T)."""
    mask: NDArray[np.bool_]
    """Shape (E, T): false behind the end of an episode, where an absorbing state was entered."""

    def __post_init__(self) -> None:
        """Check that there is something and that shapes agree."""
        shapes = {name: getattr(self, name).shape for name in ("states", "actions", "mask")}
        if self.states.ndim != 2 or len(set(shapes.values())) != 1:
            raise UserError(f"walks: expected three arrays of shape (E, T), got {shapes}.")
        if not self.mask.any():
            raise UserError("walks: there is no step in them; give at least one demonstration of at least one step.")

    def counts(self, states: int, actions: int, discount: float = 1.0) -> Floats:
        """Return the mean discounted number of times each state and action was seen, of shape (S, A).

        Args:
            states: S.
            actions: A.
            discount: Weight of a step at time t is discount ** t.

        Raises:
            UserError: If a state or an action is out of range.
        """
        if self.states[self.mask].max() >= states or self.actions[self.mask].max() >= actions:
            raise UserError(f"walks: a state or action is not below (S, A) = ({states}, {actions}).")
        weights = np.broadcast_to(discount ** np.arange(self.states.shape[1]), self.states.shape)[self.mask]
        cells = self.states[self.mask] * actions + self.actions[self.mask]
        total = np.bincount(cells, weights, minlength=states * actions).reshape(states, actions)
        return total / len(self.states)


def sample_walks(mdp: Mdp, policy: ArrayLike, episodes: int, horizon: int, rng: np.random.Generator) -> Walks:
    """Draw episodes of one MDP under a policy.

    Args:
        mdp: One MDP, no stack.
        policy: Shape (S, A).
        episodes: E, at least 1.
        horizon: T, at least 1; episodes that have not ended are cut there.
        rng: Draws them.

    Raises:
        UserError: If the MDP is a stack, a size is below 1 or the policy does not fit.
    """
    if mdp.lead or min(episodes, horizon) < 1:
        raise UserError(
            f"expected one MDP and at least 1 episode and 1 step, got leading axes {mdp.lead}, {episodes}, {horizon}."
        )
    act, move = check_policy(mdp, policy).cumsum(-1), mdp.transitions.cumsum(-1)
    state = rng.choice(mdp.states, size=episodes, p=mdp.start)
    states = np.zeros((episodes, horizon), dtype=np.int64)
    actions, mask = np.zeros_like(states), np.zeros(states.shape, dtype=bool)
    for step in range(horizon):
        mask[:, step] = ~mdp.absorbing[state]
        action = draw(act[state], rng)
        states[:, step], actions[:, step] = state, action
        state = draw(move[state, action], rng)
    return Walks(states, actions, mask)


def draw(cumulative: Floats, rng: Uniform) -> NDArray[np.int64]:
    """Draw an index per row of cumulative probabilities of shape (..., n)."""
    uniform = rng.random(cumulative.shape[:-1])[..., None] * cumulative[..., -1:]
    index: NDArray[np.int64] = (cumulative <= uniform).sum(-1)
    return index

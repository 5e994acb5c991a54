"""Episodes of a finite MDP, what counting makes of them, and what policies are worth, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rolecraft.control.tabular import Mdp, from_gymnasium, occupancy, sample_walks
from rolecraft.errors import UserError

Floats = NDArray[np.float64]


def frozen_lake(slip: float, discount: float = 0.99) -> Mdp:
    """Return Gymnasium's FrozenLake-v1 (4 x 4) whose moves slip.

    Args:
        slip: Probability of each of the two directions beside the wanted one, in [0, 1/2]; 1/3 is Gymnasium's slippery
            lake and 0 its dry one.
        discount: Of the plan; returns are counted without it.

    Raises:
        UserError: If `slip` is out of range.
        MissingDependencyError: If gymnasium is not installed.
    """
    if not 0 <= slip <= 0.5:
        raise UserError(f"slip: expected a probability in [0, 1/2] for each side, got {slip}.")
    dry = from_gymnasium("FrozenLake-v1", discount, is_slippery=False)

    def mix(table: Floats) -> Floats:
        turned = sum(np.roll(table, side, axis=1) for side in (1, -1))
        return (1 - 2 * slip) * table + slip * turned

    return Mdp(mix(dry.transitions), mix(dry.rewards), dry.start, discount, dry.absorbing)


@dataclass(frozen=True)
class Episodes:
    """E episodes of at most T steps in a finite MDP; arrays (E, T) are padded behind the end."""

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    following: NDArray[np.int64]
    """The state that each step reached."""
    mask: NDArray[np.bool_]
    returns: Floats
    """Undiscounted sum of rewards, (E,)."""
    sizes: tuple[int, int]
    """S and A."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode, (E,)."""
        steps: NDArray[np.int64] = self.mask.sum(1)
        return steps


def join_episodes(parts: Sequence[Episodes]) -> Episodes:
    """Return the episodes of several sets of one MDP and horizon as one set."""
    names = ("states", "actions", "following", "mask", "returns")
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Episodes(**joined, sizes=parts[0].sizes)


def sample_episodes(mdp: Mdp, policy: Floats, episodes: int, horizon: int, rng: np.random.Generator) -> Episodes:
    """Draw episodes under a policy (S, A); the returns are those of entering states that pay.

    Raises:
        UserError: As `sample_walks` does.
    """
    walks = sample_walks(mdp, policy, episodes, horizon + 1, rng)
    states, following = walks.states[:, :-1], walks.states[:, 1:]
    actions, mask = walks.actions[:, :-1], walks.mask[:, :-1]
    # The reward of a step is 1 if it enters the goal: what is paid in expectation, and by no other step.
    pays = np.zeros((mdp.states, mdp.actions, mdp.states), bool)
    paid = np.argwhere(mdp.rewards > 0)
    for state, action in paid:
        ends = np.flatnonzero(mdp.absorbing & (mdp.transitions[state, action] > 0))
        chance = mdp.transitions[state, action, ends]
        pays[state, action, ends[np.isclose(chance, mdp.rewards[state, action])]] = True
    returns = (pays[states, actions, following] & mask).sum(1).astype(float)
    return Episodes(states, actions, following, mask, returns, (mdp.states, mdp.actions))


def count_policy(data: Episodes, kept: NDArray[np.bool_]) -> Floats:
    """Return P(action | state) among the steps of the kept episodes (E,), uniform in states never seen: (S, A).

    Over all episodes this is behaviour cloning; over those of one return it is what a network of any size converges to
    that is conditioned on that return (decision transformer, RvS), for returns that are paid at the end only.
    """
    counts = np.zeros(data.sizes)
    there = data.mask & kept[:, None]
    np.add.at(counts, (data.states[there], data.actions[there]), 1.0)
    total = counts.sum(1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), 1 / data.sizes[1])


def count_transitions(data: Episodes) -> Floats:
    """Return P(next state | state, action) among all steps, uniform where a pair was never seen: (S, A, S)."""
    counts = np.zeros((*data.sizes, data.sizes[0]))
    np.add.at(counts, (data.states[data.mask], data.actions[data.mask], data.following[data.mask]), 1.0)
    total = counts.sum(-1, keepdims=True)
    return np.where(total > 0, counts / np.maximum(total, 1), 1 / data.sizes[0])


def exact_returns(mdp: Mdp, policies: Floats, horizon: int) -> Floats:
    """Return the expected undiscounted return within a horizon of policies (..., S, A), exactly: shape (...)."""
    visits = occupancy(mdp, policies / policies.sum(-1, keepdims=True), horizon=horizon, discount=1.0)
    found: Floats = (visits * mdp.rewards).sum((-2, -1))
    return found


def sum_features(data: Episodes) -> NDArray[np.float32]:
    """Return sums of one-hot steps: what an encoder of the future reads (a deep set), (E, S * A + S + 2).

    How often each state and action, and each reached state, came up in an episode, divided by 8, then the return and
    the length over T.
    """
    (episodes, steps), (states, actions) = data.mask.shape, data.sizes
    pair = np.zeros((episodes, states * actions), np.float32)
    reached = np.zeros((episodes, states), np.float32)
    rows, _ = np.nonzero(data.mask)
    np.add.at(pair, (rows, (data.states * actions + data.actions)[data.mask]), 1 / 8)
    np.add.at(reached, (rows, data.following[data.mask]), 1 / 8)
    ends = np.stack([data.returns, data.lengths / steps], 1)
    return np.concatenate([pair, reached, ends], 1).astype(np.float32)

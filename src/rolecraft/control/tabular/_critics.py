"""Tabular critics learned from samples: TD(0) and Monte Carlo, for a stack of MDPs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolecraft.control.tabular._gradient import sample_returns
from rolecraft.control.tabular._mdp import Floats, Mdp, draw
from rolecraft.control.tabular._planning import Values, log_policy
from rolecraft.control.tabular._streams import Uniform
from rolecraft.errors import UserError


class Chains:
    """One walker per MDP of a stack; it starts anew with probability 1 - discount, or when its episode is over.

    The states it visits have the law of the discounted visits, so that a critic trained on them is good where the actor
    learns.
    """

    def __init__(self, mdp: Mdp, rng: Uniform) -> None:
        """Put every walker at a start.

        Args:
            mdp: A stack of n MDPs (one leading axis).
            rng: Draws every step.

        Raises:
            UserError: If the MDP is no stack.
        """
        if len(mdp.lead) != 1:
            raise UserError(f"expected a stack with one leading axis, got leading axes {mdp.lead}; see `stack_mdps`.")
        self.mdp, self.rng, self._each = mdp, rng, np.arange(mdp.lead[0])
        self._start, self._move = mdp.start.cumsum(-1), mdp.transitions.cumsum(-1)
        self.state = draw(self._start, rng)

    def step(self, act: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Move every walker once.

        Args:
            act: Cumulative probabilities of the policy over actions, of shape (n, S, A).

        Returns:
            State, action and next state (before any new start), each of shape (n,).
        """
        state = self.state
        action = draw(act[self._each, state], self.rng)
        after = draw(self._move[self._each, state, action], self.rng)
        anew = (self.rng.random(state.shape) >= self.mdp.discount) | self.mdp.absorbing[self._each, after]
        self.state = np.where(anew, draw(self._start, self.rng), after)
        return state, action, after


def td0(
    chains: Chains, policy: Floats, action_values: Floats, *, temperature: float, rate: float, steps: int
) -> Floats:
    """Improve action values of a fixed policy by TD(0) on fresh samples (expected SARSA with entropy).

    Q(s, a) += rate * (r + discount * V(s') - Q(s, a)), V(s') = E_pi(Q - temperature * log pi)(s').

    Args:
        chains: The walkers; they go on from where they are.
        policy: Shape (n, S, A).
        action_values: Shape (n, S, A); not changed.
        temperature: Weight of the entropy.
        rate: Step size in (0, 1].
        steps: Samples per MDP; 0 returns the values as they are.

    Returns:
        New action values of shape (n, S, A).

    Raises:
        UserError: If the rate or the number of steps is out of range.
    """
    check_rate(rate)
    if steps < 0:
        raise UserError(f"steps: expected at least 0, got {steps}.")
    mdp, each = chains.mdp, np.arange(len(policy))
    found, act = action_values.copy(), policy.cumsum(-1)
    bonus = -temperature * (policy * log_policy(policy)).sum(-1) * mdp.alive
    alive = mdp.alive
    for _ in range(steps):
        state, action, after = chains.step(act)
        value = (policy[each, after] * found[each, after]).sum(-1) * alive[each, after] + bonus[each, after]
        target = mdp.rewards[each, state, action] + mdp.discount * value
        found[each, state, action] += rate * (target - found[each, state, action])
    return found


def monte_carlo(
    chains: Chains, policy: Floats, action_values: Floats, *, temperature: float, rate: float, steps: int, horizon: int
) -> Floats:
    """Improve action values of a fixed policy by returns of fresh episodes; see `td0`.

    The target of (s, a) is r + discount * (the rest of the return, with its entropy), cut after `horizon` steps; the
    entropy of the first action is not in it.

    Raises:
        UserError: If the rate, the number of steps or the horizon is out of range.
    """
    check_rate(rate)
    if steps < 0 or horizon < 1:
        raise UserError(f"expected steps of at least 0 and a horizon of at least 1, got {steps} and {horizon}.")
    each, found, act = np.arange(len(policy)), action_values.copy(), policy.cumsum(-1)
    first = temperature * log_policy(policy)
    for _ in range(steps):
        state, action, _ = chains.step(act)
        drawn = sample_returns(chains.mdp, policy, temperature, (state, action), chains.rng, horizon=horizon)
        target = drawn + first[each, state, action]
        found[each, state, action] += rate * (target - found[each, state, action])
    return found


def critic_advantages(mdp: Mdp, policy: Floats, action_values: Floats, temperature: float) -> Floats:
    """Return the soft advantages that learned action values imply, of shape (..., S, A)."""
    soft = action_values - temperature * log_policy(policy)
    found: Floats = (soft - (policy * soft).sum(-1, keepdims=True)) * mdp.alive[..., None]
    return found


def critic_error(action_values: Floats, exact: Values, policy: Floats, visits: Floats) -> tuple[Floats, Floats]:
    """Return the critic's root mean squared error, and the share of the variance that it explains; shape (...) each.

    Both weigh states and actions by `visits` * policy; the share is at most 1, and below 0 for a critic that is worse
    than a constant.
    """
    weights = visits[..., None] * policy
    weights = weights / weights.sum((-1, -2), keepdims=True)
    square = (weights * (action_values - exact.action_values) ** 2).sum((-1, -2))
    mean = (weights * exact.action_values).sum((-1, -2), keepdims=True)
    spread = (weights * (exact.action_values - mean) ** 2).sum((-1, -2))
    return np.sqrt(square), 1 - square / np.maximum(spread, 1e-300)


def check_rate(rate: float) -> None:
    """Refuse a step size outside (0, 1].

    Raises:
        UserError: If it is.
    """
    if not 0 < rate <= 1:
        raise UserError(f"rate: expected a step size in (0, 1], got {rate}.")

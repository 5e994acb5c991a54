"""Values, plans and visits of finite MDPs, exact or to a stated error; all of them work on stacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.control.tabular._mdp import Floats, Mdp, check_distribution, check_policy
from rolecraft.errors import UserError


@dataclass(frozen=True)
class Plan:
    """Optimal values and a policy that attains them."""

    values: Floats
    """Shape (..., S)."""
    action_values: Floats
    """Shape (..., S, A): Q(s, a) = r(s, a) + discount * E V(s')."""
    policy: Floats
    """Shape (..., S, A)."""
    iterations: int
    error: float
    """Bound on the largest error of `values`."""


@dataclass(frozen=True)
class Values:
    """What a policy is worth."""

    values: Floats
    """Shape (..., S)."""
    action_values: Floats
    """Shape (..., S, A), without the entropy of the first action."""
    advantages: Floats
    """Shape (..., S, A): Q(s, a) - temperature * log pi(a|s) - V(s); 0 in absorbing states and for actions never taken
    where there is a temperature."""


def log_policy(policy: Floats) -> Floats:
    """Return log probabilities, with 0 for actions never taken, so that p log p is 0 there."""
    return np.log(np.where(policy > 0, policy, 1.0))


def soft_maximum(action_values: Floats, temperature: float) -> tuple[Floats, Floats]:
    """Return the soft maximum over actions and the policy that attains it; the hard ones at temperature 0.

    The value is temperature * log sum exp(Q / temperature), of shape (..., S). The hard policy takes the first of the
    best actions.
    """
    best = action_values.max(-1, keepdims=True)
    if temperature == 0:
        return best[..., 0], np.eye(action_values.shape[-1])[action_values.argmax(-1)]
    weights = np.exp((action_values - best) / temperature)
    total = weights.sum(-1, keepdims=True)
    return (best + temperature * np.log(total))[..., 0], weights / total


def value_iteration(
    mdp: Mdp,
    temperature: float = 0.0,
    *,
    tolerance: float = 1e-10,
    most: int = 100_000,
    initial: ArrayLike | None = None,
) -> Plan:
    """Solve an MDP by value iteration, hard or soft (entropy-regularised).

    Args:
        mdp: An MDP or a stack.
        temperature: Weight of the policy's entropy, at least 0; 0 is hard.
        tolerance: Stop when the bound on the error, change * discount / (1 - discount), is below it.
        most: Iterations after which it gives up.
        initial: Values to start from, of shape (..., S).

    Returns:
        The plan; absorbing states are worth 0.

    Raises:
        UserError: If the temperature is negative or `most` iterations do not reach the tolerance.
    """
    check_temperature(temperature)
    alive = mdp.alive
    values = np.zeros(mdp.start.shape) if initial is None else np.asarray(initial, dtype=float) * alive
    factor = mdp.discount / (1 - mdp.discount)
    for iteration in range(1, most + 1):
        action_values = mdp.rewards + mdp.discount * expect(mdp, values)
        new, policy = soft_maximum(action_values, temperature)
        new = new * alive
        error = float(np.abs(new - values).max()) * factor
        values = new
        if error <= tolerance:
            return Plan(values, mdp.rewards + mdp.discount * expect(mdp, values), policy, iteration, error)
    raise UserError(
        f"value iteration: error {error:.3g} after {most} iterations at discount {mdp.discount}, expected at most "
        f"{tolerance:.3g}; raise `most` or `tolerance`, or lower the discount."
    )


def expect(mdp: Mdp, values: Floats) -> Floats:
    """Return E V(s') of shape (..., S, A)."""
    expected: Floats = (mdp.transitions @ values[..., None, :, None])[..., 0]
    return expected


def policy_evaluation(mdp: Mdp, policy: ArrayLike, temperature: float = 0.0) -> Values:
    """Return the exact values of a policy, by a linear solve: V = (1 - discount * P)^-1 (r + temperature * entropy).

    Args:
        mdp: An MDP or a stack.
        policy: Shape (..., S, A), broadcast against the stack.
        temperature: Weight of the entropy, at least 0.

    Raises:
        UserError: If the policy does not fit or the temperature is negative.
    """
    check_temperature(temperature)
    return evaluate(mdp, check_policy(mdp, policy), temperature)


def evaluate(mdp: Mdp, policy: Floats, temperature: float) -> Values:
    """Do what `policy_evaluation` does, without checks."""
    cost = temperature * log_policy(policy)
    alive = mdp.alive
    paid = (policy * (mdp.rewards - cost)).sum(-1) * alive
    system = np.eye(mdp.states) - mdp.discount * chain(mdp, policy) * alive[..., None]
    values = np.linalg.solve(system, paid[..., None])[..., 0]
    action_values = mdp.rewards + mdp.discount * expect(mdp, values)
    advantages = (action_values - cost - values[..., None]) * alive[..., None]
    if temperature > 0:
        advantages = np.where(policy > 0, advantages, 0.0)
    return Values(values, action_values, advantages)


def chain(mdp: Mdp, policy: Floats) -> Floats:
    """Return the states' transition matrix under a policy, of shape (..., S, S)."""
    moved: Floats = (policy[..., None, :] @ mdp.transitions)[..., 0, :]
    return moved


def expected_return(mdp: Mdp, policy: ArrayLike, temperature: float = 0.0) -> Floats:
    """Return start . V, the (regularised) discounted return of a policy, of shape (...)."""
    found: Floats = (mdp.start * policy_evaluation(mdp, policy, temperature).values).sum(-1)
    return found


def occupancy(mdp: Mdp, policy: ArrayLike, *, horizon: int | None = None, discount: float | None = None) -> Floats:
    """Return the expected discounted visits, sum over t of discount^t P(s_t = s, a_t = a), of shape (..., S, A).

    Steps in absorbing states are not counted, so that without a discount the sum is an episode's mean length.

    Args:
        mdp: An MDP or a stack.
        policy: Shape (..., S, A).
        horizon: Number of steps; None: without end, by a linear solve.
        discount: Instead of the MDP's; may be 1 if there is a horizon.

    Raises:
        UserError: If the policy does not fit, the horizon is below 1, or the discount is out of range.
    """
    policy = check_policy(mdp, policy)
    gamma = mdp.discount if discount is None else discount
    most = 1.0 if horizon is not None else np.nextafter(1.0, 0.0)
    if not 0 <= gamma <= most or (horizon is not None and horizon < 1):
        raise UserError(
            f"expected a discount in [0, 1), or in [0, 1] with a horizon of at least 1, got {gamma} and {horizon}."
        )
    alive = mdp.alive
    moves = chain(mdp, policy) * alive[..., None]
    first = mdp.start * alive
    if horizon is None:
        system = np.eye(mdp.states) - gamma * np.swapaxes(moves, -1, -2)
        lead = np.broadcast_shapes(first.shape, system.shape[:-1])
        visits = np.linalg.solve(system, np.broadcast_to(first, lead)[..., None])[..., 0]
    else:
        now, visits = first, np.zeros_like(first)
        for step in range(horizon):
            visits = visits + gamma**step * now
            now = (now[..., None, :] @ moves)[..., 0, :]
    return np.maximum(visits * alive, 0.0)[..., None] * policy


def stationary_distribution(transitions: ArrayLike) -> Floats:
    """Return the one stationary law of a Markov chain.

    Args:
        transitions: Shape (S, S), rows sum to 1.

    Raises:
        UserError: If it is not square or not stochastic, or there are several stationary laws (the chain has several
            sets of states that it cannot leave).
    """
    matrix = np.asarray(transitions, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"transitions: expected a square matrix of shape (S, S), got {matrix.shape}.")
    check_distribution(matrix, "transitions", ("state",))
    reach = np.eye(len(matrix)) + matrix > 0
    for _ in range(max(1, int(np.ceil(np.log2(len(matrix)))))):
        reach = (reach.astype(float) @ reach) > 0
    both = reach & reach.T
    closed = {tuple(np.flatnonzero(both[s])) for s in range(len(matrix)) if not (reach[s] & ~both[s]).any()}
    if len(closed) > 1:
        sets = ", ".join(str([int(state) for state in states]) for states in sorted(closed))
        raise UserError(f"the chain is not ergodic: once in one of the sets of states {sets}, it never leaves it.")
    system = np.vstack([matrix.T - np.eye(len(matrix)), np.ones(len(matrix))])
    law: Floats = np.linalg.lstsq(system, np.append(np.zeros(len(matrix)), 1.0))[0]
    law = np.maximum(law, 0.0)
    law /= law.sum()
    return law


def check_temperature(temperature: float) -> None:
    """Refuse a negative temperature.

    Raises:
        UserError: If it is negative or not finite.
    """
    if not 0 <= temperature < np.inf:
        raise UserError(f"temperature: expected a finite number of at least 0, got {temperature}.")

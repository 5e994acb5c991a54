"""The softmax policy gradient of (entropy-regularised) finite MDPs: exact, sampled, and how samples scatter.

J = start . V, V(s) = E sum discount^t (r_t - temperature * log pi(a_t|s_t)), logits of shape (..., S, A). The gradient
is the sum over s, a of d(s) pi(a|s) A(s, a) grad log pi(a|s), where d are the discounted visits (they sum to
1 / (1 - discount) where no state absorbs) and A the soft advantages (Sutton et al. 2000; Williams 1992).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.control.tabular._mdp import Floats, Mdp, draw
from rolecraft.control.tabular._planning import Values, chain, evaluate, expect, log_policy
from rolecraft.control.tabular._streams import Uniform
from rolecraft.errors import UserError, did_you_mean

Estimator = Literal["reinforce", "baseline", "exact-critic"]
ESTIMATORS: tuple[Estimator, ...] = ("reinforce", "baseline", "exact-critic")
"""What weighs grad log pi(a|s): the return G from (s, a), G - V(s), or the exact soft advantage."""


def softmax(logits: ArrayLike) -> Floats:
    """Return softmax over the last axis."""
    array = np.asarray(logits, dtype=float)
    weights = np.exp(array - array.max(-1, keepdims=True))
    total: Floats = weights / weights.sum(-1, keepdims=True)
    return total


def policy_gradient(mdp: Mdp, logits: ArrayLike, temperature: float = 0.0) -> Floats:
    """Return the exact gradient of the regularised return with respect to the logits, of shape (..., S, A).

    Raises:
        UserError: If the shape of the logits does not fit.
    """
    policy = softmax(_fit(mdp, logits))
    values = evaluate(mdp, policy, temperature)
    return state_visits(mdp, policy)[..., None] * policy * values.advantages


def state_visits(mdp: Mdp, policy: Floats) -> Floats:
    """Return the expected discounted visits of the states, of shape (..., S); absorbing states have 0."""
    alive = mdp.alive
    system = np.eye(mdp.states) - mdp.discount * np.swapaxes(chain(mdp, policy) * alive[..., None], -1, -2)
    first = np.broadcast_to(mdp.start * alive, system.shape[:-1])
    visits: Floats = np.maximum(np.linalg.solve(system, first[..., None])[..., 0], 0.0) * alive
    return visits


@dataclass(frozen=True)
class Moments:
    """Mean and scatter of a single-sample estimator of the policy gradient."""

    mean: Floats
    """Shape (..., S, A): the gradient it estimates without bias."""
    variance: Floats
    """Shape (...): E |g|^2 - |E g|^2, summed over all logits."""
    signal: Floats
    """Shape (...): |E g|^2."""


def gradient_moments(mdp: Mdp, logits: ArrayLike, temperature: float, estimator: Estimator) -> Moments:
    """Return the exact moments of g = (sum of d) * weight * (one-hot(a) - pi(.|s)), with s drawn by d and a by pi.

    The scatter of the return needs its second moment, which has a Bellman equation of its own (Sobel 1982):
    E G^2 = c^2 + 2 discount c E V(s') + discount^2 E M(s') with c = r - temperature * log pi and M = E over a of E G^2.
    Rewards count as their means r(s, a).

    Args:
        mdp: An MDP or a stack.
        logits: Shape (..., S, A).
        temperature: Weight of the entropy, at least 0.
        estimator: One of `ESTIMATORS`.

    Raises:
        UserError: If the estimator is unknown or the shape does not fit.
    """
    policy = softmax(_fit(mdp, logits))
    values = evaluate(mdp, policy, temperature)
    visits = state_visits(mdp, policy)
    total = visits.sum(-1)
    square = _weight_square(mdp, policy, values, temperature, estimator)
    length = 1 - 2 * policy + (policy**2).sum(-1, keepdims=True)
    second = total * (visits[..., None] * policy * square * length).sum((-1, -2))
    mean = visits[..., None] * policy * values.advantages
    signal = (mean**2).sum((-1, -2))
    return Moments(mean, np.maximum(second - signal, 0.0), signal)


def _weight_square(mdp: Mdp, policy: Floats, values: Values, temperature: float, estimator: Estimator) -> Floats:
    """Return E weight^2 given state and action, of shape (..., S, A)."""
    _known(estimator)
    if estimator == "exact-critic":
        return values.advantages**2
    second = second_moments(mdp, policy, values, temperature)
    if estimator == "reinforce":
        return second
    mean = mdp.rewards - temperature * log_policy(policy) + mdp.discount * expect(mdp, values.values)
    square: Floats = second - 2 * mean * values.values[..., None] + values.values[..., None] ** 2
    return square * mdp.alive[..., None]


def second_moments(mdp: Mdp, policy: Floats, values: Values, temperature: float) -> Floats:
    """Return E G^2 of the regularised return from a state and action, of shape (..., S, A)."""
    alive = mdp.alive
    cost = (mdp.rewards - temperature * log_policy(policy)) * alive[..., None]
    fixed = cost**2 + 2 * mdp.discount * cost * expect(mdp, values.values)
    system = np.eye(mdp.states) - mdp.discount**2 * chain(mdp, policy) * alive[..., None]
    per_state = np.linalg.solve(system, (policy * fixed).sum(-1)[..., None] * alive[..., None])[..., 0]
    found: Floats = (fixed + mdp.discount**2 * expect(mdp, per_state)) * alive[..., None]
    return found


@dataclass(frozen=True)
class Sample:
    """One state and action per MDP of a stack, and the weight of its score."""

    states: NDArray[np.int64]
    """Shape (n,)."""
    actions: NDArray[np.int64]
    """Shape (n,)."""
    weights: Floats
    """Shape (n,)."""


def sample_weights(
    mdp: Mdp,
    policy: Floats,
    values: Values,
    temperature: float,
    estimator: Estimator,
    rng: Uniform,
    *,
    horizon: int,
) -> Sample:
    """Draw a state by the discounted visits, an action by the policy, and the estimator's weight, for each MDP.

    A state at a time drawn with probability (1 - discount) * discount^t has just the law of the visits, so it is drawn
    from them.

    Args:
        mdp: A stack of n MDPs (one leading axis).
        policy: Shape (n, S, A).
        values: Of that policy.
        temperature: Weight of the entropy.
        estimator: One of `ESTIMATORS`.
        rng: Draws.
        horizon: Steps after which a return is cut.

    Raises:
        UserError: If the estimator is unknown or the MDP is no stack.
    """
    _known(estimator)
    if len(mdp.lead) != 1:
        raise UserError(f"expected a stack with one leading axis, got leading axes {mdp.lead}; see `stack_mdps`.")
    each = np.arange(mdp.lead[0])
    state = draw(state_visits(mdp, policy).cumsum(-1), rng)
    action = draw(policy.cumsum(-1)[each, state], rng)
    if estimator == "exact-critic":
        return Sample(state, action, values.advantages[each, state, action])
    found = sample_returns(mdp, policy, temperature, (state, action), rng, horizon=horizon)
    weights = found if estimator == "reinforce" else found - values.values[each, state]
    return Sample(state, action, weights)


def sample_returns(
    mdp: Mdp,
    policy: Floats,
    temperature: float,
    first: tuple[NDArray[np.int64], NDArray[np.int64]],
    rng: Uniform,
    *,
    horizon: int,
) -> Floats:
    """Draw a regularised return from a state and action per MDP of a stack, cut after `horizon` steps; shape (n,)."""
    each, (state, action) = np.arange(mdp.lead[0]), first
    paid = (mdp.rewards - temperature * log_policy(policy)) * mdp.alive[..., None]
    act, move = policy.cumsum(-1), mdp.transitions.cumsum(-1)
    total, weight = np.zeros(len(each)), 1.0
    for _ in range(horizon):
        total += weight * paid[each, state, action]
        weight *= mdp.discount
        state = draw(move[each, state, action], rng)
        action = draw(act[each, state], rng)
    return total


def score_step(policy: Floats, sample: Sample) -> Floats:
    """Return weight * grad log pi(a|s) for each MDP of a stack, of shape (n, S, A)."""
    each, step = np.arange(len(policy)), np.zeros_like(policy)
    step[each, sample.states] = -policy[each, sample.states]
    step[each, sample.states, sample.actions] += 1.0
    return step * sample.weights[:, None, None]


def _fit(mdp: Mdp, logits: ArrayLike) -> Floats:
    array = np.asarray(logits, dtype=float)
    if array.shape[-2:] != (mdp.states, mdp.actions) or array.ndim < 2:
        raise UserError(f"logits: expected shape (..., S, A) = (..., {mdp.states}, {mdp.actions}), got {array.shape}.")
    return array


def _known(estimator: str) -> None:
    if estimator not in ESTIMATORS:
        raise UserError(
            f"there is no estimator {estimator!r}; expected one of {', '.join(ESTIMATORS)}."
            + did_you_mean(estimator, ESTIMATORS)
        )

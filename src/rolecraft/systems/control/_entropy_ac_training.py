"""The training of study 115: softmax actors on stacks of MDPs, with exact, stale and learned critics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.control.tabular import (
    Chains,
    Estimator,
    Mdp,
    Sample,
    Streams,
    Values,
    critic_advantages,
    critic_error,
    draw,
    from_gymnasium,
    policy_evaluation,
    policy_gradient,
    random_mdp,
    sample_weights,
    score_step,
    softmax,
    stack_mdps,
    state_visits,
    td0,
    value_iteration,
)
from rolecraft.errors import UserError

Floats = NDArray[np.float64]
TASKS = ("random", "frozen-lake")


@dataclass(frozen=True)
class Problem:
    """The regularised MDPs of some seeds as a stack, and what their optimum is worth."""

    mdp: Mdp
    temperature: float
    optimum: Floats
    """Shape (n,)."""

    @classmethod
    def of_seeds(
        cls, task: str, sizes: tuple[int, int], discount: float, temperature: float, seeds: Sequence[int]
    ) -> Problem:
        """Draw an MDP per seed (`random`), or take FrozenLake for each.

        Raises:
            UserError: If the task is unknown.
        """
        if task == "random":
            mdps = [
                random_mdp(*sizes, discount, np.random.default_rng(derive_seed("entropy-ac", seed)), concentration=0.3)
                for seed in seeds
            ]
        elif task == "frozen-lake":
            mdps = [from_gymnasium("FrozenLake-v1", discount)] * len(seeds)
        else:
            raise UserError(f"task: expected one of {', '.join(TASKS)}, got {task!r}.")
        mdp = stack_mdps(mdps)
        plan = value_iteration(mdp, temperature)
        return cls(mdp, temperature, (mdp.start * plan.values).sum(-1))

    def loss(self, policy: Floats) -> Floats:
        """Return the regularised suboptimality start . (V* - V), of shape (n,)."""
        values = policy_evaluation(self.mdp, policy, self.temperature).values
        found: Floats = self.optimum - (self.mdp.start * values).sum(-1)
        return found


Step = Callable[[Floats, int], Floats]
"""From policy and time to the direction of the logits, of shape (n, S, A)."""


def ascend(
    problem: Problem, direction: Step, rates: Callable[[int], Floats], marks: Sequence[int], bound: float
) -> tuple[Floats, Floats]:
    """Follow a direction from logits 0.

    Args:
        problem: The stack.
        direction: What is added to the logits, before the step size.
        rates: From the step to the step sizes, of shape (n,).
        marks: Steps at which the suboptimality is taken, ascending; the last one ends it.
        bound: Logits, less their mean over actions, stay within it, which keeps the policy off the border.

    Returns:
        Suboptimality of shape (marks, n), and the last logits.
    """
    logits, curve = np.zeros(problem.mdp.rewards.shape), []
    wanted = set(marks)
    for step in range(max(marks) + 1):
        policy = softmax(logits)
        if step in wanted:
            curve.append(problem.loss(policy))
        logits = logits + rates(step)[:, None, None] * direction(policy, step)
        logits = np.clip(logits - logits.mean(-1, keepdims=True), -bound, bound)
    return np.array(curve), logits


def exact_step(problem: Problem) -> Step:
    """Return the deterministic gradient, scaled by (1 - discount)."""

    def direction(policy: Floats, _: int) -> Floats:
        logits = np.log(np.maximum(policy, 1e-300))
        return (1 - problem.mdp.discount) * policy_gradient(problem.mdp, logits, problem.temperature)

    return direction


def sampled_step(problem: Problem, estimator: Estimator, draws: Streams, horizon: int) -> Step:
    """Return the single-sample gradient of an estimator, scaled by (1 - discount)."""

    def direction(policy: Floats, _: int) -> Floats:
        values = policy_evaluation(problem.mdp, policy, problem.temperature)
        sample = sample_weights(
            problem.mdp, policy, values, problem.temperature, estimator, draws, horizon=horizon
        )  # fmt: skip
        return score_step(policy, sample) * _mass(problem, policy)

    return direction


def _mass(problem: Problem, policy: Floats) -> Floats:
    """Return (1 - discount) * sum of the visits: 1 where no state absorbs."""
    if not problem.mdp.absorbing.any():
        return np.ones((len(policy), 1, 1))
    mass: Floats = (1 - problem.mdp.discount) * state_visits(problem.mdp, policy).sum(-1)[:, None, None]
    return mass


class LearnedCritic:
    """A tabular critic learned by TD(0), asked by the actor for the advantage of one sample per step."""

    def __init__(self, problem: Problem, draws: Streams, *, rate: float, per_step: int, warm_up: int) -> None:
        """Start at 0 and, critic first, learn the first policy before the actor moves.

        Args:
            problem: The stack.
            draws: Random numbers.
            rate: Step size of TD(0).
            per_step: Critic steps after each actor step (K).
            warm_up: Critic steps before the first one; 0: both learn at once.
        """
        self.problem, self.draws, self.rate, self.per_step = problem, draws, rate, per_step
        self.chains = Chains(problem.mdp, draws)
        self.action_values = np.zeros(problem.mdp.rewards.shape)
        self.learn(problem.mdp.uniform_policy(), warm_up)
        self.residual = bellman_residual(problem, problem.mdp.uniform_policy(), self.action_values)

    def learn(self, policy: Floats, steps: int) -> None:
        """Take critic steps on fresh samples of a policy."""
        self.action_values = td0(
            self.chains, policy, self.action_values,
            temperature=self.problem.temperature, rate=self.rate, steps=steps,
        )  # fmt: skip

    def direction(self, policy: Floats, step: int) -> Floats:
        """Bring the critic up to the policy (not before the first step, which is the warm-up's) and ask it."""
        if step:
            self.learn(policy, self.per_step)
        mdp, each = self.problem.mdp, np.arange(len(policy))
        state = draw(state_visits(mdp, policy).cumsum(-1), self.draws)
        action = draw(policy.cumsum(-1)[each, state], self.draws)
        advantages = critic_advantages(mdp, policy, self.action_values, self.problem.temperature)
        return score_step(policy, Sample(state, action, advantages[each, state, action])) * _mass(self.problem, policy)

    def figures(self, policy: Floats) -> tuple[Floats, Floats]:
        """Return the critic's error and the share of the variance it explains, under a policy."""
        exact = policy_evaluation(self.problem.mdp, policy, self.problem.temperature)
        return critic_error(self.action_values, exact, policy, state_visits(self.problem.mdp, policy))


def bellman_residual(problem: Problem, policy: Floats, action_values: Floats) -> Floats:
    """Return the largest |r + discount * E V(s') - Q(s, a)| of a critic, of shape (n,)."""
    mdp = problem.mdp
    soft = action_values - problem.temperature * np.log(np.maximum(policy, 1e-300))
    values = (policy * soft).sum(-1) * mdp.alive
    backup = mdp.rewards + mdp.discount * (mdp.transitions @ values[:, None, :, None])[..., 0]
    found: Floats = (np.abs(backup - action_values) * mdp.alive[..., None]).max((-1, -2))
    return found


def stale_step(problem: Problem, draws: Streams) -> Step:
    """Return the step of an exact critic of the first policy that is never refreshed."""
    first: Values = policy_evaluation(problem.mdp, problem.mdp.uniform_policy(), problem.temperature)
    critic = LearnedCritic(problem, draws, rate=1.0, per_step=0, warm_up=0)
    critic.action_values = first.action_values
    return critic.direction


def streams(seeds: Sequence[int], *labels: Any) -> Streams:
    """Return one stream per seed."""
    return Streams([derive_seed("entropy-ac", seed, *labels) for seed in seeds])

"""The learners of study 022: maximum-causal-entropy constraint learning, its non-causal kin, and the baselines.

All learn a cost per state of the grid (one-hot features, so that none has better ones) from the same demonstrations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.control.tabular import Mdp, TabularCost, Walks, occupancy, sample_walks, value_iteration
from rolecraft.errors import UserError
from rolecraft.systems.control._mce_world import WallWorld

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Learned:
    """What a learner gives back."""

    policy: Floats
    """Shape (S, A): its own constrained policy."""
    cost: Floats | None
    """Shape (S,): the cost to be subtracted from any reward; None: it learns none."""
    evidence: NDArray[np.bool_]
    """Shape (S,): whether demonstrations or a policy on the way came there."""
    gap: float = float("nan")
    """Largest difference of visits that was left, beyond the slack, between its policy and the demonstrations."""

    def guard(self, actions: int, threshold: float) -> TabularCost:
        """Return the cost as a table of shape (S, A) that can be saved and asked.

        Raises:
            UserError: If there is no cost.
        """
        if self.cost is None:
            raise UserError("this learner has a policy and no cost; take one that learns a cost.")
        wide = np.ones(actions)
        return TabularCost(np.outer(self.cost, wide), threshold, np.outer(self.evidence, wide) > 0)


Inner = Callable[[Mdp], tuple[Floats, Floats]]
"""From an MDP with its cost subtracted to a policy and the discounted visits, shape (S,), thought to be its."""


def causal_inner(temperature: float, horizon: int) -> Inner:
    """Return what finds the soft-optimal policy and its visits: the expectation over s' stands inside the backup."""
    values: list[Floats] = []

    def solve(mdp: Mdp) -> tuple[Floats, Floats]:
        plan = value_iteration(mdp, temperature, tolerance=1e-6, initial=values[-1] if values else None)
        values[:] = [plan.values]
        return plan.policy, occupancy(mdp, plan.policy, horizon=horizon).sum(-1)

    return solve


def path_model(mdp: Mdp, temperature: float, *, most: int = 2000) -> tuple[Floats, Mdp]:
    """Return the plain maximum-entropy model: paths weigh exp(reward / temperature) times their transitions.

    Such a model steers chance: its transitions lean towards next states from which much is to be had. Rewards of minus
    infinity forbid. No discount.

    Args:
        mdp: One MDP whose every step costs something.
        temperature: Above 0.
        most: Iterations.

    Returns:
        The policy of shape (S, A), and the MDP with the transitions of the model.

    Raises:
        UserError: If the weights of the paths do not converge.
    """
    values = np.where(mdp.absorbing, 0.0, -np.inf)
    for _ in range(most):
        reached = _log_expect(mdp.transitions, values / temperature)
        scores = mdp.rewards / temperature + reached
        new = np.where(mdp.absorbing, 0.0, temperature * _log_sum(scores))
        if np.array_equal(np.isfinite(new), np.isfinite(values)) and np.allclose(new, values, rtol=0, atol=1e-9):
            break
        values = new
    else:
        raise UserError("the path weights do not converge; every step must cost more than temperature * log(actions).")
    best = scores.max(-1, keepdims=True)
    alive = np.isfinite(best)
    weights = np.where(alive, np.exp(scores - np.where(alive, best, 0.0)), 1.0)
    policy = weights / weights.sum(-1, keepdims=True)
    lean = np.exp((values - values.max()) / temperature)
    tilted = mdp.transitions * lean
    total = tilted.sum(-1, keepdims=True)
    tilted = np.where(total > 0, tilted / np.where(total > 0, total, 1.0), mdp.transitions)
    return policy, replace(mdp, transitions=tilted)


def _log_sum(scores: Floats) -> Floats:
    best = scores.max(-1)
    safe = np.where(np.isfinite(best), best, 0.0)
    with np.errstate(divide="ignore"):
        found: Floats = safe + np.log(np.exp(scores - safe[..., None]).sum(-1))
    return found


def _log_expect(transitions: Floats, scores: Floats) -> Floats:
    """Return log E exp(score of s')."""
    best = scores[np.isfinite(scores)].max(initial=-np.inf)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(transitions @ np.exp(scores - best)) + best
    return found


def noncausal_inner(temperature: float, horizon: int) -> Inner:
    """Return the policy of the path model, and the visits that the model believes in."""

    def solve(mdp: Mdp) -> tuple[Floats, Floats]:
        policy, model = path_model(mdp, temperature)
        return policy, occupancy(model, policy, horizon=horizon).sum(-1)

    return solve


@dataclass(frozen=True)
class MceSettings:
    """Sizes of the outer problem."""

    steps: int = 300
    rate: float = 0.3
    """Of the cost."""
    multiplier_rate: float = 0.05
    """Of the multiplier; 0: it stays 1, folded into the cost."""
    tolerance: float = 0.01
    """Ends it once no state's visits differ by more than this beyond the slack."""


def match_visits(world: WallWorld, seen: Floats, slack: Floats, inner: Inner, settings: MceSettings) -> Learned:
    """Learn a cost by projected ascent of the dual until policy and demonstrations visit the states equally often.

    theta <- max(0, theta + rate * (visits of the policy - visits seen - slack)), and the multiplier follows the
    policy's cost above that of the demonstrations; the inner policy is soft-optimal for reward - multiplier * theta.

    Args:
        world: Its known reward and dynamics.
        seen: Shape (S,): mean discounted visits of the demonstrations.
        slack: Shape (S,): by how much more the policy may visit a state for nothing: the error of `seen` by sampling
            (box constraints, Dudik et al., JMLR 2007). It is 0 where no demonstration came: there is no leave there.
        inner: Solves the inner problem.
        settings: Of the outer one.
    """
    mdp = world.mdp
    theta, multiplier = np.zeros(mdp.states), 1.0
    evidence = seen > 0
    for step in range(settings.steps + 1):
        cost = multiplier * theta
        policy, visits = inner(mdp.with_rewards(mdp.rewards - cost[:, None]))
        evidence = evidence | (visits > EVIDENCE)
        over = visits - seen - slack
        gap = float(np.where(theta > 0, np.abs(over), np.maximum(over, 0.0)).max())
        if step == settings.steps or gap < settings.tolerance:
            break
        above = float(theta @ over)
        theta = np.maximum(0.0, theta + settings.rate * over)
        multiplier = max(0.0, multiplier + settings.multiplier_rate * above)
    return Learned(policy, cost, evidence, gap)


EVIDENCE = 0.01
"""A state that a policy on the way visits more often than this per episode is one that the learner knows about."""


def greedy_cells(world: WallWorld, walks: Walks, temperature: float, least: float, penalty: float) -> Learned:
    """Infer forbidden cells as Scobee and Sastry (ICLR 2020) do: one by one, the cell that removes most path mass.

    Only cells without a demonstration are candidates. It ends when the best one removes less than `least`.

    Args:
        world: Its known reward and dynamics.
        walks: Demonstrations.
        temperature: Of the path model.
        least: Share of path mass, in (0, 1).
        penalty: Cost of a cell that it forbids, for agents that plan with it.
    """
    mdp = world.mdp
    seen = walks.counts(mdp.states, mdp.actions).sum(-1) > 0
    free = ~seen & ~mdp.absorbing & (mdp.start == 0)
    banned = np.zeros(mdp.states, dtype=bool)
    known = seen.copy()
    while True:
        priced = replace(mdp, transitions=_blocked(mdp, banned))
        policy, model = path_model(priced, temperature)
        touched = touch_probability(model, policy)
        known |= touched > EVIDENCE
        open_cells = free & ~banned
        best = int(np.where(open_cells, touched, -1.0).argmax())
        if not open_cells[best] or touched[best] < least:
            break
        banned[best] = True
    return Learned(policy, penalty * banned, known)


def _blocked(mdp: Mdp, banned: NDArray[np.bool_]) -> Floats:
    """Return transitions in which a banned state leads nowhere but to itself, so that no path through it arrives."""
    return np.where(banned[:, None, None], np.eye(mdp.states)[:, None], mdp.transitions)


def touch_probability(mdp: Mdp, policy: Floats) -> Floats:
    """Return the probability that an episode ever comes to each state, of shape (S,): N(start, s) / N(s, s)."""
    moves = np.einsum("sa,sat->st", policy, mdp.transitions) * mdp.alive[:, None]
    stuck = (np.diag(moves) > 1 - 1e-12) & ~mdp.absorbing
    moves = np.where(stuck[:, None], 0.0, moves)
    visits = np.linalg.inv(np.eye(mdp.states) - moves)
    found: Floats = np.clip((mdp.start @ visits) / np.diag(visits), 0.0, 1.0)
    return found


class Adam:
    """Adam on one array (Kingma and Ba 2015)."""

    def __init__(self, rate: float) -> None:
        """Start with empty averages."""
        self.rate, self.step, self.first, self.second = rate, 0, 0.0, 0.0

    def move(self, gradient: Floats) -> Floats:
        """Return what to subtract."""
        self.step += 1
        self.first = 0.9 * self.first + 0.1 * gradient  # type: ignore[assignment]
        self.second = 0.999 * self.second + 0.001 * gradient**2  # type: ignore[assignment]
        mean, square = self.first / (1 - 0.9**self.step), self.second / (1 - 0.999**self.step)
        found: Floats = np.asarray(self.rate * mean / (np.sqrt(square) + 1e-8))
        return found


@dataclass(frozen=True)
class NetSettings:
    """Sizes of ICRL, GAIL-constraint and the classifier."""

    outer: int = 30
    """ICRL's code: 10 to 30."""
    backward: int = 20
    """Steps of the constraint model per outer iteration; ICRL's code: 5 to 20."""
    rate: float = 0.05
    """Of Adam; ICRL's code: 0.003 to 0.05."""
    regulariser: float = 0.5
    """Weight of E[1 - zeta]; ICRL's code: 0.5."""
    multiplier_rate: float = 1.0
    """Of the Lagrangian, per inner step."""
    multiplier_steps: int = 10
    """Inner steps of it per outer iteration."""


def visit_counts(walks: Walks, states: int, discount: float = 1.0) -> Floats:
    """Return how often each episode visits each state, discounted, of shape (E, S)."""
    found = np.zeros((len(walks.states), states))
    rows = np.broadcast_to(np.arange(len(walks.states))[:, None], walks.states.shape)
    weights = np.broadcast_to(discount ** np.arange(walks.states.shape[1]), walks.states.shape)
    np.add.at(found, (rows[walks.mask], walks.states[walks.mask]), weights[walks.mask])
    return found


def sigmoid(logits: Floats) -> Floats:
    """Return 1 / (1 + exp(-logits))."""
    found: Floats = 0.5 * (1 + np.tanh(logits / 2))
    return found


def icrl(world: WallWorld, walks: Walks, horizon: int, settings: NetSettings, rng: np.random.Generator) -> Learned:
    """Learn zeta(s), the probability that a state is allowed, as ICRL does (Malik et al., ICML 2021).

    Outer iterations: a soft policy by Lagrangian for the cost 1 - zeta with budget 0; then steps on
    -E_D log zeta + E_pi[w log zeta] + regulariser * E[1 - zeta], where w weighs the policy's episodes by the ratio of
    their new to their old prod zeta.
    """
    mdp, logits, multiplier = world.mdp, np.zeros(world.mdp.states), 0.0
    expert, adam = visit_counts(walks, mdp.states), Adam(settings.rate)
    evidence, inner = expert.sum(0) > 0, causal_inner(world.temperature, horizon)
    shown = expert.mean(0)
    for outer in range(settings.outer + 1):
        cost = 1 - sigmoid(logits)
        for _ in range(settings.multiplier_steps):
            policy, visits = inner(mdp.with_rewards(mdp.rewards - multiplier * cost[:, None]))
            multiplier = max(0.0, multiplier + settings.multiplier_rate * float(cost @ (visits - shown)))
        evidence = evidence | (visits > EVIDENCE)
        if outer == settings.outer:
            break
        own = visit_counts(sample_walks(mdp, policy, len(expert), horizon, rng), mdp.states)
        before = np.log(sigmoid(logits))
        for _ in range(settings.backward):
            zeta = sigmoid(logits)
            drift = own @ (np.log(zeta) - before)
            weights = np.exp(drift - drift.max())
            model = (weights / weights.sum()) @ own
            pull = (model - shown) * (1 - zeta) - settings.regulariser * shown * zeta * (1 - zeta)
            logits = np.clip(logits - adam.move(pull), -10, 10)
    return Learned(policy, multiplier * cost, evidence)


def discriminator_cost(
    world: WallWorld, walks: Walks, horizon: int, settings: NetSettings, rng: np.random.Generator, *, once: bool
) -> Learned:
    """Learn D(s), the odds that a visit is a demonstration's, and charge -log D on top of the known reward.

    Args:
        world: Its known reward and dynamics.
        walks: Demonstrations.
        horizon: Of the policy's episodes.
        settings: Sizes; a multiplier is not used.
        rng: Draws the policy's episodes.
        once: Train D on the nominal policy only (a classifier), and not against each new policy (GAIL-constraint).
    """
    mdp, logits = world.mdp, np.zeros(world.mdp.states)
    shown = visit_counts(walks, mdp.states).sum(0)
    evidence, inner, adam = shown > 0, causal_inner(world.temperature, horizon), Adam(settings.rate)
    shown = shown / shown.sum()
    policy = world.nominal
    for _ in range(1 if once else settings.outer):
        own = visit_counts(sample_walks(mdp, policy, len(walks.states), horizon, rng), mdp.states).sum(0)
        evidence = evidence | (own > 0)
        own = own / own.sum()
        for _ in range(settings.backward * (settings.outer if once else 1)):
            odds = sigmoid(logits)
            logits = np.clip(logits - adam.move(own * odds - shown * (1 - odds)), -10, 10)
        cost = -np.log(sigmoid(logits))
        policy, _ = inner(mdp.with_rewards(mdp.rewards - cost[:, None]))
    return Learned(policy, cost, evidence)


def clone(world: WallWorld, walks: Walks, smoothing: float = 0.01) -> Learned:
    """Imitate the demonstrated actions, and act at random where none was seen."""
    mdp = world.mdp
    counts = walks.counts(mdp.states, mdp.actions) * len(walks.states)
    policy = counts + smoothing
    policy = policy / policy.sum(-1, keepdims=True)
    return Learned(policy, None, counts.sum(-1) > 0)


def sampled_visits(walks: Walks, mdp: Mdp) -> tuple[Floats, Floats]:
    """Return the demonstrations' mean discounted visits of the states and their standard errors, of shape (S,) each."""
    each = visit_counts(walks, mdp.states, mdp.discount)
    error = each.std(0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.zeros(mdp.states)
    return each.mean(0), error


def shuffled(seen: Floats, error: Floats, mdp: Mdp, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the visits handed to other states at random: demonstrations that say nothing (absorbing ones stay)."""
    places = np.flatnonzero(~mdp.absorbing)
    order = np.arange(mdp.states)
    order[places] = rng.permutation(places)
    return seen[order], error[order]


LEARNERS = ("mce", "non-causal", "greedy", "icrl", "gail", "classifier", "bc", "shuffled")


def learn(arm: str, world: WallWorld, walks: Walks, settings: Any, rng: np.random.Generator) -> Learned:
    """Run a learner by its name; `settings` is the study's configuration."""
    mdp, horizon = world.mdp, settings.horizon
    if arm in ("mce", "non-causal", "shuffled"):
        seen, error = sampled_visits(walks, mdp)
        if arm == "shuffled":
            seen, error = shuffled(seen, error, mdp, rng)
        inner = (noncausal_inner if arm == "non-causal" else causal_inner)(world.temperature, horizon)
        outer = MceSettings(settings.outer, settings.rate, settings.multiplier_rate, settings.tolerance)
        return match_visits(world, seen, settings.slack * error, inner, outer)
    if arm == "greedy":
        return greedy_cells(world, walks, world.temperature, settings.least_mass, settings.penalty)
    if arm == "icrl":
        return icrl(world, walks, horizon, NetSettings(), rng)
    if arm in ("gail", "classifier"):
        return discriminator_cost(world, walks, horizon, NetSettings(), rng, once=arm == "classifier")
    if arm == "bc":
        return clone(world, walks)
    raise UserError(f"there is no learner {arm!r}; expected one of {', '.join(LEARNERS)}.")

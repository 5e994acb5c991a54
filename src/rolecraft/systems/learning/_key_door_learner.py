"""A table of action preferences that learns the key-and-door world, a whole group of rollouts at a time in numpy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.learning import SEGMENT_ROLES, first_seen, noisy_roles, potential_roles
from rolecraft.learning.credit import (
    TRIAGE_CONSTANTS,
    CreditBatch,
    NoSignalWarning,
    assign_credit,
    group_advantage,
    label_bonus,
    make_rule,
    whiten,
)
from rolecraft.measures import pearson
from rolecraft.worlds import KeyDoorTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Arm:
    """How credit is given; the defaults are TRIAGE with the rule judge."""

    judge: str = "roles"
    """`roles`, `scalar` (a number instead of a role), `value` (a baseline learnt from outcomes) or `none` (GRPO)."""
    noise: float = 0.0
    """Share of labels that are drawn at random."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Instead of TRIAGE's."""
    random: bool = False
    """Constants are drawn for each seed."""


@dataclass(frozen=True)
class Group:
    """The segments of a group of rollouts in one task, rollout by rollout; arrays of shape (S,) unless said."""

    state: Ints
    action: Ints
    after: Ints
    step: Ints
    traj: Ints
    outcome: Floats
    """Shape (rollouts,)."""
    role: Ints
    """By the rule judge."""
    score: Floats
    """By the scalar judge: by how much the distance to the goal fell."""

    def batch(self, role: Ints) -> CreditBatch:
        """Return one row per segment, with these roles as labels."""
        return CreditBatch(
            mask=np.ones((len(role), 1), dtype=bool),
            keys={"task": np.zeros_like(role), "traj": self.traj},
            row={"outcome": self.outcome[self.traj], "label": role.astype(float), "score": self.score},
        )


def softmax(logits: Floats) -> Floats:
    """Return probabilities over the last axis."""
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    result: Floats = shares / shares.sum(-1, keepdims=True)
    return result


def play_group(tables: KeyDoorTables, probs: Floats, size: int, horizon: int, rng: np.random.Generator) -> Group:
    """Play a group of rollouts from the start, and judge their segments by the distance to the goal.

    What is new is a bump: walking into a wall from a cell for the first time tells where it is, while every other
    action changes the distance or is such a bump again.
    """
    walks = tables.roll_out(probs, np.full(size, tables.start), horizon, rng)
    traj, step = np.nonzero(np.arange(horizon) < walks.lengths[:, None])
    state, action, after = walks.states[traj, step], walks.actions[traj, step], walks.states[traj, step + 1]
    old, now = tables.distance[state], tables.distance[after]
    new = first_seen(state * len(tables.actions) + action, traj) & (state == after)
    role = potential_roles(old, now, new)
    score = np.clip(old - now, -1, 1).astype(float)
    return Group(state, action, after, step, traj, walks.success.astype(float), role, score)


def policy_gradient(group: Group, advantages: Floats, probs: Floats) -> Floats:
    """Return the gradient of the mean over segments of advantage times log-probability, of shape (states, actions).

    With one step per group the policy is the one that acted: the clipped surrogate has this gradient too.
    """
    place = group.state * probs.shape[1] + group.action
    pulls = np.bincount(place, advantages, minlength=probs.size).reshape(probs.shape)
    visited = np.bincount(group.state, advantages, minlength=len(probs))
    result: Floats = (pulls - visited[:, None] * probs) / max(len(advantages), 1)
    return result


@dataclass
class Values:
    """A baseline by state, learnt from outcomes: the outcome-supervised value head of a policy that is a table."""

    table: Floats
    rate: float = 0.1

    def advantages(self, group: Group) -> Floats:
        """Return outcome less value, whitened over all segments; then learn from the outcomes."""
        outcome = group.outcome[group.traj]
        error = outcome - self.table[group.state]
        visits = np.bincount(group.state, minlength=len(self.table))
        sums = np.bincount(group.state, error, minlength=len(self.table))
        self.table = self.table + self.rate * sums / np.maximum(visits, 1)
        return whiten(error)


@dataclass
class Curve:
    """What training gave; lists by update."""

    success: list[float] = field(default_factory=list)
    """Exact chance of success of the policy before each update, and after the last."""
    turns: list[float] = field(default_factory=list)
    """Exact mean actions of a successful rollout."""
    gap: float = 0.0
    """Largest difference between the advantages and whitened GRPO's."""
    moments: list[tuple[float, float, float, float]] = field(default_factory=list)
    """For each group with both outcomes: segments, Cov(c, delta), Var(c), and how much closer the advantages are to
    the true ones than the outcome's, as a difference of correlations."""
    flips: list[float] = field(default_factory=list)
    """Share of segments whose advantage has another sign than their outcome's."""
    silent: int = 0
    """Updates without a signal: every advantage was 0."""
    logits: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def covariance(self) -> float | None:
        """Cov(c, delta) over all groups with both outcomes; None without one."""
        return self._pooled(1)

    @property
    def variance(self) -> float | None:
        """Var(c), likewise."""
        return self._pooled(2)

    @property
    def closer(self) -> float | None:
        """Correlation of the advantages with the true ones less that of the outcome's, likewise."""
        return self._pooled(3)

    def _pooled(self, place: int) -> float | None:
        total = sum(each[0] for each in self.moments)
        return sum(each[0] * each[place] for each in self.moments) / total if total else None


def train(
    tables: KeyDoorTables,
    arm: Arm,
    seed: int,
    *,
    updates: int,
    size: int,
    horizon: int,
    lam: float,
    rate: float,
    logits: Floats | None = None,
) -> Curve:
    """Train a policy; all arms of a seed see the same random numbers in their rollouts.

    Args:
        tables: Of the task.
        arm: How credit is given.
        seed: Of the rollouts and the labels' noise.
        updates: Groups of rollouts, with one gradient step each.
        size: Rollouts per group.
        horizon: Most actions.
        lam: Weight of the roles.
        rate: Step size.
        logits: Where to start; None: uniform.
    """
    play, noise = (np.random.default_rng(derive_seed("triage", seed, what)) for what in ("play", "noise"))
    table = np.zeros(tables.next_state.shape) if logits is None else logits.copy()
    credit = make_credit(arm, lam, seed, len(table))
    curve = Curve()
    for _ in range(updates):
        probs = softmax(table)
        values = tables.success(probs, horizon)
        _watch(curve, values[:, tables.start])
        group = play_group(tables, probs, size, horizon, play)
        roles = noisy_roles(group.role, arm.noise, noise) if arm.noise else group.role
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)  # counted instead
            advantages, correction = credit(group, roles)
        curve.silent += not advantages.any()
        _compare(curve, group, advantages, correction, values, horizon)
        table += rate * policy_gradient(group, advantages, probs)
    _watch(curve, tables.success(softmax(table), horizon)[:, tables.start])
    curve.logits = table
    return curve


Credit = Callable[[Group, Ints], tuple[Floats, Floats]]


def make_credit(arm: Arm, lam: float, seed: int, states: int) -> Credit:
    """Return what gives a group, with the roles of its segments, advantages and the judge's corrections c."""
    if arm.judge == "value":
        values = Values(np.zeros(states))
        return lambda group, roles: (values.advantages(group), np.zeros(len(roles)))
    if arm.judge == "none":
        return lambda group, roles: (_outcome_advantage(group)[0][group.traj], np.zeros(len(roles)))
    constants = {**TRIAGE_CONSTANTS, **arm.constants}
    if arm.random:
        draws = np.random.default_rng(derive_seed("triage", seed, "constants")).uniform(-1, 1, len(SEGMENT_ROLES))
        constants = dict(zip(SEGMENT_ROLES, draws.tolist(), strict=True))
    score = "score" if arm.judge == "scalar" else None
    allowed = arm.random or bool(arm.constants)
    options = {"lam": lam, "constants": constants, "score": score, "allow_any_constants": allowed}
    stages = make_rule({"name": "triage", **options})

    def give(group: Group, roles: Ints) -> tuple[Floats, Floats]:
        result = assign_credit(group.batch(roles), stages)
        correction = group.score if score else label_bonus(roles, list(constants.values()))
        return result.advantages[:, 0], correction

    return give


def _outcome_advantage(group: Group) -> tuple[Floats, float]:
    """Return GRPO's advantage of each rollout and the deviation it was divided by."""
    advantage, stats = group_advantage(group.outcome, np.zeros(len(group.outcome), dtype=np.int64))
    return advantage, float(stats.std[0])


def _watch(curve: Curve, by_step: Floats) -> None:
    """Enter the chance of success and the mean actions of a success, given the chances within 0, 1, ... actions."""
    chance = float(by_step[-1])
    curve.success.append(chance)
    curve.turns.append(float(np.arange(1, len(by_step)) @ np.diff(by_step) / chance))


def _compare(curve: Curve, group: Group, advantages: Floats, correction: Floats, values: Floats, horizon: int) -> None:
    """Enter what the judge's corrections have to do with the exact error of the outcome advantage.

    A true advantage is the exact change of the chance of success, on the scale of the outcome advantage. Where all
    outcomes of a group agree that scale is 0 and there is nothing to compare.
    """
    outcome, std = _outcome_advantage(group)
    base = outcome[group.traj]
    curve.gap = max(curve.gap, float(np.abs(advantages - whiten(base)).max()))
    curve.flips.append(float((np.sign(advantages) != np.sign(base)).mean()))
    if not std:
        return
    left = horizon - group.step
    true = (values[left - 1, group.after] - values[left, group.state]) / std
    delta = true - base
    centred = correction - correction.mean()
    closer = pearson(advantages, true).r - pearson(base, true).r
    curve.moments.append((len(delta), float((centred * delta).mean()), float((centred**2).mean()), closer))


def soften(tables: KeyDoorTables, target: float, horizon: int, seed: int, *, habits: float = 1.5) -> Floats:
    """Return the logits of a policy that succeeds at a given rate: the way to the goal, mixed with habits.

    Habits are random preferences of each state. Some lead in circles; how strongly the way to the goal weighs against
    them is searched for so that the exact chance of success is the target.
    """
    rng = np.random.default_rng(derive_seed("triage", seed, "habits"))
    habit = habits * rng.standard_normal(tables.next_state.shape)
    gain = tables.distance[:, None] - tables.distance[tables.next_state]
    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = tables.success(softmax(habit + middle * gain), horizon)[-1, tables.start]
        low, high = (middle, high) if chance < target else (low, middle)
    return habit + high * gain


def equal_success(a: Sequence[float], b: Sequence[float]) -> tuple[int, int]:
    """Return when two curves of success first reach the highest level that both reach."""
    level = min(max(a), max(b))
    return int(np.argmax(np.asarray(a) >= level)), int(np.argmax(np.asarray(b) >= level))

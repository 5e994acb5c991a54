"""Sampling of teamwork for training: a tree of candidates with one branch that goes on, or whole trajectories.

The tree is that of AT-GRPO (arXiv 2510.11062): at every environment, turn and agent, K candidates answer the same
prompt from the same state and are valued at once; the best is carried out, and the state it leaves is what the next
agent sees. So every group of candidates shares one prompt, which is what makes their rewards comparable.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import RolecraftError, UserError
from rolecraft.learning.workflows._sampled import SampledRow, SampledRows
from rolecraft.learning.workflows._workflow import Effect, Routes, Workflow

S = TypeVar("S")


class GroupOfOneWarning(UserWarning):
    """One candidate per prompt: nothing to compare it with, which leaves plain REINFORCE."""


@dataclass
class _Branch(Generic[S]):
    """A state that goes on."""

    task: int
    traj: int
    state: S
    done: bool = False


def sample_tree(
    workflow: Workflow[S],
    routes: Routes,
    tasks: Sequence[int],
    *,
    candidates: int = 8,
    alpha: float = 1.0,
    greedy: bool = True,
    seed: int = 0,
) -> SampledRows:
    """Sample K candidates for every task, turn and agent, and go on with one of them.

    All tasks advance together, so that each policy is asked once per turn and agent.

    Args:
        workflow: What is played.
        routes: Who plays.
        tasks: What `Workflow.start` takes, one environment each.
        candidates: K. Paper: 4 to 8.
        alpha: Weight of the team's reward; a candidate is worth alpha * team + local.
        greedy: Go on with the candidate of highest worth, the first of equals; or with one drawn at random.
        seed: Of all draws.

    Returns:
        One row per candidate.

    Warns:
        GroupOfOneWarning: If there is one candidate.

    Raises:
        UserError: If a role has no policy, alpha is negative or a reward not finite, or a state cannot be copied or
            hides chance.
    """
    if candidates == 1:
        warnings.warn(
            "candidates=1: groups of one have no baseline; use 2 or more, or singleton='raw' for plain REINFORCE.",
            GroupOfOneWarning,
            stacklevel=2,
        )
    branches = [_Branch(place, place, workflow.start(task)) for place, task in enumerate(tasks)]
    return _grow(workflow, routes, branches, candidates, alpha, greedy, seed)


def sample_trajectories(
    workflow: Workflow[S],
    routes: Routes,
    tasks: Sequence[int],
    *,
    trajectories: int = 8,
    alpha: float = 1.0,
    seed: int = 0,
) -> SampledRows:
    """Sample whole trajectories of every task, each going on with its only answer: GRPO without a tree.

    See `sample_tree` for the arguments; the rows of a task's trajectories have prompts of their own from the second
    agent on.
    """
    branches = [
        _Branch(place, place * trajectories + number, workflow.start(task))
        for place, task in enumerate(tasks)
        for number in range(trajectories)
    ]
    return _grow(workflow, routes, branches, 1, alpha, True, seed)


def _grow(
    workflow: Workflow[S],
    routes: Routes,
    branches: list[_Branch[S]],
    candidates: int,
    alpha: float,
    greedy: bool,
    seed: int,
) -> SampledRows:
    routes.check(workflow.agents)
    if candidates < 1 or not (math.isfinite(alpha) and alpha >= 0):
        raise UserError(f"candidates must be at least 1 and alpha 0 or more, got {candidates} and {alpha}.")
    for branch in branches:
        _check_copy(workflow, branch.state)
    rows: list[SampledRow] = []
    grower = _Grower(workflow, routes, candidates, alpha, greedy, seed, rows)
    for turn in range(workflow.max_turns):
        if workflow.order == "parallel":
            grower.together(branches, turn)
        else:
            for role in workflow.agents:
                for place, effects in grower.step(branches, turn, (role,)).items():
                    branches[place].state, branches[place].done = effects[role].state, effects[role].done
    return SampledRows(tuple(rows), tuple(workflow.agents))


@dataclass
class _Grower(Generic[S]):
    workflow: Workflow[S]
    routes: Routes
    candidates: int
    alpha: float
    greedy: bool
    seed: int
    rows: list[SampledRow]
    checked: set[tuple[int, str]] = field(default_factory=set)

    def step(self, branches: list[_Branch[S]], turn: int, roles: Sequence[str]) -> dict[int, dict[str, Effect[S]]]:
        """Draw and value the candidates of some roles at every live branch; return the effects of the chosen."""
        asked = [
            (place, role, self.workflow.prompt(role, branch.state))
            for place, branch in enumerate(branches) if not branch.done for role in roles
        ]  # fmt: skip
        each = [item for item in asked for _ in range(self.candidates)]
        seeds = [
            derive_seed(self.seed, branches[place].task, branches[place].traj, turn, role, number)
            for place, role, _ in asked for number in range(self.candidates)
        ]  # fmt: skip
        answers = self.routes.sample([prompt for *_, prompt in each], [role for _, role, _ in each], seeds)
        chosen: dict[int, dict[str, Effect[S]]] = {}
        for number, (place, role, prompt) in enumerate(asked):
            span = slice(number * self.candidates, (number + 1) * self.candidates)
            drawn = list(zip(answers.texts[span], answers.tokens[span], answers.logp[span], strict=True))
            chosen.setdefault(place, {})[role] = self._group(branches[place], turn, role, prompt, drawn)
        return chosen

    def together(self, branches: list[_Branch[S]], turn: int) -> None:
        """Let all roles answer the same state, then carry out what was chosen for each, in order."""
        first = len(self.rows)
        self.step(branches, turn, self.workflow.agents)
        texts = {(row.traj, row.role): row.text for row in self.rows[first:] if row.chosen}
        for branch in branches:
            for role in self.workflow.agents:
                if not branch.done:
                    effect = self.workflow.apply(copy.deepcopy(branch.state), role, texts[branch.traj, role])
                    branch.state, branch.done = effect.state, effect.done

    def _group(
        self,
        branch: _Branch[S],
        turn: int,
        role: str,
        prompt: str,
        drawn: Sequence[tuple[str, Sequence[int], Sequence[float]]],
    ) -> Effect[S]:
        effects = [self.workflow.apply(copy.deepcopy(branch.state), role, text) for text, _, _ in drawn]
        if turn == 0 and (branch.task, role) not in self.checked:
            self.checked.add((branch.task, role))
            self._check_chance(branch, role, drawn[0][0], effects[0])
        worth = np.array([self.alpha * effect.team + effect.local for effect in effects])
        if not np.isfinite(worth).all():
            bad = int(np.flatnonzero(~np.isfinite(worth))[0])
            raise UserError(
                f"task {branch.task}, turn {turn}, {role}, candidate {bad}: its reward is team {effects[bad].team}, "
                f"local {effects[bad].local}; expected finite numbers."
            )
        best = int(worth.argmax())
        if not self.greedy:
            best = derive_seed(self.seed, branch.task, branch.traj, turn, role, "branch") % len(drawn)
        self.rows += [
            SampledRow(
                branch.task, branch.traj, turn, role, self.routes.roles[role], prompt, text, tuple(tokens),
                tuple(logp), effect.team, effect.local, float(value), effect.done, effect.success, number == best,
            )
            for number, ((text, tokens, logp), effect, value) in enumerate(zip(drawn, effects, worth, strict=True))
        ]  # fmt: skip
        return effects[best]

    def _check_chance(self, branch: _Branch[S], role: str, text: str, effect: Effect[S]) -> None:
        """Refuse a workflow that answers the same text from the same state in two ways."""
        again = self.workflow.apply(copy.deepcopy(branch.state), role, text)
        for one, other in ((effect.team, again.team), (effect.local, again.local), (effect.done, again.done)):
            if one != other and not (one != one and other != other):
                raise UserError(
                    f"task {branch.task}: the same answer of {role} from the same state led to two results, {one} and "
                    f"{other}; keep the generator in the state, so that candidates can be compared."
                )


def _check_copy(workflow: Workflow[S], state: S) -> None:
    try:
        copied = copy.deepcopy(state)
    except RolecraftError:
        raise
    except Exception as error:
        raise UserError(f"the state of the workflow cannot be copied ({error}); a tree needs copies.") from None
    for role in workflow.agents if workflow.order == "parallel" else workflow.agents[:1]:
        if workflow.prompt(role, copied) != workflow.prompt(role, state):
            raise UserError(f"a copy of the workflow's state shows {role} another prompt; make copies equal.")

"""What was sampled for training: rows of answers with rewards, as credit and the loss take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit import CreditBatch, group_advantage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampledRow:
    """One answer to one prompt."""

    task: int
    """Number of the environment, from 0."""
    traj: int
    """Number of the trajectory, or of the tree."""
    turn: int
    role: str
    policy: str
    prompt: str
    text: str
    tokens: tuple[int, ...]
    logp: tuple[float, ...]
    """Of each token, by the policy that drew it."""
    team: float
    local: float
    reward: float
    """alpha * team + local."""
    done: bool
    success: bool
    chosen: bool
    """Whether the workflow went on with it."""


@dataclass(frozen=True)
class SampledRows:
    """All rows of a sample."""

    rows: tuple[SampledRow, ...]
    agents: tuple[str, ...]
    """Roles, whose place is the key `agent`."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[SampledRow]:
        return iter(self.rows)

    def where(self, keep: Callable[[SampledRow], bool]) -> SampledRows:
        """Return the rows that a function keeps."""
        return SampledRows(tuple(row for row in self.rows if keep(row)), self.agents)

    def of(self, policy: str) -> SampledRows:
        """Return the rows that train one policy."""
        return self.where(lambda row: row.policy == policy)

    def last_turns(self) -> SampledRows:
        """Return the rows of each trajectory's last turn."""
        last: dict[int, int] = {}
        for row in self.rows:
            last[row.traj] = max(row.turn, last.get(row.traj, 0))
        return self.where(lambda row: row.turn == last[row.traj])

    @cached_property
    def prompts(self) -> Ints:
        """Shape (N,): a number for each pair of role and prompt, from 0."""
        known: dict[tuple[str, str], int] = {}
        return np.array([known.setdefault((row.role, row.prompt), len(known)) for row in self.rows], dtype=np.int64)

    @property
    def returns(self) -> Floats:
        """Shape (N,): the team's rewards of the row's whole trajectory, added up over what was carried out."""
        paid: dict[int, float] = {}
        for row in self.rows:
            if row.chosen:
                paid[row.traj] = paid.get(row.traj, 0.0) + row.team
        return np.array([paid[row.traj] for row in self.rows])

    def tokens(self) -> tuple[Ints, Floats, NDArray[np.bool_]]:
        """Return tokens, their log-probabilities and the mask of what is there, each of shape (N, longest)."""
        shape = (len(self.rows), max((len(row.tokens) for row in self.rows), default=0))
        tokens, logp, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape, dtype=bool)
        for number, row in enumerate(self.rows):
            if len(row.logp) != len(row.tokens):
                raise UserError(f"row {number}: {len(row.tokens)} tokens with {len(row.logp)} log-probabilities.")
            tokens[number, : len(row.tokens)] = row.tokens
            logp[number, : len(row.tokens)] = row.logp
            mask[number, : len(row.tokens)] = True
        return tokens, logp, mask

    def batch(self, outcome: Floats | None = None) -> CreditBatch:
        """Return the rows as credit takes them.

        Keys are `task`, `traj`, `agent`, `turn`, `step`, `policy` and `prompt`; row columns are `outcome`,
        `team_reward` and `reward` (the role's own).

        Args:
            outcome: Shape (N,); None takes each row's alpha * team + local. `returns` gives trajectory GRPO.
        """
        rows = self.rows
        agent = np.array([self.agents.index(row.role) for row in rows], dtype=np.int64)
        turn = np.array([row.turn for row in rows], dtype=np.int64)
        names = sorted({row.policy for row in rows})
        _, logp, mask = self.tokens()
        return CreditBatch(
            mask=mask,
            keys={
                "task": np.array([row.task for row in rows], dtype=np.int64),
                "traj": np.array([row.traj for row in rows], dtype=np.int64),
                "agent": agent,
                "turn": turn,
                "step": turn * len(self.agents) + agent,
                "policy": np.array([names.index(row.policy) for row in rows], dtype=np.int64),
                "prompt": self.prompts,
            },
            row={
                "outcome": np.array([row.reward for row in rows]) if outcome is None else outcome,
                "team_reward": np.array([row.team for row in rows]),
                "reward": np.array([row.local for row in rows]),
            },
            token={"logp_old": logp},
        )

    def summary(self) -> list[dict[str, Any]]:
        """Return figures per agent and turn: rows, groups, dead groups, share of successes, mean reward and deviation.

        A group is of one task, trajectory, agent and turn; it is dead if all its rewards are equal.
        """
        found = []
        for place in dict.fromkeys((row.turn, row.role) for row in self.rows):
            part = self.where(lambda row, place=place: (row.turn, row.role) == place).rows  # type: ignore[misc]
            rewards = np.array([row.reward for row in part])
            _, stats = group_advantage(rewards, np.array([(row.task, row.traj) for row in part]))
            figures = {"success": np.mean([row.success for row in part]), "reward": rewards.mean(), **stats.summary()}
            found.append({"turn": place[0], "role": place[1], "rows": len(part), **figures})
        return found


def prompt_bias(advantages: Floats, prompts: Ints) -> float:
    """Return how far the mean advantage of a prompt's answers is from 0, as the mean over prompts of its size.

    Rightly keyed groups give 0: whatever the prompt is worth is subtracted. Otherwise all answers to an easy prompt are
    reinforced, and all to a hard one are discouraged, whatever they say.

    Args:
        advantages: Shape (N,).
        prompts: Shape (N,), whole numbers.
    """
    _, index = np.unique(prompts, return_inverse=True)
    if not len(index):
        return 0.0
    means = np.bincount(index, advantages) / np.bincount(index)
    return float(np.abs(means).mean())

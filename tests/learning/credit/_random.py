"""Small random batches with every column that a rule may want, for the tests of all rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rolecraft.learning.credit import CreditBatch


def random_batch(seed: int, *, trajectories: int = 6, agents: int = 2, turns: int = 3, width: int = 4) -> CreditBatch:
    """Make trajectories of agents that take turns; some tokens are not trained."""
    rng = np.random.default_rng(seed)
    n = trajectories * agents * turns
    row = np.arange(n)
    traj, agent, turn = row // (agents * turns), row // turns % agents, row % turns
    mask = rng.random((n, width)) < 0.7
    mask[:, 0] = True
    joint = traj * turns + turn
    return CreditBatch(
        mask=mask,
        keys={
            "task": traj // 3,
            "traj": traj,
            "agent": agent,
            "role": agent,
            "turn": turn,
            "step": turn,
            "game": traj % 2,
            "anchor": 10 * (traj // 3) + turn,
            "policy": agent,
        },
        row={
            "outcome": np.round(rng.normal(size=(trajectories, agents)), 1)[traj, agent],
            "reward": rng.normal(size=n),
            "team_reward": rng.normal(size=trajectories * turns)[joint],
            "score": rng.random(n),
            "factor": rng.random(n),
            "duration": 1 + rng.random(n),
            "label": rng.integers(4, size=n).astype(float),
            "q": rng.normal(size=n),
            "q_next": rng.normal(size=n),
            "value_next": rng.normal(size=n),
        },
        token={
            "value": rng.normal(size=(n, width)),
            "logp_old": -rng.random((n, width)),
            "logp_ref": -rng.random((n, width)),
            "logp_teacher": -rng.random((n, width)),
        },
        objectives={name: rng.random(n) for name in ("style", "facts", "tone")},
    )


def take_rows(batch: CreditBatch, rows: Any) -> CreditBatch:
    """Return some rows of a batch, in this order."""
    return CreditBatch(
        mask=batch.mask[rows],
        keys={name: column[rows] for name, column in batch.keys.items()},
        row={name: column[rows] for name, column in batch.row.items()},
        token={name: column[rows] for name, column in batch.token.items()},
        objectives={name: column[rows] for name, column in batch.objectives.items()},
        valid=batch.known[rows],
    )


def with_rows(batch: CreditBatch, **columns: Any) -> CreditBatch:
    """Return a copy with other row columns."""
    return replace(batch, row={**batch.row, **columns})

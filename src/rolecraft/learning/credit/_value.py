"""Value decomposition: a team's one reward, shared out over the agents of a joint step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import (
    Carry,
    CreditBatch,
    Floats,
    Ints,
    add_advantage,
    group_firsts,
    number_groups,
)
from rolecraft.learning.credit._returns import check_share

Mixer = Callable[[Floats, Ints, int], Floats]
"""From the agents' values (M,), the number of each one's joint step (M,) and how many there are, to the team's (J,)."""


def sum_mixer(values: Floats, joint: Ints, count: int) -> Floats:
    """Add up the agents' values (VDN, arXiv 1706.05296)."""
    total: Floats = np.bincount(joint, values, minlength=count).astype(np.float64)
    return total


def vdn_delta(
    team_reward: NDArray[Any],
    q: NDArray[Any],
    q_next: NDArray[Any],
    joint: NDArray[Any],
    gamma: float = 0.99,
    mixer: Mixer = sum_mixer,
) -> Floats:
    """Return each joint step's temporal difference, given to all its rows: r + gamma * mix(q_next) - mix(q).

    Args:
        team_reward: Shape (N,), the same on all rows of a joint step.
        q: Shape (N,): each agent's value of the action it took.
        q_next: Shape (N,): its best value in the next step, 0 after the last.
        joint: Whole numbers of shape (N,): which rows are one joint step.
        gamma: Discount.
        mixer: From agents' values to the team's: a sum in VDN, a monotone network in QMIX.

    Raises:
        UserError: If rows of a joint step differ in their team reward; both are named.
    """
    check_share("vdn", "gamma", gamma)
    reward, now, then = (np.asarray(each, dtype=np.float64) for each in (team_reward, q, q_next))
    index, count = number_groups([np.asarray(joint)], len(reward))
    first = group_firsts(index, count)
    unequal = np.flatnonzero(reward != reward[first[index]])
    if len(unequal):
        row = int(unequal[0])
        other = int(first[index[row]])
        raise UserError(
            f"vdn: rows {other} and {row} are one joint step but have the team rewards {reward[other]} and "
            f"{reward[row]}. If these are the agents' own rewards, add them up first: stage pool over (traj, step)."
        )
    delta = reward[first] + gamma * mixer(then, index, count) - mixer(now, index, count)
    return delta[index]


@dataclass(frozen=True)
class Vdn:
    """Give every agent of a joint step the team's temporal difference, and its value plus that as target."""

    gamma: float = 0.99
    keys: Sequence[str] = ("traj", "step")
    """Rows that agree in these are one joint step."""
    team: str | None = "team_reward"
    """Row column; None takes the reward that earlier stages made."""
    q: str = "q"
    q_next: str = "q_next"
    mixer: Mixer = sum_mixer

    def __post_init__(self) -> None:
        check_share("vdn", "gamma", self.gamma)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the difference to the advantage and set the targets; a joint step with an unknown reward is left out."""
        n, width = batch.shape
        index, count = batch.group_index(self.keys, "vdn")
        reward = carry.reward if self.team is None else batch.column(self.team, "vdn")
        q, q_next = batch.column(self.q, "vdn"), batch.column(self.q_next, "vdn")
        keep, delta = carry.keep, np.zeros(n)
        if batch.known.all():
            delta = vdn_delta(reward, q, q_next, index, self.gamma, self.mixer)
        else:
            whole = (np.bincount(index, ~batch.known, minlength=count) == 0)[index]
            delta[whole] = vdn_delta(reward[whole], q[whole], q_next[whole], index[whole], self.gamma, self.mixer)
            keep = keep & whole
        targets = np.where(batch.mask, np.broadcast_to((q + delta)[:, None], (n, width)), 0.0)
        figures = {"vdn/joint_steps": count, "vdn/delta_square": float(np.square(delta).mean()) if n else 0.0}
        return replace(add_advantage(carry, delta), keep=keep, targets=targets).note(**figures)

"""What a row is rewarded with: team and own reward mixed, scaled by a score, or pooled over those who share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Carry, CreditBatch, Floats, group_means, number_groups

How = Literal["sum", "mean", "max", "or", "versus"]
Missing = Literal["drop", "skip"]
When = Literal["positive", "always", "error"]


def mix_rewards(team: NDArray[Any], local: NDArray[Any], alpha: float = 1.0) -> Floats:
    """Return alpha * team + local, of shape (N,) (AT-GRPO, arXiv 2510.11062).

    Raises:
        UserError: If alpha is below 0 or not finite.
    """
    if not 0 <= alpha < float("inf"):
        raise UserError(f"mix: alpha is 0 or more, got {alpha!r}.")
    return alpha * np.asarray(team, dtype=np.float64) + np.asarray(local, dtype=np.float64)


@dataclass(frozen=True)
class Mix:
    """Set the reward to alpha * team + local."""

    alpha: float = 1.0
    team: str | None = "team_reward"
    """Row column; None leaves the term out."""
    local: str | None = "reward"
    """Row column; None leaves the term out."""

    def __post_init__(self) -> None:
        mix_rewards(np.zeros(0), np.zeros(0), self.alpha)
        if self.team is None and self.local is None:
            raise UserError("mix: name a row column for team, local or both.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Replace the reward."""
        none = np.zeros(batch.shape[0])
        team = none if self.team is None else batch.column(self.team, "mix")
        local = none if self.local is None else batch.column(self.local, "mix")
        return replace(carry, reward=mix_rewards(team, local, self.alpha))


@dataclass(frozen=True)
class ScaleReward:
    """Multiply the reward by 1 + k * factor: a process score that raises what success is worth (Role-Agent)."""

    k: float = 1.0
    factor: str = "factor"
    """Row column, 0 or more."""
    when: When = "error"
    """A reward below 0 would be made worse by a good score: `error` refuses it, `positive` leaves it as it is, and
    `always` multiplies it too."""

    def __post_init__(self) -> None:
        if self.when not in get_args(When):
            raise UserError(
                f"scale: when is {_choices(When)}, got {self.when!r}.{did_you_mean(self.when, get_args(When))}"
            )

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Multiply the reward.

        Raises:
            UserError: If a reward is below 0 and `when` is `error`; the row is named.
        """
        below = carry.keep & (carry.reward < 0)
        if self.when == "error" and below.any():
            row = int(np.flatnonzero(below)[0])
            raise UserError(
                f"scale: the reward of row {row} is {carry.reward[row]}; times 1 + {self.k} * {self.factor} it would "
                "punish a high score. Shift the rewards, or set when: positive."
            )
        factor = 1 + self.k * batch.column(self.factor, "scale")
        if self.when == "positive":
            factor = np.where(carry.reward > 0, factor, 1.0)
        return replace(carry, reward=carry.reward * factor)


def pool_rewards(
    rewards: NDArray[Any],
    groups: NDArray[Any],
    how: How = "sum",
    *,
    per: NDArray[Any] | None = None,
    threshold: float = 0.5,
) -> Floats:
    """Give every row what its group has together.

    Args:
        rewards: Shape (N,).
        groups: Whole numbers of shape (N,): who shares.
        how: `sum`, `mean` or `max` of the rewards; `or` is 1 if any is above the threshold, else 0; `versus` is the
            row's own minus the sum of the others' (the competitive ablation of CORY, arXiv 2410.06101).
        per: Whole numbers of shape (N,). Rows of a group that agree in it are one member, with their mean, so that a
            reward repeated over an agent's turns counts once. None: each row is a member.
        threshold: Of `or`.

    Returns:
        Shape (N,).
    """
    if how not in get_args(How):
        raise UserError(f"pool: how is {_choices(How)}, got {how!r}.{did_you_mean(how, get_args(How))}")
    reward = np.asarray(rewards, dtype=np.float64)
    n = len(reward)
    index, count = number_groups([np.asarray(groups)], n)
    own, member, member_group = reward, np.arange(n), index
    if per is not None:
        member, members = number_groups([index, np.asarray(per)], n)
        own, member_group = group_means(reward, member, members), np.zeros(members, dtype=np.int64)
        member_group[member] = index
    if how == "max":
        pooled = np.full(count, -np.inf)
        np.maximum.at(pooled, member_group, own)
        return pooled[index]
    if how == "or":
        return (np.bincount(member_group, own > threshold, minlength=count) > 0)[index].astype(np.float64)
    total: Floats = np.bincount(member_group, own, minlength=count).astype(np.float64)
    if how == "mean":
        total = total / np.bincount(member_group, minlength=count)
    elif how == "versus":
        return (2 * own - total[member_group])[member]
    return total[index]


@dataclass(frozen=True)
class Pool:
    """Give every row what its trajectory, or another group, has together."""

    keys: Sequence[str] = ("traj",)
    """Rows that agree in these share: one trajectory's agents in CORY, `("traj", "step")` for a step's proposals."""
    how: How = "sum"
    per: Sequence[str] = ()
    """Rows that agree in these too are one member: `("agent",)` where each of an agent's turns repeats its reward."""
    threshold: float = 0.5
    missing: Missing = "drop"
    """If a member's reward is unknown, so is the group's: `drop` leaves its rows out, `skip` pools the others."""

    def __post_init__(self) -> None:
        pool_rewards(np.zeros(0), np.zeros(0, dtype=np.int64), self.how)
        if self.missing not in get_args(Missing):
            raise UserError(f"pool: missing is {_choices(Missing)}, got {self.missing!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Replace the reward."""
        index, count = batch.group_index(self.keys, "pool")
        per = batch.group_index(self.per, "pool")[0] if self.per else None
        known = batch.known
        keep, reward = carry.keep, np.zeros(batch.shape[0])
        if known.all():
            reward = pool_rewards(carry.reward, index, self.how, per=per, threshold=self.threshold)
        elif known.any():
            part = None if per is None else per[known]
            reward[known] = pool_rewards(
                carry.reward[known], index[known], self.how, per=part, threshold=self.threshold
            )
            if self.missing == "drop":
                keep = keep & ~(np.bincount(index, ~known, minlength=count) > 0)[index]
        return replace(carry, reward=reward, keep=keep)


def _choices(options: Any) -> str:
    return ", ".join(repr(each) for each in get_args(options))

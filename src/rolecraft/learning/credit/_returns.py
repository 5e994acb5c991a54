"""Rewards that reach back in time: the return of a chain of turns, and discounting from the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import Carry, CreditBatch, Floats, multiply_advantage
from rolecraft.learning.credit._scan import Chains, chain_rows, scan_back


def return_to_go(rewards: NDArray[Any], chains: Chains, gamma: float = 1.0) -> Floats:
    """Return what each row's chain still earns: G_k = r_k + gamma * G_{k+1}, of shape (N,).

    Args:
        rewards: Shape (N,).
        chains: Which rows follow each other.
        gamma: Discount per row of the chain.
    """
    check_share("return to go", "gamma", gamma)
    ordered = np.asarray(rewards, dtype=np.float64)[chains.order]
    return chains.back(scan_back(ordered, chains.decay(gamma)))


def turns_to_end(chains: Chains) -> Floats:
    """Return how many rows of its chain follow each row, of shape (N,)."""
    n = len(chains.order)
    place = np.arange(n)
    ends = np.flatnonzero(chains.last)
    lengths = np.diff(ends, prepend=-1)
    return chains.back((np.repeat(ends, lengths) - place).astype(np.float64))


@dataclass(frozen=True)
class ReturnToGo:
    """Replace the reward by the discounted sum of what the row's agent earns from there on.

    The chain is keyed by trajectory and agent: another agent's rewards do not flow in, and the order of the rows in
    the batch plays no part.
    """

    gamma: float = 1.0
    keys: Sequence[str] = ("traj", "agent")
    order: str = "turn"
    terminal: bool = False
    """The reward is paid once, at the end of the chain, as an outcome that every row repeats; False: each row's own."""

    def __post_init__(self) -> None:
        check_share("return_to_go", "gamma", self.gamma)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Replace the reward; rows whose return holds an unknown reward are left out."""
        chains = chain_rows(batch, self.keys, self.order, "return_to_go")
        paid = chains.paid(self.terminal)
        keep = carry.keep & ~chains.unknown(paid & ~batch.known)
        reward = return_to_go(np.where(paid, carry.reward, 0.0), chains, self.gamma)
        return replace(carry, reward=reward, keep=keep)


@dataclass(frozen=True)
class Discount:
    """Multiply the advantage by gamma to the power of the agent's turns that follow (SPIRAL, arXiv 2506.24119)."""

    gamma: float = 1.0
    """1 changes nothing, and needs no key."""
    steps: str | None = None
    """Row column that holds the turns to the end; None counts the rows that follow in the chain."""
    keys: Sequence[str] = ("traj", "agent")
    order: str = "turn"

    def __post_init__(self) -> None:
        check_share("discount", "gamma", self.gamma)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Multiply the advantage.

        Raises:
            UserError: If a number of turns is below 0; the row is named.
        """
        if self.gamma == 1:
            return carry
        if self.steps is None:
            steps = turns_to_end(chain_rows(batch, self.keys, self.order, "discount"))
        else:
            steps = batch.column(self.steps, "discount")
            if (steps < 0).any():
                row = int(np.flatnonzero(steps < 0)[0])
                raise UserError(f"discount: row {row} has {steps[row]} turns to the end; expected 0 or more.")
        return multiply_advantage(carry, self.gamma**steps)


def check_share(stage: str, name: str, value: float) -> None:
    """Raise unless a number lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise UserError(f"{stage}: {name} lies in [0, 1], got {value!r}.")

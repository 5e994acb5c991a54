"""Scores of one seat in a game of hidden sides: deduction, deception, influence, leadership (arXiv 2310.05036)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rolecraft.errors import UserError


def side_accuracy(beliefs: Sequence[float], good: Sequence[bool]) -> float:
    """Return the share of players whose side a seat has right: deduction accuracy.

    Args:
        beliefs: Probability of each player being good, the seat itself included; 1/2 and more counts as good.
        good: The true sides.

    Raises:
        UserError: If lengths differ, there are no players, or a belief is no probability.
    """
    _check(beliefs, good)
    return sum((belief >= 0.5) == side for belief, side in zip(beliefs, good, strict=True)) / len(good)


def side_cross_entropy(beliefs: Sequence[float], good: Sequence[bool], floor: float = 1e-4) -> float:
    """Return the cross-entropy of a seat's beliefs, summed over the players, in nats.

    Args:
        beliefs: Probability of each player being good, 1/2 where unknown.
        good: The true sides.
        floor: Beliefs are kept this far away from 0 and 1.

    Raises:
        UserError: If lengths differ, there are no players, or a belief is no probability.
    """
    _check(beliefs, good)
    kept = (min(max(belief, floor), 1 - floor) for belief in beliefs)
    return -sum(math.log(belief if side else 1 - belief) for belief, side in zip(kept, good, strict=True))


def deception(beliefs: Sequence[Sequence[float]], good: Sequence[bool], seat: int) -> float:
    """Return how good the good players hold a seat to be.

    Args:
        beliefs: By seat, each player's beliefs about all.
        good: The true sides.
        seat: About whom.

    Returns:
        The mean belief of the good players but for the seat itself; NaN if there are none.

    Raises:
        UserError: If lengths differ, there are no players, or a belief is no probability.
    """
    for row in beliefs:
        _check(row, good)
    if len(beliefs) != len(good):
        raise UserError(f"expected the beliefs of {len(good)} players, got those of {len(beliefs)}.")
    held = [row[seat] for judge, row in enumerate(beliefs) if good[judge] and judge != seat]
    return sum(held) / len(held) if held else math.nan


def influence(votes: Sequence[bool], accepted: Sequence[bool]) -> float:
    """Return the share of votes that came out as a seat voted; NaN without votes.

    Args:
        votes: The seat's.
        accepted: What came of each vote.

    Raises:
        UserError: If lengths differ.
    """
    if len(votes) != len(accepted):
        raise UserError(f"expected one result per vote, got {len(accepted)} for {len(votes)}.")
    return sum(a == b for a, b in zip(votes, accepted, strict=True)) / len(votes) if votes else math.nan


def leadership(accepted: Sequence[bool]) -> float:
    """Return the share of a seat's own proposals that were accepted; NaN if it made none."""
    return sum(accepted) / len(accepted) if accepted else math.nan


def _check(beliefs: Sequence[float], good: Sequence[bool]) -> None:
    if len(beliefs) != len(good) or not good:
        raise UserError(f"expected one belief per player, got {len(beliefs)} beliefs for {len(good)} players.")
    wrong = [belief for belief in beliefs if not 0 <= belief <= 1]
    if wrong:
        raise UserError(f"beliefs are probabilities from 0 to 1, got {wrong[0]!r}.")

"""Generalised advantage estimation over tokens, over turns, and over both levels at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import Bools, Floats, Ints, count_true
from rolecraft.learning.credit._returns import check_share
from rolecraft.learning.credit._scan import scan_back

Variant = Literal["plain", "end_value"]


def gae(
    rewards: NDArray[Any],
    values: NDArray[Any],
    mask: NDArray[Any],
    gamma: float = 1.0,
    lam: float = 0.95,
    *,
    bootstrap: NDArray[Any] | None = None,
) -> tuple[Floats, Floats]:
    """Estimate token advantages of each row (arXiv 1506.02438), over its trained tokens only.

    delta_j = r_j + gamma * V_{j+1} - V_j and A_j = delta_j + gamma * lam * A_{j+1}, where j + 1 is the next trained
    token: what others wrote in between is skipped, never bootstrapped through.

    Args:
        rewards: Shape (N, T); what lies off the mask does not count.
        values: Shape (N, T).
        mask: Booleans of shape (N, T).
        gamma: Discount per token.
        lam: Share of the later differences that is passed on.
        bootstrap: Shape (N,): the value after a row that was cut off. None: 0, the row has ended.

    Returns:
        Advantages, and targets for the critic (A + V), of shape (N, T), 0 off the mask.

    Raises:
        UserError: If shapes differ or a trained token's value or reward is not finite.
    """
    check_share("gae", "gamma", gamma)
    check_share("gae", "lam", lam)
    trained = np.asarray(mask, dtype=bool)
    _check_tokens("gae", trained, rewards=rewards, values=values)
    flat = Flat.of_rows(trained, count_true(trained))
    after = None if bootstrap is None else np.asarray(bootstrap, dtype=np.float64)[flat.row[flat.ends]]
    value = flat.take(values)
    advantage = scan_tokens(flat.take(rewards), value, flat.ends, gamma, lam, after)
    return flat.spread(advantage), flat.spread(advantage + value)


def bilevel_gae(
    values: NDArray[Any],
    mask: NDArray[Any],
    turn_id: NDArray[Any],
    turn_rewards: NDArray[Any],
    kl_rewards: NDArray[Any] | None = None,
    *,
    turn_gamma: float = 1.0,
    turn_lam: float = 0.95,
    gamma: float = 1.0,
    lam: float = 1.0,
    turn_keep: NDArray[Any] | None = None,
    bootstrap: NDArray[Any] | None = None,
    variant: Variant = "plain",
) -> tuple[Floats, Floats]:
    """Estimate advantages over the turns of each row, then over the tokens inside each turn (OMAR, arXiv 2602.03109).

    Turns: V_k is the critic at the last trained token of turn k; delta_k = r_k + turn_gamma * V_{k+1} - V_k and
    A_k = delta_k + turn_gamma * turn_lam * A_{k+1}. Tokens: the last of a turn gets its KL reward plus A_k (V is not
    subtracted again: it was in A_k); earlier ones follow `gae`. In the variant `end_value` the last token's difference
    is taken too, against the value after the turn (V_{k+1}).

    Args:
        values: Shape (N, T).
        mask: Booleans of shape (N, T).
        turn_id: Whole numbers from 0 of shape (N, T); may not fall along a row's trained tokens.
        turn_rewards: Shape (N, K). The reward of a turn without trained tokens goes to the turn before it.
        kl_rewards: Shape (N, T): minus beta times each token's KL term. None: 0.
        turn_gamma: Discount per turn.
        turn_lam: Share of later turns' differences that is passed on.
        gamma: Discount per token.
        lam: Share of later tokens' differences that is passed on.
        turn_keep: Booleans of shape (N, K). A turn that is not kept, as degenerate, gives its tokens A_k = 0; the
            recursion over the turns passes through it unchanged.
        bootstrap: Shape (N,): the value after a conversation that was cut off. None: 0.
        variant: `plain` or `end_value`.

    Returns:
        Advantages, and targets for the critic (A + V), of shape (N, T), 0 off the mask.

    Raises:
        UserError: If shapes differ, a number is not finite, or turn ids fall; the row is named.
    """
    for name, share in (("turn_gamma", turn_gamma), ("turn_lam", turn_lam), ("gamma", gamma), ("lam", lam)):
        check_share("bilevel_gae", name, share)
    trained, turn = np.asarray(mask, dtype=bool), np.asarray(turn_id)
    _check_tokens("bilevel_gae", trained, values=values, kl_rewards=kl_rewards)
    reward = np.asarray(turn_rewards, dtype=np.float64)
    rows, width = len(trained), reward.shape[1] if reward.ndim == 2 else -1
    kept = np.ones(reward.shape, dtype=bool) if turn_keep is None else np.asarray(turn_keep, dtype=bool)
    if reward.ndim != 2 or len(reward) != rows or kept.shape != reward.shape or turn.shape != trained.shape:
        raise UserError(
            f"bilevel_gae: expected turn_rewards and turn_keep of shape ({rows}, turns) and turn_id of shape "
            f"{trained.shape}, got {reward.shape}, {kept.shape} and {turn.shape}."
        )
    flat = Flat.of_rows(trained, count_true(trained))
    number, token_row = turn.reshape(-1)[flat.place].astype(np.int64), flat.row
    _check_turns(number, token_row, width, reward)
    segment = token_row * width + number
    flat = flat.cut(segment)
    spoken = segment[flat.ends]
    row = spoken // max(width, 1)
    last = np.ones(len(row), dtype=bool)
    last[:-1] = row[1:] != row[:-1]
    earned = handed_back(reward.reshape(-1), np.repeat(np.arange(rows), width), spoken)
    after = np.zeros(rows) if bootstrap is None else np.asarray(bootstrap, dtype=np.float64)
    value = flat.take(values)
    own, end_value = scan_turns(earned, value[flat.ends], last, turn_gamma, turn_lam, after[row])
    own = np.where(kept.reshape(-1)[spoken], own, 0.0)
    kl = None if kl_rewards is None else flat.take(kl_rewards)
    advantage = scan_within(kl, value, flat.ends, own, end_value, gamma, lam, variant)
    return flat.spread(advantage), flat.spread(advantage + value)


@dataclass(frozen=True)
class Flat:
    """Trained tokens laid end to end, and where each stretch of them ends."""

    place: Ints
    """Shape (M,): the token's place in the flattened (N, T)."""
    ends: Ints
    """Shape (S,): the last token of each stretch, by its place among the M."""
    shape: tuple[int, int]
    whole: bool
    """Every token is trained, and the rows are in their own order."""

    @classmethod
    def of_rows(cls, mask: Bools, lengths: Ints, order: Ints | None = None) -> Flat:
        """Lay out the trained tokens row by row, in an order of the rows; a row with any is one stretch.

        Args:
            mask: Booleans of shape (N, T).
            lengths: Shape (N,): each row's trained tokens.
            order: Shape (N,): rows; None is their own order.
        """
        n, width = mask.shape
        if order is None:
            place = np.flatnonzero(mask)
        else:
            lengths = lengths[order]
            place = np.flatnonzero(mask[order])
            place += np.repeat((order - np.arange(n)) * width, lengths)
        ends = np.cumsum(lengths[lengths > 0]) - 1
        return cls(place, ends, (n, width), order is None and len(place) == n * width)

    @property
    def row(self) -> Ints:
        """Shape (M,): the row each token lies in."""
        return self.place // max(self.shape[1], 1)

    def cut(self, segment: Ints) -> Flat:
        """Return it with a stretch for each run of equal numbers."""
        last = np.ones(len(segment), dtype=bool)
        last[:-1] = segment[1:] != segment[:-1]
        return replace(self, ends=np.flatnonzero(last))

    def take(self, tokens: NDArray[Any]) -> Floats:
        """Return the trained tokens of an array (N, T)."""
        flat = np.asarray(tokens, dtype=np.float64).reshape(-1)
        return flat.copy() if self.whole else flat[self.place]

    def spread(self, values: Floats) -> Floats:
        """Return an array (N, T), 0 off the mask."""
        if self.whole:
            return values.reshape(self.shape)
        out = np.zeros(self.shape[0] * self.shape[1])
        out[self.place] = values
        return out.reshape(self.shape)


def scan_tokens(reward: Floats, value: Floats, ends: Ints, gamma: float, lam: float, after: Floats | None) -> Floats:
    """Return GAE along stretches that end at `ends`."""
    difference = _following(value, gamma)
    difference[ends] = 0.0 if after is None else gamma * after
    difference += reward
    difference -= value
    return _scan_stretches(difference, ends, gamma * lam)


def scan_turns(
    reward: Floats, value: Floats, last: Bools, gamma: float, lam: float, after: Floats
) -> tuple[Floats, Floats]:
    """Return GAE along turns, and the value after each turn."""
    following = np.where(last, after, _following(value, 1.0))
    return scan_back(reward + gamma * following - value, np.where(last, 0.0, gamma * lam)), following


def scan_within(
    kl: Floats | None,
    value: Floats,
    ends: Ints,
    own: Floats,
    end_value: Floats,
    gamma: float,
    lam: float,
    variant: Variant,
) -> Floats:
    """Return GAE inside each turn, whose last token is paid the turn's advantage."""
    difference = _following(value, gamma)
    difference -= value
    difference[ends] = own
    if variant == "end_value":
        difference[ends] += gamma * end_value - value[ends]
    if kl is not None:
        difference += kl
    return _scan_stretches(difference, ends, gamma * lam)


def _following(value: Floats, gamma: float) -> Floats:
    following = np.zeros(len(value))
    np.multiply(value[1:], gamma, out=following[:-1])
    return following


def _scan_stretches(difference: Floats, ends: Ints, decay: float) -> Floats:
    decays = np.full(len(difference), decay)
    decays[ends] = 0.0
    return scan_back(difference, decays, int(np.diff(ends, prepend=-1).max(initial=0)))


def handed_back(reward: Floats, chain: Ints, spoken: Ints) -> Floats:
    """Give the reward of turns without tokens to the turn before them in their chain that has some.

    Args:
        reward: Shape (K,), chain after chain.
        chain: Shape (K,): the number of each turn's chain.
        spoken: Shape (S,): the places of the turns that have tokens.

    Returns:
        Shape (S,); what no turn came before is dropped.
    """
    before = np.searchsorted(spoken, np.arange(len(reward)), side="right") - 1
    heard = before >= 0
    heard[heard] = chain[spoken[before[heard]]] == chain[heard]
    earned: Floats = np.bincount(before[heard], weights=reward[heard], minlength=len(spoken)).astype(np.float64)
    return earned


def _check_tokens(stage: str, mask: Bools, **columns: Any) -> None:
    if mask.ndim != 2:
        raise UserError(f"{stage}: expected a mask of shape (rows, tokens), got {mask.shape}.")
    for name, column in columns.items():
        if column is None:
            continue
        array = np.asarray(column)
        if array.shape != mask.shape:
            raise UserError(f"{stage}: expected {name} of shape {mask.shape}, got {array.shape}.")
        bad = mask & ~np.isfinite(array)
        if bad.any():
            row, token = (int(each) for each in np.argwhere(bad)[0])
            raise UserError(f"{stage}: {name} holds {array[row, token]} in row {row} at token {token}.")


def _check_turns(number: Ints, row: Ints, width: int, reward: Floats) -> None:
    falls = np.flatnonzero((row[1:] == row[:-1]) & (number[1:] < number[:-1]))
    if len(falls):
        raise UserError(f"bilevel_gae: the turn ids of row {int(row[falls[0]])} fall along its tokens.")
    if len(number) and (number.min() < 0 or number.max() >= width):
        bad = int(np.flatnonzero((number < 0) | (number >= width))[0])
        raise UserError(
            f"bilevel_gae: row {int(row[bad])} has a token of turn {int(number[bad])}; turn_rewards has turns 0 to "
            f"{width - 1}."
        )
    if not np.isfinite(reward).all():
        raise UserError(
            f"bilevel_gae: the turn reward of row {int(np.argwhere(~np.isfinite(reward))[0][0])} is not finite."
        )

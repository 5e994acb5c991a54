"""The stages that estimate advantages with a critic, over batches whose rows are turns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints, add_advantage
from rolecraft.learning.credit._gae import Flat, Variant, handed_back, scan_tokens, scan_turns, scan_within
from rolecraft.learning.credit._returns import check_share
from rolecraft.learning.credit._scan import Chains, chain_rows

Level = Literal["token", "turn"]


class DegenerateTurnsWarning(UserWarning):
    """All turns of some participant were marked as degenerate."""


@dataclass(frozen=True)
class Gae:
    """Estimate advantages with a critic; sets the targets of the critic too."""

    gamma: float = 1.0
    lam: float = 0.95
    level: Level = "token"
    """`token`: over the trained tokens. `turn`: over rows, whose value is the critic's at their last trained token;
    every token of a row then has the row's advantage."""
    keys: Sequence[str] = ()
    """Rows that agree in these are one chain, as `("traj", "agent")`. None: each row stands alone (one answer)."""
    order: str = "turn"
    terminal: bool = True
    """The reward is paid once, at the end of the chain; False: each row's own, at its last token."""
    kl: float = 0.0
    """Weight of -(logp_old - logp_ref), paid at each token."""
    value: str = "value"
    """Token column of the critic."""
    bootstrap: str | None = None
    """Row column of the value after the chain, read at its last row; None: 0, the chain has ended."""

    def __post_init__(self) -> None:
        _check_gae("gae", self.gamma, self.lam, self.kl)
        if self.level not in get_args(Level):
            raise UserError(
                f"gae: level is 'token' or 'turn', got {self.level!r}.{did_you_mean(self.level, get_args(Level))}"
            )
        if self.level == "turn" and self.kl:
            raise UserError("gae: kl is a reward of tokens; at level 'turn' set kl to 0 and use a KL loss.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the advantage by token and set the targets; chains whose reward is unknown are left out."""
        turns = self.level == "turn"
        setting = _Setting.of(batch, carry, self, "gae", laid_by_row=turns)
        flat, value = setting.flat, setting.flat.take(batch.tokens(self.value, "gae"))
        if turns:
            own, _ = scan_turns(setting.earned, value[setting.ends], setting.last, self.gamma, self.lam, setting.after)
            repeats = np.diff(flat.ends, prepend=-1)
            advantage = flat.spread(np.repeat(setting.by_row(own), repeats))
            targets = advantage + flat.spread(np.repeat(value[flat.ends], repeats))
        else:
            reward = np.zeros(len(value))
            if self.kl:
                reward = _kl_rewards(batch, flat, self.kl, "gae")
            reward[flat.ends] += setting.earned
            ends = flat.ends[setting.last]
            advantage = flat.spread(scan_tokens(reward, value, ends, self.gamma, self.lam, setting.after[setting.last]))
            targets = advantage + batch.tokens(self.value, "gae")
        return setting.finish(carry, advantage, targets, "gae")


@dataclass(frozen=True)
class BilevelGae:
    """Estimate advantages over the turns of a conversation, then over the tokens of each: OMAR's estimator.

    A row is one turn of one participant; its chain is keyed by trajectory and agent.
    """

    turn_gamma: float = 1.0
    turn_lam: float = 0.95
    gamma: float = 1.0
    lam: float = 1.0
    keys: Sequence[str] = ("traj", "agent")
    order: str = "turn"
    terminal: bool = True
    """The reward is paid once, at the participant's last turn; False: each row's own."""
    kl: float = 0.0
    """Weight of -(logp_old - logp_ref), paid at each token; 0 where the KL is a loss."""
    variant: Variant = "plain"
    value: str = "value"
    quality: str | None = None
    """Row column that is 0 where a turn is degenerate: its tokens get no credit from the turns. None: all are good."""
    max_filtered: float = 0.3
    """A larger share of degenerate turns stops the run: the policy, or the judge, has gone astray."""
    bootstrap: str | None = None
    """Row column of the value after the chain, read at its last row; None: 0, the conversation has ended."""

    def __post_init__(self) -> None:
        _check_gae("bilevel_gae", self.gamma, self.lam, self.kl)
        _check_gae("bilevel_gae", self.turn_gamma, self.turn_lam, self.kl)
        if self.variant not in get_args(Variant):
            raise UserError(f"bilevel_gae: variant is 'plain' or 'end_value', got {self.variant!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the advantage by token and set the targets.

        Raises:
            UserError: If more than `max_filtered` of the turns are degenerate.
        """
        name = "bilevel_gae"
        setting = _Setting.of(batch, carry, self, name, laid_by_row=True)
        flat, value = setting.flat, setting.flat.take(batch.tokens(self.value, name))
        own, end_value = scan_turns(
            setting.earned, value[setting.ends], setting.last, self.turn_gamma, self.turn_lam, setting.after
        )
        good = np.ones(len(own), dtype=bool)
        if self.quality is not None:
            good = batch.column(self.quality, name)[setting.spoken] != 0
            own = np.where(good, own, 0.0)
        figures = self._filtered(good, setting.last)
        kl = _kl_rewards(batch, flat, self.kl, name) if self.kl else None
        own, end_value = setting.by_row(own), setting.by_row(end_value)
        advantage = flat.spread(scan_within(kl, value, flat.ends, own, end_value, self.gamma, self.lam, self.variant))
        return setting.finish(carry, advantage, advantage + batch.tokens(self.value, name), name).note(**figures)

    def _filtered(self, good: Bools, last: Bools) -> dict[str, float]:
        """Say how many turns, and how many participants with all their turns, are degenerate."""
        share = float(1 - good.mean()) if len(good) else 0.0
        if share > self.max_filtered:
            raise UserError(
                f"bilevel_gae: {share:.0%} of the turns are marked as degenerate, more than {self.max_filtered:.0%}; "
                "look at the transcripts and at the judge before training on."
            )
        chain: Ints = np.cumsum(last) - last
        silenced = int((np.bincount(chain, good) == 0).sum()) if len(good) else 0
        if silenced:
            warnings.warn(
                "bilevel_gae: some participants have degenerate turns only; nothing they did is credited.",
                DegenerateTurnsWarning,
                stacklevel=4,
            )
        return {"bilevel_gae/filtered": share, "bilevel_gae/silenced": silenced}


@dataclass(frozen=True)
class _Setting:
    """A batch laid out for a stage: the rows with trained tokens, chain after chain."""

    flat: Flat
    """Their tokens."""
    spoken: Ints
    """Shape (S,): these rows, in the order of the chains."""
    stretch: Ints
    """Shape (S,): which stretch of `flat` each row is."""
    last: Bools
    """Shape (S,): no later row of the chain has tokens."""
    earned: Floats
    """Shape (S,): what each is paid; the reward of a row without tokens goes to the one before it in its chain."""
    after: Floats
    """Shape (S,): the value after the row's chain."""
    keep: Bools
    """Shape (N,)."""

    @classmethod
    def of(cls, batch: CreditBatch, carry: Carry, stage: Gae | BilevelGae, name: str, *, laid_by_row: bool) -> _Setting:
        n = batch.shape[0]
        alone = np.ones(n, dtype=bool)
        chains = Chains(np.arange(n), alone, alone)
        if stage.keys:
            chains = chain_rows(batch, stage.keys, stage.order, name)
        paid = chains.paid(stage.terminal)
        reward = np.where(paid, carry.reward, 0.0)[chains.order]
        keep = carry.keep & ~chains.unknown(paid & ~batch.known)
        lengths = batch.lengths
        has = (lengths > 0)[chains.order]
        at = np.flatnonzero(has)
        spoken = chains.order[at]
        if laid_by_row or not stage.keys:
            flat = Flat.of_rows(batch.mask, lengths)
            stretch = (np.cumsum(lengths > 0) - 1)[spoken]
        else:
            flat, stretch = Flat.of_rows(batch.mask, lengths, chains.order), np.arange(len(at))
        chain = np.cumsum(chains.first) - 1
        last = np.ones(len(at), dtype=bool)
        last[:-1] = chain[at[1:]] != chain[at[:-1]]
        earned = reward if len(at) == n else handed_back(reward, chain, at)
        after = np.zeros(len(at))
        if stage.bootstrap is not None:
            after = batch.column(stage.bootstrap, name)[chains.order][np.flatnonzero(chains.last)][chain[at]]
        return cls(flat, spoken, stretch, last, earned, after, keep)

    @property
    def ends(self) -> Ints:
        """Shape (S,): the last token of each row, in the order of the chains."""
        return self.flat.ends[self.stretch]

    def by_row(self, values: Floats) -> Floats:
        """Return values in the order of the stretches."""
        out = np.empty_like(values)
        out[self.stretch] = values
        return out

    def finish(self, carry: Carry, advantage: Floats, targets: Floats, stage: str) -> Carry:
        """Add the advantage to the carry, and say how well the critic did; targets minus advantage is what it said."""
        count = len(self.flat.place)
        spread = _variance(targets, count)
        explained = 1 - _variance(advantage, count) / spread if spread > 0 else 0.0
        carry = replace(add_advantage(carry, tokens=advantage), targets=targets, keep=self.keep)
        return carry.note(**{f"{stage}/explained_variance": explained})


def _kl_rewards(batch: CreditBatch, flat: Flat, weight: float, stage: str) -> Floats:
    gap = batch.tokens("logp_ref", stage) - batch.tokens("logp_old", stage)
    gap *= weight
    return flat.take(gap)


def _variance(values: Floats, count: int) -> float:
    """Return the variance of some of an array's values, the others being 0."""
    mean = float(values.sum()) / max(count, 1)
    return max(float(np.vdot(values, values)) / max(count, 1) - mean * mean, 0.0)


def _check_gae(stage: str, gamma: float, lam: float, kl: float) -> None:
    check_share(stage, "gamma", gamma)
    check_share(stage, "lam", lam)
    if not kl >= 0:
        raise UserError(f"{stage}: kl is 0 or more, got {kl!r}.")

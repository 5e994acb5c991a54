"""Stages that ask the trainer for a loss toward a teacher, and what to check before one trusts its scores.

The losses themselves, with their gradients, are in `rolecraft.learning.losses`, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import AuxLoss, Bools, Carry, CreditBatch
from rolecraft.learning.credit._teacher import refuse_log_probs
from rolecraft.learning.credit._teacher_stages import ALWAYS, Schedule, taught_tokens

if TYPE_CHECKING:
    from rolecraft.measures import Correlation

NO_TEACHER = np.inf
"""What an `AuxLoss.token` holds where a row has no teacher: the loss leaves such tokens out."""


@dataclass(frozen=True)
class TeacherLoss:
    """Ask for a loss by name, over the tokens of rows that have a teacher."""

    weight: float = 1.0
    loss: str = "is_k3"
    column: str = "logp_teacher"
    """The token column with the log-probabilities to be approached."""
    schedule: Schedule = ALWAYS

    @property
    def name(self) -> str:
        """How the stage is called in messages and figures."""
        return self.loss

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise UserError(f"{self.loss}: the weight must be finite and 0 or more, got {self.weight!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the loss; none where the schedule is silent, or no row has a teacher.

        Raises:
            UserError: If the batch lacks the column, or a number in it is no log-probability.
        """
        taught = taught_tokens(batch, carry)
        values = refuse_log_probs(self.column, batch.tokens(self.column, self.name), taught)
        factor, after = self.schedule.read(carry.state.get(self.name, {}), batch, carry)
        weight = self.weight * factor
        aux = carry.aux
        if weight and taught.any():
            aux = (*aux, AuxLoss(self.loss, weight, np.where(taught, values, NO_TEACHER)))
        missing = int((carry.keep & ~taught.any(1)).sum())
        return replace(carry, aux=aux, state={**carry.state, self.name: after}).note(
            **{f"{self.name}/weight": weight, f"{self.name}/rows_without_teacher": missing}
        )


@dataclass(frozen=True)
class IsK3(TeacherLoss):
    """Skill-SD's importance-weighted reverse KL beside the policy gradient (arXiv 2604.10674)."""

    weight: float = 0.001
    """Paper: 0.001, at the token scale of a 7B model."""


@dataclass(frozen=True)
class NaiveK3(TeacherLoss):
    """The same without importance weights: its gradient is that of the forward KL. For comparison."""

    weight: float = 0.001
    loss: str = "naive_k3"


@dataclass(frozen=True)
class Sdar(TeacherLoss):
    """SDAR: raise the sampled tokens' likelihood, most where the teacher likes them more than the student."""

    weight: float = 0.01
    """Published: 0.01."""
    loss: str = "sdar"


@dataclass(frozen=True)
class Opd(TeacherLoss):
    """On-policy distillation: the reverse KL to the teacher, sampled, without a bound.

    With `reward` False, the vanilla form, it takes the place of the policy gradient; else it is added to it.
    """

    loss: str = "opd"
    reward: bool = False
    """Keep the advantages."""

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the loss, and drop the advantages unless they are kept."""
        after = TeacherLoss.__call__(self, batch, carry)
        if self.reward:
            return after
        return replace(after, advantage=np.zeros(batch.shape[0]), token_advantage=None, signal=None)


@dataclass(frozen=True)
class Kl(TeacherLoss):
    """The KL penalty to a reference policy, in its low-variance form (k3)."""

    weight: float = 0.01
    """ADRS: 0.01."""
    loss: str = "kl"
    column: str = "logp_ref"


# Before one trusts a teacher


def check_rescoring(logp_plain: NDArray[Any], logp_old: NDArray[Any], mask: Bools, *, tolerance: float = 1e-3) -> float:
    """Spot check of a teacher's alignment: scoring the reply without the skill must give what sampling gave.

    Args:
        logp_plain: Shape (N, T): the teacher's pass over the same tokens with the student's own prompt.
        logp_old: Shape (N, T): recorded when the tokens were sampled.
        mask: Shape (N, T).
        tolerance: Largest difference; raise it to that of the engine where sampling and scoring use different kernels.

    Returns:
        The largest difference.

    Raises:
        UserError: If it is above the tolerance, naming row and token, or a number is no log-probability.
    """
    plain = refuse_log_probs("logp_plain", logp_plain, mask)
    old = refuse_log_probs("logp_old", logp_old, mask)
    gap = np.abs(np.where(mask, plain, 0.0) - np.where(mask, old, 0.0))
    if not gap.size:
        return 0.0
    row, token = (int(place) for place in np.unravel_index(int(gap.argmax()), gap.shape))
    largest = float(gap[row, token])
    if largest > tolerance:
        raise UserError(
            f"teacher: without the skill, row {row}, token {token} scores {plain[row, token]:.6g}, but it was sampled "
            f"at {old[row, token]:.6g} (tolerance {tolerance:g}). The teacher does not see the same tokens or weights: "
            "check token ids, truncation and the snapshot."
        )
    return largest


def frequency_confound(
    signal: NDArray[Any], tokens: NDArray[Any], mask: Bools, *, counts: NDArray[Any] | None = None
) -> Correlation:
    """Return the correlation of a teacher's signal with the log-frequency of its token.

    A teacher that only likes frequent tokens shows here; its signal says nothing on the task.

    Args:
        signal: Shape (N, T).
        tokens: Shape (N, T), token ids from 0.
        mask: Shape (N, T).
        counts: Shape (V,): how often each token occurs in a corpus; None counts this batch.

    Raises:
        UserError: If shapes do not fit, or an id lies outside the counts.
    """
    from rolecraft.measures import pearson

    ids = np.asarray(tokens)
    if ids.shape != mask.shape or np.shape(signal) != mask.shape or not np.issubdtype(ids.dtype, np.integer):
        raise UserError(
            f"frequency confound: expected a signal and token ids of shape {mask.shape}, got {np.shape(signal)} and "
            f"{ids.dtype} of shape {ids.shape}."
        )
    kept = ids[mask]
    known = np.bincount(kept) if counts is None and (kept >= 0).all() else np.asarray(counts)
    if known.ndim != 1 or (kept < 0).any() or (kept >= len(known)).any():
        raise UserError(f"frequency confound: token ids must lie in 0..V-1 of the counts, V = {known.size}.")
    frequency = np.maximum(known, 0.5)
    return pearson(np.asarray(signal)[mask], np.log(frequency)[kept])

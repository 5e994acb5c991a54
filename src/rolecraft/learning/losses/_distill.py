"""Losses toward a teacher or a reference on sampled tokens, by the name that a credit rule's `AuxLoss` carries.

The trainer calls `LOSSES[aux.name](logp, logp_old, token, mask, by)`. All arrays have shape (N, T); `token` holds the
other side's log-probability of the sampled tokens, +inf where a row has no teacher. Such tokens add nothing, but count
in the normaliser, so that a taught token weighs the same however many rows have a teacher.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit import AuxLoss, NoSignalWarning
from rolecraft.learning.losses._surrogate import Normaliser, kl_tokens, total

RHO_MAX = 10.0
"""Skill-SD's bound on the importance ratio."""
EXPONENT_MAX = 20.0
"""Skill-SD's bound on the exponent of k3."""
SDAR_STEEPNESS = 5.0
"""Published steepness of SDAR's gate."""
ABOVE_ZERO = 1e-4
"""How far rounding in half precision may lift a log-probability above 0."""

Stats = dict[str, float]
DistillLoss = Callable[[Tensor, Tensor, Tensor, Tensor, Normaliser], tuple[Tensor, Stats]]


def is_k3(
    logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor, by: Normaliser = "tokens"
) -> tuple[Tensor, Stats]:
    """Return Skill-SD's importance-weighted k3 (arXiv 2604.10674): rho * (exp(-l) - 1 + l), l = logp - teacher.

    rho = p / p_old, at most 10; -l at most 20. The gradient runs through both, so that its mean over samples of the old
    policy is that of KL(policy || teacher), for any old policy.

    Args:
        logp: With gradient.
        logp_old: Of the policy that sampled.
        token: The teacher's.
        mask: The trained tokens, booleans.
        by: See `rolecraft.learning.losses.total`.

    Returns:
        The loss, and `mean` k3, largest `rho`, `clamp_share` of tokens where a bound was reached.

    Raises:
        UserError: If shapes differ, or a teacher's number is no log-probability; row and token are named.
    """
    taught = _taught(logp, logp_old, token, mask)
    exponent = _over(token - logp, taught).clamp(max=EXPONENT_MAX)
    k3 = torch.expm1(exponent) - exponent
    ratio = torch.exp(_over(logp - logp_old, taught))
    rho = ratio.clamp(max=RHO_MAX)
    with torch.no_grad():
        clamped = ((ratio > RHO_MAX) | (token - logp > EXPONENT_MAX)) & taught
        stats = _stats(taught, mean=k3) | {
            "rho_max": float(ratio[taught].max()) if taught.any() else 1.0,
            "clamp_share": _share(clamped, taught),
        }
    return total(_over(rho * k3, taught), mask, by), stats


def naive_k3(
    logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor, by: Normaliser = "tokens"
) -> tuple[Tensor, Stats]:
    """Return k3 to the teacher without importance weights; see `is_k3` for the arguments.

    Its value estimates the reverse KL; its gradient, over samples of the policy itself, is that of the forward KL.
    """
    taught = _taught(logp, logp_old, token, mask)
    exponent = _over(token - logp, taught).clamp(max=EXPONENT_MAX)
    k3 = torch.expm1(exponent) - exponent
    with torch.no_grad():
        stats = _stats(taught, mean=k3) | {"clamp_share": _share((token - logp > EXPONENT_MAX) & taught, taught)}
    return total(k3, mask, by), stats


def sdar(
    logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor, by: Normaliser = "tokens"
) -> tuple[Tensor, Stats]:
    """Return SDAR's loss: gate * (teacher - logp), gate = sigmoid(5 (teacher - logp)) without gradient.

    See `is_k3` for the arguments. It raises the likelihood of sampled tokens, most where the teacher likes them more.
    """
    taught = _taught(logp, logp_old, token, mask)
    gap = _over(token - logp, taught)
    gate = torch.sigmoid(SDAR_STEEPNESS * gap.detach())
    return total(_over(gate * gap, taught), mask, by), _stats(taught, mean=gap, gate=gate)


def opd(logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor, by: Normaliser = "tokens") -> tuple[Tensor, Stats]:
    """Return the sampled reverse KL of on-policy distillation: rho * (logp - teacher), the difference without gradient.

    See `is_k3` for the arguments. Value and gradient have the means of KL(policy || teacher). It is a policy gradient
    whose advantage is teacher - logp, without a bound: rho is not cut, nor is the difference.
    """
    taught = _taught(logp, logp_old, token, mask)
    rho = torch.exp(_over(logp - logp_old, taught))
    gap = _over(logp - token, taught).detach()
    return total(rho * gap, mask, by), _stats(taught, mean=gap)


def kl(logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor, by: Normaliser = "tokens") -> tuple[Tensor, Stats]:
    """Return the k3 penalty to a reference as GRPO has it, without bounds; see `is_k3` for the arguments."""
    taught = _taught(logp, logp_old, token, mask)
    reference = torch.where(taught, token, logp.detach())
    values = _over(kl_tokens(logp, reference, "k3"), taught)
    return total(values, mask, by), _stats(taught, mean=values)


LOSSES: Mapping[str, DistillLoss] = MappingProxyType(
    {"is_k3": is_k3, "kl": kl, "naive_k3": naive_k3, "opd": opd, "sdar": sdar}
)
"""By `AuxLoss.name`."""


def aux_loss(
    aux: Iterable[AuxLoss], logp: Tensor, logp_old: Tensor, mask: Tensor, by: Normaliser = "tokens"
) -> tuple[Tensor, Stats]:
    """Return the weighted sum of the losses that a credit rule asks for, and their figures as `name/figure`.

    Raises:
        UserError: If a name is unknown.
    """
    loss, stats = logp.new_zeros(()), Stats()
    for each in aux:
        if each.name not in LOSSES:
            raise UserError(
                f"auxiliary loss {each.name!r} is unknown (known: {', '.join(LOSSES)})."
                + did_you_mean(each.name, LOSSES)
            )
        token = torch.as_tensor(each.token, dtype=logp.dtype, device=logp.device)
        value, figures = LOSSES[each.name](logp, logp_old, token, mask, by)
        loss = loss + each.weight * value
        stats |= {f"{each.name}/{name}": figure for name, figure in figures.items()}
    return loss, stats


def full_kl(
    log_probs: Tensor,
    other: Tensor,
    mask: Tensor,
    by: Normaliser = "tokens",
    *,
    direction: Literal["reverse", "forward"] = "reverse",
) -> Tensor:
    """Return the exact KL over the vocabulary, where both sides' whole distributions are at hand.

    Args:
        log_probs: The policy's, shape (N, T, V), with gradient.
        other: The teacher's or reference's, shape (N, T, V).
        mask: Shape (N, T).
        by: See `rolecraft.learning.losses.total`.
        direction: `reverse` is KL(policy || other), `forward` KL(other || policy).

    Raises:
        UserError: If shapes differ or the direction is unknown.
    """
    if log_probs.shape != other.shape or log_probs.shape[:-1] != mask.shape:
        raise UserError(
            f"full KL: expected both of shape (N, T, V) and a mask of shape (N, T), got {tuple(log_probs.shape)}, "
            f"{tuple(other.shape)} and {tuple(mask.shape)}."
        )
    if direction not in ("reverse", "forward"):
        raise UserError(f"full KL: direction is 'reverse' or 'forward', got {direction!r}.")
    first, second = (log_probs, other) if direction == "reverse" else (other, log_probs)
    values = torch.where(first > -torch.inf, first.exp() * (first - second), first.new_zeros(())).sum(-1)
    return total(values, mask, by)


def _taught(logp: Tensor, logp_old: Tensor, token: Tensor, mask: Tensor) -> Tensor:
    """Return the trained tokens that have a teacher, after a check of shapes and of the teacher's numbers."""
    if not logp.shape == logp_old.shape == token.shape == mask.shape:
        shapes = ", ".join(str(tuple(each.shape)) for each in (logp, logp_old, token, mask))
        raise UserError(
            f"distillation: policy, old policy, teacher and mask must have one shape (N, T), got {shapes}; the teacher "
            "must rescore the same token ids."
        )
    taught = mask & ~torch.isposinf(token)
    wrong = taught & ~((token <= ABOVE_ZERO) & torch.isfinite(token))
    if wrong.any():
        row, place = (int(each) for each in wrong.nonzero()[0])
        raise UserError(
            f"distillation: the teacher's log-probability of row {row}, token {place} is {float(token[row, place])}; "
            "expected a finite number of at most 0."
        )
    if not mask.any():
        warnings.warn("distillation: no token is trained; the loss is 0.", NoSignalWarning, stacklevel=3)
    return taught


def _over(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, values, values.new_zeros(()))


def _share(hit: Tensor, of: Tensor) -> float:
    return float(hit.sum()) / max(int(of.sum()), 1)


def _stats(taught: Tensor, **values: Tensor) -> Stats:
    with torch.no_grad():
        figures = {name: float(value[taught].mean()) if taught.any() else 0.0 for name, value in values.items()}
    return {**figures, "tokens": float(taught.sum())}

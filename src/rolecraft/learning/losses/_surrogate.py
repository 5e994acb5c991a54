"""The policy-gradient loss and what stands beside it, over tokens of shape (N, T)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rolecraft.errors import UserError

Normaliser = Literal["tokens", "rows"] | float
"""What the summed loss is divided by: the trained tokens, the rows with any, or a number (the longest reply)."""
KlForm = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class Surrogate:
    """A clipped policy-gradient loss."""

    loss: Tensor
    clipped: float
    """Share of trained tokens whose ratio is clipped."""
    ratio: float
    """Largest ratio of new to old probability."""


def total(values: Tensor, mask: Tensor, by: Normaliser = "tokens") -> Tensor:
    """Sum a token loss over the mask and divide it; 0 where nothing is trained.

    Args:
        values: Shape (N, T).
        mask: Shape (N, T), booleans.
        by: A number divides the mean over rows: the form without length bias, whose constant is the longest reply.
    """
    kept = torch.where(mask, values, values.new_zeros(()))
    if by == "tokens":
        return kept.sum() / mask.sum().clamp(min=1)
    rows = mask.any(1).sum().clamp(min=1)
    if by == "rows":
        return (kept.sum(1) / mask.sum(1).clamp(min=1)).sum() / rows
    if not isinstance(by, int | float) or by <= 0:
        raise UserError(f"normaliser: expected 'tokens', 'rows' or a number above 0, got {by!r}.")
    return kept.sum() / (rows * by)


def clipped_surrogate(
    logp: Tensor,
    logp_old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float | tuple[float, float] = 0.2,
    weights: Tensor | None = None,
    by: Normaliser = "tokens",
) -> Surrogate:
    """Return PPO's clipped loss (arXiv 1707.06347, equation 7), to be minimised.

    Args:
        logp: Shape (N, T), with gradient.
        logp_old: Shape (N, T), of the policy that acted.
        advantages: Shape (N, T).
        mask: Shape (N, T): the tokens that are trained.
        clip: How far the ratio may leave 1, or how far below and above.
        weights: Shape (N,).
        by: See `total`.
    """
    low, high = clip if isinstance(clip, tuple) else (clip, clip)
    ratio = torch.exp(torch.where(mask, logp - logp_old, logp.new_zeros(())))
    bounded = ratio.clamp(1 - low, 1 + high)
    values = -torch.minimum(ratio * advantages, bounded * advantages)
    if weights is not None:
        values = values * weights[:, None]
    with torch.no_grad():
        trained = ratio[mask]
        outside = float((trained != bounded[mask]).float().mean()) if trained.numel() else 0.0
        largest = float(trained.max()) if trained.numel() else 1.0
    return Surrogate(total(values, mask, by), outside, largest)


def kl_tokens(logp: Tensor, logp_ref: Tensor, form: KlForm = "k3") -> Tensor:
    """Return estimates of KL(policy || reference) per sampled token, of shape (N, T).

    `k1` is unbiased and may be negative, `k2` is half its square, `k3` is unbiased and never negative.
    """
    gap = logp - logp_ref
    if form == "k1":
        return gap
    if form == "k2":
        return gap.square() / 2
    return torch.expm1(-gap) + gap


def clipped_value_loss(
    value: Tensor, value_old: Tensor, targets: Tensor, mask: Tensor, *, clip: float | None = 0.2
) -> Tensor:
    """Return half the squared error of a critic, its step clipped as in PPO; shapes (N, T)."""
    error = (value - targets).square()
    if clip is not None:
        near = value_old + (value - value_old).clamp(-clip, clip)
        error = torch.maximum(error, (near - targets).square())
    return total(error / 2, mask)

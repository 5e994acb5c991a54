"""One policy's steps of the optimiser on the rows of an iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rolecraft.errors import ModelError
from rolecraft.learning.losses import clipped_surrogate, clipped_value_loss, kl_tokens, total
from rolecraft.learning.policy import Reply, TokenPolicy
from rolecraft.learning.trainer._config import TrainConfig

AuxFunction = Callable[..., tuple[Tensor, Mapping[str, float]]]
"""From `(logp, logp_old, token, mask, by)` to a loss and its figures; see `rolecraft.learning.losses`."""


@dataclass(frozen=True)
class Lesson:
    """What one policy is taught in an iteration; tensors of shape (rows, tokens) but for `weights` (rows,)."""

    replies: Sequence[Reply]
    mask: Tensor
    advantages: Tensor
    weights: Tensor
    logp_old: Tensor
    logp_ref: Tensor | None = None
    value_old: Tensor | None = None
    targets: Tensor | None = None
    aux: Sequence[tuple[str, float, Tensor]] = ()
    """Name, weight and token tensor of each loss beside the policy gradient."""
    losses: Mapping[str, AuxFunction] = field(default_factory=dict)
    """The function of each name in `aux`."""


@torch.no_grad()
def score_all(
    policy: TokenPolicy, replies: Sequence[Reply], width: int, micro: int, *, reference: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return log-probabilities, and the critic's values where there is one, of shape (rows, width)."""
    parts = [policy.score(replies[at : at + micro], reference=reference) for at in range(0, len(replies), micro)]
    logp = torch.cat([_padded(part.logp, width) for part in parts])
    values = [_padded(part.value, width) for part in parts if part.value is not None]
    return logp.float().cpu(), torch.cat(values).float().cpu() if values else None


def teach(
    policy: TokenPolicy,
    optimiser: torch.optim.Optimizer,
    lesson: Lesson,
    config: TrainConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Take the steps of an iteration, and return their mean figures.

    Raises:
        ModelError: If a loss or a gradient is not finite; the weights are then as they were before the step.
    """
    rows = np.flatnonzero(lesson.mask.any(1).cpu().numpy())
    size = config.minibatch or len(rows)
    figures: list[dict[str, float]] = []
    for epoch in range(config.epochs):
        order = rng.permutation(rows) if size < len(rows) else rows
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            optimiser.zero_grad(set_to_none=True)
            found = _accumulate(policy, lesson, chosen, config)
            norm = float(torch.nn.utils.clip_grad_norm_(list(policy.parameters().values()), config.max_grad_norm))
            if not np.isfinite(norm):
                optimiser.zero_grad(set_to_none=True)
                raise ModelError(
                    f"the gradient's norm is {norm} in epoch {epoch + 1} of this iteration; lower lr or clip."
                )
            optimiser.step()
            figures.append({**found, "grad_norm": norm})
    names = dict.fromkeys(name for row in figures for name in row)
    return {name: float(np.mean([row[name] for row in figures if name in row])) for name in names}


def _accumulate(policy: TokenPolicy, lesson: Lesson, rows: Any, config: TrainConfig) -> dict[str, float]:
    """Add up a minibatch's gradient, a part at a time; the same as in one pass."""
    whole = lesson.mask[torch.from_numpy(rows)]
    figures: dict[str, float] = {}
    for start in range(0, len(rows), config.micro):
        part = rows[start : start + config.micro]
        loss, found = _loss(policy, lesson, part, config)
        mask = lesson.mask[torch.from_numpy(part)]
        tokens = float(mask.sum() / whole.sum().clamp(min=1))
        share = tokens if config.normaliser == "tokens" else float(mask.any(1).sum() / whole.any(1).sum().clamp(min=1))
        if not torch.isfinite(loss):
            raise ModelError(
                f"the loss of rows {part[0]} to {part[-1]} is {float(loss.detach())}: {_worst(lesson, part)}"
            )
        (loss * share).backward()  # type: ignore[no-untyped-call]
        for name, value in found.items():
            figures[name] = (
                max(figures.get(name, value), value) if name == "ratio" else (figures.get(name, 0.0) + value * tokens)
            )
    return figures


def _loss(policy: TokenPolicy, lesson: Lesson, rows: Any, config: TrainConfig) -> tuple[Tensor, dict[str, float]]:
    index = torch.from_numpy(rows)
    mask, by = lesson.mask[index], config.normaliser
    width = mask.shape[1]
    scored = policy.score([lesson.replies[row] for row in rows])
    logp, entropy = _padded(scored.logp, width), _padded(scored.entropy, width)
    old = lesson.logp_old[index]
    clip = config.clip if config.clip_high is None else (config.clip, config.clip_high)
    surrogate = clipped_surrogate(
        logp, old, lesson.advantages[index], mask, clip=clip, weights=lesson.weights[index], by=by
    )
    loss = surrogate.loss
    found = {"loss": float(loss.detach()), "clipped": surrogate.clipped, "ratio": surrogate.ratio}
    found["entropy"] = float(total(entropy.detach(), mask))
    if config.entropy:
        loss = loss - config.entropy * total(entropy, mask, by)
    if lesson.logp_ref is not None:
        divergence = kl_tokens(logp, lesson.logp_ref[index], config.kl_form)
        found["kl"] = float(total(divergence.detach(), mask))
        loss = loss + config.kl * total(divergence, mask, by)
    if lesson.targets is not None and scored.value is not None and lesson.value_old is not None:
        value = _padded(scored.value, width)
        critic = clipped_value_loss(value, lesson.value_old[index], lesson.targets[index], mask, clip=config.value_clip)
        found["value_loss"] = float(critic.detach())
        loss = loss + config.value * critic
    for name, weight, token in lesson.aux:
        beside, figures = lesson.losses[name](logp, old, token[index], mask, by)
        found |= {f"{name}/{key}": float(value) for key, value in figures.items()}
        loss = loss + weight * beside
    return loss, found


def _worst(lesson: Lesson, rows: Any) -> str:
    for row in rows:
        for what, column in (("advantage", lesson.advantages), ("old log-probability", lesson.logp_old)):
            if not torch.isfinite(column[row]).all():
                return f"row {row} has an {what} that is not finite."
    return "the policy's own output is not finite; lower lr, or go on from an earlier checkpoint."


def _padded(values: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, width - values.shape[1]))

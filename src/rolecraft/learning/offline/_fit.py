"""Supervised fine-tuning of a policy on replies that are given: cross-entropy, nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import ModelError, UserError

if TYPE_CHECKING:
    from rolecraft.learning.policy import Reply, TokenPolicy


def fit_replies(
    policy: TokenPolicy,
    rows: Sequence[Reply],
    *,
    steps: int,
    lr: float = 3e-3,
    batch: int = 64,
    seed: int = 0,
    weight_decay: float = 0.0,
    max_grad_norm: float = 1.0,
) -> list[float]:
    """Make replies more likely: steps of AdamW on their mean cross-entropy per token.

    Every row is seen once before any is seen again. Where a row has options, its tokens compete with what else could
    have stood there; a critic is left as it is. The policy's temperature holds here as in sampling.

    Args:
        policy: Changed in place.
        rows: Prompts with the replies to learn, the end included where a reply should end.
        steps: Of the optimiser.
        lr: Its learning rate, constant.
        batch: Rows per step.
        seed: Of the order of the rows.
        weight_decay: Of AdamW.
        max_grad_norm: Gradients longer than this are cut to it.

    Returns:
        The loss before each step, in nats per token.

    Raises:
        UserError: If there is no row, one has an empty prompt or reply, or a number is out of range.
        ModelError: If a loss is not finite; the weights are then as they were before the step.
    """
    import torch

    _check(rows, steps, batch, lr, max_grad_norm)
    parameters = list(policy.parameters().values())
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    losses = []
    with policy.active():
        for step, chosen in enumerate(_batches(len(rows), min(batch, len(rows)), steps, seed)):
            part = [rows[row] for row in chosen]
            loss = -policy.score(part).logp.sum() / sum(len(row.tokens) for row in part)
            if not torch.isfinite(loss):
                raise ModelError(f"step {step}: the loss is {float(loss.detach())}; lower lr, or look at the rows.")
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
            optimiser.step()
            losses.append(float(loss.detach()))
    return losses


def _check(rows: Sequence[Reply], steps: int, batch: int, lr: float, max_grad_norm: float) -> None:
    if min(steps, batch) < 1 or not min(lr, max_grad_norm) > 0:
        raise UserError(
            "steps and batch must be at least 1, lr and max_grad_norm above 0, got "
            f"{steps}, {batch}, {lr} and {max_grad_norm}."
        )
    if not rows:
        raise UserError("no rows to learn from; give at least one reply.")
    for number, row in enumerate(rows):
        if not row.prompt or not row.tokens:
            raise UserError(f"row {number} has no {'tokens to learn' if row.prompt else 'prompt'}; leave it out.")


def _batches(count: int, size: int, steps: int, seed: int) -> Iterator[list[int]]:
    """Yield rows of each step: pass after pass over all of them, each in an order of its own."""
    rng = np.random.default_rng(derive_seed(seed, "sft"))
    waiting: list[int] = []
    for _ in range(steps):
        while len(waiting) < size:
            waiting += rng.permutation(count).tolist()
        yield waiting[:size]
        waiting = waiting[size:]

"""The decode loop: shared prefixes, one steered step per token, rows leave when they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from rolecraft.conditioning._steering import Steering
from rolecraft.models._base import Sampling
from rolecraft.models._hooks import LAST, NEW
from rolecraft.models._network import Network
from rolecraft.models._prefix import Prefixes
from rolecraft.models._sampling import draw

_DROP_SHARE = 8
"""Rows that have ended leave the batch when they are at least one in this many: dropping them copies the cache."""


@dataclass
class Decoded:
    """New tokens of one row; `length` until it ends otherwise."""

    tokens: list[int] = field(default_factory=list)
    finish: Literal["stop", "length", "error"] = "length"


class Pick(Protocol):
    """Chooses the next token of every row that goes on."""

    def __call__(self, logits: Tensor, rows: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
        """Choose.

        Args:
            logits: Shape (rows, vocabulary).
            rows: Which rows of the batch these are.
            step: Index of the new token.

        Returns:
            Tokens (rows,), and whether each row could be chosen for.
        """
        ...


@torch.inference_mode()
def decode(
    network: Network,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    steering: Steering,
    seeds: Sequence[int],
    stops: frozenset[int],
    pick: Pick | None = None,
) -> list[Decoded]:
    """Decode one batch.

    All prompt tokens but the last are computed once for all rows that share them (and the interventions that touch
    them), then expanded to rows; the last prompt token is the first step of every row.

    Args:
        network: The model.
        prompts: Token ids per row, one or more each.
        sampling: How tokens are drawn.
        steering: One entry per row.
        seeds: One seed per row.
        stops: Tokens that end a reply; they are not part of it.
        pick: Chooses tokens; None: drawn as `sampling` says.
    """
    if pick is None:

        def pick(logits: Tensor, rows: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
            return draw(logits, sampling, [seeds[row] for row in rows], step)

    prefixes = Prefixes(network, prompts, steering)
    lengths, width = torch.tensor(prefixes.lengths, device=network.device), prefixes.width
    cache = prefixes.expand(width + sampling.max_tokens, network.turned)
    columns = torch.arange(width + sampling.max_tokens, device=network.device)
    mask = (columns >= (width - lengths)[:, None]).long() if bool((lengths < width).any()) else None
    tokens = torch.tensor([prompt[-1] for prompt in prompts], device=network.device)
    results = [Decoded() for _ in prompts]
    alive = list(range(len(prompts)))
    with network.steered(steering) as steerer:
        steerer.kinds = LAST
        for step in range(sampling.max_tokens):
            seen = None if mask is None else mask[:, : width + step + 1]
            logits = network.step(tokens, lengths + step, seen, cache)
            tokens, fit = pick(logits, alive, step)
            _record(tokens.tolist(), fit.tolist(), [results[row] for row in alive], stops)
            kept = [place for place, row in enumerate(alive) if results[row].finish == "length"]
            if not kept:
                break
            if (len(alive) - len(kept)) * _DROP_SHARE >= len(alive) and step + 1 < sampling.max_tokens:
                alive = [alive[place] for place in kept]
                index = torch.tensor(kept, device=network.device)
                cache.keep(index)
                steerer.keep(kept)
                tokens, lengths = tokens[index], lengths[index]
                mask = None if mask is None else mask[index]
            steerer.kinds = NEW
    return results


def _record(tokens: Sequence[int], fit: Sequence[bool], rows: Sequence[Decoded], stops: frozenset[int]) -> None:
    """Append the drawn tokens to the rows that have not ended, and end those that draw a stop or cannot draw."""
    for row, token, good in zip(rows, tokens, fit, strict=True):
        if row.finish != "length":
            continue
        if not good:
            row.finish = "error"
        elif token in stops:
            row.finish = "stop"
        else:
            row.tokens.append(token)

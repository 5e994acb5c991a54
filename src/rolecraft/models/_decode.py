"""The decode loop: shared prefixes, one steered step per token, rows leave when they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from rolecraft.conditioning._steering import Steering
from rolecraft.models._base import Sampling
from rolecraft.models._hooks import LAST, NEW, PAD, PROMPT, Steerer, hooked, touched
from rolecraft.models._network import Network, Shared
from rolecraft.models._sampling import draw

_DROP_SHARE = 8
"""Finished rows leave the batch when they are at least one in this many: dropping copies the cache."""


@dataclass
class Decoded:
    """New tokens of one row."""

    tokens: list[int] = field(default_factory=list)
    finish: Literal["stop", "length", "error"] = "length"


@torch.inference_mode()
def decode(
    network: Network,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    steering: Steering,
    seeds: Sequence[int],
    stops: frozenset[int],
) -> list[Decoded]:
    """Decode one batch.

    All prompt tokens but the last are computed once per distinct prompt (with its interventions, where they touch
    earlier tokens), then expanded to rows; the last prompt token is the first step of every row.

    Args:
        network: The model.
        prompts: Token ids per row, one or more each.
        sampling: How tokens are drawn.
        steering: One entry per row.
        seeds: One seed per row.
        stops: Tokens that end a reply; they are not part of it.
    """
    steerer = Steerer(steering, network.dtype, network.device)
    with hooked(network.blocks, {site: steerer.hook(site) for site in steering.sites}):
        return _loop(network, prompts, sampling, steerer, seeds, stops)


def _loop(
    network: Network,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    steerer: Steerer,
    seeds: Sequence[int],
    stops: frozenset[int],
) -> list[Decoded]:
    results = [Decoded() for _ in prompts]
    device = network.device
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
    width = int(lengths.max())
    early = [tuple(i for i in row if PROMPT in touched(i)) for row in steerer.steering.rows]
    shared = Shared(prompts, [(tuple(p), tuple(map(id, e))) for p, e in zip(prompts, early, strict=True)])
    capacity = width + sampling.max_tokens
    cache = shared.expand(_prefix(network, prompts, steerer, shared), lengths, capacity, network.turned)
    columns = torch.arange(capacity, device=device)
    mask = (columns >= (width - lengths)[:, None]).long()
    padded = bool((lengths < width).any())
    tokens = torch.tensor([prompt[-1] for prompt in prompts], device=device)
    alive = list(range(len(prompts)))
    done: set[int] = set()
    steerer.kinds = LAST
    for step in range(sampling.max_tokens):
        positions = lengths + step
        seen = mask[:, : width + step + 1] if padded else None
        logits = network.step(tokens, positions, seen, cache)
        tokens, fit = draw(logits, sampling, [seeds[row] for row in alive], step)
        for row, token, good in zip(alive, tokens.tolist(), fit.tolist(), strict=True):
            if row in done:
                continue
            if not good or token in stops:
                results[row].finish = "stop" if good else "error"
                done.add(row)
            else:
                results[row].tokens.append(token)
        gone = sum(row in done for row in alive)
        if gone == len(alive):
            break
        if gone * _DROP_SHARE >= len(alive) and step + 1 < sampling.max_tokens:
            kept = [place for place, row in enumerate(alive) if row not in done]
            alive = [alive[place] for place in kept]
            index = torch.tensor(kept, device=device)
            cache.keep(index)
            steerer.select(kept)
            tokens, lengths, mask = tokens[index], lengths[index], mask[index]
        steerer.kinds = NEW
    return results


def _prefix(network: Network, prompts: Sequence[Sequence[int]], steerer: Steerer, shared: Shared):  # type: ignore[no-untyped-def]
    """Run the distinct prefixes, steered where an intervention touches earlier prompt tokens."""
    distinct = [prompts[row] for row in shared.representatives]
    everyone = steerer.steering
    steerer.steering = everyone.select(shared.representatives)
    steerer.select(range(len(distinct)))
    steerer.kinds = PAD
    cache = network.prefix(distinct, steerer)
    steerer.steering = everyone
    steerer.select(range(len(everyone.rows)))
    return cache

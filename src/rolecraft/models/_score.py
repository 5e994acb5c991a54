"""Teacher-forced passes: log-probabilities of replies, and pooled activations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from rolecraft.conditioning._steering import Steering
from rolecraft.errors import ModelError
from rolecraft.models._base import FloatArray
from rolecraft.models._hooks import LAST, NEW, PROMPT, Hook, hooked, state_of
from rolecraft.models._network import Network, pad_right
from rolecraft.models._prefix import Prefixes

Pooling = Literal["reply-mean", "reply-first", "reply-last", "prompt-last"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

_HEAD_ROWS = 128
"""Positions whose logits over the vocabulary are held at once."""
_WIDE_ROWS = 32
"""Of those, positions whose logits are widened to float32 at once: few enough to stay in the processor's cache."""


@torch.inference_mode()
def score(
    network: Network, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]], steering: Steering
) -> list[FloatArray]:
    """Return the log-probability of every reply token of one batch; no reply may be empty.

    What prompts share is computed once, see `Prefixes`; the output head sees reply positions only.
    """
    device = network.device
    prefixes = Prefixes(network, prompts, steering)
    lengths, width = torch.tensor(prefixes.lengths, device=device), prefixes.width
    inputs = [[prompt[-1], *reply[:-1]] for prompt, reply in zip(prompts, replies, strict=True)]
    ids, real = pad_right(inputs, device)
    cache = prefixes.expand(width + ids.shape[1])
    mask = (torch.arange(width + ids.shape[1], device=device) >= (width - lengths)[:, None]).long()
    targets = torch.tensor([token for reply in replies for token in reply], device=device)
    with network.steered(steering) as steerer:
        steerer.kinds = real * NEW
        steerer.kinds[:, 0] = LAST
        logits = network.logits_at(
            real.bool(),
            _HEAD_ROWS,
            input_ids=ids,
            attention_mask=mask if bool((lengths < width).any()) else None,
            position_ids=lengths[:, None] + torch.arange(ids.shape[1], device=device),
            cache=cache,
            use_cache=True,
        )
        values = torch.cat(
            [
                _log_softmax_at(part, wanted)
                for part, wanted in zip(logits, torch.split(targets, _HEAD_ROWS), strict=True)
            ]
        )
    return [part.cpu().numpy().copy() for part in torch.split(values, [len(reply) for reply in replies])]


def _log_softmax_at(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each row's target, computed in float32."""
    parts = zip(torch.split(logits, _WIDE_ROWS), torch.split(targets[:, None], _WIDE_ROWS), strict=True)
    return torch.cat([(wide := part.float()).gather(1, wanted)[:, 0] - wide.logsumexp(-1) for part, wanted in parts])


class _Enough(Exception):
    """The last site wanted has been read: control flow, not a failure."""


@torch.inference_mode()
def pool(
    network: Network,
    prompts: Sequence[Sequence[int]],
    replies: Sequence[Sequence[int]],
    sites: Sequence[int],
    poolings: Sequence[Pooling],
    steering: Steering,
) -> FloatArray:
    """Return pooled block outputs of one batch, shape (rows, poolings, sites, hidden), float32.

    States are pooled as each block returns them, so that no more than one block's states are held; blocks after
    the last site do not run.

    Raises:
        ModelError: If the model's forward pass bypasses a hook.
    """
    ids, _ = pad_right([[*p, *r] for p, r in zip(prompts, replies, strict=True)], network.device)
    kinds = torch.zeros_like(ids)
    weights = torch.zeros(len(ids), len(poolings), ids.shape[1], device=network.device)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        split, end = len(prompt), len(prompt) + len(reply)
        kinds[row, :split], kinds[row, split - 1], kinds[row, split:end] = PROMPT, LAST, NEW
        for place, pooling in enumerate(poolings):
            if pooling == "reply-mean":
                weights[row, place, split:end] = 1 / (end - split)
            else:
                weights[
                    row, place, {"prompt-last": split - 1, "reply-first": split, "reply-last": end - 1}[pooling]
                ] = 1
    result = torch.zeros(len(ids), len(poolings), len(sites), network.hidden)
    last = max(sites)
    places = {site: [p for p, other in enumerate(sites) if other == site] for site in sites}
    unread = set(sites)

    def reader(site: int) -> Hook:
        def read(module: nn.Module, inputs: Any, output: Any) -> None:
            result[:, :, places[site]] = torch.bmm(weights, state_of(output).float()).cpu()[:, :, None]
            unread.discard(site)
            if site == last:
                raise _Enough

        return read

    with network.steered(steering) as steerer, hooked(network.blocks, {site: reader(site) for site in sites}):
        steerer.kinds = kinds
        with suppress(_Enough):
            network.model.base_model(input_ids=ids, use_cache=False)
    if unread:
        raise ModelError(
            f"the hooks at sites {sorted(unread)} were never called: the model is compiled, or its forward pass does "
            "not go through the decoder blocks found. Load it uncompiled, or name its blocks with blocks='...'."
        )
    pooled: FloatArray = result.numpy()
    return pooled

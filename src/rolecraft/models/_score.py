"""Teacher-forced passes: log-probabilities of replies, and pooled activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from rolecraft.conditioning._steering import Steering
from rolecraft.models._base import FloatArray
from rolecraft.models._hooks import LAST, NEW, PROMPT, Steerer, hooked
from rolecraft.models._network import Network, Shared, pad_right

Pooling = Literal["reply-mean", "reply-first", "reply-last", "prompt-last"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

_HEAD_ROWS = 256
"""Positions whose log-softmax is computed at once in float32."""


@torch.inference_mode()
def score(network: Network, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]]) -> list[FloatArray]:
    """Return the log-probability of every reply token of one batch; no reply may be empty.

    The prefix of each distinct prompt is computed once; the output head sees reply positions only.
    """
    device = network.device
    shared = Shared(prompts)
    lengths = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
    width = int(lengths.max())
    inputs = [[prompt[-1], *reply[:-1]] for prompt, reply in zip(prompts, replies, strict=True)]
    ids, real = pad_right(inputs, device)
    cache = shared.expand(
        network.prefix([prompts[row] for row in shared.representatives]), lengths, width + ids.shape[1]
    )
    mask = (torch.arange(width + ids.shape[1], device=device) >= (width - lengths)[:, None]).long()
    with network.head_on(real.bool()):
        logits: Tensor = network.model(
            input_ids=ids,
            attention_mask=mask if bool((lengths < width).any()) else None,
            position_ids=lengths[:, None] + torch.arange(ids.shape[1], device=device),
            cache=cache,
            use_cache=True,
        ).logits[0]
    targets = torch.tensor([token for reply in replies for token in reply], device=device)
    values = torch.cat(
        [
            (part := logits[start : start + _HEAD_ROWS].float()).gather(
                1, targets[start : start + _HEAD_ROWS, None]
            )[:, 0]
            - part.logsumexp(-1)
            for start in range(0, len(targets), _HEAD_ROWS)
        ]
    )
    return [part.cpu().numpy().copy() for part in values.split([len(reply) for reply in replies])]


class _Enough(Exception):  # noqa: N818  # control flow: the last site wanted has been read
    pass


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
                weights[row, place, {"prompt-last": split - 1, "reply-first": split, "reply-last": end - 1}[pooling]] = 1
    steerer = Steerer(steering, network.dtype, network.device)
    steerer.kinds = kinds
    result = torch.zeros(len(ids), len(poolings), len(sites), network.hidden)
    last = max(sites)

    def reader(site: int) -> Any:
        place = list(sites).index(site)

        def read(module: nn.Module, inputs: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            result[:, :, place] = torch.bmm(weights, state.float()).cpu()
            if site == last:
                raise _Enough

        return read

    with (
        hooked(network.blocks, {site: steerer.hook(site) for site in steering.sites if site <= last}),
        hooked(network.blocks, {site: reader(site) for site in sites}),
    ):
        try:
            network.model.base_model(input_ids=ids, use_cache=False)
        except _Enough:
            pass
    pooled: FloatArray = result.numpy()
    return pooled

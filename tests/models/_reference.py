"""Straightforward answers to compare the engine with: no cache, no batch, no padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rolecraft.conditioning import Intervention
from rolecraft.models import LocalModel


def apply(h: torch.Tensor, intervention: Intervention) -> torch.Tensor:
    v = torch.from_numpy(intervention.vector)
    u, c = v / v.norm(), intervention.strength
    match intervention.operator:
        case "add":
            return h + c * v
        case "add-norm":
            return h + c * h.norm(dim=-1, keepdim=True) * u
        case "add-signed":
            return h + c * v * torch.sign(h @ (c * v))[..., None]
        case "ablate":
            return h - (h @ u)[..., None] * u + c * v
        case "cap":
            return h - torch.relu(h @ u - intervention.threshold)[..., None] * u
    raise AssertionError(intervention.operator)


@torch.no_grad()
def forward(
    model: LocalModel, ids: Sequence[int], prompt: int, interventions: Sequence[Intervention] = ()
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits (tokens, vocabulary) and the output of every block (tokens, hidden), whole sequence at once."""
    states: list[torch.Tensor] = []

    def hook(site: int):
        def run(module, inputs, output):
            h = output[0].clone()
            for i in interventions:
                if i.site != site:
                    continue
                first = 0 if i.positions == "all" else prompt - 1
                spans = {"prefill": [(first, prompt)], "decode": [(prompt, len(ids))]}
                spans["both"] = spans["prefill"] + spans["decode"]
                for a, b in spans[i.phase]:
                    h[a:b] = apply(h[a:b], i)
            states.append(h)
            return h[None]

        return run

    handles = [block.register_forward_hook(hook(s)) for s, block in enumerate(model.model.model.layers)]
    try:
        return model.model(torch.tensor([list(ids)]), use_cache=False).logits[0], states
    finally:
        for handle in handles:
            handle.remove()


def greedy(model: LocalModel, chat, tokens: int, interventions: Sequence[Intervention] = ()) -> list[int]:
    ids = list(model.encode(chat))
    prompt = len(ids)
    for _ in range(tokens):
        best = int(forward(model, ids, prompt, interventions)[0][-1].argmax())
        if best in model._stops:
            break
        ids.append(best)
    return ids[prompt:]


def vector(seed: int, hidden: int = 32, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(hidden) * size).astype(np.float32)

"""States of replies with gradient, where a prompt that several rows share is run once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache

from rolecraft.models._network import Network, pad_right

if TYPE_CHECKING:
    from rolecraft.learning.policy._token_policy import Reply

_WORTH = 0.8
"""Prompts are run by themselves where all takes at most this share of the tokens then, padding counted."""


def reply_states(network: Network, rows: Sequence[Reply]) -> Tensor:
    """Return the last state before every token of some replies, row by row, of shape (tokens, hidden).

    A prompt's gradient is the sum over its rows, as it would be if each row ran it: only the order of summation, and
    so the last digits, differ.

    Args:
        network: The model.
        rows: Prompts and replies, one token or more each.
    """
    place: dict[tuple[int, ...], int] = {}
    origin = [place.setdefault(tuple(row.prompt), len(place)) for row in rows]
    if network.widens and _worth([len(prompt) for prompt in place], rows):
        return _behind_prompts(network, list(place), origin, rows)
    ids, _ = pad_right([(*row.prompt, *row.tokens[:-1]) for row in rows], network.device)
    states = network.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    spots = [(n, len(row.prompt) - 1 + t) for n, row in enumerate(rows) for t in range(len(row.tokens))]
    at = torch.tensor(spots, device=network.device)
    found: Tensor = states[at[:, 0], at[:, 1]]
    return found


def _worth(prompts: Sequence[int], rows: Sequence[Reply]) -> bool:
    """Return whether running prompts first and replies then takes clearly fewer tokens, padding counted."""
    heads, tails = max(prompts) - 1, max(len(row.tokens) for row in rows)
    whole = max(len(row.prompt) - 1 + len(row.tokens) for row in rows)
    return heads > 0 and len(prompts) * heads + len(rows) * tails <= _WORTH * len(rows) * whole


def _behind_prompts(
    network: Network, prompts: Sequence[tuple[int, ...]], origin: Sequence[int], rows: Sequence[Reply]
) -> Tensor:
    """Run prompts without their last token, then every row's reply behind its own."""
    device, model = network.device, network.model.base_model
    ids, _ = pad_right([prompt[:-1] for prompt in prompts], device)
    heads = model(input_ids=ids, use_cache=True, cache=DynamicCache()).cache
    of_row = torch.tensor(origin, device=device)
    lengths = torch.tensor([len(row.prompt) - 1 for row in rows], device=device)
    width = ids.shape[1]
    columns = torch.arange(width, device=device) - (width - lengths)[:, None]  # each row's own end in the last column
    moved = None if bool((columns[:, 0] == 0).all()) else columns.clamp(min=0)[:, None, :, None]
    cache = DynamicCache()
    for site, layer in enumerate(heads.layers):
        cache.update(_expanded(layer.keys, of_row, moved), _expanded(layer.values, of_row, moved), site)
    tails, real = pad_right([(row.prompt[-1], *row.tokens[:-1]) for row in rows], device)
    inputs: dict[str, Any] = {}
    if moved is not None:
        inputs["attention_mask"] = torch.cat([(columns >= 0).long(), torch.ones_like(tails)], 1)
    positions = lengths[:, None] + torch.arange(tails.shape[1], device=device)
    output = model(input_ids=tails, position_ids=positions, cache=cache, use_cache=True, **inputs)
    states: Tensor = output.last_hidden_state[real.bool()]
    return states


def _expanded(columns: Tensor, of_row: Tensor, moved: Tensor | None) -> Tensor:
    """Return keys or values (prompts, heads, columns, size) by row, right-aligned where prompts differ in length."""
    found = columns.index_select(0, of_row)
    return found if moved is None else torch.take_along_dim(found, moved, 2)

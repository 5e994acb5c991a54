"""A preallocated key-value cache: written in place, read as views, rows expanded from shared prefixes and dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _RowLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers is partly typed
    """Keys and values of one block, of which `length` columns are used.

    Values have shape (rows, heads, capacity, head size). Keys are the same, or (rows, heads, head size, capacity) if
    `turned`: the layout in which one query per row multiplies them without a copy.
    """

    is_sliding = False
    keys: Tensor
    values: Tensor

    def __init__(self, capacity: int, turned: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.turned = turned
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers for as many rows as `key_states` has."""
        rows, heads, _, size = key_states.shape
        shape = (rows, heads, size, self.capacity) if self.turned else (rows, heads, self.capacity, size)
        self.keys = key_states.new_empty(shape)
        self.values = value_states.new_empty(rows, value_states.shape[1], self.capacity, value_states.shape[3])
        self.is_initialized = True

    def used(self) -> tuple[Tensor, Tensor]:
        """Return views (rows, heads, length, head size) of the keys and values so far."""
        keys = self.keys.transpose(2, 3) if self.turned else self.keys
        return keys[:, :, : self.length], self.values[:, :, : self.length]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new columns and return views of all columns so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new = key_states.shape[2]
        self.length += new
        keys, values = self.used()
        keys[:, :, -new:] = key_states
        values[:, :, -new:] = value_states
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (columns after the next update, offset 0)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the columns in use."""
        return self.length

    def get_max_length(self) -> int:
        """Return the capacity in columns."""
        return self.capacity

    def fill(self, source: _RowLayer, groups: Sequence[tuple[Tensor, Tensor, int, int]], rows: int, width: int) -> None:
        """Start with rows of `source`, right-aligned in `width` columns; see `RowCache.expanded`."""
        if not source.is_initialized:  # prompts of one token have no prefix
            return
        keys, values = source.used()
        self.lazy_initialization(keys[:1].expand(rows, -1, -1, -1), values[:1].expand(rows, -1, -1, -1))
        self.length = width
        for old, new in zip((keys, values), self.used(), strict=True):
            for targets, origins, start, length in groups:
                if length < width:
                    new[targets, :, : width - length] = 0
                new[targets, :, width - length :] = old[origins, :, start : start + length]

    def clear(self) -> None:
        """Give the buffers back."""
        self.length = 0
        self.is_initialized = False
        del self.keys, self.values

    def keep(self, rows: Tensor) -> None:
        """Keep only `rows`, in that order."""
        keys, values = self.used()
        length, self.length = self.length, 0
        self.is_initialized = False
        if length:
            self.update(keys.index_select(0, rows), values.index_select(0, rows))


class RowCache(Cache):
    """The cache of a batch.

    Args:
        sites: Decoder blocks of the model.
        capacity: Columns (tokens) to reserve per row.
        turned: Lay keys out for decoding with `rolecraft.models._attention`.
    """

    layers: list[_RowLayer]  # type: ignore[assignment]  # the base class allows any mixture

    def __init__(self, sites: int, capacity: int, turned: bool = False) -> None:
        super().__init__(layers=[_RowLayer(capacity, turned) for _ in range(sites)])

    def expanded(
        self,
        rows: Sequence[int],
        lengths: Sequence[int],
        capacity: int,
        turned: bool = False,
        starts: Sequence[int] | None = None,
    ) -> RowCache:
        """Turn this cache into another: its row i is `lengths[i]` columns of row `rows[i]`, right-aligned.

        All rows then end in the same column; columns before a shorter row hold zeros. This cache is empty afterwards,
        so that never more than one block is held twice.

        Args:
            rows: Which row each new row comes from.
            lengths: How many columns of it.
            capacity: Columns of the new cache.
            turned: Lay its keys out for decoding.
            starts: The first of those columns; default: column 0.
        """
        device = self.layers[0].values.device if self.layers[0].is_initialized else None
        members: dict[tuple[int, int], list[int]] = {}
        for place, span in enumerate(zip(starts or [0] * len(rows), lengths, strict=True)):
            members.setdefault(span, []).append(place)
        groups = [
            (torch.tensor(places, device=device), torch.tensor([rows[i] for i in places], device=device), *span)
            for span, places in members.items()
        ]
        new = RowCache(len(self.layers), capacity, turned)
        for layer, source in zip(new.layers, self.layers, strict=True):
            layer.fill(source, groups, len(rows), max(lengths))
            source.clear()
        return new

    def keep(self, rows: Tensor) -> None:
        """Keep only `rows`, in that order, in every block."""
        for layer in self.layers:
            layer.keep(rows)

"""A preallocated key-value cache: written in place, read as views, rows expanded from shared prefixes and dropped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class _RowLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped
    """Keys and values of one block, shape (rows, heads, capacity, head size), of which `length` columns are used."""

    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the buffers for as many rows as `key_states` has."""
        rows, heads, _, size = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.capacity, size)
        self.values = value_states.new_empty(rows, value_states.shape[1], self.capacity, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new columns and return views of all columns so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (columns after the next update, offset 0)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the columns in use."""
        return self.length

    def get_max_length(self) -> int:
        """Return the capacity in columns."""
        return self.capacity

    def fill(self, source: _RowLayer, rows: Tensor, columns: Tensor) -> None:
        """Start with column `columns[i, j]` of row `rows[i]` of `source` as column j of row i."""
        if not source.is_initialized:  # prompts of one token have no prefix
            return
        width = columns.shape[1]
        for name in ("keys", "values"):
            old = getattr(source, name)
            new = old.new_empty(len(rows), old.shape[1], self.capacity, old.shape[3])
            new[:, :, :width] = old.transpose(1, 2)[rows[:, None], columns].transpose(1, 2)
            setattr(self, name, new)
        self.length = width
        self.is_initialized = True

    def keep(self, rows: Tensor) -> None:
        """Keep only `rows`, in that order."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(len(rows), *old.shape[1:])
            new[:, :, : self.length] = old[:, :, : self.length].index_select(0, rows)
            setattr(self, name, new)


class RowCache(Cache):  # type: ignore[misc]  # transformers is untyped
    """The cache of a batch.

    Args:
        sites: Decoder blocks of the model.
        capacity: Columns (tokens) to reserve per row.
    """

    layers: list[_RowLayer]

    def __init__(self, sites: int, capacity: int) -> None:
        super().__init__(layers=[_RowLayer(capacity) for _ in range(sites)])

    def expanded(self, rows: Tensor, columns: Tensor, capacity: int) -> RowCache:
        """Return a new cache whose row i, column j is row `rows[i]`, column `columns[i, j]` of this one."""
        new = RowCache(len(self.layers), capacity)
        for layer, source in zip(new.layers, self.layers, strict=True):
            layer.fill(source, rows, columns)
        return new

    def keep(self, rows: Tensor) -> None:
        """Keep only `rows`, in that order, in every block."""
        for layer in self.layers:
            layer.keep(rows)

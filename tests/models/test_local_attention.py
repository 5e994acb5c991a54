"""One-token attention in half precision against the exact one; the cache's two layouts."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rolecraft.models._attention import NAME, attend
from rolecraft.models._cache import RowCache
from rolecraft.testing import tiny_model


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_one_token_attention_is_exact_up_to_rounding(masked: bool, scaling: float | None) -> None:
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=draw) for shape in ((5, 6, 1, 16), (5, 2, 9, 16), (5, 2, 9, 16)))
    mask = (torch.arange(9) >= torch.arange(5)[:, None])[:, None, None] if masked else None
    expected = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=True)
    got, weights = attend(torch.nn.Module(), query, key, value, mask, scaling=scaling)
    assert weights is None
    torch.testing.assert_close(got, expected.transpose(1, 2))
    half, _ = attend(torch.nn.Module(), *(t.bfloat16() for t in (query, key, value)), mask, scaling=scaling)
    torch.testing.assert_close(half.float(), expected.transpose(1, 2), atol=0.03, rtol=0.03)


def test_it_serves_half_precision_only() -> None:
    assert tiny_model(dtype=torch.bfloat16).model.config._attn_implementation == NAME
    assert tiny_model().model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_expanded_right_aligned_grown_and_dropped(turned: bool) -> None:
    source = RowCache(1, 4)
    keys, values = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    source.update(keys, values, 0)
    cache = source.expanded([1, 0, 1], [4, 2, 4], 6, turned)
    new = torch.randn(3, 3, 1, 8), torch.randn(3, 3, 1, 8)
    grown = cache.update(*new, 0)
    cache.keep(torch.tensor([2, 1]))
    last = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 1, 8)
    final = cache.update(*last, 0)
    assert cache.get_seq_length() == 6
    for old, one, two, first, second in zip((keys, values), grown, final, new, last, strict=True):
        short = torch.cat([torch.zeros(3, 2, 8), old[0, :, :2]], 1)
        expected = torch.cat([torch.stack([old[1], short, old[1]]), first], 2)
        assert torch.equal(one, expected)
        assert torch.equal(two, torch.cat([expected[[2, 1]], second], 2))

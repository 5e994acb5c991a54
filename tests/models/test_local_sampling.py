"""Drawing tokens: exact nucleus, seeds, unfit logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from rolecraft.models._base import GREEDY, Sampling
from rolecraft.models._sampling import draw, uniforms


def nucleus(logits: torch.Tensor, temperature: float, top_p: float) -> np.ndarray:
    """The distribution that ought to be drawn from, by the definition."""
    p = torch.softmax(logits.double() / temperature, -1)
    ranked, order = p.sort(descending=True, stable=True)
    kept = (ranked.cumsum(0) - ranked) < top_p
    out = torch.zeros_like(p)
    out[order[kept]] = ranked[kept] / ranked[kept].sum()
    return out.numpy()


@pytest.mark.parametrize("size", [12, 400, 3000])
@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 0.9), (1.0, 1.0), (0.2, 0.99), (3.0, 0.95)])
def test_draws_follow_the_exact_nucleus(size: int, temperature: float, top_p: float) -> None:
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 2
    expected = nucleus(logits, temperature, top_p)
    n = 12_000
    counts = np.zeros(size)
    for start in range(0, n, 2000):
        tokens, fit = draw(logits.expand(2000, -1), Sampling(1, temperature, top_p), range(start, start + 2000), 3)
        assert fit.all()
        counts += np.bincount(tokens.numpy(), minlength=size)
    assert counts[expected == 0].sum() == 0
    big = expected * n >= 5
    observed, wanted = np.append(counts[big], counts[~big].sum()), np.append(expected[big], expected[~big].sum()) * n
    if wanted[-1] < 5:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    if len(wanted) > 1:
        assert chisquare(observed, wanted).pvalue > 1e-3


@pytest.mark.parametrize("size", [50, 3000, 20_000])
@pytest.mark.parametrize("sampling", [Sampling(1, 0.8, 0.9), Sampling(1, 1.5, 0.99), Sampling(1, 1.0, 1.0)])
def test_every_width_of_the_search_draws_the_same_token(
    size: int, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(300, size, generator=torch.Generator().manual_seed(1)) * 3
    kept = logits.clone()
    fast, _ = draw(logits, sampling, range(300), 0)
    assert torch.equal(logits, kept), "logits are read only"
    monkeypatch.setattr("rolecraft.models._sampling._WIDTHS", (1,))
    narrow, _ = draw(logits, sampling, range(300), 0)
    assert torch.equal(fast, narrow)
    monkeypatch.setattr("rolecraft.models._sampling._WIDTHS", ())
    full, _ = draw(logits, sampling, range(300), 0)
    assert torch.equal(fast, full)


def test_a_row_draws_the_same_whatever_its_neighbours() -> None:
    logits = torch.randn(64, 500, generator=torch.Generator().manual_seed(2))
    sampling = Sampling(1, 1.0, 0.95)
    together, _ = draw(logits, sampling, range(64), 5)
    alone = torch.cat([draw(logits[row : row + 1], sampling, [row], 5)[0] for row in range(64)])
    assert torch.equal(together, alone)


def test_uniforms_depend_on_seed_and_step_and_are_uniform() -> None:
    grid = np.stack([uniforms(range(-50, 450), step) for step in range(40)])
    assert len(np.unique(grid)) == grid.size
    assert np.array_equal(uniforms([7, 3], 2), uniforms([3, 7], 2)[::-1])
    counts, _ = np.histogram(grid, bins=20, range=(0, 1))
    assert chisquare(counts).pvalue > 1e-3
    for a, b in ((grid[:-1].ravel(), grid[1:].ravel()), (grid[:, :-1].ravel(), grid[:, 1:].ravel())):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1, 0.7, 0.9)])
def test_unfit_rows_are_named_and_leave_the_others_alone(sampling: Sampling) -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(3))
    clean, _ = draw(logits, sampling, range(5), 0)
    bad = logits.clone()
    bad[1, 7], bad[2, 9], bad[3] = float("nan"), float("inf"), float("-inf")
    tokens, fit = draw(bad, sampling, range(5), 0)
    assert fit.tolist() == [True, False, False, False, True]
    assert tokens[[0, 4]].tolist() == clean[[0, 4]].tolist()
    masked = logits.clone()
    masked[0, :299] = float("-inf")
    assert draw(masked, sampling, range(5), 0)[0][0] == 299

"""Drawing tokens: a row's draw depends on its own seed, step and logits alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolecraft.models._base import Sampling

_WIDTHS = (64, 1024)
"""Most probable tokens looked at before a row's whole vocabulary is sorted."""


def uniforms(seeds: Sequence[int], step: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) per seed: a counter-based generator (SplitMix64 of seed, then of step).

    Args:
        seeds: Any integers; only their low 64 bits count.
        step: Index of the new token.
    """
    state = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
    with np.errstate(over="ignore"):
        state = _mix(state) + np.uint64(step + 1) * np.uint64(0x9E3779B97F4A7C15)
    return (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


def draw(logits: Tensor, sampling: Sampling, seeds: Sequence[int], step: int) -> tuple[Tensor, Tensor]:
    """Draw one token per row.

    The nucleus is the smallest set of most probable tokens whose mass reaches `top_p`; the draw inverts the
    distribution over it, most probable first.

    Args:
        logits: Shape (rows, vocabulary).
        sampling: Temperature and nucleus mass.
        seeds: One seed per row.
        step: Index of the new token.

    Returns:
        Tokens (rows,), and whether each row's logits were fit to draw from (no NaN, no positive infinity,
        not all negative infinity); the token of an unfit row is 0.
    """
    if sampling.temperature == 0:
        peak, tokens = logits.max(dim=-1)
    else:
        draws = torch.from_numpy(uniforms(seeds, step)).to(logits.device)
        peak, tokens = _nucleus(logits, sampling, draws)
    fit = peak.isfinite()
    return tokens.where(fit, 0), fit


def _nucleus(logits: Tensor, sampling: Sampling, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Draw from the nucleus of each row of `logits` (rows, vocabulary) by inverting at `draws` in [0, 1).

    A few most probable candidates are looked at first. Where what the rest of the vocabulary can weigh does not
    change how many of them form the nucleus, the row is drawn from them; the other rows look at more, in the end
    at the whole vocabulary.

    Returns:
        The largest logit and the drawn token of each row; a row whose largest logit is not finite draws anything.
    """
    size = logits.shape[1]
    tokens = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    peaks = logits.new_zeros(len(logits))
    todo = torch.arange(len(logits), device=logits.device)
    for width in (*(w for w in _WIDTHS if w < size), size):
        rows = logits if len(todo) == len(logits) else logits[todo]
        values, candidates = rows.topk(width) if width < size else rows.sort(dim=-1, descending=True, stable=True)
        if len(todo) == len(logits):
            peaks = values[:, 0]
        mass = _weights(values, values, sampling).cumsum(-1)
        cut, closed = _cut(mass, _total(rows, values, mass, sampling), sampling.top_p)
        closed |= width == size
        place = torch.searchsorted(mass, draws[todo, None] * mass.gather(1, cut), right=True).minimum(cut)
        tokens[todo[closed]] = candidates.gather(1, place)[closed, 0]
        todo = todo[~closed]
        if not len(todo):
            break
    return peaks, tokens


def _weights(logits: Tensor, ranked: Tensor, sampling: Sampling) -> Tensor:
    """Return unnormalised probabilities of `logits`; the first of `ranked`, the largest logit, weighs 1."""
    return ((logits.double() - ranked[:, :1].double()) / sampling.temperature).exp()


def _total(rows: Tensor, ranked: Tensor, mass: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return bounds (rows, 1) on the weight of the whole vocabulary; equal ones beyond the fewest candidates."""
    seen = mass[:, -1:]
    if ranked.shape[1] == _WIDTHS[0]:
        rest = rows.shape[1] - ranked.shape[1]
        return seen, seen + rest * _weights(ranked[:, -1:], ranked, sampling)
    exact = seen if ranked.shape == rows.shape else _weights(rows, ranked, sampling).sum(-1, keepdim=True)
    return exact, exact


def _cut(mass: Tensor, bounds: tuple[Tensor, Tensor], top_p: float) -> tuple[Tensor, Tensor]:
    """Return the place of the nucleus's last token (rows, 1), and for which rows (rows,) the bounds agree on it."""
    low, high = ((mass < top_p * bound).sum(-1, keepdim=True) for bound in bounds)
    width = mass.shape[1]
    return high.clamp(max=width - 1), ((low == high) & (high < width))[:, 0]

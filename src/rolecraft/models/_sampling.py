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
_ROUNDING = 1e-5
"""Of a sum of the vocabulary's weights in float32, more than it can be wrong by."""


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

    A few most probable candidates are looked at first, with bounds on what the whole vocabulary weighs. Where the draw
    falls on the same candidate at either bound, it is the one that sorting everything would give; the other rows look
    closer, in the end at the whole vocabulary.

    Returns:
        The largest logit and the drawn token of each row; a row whose largest logit is not finite draws anything.
    """
    size = logits.shape[1]
    peaks = logits.amax(dim=-1)
    tokens = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    todo = torch.arange(len(logits), device=logits.device)
    bounds: tuple[Tensor, Tensor] | None = None
    for width in (*(w for w in _WIDTHS if w < size), size):
        rows = logits if len(todo) == len(logits) else logits[todo]
        values, candidates = rows.topk(width) if width < size else rows.sort(dim=-1, descending=True, stable=True)
        mass = ((values.double() - values[:, :1].double()) / sampling.temperature).exp().cumsum(-1)
        if bounds is None:
            lightest = mass[:, -1:] - mass[:, -2:-1] if width > 1 else mass
            places, settled = _invert(mass, (mass[:, -1:], mass[:, -1:] + (size - width) * lightest), sampling, draws)
            if width < size and not settled.all():
                bounds = _weigh(rows, values[:, :1], sampling)
        if bounds is not None:
            exact = (mass[:, -1:], mass[:, -1:]) if width == size else bounds
            places, settled = _invert(mass, exact, sampling, draws[todo])
        settled |= width == size
        tokens[todo[settled]] = candidates.gather(1, places)[settled, 0]
        todo = todo[~settled]
        if not len(todo):
            break
        bounds = None if bounds is None else (bounds[0][~settled], bounds[1][~settled])
    return peaks, tokens


def _weigh(rows: Tensor, peaks: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return bounds (rows, 1) on the weight of the whole vocabulary, where the largest logit weighs 1."""
    scaled = (rows.float() - peaks.float()).div_(sampling.temperature)
    total = scaled.exp_().sum(-1, keepdim=True).double()
    return total * (1 - _ROUNDING), total * (1 + _ROUNDING)


def _invert(mass: Tensor, bounds: tuple[Tensor, Tensor], sampling: Sampling, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Find where each row's draw falls among its candidates.

    Args:
        mass: Cumulative weights of the candidates, most probable first, (rows, candidates).
        bounds: Least and largest weight (rows, 1) that the whole vocabulary may have.
        sampling: Gives the nucleus's share of that weight.
        draws: One number in [0, 1) per row.

    Returns:
        Places (rows, 1), and for which rows (rows,) both bounds give the same one.
    """
    width = mass.shape[1]
    lightest = mass[:, -1:] - mass[:, -2:-1] if width > 1 else mass
    places = []
    for bound, beyond in zip(bounds, (torch.zeros_like(lightest), lightest), strict=True):
        cut = (mass < sampling.top_p * bound).sum(-1, keepdim=True)
        # Beyond the candidates the nucleus exceeds its share by no more than one token, lighter than all of them.
        outside = (sampling.top_p * bound + beyond).minimum(bound)
        nucleus = torch.where(cut < width, mass.gather(1, cut.clamp(max=width - 1)), outside)
        places.append(torch.searchsorted(mass, draws[:, None] * nucleus, right=True))
    low, high = places
    return low.clamp(max=width - 1), ((low == high) & (low < width))[:, 0]

"""Drawing tokens: a row's draw depends on its own seed, step and logits alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolecraft.models._base import Sampling

_TOP = 64
"""Candidates looked at before a row's whole vocabulary is sorted."""


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
    peak, best = logits.max(dim=-1)
    fit = peak.isfinite()
    if sampling.temperature == 0:
        return best.where(fit, 0), fit
    tokens = best.where(fit, 0)
    live = fit.nonzero()[:, 0]
    if len(live):
        scaled = (logits if len(live) == len(logits) else logits[live]).float() / sampling.temperature
        draws = torch.from_numpy(uniforms([seeds[i] for i in live.tolist()], step)).to(logits.device)
        tokens[live] = _nucleus(scaled, sampling.top_p, draws)
    return tokens, fit


def _nucleus(scaled: Tensor, top_p: float, draws: Tensor) -> Tensor:
    """Draw from the nucleus of each row of `scaled` (rows, vocabulary) by inverting at `draws` in [0, 1)."""
    log_norm = scaled.logsumexp(-1, keepdim=True)
    values, candidates = scaled.topk(min(_TOP, scaled.shape[1]), dim=-1)
    mass = (values - log_norm).double().exp().cumsum(-1)
    tokens = _invert(mass, candidates, top_p, draws)
    wide = (mass[:, -1] < top_p).nonzero()[:, 0]
    if len(wide) and candidates.shape[1] < scaled.shape[1]:
        values, candidates = scaled[wide].sort(dim=-1, descending=True, stable=True)
        mass = (values - log_norm[wide]).double().exp().cumsum(-1)
        tokens[wide] = _invert(mass, candidates, top_p, draws[wide])
    return tokens


def _invert(mass: Tensor, candidates: Tensor, top_p: float, draws: Tensor) -> Tensor:
    """Pick from `candidates` (rows, k) with cumulative `mass` (rows, k), cut where it first reaches `top_p`."""
    kept = ((mass < top_p).sum(-1, keepdim=True)).clamp(max=mass.shape[1] - 1)
    target = draws[:, None] * mass.gather(1, kept)
    place = torch.searchsorted(mass, target, right=True).clamp(max=kept)
    return candidates.gather(1, place)[:, 0]

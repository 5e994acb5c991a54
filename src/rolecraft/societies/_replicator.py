"""Replicator dynamics: large populations in which strategies grow by what they earn above the mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.errors import UserError
from rolecraft.societies._game import Floats, Game


def replicator_rates(game: Game, shares: ArrayLike) -> Floats:
    """Return dx_i/dt = x_i ((M x)_i - x M x) (Taylor and Jonker 1978).

    Args:
        game: The game.
        shares: Shape (..., strategies), each row a point of the simplex.

    Returns:
        The same shape; rows sum to 0.

    Raises:
        UserError: If the shares do not fit the game.
    """
    return _rates(game.payoffs, _shares(game, shares))


def replicator(game: Game, start: ArrayLike, *, time: float, step: float = 0.01) -> Floats:
    """Integrate the replicator equation by the classical Runge-Kutta rule of fourth order.

    Args:
        game: The game.
        start: Shape (..., strategies): one or many starting points, integrated side by side.
        time: Until when, above 0.
        step: Of the integration; the last ones are equal parts of `time` no longer than this.

    Returns:
        Shape (steps + 1, ..., strategies): the shares at every step, the start first.

    Raises:
        UserError: If the shares do not fit the game, or time or step is not positive.
    """
    shares = _shares(game, start)
    if not (time > 0 and step > 0):
        raise UserError(f"time and step must be above 0, got {time} and {step}.")
    steps = int(np.ceil(time / step))
    h, payoffs = time / steps, game.payoffs
    path = np.empty((steps + 1, *shares.shape))
    path[0] = shares
    for number in range(steps):
        a = _rates(payoffs, shares)
        b = _rates(payoffs, shares + h / 2 * a)
        c = _rates(payoffs, shares + h / 2 * b)
        d = _rates(payoffs, shares + h * c)
        shares = np.maximum(shares + h / 6 * (a + 2 * b + 2 * c + d), 0)
        shares = shares / shares.sum(-1, keepdims=True)
        path[number + 1] = shares
    return path


def _rates(payoffs: Floats, shares: Floats) -> Floats:
    fitness = shares @ payoffs.T
    rates: Floats = shares * (fitness - (shares * fitness).sum(-1, keepdims=True))
    return rates


def _shares(game: Game, shares: ArrayLike) -> Floats:
    array = np.asarray(shares, dtype=float)
    if array.ndim < 1 or array.shape[-1] != len(game):
        raise UserError(f"shares: expected shape (..., strategies) = (..., {len(game)}), got {array.shape}.")
    if not (array >= 0).all() or (np.abs(array.sum(-1) - 1) > 1e-9).any():
        raise UserError("shares: every row must be at least 0 throughout and sum to 1.")
    return array

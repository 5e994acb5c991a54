"""Agreement among many agents on many items, beyond chance."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.errors import UserError
from rolecraft.measures._consistency import Figure
from rolecraft.measures._population import LEAST, _multinomial, _span
from rolecraft.measures._statistics import Floats


def krippendorff_alpha(
    table: ArrayLike, level: Literal["nominal", "interval"] = "nominal", *, draws: int = 1000, seed: int = 0
) -> Figure:
    """Return Krippendorff's alpha: how far agents agree on items beyond chance; 1 wholly, 0 as by chance.

    Args:
        table: Shape (agents, items): codes of answers, or numbers; NaN where an agent did not answer.
        level: `nominal`: answers are the same or not; `interval`: they differ by the square of their difference.
        draws: Bootstrap resamples of the items.
        seed: Of the resampling.

    Raises:
        UserError: If the table has another shape or the level is unknown.
    """
    given = np.asarray(table, dtype=float)
    if given.ndim != 2 or level not in ("nominal", "interval"):
        raise UserError(
            f"expected a table (agents, items) and level nominal or interval, got {given.shape}, {level!r}."
        )
    kept = np.isfinite(given).sum(0) > 1
    items = given[:, kept]
    n = items.shape[1]
    if n < 2:
        return Figure(
            math.nan, math.nan, math.nan, n, f"{n} items answered by two agents or more, at least 2 are needed"
        )
    answers, inverse = np.unique(items[np.isfinite(items)], return_inverse=True)
    if len(answers) < 2:
        return Figure(math.nan, math.nan, math.nan, n, "all answers are the same, so that agreement cannot be told")
    counts = np.zeros((n, len(answers)))
    np.add.at(counts, (np.nonzero(np.isfinite(items))[1], inverse), 1.0)
    cost = np.subtract.outer(answers, answers) ** 2 if level == "interval" else 1.0 - np.eye(len(answers))
    size = counts.sum(1)
    apart = np.einsum("ic,cd,id->i", counts, cost, counts) / (size - 1)

    def alpha(weights: Floats) -> Floats:
        pooled, number = weights @ counts, weights @ size
        with np.errstate(invalid="ignore", divide="ignore"):
            chance = np.einsum("bc,cd,bd->b", pooled, cost, pooled) / (number - 1)
            return np.asarray(np.where(chance > LEAST, 1 - weights @ apart / chance, math.nan))

    whole = float(alpha(np.ones((1, n)))[0])
    resampled = alpha(_multinomial(np.random.default_rng(seed), n, draws))
    return Figure(whole, *_span(whole, resampled, n, -math.inf, 1.0), n)

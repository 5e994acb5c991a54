"""Social evaluations as one reward: dimensions of different ranges are scaled before they are summed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rolecraft._options import refuse_unknown
from rolecraft.errors import UserError
from rolecraft.measures import SOTOPIA_DIMENSIONS, SocialDimension


def social_reward(
    scores: Mapping[str, float | None],
    dimensions: Sequence[SocialDimension] = SOTOPIA_DIMENSIONS,
    weights: Mapping[str, float] | None = None,
) -> float | None:
    """Return the weighted sum of a participant's dimensions, each brought to 0..1 by its own range.

    Args:
        scores: Dimension to value; None, or no entry, where the evaluator gave none.
        dimensions: What is scored, with ranges.
        weights: By dimension; a weight of 0 leaves it out. None: 1 each.

    Returns:
        None if a dimension that counts has no value: such a participant is masked, not paid 0.

    Raises:
        UserError: If a score is of a dimension whose range is not known, or lies outside its range, or a weight is of
            no dimension or not finite.
    """
    ranges = {dimension.name: dimension for dimension in dimensions}
    refuse_unknown(scores, ranges, "social reward (scores)", "dimension with a known range")
    refuse_unknown(weights or {}, ranges, "social reward (weights)", "dimension with a known range")
    total = 0.0
    for name, dimension in ranges.items():
        weight = (weights or {}).get(name, 0.0 if weights else 1.0)
        if not math.isfinite(weight):
            raise UserError(f"social reward: the weight of {name} must be a finite number, got {weight!r}.")
        value = scores.get(name)
        if value is not None and not dimension.low <= value <= dimension.high:
            raise UserError(f"social reward: {name} must lie in {dimension.low:g}..{dimension.high:g}, got {value!r}.")
        if not weight:
            continue
        if value is None:
            return None
        total += weight * (value - dimension.low) / (dimension.high - dimension.low)
    return total

"""Several objectives at once: which points no other beats, and how much space they dominate. Larger is better."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError

Floats = NDArray[np.float64]


def pareto_front(points: ArrayLike) -> NDArray[np.int64]:
    """Return the places of the points that no other point dominates, in their order.

    A point dominates another if it is nowhere lower and somewhere higher. Of equal points the first one counts.

    Args:
        points: Shape (N, D).

    Raises:
        UserError: If the shape is another or a number is not finite.
    """
    array = _points(points)
    distinct, first = np.unique(array, axis=0, return_index=True)
    if not len(distinct):
        return first.astype(np.int64)
    below = np.ones((len(distinct), len(distinct)), dtype=bool)
    for column in distinct.T:
        below &= column[:, None] <= column[None, :]
    return np.asarray(np.sort(first[below.sum(1) == 1]), dtype=np.int64)


def hypervolume(points: ArrayLike, reference: ArrayLike) -> float:
    """Return the exact volume that is dominated by the points and dominates the reference.

    By exclusive volumes (the method of While, Bradstreet and Barone 2012): with the points in falling order of one
    objective, each adds its box less what the boxes before it cover of it, a volume with one objective fewer. Good for
    some hundred points of five objectives.

    Args:
        points: Shape (N, D); parts below the reference count for nothing.
        reference: Shape (D,), or one number for all dimensions.

    Raises:
        UserError: If a shape does not fit or a number is not finite.
    """
    array = _points(points)
    low = np.asarray(reference, dtype=np.float64)
    if low.ndim > 1 or (low.ndim == 1 and low.shape != array.shape[1:]) or not np.isfinite(low).all():
        raise UserError(f"hypervolume: expected {array.shape[1]} finite numbers as reference, got {reference!r}.")
    sides = array - low
    sides = sides[(sides > 0).all(1)]
    return _volume(sides[pareto_front(sides)])


def _volume(front: Floats) -> float:
    """Return the volume of the union of boxes from 0 to each point of a front."""
    if len(front) < 2:
        return float(front.prod(1).sum())
    front = front[np.argsort(-front[:, 0], kind="stable")]
    if front.shape[1] == 2:
        return float((front[:, 0] * np.diff(front[:, 1], prepend=0.0)).sum())
    total = 0.0
    for place, point in enumerate(front):
        covered = np.minimum(front[:place, 1:], point[1:])
        total += float(point[0]) * (float(point[1:].prod()) - _volume(covered[pareto_front(covered)]))
    return total


def _points(points: ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or not array.shape[1]:
        raise UserError(f"expected points of shape (points, objectives), got shape {array.shape}.")
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(1))[0])
        raise UserError(f"point {row} is {array[row].tolist()}; all its objectives must be finite.")
    return array

"""Linear probes: how well a property can be read from hidden states, cross-validated, site by site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError


def probe(features: ArrayLike, labels: Sequence[bool], folds: int = 5, seed: int = 0) -> NDArray[np.bool_]:
    """Return which rows a logistic regression that was fitted without them tells right.

    Features are standardised on the training rows; classes weigh the same whatever their sizes.

    Args:
        features: Shape (rows, size), finite.
        labels: One per row.
        folds: Parts; each holds both classes in the proportion of the whole.
        seed: Of the parting.

    Raises:
        UserError: If shapes do not match, a value is not finite, or a class has fewer rows than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    x, y = np.asarray(features, dtype=float), np.asarray(labels, dtype=bool)
    if x.ndim != 2 or len(x) != len(y) or not np.isfinite(x).all():
        raise UserError(f"a probe needs finite features (rows, size) and a label for each, got shape {x.shape}.")
    smaller = int(min(y.sum(), (~y).sum()))
    if folds < 2 or smaller < folds:
        raise UserError(f"a probe with {folds} folds needs that many rows of each class, got {smaller} of the smaller.")
    parts = StratifiedKFold(folds, shuffle=True, random_state=seed)
    right: NDArray[np.bool_] = cross_val_predict(_classifier(), x, y, cv=parts) == y
    return right


def probe_sites(features: ArrayLike, labels: Sequence[bool], folds: int = 5, seed: int = 0) -> NDArray[np.bool_]:
    """Probe every site with the same parts; features (rows, sites, size), result (sites, rows). See `probe`."""
    x = np.asarray(features, dtype=float)
    if x.ndim != 3:
        raise UserError(f"probes of sites need features of shape (rows, sites, size), got {x.shape}.")
    return np.stack([probe(x[:, site], labels, folds, seed) for site in range(x.shape[1])])


def probe_others(features: ArrayLike, labels: Sequence[bool], others: ArrayLike) -> NDArray[np.bool_]:
    """Fit the same probe on all rows and return what it says of other rows, shape (others,)."""
    found: NDArray[np.bool_] = _classifier().fit(np.asarray(features), np.asarray(labels)).predict(np.asarray(others))
    return found


def _classifier() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, class_weight="balanced"))


def balanced_accuracy(right: NDArray[np.bool_], labels: Sequence[bool]) -> float:
    """Return the mean over the two classes of the share that is right, in [0, 1]; chance is 0.5."""
    y = np.asarray(labels, dtype=bool)
    return float((right[y].mean() + right[~y].mean()) / 2)

"""The coefficients of the offline judge: what they are, and how they are fitted to labelled cases."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rolecraft._files import bundled, read_mapping
from rolecraft.measures._statistics import Floats

Features = Mapping[str, float]
"""Raw features of one answer, by name; see `OfflineJudge.details`."""

SOUNDNESS = ("bigram_shortfall", "max_trigram_share", "excess_surprise")
"""Features of the health gate, larger for worse text."""
ALIGNMENT = ("contrast", "profile_margin", "voice_margin", "self_share", "no_leakage")
"""Features of the overall dimension, larger for closer to the role."""
CLOSENESS: dict[str, tuple[str, ...]] = {
    "emotional_register": ("affect_closeness",),
    "vocabulary_choice": ("lexical_overlap", "reference_similarity"),
    "social_dynamic": ("stance_closeness",),
    "motivation": ("goals_margin",),
    "worldview_alignment": ("values_margin",),
}
"""Features of the other dimensions, larger for closer to the role or to the prompted reference."""
TARGETS = {1: 0.1, 2: 0.5, 3: 0.9}
"""Overall alignment, as a share of 100, at which the fit aims for each label of sound text."""
LEVELS = (0.3, 0.7)
"""Overall alignment, as a share of 100, that parts label 1 from 2, and 2 from 3."""
_PENALTY = 0.02
"""Weight of the squared coefficients (of standardised features) against the mean log loss."""
_NORMAL = 1.702
"""Slope at which a logistic curve follows the normal distribution function."""


@dataclass(frozen=True)
class Logistic:
    """A logistic curve over standardised features, none of whose weights is negative."""

    weights: dict[str, float]
    intercept: float
    centre: dict[str, float]
    scale: dict[str, float]

    def __call__(self, features: Features) -> float:
        """Return a share in (0, 1)."""
        value = self.intercept + sum(
            weight * (features[name] - self.centre[name]) / self.scale[name] for name, weight in self.weights.items()
        )
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, value))))


@dataclass(frozen=True)
class OfflineFit:
    """All that the offline judge has learnt."""

    made_with: dict[str, str]
    """`model`, `revision`, `embedder`, `embedder_revision`."""
    usual_surprise: float
    """Surprise (nats per token) that sound text seldom exceeds."""
    broken: Logistic
    """Share of broken text over `SOUNDNESS`."""
    overall: Logistic
    """Alignment of sound text over `ALIGNMENT`."""
    unsteered: dict[str, tuple[float, float]]
    """Centre and spread of each closeness feature over the embedded model's unsteered answers."""
    out_of_sample: dict[str, float] = field(default_factory=dict)
    """Agreement on cases of roles that were left out of the fit; see `cross_validate`."""
    version: str = "1"

    @property
    def hash(self) -> str:
        """Content hash: 16 hex digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """Return the file `offline-judge-v1.json`, coefficients to six digits."""
        return json.dumps(asdict(self), indent=1, default=float) + "\n"

    def soundness(self, features: Features) -> float:
        """Return the share in [0, 1] by which text counts as sound; 0 for degenerate text."""
        return 0.0 if features["degenerate"] else 1 - self.broken(self.shaped(features))

    def shaped(self, features: Features) -> dict[str, float]:
        """Add the features of the gate."""
        return dict(features) | {
            "bigram_shortfall": 1 - features["unique_bigram_ratio"],
            "excess_surprise": max(0.0, features["surprise"] - self.usual_surprise),
        }

    def closeness(self, dimension: str, features: Features) -> float:
        """Return in [0, 1] what share of unsteered answers would be less close (normal approximation)."""
        standing = [
            (features[name] - self.unsteered[name][0]) / self.unsteered[name][1] for name in CLOSENESS[dimension]
        ]
        return 1 / (1 + math.exp(-_NORMAL * max(-20.0, min(20.0, sum(standing) / len(standing)))))


@cache
def bundled_fit() -> OfflineFit:
    """Return the fit for the embedded model and MiniLM that the package ships."""
    data: dict[str, Any] = read_mapping(bundled("measures", "offline-judge-v1"))
    curves = {name: Logistic(**data[name]) for name in ("broken", "overall")}
    spread = {name: (float(pair[0]), float(pair[1])) for name, pair in data["unsteered"].items()}
    return OfflineFit(**(data | curves | {"unsteered": spread}))


def fit_coefficients(
    features: Sequence[Features],
    labels: Sequence[int],
    unsteered: Sequence[Features],
    made_with: dict[str, str],
) -> OfflineFit:
    """Fit the judge to labelled answers.

    Args:
        features: Raw features of the labelled answers.
        labels: 0 broken text, 1 not, 2 partly, 3 fully in role.
        unsteered: Raw features of unsteered answers, which set the scale of the style and content dimensions.
        made_with: See `OfflineFit`.
    """
    label = np.asarray(labels)
    surprise = np.array([row["surprise"] for row in features])
    usual = float(np.quantile(surprise[label > 0], 0.75))
    blank = Logistic({}, 0.0, {}, {})
    start = OfflineFit(made_with=made_with, usual_surprise=_rounded(usual), broken=blank, overall=blank, unsteered={})
    shaped = [start.shaped(row) for row in features]
    sound = [row for row, value in zip(shaped, label, strict=True) if value > 0]
    targets = np.array([TARGETS[int(value)] for value in label if value > 0])
    names = {name for group in CLOSENESS.values() for name in group}
    return OfflineFit(
        made_with=made_with,
        usual_surprise=start.usual_surprise,
        broken=_fit_logistic(shaped, (label == 0).astype(float), SOUNDNESS),
        overall=_fit_logistic(sound, targets, ALIGNMENT),
        unsteered={name: _spread([row[name] for row in unsteered]) for name in sorted(names)},
    )


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and a standard deviation from the quartiles, which single odd answers do not move."""
    array = np.array(values)
    array = array[np.isfinite(array)]
    low, centre, high = np.quantile(array, [0.25, 0.5, 0.75]) if len(array) else (0.0, 0.0, 0.0)
    return _rounded(float(centre)), _rounded(max(float(high - low) / 1.349, 1e-3))


def _fit_logistic(rows: Sequence[Features], targets: Floats, names: Sequence[str]) -> Logistic:
    """Minimise the log loss against target shares, with ridge penalty and weights of at least 0."""
    from scipy.optimize import minimize

    raw = np.array([[row[name] for name in names] for row in rows])
    centre, scale = raw.mean(0), np.maximum(raw.std(0), 1e-6)
    x = (raw - centre) / scale

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, z = parameters[:-1], x @ parameters[:-1] + parameters[-1]
        value = float(np.mean(np.logaddexp(0, z) - targets * z) + _PENALTY * weights @ weights)
        error = 1 / (1 + np.exp(-z)) - targets
        gradient = np.append(x.T @ error / len(x) + 2 * _PENALTY * weights, error.mean())
        return value, gradient

    bounds = [(0.0, None)] * len(names) + [(None, None)]
    found = minimize(loss, np.zeros(len(names) + 1), jac=True, bounds=bounds, method="L-BFGS-B").x
    return Logistic(
        dict(zip(names, map(_rounded, found[:-1]), strict=True)),
        _rounded(found[-1]),
        dict(zip(names, map(_rounded, centre), strict=True)),
        dict(zip(names, map(_rounded, scale), strict=True)),
    )


def _rounded(value: float) -> float:
    return float(f"{float(value):.6g}")


def cross_validate(
    features: Sequence[Features], labels: Sequence[int], roles: Sequence[str], unsteered: Sequence[Features]
) -> list[float]:
    """Score every case (0..100 overall) by a fit from which all cases of its role were left out."""
    scores = [math.nan] * len(labels)
    for role in dict.fromkeys(roles):
        kept = [place for place, other in enumerate(roles) if other != role]
        fit = fit_coefficients([features[i] for i in kept], [labels[i] for i in kept], unsteered, {})
        for place, other in enumerate(roles):
            if other == role:
                scores[place] = overall_score(fit, features[place])
    return scores


def overall_score(fit: OfflineFit, features: Features) -> float:
    """Return the overall dimension, 0..100: alignment where the text is sound, towards 0 where it is broken."""
    return 100 * fit.soundness(features) * fit.overall(features)

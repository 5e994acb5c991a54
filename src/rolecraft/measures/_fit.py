"""The coefficients of the offline judge: what they are, and how they are fitted to labelled cases."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from rolecraft._files import bundled, read_mapping
from rolecraft.measures._statistics import Floats

Features = Mapping[str, float]
"""Raw features of one answer, by name; see `OfflineJudge.details`."""

SOUNDNESS = ("bigram_shortfall", "max_trigram_share", "excess_surprise")
"""Features of the health gate, larger for worse text."""
MANNER = ("contrast", "self_share", "no_leakage")
"""Features by which someone in a role is told from an adviser outside it."""
IDENTITY = ("contrast", "profile_margin", "voice_margin")
"""Features by which the role itself is told from other roles."""
CLOSENESS: dict[str, tuple[str, ...]] = {
    "emotional_register": ("affect_closeness",),
    "vocabulary_choice": ("lexical_overlap", "voice_margin"),
    "social_dynamic": ("stance_closeness",),
    "motivation": ("goals_margin",),
    "worldview_alignment": ("values_margin",),
}
"""Features of the other dimensions, larger for closer to the role or to the prompted reference."""
TARGETS = {1: 0.1, 2: 0.5, 3: 0.9}
"""In-role share at which the fit aims for each label of sound text."""
LEVELS = (0.3, 0.7)
"""Overall alignment, as a share of 100, that parts label 1 from 2, and 2 from 3."""
_MAX_SELF_SHARE = 0.1
"""Share of self reference beyond which more of it says no more (fully in role: 0.07 on average)."""
_PENALTY = 0.005
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
    manner: Logistic
    """In-role share of sound text over `MANNER`."""
    identity: Logistic
    """Over `IDENTITY`, the probability that the role is the one spoken of, against another at even odds."""
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

    def overall(self, features: Features) -> float:
        """Return the overall dimension, 0..100: soundness x manner x identity (where the last is in doubt)."""
        shaped = self.shaped(features)
        return 100 * self.soundness(features) * self.manner(shaped) * min(1.0, 2 * self.identity(shaped))

    def shaped(self, features: Features) -> dict[str, float]:
        """Add the features of the gate, and bound self reference."""
        return dict(features) | {
            "self_share": min(features["self_share"], _MAX_SELF_SHARE),
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
    curves = {name: Logistic(**data[name]) for name in ("broken", "manner", "identity")}
    spread = {name: (float(pair[0]), float(pair[1])) for name, pair in data["unsteered"].items()}
    return OfflineFit(**(data | curves | {"unsteered": spread}))


@dataclass(frozen=True)
class Labelled:
    """Features of labelled answers, of the same answers given out as other roles', and of unsteered answers."""

    features: Sequence[Features]
    labels: Sequence[int]
    """0 broken text, 1 not, 2 partly, 3 fully in role."""
    roles: Sequence[str]
    mistaken: Sequence[Features]
    """Answers with label 2 or 3, judged as another role's."""
    mistaken_roles: Sequence[tuple[str, str]]
    """Role that spoke, and role it is judged as."""
    unsteered: Sequence[Features]
    """These set the scale of the style and content dimensions."""

    def without(self, role: str) -> Labelled:
        """Return the part in which a role neither speaks nor is judged."""
        kept = [place for place, own in enumerate(self.roles) if own != role]
        others = [place for place, pair in enumerate(self.mistaken_roles) if role not in pair]
        return Labelled(
            [self.features[i] for i in kept],
            [self.labels[i] for i in kept],
            [self.roles[i] for i in kept],
            [self.mistaken[i] for i in others],
            [self.mistaken_roles[i] for i in others],
            self.unsteered,
        )


def fit_coefficients(data: Labelled, made_with: dict[str, str]) -> OfflineFit:
    """Fit the three curves to labelled answers and measure the unsteered ones.

    Args:
        data: Raw features and labels.
        made_with: See `OfflineFit`.
    """
    labels = np.asarray(data.labels)
    surprise = np.array([row["surprise"] for row in data.features])
    usual = _rounded(float(np.quantile(surprise[labels > 0], 0.75)))
    blank = Logistic({}, 0.0, {}, {})
    start = OfflineFit(made_with, usual, broken=blank, manner=blank, identity=blank, unsteered={})
    shaped = [start.shaped(row) for row in data.features]
    sound = [row for row, label in zip(shaped, labels, strict=True) if label > 0]
    in_role = [row for row, label in zip(shaped, labels, strict=True) if label > 1]
    mistaken = [start.shaped(row) for row in data.mistaken]
    own = np.repeat([1.0, 0.0], [len(in_role), len(mistaken)])
    names = sorted({name for group in CLOSENESS.values() for name in group})
    return replace(
        start,
        broken=_fit_logistic(shaped, (labels == 0).astype(float), SOUNDNESS),
        manner=_fit_logistic(sound, np.array([TARGETS[int(label)] for label in labels if label > 0]), MANNER),
        identity=_fit_logistic([*in_role, *mistaken], own, IDENTITY, balanced=True),
        unsteered={name: _spread([row[name] for row in data.unsteered]) for name in names},
    )


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and a standard deviation from the quartiles, which single odd answers do not move."""
    array = np.array(values)
    array = array[np.isfinite(array)]
    low, centre, high = np.quantile(array, [0.25, 0.5, 0.75]) if len(array) else (0.0, 0.0, 0.0)
    return _rounded(float(centre)), _rounded(max(float(high - low) / 1.349, 1e-3))


def _fit_logistic(rows: Sequence[Features], targets: Floats, names: Sequence[str], balanced: bool = False) -> Logistic:
    """Minimise the log loss against target shares, with ridge penalty and weights of at least 0.

    `balanced` gives the rows with target 1 as much weight together as those with target 0.
    """
    from scipy.optimize import minimize

    raw = np.array([[row[name] for name in names] for row in rows])
    centre, scale = raw.mean(0), np.maximum(raw.std(0), 1e-6)
    x = (raw - centre) / scale
    share = targets.mean()
    mass = np.where(targets > 0.5, 0.5 / share, 0.5 / (1 - share)) if balanced else np.ones(len(x))
    mass = mass / mass.sum()

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, z = parameters[:-1], x @ parameters[:-1] + parameters[-1]
        value = float(mass @ (np.logaddexp(0, z) - targets * z) + _PENALTY * weights @ weights)
        error = mass * (1 / (1 + np.exp(-z)) - targets)
        gradient = np.append(x.T @ error + 2 * _PENALTY * weights, error.sum())
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


def cross_validate(data: Labelled) -> tuple[list[float], list[float]]:
    """Score every answer (overall, 0..100) by a fit that never saw its role.

    Returns:
        Scores of the labelled answers, and of those judged as another role's (by a fit without the latter).
    """
    own, mistaken = [math.nan] * len(data.labels), [math.nan] * len(data.mistaken)
    for role in dict.fromkeys(data.roles):
        fit = fit_coefficients(data.without(role), {})
        for place, speaker in enumerate(data.roles):
            if speaker == role:
                own[place] = fit.overall(data.features[place])
        for place, (_, judged) in enumerate(data.mistaken_roles):
            if judged == role:
                mistaken[place] = fit.overall(data.mistaken[place])
    return own, mistaken

"""Figures of the whole population: how each arm does by strength, with intervals over roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.measures import Interval, bootstrap_mean, pearson
from rolecraft.report._words import finite
from rolecraft.screening._verdict import VerdictRule

if TYPE_CHECKING:
    import pandas as pd

    from rolecraft.screening._results import Geometry, ScreenResults

Cells = dict[tuple[str, str, float], dict[str, float]]
"""(role, arm, strength) to the means of its answers: `overall, gain`, and those of `HEALTH`."""

HEALTH = ("unique_bigram_ratio", "degenerate", "leakage", "words", "perplexity")


def cell_means(table: pd.DataFrame) -> Cells:
    """Average the answers of every role, arm and strength.

    `gain` is the mean over questions of the difference to the same role's baseline on the same question: the figure
    that the verdict's interval is about.
    """
    import pandas as pd

    key = ["role", "arm", "strength"]
    answers = table[[*key, "question", "overall", *(name for name in HEALTH if name in table)]]
    answers = answers.astype({"role": "category", "arm": "category", "question": "category"})
    numeric = [name for name in HEALTH if name in answers]
    answers[numeric] = answers[numeric].apply(pd.to_numeric, errors="coerce").astype(float)
    scores = answers.groupby([*key, "question"], observed=True, sort=False)["overall"].mean().reset_index()
    baseline = scores[scores["arm"] == "baseline"][["role", "question", "overall"]]
    scores = scores.merge(baseline, on=["role", "question"], how="left", suffixes=("", "_baseline"))
    scores["gain"] = scores["overall"] - scores["overall_baseline"]
    means = scores.groupby(key, observed=True, sort=False)[["overall", "gain"]].mean()
    means = means.join(answers.groupby(key, observed=True, sort=False)[numeric].mean())
    return {
        (str(role), str(arm), float(strength)): dict(zip(means.columns, row, strict=True))
        for (role, arm, strength), row in zip(means.index, means.to_numpy(float).tolist(), strict=True)
    }


def broken_rules(cell: Mapping[str, float], rule: VerdictRule) -> list[str]:
    """Name the health rules that the answers of one cell break, in the words of the verdict."""
    checks = {
        "repetitive": cell.get("unique_bigram_ratio", np.nan) < rule.min_diversity,
        "degenerate": cell.get("degenerate", np.nan) > rule.max_degenerate,
        "leakage": cell.get("leakage", np.nan) > rule.max_leakage,
    }
    return [name for name, broken in checks.items() if broken]


def population(results: ScreenResults, cells: Cells, rule: VerdictRule) -> dict[str, Any]:
    """Return the data of the population's charts.

    Every interval resamples roles. At each strength only the roles that were scored under every arm count, so that the
    arms are compared over the same roles.
    """
    strengths = [float(s) for s in results.config["strengths"]]
    arms = [arm for arm in ("role", *results.config["control"]) if any(key[1] == arm for key in cells)]
    steered = list(dict.fromkeys(role for role, arm, _ in cells if arm == "role"))
    shared = {
        s: [r for r in steered if all(finite(cells.get((r, arm, s), {}).get("gain")) is not None for arm in arms)]
        for s in strengths
    }

    def mean(name: str, arm: str, strength: float, less: str = "") -> list[float] | None:
        roles = shared.get(strength, steered)
        values = [cells.get((role, arm, strength), {}).get(name, np.nan) for role in roles]
        if less:
            values = [value - cells[role, less, strength][name] for value, role in zip(values, roles, strict=True)]
        return _bounds(bootstrap_mean(values, level=rule.level))

    controls = [arm for arm in arms if arm != "role"] if "role" in arms else []
    return {
        "strengths": strengths,
        "gain": {arm: [mean("gain", arm, s) for s in strengths] for arm in arms},
        "prompted_gain": mean("gain", "prompted", 0.0),
        "margins": {arm: [mean("gain", "role", s, less=arm) for s in strengths] for arm in controls},
        "bigrams": {arm: [mean("unique_bigram_ratio", arm, s) for s in strengths] for arm in arms},
        "baseline_bigrams": mean("unique_bigram_ratio", "baseline", 0.0),
        "min_diversity": rule.min_diversity,
        "chosen": chosen_strengths(results.verdicts, strengths),
    }


def _bounds(found: Interval) -> list[float] | None:
    """Return [mean, low, high], the bounds equal to the mean where a single role gives no interval."""
    if finite(found.estimate) is None:
        return None
    low, high = (finite(bound) for bound in (found.low, found.high))
    middle = found.estimate
    return [round(value, 3) for value in (middle, middle if low is None else low, middle if high is None else high)]


def chosen_strengths(verdicts: pd.DataFrame, strengths: Sequence[float]) -> list[int]:
    """Count at which strength the passing roles pass."""
    chosen = verdicts["strength"][verdicts["verdict"] == "PASS"]
    return [int((chosen == strength).sum()) for strength in strengths]


def space(geometry: Geometry | None, slopes: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the data of the role space, one entry per role with a direction."""
    if geometry is None:
        return None
    points = [
        {
            "id": role,
            "xy": [_rounded(value) for value in geometry.components[i]],
            "norm": _rounded(geometry.norms[i]),
            "slope": _rounded(slopes.get(role)),
            "level": geometry.levels[i],
            "along": None if geometry.granularity is None else _rounded(geometry.granularity[i]),
        }
        for i, role in enumerate(geometry.roles)
    ]
    correlation = pearson(geometry.norms, [slopes.get(role, np.nan) for role in geometry.roles])
    return {
        "points": points,
        "explained": [share for value in geometry.explained[:2] if (share := finite(value)) is not None],
        "rank": finite(geometry.effective_rank),
        "norm_slope_r": finite(correlation.r),
        "norm_slope_n": correlation.n,
    }


def _rounded(value: object) -> float | None:
    found = finite(value)
    return None if found is None else round(found, 3)

"""What a screen found, assembled from its run directory for the report, the terminal and the user."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.measures import DIMENSIONS
from rolecraft.screening._verdict import Pairs, VerdictRule

if TYPE_CHECKING:
    import pandas as pd

    from rolecraft.roles import Inventory, QuestionBank


@dataclass(frozen=True)
class Geometry:
    """The space of the roles' directions at the steering site."""

    roles: tuple[str, ...]
    """Ids, in the order of the rows below."""
    components: NDArray[np.float64]
    """Shape (roles, 2): coordinates on the first two principal components of the centred directions."""
    explained: tuple[float, ...]
    """Share of variance per component, descending."""
    granularity: NDArray[np.float64] | None
    """Shape (roles,): projection on the granularity axis (levels 4, 5 minus levels 1, 2), where both ends have roles."""
    levels: tuple[int | None, ...]
    norms: NDArray[np.float64]
    """Shape (roles,): length of each direction at the site."""
    effective_rank: float
    """exp of the entropy of the centred directions' variance shares."""


@dataclass(frozen=True)
class ScreenResults:
    """Everything a reader of a screen needs."""

    run_id: str
    config: dict[str, Any]
    """Resolved: model, revision, inventory, strengths, controls, site, judge, seeds, thresholds ..."""
    versions: dict[str, str]
    inventory: Inventory
    questions: QuestionBank
    table: pd.DataFrame
    """One row per scored answer: `Screen.table()`, with the answer's text."""
    verdicts: pd.DataFrame
    """One row per role: `decide`, with `verdicts, same_verdict, same_strength` (stability, where there are several
    seeds) and `pairs, acceptance, split_half, norm` (extraction)."""
    curves: pd.DataFrame
    """`role, arm, strength, dimension, mean, low, high, questions`."""
    geometry: Geometry | None
    """None where fewer than three roles have a direction."""
    timings: dict[str, dict[str, float]]
    """Stage to seconds and units."""
    notes: tuple[str, ...] = ()
    """What a reader must know: failed rows, cells saved, judges' calibration, stability."""
    facts: dict[str, float] = field(default_factory=dict)
    """Figures of the whole screen: `stable_share, saved_share, judge_agreement, errors` ..."""


def curves(table: pd.DataFrame, rule: VerdictRule | None = None) -> pd.DataFrame:
    """Return the mean of every dimension per role, arm and strength, with a bootstrap interval over questions."""
    import pandas as pd

    rule = rule or VerdictRule()
    tail = (1 - rule.level) / 2
    rows = []
    for role, answers in table.groupby("role", sort=False):
        for (arm, strength), scores in Pairs(answers, rule).scores.items():
            for name, column in zip(DIMENSIONS, scores.T, strict=True):
                values = column[np.isfinite(column)]
                if len(values):
                    draws = np.random.default_rng(len(values)).integers(len(values), size=(rule.draws, len(values)))
                    low, high = np.quantile(values[draws].mean(axis=1), [tail, 1 - tail])
                    rows.append((role, arm, strength, name, values.mean(), low, high, len(values)))
    return pd.DataFrame(rows, columns=["role", "arm", "strength", "dimension", "mean", "low", "high", "questions"])

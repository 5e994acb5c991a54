"""The verdict on each role: one pure function from a table of scored answers to a table of decisions.

The shape of the rule follows CastVectors (arXiv 2608.00023): Pearson r per dimension over the strengths, roles with
r < 0 on all six dimensions called anti-controllable, health before alignment, the best strength that passes. The
intervals, the controls inside the rule and the prompt as a fallback are ours. So is one refinement: being
anti-controllable is why a role is refused, not a veto, because a curve that rises to an early peak has r < 0 too, and
its peak may be shown to beat the baseline and every control.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.measures import DIMENSIONS, bootstrap_rows, pearson, slope
from rolecraft.screening._grid import CONTROLS

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["PASS", "PASS_PROMPT_ONLY", "FLAG"]
Shape = Literal["rising", "peaked", "flat", "declining"]
Floats = NDArray[np.float64]
Key = tuple[str, float]
"""Arm and strength."""
BASELINE: Key = ("baseline", 0.0)
PROMPTED: Key = ("prompted", 0.0)
CONTROL_ARMS: tuple[str, ...] = CONTROLS


@dataclass(frozen=True)
class VerdictRule:
    """The thresholds of the verdict.

    A strength passes when its answers (a) align with the role better than the unsteered ones and (b) better than every
    control at the same strength and norm, both by the lower end of the paired interval; (c) stay healthy; and (d) no
    dimension falls below the baseline by the upper end of its interval.
    """

    level: float = 0.95
    """Confidence of a role's paired bootstrap intervals over questions, shared out over its strengths (Bonferroni): the
    verdict takes the best of them, and must not pass one by luck."""
    draws: int = 4000
    """Bootstrap draws."""
    min_gain: float = 2.0
    """Least mean gain of the overall score over the baseline, in points of 0..100: a smaller one is not worth having,
    however sure."""
    min_overall: float = 0.0
    """Least mean overall alignment, 0..100."""
    min_diversity: float = 0.5
    """Least mean unique-bigram ratio (CastVectors: 0.5)."""
    max_degenerate: float = 0.2
    """Largest share of degenerate answers."""
    max_leakage: float = 0.5
    """Largest share of answers with an assistant's phrases."""
    max_missing: float = 0.05
    """Largest share of a role's answers without a score, beyond which the screen of that role is not valid."""
    min_questions: int = 3
    """Least number of questions for an interval."""


def decide(table: pd.DataFrame, rule: VerdictRule | None = None) -> pd.DataFrame:
    """Give each role its verdict.

    Args:
        table: One row per scored answer: `role, arm, strength, question, seed`, the six dimensions (0..100, NaN where
            missing), `unique_bigram_ratio, degenerate, leakage`. Further columns are ignored.
        rule: Thresholds.

    Returns:
        One row per role, in order of appearance, with the columns of `DECISION_COLUMNS`. `strength` is NaN unless the
        verdict is PASS; gains are differences of the overall score, of the chosen strength (or where none passes of the
        best one with healthy text, if there is any) to the baseline and to the best control.
    """
    import pandas as pd

    rule = rule or VerdictRule()
    decisions = [_decide_role(str(role), Pairs(rows, rule)) for role, rows in table.groupby("role", sort=False)]
    return pd.DataFrame(decisions, columns=list(DECISION_COLUMNS))


DECISION_COLUMNS = (
    "role", "verdict", "strength", "reason", "failed", "shape", "at_edge", "anti_controllable", "r", "slope",
    "monotone", "peak", *(f"r_{name}" for name in DIMENSIONS[1:]), "baseline", "prompted", "prompted_low", "best",
    "gain", "gain_low", "gain_high", "control", "control_low", "control_high", "gain_held_out", "missing",
)  # fmt: skip


@dataclass(frozen=True)
class Contrast:
    """Means of paired differences with their intervals, each of shape (6,): one per dimension, NaN where unknown."""

    mean: Floats
    low: Floats
    high: Floats


class Pairs:
    """Scores of one role by question, averaged over seeds: the questions are the unit of resampling."""

    def __init__(self, rows: pd.DataFrame, rule: VerdictRule) -> None:
        self.rule = rule
        self.rows = rows
        cells = rows.groupby(["arm", "strength", "question"], sort=False)[list(DIMENSIONS)].mean()
        self.questions = list(dict.fromkeys(rows["question"]))
        self.scores: dict[Key, Floats] = {
            (str(arm), float(str(strength))): block.droplevel([0, 1]).reindex(self.questions).to_numpy(float)
            for (arm, strength), block in cells.groupby(level=[0, 1], sort=False)
        }
        self.overall = {key: mean for key, values in self.scores.items() if np.isfinite(mean := _mean(values[:, 0]))}
        self.strengths = sorted(strength for arm, strength in self.scores if arm == "role")

    def contrast(self, a: Key, b: Key) -> Contrast:
        """Bootstrap the mean of a - b over the questions that both answered."""
        difference = (self.scores[a] - self.scores[b]).T
        chosen_from = 1 if a == PROMPTED else max(1, len(self.strengths))
        level = 1 - (1 - self.rule.level) / chosen_from
        mean, low, high = bootstrap_rows(difference, self.rule.draws, level=level)
        few = np.isfinite(difference).sum(axis=1) < self.rule.min_questions
        return Contrast(*(np.where(few, np.nan, values) for values in (mean, low, high)))

    def fully_asked(self) -> list[float]:
        """Return the strengths that were asked as many questions as any other: the others were stopped early."""
        asked = {s: len(set(self.rows["question"][self._is(("role", s))])) for s in self.strengths}
        return [s for s, count in asked.items() if count == max(asked.values())]

    def unhealthy(self, key: Key) -> list[str]:
        """Name the health rules that the answers of one arm and strength break."""
        answers = self.rows[self._is(key)]
        checks = {
            "repetitive": answers["unique_bigram_ratio"].mean() < self.rule.min_diversity,
            "degenerate": answers["degenerate"].mean() > self.rule.max_degenerate,
            "leakage": answers["leakage"].mean() > self.rule.max_leakage,
        }
        return [name for name, broken in checks.items() if broken]

    def failures(self, key: Key) -> list[str]:
        """Name everything that keeps one arm and strength from passing."""
        if key not in self.overall or BASELINE not in self.overall:
            return ["not_scored"]
        gain = self.contrast(key, BASELINE)
        controls = [(arm, key[1]) for arm in CONTROL_ARMS if (arm, key[1]) in self.overall and key != PROMPTED]
        failed = self.unhealthy(key)
        if self.overall[key] < self.rule.min_overall:
            failed.append("below_threshold")
        if not gain.low[0] > 0 or gain.mean[0] < self.rule.min_gain:
            failed.append("no_gain_over_baseline")
        failed += [f"no_gain_over_{arm}" for arm, s in controls if not self.contrast(key, (arm, s)).low[0] > 0]
        failed += [f"declines_{name}" for name, high in zip(DIMENSIONS, gain.high, strict=True) if high < 0]
        return failed

    def _is(self, key: Key) -> pd.Series[bool]:
        return (self.rows["arm"] == key[0]) & (self.rows["strength"] == key[1])


def _mean(values: Floats) -> float:
    return float(np.mean(kept)) if len(kept := values[np.isfinite(values)]) else float("nan")


def _decide_role(role: str, pairs: Pairs) -> dict[str, Any]:
    candidates = [s for s in pairs.fully_asked() if ("role", s) in pairs.overall] if pairs.strengths else []
    failures = {s: pairs.failures(("role", s)) for s in candidates}
    curve = _curve(pairs)
    passing = [s for s in candidates if not failures[s]]
    healthy = [s for s in candidates if not pairs.unhealthy(("role", s))]  # looping text can score by lexical overlap
    best = max(passing or healthy or candidates, key=lambda s: (pairs.overall["role", s], -abs(s)), default=None)
    missing = float(pairs.rows[DIMENSIONS[0]].isna().mean())

    reasons = ["anti_controllable"] if curve["anti_controllable"] else []
    reasons += failures[best] if best is not None else ["not_steered"]
    verdict: Verdict = "FLAG"
    if missing > pairs.rule.max_missing:
        reasons.insert(0, "missing_scores")
    elif passing:
        verdict, reasons = "PASS", []
    elif not pairs.failures(PROMPTED):
        verdict = "PASS_PROMPT_ONLY"
    return {
        "role": role,
        "verdict": verdict,
        "strength": best if verdict == "PASS" else np.nan,
        "reason": reasons[0] if reasons else "",
        "failed": "; ".join(reasons),
        **curve,
        **_levels(best, pairs),
        "gain_held_out": _held_out_gain(pairs, passing or healthy or candidates),
        "missing": missing,
    }


def _curve(pairs: Pairs) -> dict[str, Any]:
    """Describe the dose-response: correlation and slope of each dimension's mean with the strength, and its shape."""
    strengths = [s for s in pairs.strengths if ("role", s) in pairs.overall]
    several = len(strengths) > 1
    x = np.array(strengths, float)
    means = np.array([[_mean(column) for column in pairs.scores["role", s].T] for s in strengths])
    r = [pearson(x, column).r for column in means.T] if several else [float("nan")] * len(DIMENSIONS)
    peak = int(np.argmax(means[:, 0])) if strengths else None
    return {
        "shape": _shape(strengths, peak, pairs) if several and peak is not None else "",
        "at_edge": several and peak == len(strengths) - 1,
        "anti_controllable": several and all(value < 0 for value in r),
        "r": r[0],
        "slope": slope(x, means[:, 0]) if several else np.nan,
        "monotone": several and bool((np.diff(means[:, 0]) > 0).all()),
        "peak": strengths[peak] if peak is not None else np.nan,
        **{f"r_{name}": value for name, value in zip(DIMENSIONS[1:], r[1:], strict=True)},
    }


def _shape(strengths: list[float], peak: int, pairs: Pairs) -> Shape:
    """Name the shape of the curve as far as the intervals between its first, highest and last point allow."""
    first, top, last = (("role", s) for s in (strengths[0], strengths[peak], strengths[-1]))
    rises = pairs.contrast(top, first).low[0] > 0
    falls = pairs.contrast(last, top).high[0] < 0
    if rises and falls:
        return "peaked"
    if falls:
        return "declining"
    return "rising" if rises else "flat"


def _levels(best: float | None, pairs: Pairs) -> dict[str, float]:
    """Return the scores beside each other: baseline, prompted reference, best strength, and the differences."""
    row = dict.fromkeys(("prompted_low", "best", "gain", "gain_low", "gain_high"), float("nan"))
    row |= dict.fromkeys(("control", "control_low", "control_high"), float("nan"))
    row |= {name: pairs.overall.get((name, 0.0), float("nan")) for name in ("baseline", "prompted")}
    if {PROMPTED, BASELINE} <= set(pairs.overall):
        row["prompted_low"] = float(pairs.contrast(PROMPTED, BASELINE).low[0])
    if best is None or BASELINE not in pairs.overall:
        return row
    key = ("role", best)
    gain = pairs.contrast(key, BASELINE)
    row |= {"best": pairs.overall[key], "gain": gain.mean[0], "gain_low": gain.low[0], "gain_high": gain.high[0]}
    controls = [(arm, best) for arm in CONTROL_ARMS if (arm, best) in pairs.overall]
    if controls:
        margin = pairs.contrast(key, max(controls, key=lambda control: pairs.overall[control]))
        row |= {"control": margin.mean[0], "control_low": margin.low[0], "control_high": margin.high[0]}
    return row


def _held_out_gain(pairs: Pairs, candidates: list[float]) -> float:
    """Choose the strength on every second question and measure its gain on the others, both ways round.

    The gain of the strength that looked best on all questions is optimistic; this one is not.
    """
    if BASELINE not in pairs.scores or not candidates:
        return float("nan")
    halves = slice(0, None, 2), slice(1, None, 2)
    gains = []
    for chosen_on, scored_on in (halves, halves[::-1]):
        means = {s: _mean(pairs.scores["role", s][chosen_on, 0]) for s in candidates}
        best = max(means, key=lambda s: np.nan_to_num(means[s], nan=-np.inf))
        gains.append(_mean((pairs.scores["role", best] - pairs.scores[BASELINE])[scored_on, 0]))
    return float(np.mean(gains))


def stability(table: pd.DataFrame, rule: VerdictRule | None = None) -> pd.DataFrame:
    """Decide each seed by itself and compare.

    Returns:
        One row per role: `role`, `verdicts` (one per seed, such as `PASS(1.5)`), `same_verdict` and `same_strength`
        (verdict and strength agree over all seeds).
    """
    import pandas as pd

    per_seed = [decide(rows, rule) for _, rows in table.groupby("seed")]
    verdicts: dict[str, list[tuple[str, float | None]]] = {str(role): [] for role in dict.fromkeys(table["role"])}
    for decided in per_seed:
        for role, verdict, strength in zip(decided["role"], decided["verdict"], decided["strength"], strict=True):
            verdicts[role].append((verdict, float(strength) if verdict == "PASS" else None))
    return pd.DataFrame(
        {
            "role": role,
            "verdicts": ", ".join(name if strength is None else f"{name}({strength:g})" for name, strength in given),
            "same_verdict": len({name for name, _ in given}) == 1,
            "same_strength": len(set(given)) == 1,
        }
        for role, given in verdicts.items()
    )

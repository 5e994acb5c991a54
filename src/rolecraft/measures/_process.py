"""How an agent works among others who know and can do things: what it finds out, whom it asks, where it breaks off.

The measures of Incognita (arXiv 2607.02975), read from an episode's outcome. The paper names the failure classes but
does not define them: here the first broken link of the lineage decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rolecraft.errors import UserError
from rolecraft.measures._statistics import Floats, Interval, bootstrap_mean

FailureClass = Literal[
    "premature finalisation", "exploration", "goal-belief error", "environment-belief error", "execution error",
    "communication failure",
]  # fmt: skip
"""Where a failed episode broke off; `exploration` is a needed link that was not reached before the turns ran out."""
PROCESS_METRICS = (
    "success", "premature", "censored", "disclosure", "contact", "wrote", "contact_precision", "contact_recall",
)  # fmt: skip


@dataclass(frozen=True)
class ProcessScore:
    """One episode; a share is None where there is nothing to share."""

    task: str
    breadth: int
    """Distinct specialists in the reference solution."""
    success: bool
    premature: bool
    """Finished while the state was no solution, or before all that the user wanted to know was heard."""
    censored: bool
    """Ended by a limit, so that it is not known whether it would have finished too early."""
    disclosure: float | None
    """Told fields of the user's locked ones."""
    contact: float
    """Distinct specialists that were written to, of six."""
    wrote: bool
    """At least one write was accepted."""
    contact_precision: float | None
    """Needed ones of those written to."""
    contact_recall: float | None
    """Those written to of the needed ones."""
    failure: FailureClass | None
    writes: int
    """Writes in the reference solution."""
    arguments: int
    """Argument values in the reference solution."""
    turns: int

    def row(self) -> dict[str, Any]:
        """Return the fields as JSON holds them."""
        return asdict(self)


def process_score(outcome: Mapping[str, Any], specialists: int = 6) -> ProcessScore:
    """Score one episode.

    Args:
        outcome: What `Incognita.outcome` returns, or the same fields of another world.
        specialists: How many there are.

    Raises:
        UserError: If a field is missing.
    """
    try:
        contacts, needed = set(outcome["contacts"]), set(outcome["needed"])
        success, final = bool(outcome["success"]), bool(outcome["final"])
        return ProcessScore(
            task=str(outcome["task"]),
            breadth=int(outcome["breadth"]),
            success=success,
            premature=final and not success and not (outcome["state_reached"] and outcome["outputs_known"]),
            censored=not final,
            disclosure=outcome["opened"] / outcome["locked"] if outcome["locked"] else None,
            contact=len(contacts) / specialists,
            wrote=any(receipt["accepted"] and receipt["before"] != receipt["after"] for receipt in outcome["receipts"]),
            contact_precision=len(contacts & needed) / len(contacts) if contacts else None,
            contact_recall=len(contacts & needed) / len(needed) if needed else None,
            failure=None if success else failure_class(outcome["lineage"], final),
            writes=int(outcome["writes"]),
            arguments=int(outcome["arguments"]),
            turns=int(outcome["turns"]),
        )
    except KeyError as error:
        raise UserError(
            f"the outcome has no field {error}; expected that of a finished episode of Incognita."
        ) from None


def failure_class(lineage: Sequence[Mapping[str, Any]], final: bool) -> FailureClass:
    """Name a failure by the first broken link of its lineage.

    Args:
        lineage: Rows of `kind`, `asked_turn`, `delivered_turn`, `cited_in_request_turn`, `cited_needed`, `op_id`,
            `same_arguments`, `accepted` and `awaits_consent`, in the order of need.
        final: Whether the agent itself ended the episode.

    Returns:
        The class: a link never reached is premature finalisation, or exploration if a limit ended the episode; told
        but not used is a belief error, about the goal if the user told it and about the environment if a specialist
        did; a write with wrong arguments is an error about the environment; refused with the right ones, or a change
        beside all the right ones, is an execution error; heard but not passed on to the user is a communication
        failure.
    """
    for link in lineage:
        found = _broken(link)
        if found == "missing":
            return "premature finalisation" if final else "exploration"
        if found:
            return found
    return "execution error" if final else "exploration"


def _broken(link: Mapping[str, Any]) -> FailureClass | Literal["missing"] | None:
    if link["kind"] == "write":
        if link["op_id"] is None or (link["same_arguments"] and link["awaits_consent"]):
            return "missing"
        if not link["same_arguments"]:
            return "environment-belief error"
        return None if link["accepted"] else "execution error"
    if link["delivered_turn"] is None:
        return "missing"
    if not link["cited_needed"] or link["cited_in_request_turn"] is not None:
        return None
    classes: Mapping[str, FailureClass] = {
        "goal": "goal-belief error", "fact": "environment-belief error", "output": "communication failure",
    }  # fmt: skip
    return classes[link["kind"]]


@dataclass(frozen=True)
class ProcessReport:
    """Some episodes of one agent."""

    metrics: Mapping[str, Interval]
    """Of `PROCESS_METRICS`: the mean over the episodes for which it is defined, tasks resampled whole."""
    by_breadth: Mapping[int, Interval]
    """Success."""
    failures: Mapping[str, int]
    """Failure class to episodes."""
    episodes: int


def process_report(scores: Sequence[ProcessScore], clusters: Sequence[object] | None = None) -> ProcessReport:
    """Summarise scores with a bootstrap over tasks.

    Args:
        scores: One per episode.
        clusters: What is resampled together; default: the task, which fits repeats of one set of tasks.

    Raises:
        UserError: If there are no scores, or not as many clusters.
    """
    labels = [score.task for score in scores] if clusters is None else list(clusters)
    if not scores or len(labels) != len(scores):
        raise UserError(f"expected one or more scores and a cluster for each, got {len(scores)} and {len(labels)}.")
    metrics = {
        name: bootstrap_mean([_number(getattr(score, name)) for score in scores], labels) for name in PROCESS_METRICS
    }
    by_breadth = {}
    for breadth in sorted({score.breadth for score in scores}):
        rows = [place for place, score in enumerate(scores) if score.breadth == breadth]
        by_breadth[breadth] = bootstrap_mean([float(scores[p].success) for p in rows], [labels[p] for p in rows])
    failures = Counter(str(score.failure) for score in scores if score.failure)
    return ProcessReport(metrics, by_breadth, dict(failures.most_common()), len(scores))


def _number(value: float | bool | None) -> float:
    return math.nan if value is None else float(value)


def logistic_effects(
    outcomes: Sequence[float], predictors: Mapping[str, Sequence[float]], clusters: Sequence[object],
    draws: int = 200, seed: int = 0, penalty: float = 1.0,
) -> dict[str, Interval]:  # fmt: skip
    """Return each predictor's log-odds per standard deviation, all others held, with a cluster bootstrap.

    The ridge penalty keeps coefficients finite where a predictor parts the outcomes cleanly; it pulls them towards 0.
    Predictors that hardly vary apart share one effect between them: read their intervals together.

    Args:
        outcomes: 0 or 1 for each row.
        predictors: Name to a number for each row.
        clusters: Label of each row; rows of one label are resampled together.
        draws: Resamples.
        seed: Of the resampling.
        penalty: Weight of half the squared coefficients, against the summed log loss.

    Raises:
        UserError: If lengths differ, outcomes or a predictor do not vary, or there is no penalty.
    """
    y = np.asarray(outcomes, dtype=float)
    x = np.array([list(column) for column in predictors.values()], dtype=float).T
    if x.shape != (len(y), len(predictors)) or len(clusters) != len(y):
        raise UserError(f"expected as many numbers per predictor and clusters as outcomes ({len(y)}).")
    constant = [name for name, spread in zip(predictors, np.ptp(x, axis=0), strict=True) if spread == 0]
    if penalty <= 0:
        raise UserError(f"penalty must be above 0, got {penalty}.")
    if len(set(y.tolist())) < 2 or constant:
        raise UserError(f"{', '.join(constant) or 'the outcomes'} must vary for an effect to be estimated.")
    x = (x - x.mean(0)) / x.std(0)
    _, members = np.unique([str(label) for label in clusters], return_inverse=True)
    n = int(members.max()) + 1
    estimate = _fit(x, y, np.ones((1, len(y))), penalty)[0]
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)[:, members]
    low, high = np.quantile(_fit(x, y, weights.astype(float), penalty), [0.025, 0.975], axis=0)
    return {
        name: Interval(float(estimate[place]), float(low[place]), float(high[place]), n)
        for place, name in enumerate(predictors)
    }


def _fit(x: Floats, y: Floats, weights: Floats, penalty: float) -> Floats:
    """Fit ridge logistic regressions with a free intercept by Newton's method, one for each row of weights.

    Args:
        x: Shape (rows, predictors).
        y: Shape (rows,).
        weights: Shape (fits, rows).
        penalty: See `logistic_effects`.

    Returns:
        Coefficients without the intercept, shape (fits, predictors).
    """
    design = np.column_stack([np.ones(len(y)), x])
    ridge = np.diag([1e-9, *np.full(x.shape[1], penalty)])
    beta = np.zeros((len(weights), design.shape[1]))
    for _ in range(50):
        share = 1 / (1 + np.exp(-np.clip(beta @ design.T, -30, 30)))
        gradient = (weights * (y - share)) @ design - beta @ ridge
        curvature = np.einsum("fr,rp,rq->fpq", weights * share * (1 - share), design, design, optimize=True) + ridge
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
        beta += step
        if np.abs(step).max() < 1e-8:
            break
    found: Floats = beta[:, 1:]
    return found

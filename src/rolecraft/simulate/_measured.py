"""What the measures of a simulation say: a table per measure, by role and arm, with intervals and paired gains.

Everything is computed from the rows that `measure_run` has stored, so that a run can be shown without its model. Gains
are over the run's last arm, paired by episode: episode i has the same cast and seed in every arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rolecraft._run import RunView
from rolecraft.measures import Interval, bootstrap_mean, paired_bootstrap
from rolecraft.measures._population import population_distance, population_diversity, role_share, vector_spread
from rolecraft.measures._statistics import Floats
from rolecraft.simulate._records import read_drift

ACTIONS, DIVERSITY, OFFLINE, LLM = "actions", "diversity", "offline-judge", "llm-judge"
DRIFT_NAME, QUESTIONNAIRE = "drift", "questionnaire"
MEASURES: dict[str, str] = {
    ACTIONS: "which actions were chosen, and how far that lies from the last arm",
    DIVERSITY: "how varied choices and texts are, and what share of their variance lies between roles",
    OFFLINE: "each message scored for its role by the offline judge",
    LLM: "each message scored for its role by a language model (--judge)",
    DRIFT_NAME: "what the drift watch read while the run was played",
    QUESTIONNAIRE: "the Big Five of each role as it was put on, by log-probability",
}
"""Name to what it tells."""
ALL = "(all)"
"""In place of a role: all roles together."""
MOST_MISSING = 0.05
"""Share of missing scores above which a judge's figures are not to be relied on."""


def stage_of(name: str) -> str:
    """Return the stage of the run store in which a measure's rows are kept."""
    return f"measure-{name}"


def read_measures(run: RunView) -> list[dict[str, Any]]:
    """Summarise all that has been measured of a simulation.

    Returns:
        Per measure (and per judge, where several have scored) `measure`, `by` (what it was made with), `rows` and
        `notes`. A row has `arm`, `role`, `figure`, `estimate`, `low`, `high`, `n` (independent units), and where they
        apply `missing`, `gain`, `gain_low`, `gain_high` and `note`; None is undefined.
    """
    arms = list(run.config["arms"])
    found = [
        *_judged(run, OFFLINE, arms),
        *_judged(run, LLM, arms),
        _chosen(run, arms),
        *_varied(run, arms),
        _drifted(run, arms),
        *_answered(run, arms),
    ]
    return [part for part in found if part is not None and (part["rows"] or part["notes"])]


def figures(interval: Interval, prefix: str = "") -> dict[str, Any]:
    """Return an interval as JSON holds it."""
    names = ("gain", "gain_low", "gain_high") if prefix else ("estimate", "low", "high")
    values = (interval.estimate, interval.low, interval.high)
    row: dict[str, Any] = {
        name: value if math.isfinite(value) else None for name, value in zip(names, values, strict=True)
    }
    if not prefix:
        row["n"] = interval.n
    if getattr(interval, "reason", ""):
        row["note"] = interval.reason  # type: ignore[attr-defined]  # a figure
    return row


def _judged(run: RunView, name: str, arms: Sequence[str]) -> Iterable[dict[str, Any]]:
    by_judge: dict[str, list[dict[str, Any]]] = {}
    for key, row in run.rows(stage_of(name)).items():
        by_judge.setdefault(key.split("/", 1)[0], []).append(row)
    for rows in by_judge.values():
        dimensions = [
            dimension
            for dimension in rows[0]["scores"]
            if any(row["scores"].get(dimension) is not None for row in rows)
        ]
        table, notes = [], []
        for dimension in dimensions or list(rows[0]["scores"])[:1]:
            values = [{**row, "value": row["scores"].get(dimension)} for row in rows]
            table += _means(values, arms, dimension)
        lost = [row for row in rows if all(value is None for value in row["scores"].values())]
        if len(lost) > MOST_MISSING * len(rows):
            notes.append(
                f"{len(lost)} of {len(rows)} messages have no score, as the judge's replies could not be read: these "
                "figures are not to be relied on; use a judge model that follows the rubric."
            )
        yield {"measure": name, "by": rows[0]["judge"], "rows": table, "notes": notes}


def _means(rows: Sequence[Mapping[str, Any]], arms: Sequence[str], figure: str) -> list[dict[str, Any]]:
    """Return the mean of `value` by arm and role, over episodes as units, and its gain over the last arm."""
    table = []
    control = _by_episode([row for row in rows if row["arm"] == arms[-1]])
    for arm in arms:
        inside = [row for row in rows if row["arm"] == arm]
        for role in [*sorted({row["role"] for row in inside}), ALL]:
            part = [row for row in inside if role in (row["role"], ALL)]
            values = [math.nan if row["value"] is None else float(row["value"]) for row in part]
            if not values:
                continue
            row: dict[str, Any] = {"arm": arm, "role": role, "figure": figure}
            row |= figures(bootstrap_mean(values, [one["number"] for one in part]))
            row["missing"] = sum(map(math.isnan, values))
            if arm != arms[-1]:
                own, other = _by_episode(part), {key: value for key, value in control.items() if key[0] == role}
                pairs = [own[role, number] - value for (_, number), value in other.items() if (role, number) in own]
                row |= figures(paired_bootstrap(pairs), "gain") if pairs else {}
            table.append(row)
    return table


def _by_episode(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Return the mean by role and episode, and by episode over all roles."""
    values: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        for role in (row["role"], ALL) if row["value"] is not None else ():
            values.setdefault((role, row["number"]), []).append(float(row["value"]))
    return {key: float(np.mean(given)) for key, given in values.items()}


def _chosen(run: RunView, arms: Sequence[str]) -> dict[str, Any] | None:
    rows = list(run.rows(stage_of(ACTIONS)).values())
    if not rows:
        return None
    counts = {arm: {row["number"]: row["counts"] for row in rows if row["arm"] == arm} for arm in arms}
    roles = sorted({role for row in rows for role in row["counts"]})
    table = []
    for role in [*roles, ALL]:
        options = sorted(
            {action for row in rows for name, done in row["counts"].items() if role in (name, ALL) for action in done}
        )
        tables = {arm: _action_table(counts[arm], role, options) for arm in arms}
        for arm in arms:
            total = np.sum(list(tables[arm].values()), axis=0) if tables[arm] else np.zeros(len(options))
            if not total.sum():
                continue
            shares = total / total.sum()
            top = [
                f"{options[place]} {shares[place]:.0%}"
                for place in np.argsort(-shares, kind="stable")[:3]
                if shares[place]
            ]
            row = {
                "arm": arm,
                "role": role,
                "figure": "distance from " + arms[-1],
                "choices": int(total.sum()),
                "top": ", ".join(top),
            }
            if arm == arms[-1]:
                row |= {"figure": "-", "estimate": None, "low": None, "high": None, "n": len(tables[arm])}
            else:
                both = [number for number in tables[arm] if number in tables[arms[-1]]]
                empty = np.zeros((0, len(options)))
                one, two = (
                    np.array([tables[side][number] for number in both]) if both else empty for side in (arm, arms[-1])
                )
                distance = population_distance(one, two, paired=True)
                row |= figures(distance) | ({"p": distance.p, "chance": distance.chance} if not distance.reason else {})
            table.append(row)
    random = sum(row["random"] for row in rows)
    notes = [f"{random} random stand-ins for illegal actions are left out."] if random else []
    return {"measure": ACTIONS, "by": "total variation", "rows": table, "notes": notes}


def _action_table(
    by_number: Mapping[int, Mapping[str, Mapping[str, int]]], role: str, options: Sequence[str]
) -> dict[int, Floats]:
    """Return counts by episode, for episodes in which the role chose anything."""
    found = {}
    for number, by_role in by_number.items():
        counts = np.array(
            [sum(done.get(o, 0) for name, done in by_role.items() if role in (name, ALL)) for o in options]
        )
        if counts.sum():
            found[number] = counts.astype(float)
    return found


def choice_figures(
    roles: Sequence[str], numbers: Sequence[int], actions: Sequence[str], options: Sequence[str]
) -> list[dict[str, Any]]:
    """Return how varied choices are, by role and over all, and the share of variance between roles.

    Args:
        roles: Of the decisions.
        numbers: Their episodes, which are the units.
        actions: What was chosen.
        options: All that could have been chosen at some time.
    """
    place = {option: column for column, option in enumerate(options)}
    chosen = np.eye(len(options))[[place[action] for action in actions]]
    rows = []
    for role in [*sorted(set(roles)), ALL]:
        inside = [row for row, name in enumerate(roles) if role in (name, ALL)]
        by_episode: dict[int, Floats] = {}
        for row in inside:
            by_episode[numbers[row]] = by_episode.get(numbers[row], 0) + chosen[row]
        found = population_diversity(np.array(list(by_episode.values())))
        for name, figure in (("entropy (bits)", found.entropy), ("evenness", found.evenness)):
            rows.append({"role": role, "figure": name} | figures(figure))
    share = role_share(chosen, roles, numbers, draws=400)
    return [*rows, {"role": ALL, "figure": "choices: share between roles"} | figures(share) | _chance(share.p)]


def text_figures(roles: Sequence[str], numbers: Sequence[int], vectors: Floats) -> list[dict[str, Any]]:
    """Return how far messages lie apart, by role and over all, and the share of variance between roles.

    Args:
        roles: Of the messages.
        numbers: Their episodes, which are the units.
        vectors: Their embeddings, shape (messages, size).
    """
    rows = []
    for role in [*sorted(set(roles)), ALL]:
        inside = [row for row, name in enumerate(roles) if role in (name, ALL)]
        spread = vector_spread(vectors[inside], [numbers[row] for row in inside])
        rows.append({"role": role, "figure": "spread of texts (1 - cosine)"} | figures(spread))
    share = role_share(vectors, roles, numbers, draws=400)
    return [*rows, {"role": ALL, "figure": "texts: share between roles"} | figures(share) | _chance(share.p)]


def _chance(p: float) -> dict[str, Any]:
    return {"p": p} if math.isfinite(p) else {}


def _varied(run: RunView, arms: Sequence[str]) -> Iterable[dict[str, Any]]:
    by_encoder: dict[str, list[dict[str, Any]]] = {}
    for key, row in run.rows(stage_of(DIVERSITY)).items():
        by_encoder.setdefault(key.rsplit("/", 1)[0], []).append(row)
    for encoder, rows in by_encoder.items():
        ordered = sorted(rows, key=lambda row: arms.index(row["arm"]))
        table = [{"arm": row["arm"], **figure} for row in ordered for figure in row["figures"]]
        yield {
            "measure": DIVERSITY,
            "by": "choices" if encoder == "-" else f"embeddings {encoder}",
            "rows": table,
            "notes": [],
        }


def _drifted(run: RunView, arms: Sequence[str]) -> dict[str, Any] | None:
    rows = read_drift(run)
    if not rows:
        return None
    table = []
    for figure in ("projection", "control", "score", "drifted"):
        values = [{**row, "value": None if row.get(figure) is None else float(row[figure])} for row in rows]
        if any(row["value"] is not None for row in values):
            table += _means(values, arms, figure)
    return {"measure": DRIFT_NAME, "by": "drift watch", "rows": table, "notes": []}


def _answered(run: RunView, arms: Sequence[str]) -> Iterable[dict[str, Any]]:
    by_instrument: dict[str, list[dict[str, Any]]] = {}
    for key, row in run.rows(stage_of(QUESTIONNAIRE)).items():
        by_instrument.setdefault(key.split("/", 1)[0], []).append(row)
    for rows in by_instrument.values():
        table = []
        put_on = {arm: [row for row in rows if row["conditioning"] == run.config["arms"][arm]] for arm in arms}
        traits = list(dict.fromkeys(answer["trait"] for answer in rows[0]["answers"]))
        for arm in arms:
            for row in sorted(put_on[arm], key=lambda row: str(row["role"])):
                control = next((one for one in put_on[arms[-1]] if one["role"] in (row["role"], "")), None)
                for trait in traits:
                    table.append(_trait(arm, row, trait, control if arm != arms[-1] else None))
        yield {"measure": QUESTIONNAIRE, "by": f"{rows[0]['instrument']}, units are items", "rows": table, "notes": []}


def _trait(arm: str, row: Mapping[str, Any], trait: str, control: Mapping[str, Any] | None) -> dict[str, Any]:
    own = {one["item"]: one["keyed"] for one in row["answers"] if one["trait"] == trait}
    values = [math.nan if value is None else value for value in own.values()]
    found: dict[str, Any] = {"arm": arm, "role": row["role"] or ALL, "figure": trait}
    found |= figures(bootstrap_mean(values)) | {"missing": sum(map(math.isnan, values))}
    if control is None:
        return found
    other = {one["item"]: one["keyed"] for one in control["answers"]}
    pairs = [value - other[item] for item, value in own.items() if value is not None and other.get(item) is not None]
    return found | (figures(paired_bootstrap(pairs), "gain") if pairs else {})

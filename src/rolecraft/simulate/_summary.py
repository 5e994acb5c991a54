"""What came out of a simulation: figures per arm, and paired differences from the last arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rolecraft.measures import bootstrap_mean, paired_bootstrap


def summarise(episodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise the finished episodes of a run.

    Args:
        episodes: What `read_episodes` returns.

    Returns:
        `arms`: per arm the number of episodes, answers that did not come, interventions, mean steps, fallbacks, what
        guards `refused` where there are any, how episodes ended and what the outcomes were.
        `rewards`: per arm and agent the mean reward with its interval, and the mean difference from the last arm over
        episodes of the same number, which have the same cast and seed. `unscreened`: roles that no screen let in.
    """
    arms: dict[str, list[Mapping[str, Any]]] = {}
    for row in episodes.values():
        arms.setdefault(row["arm"], []).append(row)
    return {
        "arms": [_arm(arm, rows) for arm, rows in arms.items()],
        "rewards": [
            _reward(arm, agent, rows, arms[list(arms)[-1]] if arm != list(arms)[-1] else None)
            for arm, rows in arms.items()
            for agent in rows[0]["rewards"]
        ],
        "unscreened": sorted({name for row in episodes.values() for name in row["unscreened"]}),
    }


def summarise_drift(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Summarise what a drift watch read, per arm and role.

    Args:
        rows: What `read_drift` returns.

    Returns:
        Messages, how many were read, the mean projection and score, `drifted` (agents that drifted, of `agents`, each
        counted per episode), `control` (how many a random direction of the same norm would have called drifted), and
        what was ordered.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["arm"], row["role"]), []).append(row)
    return [_drift(arm, role, found) for (arm, role), found in groups.items()]


def _drift(arm: str, role: str, rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    agents = {(row["number"], row["agent"]) for row in rows}
    projections = [row["projection"] for row in rows if row["projection"] is not None]
    scores = [row["score"] for row in rows if row["score"] is not None]
    return {
        "arm": arm,
        "role": role,
        "messages": len(rows),
        "read": max(len(projections), len(scores)),
        "projection": float(np.mean(projections)) if projections else None,
        "score": float(np.mean(scores)) if scores else None,
        "agents": len(agents),
        "drifted": len({(row["number"], row["agent"]) for row in rows if row["alarms"]}),
        "control": len({(row["number"], row["agent"]) for row in rows if row["control_alarms"]}),
        "held": dict(Counter(row["held"] for row in rows if row["held"])),
    }


def _arm(arm: str, rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    outcomes = Counter(
        ", ".join(f"{name} {value}" for name, value in row["outcome"].items() if isinstance(value, str | bool | None))
        for row in rows
    )
    return {
        "arm": arm,
        "episodes": len(rows),
        "failures": sum(len(row.get("failures", ())) for row in rows),
        "interventions": sum(row.get("interventions", 0) for row in rows),
        "steps": float(np.mean([row["steps"] for row in rows])),
        "fallbacks": sum(row["fallbacks"] for row in rows),
        **({"refused": sum(row.get("refused", 0) for row in rows)} if any("refused" in row for row in rows) else {}),
        "ended": dict(Counter(_end(row) for row in rows)),
        "outcomes": {name: count for name, count in outcomes.most_common() if name},
    }


def _end(row: Mapping[str, Any]) -> str:
    """Return how an episode ended, and by which limit where it is not the one on steps."""
    if row.get("stopped"):
        return "by the guard"
    limit = row.get("limit", "")
    return f"{row['ended']} ({limit})" if limit not in ("", "steps") else str(row["ended"])


def _reward(
    arm: str, agent: str, rows: list[Mapping[str, Any]], control: list[Mapping[str, Any]] | None
) -> dict[str, Any]:
    mean = bootstrap_mean(np.array([row["rewards"][agent] for row in rows]))
    row = {"arm": arm, "agent": agent, "mean": mean.estimate, "low": mean.low, "high": mean.high, "n": mean.n}
    if control is None:
        return row
    other = {given["number"]: given["rewards"][agent] for given in control}
    pairs = [(given["rewards"][agent], other[given["number"]]) for given in rows if given["number"] in other]
    if not pairs:
        return row
    gain = paired_bootstrap(np.array([a - b for a, b in pairs]))
    return row | {"gain": gain.estimate, "gain_low": gain.low, "gain_high": gain.high}

"""Credit: milliseconds of one core that each rule needs for a million tokens, against the limit of 50 ms.

Two shapes: 2000 rows of 500 tokens (replies of a language model) and 250,000 rows of 4 (short moves, or array agents).
Three tokens in four are trained. Rows stand as the trainer gathers them, agent by agent; rules whose rows follow each
other are timed on shuffled rows too. Building the batch, which checks every number, is timed on its own.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from rolecraft.learning.credit import RULES, CreditBatch, assign_credit, make_rule

LIMIT = 50.0
SHAPES = ((2000, 500), (250_000, 4))
ORDERED = ("cory", "omar", "rae", "role-agent", "vdn")
TURNS, AGENTS, SAMPLES = 5, 2, 8
"""Turns of each agent in a trajectory, agents, and trajectories of a task."""


def columns(rows: int, tokens: int, *, shuffled: bool = False) -> dict[str, Any]:
    """Make a batch's columns, with what any rule may want."""
    rng = np.random.default_rng(0)
    row = rng.permutation(rows) if shuffled else np.arange(rows)
    seat = row // TURNS
    traj = seat // AGENTS
    mask = rng.random((rows, tokens)) < 0.75
    mask[:, -1] = True
    agent = seat % AGENTS
    outcome = np.sign(rng.normal(size=traj.max() + 1))[traj] * np.where(agent == 0, 1.0, -1.0)
    keys = {"task": traj // SAMPLES, "traj": traj, "agent": agent, "role": agent, "turn": row % TURNS}
    keys |= {"step": row % TURNS, "game": traj % 3, "anchor": row % 7, "policy": agent}
    plain = {name: rng.normal(size=rows) for name in ("reward", "q", "q_next")}
    plain |= {"score": rng.random(rows), "factor": rng.random(rows), "duration": 1 + rng.random(rows)}
    plain |= {"label": rng.integers(4, size=rows).astype(float), "outcome": outcome}
    plain["team_reward"] = rng.normal(size=(traj.max() + 1, TURNS))[traj, row % TURNS]
    logps = {f"logp_{name}": -rng.random((rows, tokens)) for name in ("old", "ref", "teacher")}
    objectives = {name: rng.random(rows) for name in ("style", "facts", "tone")}
    value = rng.normal(size=(rows, tokens))
    return {"mask": mask, "keys": keys, "row": plain, "token": {**logps, "value": value}, "objectives": objectives}


def build(given: dict[str, Any], names: tuple[str, ...]) -> CreditBatch:
    """Build a batch with some of the token columns."""
    return CreditBatch(**{**given, "token": {name: given["token"][name] for name in names}})


def entries(quick: bool = False) -> list[dict[str, Any]]:
    """Time every rule, and the building of a batch without and with the columns of a teacher and a critic."""
    rounds = 5 if quick else 21
    found = []
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for rows, tokens in SHAPES:
            size = f"{rows:,} rows of {tokens}"
            given = columns(rows, tokens)
            batch = CreditBatch(**given)
            found += [_entry(f"{name}, {size}", _rule(name, batch), rounds) for name in sorted(RULES)]
            for names in (("logp_old",), tuple(given["token"])):
                label = f"checking a batch with {len(names)} token column{'s'[: len(names) - 1]}, {size}"
                found.append(_entry(label, partial(build, given, names), rounds))
            batch = CreditBatch(**columns(rows, tokens, shuffled=True))
            found += [_entry(f"{name}, {size}, shuffled", _rule(name, batch), rounds) for name in ORDERED]
    return found


def _rule(name: str, batch: CreditBatch) -> Callable[[], Any]:
    options = {"warmup": 0} if name == "adrs" else {}
    return partial(_assign, batch, make_rule({"name": name, **options}))


def _assign(batch: CreditBatch, stages: list[Any]) -> None:
    """Give credit as to a new batch, whose groups nobody has numbered yet; it is not checked again."""
    batch._groups.clear()
    batch._memo.clear()
    assign_credit(batch, stages)


def _entry(name: str, call: Callable[[], Any], rounds: int) -> dict[str, Any]:
    call()
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        call()
        times.append(1000 * (time.thread_time() - start))
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    middle = statistics.median(times)
    return {
        "name": f"credit: {name}",
        "ours": round(middle, 2),
        "peer": LIMIT,
        "unit": "ms",
        "ratio": round(middle / LIMIT, 3),
        "spread": [round(min(times) / LIMIT, 3), round(max(times) / LIMIT, 3)],
        "conditions": f"median CPU time of {rounds} calls on one thread; beside the arrays given a peak of "
        f"{peak / 1e6:.0f} MB; the peer is the limit that was set",
    }

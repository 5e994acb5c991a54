"""Results of a screen with planted curves, as a run directory would give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rolecraft.measures import DIMENSIONS
from rolecraft.roles import Inventory, Question, QuestionBank, Role
from rolecraft.screening import (
    Cell,
    Geometry,
    Grid,
    Outcome,
    Screen,
    ScreenConfig,
    ScreenResults,
    VerdictRule,
    curves,
    decide,
    stability,
)
from rolecraft.screening._results import granularity_projection

KINDS = (
    "rising", "peaked", "flat", "declining", "anti", "prompt-only", "control-as-good", "looping", "failed",
    "no-direction",
)  # fmt: skip
"""Planted behaviours; `failed` has answers without scores, `no-direction` an extraction that came to nothing."""

LEVELS = np.array([0, 7, 4, 9, 5, 8], float)
"""Height of each dimension's curve against the others."""

PHRASES = (
    "The tide turns when it likes, and so must we.",
    "I keep the ledger open and the door shut.",
    "Ask me again when the harvest is in.",
    "There is a quiet rule to it: begin before you feel ready.",
    "We counted twice, and the second count was the honest one.",
    "My hands know the answer sooner than I do.",
)


def mean(kind: str, arm: str, s: float) -> float:
    """Return the planted overall alignment, 0..100."""
    if arm == "prompted":
        return 28 if kind == "flat" else 78
    if arm == "baseline":
        return {"anti": 72, "declining": 55}.get(kind, 30)
    if arm != "role":
        return 30 + 13 * s if kind == "control-as-good" and arm == "random" else mean(kind, "baseline", 0) - 3 * s
    return {
        "rising": 28 + 15 * s,
        "looping": 30 + 14 * s,
        "peaked": 66 - 24 * abs(s - 1.5),
        "declining": 60 - 9 * s,
        "anti": 76 - 13 * s,
        "control-as-good": 30 + 13 * s,
        "failed": 40,
    }.get(kind, 30)


def outcome(cell: Cell, kind: str) -> Outcome:
    """Answer and score one cell: the planted mean, a shift per question, and noise of its own."""
    if kind == "failed" and cell.arm == "role" and cell.strength > 1:
        return Outcome("", {}, note="the server gave no answer after 4 tries")
    shared = np.random.default_rng(list(cell.question.encode())).normal(0, 8)
    rng = np.random.default_rng(list(cell.key.encode()))
    values = mean(kind, cell.arm, cell.strength) + shared + LEVELS + rng.normal(0, 4, len(DIMENSIONS))
    looping = kind == "looping" and cell.arm == "role" and cell.strength >= 1.5
    phrase = "again and " * 12 if looping else " ".join(rng.choice(PHRASES, 3, replace=False))
    return Outcome(
        f"{phrase} ({cell.arm} {cell.strength:g})"
        if cell.arm != "baseline"
        else f"As it is, {cell.question} is a fair question.",
        dict(zip(DIMENSIONS, np.clip(values, 0, 100).tolist(), strict=True)),
        unique_bigram_ratio=0.31 if looping else float(0.97 - 0.03 * cell.strength + rng.normal(0, 0.01)),
        degenerate=looping,
        leakage=bool(rng.random() < 0.1),
        words=int(rng.integers(14, 30)),
        perplexity=float(rng.uniform(8, 40)),
    )


def role(number: int, kind: str, families: int = 5) -> Role:
    name = (
        f"{kind.replace('-', ' ').capitalize()} {number}"
        if number >= len(KINDS)
        else kind.replace("-", " ").capitalize()
    )
    return Role(
        id=f"{kind}-{number}",
        name=name,
        description=f"You are the {name.lower()} of the harbour town, and people come to you for what you alone know.",
        family=("archetypes", "professions", "nations", "individuals", "organizations")[number % families],
        level=(None, 2, 5, 1, 3)[number % families],
        tags=("planted",),
    )


def bank(questions: int) -> QuestionBank:
    return QuestionBank(
        "questions-v1",
        "1",
        tuple(Question(id=f"q{n:03}", text=f"What did day {n} teach you?") for n in range(questions)),
    )


def results(
    roles: int = 12,
    *,
    strengths: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5),
    controls: tuple[str, ...] = ("axis", "random", "shuffled"),
    seeds: tuple[int, ...] = (0, 1, 2),
    questions: int = 8,
    kinds: tuple[str, ...] = KINDS,
    draws: int = 400,
    change: Mapping[str, Any] | None = None,
) -> ScreenResults:
    """Build the results of a screen of planted roles.

    Args:
        roles: How many, cycling through `kinds`.
        change: Fields of the results to replace.
    """
    kind_of = {f"{kinds[n % len(kinds)]}-{n}": kinds[n % len(kinds)] for n in range(roles)}
    inventory = Inventory("core-v1", "1.0.0", tuple(role(n, kind) for n, kind in enumerate(kind_of.values())))
    rule = VerdictRule(draws=draws)
    config = ScreenConfig(strengths=strengths, control=controls, seeds=seeds, questions=questions, rule=rule)  # type: ignore[arg-type]
    asked = bank(questions)
    layout = Grid(tuple(kind_of), strengths, controls, tuple(q.id for q in asked), seeds)  # type: ignore[arg-type]
    screen = Screen(layout, rule, unsteerable=frozenset(r for r, kind in kind_of.items() if kind == "no-direction"))
    cells = screen.ask()
    screen.tell(cells, [outcome(cell, kind_of[cell.role]) for cell in cells])
    table = screen.table()
    directed = [n for n, kind in enumerate(kind_of.values()) if kind != "no-direction"]
    verdicts = _joined(table, rule, kind_of, seeds)
    facts = {
        "model_name": "SmolLM2-135M-Instruct",
        "model_revision": "9f3c2a71d0b4",
        "site": 15,
        "inventory_hash": inventory.hash,
        "judges": ["offline@4be19c02"],
    }
    fields: dict[str, Any] = {
        "run_id": "screen-20260801T101500Z-a1b2c3",
        "config": config.resolved() | facts,
        "versions": {"python": "3.11.9", "rolecraft": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0"},
        "inventory": inventory,
        "questions": asked,
        "table": table,
        "verdicts": verdicts,
        "curves": curves(table, rule),
        "geometry": geometry(inventory, directed),
        "timings": {
            "directions": {"seconds": 96.0, "units": 36},
            "answers": {"seconds": 214.5, "units": len(table)},
            "scores0": {"seconds": 131.2, "units": len(table)},
        },
        "notes": ("2 roles are still rising at the largest strength; a wider --strengths may find a better one.",),
        "facts": {
            "scored": float(len(table)),
            "new_tokens": 151_552.0,
            "errors": 24.0,
            "missing_share": float(table["overall"].isna().mean()),
        },
    }
    return ScreenResults(**fields | dict(change or {}))


def _joined(table: pd.DataFrame, rule: VerdictRule, kind_of: Mapping[str, str], seeds: tuple[int, ...]) -> pd.DataFrame:
    verdicts = decide(table, rule)
    if len(seeds) > 1:
        verdicts = verdicts.merge(stability(table, rule), on="role")
    lost = verdicts["role"].map(kind_of) == "no-direction"
    rng = np.random.default_rng(7)
    verdicts["pairs"] = np.where(lost, 1, rng.integers(9, 17, len(verdicts)))
    verdicts["acceptance"] = verdicts["pairs"] / 16
    verdicts["split_half"] = np.where(lost, np.nan, rng.uniform(0.3, 0.95, len(verdicts)))
    verdicts["norm"] = np.where(lost, np.nan, rng.uniform(14, 27, len(verdicts)))
    note = "too_few_pairs: 1 of 16 pairs were kept; 4 are required."
    verdicts.loc[lost & (verdicts["reason"] == "not_steered"), ["reason", "failed"]] = ["too_few_pairs", note]
    return verdicts


def geometry(inventory: Inventory, directed: list[int]) -> Geometry | None:
    """Place planted directions: a shared part, one per family, and noise."""
    roles = [inventory.roles[n] for n in directed]
    if len(roles) < 3:
        return None
    rng = np.random.default_rng(3)
    families = {role.family: rng.normal(0, 4, 24) for role in roles}
    vectors = np.array([families[role.family] + (role.level or 3) + rng.normal(0, 2, 24) for role in roles])
    centred = vectors - vectors.mean(axis=0)
    _, singular, components = np.linalg.svd(centred, full_matrices=False)
    return Geometry(
        roles=tuple(role.id for role in roles),
        components=centred @ components[:2].T,
        explained=tuple((singular**2 / np.sum(singular**2)).tolist()),
        granularity=granularity_projection(vectors, [role.level for role in roles]),
        levels=tuple(role.level for role in roles),
        norms=np.linalg.norm(vectors, axis=1),
        effective_rank=6.3,
    )

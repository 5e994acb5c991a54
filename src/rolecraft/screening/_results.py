"""What a screen found, assembled from its run directory for the report, the terminal and the user."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import UserError
from rolecraft.measures import DIMENSIONS, bootstrap_rows
from rolecraft.roles import load_inventory, load_questions
from rolecraft.screening._grid import Cell
from rolecraft.screening._screen import outcome_table
from rolecraft.screening._verdict import BASELINE, Pairs, VerdictRule, decide, stability

if TYPE_CHECKING:
    import pandas as pd

    from rolecraft._run import RunView
    from rolecraft.roles import Inventory, QuestionBank

INVENTORY_FILE, QUESTIONS_FILE = "inventory.json", "questions.json"
"""Copies of what was screened, so that a run can be read without the files it came from."""


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
    """Shape (roles,): projection on the granularity axis (levels 4, 5 minus 1, 2), where both ends have roles."""
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
    rows = []
    for role, answers in table.groupby("role", sort=False):
        for (arm, strength), scores in Pairs(answers, rule).scores.items():
            bounds = zip(*bootstrap_rows(scores.T, rule.draws, level=rule.level), strict=True)
            asked = np.isfinite(scores).sum(axis=0)
            rows += [
                (role, arm, strength, name, *figures, count)
                for name, figures, count in zip(DIMENSIONS, bounds, asked, strict=True)
                if count
            ]
    return pd.DataFrame(rows, columns=["role", "arm", "strength", "dimension", "mean", "low", "high", "questions"])


def load_results(directory: str | Path) -> ScreenResults:
    """Assemble what a screen's run directory holds, also while the screen is going on.

    Raises:
        UserError: If the directory holds no screen, or one without a scored answer yet.
    """
    from rolecraft._run import RunStore

    with RunStore.read(directory) as store:
        return assemble(store)


def assemble(store: RunView) -> ScreenResults:
    """Build the results from an open run."""
    if store.kind != "screen":
        raise UserError(f"{store.directory}: expected a screen's run, got a run of kind {store.kind!r}.")
    config = store.config
    inventory = load_inventory(store.directory / INVENTORY_FILE)
    bank = load_questions(store.directory / QUESTIONS_FILE)
    rule = VerdictRule(**config["rule"])
    table = _table(store, 0)
    if table.empty:
        raise UserError(f"{store.directory}: no answer has been scored yet; go on with `rolecraft screen --resume`.")
    directions = store.rows("directions")
    geometry = _geometry(store, config, inventory, directions)
    verdicts = _verdicts(table, rule, directions, config)
    facts = _facts(store, config, table, verdicts, len(inventory))
    if config["second_judge"]:
        verdicts, agreement = confirm(verdicts, _table(store, 1), rule)
        facts["judge_agreement"] = agreement
    return ScreenResults(
        run_id=store.id,
        config=config,
        versions=store.record["versions"],
        inventory=inventory,
        questions=bank,
        table=table,
        verdicts=verdicts,
        curves=curves(table, rule),
        geometry=geometry,
        timings=store.timings(),
        notes=tuple(_notes(facts, config, verdicts)),
        facts=facts,
    )


def verdict_table(store: RunView) -> list[dict[str, Any]]:
    """Return the verdicts of an open run as plain JSON rows, None where a value is missing."""
    return verdict_rows(assemble(store).verdicts)


def verdict_rows(verdicts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return verdicts as plain JSON rows, None where a value is missing."""
    rows: list[dict[str, Any]] = json.loads(verdicts.to_json(orient="records", double_precision=6))
    return rows


def _table(store: RunView, judge: int) -> pd.DataFrame:
    from rolecraft.screening._scores import outcome

    answers = store.rows("answers")
    cells = {Cell.parse(key): score for key, score in store.rows(f"scores{judge}").items()}
    return outcome_table({cell: outcome(answers[cell.answer_key], score) for cell, score in cells.items()})


def _verdicts(
    table: pd.DataFrame, rule: VerdictRule, directions: Mapping[str, dict[str, Any]], config: Mapping[str, Any]
) -> pd.DataFrame:
    """Join decisions, stability over seeds and what the extraction says of each role."""
    decided = decide(table, rule)
    if len(config["seeds"]) > 1:
        decided = decided.merge(stability(table, rule), on="role")
    facts = [directions.get(f"{role}/{config['seeds'][0]}", {}) for role in decided["role"]]
    for name in ("pairs", "acceptance", "split_half", "norm"):
        decided[name] = [fact.get(name) for fact in facts]
    unsteered = [fact.get("note", "") if not fact.get("file") else "" for fact in facts]
    for position, note in enumerate(unsteered):
        if note and decided.loc[position, "reason"] == "not_steered":
            decided.loc[position, ["reason", "failed"]] = [note.split(":")[0], note]
    return decided


def confirm(verdicts: pd.DataFrame, table: pd.DataFrame, rule: VerdictRule) -> tuple[pd.DataFrame, float]:
    """Ask the second judge whether the gain of each passing strength has the same sign.

    Returns:
        The verdicts, with roles on whose gain the judges disagree turned to FLAG(judges_disagree), and the share of
        passing roles on which they agree (NaN without one).
    """
    import pandas as pd

    rows, agreed = [], []
    for row in verdicts.to_dict("records"):
        if row["verdict"] == "PASS":
            pairs = Pairs(table[table["role"] == row["role"]], rule)
            gain = pairs.contrast(("role", row["strength"]), BASELINE).mean[0] if pairs.strengths else np.nan
            agreed.append(bool(gain > 0))
            if not gain > 0:
                reason = "judges_disagree"
                row |= {"verdict": "FLAG", "strength": np.nan, "reason": reason, "failed": reason}
        rows.append(row)
    return pd.DataFrame(rows, columns=verdicts.columns), float(np.mean(agreed)) if agreed else float("nan")


def _facts(
    store: RunView, config: Mapping[str, Any], table: pd.DataFrame, verdicts: pd.DataFrame, roles: int
) -> dict[str, float]:
    arms = 2 + len(config["strengths"]) * (1 + len(config["control"]))
    full = roles * arms * config["questions"] * len(config["seeds"])
    facts = {
        "scored": float(len(table)),
        "saved_share": 1 - len(table) / full if config["adaptive"] else 0.0,
        "errors": float(sum(bool(row["note"]) for row in store.rows("answers").values())),
        "missing_share": float(table["overall"].isna().mean()),
        "new_tokens": float(sum(row["tokens"] for row in store.rows("answers").values())),
    }
    if "same_strength" in verdicts:
        facts["stable_share"] = float(verdicts["same_strength"].mean())
        facts["stable_verdict_share"] = float(verdicts["same_verdict"].mean())
    return facts


def _notes(facts: Mapping[str, float], config: Mapping[str, Any], verdicts: pd.DataFrame) -> list[str]:
    notes = []
    if "stable_share" in facts:
        notes.append(
            f"Verdict and strength agree over all {len(config['seeds'])} seeds for {facts['stable_share']:.0%} of the "
            f"roles (the verdict alone for {facts['stable_verdict_share']:.0%})."
        )
    if facts["errors"]:
        notes.append(f"{facts['errors']:.0f} answers failed and count as missing.")
    if facts["missing_share"] > config["rule"]["max_missing"]:
        notes.append(f"{facts['missing_share']:.0%} of the scores are missing: this screen is not valid as a whole.")
    if config["adaptive"]:
        notes.append(f"Stopping early saved {facts['saved_share']:.0%} of the full grid's cells.")
    edge = int(verdicts["at_edge"].sum())
    if edge:
        notes.append(
            f"{edge} roles are still rising at the largest strength; a wider --strengths may find a better one."
        )
    if facts.get("judge_agreement") is not None:
        notes.append(f"The second judge sees a gain too in {facts['judge_agreement']:.0%} of the roles that passed.")
    return notes


def _geometry(
    store: RunView, config: Mapping[str, Any], inventory: Inventory, directions: Mapping[str, dict[str, Any]]
) -> Geometry | None:
    """Place the directions of the first seed in their principal components."""
    from rolecraft.conditioning import Extraction
    from rolecraft.screening._directions import extraction_path, unit_key

    seed = config["seeds"][0]
    roles = [role for role in inventory if directions.get(unit_key(role.id, seed), {}).get("file")]
    if len(roles) < 3:
        return None
    found = [Extraction.load(extraction_path(store.directory, role.id, seed)).direction for role in roles]
    vectors = np.array([direction.at() for direction in found if direction is not None], np.float64)
    centred = vectors - vectors.mean(axis=0)
    _, singular, components = np.linalg.svd(centred, full_matrices=False)
    shares = singular**2 / np.sum(singular**2)
    return Geometry(
        roles=tuple(role.id for role in roles),
        components=centred @ components[:2].T,
        explained=tuple(shares.tolist()),
        granularity=granularity_projection(vectors, [role.level for role in roles]),
        levels=tuple(role.level for role in roles),
        norms=np.linalg.norm(vectors, axis=1),
        effective_rank=float(np.exp(-np.sum(shares[shares > 0] * np.log(shares[shares > 0])))),
    )


def granularity_projection(vectors: NDArray[np.float64], levels: Sequence[int | None]) -> NDArray[np.float64] | None:
    """Project on the unit contrast of levels 4, 5 and levels 1, 2 (arXiv 2605.06196); None if an end has no role."""
    macro = [v for v, level in zip(vectors, levels, strict=True) if level is not None and level >= 4]
    micro = [v for v, level in zip(vectors, levels, strict=True) if level is not None and level <= 2]
    if not macro or not micro:
        return None
    axis: NDArray[np.float64] = np.mean(macro, axis=0) - np.mean(micro, axis=0)
    projection: NDArray[np.float64] = vectors @ (axis / np.linalg.norm(axis))
    return projection

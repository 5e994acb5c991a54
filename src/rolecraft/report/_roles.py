"""One role of the report: its row of the heat map, its section's words, and the numbers drawn when it is opened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.measures import DIMENSIONS
from rolecraft.report._population import HEALTH, Cells, broken_rules
from rolecraft.report._words import (
    LABELS,
    MISSING,
    VERDICTS,
    finite,
    interval,
    number,
    percent,
    seeds_text,
    signed,
    split_reasons,
    strength_text,
)
from rolecraft.roles import Role
from rolecraft.screening._verdict import VerdictRule

if TYPE_CHECKING:
    import pandas as pd

    from rolecraft.screening._results import ScreenResults

TEXT_BUDGET = 600_000
"""Characters of example answers in a page, shared by all roles; each answer is cut to its part of them."""
SHORTEST, LONGEST = 160, 2_000
"""Bounds of the cut, in characters."""
WEAK_SPLIT_HALF = 0.5
"""Cosine of a direction's halves under which the report advises more pairs."""


class Texts:
    """Answers of the page, each kept once: the baseline's are shared by all roles."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the position of a text, cut to the limit."""
        cut = text if len(text) <= self.limit else text[: self.limit].rstrip() + "…"
        if cut not in self._index:
            self._index[cut] = len(self.kept)
            self.kept.append(cut)
        return self._index[cut]


def text_limit(roles: int, strengths: int) -> int:
    """Return how long an example answer may be, so that the page stays small whatever was screened."""
    return int(np.clip(TEXT_BUDGET / max(1, roles * 3 * (strengths + 1)), SHORTEST, LONGEST))


def ordered(verdicts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the decisions as records: by verdict, then by gain, the largest first; unknown gains last."""

    def place(row: Mapping[str, Any]) -> tuple[int, float]:
        gain = finite(row["gain"])
        return VERDICTS.index(row["verdict"]), -gain if gain is not None else np.inf

    rows = [{str(name): value for name, value in row.items()} for row in verdicts.to_dict("records")]
    return sorted(rows, key=place)


def role_view(
    row: Mapping[str, Any], role: Role, cells: Cells, strengths: Sequence[float], rule: VerdictRule
) -> dict[str, Any]:
    """Return what the template prints for one role."""
    verdict = str(row["verdict"])
    best = finite(row["strength"])
    return {
        "id": role.id,
        "name": role.name,
        "family": role.family,
        "description": role.description,
        "verdict": verdict,
        "badge": f"{LABELS[verdict]} at {strength_text(best)}" if verdict == "PASS" else LABELS[verdict],
        "strength": best,
        "cells": [_heat_cell(cells.get((role.id, "role", s)), s == best, rule) for s in strengths],
        "prompted": _heat_cell(cells.get((role.id, "prompted", 0.0)), verdict == "PASS_PROMPT_ONLY", rule),
        "gain": finite(row["gain"]),
        "control": finite(row["control"]),
        "control_interval": interval(row["control_low"], row["control_high"]),
        "shape": "anti-controllable" if row["anti_controllable"] and verdict != "PASS" else row["shape"] or MISSING,
        "sentence": _sentence(row),
        "reasons": split_reasons(str(row["failed"] or "")),
        "reason_titles": "; ".join(reason.title for reason in split_reasons(str(row["failed"] or ""))),
        "advice": list(_advice(row)),
        "facts": _facts(row, role),
    }


def _heat_cell(cell: Mapping[str, float] | None, chosen: bool, rule: VerdictRule) -> dict[str, Any]:
    """Return one cell: the gain over the baseline, whether it was chosen, which health rules its answers break."""
    gain = finite(cell["gain"]) if cell else None
    broken = broken_rules(cell, rule) if cell else []
    return {"gain": gain, "text": signed(gain), "chosen": chosen, "broken": ", ".join(broken)}


def _sentence(row: Mapping[str, Any]) -> str:
    """Say the verdict in words."""
    gain = f"{signed(row['gain'])} {interval(row['gain_low'], row['gain_high'])}".strip()
    control = f"{signed(row['control'])} {interval(row['control_low'], row['control_high'])}".strip()
    has_gain, has_control = finite(row["gain"]) is not None, finite(row["control"]) is not None
    if row["verdict"] == "PASS":
        above = f" and {control} above the best control at the same strength and norm" if has_control else ""
        return f"Steer it at strength {strength_text(row['strength'])}: {gain} over the unsteered model{above}."
    level = f" The best strength comes to {gain} over the unsteered model" if has_gain else ""
    level += f" and {control} against the best control." if has_gain and has_control else "." if has_gain else ""
    if row["verdict"] == "PASS_PROMPT_ONLY":
        prompt = finite(row["prompted"]), finite(row["baseline"])
        more = f" ({number(prompt[0])} against {number(prompt[1])})" if None not in prompt else ""
        found = f"the prompted model is clearly more in role than the bare one{more}, and no strength passes"
        return f"Play it by prompt: {found}.{level}"
    return f"Do not rely on it: neither a strength nor the prompt passes.{level}"


def _advice(row: Mapping[str, Any]) -> Iterable[str]:
    """Say what to know besides the reasons."""
    if row["at_edge"] and not row["anti_controllable"]:
        yield "The curve is still highest at the largest strength: extend --strengths to find where it turns."
    held_out, gain = finite(row.get("gain_held_out")), finite(row["gain"])
    if row["verdict"] == "PASS" and held_out is not None and gain is not None and held_out < gain / 2:
        yield (
            f"Chosen on one half of the questions and scored on the other, the gain is {signed(held_out)}: much of"
            f" {signed(gain)} is the luck of choosing. Ask more --questions."
        )
    if isinstance(row.get("same_strength"), bool | np.bool_) and not row["same_strength"]:
        what = "the strength" if row["same_verdict"] else "the verdict"
        yield f"The seeds disagree about {what} ({seeds_text(row['verdicts'])}): ask more --questions."
    half = finite(row.get("split_half"))
    if half is not None and half < WEAK_SPLIT_HALF:
        yield f"Two halves of its pairs give different directions (cosine {number(half, 2)}): extract from more pairs."
    missing = finite(row.get("missing"))
    if missing:
        yield f"{percent(missing)} of this role's answers have no score."


def _facts(row: Mapping[str, Any], role: Role) -> list[tuple[str, str]]:
    """List what is known of the role and of its extraction."""
    facts = [
        ("Family", role.family or MISSING),
        ("Level", str(role.level) if role.level is not None else ""),
        ("Pairs kept", number(row.get("pairs"), 0)),
        ("Accepted", percent(row.get("acceptance"))),
        ("Split-half cosine", number(row.get("split_half"), 2)),
        ("Norm", number(row.get("norm"), 1)),
        ("Pearson r with strength", number(row.get("r"), 2)),
        ("Slope per unit", signed(row.get("slope"))),
        ("Peak at", strength_text(row.get("peak"))),
        ("Gain on held-out half", signed(row.get("gain_held_out"))),
        ("Over seeds", seeds_text(str(row.get("verdicts") or ""))),
        ("Tags", ", ".join(role.tags)),
    ]
    return [(name, value) for name, value in facts if value]


def curve_data(curves: pd.DataFrame) -> dict[str, dict[str, dict[str, list[list[float] | None]]]]:
    """Return role -> arm -> strength (as text) -> one [mean, low, high] or None per dimension."""
    empty: list[list[float] | None] = [None] * len(DIMENSIONS)
    found: dict[str, dict[str, dict[str, list[list[float] | None]]]] = defaultdict(lambda: defaultdict(dict))
    place = {name: position for position, name in enumerate(DIMENSIONS)}
    columns = (curves[name].tolist() for name in ("role", "arm", "strength", "dimension", "mean", "low", "high"))
    for role, arm, strength, dimension, *values in zip(*columns, strict=True):
        point = found[role][arm].setdefault(f"{strength:g}", list(empty))
        if all(finite(value) is not None for value in values):
            point[place[dimension]] = [round(float(value), 1) for value in values]
    return found


def health_data(role: str, cells: Cells, strengths: Sequence[float], rule: VerdictRule) -> list[dict[str, Any]]:
    """Return one entry per arm of the health table: prompted, unsteered, then each strength."""
    rows = []
    for arm, strength in [("prompted", 0.0), ("baseline", 0.0), *(("role", s) for s in strengths)]:
        if cell := cells.get((role, arm, strength)):
            values = [None if (v := finite(cell.get(name))) is None else round(v, 3) for name in HEALTH]
            rows.append({"arm": arm, "strength": strength, "values": values, "broken": broken_rules(cell, rule)})
    return rows


def example_data(results: ScreenResults, order: Iterable[str], texts: Texts) -> dict[str, list[dict[str, Any]]]:
    """Choose up to three questions per role, by what steering does there: most, middling and least.

    Each is shown at every strength, at the first seed. The gain is that of the strength with the highest mean.
    """
    table = results.table
    shown = table[(table["seed"] == results.config["seeds"][0]) & table["arm"].isin(["prompted", "baseline", "role"])]
    questions = {question.id: question.text for question in results.questions}
    best = dict(zip(results.verdicts["role"], results.verdicts["strength"], strict=True))
    peak = dict(zip(results.verdicts["role"], results.verdicts["peak"], strict=True))
    by_role: dict[str, dict[str, dict[tuple[str, float], tuple[float, str, str]]]] = {}
    names = ("role", "question", "arm", "strength", "overall", "answer", "note")
    for role, question, arm, strength, *cell in zip(*(shown[name].tolist() for name in names), strict=True):
        by_role.setdefault(role, {}).setdefault(question, {})[arm, float(strength)] = tuple(cell)
    found = {}
    for role in order:
        strength = best[role] if finite(best[role]) is not None else finite(peak[role])
        chosen = _choose(by_role.get(role, {}), strength)
        found[role] = [
            {
                "question": questions.get(question, question),
                "label": label,
                "answers": [_answer(key, cell, texts) for key, cell in by_role[role][question].items()],
            }
            for label, question in chosen
        ]
    return found


def _choose(
    answers: Mapping[str, Mapping[tuple[str, float], tuple[float, str, str]]], strength: float | None
) -> list[tuple[str, str]]:
    def gain(question: str) -> float:
        steered = answers[question].get(("role", strength), (np.nan,))[0] if strength is not None else np.nan
        return float(steered - answers[question].get(("baseline", 0.0), (np.nan,))[0])

    ranked = sorted((q for q in answers if finite(gain(q)) is not None), key=gain, reverse=True)
    if len(ranked) < 3:
        return [("", question) for question in list(answers)[:3]]
    return [("largest gain", ranked[0]), ("middling", ranked[len(ranked) // 2]), ("smallest gain", ranked[-1])]


def _answer(key: tuple[str, float], cell: tuple[float, str, str], texts: Texts) -> list[Any]:
    """Return [arm, strength, score, position of the text, why there is none]."""
    score, answer, note = cell
    found = finite(score)
    text = texts.add(answer if isinstance(answer, str) else "")
    return [*key, None if found is None else round(found), text, note if isinstance(note, str) else ""]

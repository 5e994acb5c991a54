"""From a screen's results to everything the page shows: plain values for the template, numbers for the drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.measures import bootstrap_mean
from rolecraft.report._population import Cells, cell_means, population, space
from rolecraft.report._roles import (
    Texts,
    curve_data,
    example_data,
    health_data,
    ordered,
    role_view,
    text_limit,
)
from rolecraft.report._words import (
    ARMS,
    DIMENSIONS,
    LABELS,
    STAGES,
    VERDICTS,
    duration,
    finite,
    headline,
    interval,
    number,
    percent,
    signed,
    strength_text,
)
from rolecraft.screening._verdict import VerdictRule

if TYPE_CHECKING:
    from rolecraft.screening._results import ScreenResults

Page = dict[str, Any]


def build_page(results: ScreenResults) -> tuple[Page, dict[str, Any]]:
    """Return what the template prints, and what the page's script draws (plain JSON values without NaN)."""
    rule = VerdictRule(**results.config["rule"])
    cells = cell_means(results.table)
    strengths = [float(s) for s in results.config["strengths"]]
    rows = ordered(results.verdicts)
    profiles = {role.id: role for role in results.inventory}
    roles = [role_view(row, profiles[row["role"]], cells, strengths, rule) for row in rows]
    counts = {verdict: sum(role["verdict"] == verdict for role in roles) for verdict in VERDICTS}
    whole = population(results, cells, rule)
    slopes = dict(zip(results.verdicts["role"], results.verdicts["slope"], strict=True))
    page = {
        "headline": headline(counts),
        "lede": _lede(results, len(roles)),
        "counts": [(verdict, LABELS[verdict], count) for verdict, count in counts.items()],
        "total": len(roles),
        "findings": _findings(results, whole),
        "notes": list(results.notes),
        "setup": _setup(results),
        "figures": _figures(results),
        "stages": _stages(results),
        "strengths": [strength_text(s) for s in strengths],
        "controls": bool(results.config["control"]),
        "roles": roles,
        "scale": heat_scale(roles),
        "seeds": len(results.config["seeds"]),
        "stability": _stability(results),
        "space": space(results.geometry, slopes),
        "rule": rule,
    }
    return page, _drawings(results, page, whole, cells, rule)


def _drawings(
    results: ScreenResults, page: Page, whole: dict[str, Any], cells: Cells, rule: VerdictRule
) -> dict[str, Any]:
    strengths = whole["strengths"]
    texts = Texts(text_limit(len(page["roles"]), len(strengths)))
    order = [role["id"] for role in page["roles"]]
    examples = example_data(results, order, texts)
    curves = curve_data(results.curves)
    return {
        "arms": ARMS,
        "dimensions": list(DIMENSIONS.values()),
        "population": whole,
        "space": page["space"],
        "roles": {
            role["id"]: {
                "name": role["name"],
                "family": role["family"],
                "verdict": role["verdict"],
                "strength": role["strength"],
                "curves": curves.get(role["id"], {}),
                "health": health_data(role["id"], cells, strengths, rule),
                "examples": examples[role["id"]],
            }
            for role in page["roles"]
        },
        "texts": texts.kept,
    }


def heat_scale(roles: list[dict[str, Any]]) -> float:
    """Return the gain at which the heat map's colour is full: the 95th percentile of all sizes, at least 5 points."""
    gains = [cell["gain"] for role in roles for cell in role["cells"] if cell["gain"] is not None]
    return float(np.ceil(max(5.0, np.quantile(np.abs(gains), 0.95) if gains else 0.0)))


def _lede(results: ScreenResults, roles: int) -> str:
    config = results.config
    seeds, questions = len(config["seeds"]), config["questions"]
    listed = ", ".join(strength_text(s) for s in config["strengths"])
    return (
        f"{roles} {_plural('role', roles)} of {results.inventory.name} {results.inventory.version} on"
        f" {config.get('model_name', config['model'])}: each role's own direction added at"
        f" {_plural('strength', len(config['strengths']))} {listed}, held against the unsteered model, the prompted"
        f" model and {len(config['control']) or 'no'} {_plural('control', len(config['control']))}, over"
        f" {questions} {_plural('question', questions)} and {seeds} {_plural('seed', seeds)}."
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _findings(results: ScreenResults, whole: dict[str, Any]) -> list[str]:
    """Say what holds over the whole population, with intervals over roles."""
    found = []
    held_out = bootstrap_mean(results.verdicts["gain_held_out"].to_numpy(float))
    if held_out.n > 1:
        found.append(
            f"A strength chosen on one half of the questions gains {signed(held_out.estimate)}"
            f" {interval(held_out.low, held_out.high)} points of overall alignment on the other half, over"
            f" {held_out.n} roles."
        )
    found += _control_finding(whole)
    found += _text_finding(whole)
    anti = results.verdicts[results.verdicts["anti_controllable"]]
    if len(anti):
        falls = "falls" if len(anti) == 1 else "fall"
        passing = int((anti["verdict"] == "PASS").sum())
        still = f"; {passing} of them still {'passes' if passing == 1 else 'pass'} at an early peak" if passing else ""
        found.append(
            f"{len(anti)} {_plural('role', len(anti))} {falls} on all six dimensions as strength grows{still}."
        )
    return found


def _control_finding(whole: dict[str, Any]) -> list[str]:
    gains = [(point[0], i) for i, point in enumerate(whole["gain"].get("role", [])) if point]
    if not gains or not whole["margins"]:
        return []
    best = max(gains)[1]
    parts = [
        f"{signed(margin[0])} {interval(margin[1], margin[2])} {_side(margin, _control(arm))}"
        for arm, series in whole["margins"].items()
        if (margin := series[best])
    ]
    if not parts:
        return []
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
    where = strength_text(whole["strengths"][best])
    return [f"At strength {where}, its best on average, the role's own direction is {listed}."]


def _side(margin: list[float], control: str) -> str:
    _, low, high = margin
    if low == high:
        return f"(one role, no interval) against the {control}"
    if low > 0 or high < 0:
        return f"{'above' if low > 0 else 'below'} the {control}"
    return f"against the {control} (not clearly different)"


def _control(arm: str) -> str:
    return {"axis": "assistant-axis control", "random": "random control", "shuffled": "shuffled control"}.get(arm, arm)


def _text_finding(whole: dict[str, Any]) -> list[str]:
    last, unsteered = (whole["bigrams"].get("role") or [None])[-1], whole["baseline_bigrams"]
    if last is None or unsteered is None:
        return []
    broken = " under the rule's" if last[0] < whole["min_diversity"] else "; the rule asks for"
    return [
        f"Unique-bigram ratio at strength {strength_text(whole['strengths'][-1])}: {number(last[0], 2)}, against"
        f" {number(unsteered[0], 2)} unsteered{broken} {number(whole['min_diversity'], 2)}."
    ]


def _setup(results: ScreenResults) -> list[tuple[str, str]]:
    """List what was screened, with what, so that it can be done again."""
    config, inventory = results.config, results.inventory
    revision = str(config.get("model_revision") or "")
    judges = config.get("judges") or [name for name in (config["judge"], config["second_judge"]) if name]
    listed = [
        ("Inventory", f"{inventory.name} {inventory.version}, {config.get('inventory_hash') or inventory.hash}"),
        ("Model", f"{config.get('model_name', config['model'])}{f', revision {revision}' if revision else ''}"),
        ("Steered at", f"decoder block {config['site']}"),
        ("Prompted reference", _REFERENCES[config["reference"]]),
        ("Directions", f"{config['preset']}, {config['instructions']} instructions × {config['role_questions']}"
         f" questions per role, pairs kept by {config['accept']}"),
        ("Strengths", ", ".join(strength_text(s) for s in config["strengths"])),
        ("Controls", ", ".join(config["control"]) or "none"),
        ("Questions", f"{config['questions']} of {results.questions.name} {results.questions.version}"),
        ("Seeds", ", ".join(map(str, config["seeds"]))),
        ("Answers", f"up to {config['max_tokens']} new tokens, temperature {config['temperature']:g}, top-p"
         f" {config['top_p']:g}"),
        ("Judge", ", ".join(judges)),
        ("Grid", f"adaptive, {config['round_questions']} questions a round" if config["adaptive"] else "full"),
        ("Run", results.run_id),
        ("Software", ", ".join(f"{name} {version}" for name, version in results.versions.items())),
    ]  # fmt: skip
    return [(name, value) for name, value in listed if value]


_REFERENCES = {
    "line": "one line that names the role",
    "instruction": "the role's first instruction",
    "reference": "description, style and demonstrations",
}

_FIGURES = {
    "scored": "answers scored",
    "new_tokens": "new tokens",
    "cost": "spent",
    "errors": "answers failed",
    "missing_share": "scores missing",
    "saved_share": "cells saved",
    "stable_verdict_share": "roles with one verdict over seeds",
    "stable_share": "roles with one verdict and strength",
    "judge_agreement": "second judge agrees",
}


def _figures(results: ScreenResults) -> list[tuple[str, str]]:
    """List the figures of the whole screen, value first."""
    listed = []
    for name, value in results.facts.items():
        if (found := finite(value)) is None or (name == "saved_share" and not results.config["adaptive"]):
            continue
        share = name.endswith(("share", "agreement"))
        money = f"{found:.2f} USD" if name == "cost" else f"{found:,.0f}"
        listed.append((percent(found) if share else money, _FIGURES.get(name, name.replace("_", " "))))
    return listed


def _stages(results: ScreenResults) -> list[dict[str, Any]]:
    """List the stages with their time, its share of the whole, and their rate."""
    total = sum(stage["seconds"] for stage in results.timings.values())
    return [
        {
            "name": STAGES.get(name, name.replace("_", " ").capitalize()),
            "time": duration(stage["seconds"]),
            "share": stage["seconds"] / total if total else 0.0,
            "units": f"{stage['units']:,.0f}",
            "rate": f"{stage['units'] / stage['seconds']:,.1f}" if stage["seconds"] else "",
        }
        for name, stage in results.timings.items()
    ]


def _stability(results: ScreenResults) -> list[tuple[str, int]] | None:
    """Count the roles whose seeds agree on verdict and strength, on the verdict alone, or on neither."""
    if "same_strength" not in results.verdicts:
        return None
    both = int(results.verdicts["same_strength"].sum())
    verdict = int(results.verdicts["same_verdict"].sum())
    rest = len(results.verdicts) - verdict
    return [
        ("verdict and strength agree", both),
        ("verdict agrees, strength differs", verdict - both),
        ("verdict differs", rest),
    ]

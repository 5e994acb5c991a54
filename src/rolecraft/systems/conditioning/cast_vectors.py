"""CastVectors: screening role directions before a population relies on them (arXiv 2608.00023).

Exact: the extraction (role prompt against an empty system text, mean over response tokens, filtered pairs, raw norm),
the site at half depth, h + alpha v at the last position of prefill and of every decode step, the alpha grid, the six
dimensions, Pearson r per dimension and role, anti-controllable as r < 0 on all six. The parts live in `conditioning`,
`measures` and `screening`; this file is their two studies.
Adapted: SmolLM2-135M for Olmo-3-7B; the offline judge for GPT-4.1-mini; controls at each role's norm; 32 new tokens.
Small: `rolecraft systems run cast-vectors` (planted, then smollm2). Paper's size: `--study smollm2 --full --set
model=local:PATH` on a GPU (Olmo-3-7B-Instruct: 275 roles x 4 strengths x 228 questions; expected: overall 63.2 for the
roles' directions against 41.1 for the control).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rolecraft.conditioning import Rung
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rolecraft._run import RunStore
    from rolecraft.measures import Interval
    from rolecraft.screening import ScreenConfig
    from rolecraft.testing._planted import PlantedRole

SYSTEM = System(
    number=1,
    name="cast-vectors",
    title="Role Steering of Language Models for Social Simulations",
    arxiv="2608.00023",
    family="conditioning",
    claim="role directions align text with the role better than an assistant-axis control over a grid of strengths, "
    "and a per-role screen finds where they do not",
    published="overall 63.2 (role) vs 41.1 (control); 38 of 275 roles decline on all six dimensions",
)


# (a) Planted truth: does the screen find what is there?


@dataclass(frozen=True)
class PlantedConfig(StudyConfig):
    """A transformer written by hand, whose right answers are known in closed form."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    questions: int = 12
    """Evaluation questions. Paper: 228."""
    strengths: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    """Paper: the same."""


def run_planted(config: PlantedConfig, store: RunStore) -> Result:
    """Screen the planted roles once per seed; also with each role's random control passed off as its direction."""
    from rolecraft.screening import ScreenConfig, ScreenRun, decide
    from rolecraft.testing._planted import (
        EXPECTED,
        ROLES,
        PlantedJudge,
        planted_inventory,
        planted_model,
        planted_questions,
    )

    model = planted_model()
    for seed in config.seeds:
        if not store.missing("rows", [row_key("screen", seed, role.name) for role in ROLES]):
            continue
        asked = ScreenConfig(
            inventory="planted", questions_from="planted", model=model.name, questions=config.questions,
            strengths=config.strengths, seeds=(seed,), max_tokens=30, temperature=1.0, top_p=1.0, accept="all",
        )  # fmt: skip
        with ScreenRun.open(
            asked, store.directory / f"screen-{seed}", inventory=planted_inventory(), model=model,
            bank=planted_questions(config.questions), judges=(PlantedJudge(),), quiet=True,
        ) as run:  # fmt: skip
            run.run()
            table = run.results().table
        impostor = table.assign(arm=table["arm"].replace({"role": "random", "random": "role"}))
        for arm, rows in (("screen", table), ("random-as-role", impostor)):
            decided = {row["role"]: row for row in decide(rows, asked.rule).to_dict("records")}
            for role in ROLES:
                found = decided[role.name]
                best = max(config.strengths, key=role.share)
                right = found["verdict"] == EXPECTED[role.name]
                if EXPECTED[role.name] == "PASS":
                    right = right and found["strength"] == best
                put_row(
                    store, arm, seed, role.name, right=float(right),
                    anti_right=_anti_right(role, config.strengths, found["anti_controllable"]),
                    above_control=float(found["control"]), passed=float(found["verdict"] == "PASS"),
                )  # fmt: skip
    return Result.read(store)


def _anti_right(role: PlantedRole, strengths: Sequence[float], found: bool) -> float | None:
    """Return whether anti-controllable was told right; None where the planted curve has no clear trend."""
    from rolecraft.measures import pearson

    r = pearson(strengths, [role.share(strength) for strength in strengths]).r
    return float(found == (r < 0)) if abs(r) > 0.5 else None


def verdict_planted(result: Result) -> Verdict:
    """Demand the planted verdict and strength for nearly every role and seed, and no pass for random directions."""
    right = result.mean("right", "screen", by="seed")
    impostors = result.mean("passed", "random-as-role", by="seed")
    anti = result.mean("anti_right", "screen")
    found = right.estimate >= 0.9 and impostors.estimate <= 0.1
    note = (
        "share of planted roles whose verdict and strength were found; anti-controllable told right "
        f"{anti.estimate:.0%}; control: share of random directions that pass as a role's"
    )
    return Verdict.when(reproduced=found, effect=right, control=impostors, note=note)


# (b) The embedded model: do the paper's findings hold at 135M?

VIVID = ("pirate", "poet", "soldier", "ghost", "wizard", "jester", "samurai", "dragon")
PROFESSIONAL = ("chef", "scientist", "teacher", "judge", "detective", "surgeon", "carpenter", "physicist")
ASSISTANT_LIKE = ("assistant", "tutor", "translator", "helper", "librarian", "editor", "fact-checker", "secretary")


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """SmolLM2-135M-Instruct on three groups of roles."""

    model: str = "local:smollm2"
    """Paper: Olmo-3-7B-Instruct."""
    roles: tuple[str, ...] = VIVID + PROFESSIONAL + ASSISTANT_LIKE
    """Paper: 275."""
    questions: int = 6
    """Paper: 228."""
    instructions: int = 3
    """Paper: 5."""
    role_questions: int = 10
    """Paper: until 50 pairs are kept."""
    strengths: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    """Paper: the same."""
    max_tokens: int = 32
    """Paper: 2,000."""
    reference: Rung = "instruction"
    """Paper: `reference`, with demonstrations."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size."""
        return cls(
            seeds=(0,), roles=(), questions=228, instructions=5, role_questions=10, max_tokens=200,
            reference="reference",
        )  # fmt: skip


def _screen_config(config: SmolConfig) -> ScreenConfig:
    from rolecraft.screening import ScreenConfig

    return replace(ScreenConfig(), **{field.name: getattr(config, field.name) for field in fields(config)})


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Screen, and keep one row per arm and strength, seed, role and question."""
    from rolecraft.screening import ScreenRun

    with ScreenRun.open(_screen_config(config), store.directory / "screen") as run:
        run.run()
        results = run.results()
    rows: dict[str, dict[str, Any]] = {}
    for cell in results.table.to_dict("records"):
        arm, unit = f"{cell['arm']}@{cell['strength']:g}", f"{cell['role']}/{cell['question']}"
        score = None if np.isnan(cell["overall"]) else cell["overall"]
        rows[row_key(arm, cell["seed"], unit)] = {
            "arm": arm, "seed": cell["seed"], "unit": unit, "overall": score, "bigrams": cell["unique_bigram_ratio"],
        }  # fmt: skip
    for decision in results.verdicts.to_dict("records"):
        figures = {
            name: decision[name] for name in ("r", "slope", "norm", "gain_held_out", "anti_controllable", "at_edge")
        }
        figures = {name: None if value is None or np.isnan(value) else float(value) for name, value in figures.items()}
        passed = float(decision["verdict"] == "PASS")
        rows[row_key("decision", 0, decision["role"])] = {
            "arm": "decision", "seed": 0, "unit": decision["role"], "passed": passed, **figures,
        }  # fmt: skip
    store.put_many("rows", rows)
    return Result.read(store)


def over_grid(result: Result, arm: str) -> Result:
    """Return the rows of one arm at all strengths and of the axis at the same ones, as two arms."""
    renamed = []
    for row in result.rows:
        name, _, strength = row["arm"].partition("@")
        if name in (arm, "axis") and strength:
            renamed.append({**row, "arm": name, "unit": f"{row['unit']}/{strength}"})
    return Result(tuple(renamed))


def checks(result: Result) -> dict[str, tuple[bool, str]]:
    """Return the paper's five findings, each with whether it held here and the figures."""
    from rolecraft.measures import pearson

    strengths = sorted({float(arm.split("@")[1]) for arm in result.arms if arm.startswith("role@")})
    gaps = [result.difference("overall", f"role@{s:g}", f"axis@{s:g}") for s in strengths]
    above = result.difference("bigrams", f"role@{strengths[-1]:g}", f"axis@{strengths[-1]:g}")
    level = result.mean("bigrams", f"role@{strengths[-1]:g}")
    decisions = [row for row in result.rows if row["arm"] == "decision" and row["r"] is not None]
    rising = float(np.mean([row["r"] > 0 for row in decisions]))
    own, uniform = _held_out(result, strengths)
    r = pearson([row["norm"] for row in decisions], [row["slope"] for row in decisions]).r
    anti = sum(row["anti_controllable"] for row in decisions)
    grid = _role_clusters(over_grid(result, "role"), "role", "axis")
    return {
        "a: role > axis over the grid": (grid.low > 0, f"{grid.estimate:+.1f} [{grid.low:+.1f}, {grid.high:+.1f}]"),
        "b: the gap grows with strength": (
            gaps[-1].estimate > gaps[0].estimate, " ".join(f"{gap.estimate:+.1f}" for gap in gaps),
        ),
        "c: diversity stays above the control's": (
            above.low > 0 and level.low > 0.5, f"{level.estimate:.2f}, {above.estimate:+.2f} over the axis",
        ),
        "d: most roles rise, a per-role strength beats a uniform one": (
            rising > 0.5 and own > uniform,
            f"{rising:.0%} rise, {anti:.0f} anti-controllable, held out {own:.1f} vs {uniform:.1f}",
        ),
        "e: longer directions rise more": (r > 0, f"r = {r:+.2f}"),
    }  # fmt: skip


def _role_clusters(result: Result, a: str, b: str) -> Interval:
    """Bootstrap the difference over roles: questions of one role are not independent of each other."""
    from rolecraft.measures import paired_bootstrap

    scores: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in result.rows:
        if row["overall"] is not None:
            scores.setdefault((row["seed"], row["unit"]), {})[row["arm"]] = row["overall"]
    pairs = {key: value for key, value in scores.items() if {a, b} <= set(value)}
    roles = [str(unit).split("/")[0] for _, unit in pairs]
    return paired_bootstrap(np.array([value[a] - value[b] for value in pairs.values()]), roles)


def _held_out(result: Result, strengths: list[float]) -> tuple[float, float]:
    """Choose strengths on half of the questions, per role and one for all, and score both on the other half."""
    means: dict[tuple[str, int, float], list[float]] = {}
    for row in result.rows:
        if row["arm"].startswith("role@") and row["overall"] is not None:
            role, question = row["unit"].split("/")
            key = (role, int(question.lstrip("qp")) % 2, float(row["arm"].split("@")[1]))
            means.setdefault(key, []).append(row["overall"])
    table = {key: float(np.mean(values)) for key, values in means.items()}
    roles = sorted({role for role, _, _ in table})
    own, uniform = [], []
    for half in (0, 1):
        common = max(strengths, key=lambda s: np.mean([table[role, half, s] for role in roles]))
        for role in roles:
            best = max(strengths, key=lambda s: table[role, half, s])
            own.append(table[role, 1 - half, best])
            uniform.append(table[role, 1 - half, common])
    return float(np.mean(own)), float(np.mean(uniform))


def verdict_smollm2(result: Result) -> Verdict:
    """Decide on the claim (check a); the control, another role's direction, must gain less than the role's own."""
    effect = _role_clusters(over_grid(result, "role"), "role", "axis")
    control = _role_clusters(over_grid(result, "shuffled"), "shuffled", "axis")
    note = "; ".join(
        f"{name}: {'held' if held else 'not held'} ({figures})" for name, (held, figures) in checks(result).items()
    )
    return Verdict.when(
        reproduced=effect.low > 0 and control.estimate < effect.estimate, effect=effect, control=control, note=note
    )


STUDIES = {
    "planted": (PlantedConfig, run_planted, verdict_planted),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

"""BFI-Adapt: whether personas change after life events, and in the direction people do (arXiv 2608.06485).

Exact: pre-test, event narrative, post-test per persona and event over the Big Five; pairs with and without documented
human change; the four axes occurrence, direction, magnitude, heterogeneity; the classes match, overshoot, rigidity,
reversal; retest noise, paraphrase and persistence checks.
Inferred (only the abstract was at hand): first-person elaboration of the event; the no-event quantile of 95 %; the
score 50 (1 + F); false discovery rate over cells. Added: a shift must also exceed the accident of who was asked.
Adapted: our own statements for the BFI-2 (copyrighted; give yours with `questionnaire=PATH`); a direction table of
nine pairs with named studies and no magnitudes, so that with real personas size is not judged; SmolLM2-135M answers
by expected value over the digits. The parts live in `measures`.
Left out: behavioural choices. Small: `rolecraft systems run bfi-adapt` (planted, then smollm2). Paper's size:
`--study smollm2 --full --set model=openai:NAME@URL`, once for each of 14 models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key
from rolecraft.systems.measures._bfi_agents import (
    PlantedAgent,
    Sitting,
    finite,
    make_personas,
    planted_shifts,
    planted_world,
    sittings,
)

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval, Questionnaire, ShiftReport, Shifts
    from rolecraft.roles import Role

SYSTEM = System(
    number=4,
    name="bfi-adapt",
    title="Do AI Personas Grow? Analyzing and Benchmarking Personality Evolution in LLM Agents After Life Events",
    arxiv="2608.06485",
    family="measures",
    claim="personas shift about as often where no human change is documented as where one is, and differ far less "
    "from each other in their shifts than people do",
    published="similar shift rates on documented and undocumented pairs; sizes below human ranges; dispersion "
    "compressed three- to four-fold (14 models, 11 events)",
)


# (a) Planted truth: does the benchmark measure what it says?

ARMS: Mapping[str, PlantedAgent] = {
    "right": PlantedAgent(size=1, spread=1),
    "half": PlantedAgent(size=0.5, spread=1),
    "double": PlantedAgent(size=2, spread=1),
    "mixed": PlantedAgent(size=1, wrong=0.3, spread=1),
    "reversed": PlantedAgent(size=-1, spread=1),
    "compressed": PlantedAgent(size=1, spread=0.25),
    "everywhere": PlantedAgent(size=1, spread=1, everywhere=True),
    "noise": PlantedAgent(),
    "never": PlantedAgent(noise=0),
}
"""Populations; the last two are the controls: retest noise alone, and answers that never change."""
CONTROLS = ("noise", "never")


@dataclass(frozen=True)
class PlantedConfig(StudyConfig):
    """Synthetic personas that fill in the instrument from latent traits; directions and human figures are made up."""

    personas: int = 150
    events: int = 11
    """Paper: 11."""
    documented: int = 22
    """Of the cells (events times five traits)."""
    repeats: int = 3
    retests: int = 5
    """No-event repeats per persona, at least 5."""
    human_mean: float = 0.6
    """Human mean change on documented cells, in SD between persons."""
    human_low: float = 0.45
    """Documented range, in SD."""
    human_high: float = 0.9
    resamples: int = 2000
    """Of personas, for the intervals."""


def expected_kind(agent: PlantedAgent, sign: int, human: int, config: PlantedConfig) -> str:
    """Return the class that a documented cell has by construction."""
    if sign == 0:
        return "rigidity"
    if sign != human:
        return "reversal"
    size = abs(agent.size) * config.human_mean
    return "rigidity" if size < config.human_low else "overshoot" if size > config.human_high else "match"


def run_planted(config: PlantedConfig, store: RunStore) -> Result:
    """Measure each population once per seed, and compare the report with what was planted."""
    from rolecraft.measures import ShiftRule, load_questionnaire, measure_shifts

    questionnaire = load_questionnaire("big-five-v1")
    limits = (config.human_low, config.human_high)
    size = (config.personas, config.repeats, config.retests)
    for arm, seed in missing_rows(store, ARMS, config.seeds):
        agent = ARMS[arm]
        world = planted_world(questionnaire, config.events, config.documented, config.human_mean, limits, seed)
        shifts, planted = planted_shifts(agent, world, questionnaire, size, seed)
        report = measure_shifts(shifts, world.directions, world.human, ShiftRule(resamples=config.resamples, seed=seed))
        kinds = {(cell.event, cell.trait): cell.kind for cell in report.cells}
        humans = {(change.event, change.trait): change.sign for change in world.directions}
        right = [kinds[cell] == expected_kind(agent, sign, humans[cell], config) for cell, sign in planted.items()]
        truth = 50 * (1 + float(np.mean([sign * humans[cell] for cell, sign in planted.items()])))
        assert report.dispersion is not None  # the planted world has human figures
        score = report.score
        put_row(
            store, arm, seed, kind_right=float(np.mean(right)), score=score.estimate, score_planted=truth,
            score_error=abs(score.estimate - truth), covered=float(score.low <= truth <= score.high),
            dispersion=finite(report.dispersion.estimate), dispersion_planted=agent.spread,
            detected_documented=report.detected["documented"].estimate,
            detected_undocumented=report.detected["undocumented"].estimate,
            occurrence_gap=report.occurrence["difference"].estimate,
            occurrence=report.occurrence["documented"].estimate,
        )  # fmt: skip
    return Result.read(store)


def verdict_planted(result: Result) -> Verdict:
    """Demand the planted classes, scores, their order and the dispersion, and next to no detection in the controls."""
    rows = {(row["arm"], row["seed"]): row for row in result.rows}
    right = Result(tuple({**row, "arm": "all", "unit": row["arm"]} for row in result.rows)).mean(
        "kind_right", "all", by="seed"
    )
    found = [rows[arm, seed]["score"] for arm, seed in rows if arm == "noise"]
    error = max(row["score_error"] for row in result.rows)
    ordered = all(
        rows[a, seed]["score"] > rows[b, seed]["score"]
        for seed in result.seeds
        for a in ARMS
        for b in ARMS
        if rows[a, seed]["score_planted"] > rows[b, seed]["score_planted"]
    )
    spreads = {arm: result.mean("dispersion", arm, by="seed").estimate for arm in ("right", "compressed", "noise")}
    apart = all(
        abs(spreads[arm] - ARMS[arm].spread) <= 0.25 * ARMS[arm].spread + 0.05 for arm in ("right", "compressed")
    )
    false = Result(
        tuple(
            {"arm": "controls", "seed": row["seed"], "unit": f"{row['arm']}/{kind}", "m": row[f"detected_{kind}"]}
            for row in result.rows if row["arm"] in CONTROLS for kind in ("documented", "undocumented")
        )
    ).mean("m", "controls", by="seed")  # fmt: skip
    gaps = {arm: result.mean("occurrence_gap", arm, by="seed").estimate for arm in ("right", "everywhere")}
    note = (
        "share of documented cells whose class was found; "
        f"score within {error:.1f} points of the planted one, order {'right' if ordered else 'wrong'}, "
        f"{np.mean(found):.0f} from noise alone; dispersion ratio {spreads['right']:.2f} (planted 1), "
        f"{spreads['compressed']:.2f} (planted 0.25); occurrence on documented less undocumented "
        f"{gaps['right']:+.2f} (right), {gaps['everywhere']:+.2f} (planted 0); control: share of cells detected where "
        "nothing or only noise was planted"
    )
    held = (
        right.estimate >= 0.9 and ordered and error <= 10 and apart and false.estimate <= 0.05
        and gaps["right"] > 0.1 > abs(gaps["everywhere"])
    )  # fmt: skip
    return Verdict.when(reproduced=held, effect=right, control=false, note=note)


# (b) A language model


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """Personas played by SmolLM2-135M-Instruct; new ones for every seed."""

    model: str = "local:smollm2"
    """Paper: 14 models."""
    questionnaire: str = "big-five-v1"
    """Name or file. Paper: a BFI-2-type inventory."""
    personas: int = 6
    """Per seed."""
    events: tuple[str, ...] = ("new-relationship", "first-job", "unemployment", "retirement")
    """Paper: 11; empty for all."""
    items: int = 4
    """Per trait, half of them reversed."""
    repeats: int = 2
    """Per event, each with another narrative."""
    retests: int = 5
    """Without an event, at least 5."""
    fillers: int = 5
    """Unrelated turns before the last sheet; 0 leaves it out."""
    max_tokens: int = 24
    """Of a reply in the dialogue."""
    mode: Literal["expected", "sampled"] = "expected"
    """How an item is answered."""

    def __post_init__(self) -> None:
        if self.retests < 5 or not 1 <= self.repeats <= self.retests or self.personas < 2:
            raise UserError(
                "expected retests of 5 or more, repeats from 1 to retests, and 2 personas or more, got "
                f"{self.retests}, {self.repeats} and {self.personas}."
            )

    @classmethod
    def full(cls) -> Self:
        """Return all events and items, on a served model."""
        return cls(personas=100, events=(), items=10, repeats=4, retests=5, max_tokens=120, mode="sampled")


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model and run what is missing."""
    units = [row_key("persona", seed, number) for seed in config.seeds for number in range(config.personas)]
    if store.missing("personas", units):
        run_on(load_model(config.model), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Run the missing personas on a model; one row per sheet after a text, with the scores before and after."""
    from rolecraft.measures import administer, load_life_events, load_questionnaire

    events = load_life_events()
    chosen = config.events or tuple(event.id for event in events.events)
    for name in chosen:
        events[name]  # an unknown one is refused before the first call
    questionnaire = load_questionnaire(config.questionnaire).short(config.items)
    for seed in config.seeds:
        for number, role in enumerate(make_personas(config.personas, seed)):
            if not store.missing("personas", [row_key("persona", seed, number)]):
                continue
            sheets = sittings(
                model, role, events, chosen, config.repeats, config.retests, config.fillers, config.max_tokens, seed
            )
            answers = administer(
                model, questionnaire, [sheet.context for sheet in sheets], mode=config.mode,
                wordings=[sheet.wording for sheet in sheets],
                seeds=[_sheet_seed(seed, role.id, sheet) for sheet in sheets],
            )  # fmt: skip
            store.put_many(ROWS, _rows(questionnaire, role, sheets, answers, seed))
            store.put("personas", row_key("persona", seed, number), {"description": role.description})
    return Result.read(store)


def _sheet_seed(seed: int, persona: str, sheet: Sitting) -> int:
    from rolecraft._run import derive_seed

    return derive_seed("bfi-adapt", "sheet", seed, persona, sheet.kind, sheet.event, sheet.repeat)


def _rows(
    questionnaire: Questionnaire, role: Role, sheets: list[Sitting], answers: Any, seed: int
) -> dict[str, dict[str, Any]]:
    """Pair every sheet with the one before it: the sheet of the same repeat in the bare persona's context."""
    scores = [
        questionnaire.score(
            {item.id: finite(value) for item, value in zip(questionnaire.items, row, strict=True)}
        )
        for row in answers
    ]  # fmt: skip
    before = {sheet.repeat: score for sheet, score in zip(sheets, scores, strict=True) if sheet.kind == "pre"}
    rows = {}
    for sheet, after in zip(sheets, scores, strict=True):
        if sheet.kind == "pre":
            continue
        unit = f"{role.id}/{sheet.event}/{sheet.repeat}"
        first = before[sheet.repeat]
        rows[row_key(sheet.kind, seed, unit)] = {
            "arm": sheet.kind, "seed": seed, "unit": unit, "persona": role.id, "event": sheet.event,
            "repeat": sheet.repeat, "gender": role.tags[0], "region": role.tags[1],
            "straight": float(after.straight_lining), "missing": sum(after.missing.values()),
            **{f"pre_{trait}": finite(value) for trait, value in first.traits.items()},
            **{f"post_{trait}": finite(value) for trait, value in after.traits.items()},
        }  # fmt: skip
    return rows


def read_shifts(result: Result, arm: str) -> Shifts:
    """Return the rows of `event`, `neutral` or `later` with the retests, as arrays; personas of all seeds together.

    Raises:
        UserError: If the arm has no rows.
    """
    from rolecraft.measures import Shifts

    rows = [row for row in result.rows if row["arm"] == arm]
    if not rows:
        raise UserError(f"arm {arm!r} is not in the rows ({', '.join(result.arms)}).")
    personas = tuple(dict.fromkeys(row["persona"] for row in rows))
    events = tuple(dict.fromkeys(row["event"] for row in rows))
    traits = tuple(name.removeprefix("pre_") for name in rows[0] if name.startswith("pre_"))

    def table(name: str, label: str, columns: tuple[str, ...]) -> Any:
        chosen = [row for row in result.rows if row["arm"] == name and row["persona"] in personas]
        repeats = 1 + max(row["repeat"] for row in chosen)
        array = np.full((len(personas), len(columns), repeats, len(traits)), math.nan)
        for row in chosen:
            values = [row[f"{label}_{trait}"] for trait in traits]
            place = (personas.index(row["persona"]), columns.index(row["event"]), row["repeat"])
            array[place] = [math.nan if value is None else value for value in values]
        return array

    return Shifts(
        personas, events, traits, table(arm, "pre", events), table(arm, "post", events),
        table("retest", "pre", ("",))[:, 0], table("retest", "post", ("",))[:, 0],
    )  # fmt: skip


def read_report(result: Result) -> tuple[ShiftReport, Interval, Interval]:
    """Return the report on the events; the reaction rate to a neutral text, and by how much the events exceed it."""
    from rolecraft.measures import bootstrap_mean, load_life_events, measure_shifts, paired_bootstrap
    from rolecraft.measures._shift_data import mean_over

    shifts = read_shifts(result, "event")
    report = measure_shifts(shifts, load_life_events().directions)
    limits = np.array([report.thresholds[trait] for trait in shifts.traits])

    def rates(of: Shifts) -> Any:
        values = of.by_persona
        over = np.abs(values) > np.tile(limits, len(of.events))
        return mean_over(np.where(np.isnan(values), math.nan, over), 1)

    neutral = rates(read_shifts(result, "neutral"))
    return report, bootstrap_mean(neutral), paired_bootstrap(rates(shifts) - neutral)


MARGIN = 0.15
"""Occurrence rates are alike if they differ by less."""


def verdict_smollm2(result: Result) -> Verdict:
    """Demand that occurrence differs by under 15 points and that dispersion is below 1; control: a neutral text."""
    from rolecraft.measures import moderation, persistence

    report, neutral, above = read_report(result)
    shifts = read_shifts(result, "event")
    effect, spread = report.occurrence["difference"], report.relative_dispersion
    genders = {row["persona"]: row["gender"] for row in result.rows}
    groups = [genders[persona] for persona in shifts.personas]
    share, p = moderation(shifts, groups) if len(set(groups)) > 1 else (math.nan, math.nan)
    lasting = "not asked"
    if "later" in result.arms:
        lasting = str(persistence(shifts.by_persona, read_shifts(result, "later").by_persona))
    straight = float(np.mean([row["straight"] for row in result.rows]))
    note = (
        f"occurrence on documented less undocumented pairs; reactions {report.occurrence['documented'].estimate:.0%} "
        f"and {report.occurrence['undocumented'].estimate:.0%}, above the neutral text by {above}; score "
        f"{report.score}; right sign in {report.direction}; classes {report.counts}; SD of shifts over SD of personas "
        f"{spread}; kept after the fillers {lasting}; gender explains {share:.0%} (p {p:.2f}); straight-lining sheets "
        f"{straight:.0%}; missing scores {report.missing}; no human magnitudes, so size is not judged"
    )
    within = effect.low > -MARGIN and effect.high < MARGIN
    outside = effect.low >= MARGIN or effect.high <= -MARGIN
    return Verdict.when(
        reproduced=within and spread.high < 1, effect=effect, control=neutral,
        inconclusive=not above.low > 0 or not (within or outside), note=note,
    )  # fmt: skip


STUDIES = {
    "planted": (PlantedConfig, run_planted, verdict_planted),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

"""Belief-behaviour consistency: does a model play a persona as it says the persona will act (arXiv 2507.02197)?

Exact: beliefs asked before and apart from any play, about outcomes and through attributes, with more or less said of
the game; individual, population and horizon consistency; theories imposed by prompt, congruent and incongruent.
Assumed, as the paper's constants are not known to us: endowment 10, multiplier 3, five rounds, the formulas of the
figures. Added: reliabilities of both sides and the correction for them, without which noise looks like inconsistency.
Adapted: SmolLM2-135M, which answers by log-probability; 60 personas of our own for those of the General Social Survey.
The measure lies in `measures`, the game in `worlds`; this file is its two studies.
Small: `rolecraft systems run belief-behavior` (planted, then smollm2). Others: `--study smollm2 --set model=...`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import IndividualConsistency, Interval, PopulationConsistency
    from rolecraft.models import LanguageModel

SYSTEM = System(
    number=62,
    name="belief-behavior",
    title="Do Role-Playing Agents Practice What They Preach? Belief-Behavior Consistency in LLM-Based Simulations of "
    "Human Trust",
    arxiv="2507.02197",
    family="measures",
    claim="what a language model states about how personas will act does not match how it plays them, in single "
    "personas and in the population, and imposing a theory does not mend it reliably",
    published="systematic inconsistencies at both levels (no figures known to us)",
)


# (a) Planted truth: does the measure find the agreement that is there?


@dataclass(frozen=True)
class PlantedConfig(StudyConfig):
    """Scripted populations whose belief map and behaviour map agree by a known amount."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    personas: int = 120
    askings: int = 3
    """Noisy statements of a belief per persona."""
    plays: int = 5
    agreements: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Correlations of the two maps; the first and the last are judged as none and full."""
    compliances: tuple[float, ...] = (0.0, 0.5, 1.0)
    """How far an imposed theory moves the population."""
    theory_plays: int = 20
    """Plays per persona where theories are imposed: a compliance divides by the room left, which magnifies noise."""
    shuffles: int = 20
    """Orders of personas in the control."""
    draws: int = 200
    """Resamples of the personas behind each row's interval."""

    def __post_init__(self) -> None:
        if self.personas < 10 or min(self.askings, self.plays, self.theory_plays) < 2 or self.shuffles < 1:
            raise UserError(
                "expected at least 10 personas, 2 askings, 2 plays (with and without theories) and 1 shuffle, got "
                f"{self.personas}, {self.askings}, {self.plays}, {self.theory_plays} and {self.shuffles}."
            )
        if list(self.agreements[:1]) != [0.0] or list(self.agreements[-1:]) != [1.0]:
            raise UserError(f"agreements must run from 0 to 1, got {self.agreements}.")
        if not all(0 <= a < b <= 1 for a, b in zip(self.agreements, self.agreements[1:], strict=False)):
            raise UserError(f"agreements must rise from 0 to 1, got {self.agreements}.")
        if not self.compliances:
            raise UserError("compliances: give one or more.")


def run_planted(config: PlantedConfig, store: RunStore) -> Result:
    """Play and measure every planted population; rows are stored as they are computed."""
    agreements = {f"agreement@{value:g}": value for value in config.agreements}
    compliances = {f"compliance@{value:g}": value for value in config.compliances}
    for arm, seed in missing_rows(store, [*agreements, "shuffled", *compliances], config.seeds):
        if arm in compliances:
            put_row(store, arm, seed, **_planted_compliance(config, compliances[arm], seed))
        else:
            put_row(store, arm, seed, **_planted_agreement(config, agreements.get(arm), seed))
    return Result.read(store)


def _planted_agreement(config: PlantedConfig, agreement: float | None, seed: int) -> dict[str, float | None]:
    """Measure one population; None: full agreement, with the personas' beliefs exchanged."""
    from rolecraft.measures import attribute_effect, individual_consistency, population_consistency, spearman
    from rolecraft.systems.measures._belief_planted import PlantedPopulation

    population = PlantedPopulation.drawn(config.personas, 1.0 if agreement is None else agreement, seed)
    beliefs, plays = population.state_beliefs(config.askings, seed), population.played(config.plays, seed)
    if agreement is None:
        rng = np.random.default_rng(derive_seed(seed, "shuffle"))
        orders = [rng.permutation(config.personas) for _ in range(config.shuffles)]
        found = [individual_consistency(beliefs[order], plays, population.endowment, draws=2) for order in orders]
        return {name: float(np.mean([getattr(one, name).estimate for one in found])) for name in ("rho", "corrected")}
    attributes = {f"a{place}": column for place, column in enumerate(population.attributes.T)}
    stated = {
        name: attribute_effect(column, population.believed, "difference", population.endowment)
        for name, column in attributes.items()
    }
    options: dict[str, Any] = {"scale": population.endowment, "draws": config.draws, "seed": seed}
    effects = population_consistency(stated, attributes, plays, kind="difference", **options)
    truth = float(spearman(population.believed, population.behaviour))
    row = _figures(individual_consistency(beliefs, plays, population.endowment, draws=config.draws, seed=seed), effects)
    corrected = row["corrected"]
    return row | {"truth": truth, "miss": None if corrected is None else corrected - truth}


def _planted_compliance(config: PlantedConfig, compliance: float, seed: int) -> dict[str, float | None]:
    """Impose both theories on a population that follows them by a known amount."""
    from rolecraft.measures import prior_compliance
    from rolecraft.systems.measures._belief_planted import THEORIES, PlantedPopulation

    population = PlantedPopulation.drawn(config.personas, 0.5, seed)
    before = population.played(config.theory_plays, seed, label="baseline")
    row: dict[str, float | None] = {}
    for name, target in THEORIES.items():
        tendency = population.under_theory(target, compliance)
        after = population.played(config.theory_plays, seed, tendency, label=f"{name}/{compliance}")
        options: dict[str, Any] = {"scale": population.endowment, "draws": config.draws, "seed": seed}
        found = prior_compliance(population.attributes[:, 0], before, after, target, **options)
        row[name] = _number(found.estimate)
    return row | {"truth": compliance}


def verdict_planted(result: Result) -> Verdict:
    """Demand the planted agreement after correction, a rising curve, nothing from exchanged beliefs, and compliance."""
    agreements = _swept(result, "agreement")
    curve = {value: result.mean("corrected", arm, by="seed") for value, arm in agreements.items()}
    means = [figure.estimate for figure in curve.values()]
    full, none = curve[max(curve)], curve[min(curve)]
    control = result.mean("corrected", "shuffled", by="seed")
    compliance = {
        value: [result.mean(theory, arm, by="seed").estimate for theory in ("more", "less")]
        for value, arm in _swept(result, "compliance").items()
    }
    misses = [abs(found - value) for value, both in compliance.items() for found in both]
    raw = result.mean("rho", agreements[max(agreements)], by="seed")
    held = (
        full.low >= 0.85 and full.high <= 1.15
        and abs(none.estimate) <= 0.1 and abs(control.estimate) <= 0.1
        and means == sorted(means) and max(misses) <= 0.1
    )  # fmt: skip
    note = (
        f"corrected correlation at full agreement (raw {raw.estimate:.2f}); along the sweep "
        + ", ".join(f"{value:g}: {figure.estimate:.2f}" for value, figure in curve.items())
        + "; compliance "
        + ", ".join(f"{value:g}: {both[0]:.2f} and {both[1]:.2f}" for value, both in compliance.items())
        + "; control: beliefs of exchanged personas"
    )
    return Verdict.when(reproduced=held, effect=full, control=control, note=note)


def _swept(result: Result, name: str) -> dict[float, str]:
    """Return the arms of a sweep by value, rising."""
    arms = {float(arm.split("@")[1]): arm for arm in result.arms if arm.startswith(f"{name}@")}
    return dict(sorted(arms.items()))


# (b) A language model


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """A language model that is asked about personas, and plays them."""

    model: str = "local:smollm2"
    """Paper: larger served models."""
    personas_from: str = "census-personas-v1"
    """An inventory whose roles have the traits trust, risk, altruism and reciprocity. Paper: 3,505 of genagents."""
    personas: int = 60
    """The first so many; 0 takes all."""
    contexts: tuple[Literal["none", "named", "rules", "role", "practice"], ...] = ("none", "rules", "practice")
    """What is said of the game before a belief is asked for."""
    reading: Literal["expected", "likeliest"] = "expected"
    """How a belief is read off the probabilities of the numbers."""
    plays: int = 5
    rounds: int = 5
    """Of the repeated game."""
    theories: tuple[str, ...] = ("more/strong", "less/strong", "more/weak", "less/weak")
    """Imposed: how the first attribute, trust, is said to move what is sent, and how strongly."""
    temperature: float = 1.0
    """Of the plays."""
    draws: int = 1000
    """Resamples of the personas."""

    def __post_init__(self) -> None:
        if self.plays < 2 or self.rounds < 2 or self.personas < 0 or not self.contexts:
            raise UserError(
                "expected at least 2 plays, 2 rounds, 0 personas (all) and 1 context, got "
                f"{self.plays}, {self.rounds}, {self.personas} and {len(self.contexts)}."
            )
        for theory in self.theories:
            direction, _, strength = theory.partition("/")
            if direction not in ("more", "less") or strength not in ("strong", "weak"):
                raise UserError(f"theories: expected more/strong, more/weak, less/strong or less/weak, got {theory!r}.")


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model and run the study; see `run_on`."""
    from rolecraft.models import load_model

    return run_on(load_model(config.model), config, store)


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Ask for all beliefs, then play; every row, and every table behind the rows, is stored as it is computed."""
    from rolecraft.systems.measures._belief_simulation import Simulation

    simulation = Simulation(model, config, store)
    for seed in config.seeds:
        for arm, measure in simulation.arms(seed).items():
            if missing_rows(store, [arm], [seed]):
                put_row(store, arm, seed, **measure())
    return Result.read(store)


def verdict_smollm2(result: Result) -> Verdict:
    """Demand a gap below the self-repeat ceiling for every way of asking about outcomes, and none for own plays."""
    arms = [arm for arm in result.arms if arm.startswith("outcome@")]
    gaps = {arm: _envelope(result, arm) for arm in arms}
    # The largest agreement found speaks for the model: the claim must hold there too.
    effect = min(gaps.values(), key=lambda gap: math.inf if math.isnan(gap.low) else gap.low)
    control = _envelope(result, "own-plays")
    unknown = any(math.isnan(gap.low) for gap in gaps.values()) or math.isnan(control.low)
    parts = [
        f"{arm}: raw {_mean(result, 'rho', arm)}, corrected {_mean(result, 'corrected', arm)}, effects in order "
        f"{_mean(result, 'order', arm)}"
        for arm in result.arms
        if arm.startswith(("outcome@", "attribute@"))
    ]
    parts += [f"{arm}: compliance {_mean(result, 'found', arm)}" for arm in result.arms if arm.startswith("theory@")]
    ceiling, slope = _mean(result, "action_reliability", "own-plays"), _mean(result, "slope", "horizon")
    note = (
        f"smallest gap between the self-repeat ceiling ({ceiling}) and the corrected consistency of outcome beliefs; "
        f"control: the same with a persona's own plays as beliefs; horizon slope {slope}; " + "; ".join(parts)
    )
    held = effect.low > 0 and not control.low > 0
    return Verdict.when(reproduced=held, effect=effect, control=control, inconclusive=unknown, note=note)


def _envelope(result: Result, arm: str) -> Interval:
    """Return the mean gap over seeds with the widest bounds: seeds share personas and beliefs, and are no sample."""
    from rolecraft.measures import Interval

    rows = [row for row in result.rows if row["arm"] == arm]
    columns = [[math.nan if row.get(name) is None else float(row[name]) for row in rows]
               for name in ("gap", "gap_low", "gap_high")]  # fmt: skip
    middle, low, high = (np.array(column) for column in columns)
    return Interval(
        float(middle.mean()), float(low.min()), float(high.max()), int(max(row["personas"] for row in rows))
    )


def _mean(result: Result, metric: str, arm: str) -> str:
    values = [row[metric] for row in result.rows if row["arm"] == arm and row.get(metric) is not None]
    return f"{np.mean(values):.2f}" if values else "undefined"


def _figures(one: IndividualConsistency, effects: PopulationConsistency | None = None) -> dict[str, float | None]:
    """Return the figures of a row; None where they are undefined."""
    names = ("rho", "corrected", "skill", "error", "belief_reliability", "action_reliability", "gap")
    row = {name: _number(getattr(one, name).estimate) for name in names}
    row |= {"gap_low": _number(one.gap.low), "gap_high": _number(one.gap.high), "personas": float(one.personas)}
    if effects is not None:
        row |= {"order": _number(effects.order.estimate), "effects_agree": _number(effects.agreement)}
        row["signs"] = _number(effects.signs)
    return row


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


STUDIES = {
    "planted": (PlantedConfig, run_planted, verdict_planted),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

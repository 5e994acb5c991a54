"""SOTOPIA: people with private goals meet, and seven dimensions say how they fared (arXiv 2310.11667).

Exact: what each relationship lets one see, the acts and their recipients, turn orders, the three endings, the seven
dimensions with their ranges, their plain mean. The parts are `worlds.SocialScene`, `measures.score_scene` and the
agents; this file is their two studies.
Adapted: forty scenes of our own, each with three draws of its numbers, whose goals can be settled from tagged
commitments, so that goal, financial benefits, knowledge and secret are exact; rule proxies for the other three;
programs of graded skill for language models, and one partner, which concedes by its agreeableness, for all. The rule of
the hard subset is inferred.
Small: `rolecraft systems run sotopia`. A language model that chooses what to say: `--study smollm2`; at full size with
a served one: `--study smollm2 --full --set model=openai:NAME@URL`, and `measures.judge_scene` beside the exact scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key
from rolecraft.worlds import (
    Episode,
    Policy,
    Relationship,
    RelationshipGraph,
    SocialProfile,
    SocialScenario,
    SocialScene,
    Table,
    load_social_scenarios,
    make_profiles,
    play_all,
)

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval

SYSTEM = System(
    number=90,
    name="sotopia",
    title="SOTOPIA: Interactive Evaluation for Social Intelligence in Language Agents",
    arxiv="2310.11667",
    family="worlds",
    claim="open-ended scenes with private goals rank agents by social skill; several dimensions show what the goal "
    "alone hides; and scenes that are hard for all stay hard",
    published="significant differences between models; on the hard subset GPT-4 reaches significantly less of its "
    "goals than humans (no figures taken)",
)

PEOPLE = 24
GOAL = "goal"
Meeting = tuple[SocialProfile, SocialProfile, Relationship]


@dataclass(frozen=True)
class Encounter:
    """One scene with its people, and the seat of the agent under test."""

    scenario: SocialScenario
    people: Meeting
    seat: str
    seed: int

    @property
    def partner(self) -> str:
        """The seat of the partner."""
        return self.scenario.others(self.seat)[0]

    def scene(self, omniscient: bool = False) -> SocialScene:
        """Return the world."""
        profiles = dict(zip(self.scenario.seats, self.people, strict=False))
        return SocialScene(self.scenario, profiles, relationship=self.people[2], omniscient=omniscient)


def encounters(scenario: SocialScenario, pairs: int, seed: int) -> list[Encounter]:
    """Return who meets in a scenario, the same in every arm; the agent under test takes the seats in turn."""
    graph = RelationshipGraph.make(make_profiles(PEOPLE, seed), seed)
    drawn = graph.sample(None, pairs, derive_seed("sotopia", "pairs", seed, scenario.id))
    return [
        Encounter(scenario, people, scenario.seats[place % 2], derive_seed("sotopia", seed, scenario.id, place))
        for place, people in enumerate(drawn)
    ]


def played(meetings: Sequence[Encounter], policies: Sequence[Policy], omniscient: bool) -> list[dict[str, Any]]:
    """Play some encounters side by side, each with its policy under test, and score them."""
    from rolecraft.agents import ConcessionAgent
    from rolecraft.worlds import Rules

    partner = ConcessionAgent()
    scenes = [meeting.scene(omniscient) for meeting in meetings]
    tables = [
        Table(scene, {meeting.seat: policy, meeting.partner: partner}, meeting.seed)
        for meeting, scene, policy in zip(meetings, scenes, policies, strict=True)
    ]
    found = play_all(tables, Rules(hashes=False))
    return [_scored(*each) for each in zip(meetings, scenes, found, strict=True)]


def _scored(meeting: Encounter, scene: SocialScene, episode: Episode) -> dict[str, Any]:
    from rolecraft.measures import score_scene, social_overall

    scores = score_scene(scene, episode)
    own, other = scores[meeting.seat], scores[meeting.partner]
    return {
        **own, "overall": social_overall(own), "partner_goal": other["goal"], "partner_secret": other["secret"],
        "deal": float(scene.ledger.deal is not None), "turns": float(episode.outcome["turns"]),
        "fallbacks": float(sum(turn.fallback for turn in episode.of(meeting.seat))),
    }  # fmt: skip


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


# (a) Agents of graded skill: do the scores tell them apart, and does the hard subset hold?


@dataclass(frozen=True)
class GradedConfig(StudyConfig):
    """Programs of graded skill in all scenes."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    pairs: int = 5
    """Pairs of people per scene and seed. Paper: 5."""
    numbers: tuple[int, ...] = (0, 1, 2)
    """Draws of each scene's numbers: as many scenes of one text."""
    families: tuple[str, ...] = ("price", "split", "borrow", "secret", "plan")
    """Kinds of scenes, eight of each."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        if self.pairs < 2 or not self.numbers or not self.families:
            raise UserError(
                f"pairs must be at least 2, and numbers and families not empty, got {self.pairs}, {self.numbers} and "
                f"{self.families}."
            )


AGENTS = ("echo", "greedy", "concession", "bayes", "oracle")
OMNISCIENT = {"bayes-omniscient": "bayes", "echo-omniscient": "echo"}
"""Arms in which everyone's goals and values are shown; the echo reads none of it, and must not change."""
GOAL_ORDER = ("echo", "concession", "bayes", "oracle")
"""Skill at reaching goals, laid down beforehand."""
HARD_SHARE = 0.2
"""Share of the scenes in the hard subset. Paper: 14 of 90."""
OVERALL_STEPS = (("bayes", "concession"), ("concession", "greedy"), ("concession", "echo"))
"""Who must be better overall than whom."""


def run_graded(config: GradedConfig, store: RunStore) -> Result:
    """Play every agent in every scene; a row holds the means over the pairs of one scene."""
    scenarios = [
        replace(scene, id=f"{scene.id}/{number}")
        for number in config.numbers
        for family in config.families
        for scene in load_social_scenarios(family=family, seed=number)
    ]
    arms = (*AGENTS, *OMNISCIENT)
    for arm, seed, scenario in _missing(store, arms, config.seeds, scenarios):
        meetings = encounters(scenario, config.pairs, seed)
        policies = [_agent(OMNISCIENT.get(arm, arm), meeting) for meeting in meetings]
        rows = played(meetings, policies, arm in OMNISCIENT)
        goals = [row[GOAL] for row in rows]
        put_row(store, arm, seed, scenario.id, **_means(rows), family=scenario.family, goals=goals)
    return Result.read(store)


def _agent(name: str, meeting: Encounter) -> Policy:
    from rolecraft import agents

    if name == "oracle":
        traits = meeting.scene().profiles[meeting.partner].big_five
        return agents.OracleAgent(meeting.scenario.brief(meeting.partner).values, agents.patience_of(traits))
    kinds: dict[str, type[agents.SceneAgent]] = {
        "echo": agents.EchoAgent, "greedy": agents.GreedyAgent, "concession": agents.ConcessionAgent,
        "bayes": agents.BayesNegotiator,
    }  # fmt: skip
    return kinds[name]()


def _missing(
    store: RunStore, arms: Sequence[str], seeds: Sequence[int], scenarios: Sequence[SocialScenario]
) -> Iterator[tuple[str, int, SocialScenario]]:
    """Yield the arms, seeds and scenes without a row, arms innermost."""
    keys = {
        row_key(arm, seed, scene.id): (arm, seed, scene) for seed in seeds for scene in scenarios for arm in arms
    }  # fmt: skip
    for key in store.missing(ROWS, keys):
        yield keys[key]


@dataclass(frozen=True)
class HardSubset:
    """A hard subset found on some seeds, and how it does on the others."""

    scenes: tuple[str, ...]
    rank_correlation: float
    """Of the scenes' hardness on both halves of the seeds."""
    widening: Interval
    """Gap between the oracle and the best agent on the subset less that on the other scenes, on the other half."""


def find_hard(result: Result, share: float = HARD_SHARE) -> HardSubset:
    """Find the hard subset on every second seed, from the first on, and measure it on the rest.

    Raises:
        UserError: If there is only one seed.
    """
    from rolecraft.measures import hard_subset, social_hardness, spearman

    found, rest = result.seeds[::2], result.seeds[1::2]
    if not rest:
        raise UserError("a hard subset needs at least two seeds: it is found on some and measured on the others.")
    models = [arm for arm in AGENTS if arm != "oracle"]
    first, second = ({model: _goals(result, model, seeds) for model in models} for seeds in (found, rest))
    scenes = hard_subset(first, max(1, round(share * len(first[models[0]]))))
    one, two = social_hardness(first), social_hardness(second)
    correlation = float(spearman([one[name] for name in one], [two[name] for name in one]))
    return HardSubset(tuple(scenes), correlation, _widening(result, scenes, rest, models))


def _goals(result: Result, arm: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    goals: dict[str, list[float]] = {}
    for row in result.rows:
        if row["arm"] == arm and row["seed"] in seeds:
            goals.setdefault(str(row["unit"]), []).extend(row["goals"])
    return goals


def _widening(result: Result, hard: Sequence[str], seeds: Sequence[int], models: Sequence[str]) -> Interval:
    """Bootstrap over scenes the difference of mean gaps, hard less other: each scene's gap, weighted by its group."""
    import numpy as np

    from rolecraft.measures import bootstrap_mean

    goals = {arm: {name: float(np.mean(v)) for name, v in _goals(result, arm, seeds).items()} for arm in AGENTS}
    best = max(models, key=lambda model: sum(goals[model].values()))
    gaps = {name: goals["oracle"][name] - goals[best][name] for name in goals[best]}
    n, k = len(gaps), len(hard)
    centre = float(np.mean(list(gaps.values())))
    weighted = [(gap - centre) * (n / k if name in hard else -n / (n - k)) for name, gap in gaps.items()]
    return bootstrap_mean(weighted)


def verdict_graded(result: Result) -> Verdict:
    """Demand all four: the ranking, a greedy agent whom the goal flatters, a hard subset that holds, and visibility."""
    steps = {f"{a} over {b} in {metric}": result.difference(metric, a, b) for metric, a, b in _steps()}
    weakest = min(steps, key=lambda name: steps[name].low)
    flattered = result.difference(GOAL, "greedy", "echo")
    disliked = result.difference("relationship", "concession", "greedy")
    seen = result.difference(GOAL, "bayes-omniscient", "bayes")
    control = result.difference(GOAL, "echo-omniscient", "echo")
    hard = find_hard(result)
    parts = [steps[weakest], flattered, disliked, seen, hard.widening]
    sound = all(part.low > 0 for part in parts) and hard.rank_correlation > 0.5
    unmoved = control.low <= 0 <= control.high
    refuted = any(part.high <= 0 for part in parts) or hard.rank_correlation <= 0.5 or not unmoved
    goal, overall = ({arm: result.mean(name, arm).estimate for arm in AGENTS} for name in (GOAL, "overall"))
    means = ", ".join(f"{arm} {goal[arm]:.2f}/{overall[arm]:.2f}" for arm in AGENTS)
    note = (
        f"effect: the weakest step of the ranking, {weakest}; goal/overall {means}; greedy less echo in goal "
        f"{flattered}, concession less greedy in relationship {disliked}; hardness of scenes on both halves of the "
        f"seeds r {hard.rank_correlation:.2f}, gap of the best agent to the oracle wider on the hard scenes by "
        f"{hard.widening}; all goals shown: bayes gains {seen}; control: the same for the echo, which reads none"
    )
    return Verdict.when(
        reproduced=sound and unmoved, inconclusive=not sound and not refuted, effect=steps[weakest], control=control,
        note=note,
    )  # fmt: skip


def _steps() -> Iterator[tuple[str, str, str]]:
    for lower, higher in pairwise(GOAL_ORDER):
        yield GOAL, higher, lower
    for higher, lower in OVERALL_STEPS:
        yield "overall", higher, lower


# (b) A language model against the same partner


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """A language model that chooses what to say in some scenes, and its controls."""

    model: str = "local:smollm2"
    """Paper: GPT-4, GPT-3.5, Llama 2, MPT."""
    scenes: int = 10
    """Scenes, drawn in turn from the five families. Paper: 90."""
    pairs: int = 2
    """Pairs of people per scene and seed. Paper: 5."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        if not 2 <= self.scenes <= 40 or self.pairs < 1:
            raise UserError(f"scenes must lie in 2..40 and pairs be at least 1, got {self.scenes} and {self.pairs}.")

    @classmethod
    def full(cls) -> Self:
        """Return all scenes with five pairs each; name a served model that gives log-probabilities."""
        return cls(scenes=40, pairs=5)


SMOL_ARMS = ("model", "no-goal", "random")
"""The model; the model that is not shown its goal nor what anything is worth to it; a random act of the same menu."""
SYSTEM_TEXT = (
    "You are a person in a conversation. You want to reach your goal. Say the one sentence that serves it best."
)


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model, unless all is there, and play every scene."""
    if list(_missing(store, SMOL_ARMS, config.seeds, _some(config.scenes))):
        return run_on(load_model(config.model), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Play what is missing with this model; the pairs of a scene are scored in one batch."""
    from rolecraft.agents import SceneChoice, SceneRandom

    policies: dict[str, Policy] = {
        "model": SceneChoice(model, SYSTEM_TEXT), "no-goal": SceneChoice(model, SYSTEM_TEXT, blind=True),
        "random": SceneRandom(),
    }  # fmt: skip
    for arm, seed, scenario in _missing(store, SMOL_ARMS, config.seeds, _some(config.scenes)):
        meetings = encounters(scenario, config.pairs, seed)
        rows = played(meetings, [policies[arm]] * len(meetings), omniscient=False)
        put_row(store, arm, seed, scenario.id, **_means(rows), family=scenario.family)
    return Result.read(store)


def _some(n: int) -> list[SocialScenario]:
    """Return n scenes, one family after the other."""
    scenarios = load_social_scenarios()
    families = list(dict.fromkeys(scene.family for scene in scenarios))
    by_family = [[scene for scene in scenarios if scene.family == family] for family in families]
    return [by_family[place % len(families)][place // len(families)] for place in range(n)]


def verdict_smollm2(result: Result) -> Verdict:
    """Demand that the model beats random acts in its goal, and by reading the goal: not shown it, it does worse."""
    gain = result.difference(GOAL, "model", "random")
    read = result.difference(GOAL, "model", "no-goal")
    means = ", ".join(f"{arm} {result.mean(GOAL, arm)}" for arm in SMOL_ARMS)
    overall = ", ".join(f"{arm} {result.mean('overall', arm)}" for arm in SMOL_ARMS)
    return Verdict.when(
        reproduced=gain.low > 0 and read.low > 0,
        inconclusive=gain.high > 0 and read.high > 0 and not (gain.low > 0 and read.low > 0),
        effect=gain,
        control=result.difference(GOAL, "no-goal", "random"),
        note=f"goal of the model less that of random acts; goals {means}; overall {overall}; the goal text adds "
        f"{read}; control: the model that is not shown its goal, less random acts",
    )


STUDIES = {
    "graded": (GradedConfig, run_graded, verdict_graded),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

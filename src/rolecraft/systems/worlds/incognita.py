"""Incognita: grounded tasks whose knowledge and authority lie with different people (arXiv 2607.02975).

Exact: the participants (a customer and six specialists with neutral names, remits in the paper's order), one directed
message a turn as JSON, role isolation, the retail operations and policy of tau-bench, gold replay by state hash and
required outputs, the process metrics.
Inferred, as nothing of it is published: the disclosure gate (topic words, two fields a turn), the whitelists, admission
with the customer's consent, task cards, failure classes (first broken link of the lineage), what is premature.
Adapted: customer and specialists follow rules instead of a language model, so that runs are exact; the agents are
programs of known quality; catalog questions need no authenticated customer.
Added: the controls C0 direct tools, C1 disclosed roles and C3 routed messages; contact precision and recall; a router
that learns from answers, and the same with names dealt anew in each episode, where there is nothing to learn.
Small: `rolecraft systems run incognita`. With a language model: `--study smollm2 --set model=openai:NAME@URL`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.agents import BanditRouter
    from rolecraft.measures import Interval, ProcessScore
    from rolecraft.models import LanguageModel
    from rolecraft.worlds import Episode, Incognita, Policy

SYSTEM = System(
    number=68,
    name="incognita",
    title="Evaluating Generative Agents with Actions Grounded in Socially Distributed Task Environments using "
    "Incognita",
    arxiv="2607.02975",
    family="worlds",
    claim="along a ladder of agents, disclosure, contacts and writes rise before success does, and premature "
    "finalisation falls; every task can be solved by an agent that knows whom to ask",
    published="success 0, 8.9 and 17.2%; premature finalisation 100, 87 and 58%; disclosure .06, .17 and .45; contact "
    ".30, .68 and .68; writes .00, .13 and .36 (gpt-5.2, 5.4, 5.5; 18 tasks, 10 repeats)",
)

LADDER = ("instant", "broadcaster", "keyword", "planner", "oracle")
"""Agents in the paper's setting, hidden roles."""
CONTROLS = ("planner-direct", "planner-disclosed", "planner-routed")
"""The planner under C0, C1 and C3."""
LEARNERS = ("untrained", "trained", "trained-shuffled", "untrained-shuffled")
FAILING = ("unauthenticated", "permuted-gold")
"""Controls that must fail: operations without a look-up of the customer; the oracle's states held against the solution
of another task."""
ARMS = (*LADDER, *CONTROLS, *LEARNERS, *FAILING)
TASKS = 36


# (a) The ladder of programs


@dataclass(frozen=True)
class LadderConfig(StudyConfig):
    """Every agent meets the same tasks; each seed makes a database and 36 tasks of its own."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    turns: int = 20
    """Most turns. The paper does not say."""
    quota: int = 2
    """Fields that the customer discloses a turn, at most. The paper does not say."""
    training: int = 2
    """Times that the learner meets the 36 tasks of another database before it is tested."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        if self.turns < 1 or self.quota < 1 or self.training < 1:
            raise UserError(
                f"turns, quota and training must be at least 1, got {self.turns}, {self.quota} and {self.training}."
            )


def run_ladder(config: LadderConfig, store: RunStore) -> Result:
    """Play what is missing; a row is one episode."""
    for seed in config.seeds:
        for arm in ARMS:
            keys = {row_key(arm, seed, unit_of(seed, task)): task for task in range(TASKS)}
            missing = [keys[key] for key in store.missing(ROWS, keys)]
            policy = policy_of(arm, config, seed) if missing else None
            for task in missing:
                assert policy is not None
                put_row(store, arm, seed, unit_of(seed, task), **play_task(arm, policy, config, seed, task))
    return Result.read(store)


def unit_of(seed: int, task: int) -> str:
    """Return the pairing label of a task."""
    return f"{seed}:{task}"


def policy_of(arm: str, config: LadderConfig, seed: int) -> Policy:
    """Make the agent of an arm."""
    from rolecraft.agents import (
        BanditRouter,
        Broadcaster,
        IncognitaPlanner,
        InstantFinaliser,
        KeywordRouter,
        OracleRouter,
    )

    name = arm.partition("-")[0]
    if name == "trained":
        return IncognitaPlanner(train_router(config, seed, shuffle=arm.endswith("shuffled")))
    makers: Mapping[str, Any] = {
        "instant": InstantFinaliser, "broadcaster": Broadcaster, "keyword": KeywordRouter, "planner": IncognitaPlanner,
        "oracle": lambda: IncognitaPlanner(OracleRouter()), "permuted": lambda: IncognitaPlanner(OracleRouter()),
        "untrained": lambda: IncognitaPlanner(BanditRouter()),
        "unauthenticated": lambda: IncognitaPlanner(OracleRouter(), careless=True),
    }  # fmt: skip
    policy: Policy = makers[name]()
    return policy


def world_of(arm: str, config: LadderConfig, tasks: int, task: int) -> Incognita:
    """Make the world of an arm."""
    from rolecraft.worlds import Incognita

    variant = arm.partition("-")[2]
    return Incognita(
        task, tasks=tasks, turns=config.turns, quota=config.quota, shuffle=variant == "shuffled",
        control=variant if arm in CONTROLS else "hidden",  # type: ignore[arg-type]  # the names of CONTROLS
    )  # fmt: skip


def train_router(config: LadderConfig, seed: int, shuffle: bool) -> BanditRouter:
    """Let a router learn on the tasks of another database, some of its choices at random."""
    from rolecraft.agents import BanditRouter, IncognitaPlanner
    from rolecraft.worlds import play

    router = BanditRouter(epsilon=0.3)
    other = derive_seed("incognita", "training", seed) % 2**31
    arm = "trained-shuffled" if shuffle else "trained"
    for repeat in range(config.training):
        for task in range(TASKS):
            world = world_of(arm, config, other, task)
            episode = play(
                world, {"agent": IncognitaPlanner(router)}, derive_seed("incognita", "training", seed, repeat, task),
                hashes=False, limit=config.turns + 1,
            )  # fmt: skip
            router.learn([episode])
    router.epsilon = 0.0
    return router


def play_task(arm: str, policy: Policy, config: LadderConfig, seed: int, task: int) -> dict[str, Any]:
    """Play one task and return its row."""
    from rolecraft.measures import process_score
    from rolecraft.worlds import gold_states, play
    from rolecraft.worlds.incognita import shop_data

    world = world_of(arm, config, seed, task)
    episode = play(world, {"agent": policy}, derive_seed("incognita", seed, task), hashes=False, limit=config.turns + 1)
    score = process_score(episode.outcome)
    row = score_row(score, episode)
    if arm == "permuted-gold":
        other = world.cards[(task + TASKS // 2) % TASKS]
        reached = world.shop.hash in gold_states(shop_data(seed), other) and set(other.outputs) <= set(
            world.card.outputs
        )
        row |= {"success": float(reached)}
    return row


def score_row(score: ProcessScore, episode: Episode) -> dict[str, Any]:
    """Return numbers for the shares, and the failure class in words."""
    fallbacks = episode.fallbacks / len(episode.turns) if episode.turns else 0.0
    return {
        name: float(value) if isinstance(value, bool) else value
        for name, value in (score.row() | {"fallbacks": fallbacks}).items()
    }


def verdict_ladder(result: Result) -> Verdict:
    """Demand a feasible oracle, the ladder's shape, tools no worse than hidden roles, and learning; controls fail."""
    oracle = result.mean("success", "oracle")
    success = {arm: result.mean("success", arm) for arm in LADDER}
    premature = {arm: result.mean("premature", arm) for arm in LADDER}
    gain = result.difference("success", "planner", "keyword")
    tools = result.difference("success", "planner-direct", "planner")
    learned = result.difference("contact_precision", "trained", "untrained")
    nothing = result.difference("contact_precision", "trained-shuffled", "untrained-shuffled")
    control = _writing(result, "unauthenticated")
    permuted = _writing(result, "permuted-gold")
    claims = {
        "oracle at least 95%": oracle.low >= 0.9 and oracle.estimate >= 0.95,
        "process before success": _process_first(result),
        "success rises": gain.low > 0 and _ordered([each.estimate for each in success.values()]),
        "premature falls": result.difference("premature", "instant", "planner").low > 0
        and _ordered([-each.estimate for each in premature.values()]),
        "tools no worse than hidden roles": tools.low >= 0,
        "learning finds whom to ask": learned.low > 0 and nothing.low <= 0,
        "controls fail": control.high < 0.05 and permuted.high < 0.05,
    }
    failed = [name for name, held in claims.items() if not held]
    note = (
        f"success of the planner less the keyword router's; success {_listed(success)}; "
        f"premature {_listed(premature)}; "
        f"direct tools less hidden roles {tools}; contact precision learned {learned}, with shuffled names {nothing}; "
        f"log-odds of success per standard deviation {_breadth(result)}; control: success on tasks with writes "
        f"without authentication, and {permuted} against another task's gold; "
        + (f"not held: {', '.join(failed)}" if failed else "all claims held")
    )
    return Verdict.when(reproduced=not failed, effect=gain, control=control, note=note)


def _process_first(result: Result) -> bool:
    """Return whether an agent without success is ahead in disclosure and contacts, and the next one in writes."""
    early = [result.difference(metric, "broadcaster", "instant").low > 0 for metric in ("disclosure", "contact")]
    none = result.mean("success", "broadcaster").high <= 0.05
    return all(early) and none and result.difference("wrote", "keyword", "broadcaster").low > 0


def _ordered(values: Sequence[float]) -> bool:
    return all(earlier <= later for earlier, later in pairwise(values))


def _writing(result: Result, arm: str) -> Interval:
    """Return the success of an arm on tasks whose solution changes the state."""
    return Result(tuple(row for row in result.rows if row["arm"] == arm and row["writes"] > 0)).mean("success", arm)


def _listed(values: Mapping[str, Interval]) -> str:
    return ", ".join(f"{arm} {value.estimate:.1%}" for arm, value in values.items())


def _breadth(result: Result) -> str:
    """Return the effects of breadth and its confounders on the success of the agents between the extremes."""
    from rolecraft.measures import logistic_effects

    rows = [row for row in result.rows if row["arm"] in ("keyword", "planner", "untrained")]
    predictors = {name: [float(row[name]) for row in rows] for name in ("breadth", "writes", "arguments")}
    predictors["planner"] = [float(row["arm"] == "planner") for row in rows]
    try:
        found = logistic_effects([row["success"] for row in rows], predictors, [row["unit"] for row in rows])
    except UserError as error:
        return f"undefined ({error})"
    return ", ".join(f"{name} {effect}" for name, effect in found.items())


# (b) A language model


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """A language model that writes JSON, and one that chooses among fixed messages, beside random choice."""

    model: str = "local:smollm2"
    """Paper: gpt-5.2, 5.4 and 5.5."""
    tasks: int = 6
    """Per seed, every sixth of the 36 first, so that all breadths occur. Paper: 18."""
    turns: int = 12
    """Most turns."""
    max_tokens: int = 64
    """Per message."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        if not 1 <= self.tasks <= TASKS or self.turns < 1 or self.max_tokens < 1:
            raise UserError(
                f"tasks must be 1 to {TASKS}, turns and max_tokens at least 1, got {self.tasks}, {self.turns} and "
                f"{self.max_tokens}."
            )


MODEL_ARMS = ("instant", "random-menu", "model-menu", "model-json")


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model and play what is missing."""
    from rolecraft.models import load_model

    keys = [row_key(arm, seed, unit_of(seed, t)) for seed in config.seeds for arm in MODEL_ARMS for t in chosen(config)]
    if store.missing(ROWS, keys):
        run_on(load_model(config.model), config, store)
    return Result.read(store)


def chosen(config: SmolConfig) -> list[int]:
    """Return the numbers of the tasks: one of each breadth before a second of any."""
    return [place % 6 * 6 + place // 6 for place in range(config.tasks)]


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Play with this model."""
    from rolecraft.measures import process_score
    from rolecraft.worlds import Incognita, play

    policies = _model_policies(model, config)
    for seed in config.seeds:
        for arm in MODEL_ARMS:
            keys = {row_key(arm, seed, unit_of(seed, task)): task for task in chosen(config)}
            for key in store.missing(ROWS, keys):
                task = keys[key]
                world = Incognita(task, tasks=seed, turns=config.turns, menu=arm.endswith("menu"))
                episode = play(
                    world, {"agent": policies[arm]}, derive_seed("incognita", "model", seed, task), hashes=False,
                    limit=config.turns + 1,
                )  # fmt: skip
                if episode.ended != "over":
                    continue  # the model could not be reached: the row stays missing, and --resume tries again
                row = score_row(process_score(episode.outcome), episode)
                put_row(store, arm, seed, unit_of(seed, task), **row, valid=first_valid(episode))
    return Result.read(store)


def _model_policies(model: LanguageModel, config: SmolConfig) -> dict[str, Policy]:
    from rolecraft.agents import ChoicePolicy, InstantFinaliser, RandomPolicy, RolePolicy
    from rolecraft.models import Sampling

    sampling = Sampling(max_tokens=config.max_tokens, temperature=0.7, top_p=0.95)
    return {
        "instant": InstantFinaliser(), "random-menu": RandomPolicy(), "model-menu": ChoicePolicy(model),
        "model-json": RolePolicy(model, {}, sampling),
    }  # fmt: skip


def first_valid(episode: Episode) -> float:
    """Return the share of turns whose first attempt the world took."""
    return sum(turn.receipts[0].accepted for turn in episode.turns) / len(episode.turns)


def verdict_smollm2(result: Result) -> Verdict:
    """Place the model on the ladder: does it find out and reach more than by random choice?

    A model of this size is expected to do neither; the claim under test is only that its choices are above chance.
    """
    gain = result.difference("disclosure", "model-menu", "random-menu")
    valid = result.mean("valid", "model-json")
    figures = "; ".join(
        f"{metric} {_listed({arm: result.mean(metric, arm) for arm in result.arms})}"
        for metric in ("success", "premature", "disclosure", "contact", "wrote")
    )
    return Verdict.when(
        reproduced=gain.low > 0,
        inconclusive=gain.low <= 0 <= gain.high,
        effect=gain,
        control=result.mean("disclosure", "instant"),
        note=f"disclosure by the model's choices less that by random choice; valid JSON at the first attempt {valid}; "
        f"{figures}; control: the agent that finishes at once",
    )


STUDIES = {
    "ladder": (LadderConfig, run_ladder, verdict_ladder),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

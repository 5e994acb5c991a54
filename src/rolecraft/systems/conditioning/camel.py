"""CAMEL: two agents, one that instructs and one that solves, held to their roles by inception prompts (2303.17760).

Exact: the clauses of both inception prompts, the loop, the stop rules with their limits and reasons, task specifier and
planner, the critic that answers by number, the record of a dialogue. The parts are `worlds.Dialogue` with its stop
rules, `agents` (`inception_prompts`, `DialoguePolicy`, `CriticPolicy`) and `measures.measure_adherence`; sessions and
`generate_society` are in `_camel_session.py`.
Adapted: our own wording; a word of farewell counts once per turn (the released loop, `per_word`, starts anew at each
word that was not said and almost never stops); a rule is looked at after each message, not after each pair; the critic
is asked again twice (the released one: once); the end token amid other text stops a dialogue and is marked.
Small: `rolecraft systems run camel` (rules: scripted pairs with planted faults; smollm2: the embedded model with bare
prompts, inception prompts, and these with a critic that checks the rules). With another model: `--study smollm2 --set
model=openai:NAME@URL`, and `--full` for longer messages and a task specifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, Sampling, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.agents import Critic, DialoguePrompts
    from rolecraft.measures._role_space import TextEncoder
    from rolecraft.systems.conditioning._camel_scripts import Kind
    from rolecraft.systems.conditioning._camel_session import RolePlay, RolePlaySession

SYSTEM = System(
    number=49,
    name="camel",
    title='CAMEL: Communicative Agents for "Mind" Exploration of Large Language Model Society',
    arxiv="2303.17760",
    family="conditioning",
    claim="inception prompts keep two talking agents in their roles without a person to steer them, and a critic in "
    "the loop keeps them better still",
    published="people prefer the pair's solution to a single reply in 76.3% (single 10.4%, draw 13.3%), GPT-4 in 73.0% "
    "(gpt-3.5-turbo, 100 tasks); failures named, not counted: role flips, repeated instructions, flake replies, loops",
)

# (a) Planted faults: does every rule stop what it must and nothing else, and does every measure count right?


@dataclass(frozen=True)
class RulesConfig(StudyConfig):
    """Scripted pairs whose faults are known, under CAMEL's limits."""

    pairs: int = 8
    """Dialogues of each of the twelve kinds, per seed and arm."""
    meaning: bool = True
    """Tell repetition by MiniLM; else by equal text."""

    def __post_init__(self) -> None:
        """Check the size."""
        if self.pairs < 2:
            raise UserError(f"pairs must be at least 2, so that a control can mix them up; got {self.pairs}.")


RULE_ARMS: Mapping[str, Mapping[str, Any]] = {"rules": {}, "per-word": {"per_word": True}, "off": {"stop": ()}}
"""Options of the world: CAMEL's rules; with farewells counted as released; the control without any."""
PROMPT_ARMS = ("obedient", "obedient-bare")
"""A speaker that does what its prompt says: with inception prompts, and with bare ones."""


def run_rules(config: RulesConfig, store: RunStore) -> Result:
    """Play every scripted pair in every arm; a row per dialogue."""
    from rolecraft.systems.conditioning._camel_scripts import KINDS

    cells: dict[str, tuple[str, int, Kind, int]] = {
        row_key(arm, seed, f"{kind}/{number}"): (arm, seed, kind, number)
        for seed in config.seeds for arm in RULE_ARMS for kind in KINDS for number in range(config.pairs)
    }  # fmt: skip
    missing = store.missing(ROWS, cells)
    embedder = _minilm() if config.meaning and missing else None
    for key in missing:
        arm, seed, kind, number = cells[key]
        put_row(store, arm, seed, f"{kind}/{number}", **planted_row(arm, seed, kind, number, embedder))
    _run_obedient(config, store)
    return Result.read(store)


def planted_row(arm: str, seed: int, kind: Kind, number: int, embedder: TextEncoder | None = None) -> dict[str, Any]:
    """Play one scripted pair, the same in every arm, and compare what is found with what was planted.

    Returns:
        `stopped`: 1 if it ended for the planted reason at the planted message. `measured`: 1 if every measure has its
        planted value. `mixed_up`: the same with what was planted in a pair of another kind.
    """
    from rolecraft.measures import measure_adherence
    from rolecraft.systems.conditioning._camel_scripts import KINDS, PlantedPair
    from rolecraft.worlds import Dialogue, play

    pair = PlantedPair.drawn(kind, derive_seed(seed, number))
    others = [other for other in KINDS if other != kind]
    other = PlantedPair.drawn(others[number % len(others)], derive_seed(seed, number, "other"))
    world = Dialogue("Get the work of the day done.", **RULE_ARMS[arm])
    play(world, dict.fromkeys(world.agents, pair), seed, hashes=False)
    found, stop = measure_adherence(world.said, embedder).row(), world.stop
    reason, at = pair.stop
    assert stop is not None
    return {
        "stopped": float(stop.reason == reason and at in (None, stop.message)),
        "measured": _equal(found, pair.truth(world.said)),
        "mixed_up": _equal(found, other.truth(world.said)),
        "kind": kind, "reason": stop.reason, "message": stop.message,
    }  # fmt: skip


def _equal(found: Mapping[str, Any], truth: Mapping[str, float | None]) -> float:
    pairs = [(found[name], value) for name, value in truth.items()]
    return float(all((a is None) == (b is None) and abs((a or 0.0) - (b or 0.0)) < 1e-9 for a, b in pairs))


def _run_obedient(config: RulesConfig, store: RunStore) -> None:
    """Let a speaker that does what its prompt says play under both kinds of prompt."""
    from rolecraft.agents import bare_prompts, inception_prompts
    from rolecraft.systems.conditioning._camel_scripts import obedient
    from rolecraft.testing import ScriptedModel

    prompts = dict(zip(PROMPT_ARMS, (inception_prompts(), bare_prompts()), strict=True))
    for seed in config.seeds:
        cells = {row_key(arm, seed, f"obedient/{n}"): (arm, n) for arm in PROMPT_ARMS for n in range(config.pairs)}
        for arm, number in (cells[key] for key in store.missing(ROWS, cells)):
            session = _session(ScriptedModel(obedient), prompts[arm])
            played = session.run(*_PAIRS[number % len(_PAIRS)], seed=derive_seed("camel", seed, number))
            put_row(store, arm, seed, f"obedient/{number}", form=played.adherence.form, reason=played.reason)


def verdict_rules(result: Result) -> Verdict:
    """Demand every stop and every measure right, in form with the prompt alone, and the controls wrong."""
    stopped, off = result.mean("stopped", "rules"), result.mean("stopped", "off")
    measured = [result.mean("measured", arm) for arm in RULE_ARMS]
    mixed_up = result.mean("mixed_up", "rules")
    form, bare = (result.mean("form", arm) for arm in PROMPT_ARMS)
    loops = [row for row in result.rows if row["arm"] == "per-word" and row["kind"] == "farewell"]
    missed = sum(row["reason"] != "farewells" for row in loops)
    sound = all(interval.estimate == 1 for interval in (stopped, *measured, form))
    failing = off.high < 0.5 and mixed_up.high < 0.5 and bare.high < 0.5
    return Verdict.when(
        reproduced=sound and failing,
        effect=stopped,
        control=off,
        note="share of scripted dialogues stopped for the planted reason at the planted message; all measures right in "
        f"{min(each.estimate for each in measured):.1%} or more (with the pairs mixed up in {mixed_up}); a speaker "
        f"that does what its prompt says is in form {form} with inception prompts, {bare} with bare ones; the released "
        f"word count misses {missed} of {len(loops)} loops of farewells; control: without stop rules",
    )


# (b) A language model

_PAIRS = (
    ("Python Programmer", "Stock Trader", "Write a script that warns when a share price falls by five percent."),
    ("Chef", "Teacher", "Plan a cheap lunch for a class of twenty children."),
    ("Gardener", "Architect", "Choose plants for a roof garden that gets little water."),
    ("Doctor", "Athlete", "Make a weekly plan for training after a knee injury."),
    ("Historian", "Game Designer", "Design a board game on the Silk Road."),
    ("Lawyer", "Musician", "Draft the main points of a contract for a concert."),
)
"""Assistant, user, and the first task."""
_TASKS: Mapping[str, tuple[str, ...]] = {
    "Python Programmer": ("Sort a list of trades by their profit.", "Explain how to read prices from a file."),
    "Chef": ("Write a recipe for bread that children can follow.", "Find three breakfasts without nuts."),
    "Gardener": ("Lay out beds for a courtyard with one tree.", "Draw up a watering plan for July."),
    "Doctor": ("List the warning signs of overtraining.", "Explain what to eat before a marathon."),
    "Historian": ("Name five events for the cards of a game on Rome.", "Describe a market in medieval Cairo."),
    "Lawyer": ("Explain who owns a song that a band wrote.", "Write a polite letter about an unpaid fee."),
}
SMOL_ARMS = ("bare", "inception", "critic")


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """Six pairs of roles on three tasks each, in three arms."""

    seeds: tuple[int, ...] = (0, 1)
    """Independent repetitions. Dossier: 2."""
    model: str = "local:smollm2"
    """Plays both seats. Paper: gpt-3.5-turbo."""
    pairs: int = 6
    """Pairs of roles. Paper: 50 x 50."""
    tasks: int = 3
    """Tasks per pair. Paper: 10."""
    max_messages: int = 10
    """Paper: 40."""
    max_tokens: int = 60
    """Per message. Paper: the model's limit."""
    temperature: float = 0.7
    options: int = 3
    """Drafts per message that the critic chooses among."""
    specify: bool = False
    """Let the model make the tasks specific; the small study's are. Paper: yes."""

    def __post_init__(self) -> None:
        """Check the sizes."""
        if not 1 <= self.pairs <= len(_PAIRS) or not 1 <= self.tasks <= 3 or self.pairs * self.tasks < 2:
            raise UserError(f"pairs must be 1 to 6 and tasks 1 to 3, not both 1; got {self.pairs} and {self.tasks}.")
        if self.options < 2:
            raise UserError(f"options must be at least 2, or a critic has no choice; got {self.options}.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's limits on all pairs and tasks of the study; name a served model."""
        return cls(seeds=tuple(range(5)), max_messages=40, max_tokens=512, specify=True)


def briefs_of(config: SmolConfig) -> dict[str, tuple[str, str, str]]:
    """Return assistant, user and task by unit."""
    return {
        f"{pair}/{place}": (assistant, user, task)
        for pair, (assistant, user, first) in enumerate(_PAIRS[: config.pairs])
        for place, task in enumerate((first, *_TASKS[assistant])[: config.tasks])
    }


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model and play what is missing."""
    if store.missing("cells", [row_key(arm, seed) for seed in config.seeds for arm in SMOL_ARMS]):
        run_on(load_model(config.model), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Play what is missing with this model, all dialogues of an arm and seed side by side."""
    from rolecraft.agents import Brief, bare_prompts, rule_critic

    embedder = _minilm()
    briefs = briefs_of(config)
    for seed in config.seeds:
        seeds = [derive_seed("camel", seed, unit) for unit in briefs]
        for key in store.missing("cells", [row_key(arm, seed) for arm in SMOL_ARMS]):
            arm = key.partition("/")[0]
            critic = rule_critic() if arm == "critic" else None
            session = _session(model, bare_prompts() if arm == "bare" else None, critic, config, embedder)
            played = session.run_all([Brief(*brief) for brief in briefs.values()], seeds)
            rows = {
                row_key(arm, seed, unit): {"arm": arm, "seed": seed, "unit": unit, **dialogue_row(one)}
                for unit, one in zip(briefs, played, strict=True)
            }
            store.put_many(ROWS, rows)
            store.put("cells", key, {"rows": len(rows)})
    return Result.read(store)


def dialogue_row(played: RolePlay) -> dict[str, Any]:
    """Return the measures of a dialogue, why it ended, what was said, and what its critic's choices were worth.

    `chosen` is how much more often than a random option the chosen one is in form; `blind` the same for the number that
    was chosen in the decision before, which knows nothing of the options at hand.
    """
    from rolecraft.worlds import faults

    chosen, blind, before = [], [], None
    for turn in played.messages:
        critic = turn.notes.get("critic")
        if critic is None or len(critic["options"]) < 2:
            continue
        good = [float("form" not in faults(turn.agent, option)) for option in critic["options"]]
        chosen.append(good[critic["chosen"] - 1] - sum(good) / len(good))
        if before is not None:
            blind.append(good[(before - 1) % len(good)] - sum(good) / len(good))
        before = critic["chosen"]
    return {
        **played.adherence.row(), "reason": played.reason, "task": played.task,
        "unprepared": list(played.unprepared),
        "chosen": sum(chosen) / len(chosen) if chosen else None,
        "blind": sum(blind) / len(blind) if blind else None,
        "tokens": sum(int(turn.notes.get("tokens", 0)) for turn in played.messages),
        "said": [turn.action for turn in played.messages],
    }  # fmt: skip


def verdict_smollm2(result: Result) -> Verdict:
    """Demand more form and fewer failures with inception prompts, and more form by the critic, not by a blind one."""
    from rolecraft.measures import Interval

    nothing = Interval(0.0, 0.0, 0.0, 0)
    form = result.difference("form", "inception", "bare")
    critic = result.difference("form", "critic", "inception")
    failures = result.difference("failed", "bare", "inception")
    blind = result.mean("blind", "critic") if _has(result, "blind") else nothing
    gains = (form, critic, failures)
    levels = ", ".join(
        f"{arm} {result.mean('form', arm).estimate:.1%} and {result.mean('failed', arm).estimate:.1%}"
        for arm in SMOL_ARMS
    )
    return Verdict.when(
        reproduced=all(gain.low > 0 for gain in gains) and not blind.low > 0,
        inconclusive=any(gain.low <= 0 for gain in gains) and all(gain.high > 0 for gain in gains) and form.low > 0,
        effect=form,
        control=blind,
        note=f"share of messages in form, inception prompts less bare ones; the critic adds {critic}; dialogues with a "
        f"flip, a slip or a loop, bare less inception {failures}; form and such dialogues: {levels}; ends: "
        f"{reasons(result)}; control: form gained by a critic that answers with its last number",
    )


def reasons(result: Result) -> str:
    """Return how often the dialogues of each arm ended for each reason, in words."""
    counted = {arm: [str(row["reason"]) for row in result.rows if row["arm"] == arm] for arm in result.arms}
    return "; ".join(
        f"{arm} " + ", ".join(f"{reason} {ended.count(reason)}" for reason in dict.fromkeys(ended))
        for arm, ended in counted.items()
    )


def _has(result: Result, metric: str) -> bool:
    return any(row.get(metric) is not None for row in result.rows)


def _session(
    model: LanguageModel,
    prompts: DialoguePrompts | None = None,
    critic: Critic | None = None,
    config: SmolConfig | None = None,
    embedder: TextEncoder | None = None,
) -> RolePlaySession:
    from rolecraft.systems.conditioning._camel_session import RolePlaySession

    config = config or SmolConfig()
    return RolePlaySession(
        model, critic, config.options, config.specify, prompts=prompts, embedder=embedder,
        sampling=Sampling(config.max_tokens, config.temperature, 0.95), limits={"max_messages": config.max_messages},
    )  # fmt: skip


def _minilm() -> TextEncoder:
    from rolecraft.models import Embedder

    return Embedder.load()


STUDIES = {
    "rules": (RulesConfig, run_rules, verdict_rules),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}

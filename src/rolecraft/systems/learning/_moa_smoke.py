"""MOA on a language model: characters answer a question, and five rules rate the answer at once."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, Study, Verdict
from rolecraft.systems.learning._language_smoke import (
    Base,
    LanguageSmoke,
    Log,
    average,
    contrast,
    decide,
    figures_of,
    health,
    held,
    part,
    run_arms,
    train_plan,
)
from rolecraft.systems.learning._language_step import Taught, take_step

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.credit import CreditBatch, Stage
    from rolecraft.learning.trainer import Trainer
    from rolecraft.worlds import ReplyItem, ReplyTask

TREND = 2
"""Updates before there is a trend to outrun: until then all weights are equal."""
SHORT, LONG = 6, 20
"""Words up to which an answer is brief, and from which on it is not at all."""


@dataclass(frozen=True)
class Character:
    """Who answers, and what its rules look for."""

    name: str
    trade: str
    facts: tuple[str, ...]
    style: tuple[str, ...]
    question: str

    @property
    def prompt(self) -> str:
        """What the model is asked."""
        facts, style = ", ".join(self.facts), " and ".join(self.style)
        return (
            f"You are {self.name}, {self.trade}. You know about {facts}. You like to say {style}. Somebody asks: "
            f"{self.question} Answer in one short sentence, in your own way, and ask something back."
        )


CHARACTERS = (
    Character("Nora", "who keeps a tea shop", ("mint", "honey", "ginger"), ("dear", "lovely"),
              "What should I drink when it rains?"),
    Character("Bram", "a lighthouse keeper", ("fog", "lamp", "rocks"), ("aye", "sailor"),
              "Is it safe to go out tonight?"),
    Character("Ines", "a gardener", ("soil", "roses", "shade"), ("gently", "friend"),
              "Why do my flowers die?"),
    Character("Otto", "a baker", ("flour", "yeast", "oven"), ("warm", "crust"),
              "How do I make good bread?"),
)  # fmt: skip
RUBRICS = ("brevity", "knowledge", "style", "instruction", "no_repeat")


def rate(item: ReplyItem, reply: str) -> dict[str, float]:
    """Rate a reply by exact rules, each in [0, 1].

    Returns:
        `brevity`: 1 for up to 6 words, 0 from 20 on; `knowledge`: share of the character's three facts that are named;
        `style`: share of its two words; `instruction`: 1 if it asks something; `no_repeat`: share of the
        words that differ. An empty reply gets 0 throughout.
    """
    character = next(each for each in CHARACTERS if each.name == item.id)
    words = [word.strip(".,;:!?\"'").casefold() for word in reply.split()]
    if not words:
        return dict.fromkeys(RUBRICS, 0.0)
    said = set(words)
    return {
        "brevity": float(np.clip((LONG - len(words)) / (LONG - SHORT), 0, 1)),
        "knowledge": sum(fact in said for fact in character.facts) / len(character.facts),
        "style": sum(word in said for word in character.style) / len(character.style),
        "instruction": float("?" in reply),
        "no_repeat": len(said) / len(words),
    }


@dataclass(frozen=True)
class SmokeConfig(LanguageSmoke):
    """A language model answers as four characters, rated by five rules that conflict."""

    NO_FULL = (
        "the paper trains a model of 8 billion weights on GPUs with a language model as judge of each rubric, and "
        "reports it on a par with GPT-4o on PersonaGym and about 21% above it on RoleMRC; neither those benchmarks nor "
        "its rubric prompts are here; a judge's rubrics go in as Trainer(objectives=...) with make_rule('moa')"
    )
    KNOWN: ClassVar[tuple[str, ...]] = ("uniform", "moa", "random", "no-elimination")
    NEEDED: ClassVar[tuple[str, ...]] = ("uniform", "moa", "random")
    arms: tuple[str, ...] = ("uniform", "moa", "random")
    """Equal weights; MOA; its control, the same weights dealt at random. The guide is left out here."""
    model: str = "local:smollm2"
    """Paper: a model of 8 billion weights; its rubrics are a language model's."""
    imitated: int = 0
    """Any text can be rated."""
    updates: int = 4
    """The first two have no trend yet. Dossier: 20. Paper: not known."""
    episodes: int = 16
    group: int = 8
    """Rollouts per prompt. Paper: not known."""
    max_tokens: int = 24
    temperature: float = 0.7
    """Of sampling; at 1 the embedded model hardly keeps to its character."""
    window: int = 10
    """Updates of history, K. Paper: not known."""
    beta: float = 10.0
    """Sharpness of the weights. Paper: above 0."""

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to compare."""
        super().__post_init__()
        if self.group < 2 or self.episodes % self.group or self.updates <= TREND:
            raise UserError(
                f"group must be at least 2, episodes a multiple of it, and updates more than {TREND}, before which "
                f"there is no trend; got {self.group}, {self.episodes} and {self.updates}."
            )


def load(config: SmokeConfig, seed: int) -> Base:
    """Return the policy of a seed."""
    return Base.load(config, "moa", seed, temperature=config.temperature)


def make_task() -> ReplyTask:
    """Return the world."""
    from rolecraft.worlds import ReplyItem, ReplyTask

    return ReplyTask([ReplyItem(each.name, each.prompt, each.name) for each in CHARACTERS], rate)


def credit_rule(config: SmokeConfig, arm: str, seed: int) -> list[Stage]:
    """Return an arm's stages."""
    from rolecraft.learning.credit import Group, Pivot, WeightedSum
    from rolecraft.systems.learning.moa import ShuffledPivot

    pivot = Pivot(window=config.window, beta=config.beta)
    scalarisers: Mapping[str, Stage] = {
        "uniform": WeightedSum(), "moa": pivot, "no-elimination": replace(pivot, eliminate="none"),
        "random": ShuffledPivot(window=config.window, beta=config.beta, seed=seed),
    }  # fmt: skip
    return [scalarisers[arm], Group()]


def make_trainer(config: SmokeConfig, base: Base, arm: str, seed: int) -> Trainer:
    """Return an arm's trainer; all arms of a seed see the same questions."""
    from rolecraft.learning.trainer import Trainer

    return Trainer(
        make_task, base.policy, credit_rule(config, arm, seed), train_plan(config, group=config.group),
        seed=derive_seed("moa", seed, "smollm2"), objectives=lambda episode, agent: episode.outcome["scores"],
    )  # fmt: skip


class Watch:
    """Looks at every batch with MOA's weights of its own history, whatever the arm, and with equal weights."""

    def __init__(self, config: SmokeConfig) -> None:
        self._rules = {name: credit_rule(config, name, 0) for name in ("no-elimination", "uniform")}
        self._state: Mapping[str, Any] = {}

    def __call__(self, taught: Taught) -> tuple[dict[str, Any], dict[int, float]]:
        """Return MOA's figures, and by group how many fewer rows are pushed against its pivot than by equal weights.

        A row pulls against the pivot if its advantage is above 0, and its reward of the pivot below the group's mean.
        """
        from rolecraft.learning.credit import NoSignalWarning, assign_credit

        batch = taught.rows.batch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            moa = assign_credit(batch, self._rules["no-elimination"], self._state)
            equal = assign_credit(batch, self._rules["uniform"]).advantages
        self._state = moa.state
        below = below_mean(batch, moa.info["moa/pivot"])
        against = {
            name: ((advantages[:, 0] > 0) & below).astype(float)
            for name, advantages in (("own", taught.credit.advantages), ("equal", equal))
        }
        task = batch.keys["task"]
        spared = {int(each): float(np.mean((against["equal"] - against["own"])[task == each])) for each in set(task)}
        return dict(moa.info), spared


def below_mean(batch: CreditBatch, rubric: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows are below their group's mean in a rubric, shape (N,)."""
    from rolecraft.learning.credit import group_advantage

    off, _ = group_advantage(batch.objectives[rubric], batch.keys["task"], scale="none")
    return np.asarray(off < -1e-9)


def lead(residual: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the weighted mean of the residuals less their plain mean: 0 or more for MOA's own weights (theorem)."""
    return sum(weights[name] * residual[name] for name in residual) - float(np.mean(list(residual.values())))


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    trainer, log, watch = make_trainer(config, base, arm, seed), Log(), Watch(config)
    for update in range(config.updates):
        taught = take_step(trainer)
        log.take(update, taught)
        seen, spared = watch(taught)
        own = taught.credit.info.get("moa/weights", dict.fromkeys(RUBRICS, 1 / len(RUBRICS)))
        conflict = np.array(seen["moa/correlation"])
        log.curve(
            **seen["moa/mean"], pivot=RUBRICS.index(seen["moa/pivot"]),
            conflict=conflict[RUBRICS.index("brevity"), RUBRICS.index("knowledge")],
            eliminated=taught.credit.info.get("moa/eliminated", 0.0),
        )  # fmt: skip
        if update >= TREND:
            log.unit(f"{update}/all", lead=lead(seen["moa/residual"], own))
        for task, value in spared.items():
            if update >= TREND:
                log.unit(f"{update}/task {task}", spared=value)
    log.finish(trainer, config.evaluated, seed)
    return log


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapter."""
    return run_arms(config, store, load, play)


def verdict(result: Result) -> Verdict:
    """Demand that fewer answers are pushed up against the leading rubric than by equal weights on the same answers."""
    effect, control = (average(result, "spared", arm) for arm in ("moa", "random"))
    leads = [row["lead"] for row in result.rows if row["arm"] == "moa" and row.get("lead") is not None]
    claims = {
        **health(result, "moa"),
        "its weights lead where rubrics outran their trend": min(leads) >= 0 < max(leads),
        "fewer answers are pushed up against the pivot than by equal weights": held(effect),
        "answers are left out": average(result, "eliminated", "moa").estimate > 0,
    }
    return decide(
        claims, effect, control, contrast(part(result, "final"), "reward", "moa", "uniform"),
        "share of answers that equal weights would push up although they fall behind in the pivot, less that share "
        "under MOA, on the same answers; control: the same weights dealt at random; of MOA: "
        + figures_of(result, "moa", *RUBRICS, "eliminated", "conflict", "entropy", "followed", "lead")
        + f"; lead of the weights dealt at random {average(result, 'lead', 'random')}",
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)

"""AT-GRPO on a language model: a proposer and a checker, each with its adapter, sampled as a tree."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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
from rolecraft.systems.learning._language_step import Taught, shifts
from rolecraft.worlds import PlanPath
from rolecraft.worlds._plan_path import CHECKER, PROPOSER

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning import SampledRows
    from rolecraft.learning.credit import Stage
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Rows, Trainer

WORDS = {"up": "U", "down": "D", "left": "L", "right": "R"}
_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b")


class SpokenPlan(PlanPath):
    """`PlanPath` for a language model: the moves of a plan are the directions that a reply names, in their order."""

    name = "spoken-plan"

    def observe(self, agent: str) -> str:
        """Return who is asked, the map, the draft where there is one, and what to do."""
        ask = f"Write a plan from S to G: at most {self.longest} moves, each up, down, left or right."
        draft = ""
        if agent == CHECKER:
            said = " ".join(word for move in self._play.draft or () for word, each in WORDS.items() if each == move)
            draft = f"The proposer suggests: {said or 'nothing'}. Check it. "
        return f"You are the {agent}.\n{self.render()}\n{draft}{ask}"

    def _apply(self, actions: Mapping[str, str]) -> None:
        ((agent, text),) = actions.items()
        super()._apply({agent: read_directions(text, self.longest)})


def read_directions(text: str, longest: int) -> str:
    """Return the first `longest` directions of a text as a plan, empty if it names none."""
    return " ".join(WORDS[word] for word in _WORD.findall(text.casefold())[:longest])


@dataclass(frozen=True)
class SmokeConfig(LanguageSmoke):
    """A language model plans in a team of two."""

    NO_FULL = (
        "the paper trains Qwen3-1.7B and 8B on GPUs, 32 environments for 200 steps, and reports 96% and 93% of "
        "Plan-Path solved; missing here are the proposer that writes a program, and the sandbox that runs it; maps "
        "and turns alone can be the paper's: --set size=10 --set turns=5; the study smollm2 takes a model of yours: "
        "--set model=local:PATH"
    )
    KNOWN: ClassVar[tuple[str, ...]] = ("none", "agent", "turn", "both", "shared")
    NEEDED: ClassVar[tuple[str, ...]] = ("none", "both", "shared")
    arms: tuple[str, ...] = ("none", "both", "shared")
    """Grouped by the task alone; by agent and turn too; likewise with one adapter for both roles."""
    model: str = "local:smollm2"
    """Paper: Qwen3-1.7B and 8B."""
    updates: int = 2
    """Paper: 200."""
    episodes: int = 2
    """Maps per update. Paper: 32."""
    size: int = 4
    """Paper: 10."""
    block_ratio: float = 0.22
    """Paper: 0.22."""
    longest: int = 4
    """Most moves of a plan."""
    turns: int = 2
    """Paper: 5."""
    candidates: int = 4
    """K. Paper: 4; its documentation: 8 a little better."""
    alpha: float = 1.0
    """Weight of the team's reward. Paper: 1; its documentation: 0.7 best."""
    rank: int = 8
    """Of each role's adapter. Paper: 16, or all weights."""
    max_tokens: int = 12

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to compare."""
        super().__post_init__()
        if self.candidates < 2 or self.turns < 1:
            raise UserError(
                f"expected candidates of at least 2 and turns of at least 1, got {self.candidates}, {self.turns}."
            )


def make_world(config: SmokeConfig) -> SpokenPlan:
    """Return the world."""
    return SpokenPlan(config.size, config.block_ratio, config.longest, config.turns, nearest=2)


def form_rows(config: SmokeConfig, policy: TokenPolicy, seed: int, maps: int = 8) -> list[Reply]:
    """Return replies that show the form, `up left`, with random moves, for both roles on maps of their own."""
    from rolecraft.learning.policy import Reply

    rng, world, found = np.random.default_rng(derive_seed("at-grpo", "form", seed)), make_world(config), []
    for number in range(maps):
        world.reset(derive_seed("at-grpo", seed, "form", number))
        for agent in world.agents:
            plan = " ".join(rng.choice(list(WORDS), rng.integers(1, config.longest + 1)))
            tokens = (*policy.codec.reply(plan), policy.codec.end)
            found.append(Reply(policy.encode(agent, None, world.observe(agent)), tokens))
            world.act({agent: plan})
            if not world.acting:
                break
    return found


def load(config: SmokeConfig, seed: int) -> Base:
    """Return an adapter for each role, both of which know the form of a plan."""
    return Base.load(config, "at-grpo", seed, (PROPOSER, CHECKER), lambda policy: form_rows(config, policy, seed))


def credit_rule(config: SmokeConfig, arm: str) -> list[Stage]:
    """Return an arm's stages. With the right key, prompts that differ within a group are an error."""
    from rolecraft.learning.credit import make_rule
    from rolecraft.systems.learning.at_grpo import KEYS

    same = "prompt" if {"agent", "turn"} <= set(KEYS[arm]) else None
    return make_rule({"name": "at-grpo", "alpha": config.alpha, "keys": KEYS[arm], "same": same})


def make_trainer(config: SmokeConfig, base: Base, arm: str, seed: int) -> Trainer:
    """Return what holds the policies and takes the steps; the rows come from the tree."""
    from rolecraft.learning.trainer import Trainer

    policies = {PROPOSER: base.policies[PROPOSER]} if arm == "shared" else base.policies
    return Trainer(
        lambda: make_world(config), policies, credit_rule(config, arm), train_plan(config),
        seed=derive_seed("at-grpo", seed, "smollm2"),
    )  # fmt: skip


def sample(config: SmokeConfig, trainer: Trainer, seed: int) -> SampledRows:
    """Draw the tree of an update: K candidates for every map, turn and agent, of which the best goes on."""
    from rolecraft.learning import Routes, TextsOf, WorldWorkflow, sample_tree

    world = make_world(config)
    texts = {name: TextsOf(policy) for name, policy in trainer.policies.items()}
    routes = Routes.own(texts) if len(texts) > 1 else Routes.shared(texts[PROPOSER], world.agents, PROPOSER)
    maps = [derive_seed("at-grpo", seed, "smollm2", trainer.iteration, n) for n in range(config.episodes)]
    return sample_tree(
        WorldWorkflow(world, config.turns), routes, maps, candidates=config.candidates, alpha=config.alpha,
        seed=derive_seed("at-grpo", seed, "draws", trainer.iteration),
    )  # fmt: skip


def as_rows(sampled: SampledRows, trainer: Trainer) -> Rows:
    """Return sampled rows as a trainer takes them."""
    from rolecraft.learning.policy import Reply
    from rolecraft.learning.trainer import Rows
    from rolecraft.worlds import Turn

    replies = [Reply(trainer.policies[row.policy].encode(row.role, None, row.prompt), row.tokens) for row in sampled]
    names = [row.policy for row in sampled]
    turns = [Turn(row.turn, row.role, row.prompt, row.text) for row in sampled]
    return Rows(replies, names, sampled.batch(), {"agent": sampled.agents, "policy": tuple(trainer.policies)}, turns)


def take_step(config: SmokeConfig, trainer: Trainer, seed: int) -> Taught:
    """Sample a tree, give credit, update every policy on its own rows, and score the rows again."""
    from rolecraft.learning.credit import NoSignalWarning

    rows = as_rows(sample(config, trainer, seed), trainer)
    batch = rows.batch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSignalWarning)
        credit = rows.credit(trainer.credit, trainer.state)
    figures = {
        "outcome": float(batch.row["outcome"].mean()), "length": float(batch.lengths.mean()),
        "advantage_square": float(np.square(credit.advantages[batch.mask]).mean()), **trainer.update(rows, credit),
    }  # fmt: skip
    trainer.iteration += 1
    shift = shifts(trainer.policies, rows.replies, rows.policies, batch.token["logp_old"], batch.mask, config.micro)
    return Taught((), rows, credit, shift, figures, unit="prompt")


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log, whose units are the prompts of an update."""
    trainer, log = make_trainer(config, base, arm, seed), Log()
    for update in range(config.updates):
        taught = take_step(config, trainer, seed)
        log.take(update, taught)
        groups = {key.rsplit("/", 1)[1]: value for key, value in taught.credit.info.items() if key.startswith("group(")}
        keys = taught.rows.batch.keys
        log.curve(
            dead=groups["dead"] / groups["groups"], prompts=len(set(keys["prompt"].tolist())),
            format=np.mean([bool(read_directions(turn.action, 1)) for turn in taught.rows.turns]),
        )  # fmt: skip
        for prompt, value in taught.by_episode(taught.advantage).items():
            log.unit(f"{update}/{prompt}", bias=abs(value))
    log.finish(trainer, config.evaluated, seed)
    return log


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapters."""
    return run_arms(config, store, load, play)


def verdict(result: Result) -> Verdict:
    """Demand that prompts are compared with themselves alone by the right key, and not by the task's.

    In the first update the arms with an adapter per role have drawn the same trees.
    """
    first = part(result, "0")
    effect = contrast(first, "bias", "none", "both")
    own = [row["bias"] for row in result.rows if row["arm"] in ("both", "shared") and row.get("bias") is not None]
    prompts = {arm: average(result, "prompts", arm).estimate for arm in ("both", "none")}
    claims = {
        **health(result, "both"),
        "the right key leaves the answers to a prompt with a mean advantage of 0": max(own) < 1e-9,
        "the task's key moves it": held(effect),
        "some groups are alive": average(result, "dead", "both").estimate < 1,
    }
    return decide(
        claims, effect, average(first, "bias", "shared"), contrast(part(result, "final"), "reward", "both", "none"),
        "size of the mean advantage of the answers to one prompt in the first update, grouped by task less by agent "
        "and turn too; control: one adapter for both roles, rightly keyed; share of dead groups "
        + ", ".join(f"{arm} {average(result, 'dead', arm).estimate:.2f}" for arm in result.arms)
        + f"; prompts per update {prompts['both']:.0f}; of both keys: "
        + figures_of(result, "both", "format", "entropy", "advantage_square", "followed"),
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)

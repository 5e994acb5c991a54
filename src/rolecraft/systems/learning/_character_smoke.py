r"""The language-model study of Character-R1: an adapter on a language model, ten rewards, GRPO, on a few characters.

The model first imitates replies of other characters for some steps. They show the form and carry labels that are drawn
at random, so that they teach how to write think, focus and \boxed, and nothing about which label a talk asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents import FOCUS_POINTS
from rolecraft.errors import UserError
from rolecraft.learning import (
    CharacterCase,
    character_task,
    component_weights,
    group_profiles,
    load_character_cases,
)
from rolecraft.learning.character._rewards import COMPONENTS, PARTS
from rolecraft.learning.credit import Carry, Ccrn, CreditBatch, Group, Stage, WeightedSum
from rolecraft.learning.policy import Reply, lora_policies
from rolecraft.learning.trainer import MonitorConfig, Start, TrainConfig, Trainer
from rolecraft.systems.learning._language_smoke import last_blocks, teach_form, weights_of
from rolecraft.worlds import ReplyTask

if TYPE_CHECKING:
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.models import LocalModel
    from rolecraft.systems.learning.character_r1 import SmokeConfig
    from rolecraft.worlds import Episode

_SENTENCE = re.compile(r".*?[.!?](?=\s|$)")
SHORT = "Name your focus, then answer in the box."
DEMONSTRATIONS = 3
"""Of each character that is not trained on, each with another label."""
REFERENCE = component_weights(without=("format", "focus", "focus_attr"))


@dataclass(frozen=True)
class Smoke:
    """The talks of one seed, and the adapter before anything was learned."""

    cases: Sequence[CharacterCase]
    """Those that are trained on."""
    others: Sequence[CharacterCase]
    """Whose replies are imitated first."""
    task: ReplyTask
    groups: Mapping[str, int]
    """Number of the group of characters by case."""
    policy: TokenPolicy
    untrained: Mapping[str, Any]
    """Weights of the adapter without effect."""


@dataclass(frozen=True)
class ShuffledRewards:
    """Deal the rewards out again within each group: the control. Their sizes stay, what they were for is lost."""

    keys: tuple[str, ...] = ("task",)
    seed: int = 0
    name: str = "shuffled_rewards"

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Permute the reward; every call draws anew."""
        calls = int(carry.state.get(self.name, {"calls": 0})["calls"])
        rng = np.random.default_rng(derive_seed(self.seed, self.name, calls))
        index, _ = batch.group_index(self.keys, self.name)
        reward = np.empty_like(carry.reward)
        reward[np.argsort(index, kind="stable")] = carry.reward[np.lexsort((rng.random(len(index)), index))]
        return replace(carry, reward=reward, state={**carry.state, self.name: {"calls": calls + 1}})


def rule(arm: str, config: SmokeConfig, seed: int) -> list[Stage]:
    """Return the credit rule of an arm."""
    weights = component_weights()
    scale: Stage = WeightedSum(weights) if arm == "raw" else Ccrn(("group",), weights, config.decay)
    return [scale, *([ShuffledRewards(seed=seed)] if arm == "shuffled" else []), Group()]


def make_smoke(model: LocalModel, config: SmokeConfig, seed: int) -> Smoke:
    """Draw the talks of a seed, and give the model an adapter of its own.

    Raises:
        UserError: If there are not enough talks.
    """
    known = load_character_cases(config.cases)
    fit = [case for case in known if len(case.focus) <= config.labels]
    if config.prompts > len(fit):
        raise UserError(
            f"prompts: {config.cases} has {len(fit)} talks with at most {config.labels} labels, and {config.prompts} "
            "are wanted; lower prompts or raise labels."
        )
    rng = np.random.default_rng(derive_seed("character-r1", "talks", seed))
    cases = [fit[place] for place in sorted(rng.permutation(len(fit))[: config.prompts or len(fit)].tolist())]
    others = [case for case in known if case not in cases]
    if config.imitated and not others:
        raise UserError("imitated: every talk is trained on, so that none is left to imitate; set imitated or prompts.")
    policy = lora_policies(
        model, [f"seed-{seed}"], rank=config.rank, blocks=last_blocks(model, config.blocks), seed=seed,
        max_tokens=config.max_tokens,
    )[f"seed-{seed}"]  # fmt: skip
    return Smoke(cases, others, make_task(cases, config), _groups(cases, config), policy, weights_of(policy))


def make_task(cases: Sequence[CharacterCase], config: SmokeConfig) -> ReplyTask:
    """Return the world, with the paper's prompt or a short one."""
    if config.prompt != "short":
        return character_task(cases, variant=config.prompt)
    task = character_task(cases)
    items = [replace(item, prompt=short_prompt(case)) for item, case in zip(task.items, cases, strict=True)]
    return ReplyTask(items, task.score, task.weights)


def short_prompt(case: CharacterCase) -> str:
    """Return a prompt that names character and last message, and does not show form or labels."""
    return f"You are {case.role.name}. Someone says: {case.messages[-1]['content']}\n{SHORT}"


def _groups(cases: Sequence[CharacterCase], config: SmokeConfig) -> dict[str, int]:
    if config.groups:
        roles = {case.role.id: case.role for case in cases}
        by_role = group_profiles(list(roles.values()), config.groups)
        return {case.id: by_role[case.role.id] for case in cases}
    names = sorted({case.group for case in cases})
    return {case.id: names.index(case.group) for case in cases}


def demonstrations(smoke: Smoke, config: SmokeConfig, seed: int) -> list[Reply]:
    """Return well-formed replies of the other characters, with labels drawn at random."""
    rng = np.random.default_rng(derive_seed("character-r1", "demonstrations", seed))
    policy, found = smoke.policy, []
    prompts = make_task(smoke.others, config).items
    for item, case in zip(prompts, smoke.others, strict=True):
        attribute = next(iter(case.focus.values()))
        for label in rng.permutation(list(FOCUS_POINTS))[:DEMONSTRATIONS]:
            said = _SENTENCE.match(case.reference)
            text = (
                f"<think><focus>{label}</focus><focus_attr>{attribute}</focus_attr></think>"
                f"\\boxed{{{said.group() if said else case.reference}}}"
            )
            tokens = (*policy.codec.reply(text), policy.codec.end)
            found.append(Reply(policy.encode("speaker", None, item.prompt), tokens))
    return found


def imitate(smoke: Smoke, config: SmokeConfig, seed: int) -> dict[str, Any]:
    """Teach the form, and return the adapter's weights then; all arms of a seed go on from them."""
    rows = demonstrations(smoke, config, seed) if config.imitated else ()
    return teach_form(
        smoke.policy, smoke.untrained, rows, steps=config.imitated, lr=config.imitation_lr, batch=8, seed=seed
    )


def make_trainer(smoke: Smoke, arm: str, config: SmokeConfig, seed: int) -> Trainer:
    """Return what trains an arm; all arms of a seed see the same talks in the same order."""
    plan = TrainConfig(
        iterations=config.updates, episodes=config.batch * config.samples, group=config.samples, lr=config.lr,
        kl=config.kl, entropy=config.entropy, micro=32, monitor=MonitorConfig(action="off"),
    )  # fmt: skip
    return Trainer(
        lambda: ReplyTask(smoke.task.items, smoke.task.score, smoke.task.weights),
        {"policy": smoke.policy},
        rule(arm, config, seed),
        plan,
        seed=derive_seed("character-r1", "smoke", seed),
        objectives=lambda episode, agent: episode.outcome["scores"],
        keys=lambda episode, agent: {"group": smoke.groups[episode.outcome["item"]]},
    )


def train(trainer: Trainer, config: SmokeConfig) -> list[dict[str, float]]:
    """Train, and return what the replies of every update scored."""
    curve = []
    for _ in range(config.updates):
        done = trainer.step()
        curve.append({**_means(done.episodes), "length": float(done.figures["length"])})
    return curve


def evaluate(smoke: Smoke, trainer: Trainer, config: SmokeConfig, seed: int) -> dict[str, dict[str, float]]:
    """Return what fresh replies score, by talk; before and after training they are drawn with the same seeds."""
    count = len(smoke.cases)
    base = derive_seed("character-r1", "evaluation", seed) // count * count
    starts = [
        Start(0, place, base + place, sample) for place in range(count) for sample in range(1, config.evaluated + 1)
    ]
    episodes = trainer.collect(starts)
    found: dict[str, dict[str, float]] = {}
    for case in smoke.cases:
        found[case.id] = _means([episode for episode in episodes if episode.outcome["item"] == case.id])
    return found


def _means(episodes: Sequence[Episode]) -> dict[str, float]:
    scores = {name: float(np.mean([each.outcome["scores"][name] for each in episodes])) for name in COMPONENTS}
    return {
        "format": scores["format"],
        "focus": scores["focus"],
        "attr": scores["focus_attr"],
        "overlap": sum(REFERENCE[name] * scores[name] for name in PARTS["reference"]),
    }

"""OMAR on a language model: one adapter with a critic bargains with itself, each seat with its own view."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.systems._base import Result, Study, Verdict
from rolecraft.systems.learning._language_smoke import (
    Base,
    LanguageSmoke,
    Log,
    contrast,
    decide,
    figures_of,
    health,
    held,
    part,
    run_arms,
    train_plan,
)
from rolecraft.systems.learning._language_step import Floats, Taught, products, take_step

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.trainer import Rows, Trainer
    from rolecraft.worlds import Episode


@dataclass(frozen=True)
class SmokeConfig(LanguageSmoke):
    """A language model bargains with itself."""

    NO_FULL = (
        "omar at the paper's size trains Qwen2.5-7B on SOTOPIA (worlds.SocialScene, up to 20 turns, all participants "
        "of a scene in one batch; vLLM for rollouts; a served judge with the rubric 'sotopia-eval-v1' through "
        "measures.judge_scene and learning.social_reward; a second one as TurnJudge) and Qwen3-4B on Werewolf, on "
        "several GPUs of 80 GB; expected: win rate about 55% to 72%; no machine of this project holds the models"
    )
    KNOWN: ClassVar[tuple[str, ...]] = (
        "flat", "turn", "hierarchical", "grpo", "zero-sum/hierarchical", "zero-sum/grpo",
    )  # fmt: skip
    NEEDED: ClassVar[tuple[str, ...]] = ("hierarchical", "grpo", "zero-sum/hierarchical")
    arms: tuple[str, ...] = ("hierarchical", "grpo", "zero-sum/hierarchical")
    """OMAR; the participants as a group of samples, which the paper warns of; the control, whose game has nothing that
    is good for both."""
    model: str = "local:smollm2"
    """Paper: Qwen2.5-7B on SOTOPIA, Qwen3-4B on Werewolf."""
    imitated: int = 0
    """Utterances are listed."""
    updates: int = 2
    episodes: int = 8
    seats: int = 2
    turns: int = 4
    """Utterances of a conversation. Paper: up to 20 turns in SOTOPIA."""
    joint_weight: float = 0.2
    """What the share of the best surplus adds to a seat's own utility."""
    max_tokens: int = 8
    """The longest utterance that is listed."""
    turn_gamma: float = 1.0
    turn_lam: float = 0.95
    """The paper's figures are not known; these are the dossier's, as in the study `bargaining`."""
    gamma: float = 1.0
    lam: float = 1.0
    flat_lam: float = 0.95
    filter: bool = False
    """Give degenerate turns no credit. Paper: yes; here they are counted."""
    repeats: int = 2
    """Of an utterance before it counts as degenerate."""


def load(config: SmokeConfig, seed: int) -> Base:
    """Return the policy of a seed, with a critic."""
    return Base.load(config, "omar", seed, critic=True)


def make_trainer(config: SmokeConfig, base: Base, arm: str, seed: int) -> Trainer:
    """Return an arm's trainer: one policy in all seats; all arms of a seed see the same scenes."""
    from rolecraft.learning.trainer import Trainer
    from rolecraft.systems.learning.omar import credit_rule
    from rolecraft.worlds import Bargaining

    class Spoken(Bargaining):
        """Says what the lots are and who speaks, and nothing of what is paid, so that all arms see the same."""

        def rules(self, agent: str) -> str:
            return (
                f"You are {agent}. {' and '.join(self.agents)} divide a book, a hat and a ball. Below: what was said, "
                "turns left, what each is worth to you. Make an offer that names who gets book, hat and ball, or "
                "accept or reject the other's."
            )

    control, _, rule = arm.rpartition("/")
    motive: Literal["mixed", "zero-sum"] = "zero-sum" if control else "mixed"
    return Trainer(
        lambda: Spoken(config.seats, config.turns, joint_weight=config.joint_weight, motive=motive, explain=True),
        base.policy, credit_rule(config, rule), train_plan(config), seed=derive_seed("omar", seed, "smollm2"),
    )  # fmt: skip


def shared_credit(taught: Taught) -> tuple[Floats, Floats]:
    """Return what a conversation credits all its participants with, and how that goes with its joint surplus.

    Returns:
        The mean over participants of their mean advantage, and its products with the surplus, whose mean is Pearson's
        r; both of shape (conversations,).
    """
    traj, agent = (taught.rows.batch.keys[key] for key in ("traj", "agent"))
    own = {
        pair: taught.advantage[(traj == pair[0]) & (agent == pair[1])].mean()
        for pair in sorted(set(zip(traj.tolist(), agent.tolist(), strict=True)))
    }
    count = len(taught.episodes)
    common = np.array([np.mean([value for (one, _), value in own.items() if one == number]) for number in range(count)])
    common = np.where(np.abs(common) < 1e-9, 0.0, common)
    return common, products(common, np.array([episode.outcome["surplus_share"] for episode in taught.episodes]))


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    from rolecraft.learning.credit import DegenerateTurnsWarning
    from rolecraft.systems.learning.omar import judged

    trainer, log = make_trainer(config, base, arm, seed), Log()
    flagged: list[float] = []

    def judge(rows: Rows, episodes: Sequence[Episode]) -> Rows:
        found, share = judged(config, rows)
        flagged.append(share)
        return found

    for update in range(config.updates):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegenerateTurnsWarning)
            taught = take_step(trainer, judge)
        log.take(update, taught)
        outcomes = [episode.outcome for episode in taught.episodes]
        log.curve(
            agreed=np.mean([each["agreed"] for each in outcomes]), flagged=flagged[-1],
            surplus=np.mean([each["surplus_share"] for each in outcomes]),
            value_loss=taught.figures.get("value_loss", 0.0),
        )  # fmt: skip
        for number, (common, value) in enumerate(zip(*shared_credit(taught), strict=True)):
            log.unit(f"{update}/{number}", common=common, shared=value, dealt=outcomes[number]["agreed"])
    log.finish(trainer, config.evaluated, seed)
    return log


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapter."""
    return run_arms(config, store, load, play)


def verdict(result: Result) -> Verdict:
    """Demand that a conversation which is good for both is credited to both, as participants taken as a group are not.

    In the first update all arms have played the same conversations.
    """
    first = part(result, "0")
    effect = contrast(first, "shared", "hierarchical", "grpo")
    control = contrast(first, "shared", "zero-sum/hierarchical", "grpo")
    group = [abs(row["common"]) for row in result.rows if row["arm"] == "grpo" and row.get("common") is not None]
    dealt = {row["dealt"] for row in first.rows if row["arm"] == "hierarchical"}
    mixed = len(dealt) > 1
    claims = {
        **health(result, "hierarchical"),
        "some conversations of the first update end in a deal, and some do not": mixed or None,
        "participants taken as a group never gain together": max(group) < 1e-9,
        "both gain where the surplus is high": held(effect) if mixed else None,
        "but not in the zero-sum game": not control.low > 0,
    }
    return decide(
        claims, effect, control,
        contrast(part(result, "final"), "reward", "hierarchical", "grpo"),
        "correlation of a conversation's mean advantage with its joint surplus in the first update, both levels less "
        "participants as a group; control: the zero-sum game; of both levels: "
        + figures_of(result, "hierarchical", "agreed", "surplus", "flagged", "value_loss", "entropy", "followed"),
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)

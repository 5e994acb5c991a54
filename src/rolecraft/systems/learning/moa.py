"""MOA: several rubrics at once, led by the one that outruns its own trend (arXiv 2512.09756).

Exact: history buffer, least-squares trend, residual softmax, pivot, weighted reward, advantages over the rollouts that
are left (GRPO or leave-one-out), clipped loss, guide answers in the group with the policy's own log-probability as the
old one. The scalariser is `learning.credit.Pivot`.
Ours, as the paper's text was not at hand: the elimination rule (a rollout below the group's mean in the pivot and above
it in the weighted reward; `concordant` is another), window and sharpness, and uniform weights for the first two steps.
Adapted: a table of softmaxes that fills eight slots for twenty prompts, and five exact rubrics that conflict, for a
language model and a judge. The thinking block before the answer has no counterpart here.
Small: `rolecraft systems run moa`; `--study smollm2` is a smoke run of a language model whose replies five rules rate,
without the guide. Leave-one-out advantages: `--set baseline=rloo`; shaping of the guide's ratio:
`--set shaping=0.1`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    Carry,
    CreditBatch,
    CreditResult,
    Elimination,
    Group,
    NoSignalWarning,
    Pivot,
    Stage,
    WeightedSum,
    assign_credit,
    group_advantage,
)
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row
from rolecraft.systems.learning._moa_smoke import SMOLLM2
from rolecraft.systems.learning._slot_replies import RUBRICS, SLOTS, VOCABULARY, SlotReplies, put_guide

if TYPE_CHECKING:
    from torch import Tensor

    from rolecraft._run import RunStore
    from rolecraft.learning.policy import TabularPolicy

SYSTEM = System(
    number=31,
    name="moa",
    title="MOA: Multi-Objective Alignment for Role-Playing Agents",
    arxiv="2512.09756",
    family="learning",
    claim="weighting conflicting rubrics by how far each outruns its own trend, and leaving out rollouts that pull "
    "against the leading one, learns faster than equal weights and sacrifices no rubric; a guide's answers in the "
    "group speed up the start",
    published="an 8B model on a par with GPT-4o and Claude on PersonaGym and RoleMRC; about 21% above GPT-4o on "
    "RoleMRC on average (second-hand); no figure for this setting",
)
LEAST = 0.01
"""Gain in the mean rubric that would be worth having: an interval that excludes it refutes."""
SLACK = 0.02
"""Loss in the worst rubric that still counts as none."""


@dataclass(frozen=True)
class Config(StudyConfig):
    """A policy over slot replies, trained under several scalarisers."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = tuple(range(10))
    prompts: int = 20
    rollouts: int = 8
    """Per prompt and step. Paper: not known."""
    steps: int = 150
    rate: float = 0.05
    """Of Adam."""
    epochs: int = 2
    """Updates per batch; from the second on the ratio leaves 1."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the KL (k3) to the policy before training."""
    window: int = 10
    """Steps of history, K. Paper: not known."""
    beta: float = 10.0
    """Sharpness of the weights. Paper: above 0."""
    eliminate: Elimination = "below_mean"
    baseline: Literal["grpo", "rloo"] = "grpo"
    guides: int = 1
    """Rollouts per prompt that the guide writes, in the guided arms."""
    shaping: float | None = None
    """Gamma of p / (p + gamma) in the place of the guide's ratio; None keeps the ratio."""

    def __post_init__(self) -> None:
        """Refuse sizes that cannot be trained or measured."""
        if min(self.prompts, self.steps, self.epochs, self.guides) < 1 or self.rollouts < self.guides + 2:
            raise UserError(
                "prompts, steps, epochs and guides must be at least 1, and two rollouts per prompt the policy's own; "
                f"got {self.prompts}, {self.steps}, {self.epochs}, {self.guides} and {self.rollouts} rollouts."
            )
        if not self.rate > 0 or not self.kl >= 0 or not (self.shaping is None or self.shaping > 0):
            raise UserError(
                f"expected rate above 0, kl 0 or more and shaping above 0, got {self.rate}, {self.kl}, {self.shaping}."
            )


@dataclass(frozen=True)
class ShuffledPivot(Pivot):
    """The control: the weights of each step dealt to the rubrics at random, so that only the trend's say is lost."""

    seed: int = 0

    def weigh(self, residual: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        """Return the weights in an order that follows from seed and step alone."""
        rng = np.random.default_rng(derive_seed("moa", "shuffle", self.seed, step))
        return rng.permutation(super().weigh(residual, step))


@dataclass(frozen=True)
class LeaveOneOut:
    """Add each reward less the mean of the others of its group (RLOO)."""

    keys: Sequence[str] = ("task",)

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the advantage; a group of one gets 0."""
        index, _ = batch.group_index(self.keys, "leave_one_out")
        off, stats = group_advantage(carry.reward, index, scale="none", where=carry.keep)
        entries = stats.entries[index]
        return replace(carry, advantage=carry.advantage + off * entries / np.maximum(entries - 1, 1))


SCALARISERS = ("uniform", "random", "no-elimination", "moa")
"""Equal weights; the control; MOA's weights without elimination; MOA."""
ARMS = tuple(f"{name}{guided}" for name in SCALARISERS for guided in ("", "+guide"))


def credit_rule(config: Config, arm: str, seed: int) -> list[Stage]:
    """Return an arm's stages."""
    pivot = Pivot(window=config.window, beta=config.beta, eliminate=config.eliminate)
    scalariser: dict[str, Stage] = {
        "uniform": WeightedSum(),
        "random": ShuffledPivot(window=config.window, beta=config.beta, eliminate=config.eliminate, seed=seed),
        "no-elimination": replace(pivot, eliminate="none"),
        "moa": pivot,
    }
    baseline: Stage = Group() if config.baseline == "grpo" else LeaveOneOut()
    return [scalariser[arm.removesuffix("+guide")], baseline]


def guided_loss(
    logp: Tensor,
    logp_old: Tensor,
    credit: CreditResult,
    guided: NDArray[np.bool_],
    *,
    clip: float = 0.2,
    shaping: float | None = None,
) -> Tensor:
    """Return the clipped loss over own and guide's rollouts, a mean over the tokens that count.

    Args:
        logp: Shape (N, T), with gradient.
        logp_old: Shape (N, T): the log-probabilities under the policy that sampled, in guided rows too, so that their
            ratio starts at 1.
        credit: Advantages and which rows count.
        guided: Shape (N,): the guide's rows.
        clip: Of the ratio.
        shaping: Gamma. The guide's tokens then count by p / (p + gamma), which learns least from tokens that the policy
            finds likely already; no clipping there.
    """
    import torch

    from rolecraft.learning import losses

    advantages = torch.as_tensor(credit.advantages)
    counts = torch.as_tensor(credit.keep)[:, None].expand_as(logp)
    if shaping is None:
        return losses.clipped_surrogate(logp, logp_old, advantages, counts, clip=clip).loss
    theirs = counts & torch.as_tensor(guided)[:, None]
    own = counts & ~theirs
    probability = logp.exp()
    shaped = -probability / (probability + shaping) * advantages
    share = float(theirs.sum()) / max(float(counts.sum()), 1.0)
    surrogate = losses.clipped_surrogate(logp, logp_old, advantages, own, clip=clip).loss
    return (1 - share) * surrogate + share * losses.total(shaped, theirs)


def train(config: Config, arm: str, seed: int) -> dict[str, Any]:
    """Train one policy and return its row: curves and final figures."""
    import torch

    from rolecraft.learning.policy import TabularPolicy

    world = SlotReplies.draw(config.prompts, derive_seed("moa", "prompts", seed))
    rng = np.random.default_rng(derive_seed("moa", "rollouts", seed))
    policy = TabularPolicy(config.prompts, SLOTS, VOCABULARY)
    optimiser = torch.optim.Adam(policy.parameters(), lr=config.rate)
    rule, state = credit_rule(config, arm, seed), None
    tasks = np.repeat(np.arange(config.prompts), config.rollouts)
    guided = np.tile(np.arange(config.rollouts) < config.guides, config.prompts) & arm.endswith("+guide")
    curve, lost, silent = [], 0, 0
    info: Mapping[str, Any] = {}
    for _ in range(config.steps):
        replies, _ = policy.sample(tasks, rng)
        if guided.any():
            replies = put_guide(replies, world.guide(tasks[guided], rng), np.flatnonzero(guided))
        batch = CreditBatch(np.ones(replies.shape, dtype=bool), {"task": tasks}, objectives=world.rate(tasks, replies))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            credit = assign_credit(batch, rule, state)
        state, info = credit.state, credit.info
        lost, silent = lost + int((~credit.keep).sum()), silent + int(info["no_signal"])
        curve.append([float(batch.objectives[name][~guided].mean()) for name in RUBRICS])
        update(config, policy, optimiser, tasks, replies, credit, guided)
    rubrics = np.array(curve)
    return {
        "auc": float(rubrics.mean()),
        "early_auc": float(rubrics[: max(1, config.steps // 4)].mean()),
        **final_figures(world, policy, derive_seed("moa", "test", seed)),
        "eliminated": lost / (config.steps * len(tasks)),
        "silent_steps": silent,
        "curve": np.round(rubrics.mean(1), 4).tolist(),
        **({"pivots": info["moa/pivots"]} if "moa/pivots" in info else {}),
    }


def update(
    config: Config, policy: TabularPolicy, optimiser: Any, tasks: NDArray[np.int64], replies: NDArray[np.int64],
    credit: CreditResult, guided: NDArray[np.bool_],
) -> None:  # fmt: skip
    """Take the gradient steps of one batch."""
    import torch

    from rolecraft.learning import losses

    counts = torch.as_tensor(credit.keep)[:, None].expand(replies.shape)
    old = policy.log_probs(tasks, replies)[0].detach()
    for _ in range(config.epochs):
        logp, _ = policy.log_probs(tasks, replies)
        loss = guided_loss(logp, old, credit, guided, clip=config.clip, shaping=config.shaping)
        if config.kl:
            start = torch.full_like(logp, -math.log(VOCABULARY))
            loss = loss + config.kl * losses.total(losses.kl_tokens(logp, start), counts)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def final_figures(world: SlotReplies, policy: TabularPolicy, seed: int, samples: int = 32) -> dict[str, Any]:
    """Measure a trained policy on fresh replies to each prompt.

    Returns:
        Mean of each rubric, their mean and the worst of them; `hypervolume` above 0 of a prompt's replies, a mean over
        prompts; `entropy` of a slot in nats, exact; `correlation` of brevity and knowledge within prompts.
    """
    from rolecraft.learning.credit import objective_correlation
    from rolecraft.measures import hypervolume

    prompts = len(world.words)
    tasks = np.repeat(np.arange(prompts), samples)
    replies, _ = policy.sample(tasks, np.random.default_rng(seed))
    rated = np.stack([world.rate(tasks, replies)[name] for name in RUBRICS], axis=1)
    means = rated.mean(0)
    table = policy.log_softmax(np.arange(prompts)).detach().numpy()
    conflict = objective_correlation(rated, tasks)[RUBRICS.index("brevity"), RUBRICS.index("knowledge")]
    return {
        **dict(zip(RUBRICS, means.tolist(), strict=True)),
        "final": float(means.mean()),
        "worst": float(means.min()),
        "hypervolume": float(np.mean([hypervolume(each, 0.0) for each in rated.reshape(prompts, samples, -1)])),
        "entropy": float(-(np.exp(table) * table).sum(-1).mean()),
        "correlation": float(conflict),
    }


def run(config: Config, store: RunStore) -> Result:
    """Train what is missing; a row is one arm and seed. Arms of a seed share prompts and test draws."""
    for arm, seed in missing_rows(store, ARMS, config.seeds):
        put_row(store, arm, seed, **train(config, arm, seed))
    return Result.read(store)


def verdict(result: Result) -> Verdict:
    """Demand a higher learning curve than equal weights, no worse worst rubric, a faster start with the guide.

    The control, the same weights dealt at random, must not gain on equal weights.
    """
    effect = result.difference("auc", "moa", "uniform", by="seed")
    control = result.difference("auc", "random", "uniform", by="seed")
    worst = result.difference("worst", "moa", "uniform", by="seed")
    start = result.difference("early_auc", "moa+guide", "moa", by="seed")
    figures = {
        "over random weights": result.difference("auc", "moa", "random", by="seed"),
        "elimination adds": result.difference("auc", "moa", "no-elimination", by="seed"),
        "worst rubric": worst,
        "hypervolume": result.difference("hypervolume", "moa", "uniform", by="seed"),
        "entropy": result.difference("entropy", "moa", "uniform", by="seed"),
        "guide in the first quarter": start,
        "guide under equal weights": result.difference("early_auc", "uniform+guide", "uniform", by="seed"),
        "MOA over equal weights, both guided": result.difference("auc", "moa+guide", "uniform+guide", by="seed"),
    }
    return Verdict.when(
        reproduced=effect.low > 0 and worst.low > -SLACK and start.low > 0 and not control.low > 0,
        inconclusive=effect.low <= 0 and effect.high >= LEAST,
        effect=effect,
        control=control,
        note="gain in the area under the mean-rubric curve over equal weights; "
        + ", ".join(f"{what} {figure}" for what, figure in figures.items())
        + "; control: the same weights dealt to the rubrics at random",
    )


STUDIES = {"bandit": (Config, run, verdict), "smollm2": SMOLLM2}

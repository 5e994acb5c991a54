r"""Character-R1: verifiable rewards for role play, normalised per character (arXiv 2601.04611).

Exact (after the released trainer): ten rewards and their weights, applied after normalisation; running mean and
variance per character key (decay 0.99, from 0 and 1, updated before use); group-relative advantage; the strict reading
of think, focus, focus_attr and \boxed. Inferred: the format rule and the set equality of labels.
Adapted: a small network over role embeddings emits one label, three attribute words and six reply words; four groups of
roles whose references are longer than a reply, to different degrees, stand for easy and hard characters. Every reply is
written out as text and read and scored like a model's.
Control: the running mean alone, without the scale. It cancels in the advantage, so it must change nothing. Beside it:
the same normaliser keyed by wrong groups.
Small: `rolecraft systems run character-r1`. The paper trains Llama-3.2-3B and Qwen2.5-7B with GRPO on 8 x H20 (KL 0.02,
learning rate 1e-6), as a reading note has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.credit import Stage
    from rolecraft.measures import Interval

SYSTEM = System(
    number=6,
    name="character-r1",
    title="Character-R1: Enhancing Role-Aware Reasoning in Role-Playing Agents via RLVR",
    arxiv="2601.04611",
    family="learning",
    claim="normalising each reward by the running statistics of its group of characters helps the worst-off group, and "
    "costs the average nothing",
    published="CharacterBench 3.71 without and 3.81 with the normalisation (SFT 3.19; figures of a third-party note)",
)


@dataclass(frozen=True)
class BanditConfig(StudyConfig):
    """A bandit of roles."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tails: tuple[int, ...] = (0, 6, 12, 24)
    """By group: how many words of a reference follow the six that the policy can say."""
    roles_per_group: int = 6
    updates: int = 500
    samples: int = 8
    """Replies per role and update. Released sample configuration: 5."""
    learning_rate: float = 0.003
    """Of Adam. Paper, for a language model: 1e-6."""
    kl: float = 0.02
    """Coefficient of the divergence from the first policy. Paper: 0.02, from a language model. From a uniform one, as
    here, the raw sum leaves no group behind at 0.02, so that there is little to mend; at 0.05 it does, and on two seeds
    of development the normaliser then gained 0.02 to 0.03 in the worst group."""
    decay: float = 0.99
    """Of the running statistics. Released trainer: 0.99."""
    size: int = 32
    """Length of a role's embedding."""
    spread: float = 1.0
    """Of the roles' embeddings about their group's, whose own spread is 1."""
    hidden: int = 64
    evaluated: int = 128
    """Replies per role that are scored in the end."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare."""
        if len(self.tails) < 2 or min(self.tails) < 0:
            raise UserError(f"tails: expected two groups or more, each with 0 words or more, got {self.tails}.")
        if min(self.roles_per_group, self.samples) < 2 or min(self.updates, self.evaluated, self.size, self.hidden) < 1:
            raise UserError("roles_per_group and samples must be at least 2, updates, evaluated, size and hidden 1.")
        if not 0 <= self.decay < 1 or self.learning_rate <= 0 or self.kl < 0:
            raise UserError("expected 0 <= decay < 1, a learning_rate above 0 and a kl of 0 or more.")


ARMS = ("raw", "global", "ccrn", "shift", "wrong-groups", "no-focus", "no-attr", "no-reference")
"""A weighted sum; one normaliser for all; one per group; the control; groups drawn across the true ones; `ccrn` without
one part of the reward."""
DROPPED = {"no-focus": "focus", "no-attr": "focus_attr", "no-reference": "reference"}


def scalariser(arm: str, config: BanditConfig) -> Stage:
    """Return the stage by which an arm turns ten rewards into one."""
    from rolecraft.learning import component_weights
    from rolecraft.learning.credit import Ccrn, WeightedSum
    from rolecraft.systems.learning._character_bandit import Shift

    weights = component_weights(without=[DROPPED[arm]] if arm in DROPPED else ())
    if arm == "raw":
        return WeightedSum(weights)
    if arm == "shift":
        return Shift(weights, decay=config.decay)
    keys = {"global": (), "wrong-groups": ("shuffled",)}.get(arm, ("group",))
    return Ccrn(keys, weights, config.decay)


def run_bandit(config: BanditConfig, store: RunStore) -> Result:
    """Train every arm on every seed's roles; all arms of a seed start from the same network."""
    from rolecraft.systems.learning._character_bandit import make_bandit, measure, train

    bandits = {}
    for arm, seed in missing_rows(store, ARMS, config.seeds):
        if seed not in bandits:
            bandits = {seed: make_bandit(config, seed)}
        bandit = bandits[seed]
        network = train(bandit, scalariser(arm, config), config, seed)
        put_row(store, arm, seed, **measure(bandit, network, config, seed))
    return Result.read(store)


def verdict_bandit(result: Result) -> Verdict:
    """Compare the worst group's score: the mean of its label match and its overlap as a share of what it can reach."""
    effect = result.difference("worst_score", "ccrn", "raw")
    against_global = result.difference("worst_score", "ccrn", "global")
    mean = result.difference("mean_score", "ccrn", "raw")
    control = result.difference("worst_score", "shift", "raw")
    falls = {
        arm: result.difference(metric, "ccrn", arm)
        for arm, metric in (("no-focus", "mean_focus"), ("no-attr", "mean_attr"), ("no-reference", "mean_overlap"))
    }
    note = (
        f"worst group's score, ccrn - global {against_global}, ccrn - wrong groups "
        f"{result.difference('worst_score', 'ccrn', 'wrong-groups')}; its overlap, ccrn - raw "
        f"{result.difference('worst_overlap', 'ccrn', 'raw')}; its label match "
        f"{result.difference('worst_focus', 'ccrn', 'raw')}; mean score {mean}; fall without "
        + ", ".join(f"{arm.removeprefix('no-')} {fall}" for arm, fall in falls.items())
        + "; control: the shift without the scale"
    )
    return decide(effect, against_global, mean, control, tuple(falls.values()), note)


def decide(
    effect: Interval,
    against_global: Interval,
    mean: Interval,
    control: Interval,
    falls: Sequence[Interval],
    note: str = "",
) -> Verdict:
    """Decide from differences.

    Reproduced: the effect's interval lies above 0, the global normaliser is not better, the mean score is not lower
    than the raw sum's by more than noise, the control shows no effect, and each part is missed where it is dropped.

    Args:
        effect: Worst score, CCRN - raw sum.
        against_global: Worst score, CCRN - global normaliser.
        mean: Mean score, CCRN - raw sum.
        control: Worst score, shift alone - raw sum.
        falls: What each part rewards, with it - without it.
        note: For the reader.
    """
    sound = (
        against_global.estimate >= 0
        and mean.high >= 0
        and control.low <= 0 <= control.high
        and all(fall.low > 0 for fall in falls)
    )
    return Verdict.when(
        reproduced=sound and effect.low > 0,
        inconclusive=sound and effect.low <= 0 < effect.estimate,
        effect=effect,
        control=control,
        note=note,
    )


STUDIES = {"bandit": (BanditConfig, run_bandit, verdict_bandit)}

r"""Character-R1: verifiable rewards for role play, normalised per character (arXiv 2601.04611).

Exact (after the released trainer): ten rewards and their weights, applied after normalisation; running mean and
variance per character key (decay 0.99, from 0 and 1, updated before use); group-relative advantage; the strict reading
of think, focus, focus_attr and \boxed. Inferred: the format rule and the set equality of labels.
Adapted: a small network over role embeddings emits one label, three attribute words and six reply words; four groups of
roles whose references are longer than a reply, to different degrees, stand for easy and hard characters. Every reply is
written out as text and read and scored like a model's.
Control: the running mean alone, without the scale. It cancels in the advantage, so it must change nothing. Beside it:
the same normaliser keyed by wrong groups.
The study `smollm2` trains an adapter on the embedded model with the same rewards. Its short prompt does not show the
form; the model first imitates some replies to other talks, whose labels are drawn at random. Control: rewards dealt out
again within each group. It can tell whether the rewards teach form and labels, not whether the normaliser helps.
Small: `rolecraft systems run character-r1`. The paper trains Llama-3.2-3B and Qwen2.5-7B with GRPO on 8 x H20 (KL 0.02,
learning rate 1e-6), as a reading note has it: `--study smollm2 --full --set model=local:PATH --set device=cuda`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.credit import Stage
    from rolecraft.measures import Interval
    from rolecraft.models import LocalModel

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


# (a) A bandit


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


# (b) A language model


@dataclass(frozen=True)
class SmokeConfig(StudyConfig):
    """A language model with an adapter, on a few talks of characters."""

    seeds: tuple[int, ...] = (0, 1)
    model: str = "local:smollm2"
    """Paper: Llama-3.2-3B-Instruct and Qwen2.5-7B-Instruct."""
    device: str = "cpu"
    """`cpu` or `cuda`. Paper: 8 x H20."""
    arms: tuple[Literal["ccrn", "raw", "shuffled"], ...] = ("ccrn", "shuffled")
    """What is trained; `raw` is the weighted sum, which so few updates cannot tell from `ccrn`: the running variance
    starts at 1 and moves by a hundredth at a time."""
    cases: str = "characters-v1"
    """Characters and talks: a bundled set or a file."""
    prompts: int = 8
    """Talks that are trained on; 0: all. The characters' other talks are imitated first."""
    labels: int = 1
    """Most gold labels of a talk, so that a short reply has room for them."""
    prompt: Literal["short", "examples", "free"] = "short"
    """`examples` and `free` are the paper's, 310 to 450 tokens long; `short` has 50 and shows no form or label."""
    groups: int = 0
    """Of characters, by their profiles; 0: their family. Paper, as a reading note has it: 7."""
    batch: int = 3
    """Talks per update."""
    samples: int = 8
    """Replies per talk. Released sample configuration: 5."""
    updates: int = 20
    max_tokens: int = 48
    """Released sample configuration: 2048."""
    imitated: int = 24
    """Steps of imitation before the training. Paper: none is told of."""
    imitation_lr: float = 0.002
    lr: float = 0.0005
    """Of the adapter. Paper, for all weights: 1e-6."""
    entropy: float = 0.02
    """Weight of the entropy bonus, in the place of the KL: without it one seed of development had a single reply with a
    wrong label left after ten updates."""
    kl: float = 0.0
    """To the model without adapter, which does not know the form. Paper: 0.02."""
    decay: float = 0.99
    rank: int = 16
    blocks: int = 8
    """Last blocks that are adapted; 0: all."""
    evaluated: int = 8
    """Replies per talk."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare."""
        counts = (self.updates, self.batch, self.max_tokens, self.rank, self.evaluated, self.labels)
        if self.samples < 2 or min(counts) < 1 or min(self.prompts, self.groups, self.imitated, self.blocks) < 0:
            raise UserError(
                "expected 2 samples or more, updates, batch, max_tokens, rank, evaluated and labels of 1 or more, and "
                "prompts, groups, imitated and blocks of 0 or more."
            )
        if not {"ccrn", "shuffled"} <= set(self.arms):
            raise UserError(f"arms: the method (ccrn) and its control (shuffled) are needed, got {self.arms}.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size, as far as it is known, with an adapter where the paper trains all weights.

        Name a model of 3 or 7 billion weights on a GPU, and talks of yours, as 36 are bundled: `--set model=local:PATH
        --set device=cuda --set cases=FILE`. The paper used 8 x H20. Its figures are of
        CharacterBench (3.81, after 3.19 by fine-tuning alone) and SocialBench, which are not here; expected here is a
        format rate near 1 and a label match well above the untrained model's.
        """
        return cls(
            model=UNNAMED, arms=("ccrn", "raw", "shuffled"), prompts=0, labels=10, prompt="examples", groups=7,
            batch=512, samples=5, updates=100, max_tokens=2048, imitated=0, lr=1e-5, entropy=0.0, kl=0.02, rank=64,
            blocks=0,
        )  # fmt: skip


UNNAMED = "local:PATH"


def run_smollm2(config: SmokeConfig, store: RunStore) -> Result:
    """Load the model, unless all is there, and run what is missing.

    Raises:
        UserError: If no model is named, or it cannot be trained.
    """
    if config.model == UNNAMED:
        raise UserError("--full needs a model of yours: --set model=local:PATH, and --set device=cuda for a GPU.")
    keys = [row_key(arm, seed) for seed in config.seeds for arm in ("base", "start", *config.arms)]
    if store.missing(DONE, keys):
        from rolecraft.models import load_local

        run_on(load_local(config.model, device=config.device), config, store)
    return Result.read(store)


def run_on(model: LocalModel, config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm of a seed from one and the same start, with adapters on this model.

    Rows are one per arm, seed and talk. `base` is the model as it is, `start` the model that knows the form.
    """
    from rolecraft.systems.learning._character_smoke import evaluate, imitate, make_smoke, make_trainer, train

    for seed in config.seeds:
        missing = [arm for arm in ("base", "start", *config.arms) if store.missing(DONE, [row_key(arm, seed)])]
        if not missing:
            continue
        smoke = make_smoke(model, config, seed)
        start = imitate(smoke, config, seed)
        for arm in missing:
            smoke.policy.load(smoke.untrained if arm == "base" else start)
            trainer = make_trainer(smoke, arm, config, seed)
            curve = [] if arm in ("base", "start") else train(trainer, config)
            for case, figures in evaluate(smoke, trainer, config, seed).items():
                put_row(store, arm, seed, case, **figures)
            store.put(DONE, row_key(arm, seed), {"arm": arm, "seed": seed, "curve": curve})
    return Result.read(store)


DONE = "arms"
"""Arms that are through, with what the replies of each update scored."""


def verdict_smollm2(result: Result) -> Verdict:
    """Compare format rate and label match after training with those before; each talk is resampled as a whole."""
    focus, form = (result.difference(metric, "ccrn", "start") for metric in ("focus", "format"))
    control, control_form = (result.difference(metric, "shuffled", "start") for metric in ("focus", "format"))
    ahead = result.difference("focus", "ccrn", "shuffled")
    note = (
        f"label match {result.mean('focus', 'start').estimate:.2f} to {result.mean('focus', 'ccrn').estimate:.2f}; "
        f"format rate {result.mean('format', 'base').estimate:.2f} untrained, "
        f"{result.mean('format', 'start').estimate:.2f} after imitation, {result.mean('format', 'ccrn').estimate:.2f} "
        f"trained (gain {form}, with shuffled rewards {control_form}); label match, ccrn - shuffled {ahead}"
    )
    return decide_smollm2(focus, form, control, ahead, note)


def decide_smollm2(focus: Interval, form: Interval, control: Interval, ahead: Interval, note: str = "") -> Verdict:
    """Decide from differences.

    Reproduced: label match and format rate rise, and rewards that are shuffled within their group raise the label match
    neither above the start nor as far.

    Args:
        focus: Label match, trained - start.
        form: Format rate, trained - start.
        control: Label match, shuffled rewards - start.
        ahead: Label match, trained - shuffled rewards.
        note: For the reader.
    """
    sound = control.low <= 0 and min(focus.estimate, form.estimate, ahead.estimate) > 0
    clear = min(focus.low, form.low, ahead.low) > 0
    return Verdict.when(
        reproduced=sound and clear, inconclusive=sound and not clear, effect=focus, control=control, note=note
    )


STUDIES = {
    "bandit": (BanditConfig, run_bandit, verdict_bandit),
    "smollm2": (SmokeConfig, run_smollm2, verdict_smollm2),
}

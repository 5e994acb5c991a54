"""ADRS: a privileged teacher's scores as a bounded, gated part of the advantage (arXiv 2608.03223).

Exact: centring per step, the alignment of completions with their outcomes as a gate whose scale is normalised without
centring, whitening per prompt group, the clip, the skip of groups whose outcomes do not differ; RLSD and Skill-SD with
their published constants. The rules are `rolecraft.learning.credit`'s; this file is the study.
Adapted: the answer is 12 tokens from a table instead of an episode of Qwen2.5-3B, and the teacher a noisy table whose
quality is known instead of the same model with skills. The gate comes after the whitening: in the published code it
comes before, where it cancels. The teacher speaks in every update (paper: updates 21 to 70), without the entropy
bonus. The learning rate was chosen so that GRPO is about as fast as in the dossier's pilot, and `eta` above the paper's
0.1, both on seeds 1 to 6, where 0.1 gained .028 with the good teacher and 0.2 gained .038.
Added: a constant gate of 0.5, which tells what the gate knows from what it halves.
Small: `rolecraft systems run adrs`; `--study smollm2` is a smoke run in which a language model with the way in its
prompt is its own teacher. Paper's size: ALFWorld with Qwen2.5-3B-Instruct on 8 GPUs, 150 updates, group 8
(expected: 94.5 against 66.4 for GRPO); not part of this study.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row
from rolecraft.systems.learning._adrs_smoke import SMOLLM2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.learning.credit import Stage
    from rolecraft.measures import Interval
    from rolecraft.systems.learning._adrs_smoke import SmokeConfig

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

SYSTEM = System(
    number=60,
    name="adrs",
    title="Agentic Reinforcement Learning with Self-Distilled Reward Shaping",
    arxiv="2608.03223",
    family="learning",
    claim="a privileged teacher's token scores, centred, gated and clipped into the advantage, speed learning up where "
    "the teacher is good and hardly harm where it is bad, while the unbounded loss collapses",
    published="ALFWorld, Qwen2.5-3B: 94.5 against GRPO 66.4, SDAR 78.1; 70% after 70 updates against SDAR's 130",
)

QUALITIES = ("good", "mixed", "bad")
RULES = ("adrs", "ungated", "halved", "unclipped", "rlsd", "skill-sd")
ARMS = ("grpo", *(f"{rule}/{quality}" for quality in QUALITIES for rule in RULES))
"""GRPO asks no teacher. `unclipped` adds the whole distillation loss to it: with the bad teacher it must fail."""


@dataclass(frozen=True)
class ToyConfig(StudyConfig):
    """Answers of a few tokens, with teachers of known quality."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = tuple(range(8))
    tasks: int = 8
    length: int = 12
    """Tokens of an answer."""
    vocabulary: int = 6
    needed: int = 5
    """Right tokens that make an answer a success."""
    group: int = 8
    """Answers per task and update. Paper: 8."""
    updates: int = 150
    """Paper: 150."""
    rate: float = 0.08
    """Learning rate (Adam) of the table. Paper: 1e-6 for a 3B model."""
    eta: float = 0.2
    """Strength of the teacher's term. Paper: 0.02 or 0.1."""
    clip: float = 0.2
    """Bound of the term. Paper: 0.2."""
    distil: float = 1.0
    """Weight of the unclipped loss: the policy gradient's own."""
    skill_sd: float = 0.1
    """Weight of Skill-SD's loss. Paper: 0.001 at the token scale of a 7B model."""
    peak: float = 3.0
    """How far the teacher's hint stands out of its logits, in their noise's standard deviations."""
    mixed: float = 0.6
    """Share of right hints of the mixed teacher."""

    def __post_init__(self) -> None:
        """Refuse sizes without anything to learn."""
        if min(self.tasks, self.length, self.updates) < 1 or self.vocabulary < 2 or self.group < 2:
            raise UserError(
                "tasks, length and updates must be at least 1, vocabulary and group at least 2; got "
                f"{self.tasks}, {self.length}, {self.updates}, {self.vocabulary} and {self.group}."
            )
        if not 1 <= self.needed <= self.length or not 0 <= self.mixed <= 1 or not self.rate > 0:
            raise UserError(
                f"needed must lie in 1..length ({self.length}), mixed in 0..1 and rate above 0; got {self.needed}, "
                f"{self.mixed} and {self.rate}."
            )


def rule_of(name: str, config: ToyConfig | SmokeConfig) -> list[Stage]:
    """Return the stages of an arm's rule.

    Raises:
        UserError: If it is unknown.
    """
    from rolecraft.learning.credit import Group, adrs, opd, rlsd, skill_sd

    eta, clip = config.eta, config.clip
    rules: Mapping[str, list[Stage]] = {
        "grpo": [Group()],
        "adrs": adrs(level="L2", eta=eta, clip=clip, warmup=0, active=None),
        "ungated": adrs(level=None, eta=eta, clip=clip, warmup=0, active=None),
        "halved": adrs(level=None, eta=eta / 2, clip=clip, warmup=0, active=None),
        "unclipped": opd(weight=config.distil, reward=True),
        "rlsd": rlsd(),
        "skill-sd": skill_sd(weight=config.skill_sd),
    }
    if name not in rules:
        raise UserError(f"rule {name!r} is unknown (known: {', '.join(rules)}).")
    return rules[name]


@dataclass(frozen=True)
class Toy:
    """One seed's tasks."""

    target: Ints
    """Shape (tasks, length): the right tokens."""
    vocabulary: int
    needed: int

    @classmethod
    def make(cls, config: ToyConfig, seed: int) -> Toy:
        """Draw the right answers."""
        rng = np.random.default_rng(derive_seed("adrs", "toy", seed))
        return cls(
            rng.integers(config.vocabulary, size=(config.tasks, config.length)), config.vocabulary, config.needed
        )

    def reward(self, task: Ints, tokens: Ints) -> Floats:
        """Return 1 for answers with enough right tokens, of shape (N,)."""
        right: Ints = (tokens == self.target[task]).sum(1)
        return (right >= self.needed).astype(np.float64)

    def success(self, table: Floats) -> float:
        """Return the exact success rate of token probabilities (tasks, length, vocabulary), mean over tasks.

        The number of right tokens is a sum of independent draws; its distribution is built up token by token.
        """
        right = np.take_along_axis(table, self.target[..., None], -1)[..., 0]
        counts = np.zeros((len(right), right.shape[1] + 1))
        counts[:, 0] = 1.0
        for place in range(right.shape[1]):
            hit = right[:, place, None]
            counts[:, 1:] = counts[:, 1:] * (1 - hit) + counts[:, :-1] * hit
            counts[:, 0] *= 1 - hit[:, 0]
        return float(counts[:, self.needed :].sum(1).mean())

    def teacher(self, quality: str, config: ToyConfig, seed: int) -> Floats:
        """Return a teacher's log-probabilities, of shape (tasks, length, vocabulary): noise, and a hint at each place.

        The good one's hints are right, the bad one's wrong, the mixed one's right with a known probability.
        """
        rng = np.random.default_rng(derive_seed("adrs", "teacher", quality, seed))
        wrong = (self.target + rng.integers(1, self.vocabulary, self.target.shape)) % self.vocabulary
        share = {"good": 1.0, "mixed": config.mixed, "bad": 0.0}[quality]
        hint = np.where(rng.random(self.target.shape) < share, self.target, wrong)
        logits = rng.standard_normal((*self.target.shape, self.vocabulary))
        logits += config.peak * (np.arange(self.vocabulary) == hint[..., None])
        table: Floats = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return table


@dataclass
class Log:
    """What is measured while a policy learns."""

    curve: list[float] = field(default_factory=list)
    """Exact success rate before each update, and at the end."""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def read(self, info: Mapping[str, Any], logp_teacher: Floats | None, tokens: Ints, mask: NDArray[np.bool_]) -> None:
        """Take in an update."""
        from rolecraft.learning.credit import frequency_confound, teacher_signal

        found = {name: info[key] for name, key in _FIGURES.items() if key in info}
        if logp_teacher is not None:
            found["confound"] = float(frequency_confound(teacher_signal(logp_teacher, mask)[0], tokens, mask))
        for name, value in found.items():
            self.figures.setdefault(name, []).append(float(value))

    def row(self) -> dict[str, Any]:
        """Return the row: the mean of the curve, its end, every tenth point, and the means of the other figures."""
        means = {name: float(np.mean(values)) for name, values in self.figures.items()}
        return {"auc": float(np.mean(self.curve[:-1])), "final": self.curve[-1], **means, "curve": self.curve[::10]}


_FIGURES = {
    "gate": "tva_gate/gate",
    "clip_share": "add_token/clip_share",
    "skipped_rows": "add_token/skipped_rows",
    "silent": "no_signal",
}


def train(config: ToyConfig, rule: str, quality: str | None, seed: int) -> dict[str, Any]:
    """Train a table by a rule, and return the row's figures; all arms of a seed share tasks and draws."""
    import torch

    from rolecraft.learning.credit import CreditBatch, NoSignalWarning, assign_credit
    from rolecraft.learning.losses import aux_loss, clipped_surrogate
    from rolecraft.learning.policy import TabularPolicy

    toy = Toy.make(config, seed)
    teacher = None if quality is None else toy.teacher(quality, config, seed)
    policy = TabularPolicy(config.tasks, config.length, config.vocabulary)
    optimiser = torch.optim.Adam(policy.parameters(), config.rate)
    rng = np.random.default_rng(derive_seed("adrs", "draws", seed))
    task = np.repeat(np.arange(config.tasks), config.group)
    mask = np.ones((len(task), config.length), dtype=bool)
    stages, log = rule_of(rule, config), Log()
    state: Mapping[str, Any] | None = None
    for _ in range(config.updates):
        log.curve.append(toy.success(policy.log_softmax(np.arange(config.tasks)).exp().detach().numpy()))
        tokens, logp_old = policy.sample(task, rng)
        columns = {"logp_old": logp_old}
        if teacher is not None:
            columns["logp_teacher"] = np.take_along_axis(teacher[task], tokens[..., None], -1)[..., 0]
        batch = CreditBatch(mask, {"task": task}, {"outcome": toy.reward(task, tokens)}, columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)  # counted below
            credit = assign_credit(batch, stages, state)
        state = credit.state
        log.read(credit.info, columns.get("logp_teacher"), tokens, mask)
        logp, _ = policy.log_probs(task, tokens)
        old, trained = torch.as_tensor(logp_old), torch.as_tensor(mask)
        loss = clipped_surrogate(logp, old, torch.as_tensor(credit.advantages), trained).loss
        loss = loss + aux_loss(credit.aux, logp, old, trained)[0]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    log.curve.append(toy.success(policy.log_softmax(np.arange(config.tasks)).exp().detach().numpy()))
    return log.row()


def run_toy(config: ToyConfig, store: RunStore) -> Result:
    """Train every arm, one row per arm and seed."""
    for arm, seed in missing_rows(store, ARMS, config.seeds):
        rule, _, quality = arm.partition("/")
        put_row(store, arm, seed, **train(config, rule, quality or None, seed))
    return Result.read(store)


GAIN, HARM, COST, COLLAPSE = 0.03, 0.02, 0.01, 0.5
"""From the dossier: the gain under a good teacher; the harm under a bad one; what the gate may cost; the collapse, a
share of GRPO's area under the curve."""


def margins(result: Result) -> dict[str, Interval]:
    """Return by how much each condition of the claim holds: above 0 it does."""

    def gap(a: str, b: str) -> Interval:
        return result.difference("auc", a, b)

    ratio = result.ratio("auc", "unclipped/bad", "grpo")
    return {
        "gain with the good teacher": _shifted(gap("adrs/good", "grpo"), -GAIN),
        "harm with the bad teacher": _shifted(gap("adrs/bad", "grpo"), HARM),
        "gate with the bad teacher": gap("adrs/bad", "ungated/bad"),
        "gate with the good teacher": _shifted(gap("adrs/good", "ungated/good"), COST),
        "collapse of the unclipped loss": _shifted(_negated(ratio), COLLAPSE),
    }


def verdict_toy(result: Result) -> Verdict:
    """Demand every condition by its whole interval; one that fails by its whole interval refutes."""
    found = margins(result)
    shown = [name for name, each in found.items() if each.low >= 0]
    refuted = [name for name, each in found.items() if each.high < 0]
    areas = ", ".join(f"{arm} {result.mean('auc', arm).estimate:.3f}" for arm in result.arms)
    return Verdict.when(
        reproduced=len(shown) == len(found),
        inconclusive=len(shown) < len(found) and not refuted,
        effect=result.difference("auc", "adrs/good", "grpo"),
        control=result.difference("auc", "unclipped/bad", "grpo"),
        note=f"area under the exact success curve less GRPO's, with the good teacher; {areas}; the gate against a "
        f"constant 0.5 with the bad teacher {result.difference('auc', 'adrs/bad', 'halved/bad')}; "
        + (f"failed: {', '.join(refuted)}; " if refuted else "")
        + "control: the unclipped loss with the bad teacher, which must collapse",
    )


def _shifted(interval: Interval, by: float) -> Interval:
    from rolecraft.measures import Interval

    return Interval(interval.estimate + by, interval.low + by, interval.high + by, interval.n)


def _negated(interval: Interval) -> Interval:
    from rolecraft.measures import Interval

    return Interval(-interval.estimate, -interval.high, -interval.low, interval.n)


STUDIES = {"toy": (ToyConfig, run_toy, verdict_toy), "smollm2": SMOLLM2}

"""Skill-SD: a student distils itself, shown skills from its own finished episodes (arXiv 2604.10674).

Exact: skills as JSON of three fields from successes and failures, a bank per task with a bandit's choice, the teacher
with the student's weights of now and the skill before the same recorded interaction, reverse KL with importance weights
beside GRPO, whose advantages do not change; the student never sees a skill. The parts are `agents.SkillBank`,
`learning.RuleWriter`, `learning.SkillTeacher` and `make_rule("skill-sd")`.
Inferred, as the paper's text was not at hand: cap 8, eviction, the constant of the bandit, and utility as what the
episodes that a skill taught earned less the mean of their task.
Adapted: a tiny transformer on a small grid with a key and a door for Qwen3-4B on AppWorld and Sokoban. Its warm start
on other maps teaches it to follow a workflow text; without a skill it walks at random. A rule writes the skills instead
of Seed1.8. The paper's lambda, 0.001, belongs to a 7B model's scale of a token: a second, 100 times as large, is run
beside it, and it is the one that the verdict looks at. A teacher is as good as its base follows a skill: every seed
measures the base alone and told the answer. Walls, warm start and step size were chosen on seeds 1 to 3.
Small: `rolecraft systems run skill-sd`; `--study smollm2` is a smoke run in which a language model with its skills in
the prompt is its own teacher. The paper's size is not offered: it needs GPUs, AppWorld, and a served model as
`ModelWriter`; the call is `SkillTeacher`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row
from rolecraft.systems.learning._skill_sd_smoke import SMOLLM2

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning import SkillTeacher
    from rolecraft.learning.credit import Stage
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.learning.trainer import Start, Trainer
    from rolecraft.systems.learning._skill_door import CellDoor
    from rolecraft.worlds import KeyDoorMap

SYSTEM = System(
    number=35,
    name="skill-sd",
    title="Skill-SD: Skill-Conditioned Self-Distillation for Multi-turn LLM Agents",
    arxiv="2604.10674",
    family="learning",
    claim="distilling from oneself with skills of one's own episodes in the prompt, by an importance-weighted reverse "
    "KL beside GRPO, learns more per episode than GRPO, and distillation without the reward learns least",
    published="AppWorld / Sokoban: +14.0 / +10.9 points over GRPO, +42.1 / +40.6 over on-policy distillation alone",
)


WARM_ENDS = 3


@dataclass(frozen=True)
class Arm:
    """How one arm learns."""

    loss: Literal["none", "is_k3", "naive_k3", "opd"] = "is_k3"
    """Toward the teacher; `opd` takes the reward away."""
    strong: bool = True
    """With the larger lambda."""
    frozen: bool = False
    """The teacher keeps the weights of the start."""
    fixed: bool = False
    """It is shown one shortest way of the task from the start on, and no skill of an episode."""
    shuffled: bool = False
    """It is shown the skills of another task."""


ARMS: Mapping[str, Arm] = {
    "grpo": Arm("none"),
    "opd": Arm("opd"),
    "naive-weak": Arm("naive_k3", strong=False),
    "naive": Arm("naive_k3"),
    "skill-sd-weak": Arm(strong=False),
    "skill-sd": Arm(),
    "frozen": Arm(frozen=True),
    "fixed": Arm(fixed=True),
    "shuffled": Arm(shuffled=True),
}


@dataclass(frozen=True)
class Config(StudyConfig):
    """One base model; each seed draws its own tasks."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = tuple(range(10, 15))
    tasks: int = 12
    """Maps of training. Dossier: 12 or 24."""
    size: int = 4
    """Rows and columns of a map."""
    walls: int = 4
    """Unseen until the walker bumps: what only a skill can tell. With 2, one strategy serves all maps."""
    shortest: int = 6
    """Fewest moves that a map needs."""
    horizon: int = 15
    group: int = 8
    """G, episodes of a task in an iteration."""
    groups: int = 4
    """Tasks in an iteration."""
    updates: int = 60
    lr: float = 3e-3
    weak: float = 0.001
    """Lambda of the paper."""
    strong: float = 0.1
    """Lambda at this token scale."""
    cap: int = 8
    """Most skills of a task."""
    c: float = 1.0
    """Of the bandit."""
    layers: int = 2
    hidden: int = 64
    tests: int = 16
    """Episodes per task at the end."""
    lessons: int = 25000
    """Decisions of the warm start."""
    lesson_maps: int = 2000
    warm_steps: int = 1500
    """At the full rate."""
    warm_end: int = 250
    """Steps after that, at each of a half, a quarter and an eighth of it; without them the base hardly follows."""
    warm_lr: float = 3e-3

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare or to shuffle."""
        least = min(self.groups, self.updates, self.tests, self.warm_steps, self.warm_end)
        if min(self.tasks, self.group) < 2 or least < 1:
            raise UserError(
                "expected tasks and group of at least 2, groups, updates, tests, warm_steps and warm_end of at least "
                f"1, got {self.tasks}, {self.group}, {self.groups}, {self.updates}, {self.tests}, {self.warm_steps} "
                f"and {self.warm_end}."
            )
        if not 0 < self.weak <= self.strong:
            raise UserError(f"expected 0 < weak <= strong, got {self.weak} and {self.strong}.")


def run(config: Config, store: RunStore) -> Result:
    """Train every arm from the same base, once per seed."""
    base = None
    for name, seed in missing_rows(store, ARMS, config.seeds):
        base = base or warm_start(config)
        before = ceiling(config, seed, base) if name == "grpo" else {}
        put_row(store, name, seed, **before, **learn(config, ARMS[name], seed, base))
    return Result.read(store)


def new_policy(config: Config) -> TokenPolicy:
    """Return an untrained policy."""
    from rolecraft.learning.policy import tiny_policy
    from rolecraft.systems.learning._skill_door import make_codec

    seed = derive_seed("skill-sd", "weights")
    codec = make_codec(config.size)
    return tiny_policy(codec, layers=config.layers, hidden=config.hidden, context=128, seed=seed, max_tokens=1)


def make_maps(config: Config, seed: int) -> list[KeyDoorMap]:
    """Return the tasks of a seed."""
    from rolecraft.systems.learning._skill_door import draw_maps

    return draw_maps(config.tasks, config.size, config.walls, config.shortest, derive_seed("skill-sd", seed, "tasks"))


def warm_start(config: Config) -> TokenPolicy:
    """Return the base: it follows skills about maps that no seed trains on."""
    from rolecraft.learning import fit_replies
    from rolecraft.systems.learning._skill_door import draw_lessons, draw_maps, lesson_rows

    trained = {each for seed in config.seeds for each in make_maps(config, seed)}
    drawn = draw_maps(config.lesson_maps, config.size, config.walls, config.shortest, derive_seed("skill-sd", "warm"))
    others = [each for each in drawn if each not in trained]
    policy = new_policy(config)
    lessons = draw_lessons(others, config.lessons, config.size, 0)
    rows = lesson_rows(policy, lessons, make_world(config, others).actions)
    for stage, steps in enumerate((config.warm_steps, *[config.warm_end] * WARM_ENDS)):
        rate, order = config.warm_lr / 2**stage, derive_seed("skill-sd", "order", stage)
        fit_replies(policy, rows, steps=steps, lr=rate, seed=order)
    return policy


def make_world(config: Config, maps: list[KeyDoorMap]) -> CellDoor:
    """Return the world of some maps."""
    from rolecraft.systems.learning._skill_door import CellDoor

    return CellDoor(config.size, config.walls, config.horizon, maps=[each.rows for each in maps])


def make_rule(config: Config, arm: Arm) -> list[Stage]:
    """Return an arm's credit rule."""
    from rolecraft.learning.credit import opd, skill_sd

    if arm.loss == "opd":
        return opd(unit="traj")
    weight = 0.0 if arm.loss == "none" else config.strong if arm.strong else config.weak
    return skill_sd(unit="traj", weight=weight, weighted=arm.loss == "is_k3")


def make_learner(config: Config, arm: Arm, seed: int, base: TokenPolicy) -> tuple[Trainer, SkillTeacher]:
    """Return a trainer of a copy of the base, and the teacher that it asks; without a loss it only watches."""
    from rolecraft.agents import SkillBank
    from rolecraft.learning import RuleWriter, SkillTeacher
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
    from rolecraft.systems.learning._skill_door import answer, render, situation

    maps = make_maps(config, seed)
    policy = new_policy(config)
    policy.load(base.parameters())
    train = TrainConfig(
        iterations=config.updates,
        episodes=config.group * config.groups,
        group=config.group,
        lr=config.lr,
        monitor=MonitorConfig(action="off"),
    )
    trainer = Trainer(
        lambda: make_world(config, maps),
        policy,
        make_rule(config, arm),
        train,
        seed=derive_seed("skill-sd", seed, "train"),
    )
    bank = SkillBank(config.cap, c=config.c)
    if arm.fixed:
        for number, each in enumerate(maps):
            bank.add(str(number), answer(each))
    order = np.random.default_rng(derive_seed("skill-sd", seed, "shuffle")).permutation(config.tasks)
    others = {str(one): str(other) for one, other in zip(order, np.roll(order, 1), strict=True)}
    teacher = SkillTeacher(
        policy,
        bank,
        None if arm.fixed else RuleWriter(situation, longest=config.horizon),
        lambda start: str(start.seed % config.tasks),
        told=others if arm.shuffled else None,
        frozen=arm.frozen,
        render=render,
        seed=derive_seed("skill-sd", seed, "bandit"),
    )
    teacher.bind(trainer)
    return trainer, teacher


def learn(config: Config, arm: Arm, seed: int, base: TokenPolicy) -> dict[str, Any]:
    """Train an arm, and return its figures.

    `auc` is the share of training episodes that succeeded, `final` that of episodes after training, all without a
    skill in sight; `gap` the KL(student || teacher) per token over the last quarter, `taught` the share of rows that
    had a teacher.
    """
    import warnings

    from rolecraft.learning.credit import NoSignalWarning

    trainer, teacher = make_learner(config, arm, seed, base)
    curve, gaps, taught, entropy = [], [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSignalWarning)  # groups without a success are expected at the start
        for _ in range(config.updates):
            step = teacher.step()
            curve.append(float(np.mean([each.rewards["walker"] for each in step.episodes])))
            gaps.append(teacher.figures["gap"])
            taught.append(teacher.figures["taught"])
            entropy.append(float(step.figures.get("entropy", np.nan)))
    last = max(1, config.updates // 4)
    return {
        "auc": float(np.mean(curve)),
        "final": final_success(config, trainer, seed),
        "gap": float(np.mean(gaps[-last:])),
        "taught": float(np.mean(taught)),
        "entropy": float(np.nanmean(entropy[-last:])) if np.isfinite(entropy[-last:]).any() else None,
        "skills": len(teacher.bank),
        "curve": [round(value, 4) for value in curve],
        "gaps": [round(value, 4) for value in gaps],
    }


def final_success(config: Config, trainer: Trainer, seed: int) -> float:
    """Return the share of successes over all tasks, each played equally often, by the student alone."""
    episodes = trainer.collect(final_starts(config, seed))
    return float(np.mean([episode.rewards["walker"] for episode in episodes]))


def final_starts(config: Config, seed: int) -> list[Start]:
    """Return starts of every task."""
    from rolecraft.learning.trainer import Start

    first = derive_seed("skill-sd", seed, "test")
    first -= first % config.tasks  # so that `first + number` is the task `number`
    return [
        Start(0, number, first + number, sample) for number in range(config.tasks) for sample in range(config.tests)
    ]


def ceiling(config: Config, seed: int, base: TokenPolicy) -> dict[str, float]:
    """Return how often the base succeeds `alone`, and `told` a shortest way: whether there is anything to distil."""
    from rolecraft.systems.learning._skill_door import Told, answer, render

    trainer, _ = make_learner(config, ARMS["grpo"], seed, base)
    alone = final_success(config, trainer, seed)
    texts = [render(answer(each)) for each in make_maps(config, seed)]
    trainer.opponents = lambda start: {"walker": Told(base, texts[start.seed % config.tasks])}
    return {"alone": alone, "told": final_success(config, trainer, seed)}


def verdict(result: Result) -> Verdict:
    """Demand more area than GRPO and least for distillation alone; skills of other tasks must not do it."""
    gain = result.difference("auc", "skill-sd", "grpo")
    control = result.difference("auc", "shuffled", "grpo")
    behind = result.difference("auc", "grpo", "opd")
    area = {arm: result.mean("auc", arm).estimate for arm in result.arms}
    lowest = area["opd"] == min(value for arm, value in area.items() if arm != "shuffled")
    parts = {
        "more area than GRPO": gain.low > 0,
        "distillation alone is lowest, and below GRPO": lowest and behind.low > 0,
        "skills of other tasks do not help": not control.low > 0,
    }
    told = "; ".join(f"{'yes' if held else 'no'}: {part}" for part, held in parts.items())
    figures = ", ".join(
        f"{arm} {area[arm]:.3f} / {result.mean('final', arm).estimate:.3f} / {result.mean('gap', arm).estimate:.3f}"
        for arm in result.arms
    )
    able = " / ".join(str(result.mean(name, "grpo")) for name in ("alone", "told") if name in result.metrics)
    return Verdict.when(
        reproduced=all(parts.values()),
        inconclusive=gain.low <= 0 < gain.high,
        effect=gain,
        control=control,
        note=f"share of successful training episodes, Skill-SD less GRPO. {told}. GRPO less distillation alone "
        f"{behind}; with the paper's lambda less GRPO {result.difference('auc', 'skill-sd-weak', 'grpo')}; less the "
        f"same without importance weights {result.difference('auc', 'skill-sd', 'naive')}; area / final success / KL "
        f"to the teacher: {figures}; success of the base alone / told a shortest way: {able}; "
        "control: skills of other tasks",
    )


STUDIES = {"key-door": (Config, run, verdict), "smollm2": SMOLLM2}

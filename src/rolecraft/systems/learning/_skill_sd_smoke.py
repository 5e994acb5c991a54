"""Skill-SD on a language model: the teacher is the student of now with a skill of its own episodes in its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.systems._base import Result, Study, Verdict
from rolecraft.systems.learning._language_smoke import (
    Base,
    Log,
    average,
    contrast,
    decide,
    figures_of,
    health,
    held,
    part,
    run_arms,
)
from rolecraft.systems.learning._language_step import Floats, Taught, take_step
from rolecraft.systems.learning._room_smoke import RoomSmoke, load_rooms, make_trainer, room_of, take

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.agents import SkillBank
    from rolecraft.learning import SkillTeacher
    from rolecraft.learning.credit import Stage
    from rolecraft.learning.trainer import Rows, Start, Trainer
    from rolecraft.worlds import Episode


@dataclass(frozen=True)
class SmokeConfig(RoomSmoke):
    """A language model walks through small rooms, and is taught by itself with a skill in its prompt."""

    NO_FULL = (
        "the paper trains Qwen3-4B on AppWorld and Sokoban on GPUs, with skills by Seed1.8, and reports 14.0 and 10.9 "
        "points over GRPO; those benchmarks and the summariser are not here; the call is SkillTeacher, with a served "
        "model as ModelWriter"
    )
    KNOWN: ClassVar[tuple[str, ...]] = ("grpo", "skill-sd", "shuffled", "naive", "opd")
    NEEDED: ClassVar[tuple[str, ...]] = ("grpo", "skill-sd", "shuffled")
    arms: tuple[str, ...] = ("grpo", "skill-sd", "shuffled")
    """GRPO, whose teacher only watches; Skill-SD; its control, taught by skills of another room. `naive` takes the
    plain k3 and `opd` no reward."""
    model: str = "local:smollm2"
    """Paper: Qwen3-4B; skills by Seed1.8, here by a rule."""
    horizon: int = 5
    """Replies of an episode. Dossier: 15."""
    group: int = 4
    """G, episodes of a task. Dossier: 8."""
    weight: float = 1.0
    """Lambda, large enough for one update to show. Paper: 0.001, over a whole training."""
    cap: int = 8
    """Most skills of a task. Paper: not known."""
    c: float = 1.0
    """Of the bandit. Paper: not known."""
    scouts: int = 4
    """Episodes per room before the first update, from which the first skills are written. Paper: none, so that the
    first update goes without a teacher."""


def make_rule(config: SmokeConfig, arm: str) -> list[Stage]:
    """Return an arm's stages."""
    from rolecraft.learning.credit import opd, skill_sd

    if arm == "opd":
        return opd(unit="traj")
    return skill_sd(unit="traj", weight=0.0 if arm == "grpo" else config.weight, weighted=arm != "naive")


def make_teacher(
    config: SmokeConfig, base: Base, bank: SkillBank, seed: int, *, write: bool = True, shuffled: bool = False
) -> SkillTeacher:
    """Return a teacher with a bank; one that does not write only chooses."""
    from rolecraft.learning import RuleWriter, SkillTeacher
    from rolecraft.systems.learning._spoken_door import FOR_KEY, render, situation

    rooms = [str(number) for number in range(config.rooms)]
    return SkillTeacher(
        base.policy, bank, RuleWriter(situation, longest=config.horizon, above=FOR_KEY) if write else None,
        lambda start: str(room_of(config, start)), render=render, seed=derive_seed("skill-sd", seed, "bandit"),
        told=dict(zip(rooms, rooms[1:] + rooms[:1], strict=True)) if shuffled else None,
    )  # fmt: skip


def scout(config: SmokeConfig, trainer: Trainer, teacher: SkillTeacher, seed: int) -> None:
    """Fill the bank from episodes of every room, which nothing is learnt from otherwise."""
    from rolecraft.learning.trainer import Start

    first = derive_seed("skill-sd", seed, "scouts") // config.rooms * config.rooms
    starts = [Start(0, room, first + room, n) for room in range(config.rooms) for n in range(config.scouts)]
    teacher.learn(trainer.collect(starts), [str(room_of(config, start)) for start in starts])


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    from rolecraft.agents import SkillBank

    trainer, log = make_trainer(config, "skill-sd", base, make_rule(config, arm), seed), Log()
    teacher = make_teacher(config, base, SkillBank(config.cap, c=config.c), seed, shuffled=arm == "shuffled")
    teacher.bind(trainer)
    scout(config, trainer, teacher, seed)
    for update in range(config.updates):
        reference = Reference(config, base, deepcopy(teacher.bank), trainer.starts(), update, seed)
        taught = take_step(trainer, reference)
        take(log, update, taught)
        figures = {"rho": 1.0, **{key.rsplit("/", 1)[1].replace("_max", ""): v for key, v in taught.figures.items()
                                  if key.endswith(("rho_max", "clamp_share"))}}  # fmt: skip
        log.curve(taught=teacher.figures["taught"], gap=teacher.figures["gap"], skills=len(teacher.bank), **figures)
        for traj, value in taught.by_episode(closer(taught, reference.logp), reference.known).items():
            log.unit(f"{update}/{traj}", closer=value)
        for traj, value in taught.by_episode(distance(taught, reference.logp), reference.known).items():
            log.unit(f"{update}/{traj}", distance=value)
        teacher.learn(taught.episodes, [str(room_of(config, start)) for start in reference.starts])
    log.finish(trainer, config.evaluated, seed)
    return log


class Reference:
    """What every arm is measured by: the teacher with the skills of the room itself, before the step."""

    def __init__(
        self, config: SmokeConfig, base: Base, bank: SkillBank, starts: Sequence[Start], update: int, seed: int
    ) -> None:
        self.starts = starts
        self._teacher, self._update = make_teacher(config, base, bank, seed, write=False), update
        self._tasks = [str(room_of(config, start)) for start in starts]

    def __call__(self, rows: Rows, episodes: Sequence[Episode]) -> Rows:
        """Score the rows, and return them as they are."""
        from rolecraft.learning import teacher_columns

        told: Mapping[int, str] = self._teacher.choose(rows, self._tasks, self._update)
        texts = [told.get(int(traj)) for traj in rows.batch.keys["traj"]]
        logp = teacher_columns(self._teacher.policy, rows, texts).logp
        self.known: NDArray[np.bool_] = np.asarray(np.isfinite(logp).all(1))
        self.logp = np.where(np.isfinite(logp), logp, 0.0)
        return rows


def distance(taught: Taught, teacher: Floats, shift: Any = 0.0) -> Floats:
    """Return the k3 estimate of KL(student || teacher) per token of each row, shape (N,)."""
    batch = taught.rows.batch
    gap = teacher - (batch.token["logp_old"] + shift)
    mean: Floats = ((np.expm1(gap) - gap) * batch.mask).sum(1) / np.maximum(batch.mask.sum(1), 1)
    return mean


def closer(taught: Taught, teacher: Floats) -> Floats:
    """Return by how much the step brought each row's tokens nearer to the teacher, shape (N,)."""
    return distance(taught, teacher) - distance(taught, teacher, taught.shift)


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapter."""
    return run_arms(config, store, lambda config, seed: load_rooms(config, "skill-sd", seed), play)


def verdict(result: Result) -> Verdict:
    """Demand that the first update brings the student nearer to its skilled self, and skills of other rooms do not.

    In the first update all arms have played the same episodes and have the same skills to choose from.
    """
    first = part(result, "0")
    effect, control = (contrast(first, "closer", arm, "grpo") for arm in ("skill-sd", "shuffled"))
    rows = [row for row in result.rows if row.get("unit") is None and row["arm"] == "skill-sd"]
    claims = {
        **health(result, "skill-sd"),
        "episodes have a teacher": all(row["taught"] > 0 for row in rows),
        "a skill in the prompt changes what the model finds likely": held(average(first, "distance", "skill-sd")),
        "the student came nearer to its teacher than under GRPO": held(effect),
        "nearer than with skills of another room": held(contrast(first, "closer", "skill-sd", "shuffled")),
    }
    return decide(
        claims, effect, control, contrast(part(result, "final"), "reward", "skill-sd", "grpo"),
        "fall of KL(student || teacher) per token in the first update, Skill-SD less GRPO; control: taught by skills "
        "of another room; of Skill-SD: "
        + figures_of(result, "skill-sd", "gap", "taught", "skills", "rho", "format", "dead", "entropy", "followed"),
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)

"""ADRS on a language model: the teacher is the same model with the way through the room in its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

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
from rolecraft.systems.learning._language_step import Floats, Taught, products, take_step
from rolecraft.systems.learning._room_smoke import RoomSmoke, load_rooms, make_rooms, make_trainer, room_of, take

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.learning.trainer import Rows, Trainer

ARMS = ("grpo", "adrs/good", "adrs/bad", "unclipped/bad")


@dataclass(frozen=True)
class SmokeConfig(RoomSmoke):
    """A language model walks through small rooms, rescored by itself with the way in its prompt."""

    NO_FULL = (
        "the paper trains Qwen2.5-3B-Instruct on ALFWorld for 150 updates on 8 GPUs and reports 94.5% solved, "
        "GRPO 66.4%; ALFWorld and the bank of skills that its teacher reads are not here; the rules are "
        "make_rule('adrs') with Trainer(columns=...) for the teacher's scores"
    )
    KNOWN: ClassVar[tuple[str, ...]] = (*ARMS, "ungated/good", "ungated/bad", "unclipped/good")
    NEEDED: ClassVar[tuple[str, ...]] = ARMS
    arms: tuple[str, ...] = ARMS
    """A rule and the teacher's quality: the bad one is shown the opposite of every move."""
    model: str = "local:smollm2"
    """Paper: Qwen2.5-3B and 7B-Instruct, Qwen3-1.7B."""
    updates: int = 2
    """Paper: 150, of which 50 with the teacher, after 20 without; here the teacher speaks from the first on."""
    horizon: int = 5
    """Paper: 50."""
    group: int = 4
    """Paper: 8."""
    lr: float = 5e-4
    """Of the adapter. Paper: 1e-6, of all weights."""
    eta: float = 0.1
    """Paper: 0.02 or 0.1."""
    clip: float = 0.2
    """Paper: 0.2."""
    distil: float = 1.0
    """Weight of the unclipped loss: the policy gradient's own."""
    skill_sd: float = 0.1
    """Of a rule that is not an arm here."""


OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}


class WayTeacher:
    """Scores the student's tokens by the student of now, told the shortest way through the room, or its opposite."""

    def __init__(self, config: SmokeConfig, policy: TokenPolicy, quality: str, seed: int) -> None:
        from rolecraft.systems.learning._spoken_door import render, shortest_way

        ways = [render(shortest_way(room)) for room in make_rooms(config, "adrs", seed)[0]]
        self.texts = ways if quality == "good" else [_opposite(way) for way in ways]
        self.trainer: Trainer | None = None
        self._config, self._policy = config, policy

    def __call__(self, rows: Rows) -> Mapping[str, Any]:
        """Return the column `logp_teacher`."""
        from rolecraft.learning import teacher_columns

        assert self.trainer is not None
        told = [self.texts[room_of(self._config, start)] for start in self.trainer.starts()]
        texts = [told[int(traj)] for traj in rows.batch.keys["traj"]]
        return {"logp_teacher": teacher_columns(self._policy, rows, texts, micro=self._config.micro).logp}


def _opposite(way: str) -> str:
    return " ".join(
        OPPOSITE[word.strip(".")] + "." * word.endswith(".") if word.strip(".") in OPPOSITE else word
        for word in way.split()
    )


def play(config: SmokeConfig, base: Base, arm: str, seed: int) -> Log:
    """Train an arm, and return its log."""
    from rolecraft.systems.learning.adrs import rule_of

    rule, _, quality = arm.partition("/")
    teacher = WayTeacher(config, base.policy, quality, seed) if quality else None
    trainer = make_trainer(config, "adrs", base, rule_of(rule, config), seed, columns=teacher)
    if teacher:
        teacher.trainer = trainer
    log = Log()
    for update in range(config.updates):
        taught = take_step(trainer)
        take(log, update, taught)
        outcome, say = outcome_advantage(taught), teachers_say(taught, rule)
        log.curve(
            gate=taught.credit.info.get("tva_gate/gate", 0.5), largest=say.max(initial=0.0),
            step_sum=taught.credit.info.get("teacher_center/step_sum", 0.0),
        )  # fmt: skip
        for metric, values in (("kept", products(outcome, taught.pushed)), ("say", say.max(1))):
            for traj, value in taught.by_episode(values).items():
                log.unit(f"{update}/{traj}", **{metric: value})
        for traj, value in liked(taught).items():
            log.unit(f"{update}/{traj}", liked=value)
    log.finish(trainer, config.evaluated, seed)
    return log


def outcome_advantage(taught: Taught) -> Floats:
    """Return GRPO's advantage of each row, shape (N,)."""
    from rolecraft.learning.credit import group_advantage

    batch = taught.rows.batch
    return group_advantage(batch.row["outcome"], batch.keys["task"])[0]


def teachers_say(taught: Taught, rule: str) -> Floats:
    """Return the size of what the teacher adds to the weight of each token, shape (N, T).

    A loss toward the teacher on sampled tokens is a policy gradient whose advantage is teacher less student.
    """
    batch = taught.rows.batch
    if rule == "grpo":
        return np.zeros(batch.shape)
    if rule == "unclipped":
        return np.abs(batch.token["logp_teacher"] - batch.token["logp_old"]) * batch.mask
    return np.abs(taught.credit.advantages - outcome_advantage(taught)[:, None]) * batch.mask


def liked(taught: Taught) -> dict[int, float]:
    """Return, by episode, how much more likely than the student the teacher finds replies that came nearer."""
    from rolecraft.learning import SEGMENT_ROLES
    from rolecraft.systems.learning._spoken_door import judge_rows

    batch = taught.rows.batch
    if "logp_teacher" not in batch.token:
        return {}
    gap = ((batch.token["logp_teacher"] - batch.token["logp_old"]) * batch.mask).sum(1)
    return taught.by_episode(gap, judge_rows(taught.rows, taught.episodes) == SEGMENT_ROLES.index("D"))


def run(config: SmokeConfig, store: RunStore) -> Result:
    """Train every arm from the same adapter."""
    return run_arms(config, store, lambda config, seed: load_rooms(config, "adrs", seed), play)


def verdict(result: Result) -> Verdict:
    """Demand that the term stays within its clip where the unclipped one does not, and that the outcome is kept.

    In the first update all arms have played the same episodes, so that only the credit differs.
    """
    first, final = part(result, "0"), part(result, "final")
    rows = [row for row in result.rows if row.get("unit") is None and row["arm"].startswith("adrs/")]
    effect = contrast(first, "say", "unclipped/bad", "adrs/bad")
    claims = {
        **health(result, "adrs/good"),
        "the good teacher likes replies that came nearer more than the bad one does": held(
            contrast(first, "liked", "adrs/good", "adrs/bad")
        ),
        "the teacher speaks": held(average(first, "say", "adrs/good")),
        "its sums over steps are 0": max(row["step_sum"] for row in rows) < 1e-6,
        "the unclipped loss gives a bad teacher more say": held(effect),
        "under a bad teacher replies still move with the outcome": held(average(first, "kept", "adrs/bad")),
    }
    return decide(
        claims, effect, contrast(first, "say", "adrs/bad", "adrs/good"),
        contrast(final, "reward", "adrs/good", "grpo"),
        "largest weight that the bad teacher puts on a token of a reply in the first update, unclipped less ADRS; "
        "control: the bad teacher less the good one, both under ADRS; correlation of the outcome with the move of the "
        f"replies, less GRPO's: ADRS with the bad teacher {contrast(first, 'kept', 'adrs/bad', 'grpo')}, unclipped "
        f"{contrast(first, 'kept', 'unclipped/bad', 'grpo')}; of ADRS with the good teacher: "
        + figures_of(result, "adrs/good", "say", "largest", "gate", "format", "dead", "entropy", "followed")
        + f"; reward with the bad teacher {contrast(final, 'reward', 'adrs/bad', 'grpo')}",
    )  # fmt: skip


SMOLLM2 = Study(SmokeConfig, run, verdict)

"""The rules with a teacher, each a function of its options that returns the stages."""

from __future__ import annotations

from collections.abc import Sequence

from rolecraft.learning.credit._batch import Stage
from rolecraft.learning.credit._groups import Group, Unit
from rolecraft.learning.credit._teacher import Baseline, SignalScale
from rolecraft.learning.credit._teacher_losses import IsK3, NaiveK3, Opd, Sdar
from rolecraft.learning.credit._teacher_stages import (
    AddToken,
    Level,
    MultiplyToken,
    Schedule,
    TeacherCenter,
    TvaGate,
    WhitenSignal,
)


def adrs(
    *,
    keys: Sequence[str] = ("task",),
    unit: Unit = "row",
    level: Level | None = "auto",
    gate_after_whiten: bool = True,
    scale: SignalScale = "per_seq",
    baseline: Baseline = "step",
    tau: float = 2.0,
    temperature: float = 1.0,
    gate_norm: bool = True,
    eta: float = 0.1,
    clip: float | None = 0.2,
    sign: int = 1,
    adaptive: bool = False,
    neg_reset: bool = False,
    warmup: int = 20,
    active: int | None = 50,
    success_decay: float | None = None,
) -> list[Stage]:
    """Return ADRS (arXiv 2608.03223): group advantage plus a centred, gated and clipped teacher's term.

    Args:
        keys: What the rows of one prompt share.
        unit: Whether each row is an entry of a group's statistics, or each trajectory.
        level: Of the gate; None leaves the gate out.
        gate_after_whiten: Gate after the signal is whitened in its prompt group. False is the order of the published
            code, in which a gate of one number per group cancels, so that it does nothing at level `L2`.
        scale: See `TeacherCenter`.
        baseline: See `TeacherCenter`.
        tau: See `TvaGate`.
        temperature: See `TvaGate`.
        gate_norm: See `TvaGate`.
        eta: See `AddToken`.
        clip: See `AddToken`.
        sign: See `AddToken`.
        adaptive: See `AddToken`.
        neg_reset: See `AddToken`.
        warmup: Updates without the teacher at the start.
        active: Updates with it after that; None: to the end.
        success_decay: See `Schedule`.
    """
    whiten: list[Stage] = [WhitenSignal(keys)]
    gate: list[Stage] = []
    if level is not None:
        gate = [TvaGate(level, tau, temperature, gate_norm, keys, unit=unit)]
    schedule = Schedule(warmup, active, success_decay=success_decay)
    return [
        Group(keys, unit=unit),
        TeacherCenter(scale, baseline),
        *(whiten + gate if gate_after_whiten else gate + whiten),
        AddToken(eta, clip, sign, adaptive, neg_reset, keys, unit=unit, schedule=schedule),
    ]


def rlsd(
    *, keys: Sequence[str] = ("task",), unit: Unit = "row", strength: float = 0.5, clip: float = 0.2
) -> list[Stage]:
    """Return RLSD: group advantage, each token's multiplied by how the teacher moves its probability."""
    return [Group(keys, unit=unit), MultiplyToken(strength, clip)]


def skill_sd(
    *,
    keys: Sequence[str] = ("task",),
    unit: Unit = "row",
    weight: float = 0.001,
    anneal: int | None = None,
    weighted: bool = True,
) -> list[Stage]:
    """Return Skill-SD (arXiv 2604.10674): group advantage, and beside it the reverse KL to the teacher.

    Args:
        keys: What the rows of one prompt share.
        unit: Whether each row is an entry of a group's statistics, or each trajectory.
        weight: Of the loss; the paper's belongs to the token scale of a 7B model.
        anneal: Let the weight fall to 0 over so many updates.
        weighted: With importance weights; without them the gradient is that of the forward KL.
    """
    loss = IsK3 if weighted else NaiveK3
    return [Group(keys, unit=unit), loss(weight, schedule=Schedule(anneal=anneal))]


def sdar(*, keys: Sequence[str] = ("task",), unit: Unit = "row", weight: float = 0.01) -> list[Stage]:
    """Return SDAR: group advantage, and beside it a gated likelihood of the sampled tokens."""
    return [Group(keys, unit=unit), Sdar(weight)]


def opd(
    *, keys: Sequence[str] = ("task",), unit: Unit = "row", weight: float = 1.0, reward: bool = False
) -> list[Stage]:
    """Return on-policy distillation; with `reward` it is added to the group advantage, without any bound."""
    return [Group(keys, unit=unit), Opd(weight, reward=reward)]

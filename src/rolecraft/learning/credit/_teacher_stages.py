"""The teacher as stages of a credit rule: centre, whiten, gate, then add to the advantage or multiply it.

The batch holds the teacher's log-probabilities as the token column `logp_teacher`. A row without a teacher (its task
has no skill yet) has 0 in the row column `has_teacher`: it keeps its advantage, and is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rolecraft.errors import UserError
from rolecraft.learning.credit._batch import Bools, Carry, CreditBatch, Floats, Ints, apply_to_rows
from rolecraft.learning.credit._groups import Unit, group_stats
from rolecraft.learning.credit._teacher import (
    Baseline,
    SignalScale,
    _counted,
    alignment,
    bounded_term,
    multiplied_advantage,
    refuse_log_probs,
    teacher_gate,
    teacher_signal,
    teacher_value_advantage,
    whiten_signal,
)

Level = Literal["auto", "L1", "L2", "L3"]


def taught_tokens(batch: CreditBatch, carry: Carry) -> Bools:
    """Return the tokens, of shape (N, T), of the rows that are kept and have a teacher.

    Where not all have one, `has_teacher` says which: a row column, or a token column, which a trainer can be given.
    """
    rows = carry.keep
    if "has_teacher" in batch.row:
        rows = rows & (batch.row["has_teacher"] > 0)
    taught = batch.mask if rows.all() else batch.mask & rows[:, None]
    return taught & (batch.token["has_teacher"] > 0) if "has_teacher" in batch.token else taught


@dataclass(frozen=True)
class Schedule:
    """When, and how strongly, a teacher speaks over the updates of a run."""

    warmup: int = 0
    """Updates at the start without a teacher. ADRS: 20."""
    active: int | None = None
    """Updates with one after that, then none again; None: to the end. ADRS: 50."""
    anneal: int | None = None
    """Let the strength fall in a line to 0 over so many updates. Skill-SD's option."""
    success_decay: float | None = None
    """Scale the strength by a running mean, with this decay, of the share of trajectories whose reward is above 0; it
    is read before it takes in the batch, and starts at the first batch's share."""

    def __post_init__(self) -> None:
        for name in ("warmup", "active", "anneal"):
            value = getattr(self, name)
            if value is not None and (value < 0 or (name == "anneal" and value < 1)):
                raise UserError(f"schedule: {name} is a number of updates, 0 or more (anneal: 1 or more), got {value}.")
        if self.success_decay is not None and not 0 <= self.success_decay < 1:
            raise UserError(f"schedule: success_decay must lie in [0, 1), got {self.success_decay}.")

    def read(self, state: Mapping[str, Any], batch: CreditBatch, carry: Carry) -> tuple[float, dict[str, Any]]:
        """Return the factor of this update, and the state after it."""
        update = int(state.get("update", 0))
        last = np.inf if self.active is None else self.warmup + self.active
        factor = 1.0 if self.warmup <= update < last else 0.0
        if self.anneal is not None:
            factor *= max(0.0, 1 - update / self.anneal)
        after: dict[str, Any] = {"update": update + 1}
        if self.success_decay is not None:
            share = _success(batch, carry)
            running = float(state.get("success", share))
            factor *= running
            after["success"] = self.success_decay * running + (1 - self.success_decay) * share
        return factor, after


ALWAYS = Schedule()


def _success(batch: CreditBatch, carry: Carry) -> float:
    """Return the share of trajectories (rows, where there are none) whose rewards are above 0 on average."""
    kept = carry.keep
    if not kept.any():
        return 0.0
    if "traj" not in batch.keys:
        return float((carry.reward[kept] > 0).mean())
    index, count = batch.group_index(("traj",), "schedule")
    rows, sums = np.bincount(index, kept, count), np.bincount(index, carry.reward * kept, count)
    return float((sums[rows > 0] > 0).mean())


@dataclass(frozen=True)
class TeacherCenter:
    """Make the teacher's signal: log-probabilities, centred in each step and scaled (see `teacher_signal`)."""

    scale: SignalScale = "per_seq"
    baseline: Baseline = "step"
    eps: float = 1e-8

    name = "teacher_center"

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the signal; the token column `step_id` is used where there is one.

        Raises:
            UserError: If the batch lacks `logp_teacher`, or a number in it is no log-probability.
        """
        taught = taught_tokens(batch, carry)
        signal, info = teacher_signal(
            batch.tokens("logp_teacher", self.name),
            taught,
            batch.token.get("step_id"),
            scale=self.scale,
            baseline=self.baseline,
            eps=self.eps,
            counts=batch.counts(taught),
        )
        info["rows_without_teacher"] = int(carry.keep.sum() - _rows(batch, taught).sum())
        return replace(carry, signal=signal).note(**_named(self.name, info))


@dataclass(frozen=True)
class WhitenSignal:
    """Whiten the teacher's signal within groups of rows (see `whiten_signal`).

    ADRS gates after it. Before it, a gate that is one number per group cancels.
    """

    keys: Sequence[str] = ("task",)
    eps: float = 1e-8

    name = "whiten_signal"

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Replace the signal.

        Raises:
            UserError: If there is no signal yet, or the batch lacks a key.
        """
        groups, _ = batch.group_index(self.keys, self.name)
        taught = taught_tokens(batch, carry)
        signal = _signal(carry, self.name)
        signal = whiten_signal(signal, taught, groups, eps=self.eps, counts=batch.counts(taught))
        return replace(carry, signal=signal)


@dataclass(frozen=True)
class TvaGate:
    """Multiply the signal by a gate that opens where the teacher sides with what pays (see `teacher_gate`).

    `L3` compares steps from one state (key `anchor`) by their discounted return; `L2` completions of one prompt by
    their outcome; `L1` needs no group: each token's gate is how much better the teacher likes it than the reference
    does (column `logp_ref`), so that sums over steps are no longer 0. `auto` takes the first that the batch can give
    in the order L3, L2, L1, and a gate of 0.5 if it can give none.
    """

    level: Level = "auto"
    tau: float = 2.0
    temperature: float = 1.0
    gate_norm: bool = True
    keys: Sequence[str] = ("task",)
    """What rows of one prompt share."""
    anchor: str = "anchor"
    """The key of states, unique over tasks."""
    returns: str = "step_return"
    """The row column with each step's discounted return, for `L3`."""
    unit: Unit = "row"
    """What a completion of `L2` is: each row, or all rows of a trajectory (key `traj`) at once."""

    name = "tva_gate"

    def __post_init__(self) -> None:
        if self.level not in ("auto", "L1", "L2", "L3"):
            raise UserError(f"{self.name}: level is auto, L1, L2 or L3, got {self.level!r}.")
        if self.unit not in ("row", "traj"):
            raise UserError(f"{self.name}: unit is 'row' or 'traj', got {self.unit!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Gate the signal.

        Raises:
            UserError: If there is no signal yet, the batch lacks what the level needs, or two tasks share an anchor.
        """
        signal = _signal(carry, self.name)
        taught = taught_tokens(batch, carry)
        level = self._level(batch, taught)
        if level == "L1":
            value, known = self._token_values(batch, taught)
        elif level in ("L2", "L3"):
            value, known = self._group_values(batch, carry, taught, level)
        else:
            value, known = np.zeros(len(taught)), np.zeros(len(taught), dtype=bool)
        gate, info = teacher_gate(value, known, tau=self.tau, normalise=self.gate_norm)
        gated = signal.copy()
        if gate.ndim == 2:
            gated *= gate
        else:
            apply_to_rows(np.multiply, gated, gate)
        return replace(carry, signal=gated).note(**_named(self.name, {"level": level, **info}))

    def _level(self, batch: CreditBatch, taught: Bools) -> str:
        if self.level != "auto":
            return self.level
        rows = _rows(batch, taught)
        if self.anchor in batch.keys and self.returns in batch.row and _has_pairs(batch, (self.anchor,), rows):
            return "L3"
        if all(key in batch.keys for key in self.keys) and _has_pairs(batch, self.keys, rows):
            return "L2"
        return "L1" if "logp_ref" in batch.token else "none"

    def _group_values(self, batch: CreditBatch, carry: Carry, taught: Bools, level: str) -> tuple[Floats, Bools]:
        logp, rows, counts = batch.tokens("logp_teacher", self.name), _rows(batch, taught), batch.counts(taught)
        if level == "L3":
            groups, _ = batch.group_index((self.anchor,), self.name)
            _refuse_shared_anchors(groups, batch.group_index(self.keys, self.name)[0], batch, self)
            alpha = alignment(logp, taught, temperature=self.temperature, counts=counts)
            return teacher_value_advantage(alpha, batch.column(self.returns, self.name), groups, rows)
        groups, _ = batch.group_index(self.keys, self.name)
        if self.unit == "row":
            alpha = alignment(logp, taught, temperature=self.temperature, counts=counts)
            return teacher_value_advantage(alpha, carry.reward, groups, rows)
        return self._trajectory_values(batch, carry, taught, groups)

    def _trajectory_values(self, batch: CreditBatch, carry: Carry, taught: Bools, groups: Ints) -> tuple[Floats, Bools]:
        """Let each trajectory of a group count once."""
        rows = _rows(batch, taught)
        units, count = batch.group_index((*self.keys, "traj"), self.name)
        alpha = alignment(batch.tokens("logp_teacher", self.name), taught, units, temperature=self.temperature)
        first = np.zeros(count, dtype=np.int64)
        first[units[::-1]] = np.arange(len(units))[::-1]
        length = np.bincount(units, rows, count)
        reward = np.bincount(units, carry.reward * rows, count) / np.maximum(length, 1)
        value, known = teacher_value_advantage(alpha[first], reward, groups[first], length > 0)
        return value[units] * rows, known[units] & rows

    def _token_values(self, batch: CreditBatch, taught: Bools) -> tuple[Floats, Bools]:
        reference = refuse_log_probs("logp_ref", batch.tokens("logp_ref", self.name), taught)
        gap = (batch.tokens("logp_teacher", self.name) - reference) * taught
        count = max(int(taught.sum()), 1)
        mean = gap.sum() / count
        std = np.sqrt(max(float(np.vdot(gap, gap)) / count - mean * mean, 0.0))
        return gap / std if std > 1e-8 else gap, taught


@dataclass(frozen=True)
class AddToken:
    """Add the signal to each token's advantage, bounded (see `bounded_term`), and use it up."""

    eta: float = 0.1
    """Strength. ADRS: 0.02 (WebShop, Search), 0.1 (its best ALFWorld run)."""
    clip: float | None = 0.2
    """Largest size of the term. None leaves it unbounded, which collapses under a bad teacher."""
    sign: int = 1
    """-1 only as an ablation."""
    adaptive: bool = False
    """Scale the clip by min(1, std of the group / median std of the live groups)."""
    neg_reset: bool = False
    """Only rows with an advantage above 0 get the term."""
    keys: Sequence[str] = ("task",)
    """Groups whose outcomes do not differ, and groups of one, get nothing."""
    min_std: float = 1e-6
    unit: Unit = "row"
    """Whether each row is an entry of a group's standard deviation, or each trajectory."""
    schedule: Schedule = ALWAYS

    name = "add_token"

    def __post_init__(self) -> None:
        if not self.eta >= 0 or not (self.clip is None or self.clip >= 0) or not self.min_std >= 0:
            raise UserError(
                f"{self.name}: eta, clip and min_std are 0 or more, got {self.eta}, {self.clip} and {self.min_std}."
            )
        if self.sign not in (1, -1):
            raise UserError(f"{self.name}: sign is 1, or -1 as an ablation, got {self.sign!r}.")

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the tokens' advantages.

        Raises:
            UserError: If there is no signal, or the batch lacks a key.
        """
        signal = _signal(carry, self.name)
        groups, _ = batch.group_index(self.keys, self.name)
        stats = group_stats(batch, carry, self.keys, self.unit, self.name)
        alive = stats.std[stats.std >= self.min_std]
        factor, after = self.schedule.read(carry.state.get(self.name, {}), batch, carry)
        eta = self.sign * self.eta * factor
        term, live = bounded_term(
            signal,
            stats.std[groups],
            eta=eta,
            clip=self.clip,
            typical=float(np.median(alive)) if self.adaptive and len(alive) else None,
            min_spread=max(self.min_std, np.finfo(float).tiny),
        )
        if self.neg_reset:
            term *= (carry.advantage > 0)[:, None]
        tokens = max(float(batch.lengths[live].sum()), 1.0)
        size = np.abs(term)
        bounded = self.clip is not None and self.clip > 0 and not self.adaptive
        info = {
            "eta": eta,
            "clip_share": float(np.count_nonzero(size >= self.clip)) / tokens if bounded else 0.0,
            "skipped_rows": int((carry.keep & ~live).sum()),
            "term": float(size.sum()) / tokens,
        }
        if carry.token_advantage is None:
            apply_to_rows(np.add, term, carry.advantage)
        else:
            term += carry.token_advantage
        term *= batch.mask
        return replace(
            carry,
            token_advantage=term,
            signal=None,
            state={**carry.state, self.name: after},
        ).note(**_named(self.name, info))


@dataclass(frozen=True)
class MultiplyToken:
    """RLSD: multiply each token's advantage by how the teacher moves its probability (see `multiplied_advantage`)."""

    strength: float = 0.5
    clip: float = 0.2

    name = "multiply_token"

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1 or not 0 <= self.clip < 1:
            raise UserError(
                f"{self.name}: strength lies in [0, 1] and clip in [0, 1), got {self.strength} and {self.clip}."
            )

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Set the tokens' advantages, from the columns `logp_teacher` and `logp_old`.

        Raises:
            UserError: If the batch lacks one of them, or a number in them is no log-probability.
        """
        taught = taught_tokens(batch, carry)
        teacher, student = (
            refuse_log_probs(name, batch.tokens(name, self.name), taught) for name in ("logp_teacher", "logp_old")
        )
        base = carry.advantage[:, None] if carry.token_advantage is None else carry.token_advantage
        gap = (teacher - student) * taught
        advantage = multiplied_advantage(base, gap, strength=self.strength, clip=self.clip) * batch.mask
        outside = (gap < np.log1p(-self.clip)) | (gap > np.log1p(self.clip))
        info = {"outside_share": float(outside.sum()) / max(int(taught.sum()), 1)}
        return replace(carry, token_advantage=advantage).note(**_named(self.name, info))


def _rows(batch: CreditBatch, taught: Bools) -> Bools:
    there: Bools = batch.counts(taught) > 0
    return there


def _signal(carry: Carry, stage: str) -> Floats:
    if carry.signal is None:
        raise UserError(f"{stage}: there is no teacher's signal; put teacher_center before it, and add_token last.")
    return carry.signal


def _has_pairs(batch: CreditBatch, keys: Sequence[str], rows: Bools) -> bool:
    groups, count = batch.group_index(keys, TvaGate.name)
    return bool((_counted(groups, rows, count) > 1).any())


def _refuse_shared_anchors(anchors: Ints, tasks: Ints, batch: CreditBatch, gate: TvaGate) -> None:
    """Raise if a state's number stands for states of two tasks."""
    first = np.zeros(int(anchors.max(initial=-1)) + 1, dtype=np.int64)
    first[anchors[::-1]] = np.arange(len(anchors))[::-1]
    other = np.flatnonzero(tasks != tasks[first[anchors]])
    if len(other):
        row = int(other[0])
        raise UserError(
            f"{gate.name}: rows {int(first[anchors[row]])} and {row} have {gate.anchor} {batch.keys[gate.anchor][row]} "
            f"but belong to two tasks; number the states so that each {gate.anchor} belongs to one task."
        )


def _named(stage: str, info: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{stage}/{name}": value for name, value in info.items()}

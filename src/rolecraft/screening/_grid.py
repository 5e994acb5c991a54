"""The grid of a screen: which role answers which question under which arm, strength and seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, cast, get_args

from rolecraft.errors import GridError, did_you_mean

Arm = Literal["prompted", "baseline", "role", "axis", "random", "shuffled"]
Control = Literal["axis", "random", "shuffled"]
CONTROLS: tuple[Control, ...] = get_args(Control)


@dataclass(frozen=True)
class Cell:
    """One answer to be produced and scored."""

    role: str
    """Id of the role the answer is scored for."""
    arm: Arm
    """`prompted`: the reference, role by prompt; `baseline`: unsteered; `role`: its own direction; else a control."""
    strength: float
    """Multiple of the direction; 0 for `prompted` and `baseline`."""
    question: str
    """Id of the question."""
    seed: int

    @cached_property
    def key(self) -> str:
        """Identity of the scored cell."""
        return f"{self.role}/{self.arm}/{self.strength:g}/{self.question}/{self.seed}"

    @classmethod
    def parse(cls, key: str) -> Cell:
        """Return the cell whose key this is."""
        role, arm, strength, question, seed = key.split("/")
        return cls(role, cast("Arm", arm), float(strength), question, int(seed))

    @property
    def answer_key(self) -> str:
        """Identity of the answer: the baseline's answers do not depend on the role and are shared by all of them."""
        return self.key if self.arm != "baseline" else f"*/baseline/0/{self.question}/{self.seed}"


@dataclass(frozen=True)
class Grid:
    """Roles x arms x strengths x questions x seeds.

    Raises:
        GridError: If a part is empty, a strength is not finite, zero or given twice, or a control is unknown.
    """

    roles: tuple[str, ...]
    strengths: tuple[float, ...]
    controls: tuple[Control, ...]
    questions: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        for name in ("roles", "strengths", "questions", "seeds"):
            values = getattr(self, name)
            if not values:
                raise GridError(f"{name}: expected at least one, got none.")
            twice = {value for value in values if values.count(value) > 1}
            if twice:
                raise GridError(f"{name}: {min(twice)} is given more than once.")
        for strength in self.strengths:
            if not math.isfinite(strength) or strength == 0:
                raise GridError(
                    f"strengths: expected finite numbers other than 0 (the baseline is always run), got {strength}."
                )
        for control in self.controls:
            if control not in CONTROLS:
                raise GridError(
                    f"control: {control!r} is unknown (known: {', '.join(CONTROLS)}).{did_you_mean(control, CONTROLS)}"
                )
        if "shuffled" in self.controls and len(self.roles) < 2:
            raise GridError("control 'shuffled' steers with another role's direction and needs at least two roles.")

    def arms(self) -> Iterator[tuple[Arm, float]]:
        """Yield (arm, strength), the reference and the baseline first, then each strength with its controls."""
        yield "prompted", 0.0
        yield "baseline", 0.0
        for strength in self.strengths:
            yield "role", strength
            for control in self.controls:
                yield control, strength

    def cells(self, questions: Sequence[str] | None = None) -> list[Cell]:
        """Lay out all cells, or those of some questions: questions outermost, so that equal prompts are neighbours."""
        return [
            Cell(role, arm, strength, question, seed)
            for question in (self.questions if questions is None else questions)
            for seed in self.seeds
            for arm, strength in self.arms()
            for role in self.roles
        ]


def answer_seed(answer_key: str) -> int:
    """Return the sampling seed of an answer: a function of its identity alone."""
    return int.from_bytes(hashlib.sha256(answer_key.encode()).digest()[:7], "big")

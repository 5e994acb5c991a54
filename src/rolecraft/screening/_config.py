"""What a screen is asked to do: the same names as flags, as keys of a file and as arguments."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rolecraft.conditioning import LADDER, Rung
from rolecraft.errors import GridError, did_you_mean
from rolecraft.screening._adaptive import Adaptive
from rolecraft.screening._grid import CONTROLS, Control
from rolecraft.screening._verdict import VerdictRule


@dataclass(frozen=True)
class ScreenConfig:
    """Everything that decides what a screen finds.

    Defaults suit the embedded model on a laptop; the figures of CastVectors (arXiv 2608.00023) are given beside them.
    """

    inventory: str = "core-v1"
    """Name, file or folder. CastVectors: 275 roles."""
    roles: tuple[str, ...] = ()
    """Ids; empty screens the whole inventory."""
    model: str = "local:smollm2"
    """Model string of the policy. CastVectors: Olmo-3-7B-Instruct."""
    questions_from: str = "questions-v1"
    """Question bank: name or file."""
    questions: int = 12
    """How many evaluation questions, from the start of the bank. CastVectors: 228."""
    strengths: tuple[float, ...] = (1.0, 1.5, 2.0, 2.5)
    """Multiples of each role's raw direction. CastVectors: the same."""
    control: tuple[Control, ...] = CONTROLS
    """Control directions at the same strengths and norm."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each seed decodes anew, and draws its own random controls. CastVectors: one."""
    reextract: bool = False
    """Extract a direction per seed too, so that stability over seeds includes which pairs were drawn. Else the first
    seed's direction, which the lock points to, is the one that all of them screen."""
    reference: Rung = "instruction"
    """Prompt of the prompted reference. CastVectors: `reference`, with demonstrations, which a 135M model only repeats:
    over 40 roles and the calibration questions 53 % of its answers were degenerate, against 8 % by instruction. A
    role without instructions takes `reference`."""
    site: int | None = None
    """Decoder block that is steered; None is the block at half depth."""
    preset: str = "cast-vectors"
    """How directions are extracted."""
    instructions: int = 3
    """Instructions per role used to extract. CastVectors: 5."""
    role_questions: int = 10
    """Role-specific questions used to extract. CastVectors: up to 100, until 50 pairs are kept."""
    accept: Literal["likelihood-margin", "all"] = "likelihood-margin"
    """Which pairs of responses an extraction keeps. CastVectors: those an LLM judge grades 3 of 3."""
    max_tokens: int = 32
    """New tokens per answer. CastVectors: 2,000."""
    temperature: float = 0.2
    """CastVectors: 0.2."""
    top_p: float = 0.99
    """CastVectors: 0.99."""
    judge: str = "offline"
    """`offline`, or the model string of an LLM judge."""
    second_judge: str = ""
    """A second judge, whose disagreement about the sign of the gain fails a role."""
    allow_uncalibrated: bool = False
    """Take LLM judges as they are, without holding them against the labelled cases first."""
    adaptive: bool = False
    """Stop cells once the interval has decided."""
    round_questions: int = 4
    """Questions per round of an adaptive screen."""
    rule: VerdictRule = field(default_factory=VerdictRule)

    def __post_init__(self) -> None:
        for name in ("questions", "instructions", "role_questions"):
            if getattr(self, name) < 1:
                raise GridError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name, known in (("accept", ("likelihood-margin", "all")), ("reference", LADDER[1:])):
            if (given := getattr(self, name)) not in known:
                raise GridError(f"{name} must be one of {', '.join(known)}, got {given!r}.{did_you_mean(given, known)}")

    @property
    def extraction_seeds(self) -> tuple[int, ...]:
        """The seeds that extract."""
        return self.seeds if self.reextract else self.seeds[:1]

    @property
    def rounds(self) -> Adaptive | None:
        """The rounds of an adaptive screen."""
        return Adaptive(self.round_questions) if self.adaptive else None

    def resolved(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

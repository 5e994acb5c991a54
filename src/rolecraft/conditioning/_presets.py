"""Recipes of extraction, with the values of the papers they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rolecraft.errors import UserError, did_you_mean
from rolecraft.models._base import Sampling

Contrast = Literal["empty", "none", "opposite"]
ReplyPooling = Literal["reply-mean", "reply-first", "reply-last", "prompt-last"]


@dataclass(frozen=True)
class ExtractionPreset:
    """How a role's direction is extracted: what is asked, what it is held against, what is kept.

    Every instruction meets every question (a pass); sizes are upper limits: a role with fewer gives what it has.

    Raises:
        UserError: If a size is below 1.
    """

    name: str
    source: str
    """The paper."""
    contrast: Contrast
    """What the role's responses are held against: the same question under an empty system message, nothing (the
    direction is the raw mean of the role's responses), or a system text that asks for the opposite."""
    temperature: float
    top_p: float
    max_tokens: int
    """New tokens per response."""
    instructions: int
    """Of the role's system texts, the first so many."""
    questions: int
    """Of the questions, so many, chosen by seed."""
    target_pairs: int | None
    """Stop at so many accepted pairs, or at one full pass of them if that is less; None runs every pass."""
    min_pairs: int
    """With fewer accepted, the role has too few pairs; where a full pass is small, a quarter of it is enough."""
    passes: int
    """Most passes, each with new seeds."""
    pooling: ReplyPooling = "reply-mean"
    """Which tokens of prompt and response an activation is averaged over."""

    def __post_init__(self) -> None:
        for size in ("instructions", "questions", "min_pairs", "passes", "target_pairs"):
            value = getattr(self, size)
            if value is not None and value < 1:
                raise UserError(f"extraction preset {self.name!r}: {size} must be at least 1, got {value}.")

    @property
    def sampling(self) -> Sampling:
        """How responses are drawn."""
        return Sampling(self.max_tokens, self.temperature, self.top_p)


PRESETS: dict[str, ExtractionPreset] = {
    preset.name: preset
    for preset in (
        ExtractionPreset(
            name="cast-vectors",
            source="Role Steering of Language Models for Social Simulations (arXiv 2608.00023)",
            contrast="empty",
            temperature=0.9,
            top_p=0.99,
            max_tokens=200,
            instructions=5,
            questions=40,
            target_pairs=50,
            min_pairs=20,
            passes=2,
        ),
        ExtractionPreset(
            name="assistant-axis",
            source="The Assistant Axis (arXiv 2601.10387)",
            contrast="none",
            temperature=0.7,
            top_p=0.9,
            max_tokens=512,
            instructions=5,
            questions=240,
            target_pairs=None,
            min_pairs=50,
            passes=1,
        ),
        ExtractionPreset(
            name="persona-vectors",
            source="Persona Vectors (arXiv 2507.21509)",
            contrast="opposite",
            temperature=1.0,
            top_p=1.0,
            max_tokens=1000,
            instructions=5,
            questions=20,
            target_pairs=None,
            min_pairs=10,
            passes=10,
        ),
    )
}


def find_preset(preset: str | ExtractionPreset) -> ExtractionPreset:
    """Return the preset of a name, or the preset itself.

    Raises:
        UserError: If there is none of that name.
    """
    if isinstance(preset, ExtractionPreset):
        return preset
    if preset not in PRESETS:
        raise UserError(
            f"no extraction preset {preset!r}.{did_you_mean(preset, PRESETS)} Known: {', '.join(sorted(PRESETS))}."
        )
    return PRESETS[preset]

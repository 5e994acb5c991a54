"""What is judged, what a judge gives back, and the protocol every judge follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rolecraft.roles import Role

DIMENSIONS = (
    "overall",
    "emotional_register",
    "vocabulary_choice",
    "social_dynamic",
    "motivation",
    "worldview_alignment",
)
"""The six dimensions of CastVectors (arXiv 2608.00023): overall role alignment, three of style, two of content."""

STYLE = ("emotional_register", "vocabulary_choice", "social_dynamic")
"""Dimensions judged against the prompted reference; missing without one."""


@dataclass(frozen=True)
class JudgeItem:
    """One answer to be judged."""

    role: Role
    question: str
    answer: str
    reference: str = ""
    """The prompted reference's answer to the same question, where there is one."""


@dataclass(frozen=True)
class Score:
    """What a judge says of one answer."""

    values: dict[str, float | None]
    """Dimension to 0..100; None where the judge gave no usable value, never a middle value in its stead."""
    note: str = ""
    """Why a value is missing or forced."""
    features: dict[str, float] = field(default_factory=dict)
    """Raw measurements behind the values, such as `perplexity`; finite ones only, empty where the judge has none."""


@runtime_checkable
class Judge(Protocol):
    """Anything that scores answers."""

    @property
    def name(self) -> str:
        """Kind of judge and what it runs on."""
        ...

    @property
    def rubric_hash(self) -> str:
        """Content hash of all that decides a score besides the item: rubrics or coefficients, models, prompts."""
        ...

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Keys of `Score.values`."""
        ...

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        """Score each item, in the order given; an item's score does not depend on its neighbours."""
        ...

"""The `Role`: one object for a persona, a team role, a role of an array policy and a guard's principal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from rolecraft.errors import RoleError, did_you_mean
from rolecraft.roles._frozen import FrozenDict

RoleId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Line = Annotated[str, StringConstraints(strip_whitespace=True)]
"""A text that may be empty."""
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Strict(BaseModel):
    """Frozen, with unknown keys refused and the nearest known key named."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = [str(key) for key in data if key not in cls.model_fields]
            if unknown:
                known = ", ".join(cls.model_fields)
                raise ValueError(
                    f"unknown key {unknown[0]!r}.{did_you_mean(unknown[0], cls.model_fields)} Known: {known}"
                )
        return data


class Demonstration(_Strict):
    """One dialogue that shows the role at work."""

    user: Text
    reply: Text


class Phase(_Strict):
    """One phase of a role's arc: what changes from then on."""

    name: Text
    description: Text
    knowledge: tuple[Text, ...] = ()
    """What the role knows from this phase on."""


class Role(_Strict):
    """What an agent is asked to be.

    Only `id`, `name` and `description` are required; a role that is to be screened also needs `instructions` and
    `questions`. Profiles follow the fields of CastVectors (arXiv 2608.00023) and the Assistant Axis (arXiv 2601.10387).
    """

    id: RoleId
    """Lower-case words joined by hyphens; unique in an inventory."""
    name: Text
    """As one would say it in `You are a ...`."""
    description: Text
    """Second person: who the role is and what it is responsible for."""
    instructions: tuple[Text, ...] = ()
    """System texts that assign the role, in several phrasings."""
    questions: tuple[Text, ...] = ()
    """Role-specific questions, for extraction only."""
    demonstrations: tuple[Demonstration, ...] = ()
    style: Line = ""
    """How the role talks."""
    catchphrases: tuple[Text, ...] = ()
    values: tuple[Text, ...] = ()
    """What the role holds dear (its worldview)."""
    goals: tuple[Text, ...] = ()
    """What the role wants (its motivation)."""
    boundaries: tuple[Text, ...] = ()
    """What the role does not know or will not do."""
    knowledge: tuple[Text, ...] = ()
    traits: Annotated[Mapping[Text, Number], AfterValidator(FrozenDict)] = FrozenDict()
    """Trait name to number; the bundled inventory uses 0..1."""
    arc: tuple[Phase, ...] = ()
    relations: Annotated[Mapping[RoleId, Text], AfterValidator(FrozenDict)] = FrozenDict()
    """Id of another role to what it is to this one."""
    tags: tuple[Text, ...] = ()
    family: Line = ""
    level: int | None = Field(default=None, ge=1)
    """Social granularity, 1 = individual .. 5 = nation (arXiv 2605.06196)."""
    ladder: Line = ""
    """Domain in which the role stands on one rung per level (arXiv 2605.06196)."""

    @property
    def hash(self) -> str:
        """Content hash: 16 hex digits of the SHA-256 of the canonical JSON."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def edited(self, **changes: Any) -> Self:
        """Return a validated copy with some fields changed.

        Raises:
            RoleError: If a changed field is unknown or its value is refused.
        """
        return parse_role(self.model_dump() | changes, where=f"role {self.id!r}")  # type: ignore[return-value]


def parse_role(data: Any, where: str) -> Role:
    """Validate one role.

    Args:
        data: What the file held.
        where: File and position, for the message.

    Raises:
        RoleError: Naming `where`, the field, what was given and what was expected.
    """
    if not isinstance(data, dict):
        raise RoleError(f"{where}: a role must be a mapping of fields, got {type(data).__name__}.")
    try:
        return Role.model_validate(data)
    except ValidationError as error:
        raise RoleError(f"{where}: {describe(error)}") from None


def describe(error: ValidationError) -> str:
    """Say in one line per problem which field was refused, why, and what was given."""
    lines = []
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        given = "" if problem["type"] in ("missing", "value_error") else f" (given: {str(problem['input'])[:60]!r})"
        lines.append(f"{field}: {message}{given}" if field else message)
    return "; ".join(lines)

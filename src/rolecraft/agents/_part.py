"""How a role is put on: the system side of a prompt, and what is done to the residual stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.conditioning import Direction, Intervention, Steering, conditioned
from rolecraft.models import Chat, chat

if TYPE_CHECKING:
    from rolecraft.screening import Admission


@dataclass(frozen=True)
class Part:
    """How one role is put on."""

    admission: Admission | None = None
    """None: no role of an inventory, but what `system` says."""
    interventions: tuple[Intervention, ...] = ()
    system: str = ""
    """System text where there is no admission; empty: the model as it is."""

    @classmethod
    def of(cls, admission: Admission | None) -> Part:
        """Read the direction of a steered role.

        Raises:
            UserError: If its file cannot be read.
        """
        if admission is None or admission.conditioner == "prompt":
            return cls(admission)
        assert admission.direction is not None
        assert admission.strength is not None
        direction = Direction.load(admission.direction)
        return cls(admission, (direction.steer(admission.strength, admission.site),))

    def chat(self, observation: str) -> Chat:
        """Return what the model is shown: a steered role needs no system text."""
        if self.admission is None or self.interventions:
            return chat(observation, self.system)
        return conditioned(self.admission.role, observation, self.admission.rung)


def steering_of(parts: Sequence[Part]) -> Steering | None:
    """Return the interventions row by row; None where no row has any."""
    rows = tuple(part.interventions for part in parts)
    return Steering(rows) if any(rows) else None

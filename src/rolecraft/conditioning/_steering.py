"""Steering: what is done to the residual stream, for each row of a batch separately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rolecraft.errors import SteeringShapeError, UserError

Operator = Literal["add", "add-norm", "add-signed", "ablate", "cap"]
Phase = Literal["prefill", "decode", "both"]
Positions = Literal["last", "all"]

OPERATORS: tuple[Operator, ...] = ("add", "add-norm", "add-signed", "ablate", "cap")


@dataclass(frozen=True, eq=False)
class Intervention:
    """One change of the residual stream h at the output of one decoder block.

    With v the vector, u = v / |v| and c the strength:

    | operator | h becomes | source |
    |---|---|---|
    | add | h + c v | CastVectors (arXiv 2608.00023) |
    | add-norm | h + c |h| u | norm-matched addition |
    | add-signed | h + c v sign(<h, c v>) | RoleRef (arXiv 2409.16913), piecewise linear |
    | ablate | h - <h, u> u + c v | Assistant Axis (arXiv 2601.10387) |
    | cap | h - relu(<h, u> - threshold) u | Assistant Axis, activation capping |

    Raises:
        UserError: If the strength is not finite, the operator is unknown, or a cap has no threshold.
        SteeringShapeError: If the vector is not one-dimensional, not finite, or zero.
    """

    vector: NDArray[np.float32]
    """Shape (hidden,)."""
    strength: float
    """c. In an `add`, 1 adds the vector as it was extracted. Ignored by `cap`."""
    site: int
    """Index of the decoder block (0-based) whose output is changed: `hidden_states[site + 1]`."""
    operator: Operator = "add"
    threshold: float | None = None
    """Only for `cap`, in units of the projection on u."""
    phase: Phase = "both"
    """`prefill`: the prompt's tokens; `decode`: the new tokens. Decode alone leaves the first new token unsteered,
    because its logits come from the prefill."""
    positions: Positions = "last"
    """`last`: the last prompt token and every new token (CastVectors); `all`: every prompt token too."""

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise UserError(f"operator must be one of {', '.join(OPERATORS)}, got {self.operator!r}.")
        if not math.isfinite(self.strength):
            raise UserError(f"strength must be finite, got {self.strength}.")
        if (self.operator == "cap") != (self.threshold is not None):
            raise UserError("threshold belongs to the operator 'cap', which needs one.")
        if self.vector.ndim != 1 or not np.isfinite(self.vector).all():
            raise SteeringShapeError(
                f"an intervention needs a finite vector of shape (hidden,), got shape {self.vector.shape}."
            )
        if not np.any(self.vector):
            raise SteeringShapeError("an intervention needs a vector that is not zero.")
        if self.site < 0:
            raise SteeringShapeError(f"site must be at least 0, got {self.site}.")

    @property
    def idle(self) -> bool:
        """Whether the intervention changes nothing, so that no hook is needed (strength 0 of an addition)."""
        return self.strength == 0 and self.operator in ("add", "add-norm", "add-signed")


@dataclass(frozen=True)
class Steering:
    """The interventions of a batch: `rows[i]` holds those of row i, in order; an empty tuple leaves the row alone."""

    rows: tuple[tuple[Intervention, ...], ...]

    @classmethod
    def uniform(cls, interventions: Sequence[Intervention], rows: int) -> Steering:
        """Apply the same interventions to every one of `rows` rows."""
        return cls((tuple(interventions),) * rows)

    @property
    def sites(self) -> tuple[int, ...]:
        """Sites that need a hook, ascending."""
        return tuple(sorted({i.site for row in self.rows for i in row if not i.idle}))

    def select(self, indices: Sequence[int]) -> Steering:
        """Return the steering of the rows at `indices`, in that order."""
        return Steering(tuple(self.rows[i] for i in indices))

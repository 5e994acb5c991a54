"""A learned cost over states and actions, with what is known about it: a table that can be saved and asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rolecraft._files import write_atomic
from rolecraft.control.tabular._mdp import Floats
from rolecraft.errors import UserError

_VERSION = "1"


@dataclass(frozen=True, eq=False)
class TabularCost:
    """What each state and action costs, from which cost on it is forbidden, and where there was evidence."""

    costs: Floats
    """Shape (S, A), at least 0."""
    threshold: float
    """A cost of at least this is forbidden; above 0."""
    evidence: NDArray[np.bool_]
    """Shape (S, A): whether demonstrations or a learner's policies ever came there; elsewhere the cost is unknown."""

    def __post_init__(self) -> None:
        """Check shapes and ranges."""
        object.__setattr__(self, "costs", np.asarray(self.costs, dtype=float))
        object.__setattr__(self, "evidence", np.asarray(self.evidence, dtype=bool))
        if self.costs.ndim != 2 or self.evidence.shape != self.costs.shape:
            raise UserError(
                f"cost: expected costs and evidence of one shape (S, A), got {self.costs.shape} and "
                f"{self.evidence.shape}."
            )
        if not np.isfinite(self.costs).all() or (self.costs < 0).any() or not self.threshold > 0:
            raise UserError(
                f"cost: expected finite costs of at least 0 and a threshold above 0, got costs from "
                f"{self.costs.min():.6g} to {self.costs.max():.6g} and threshold {self.threshold}."
            )

    def __call__(self, state: int, action: int) -> float:
        """Return the cost of an action in a state.

        Raises:
            UserError: If either is out of range.
        """
        return float(self.costs[self._place(state, action)])

    def decide(self, state: int, action: int) -> Literal["allow", "block", "ask"]:
        """Say whether an action is forbidden (`block`); `ask` where there is no evidence.

        Raises:
            UserError: If state or action is out of range.
        """
        place = self._place(state, action)
        if not self.evidence[place]:
            return "ask"
        return "block" if self.costs[place] >= self.threshold else "allow"

    def forbids(self, state: int, action: int) -> bool:
        """Return whether the cost is known and reaches the threshold: a predicate for a guard.

        Raises:
            UserError: If state or action is out of range.
        """
        return self.decide(state, action) == "block"

    def _place(self, state: int, action: int) -> tuple[int, int]:
        states, actions = self.costs.shape
        if not (0 <= state < states and 0 <= action < actions):
            raise UserError(
                f"cost: expected a state below S = {states} and an action below A = {actions}, got {state}, {action}."
            )
        return state, action

    def save(self, path: str | Path) -> None:
        """Write one safetensors file."""
        from safetensors.numpy import save

        tensors: dict[str, NDArray[Any]] = {"costs": self.costs, "evidence": self.evidence.astype(np.uint8)}
        metadata = {"kind": "tabular-cost", "version": _VERSION, "threshold": repr(self.threshold)}
        write_atomic(Path(path), save(tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            UserError: If the file cannot be read or holds something else.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: no readable safetensors file: {error}.") from None
        if metadata.get("kind") != "tabular-cost" or metadata.get("version") != _VERSION:
            raise UserError(f"{path}: expected what TabularCost.save wrote (version {_VERSION}), got {metadata}.")
        return cls(found["costs"], float(metadata["threshold"]), found["evidence"] > 0)

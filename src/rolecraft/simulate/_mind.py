"""What the agents of a study have beside their roles: a memory, and a form for thinking before they act."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from rolecraft._options import call_with
from rolecraft.agents import Memory, ModelSummariser, RetrievalMemory, SummaryMemory, WindowMemory
from rolecraft.models import LanguageModel

MemoryKind = Literal["window", "summary", "retrieval"]
KINDS: Mapping[MemoryKind, Callable[..., Memory]] = {
    "window": WindowMemory,
    "summary": SummaryMemory,
    "retrieval": RetrievalMemory,
}
assert tuple(KINDS) == get_args(MemoryKind)


class MemoryChoice(BaseModel):
    """Which memory, and its options."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: MemoryKind

    @property
    def options(self) -> dict[str, Any]:
        """Every other key: arguments of the memory."""
        return dict(self.model_extra or {})

    def build(self, model: LanguageModel) -> Memory:
        """Make the memory; summaries are written by the model that plays.

        Raises:
            UserError: If an option is unknown or out of range.
        """
        fixed: dict[str, Any] = {"count": len} if self.kind == "window" else {"encode": None}
        if self.kind == "summary":
            fixed = {"summarise": ModelSummariser(model)}
        return call_with(KINDS[self.kind], self.options, f"memory {self.kind!r}", **fixed)

    @property
    def recall(self) -> int:
        """Turns that a view must hold for it."""
        return int(self.options.get("turns", 0))

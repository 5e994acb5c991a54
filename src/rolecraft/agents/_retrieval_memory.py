"""A memory of single turns, of which those nearest in meaning to what is seen now come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from rolecraft.agents._memory import Recalled, State, _positive, _with_heading, last_part, turn_text, unfold
from rolecraft.models import Embedder
from rolecraft.models._base import FloatArray
from rolecraft.worlds import Turn, View

Encode = Callable[[Sequence[str]], FloatArray]
"""From texts to unit vectors, shape (texts, size)."""


@dataclass
class RetrievalMemory:
    """The turns nearest in meaning to the observation, by cosine; of equals the newer.

    Kept: `capacity` turns of at most `width` characters for what was seen and what was done. A turn that comes again
    word for word is kept once. When there are more, the turn goes that was least recently stored or retrieved; of
    equals the one stored first. States hold texts alone: vectors are computed again, and the embedder's own cache
    (`Embedder.load(cache_size=...)`, 50,000 texts by default) bounds what that costs.

    Raises:
        UserError: If a number is below 1.
    """

    kind: ClassVar[str] = "retrieval"
    version: ClassVar[int] = 1

    encode: Encode | None = None
    """Default: MiniLM, loaded when it is first needed."""
    capacity: int = 64
    top: int = 4
    """Turns that come back, shown in the order in which they were stored."""
    width: int = 200
    _loaded: Encode | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _positive(capacity=self.capacity, top=self.top, width=self.width)

    def recall(self, views: Sequence[View], starts: Sequence[State]) -> list[Recalled]:
        """Store the last turns of each view, and retrieve for its observation.

        An empty observation retrieves nothing.

        Raises:
            UserError: If a state is of another kind or version.
            MissingDependencyError: If MiniLM is needed and not installed.
        """
        kept = [self._with(*unfold(self, view, start)) for view, start in zip(views, starts, strict=True)]
        queries = [last_part(view.observation.strip(), 3 * self.width) for view in views]
        wanted = [row for row, query in enumerate(queries) if query and kept[row]["lines"]]
        texts = [text for row in wanted for text in (queries[row], *(line["text"] for line in kept[row]["lines"]))]
        vectors = dict(zip(texts, self._encoded(texts), strict=True))
        found: list[list[str]] = [[] for _ in views]
        for row in wanted:
            found[row] = self._retrieve(kept[row], vectors[queries[row]], vectors)
        return [Recalled(_with_heading(lines), state) for lines, state in zip(found, kept, strict=True)]

    def _retrieve(self, state: dict[str, Any], query: FloatArray, vectors: dict[str, FloatArray]) -> list[str]:
        """Return the nearest lines in their order, and mark them as used now."""
        lines = state["lines"]
        scores = np.array([float(vectors[line["text"]] @ query) for line in lines])
        best = sorted(range(len(lines)), key=lambda place: (-scores[place], -place))[: self.top]
        state["clock"] += 1
        for place in best:
            lines[place] = lines[place] | {"used": state["clock"]}
        return [lines[place]["text"] for place in sorted(best)]

    def _with(self, state: State, turns: Sequence[Turn]) -> dict[str, Any]:
        clock, lines = state.get("clock", 0), list(state.get("lines", ()))
        for turn in turns:
            clock, text = clock + 1, turn_text(turn, self.width)
            lines = [line for line in lines if line["text"] != text] + [{"text": text, "used": clock}]
        while len(lines) > self.capacity:
            lines.remove(min(lines, key=lambda line: line["used"]))
        return {"kind": self.kind, "version": self.version, "clock": clock, "lines": lines}

    def _encoded(self, texts: Sequence[str]) -> FloatArray | list[FloatArray]:
        if not texts:
            return []
        if self.encode is None and self._loaded is None:
            self._loaded = Embedder.load().encode
        encode = self.encode or self._loaded
        assert encode is not None
        return encode(texts)

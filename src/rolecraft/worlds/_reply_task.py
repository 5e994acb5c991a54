"""One prompt, one free reply, rewarded by a function: the world of single-turn training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._world import World

SPEAKER = "speaker"


@dataclass(frozen=True)
class ReplyItem:
    """A prompt."""

    id: str
    prompt: str
    """What the speaker sees."""
    role: str = ""
    """Id of the role it speaks as, for whoever groups the rewards."""


class ReplyScore(Protocol):
    """Scores a reply by rules; the same reply always gets the same."""

    def __call__(self, item: ReplyItem, reply: str) -> Mapping[str, float]:
        """Return finite scores by name."""
        ...


class ReplyTask(World):
    """The speaker sees a prompt and replies once.

    The seed picks the item, in turn, so that episodes of one seed are samples for one prompt. There is no chance.
    """

    name = "reply-task"
    agents = (SPEAKER,)

    def __init__(
        self, items: Sequence[ReplyItem], score: ReplyScore, weights: Mapping[str, float] | None = None
    ) -> None:
        """Set items and rule.

        Args:
            items: At least one, with distinct ids.
            score: The rule.
            weights: By score, divided by their sum; a score without a weight counts 0. None: all count alike.

        Raises:
            UserError: If there is no item, an id stands twice, or the weights are not usable.
        """
        ids = [item.id for item in items]
        if not ids:
            raise UserError(f"{self.name}: no items; give at least one prompt.")
        if len(set(ids)) < len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise UserError(f"{self.name}: two items have the id {twice!r}; ids must differ.")
        if weights is not None and not (all(0 <= w < math.inf for w in weights.values()) and sum(weights.values()) > 0):
            raise UserError(f"{self.name}: weights must be 0 or more and not all 0, got {dict(weights)!r}.")
        self.items, self.score, self.weights = tuple(items), score, None if weights is None else dict(weights)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start with the item of this seed."""
        self._item = self.items[seed % len(self.items)]
        self._reply: str | None = None
        self._scores: dict[str, float] = {}

    @property
    def item(self) -> ReplyItem:
        """The item that is played."""
        return self._item

    @property
    def acting(self) -> tuple[str, ...]:
        """The speaker, until it has replied."""
        return self.agents if self._reply is None else ()

    def observe(self, agent: str) -> str:
        """Return the prompt."""
        return self._item.prompt

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return that any text may be said."""
        return None if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the item and the reply."""
        return {"item": self._item.id, "prompt": self._item.prompt, "reply": self._reply}

    def rewards(self) -> Mapping[str, float]:
        """Return the weighted mean of the scores; 0 before the reply."""
        weights = dict.fromkeys(self._scores, 1.0) if self.weights is None else self.weights
        whole = sum(weights.values())
        earned = sum(weights.get(name, 0.0) * got for name, got in self._scores.items())
        return {SPEAKER: earned / whole if whole else 0.0}

    def outcome(self) -> Mapping[str, Any]:
        """Return the item, its role, and the scores by name."""
        return {"item": self._item.id, "role": self._item.role, "scores": dict(self._scores)}

    def _apply(self, actions: Mapping[str, str]) -> None:
        reply = actions[SPEAKER]
        scores = {str(name): float(value) for name, value in self.score(self._item, reply).items()}
        for name, value in scores.items():
            if not math.isfinite(value):
                raise UserError(
                    f"{self.name}: item {self._item.id!r}: the score {name!r} is {value}; it must be finite."
                )
        for name in self.weights or {}:
            if name not in scores:
                raise UserError(
                    f"{self.name}: item {self._item.id!r}: there is no score {name!r} to weigh "
                    f"(scores: {', '.join(scores) or 'none'}).{did_you_mean(name, scores)}"
                )
        self._scores, self._reply = scores, reply

"""One query, two answers in turn: an observer who may see the pioneer's answer first (CORY, arXiv 2410.06101)."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rolecraft.errors import UserError
from rolecraft.worlds._world import World

PIONEER, OBSERVER = "pioneer", "observer"
Merge = Callable[[str, str], str]
"""From a query and another's answer to the observer's prompt, which holds the whole query."""
Reward = Callable[[str, str], float]
"""From a query and an answer to what the answer earns; it never sees who wrote it, nor after which prompt."""


class HintCutWarning(UserWarning):
    """A pioneer's answer did not fit into the observer's prompt, and was cut."""


def hint_then_query(query: str, answer: str) -> str:
    """Show another's answer to a query, and ask the query again."""
    return f"{query}\nAnother's answer, as a reference: {answer}\n{query}"


class HintedReply(World):
    """The pioneer answers a query; then the observer answers it too, knowing the query and the pioneer's answer.

    Each earns what its own answer is worth; pooling the two is a matter of credit. The seed picks the query, in turn.
    There is no chance.
    """

    name = "hinted-reply"

    def __init__(
        self,
        queries: Sequence[str],
        reward: Reward,
        merge: Merge = hint_then_query,
        *,
        transfer: bool = True,
        seats: int = 2,
        longest: int | None = None,
        length: Callable[[str], int] = lambda text: len(text.split()),
    ) -> None:
        """Set queries and rules.

        Args:
            queries: At least one.
            reward: Of an answer.
            merge: Makes the observer's prompt. Where the pioneer said nothing, the observer sees the query alone.
            transfer: False: the observer always sees the query alone.
            seats: 1: there is no observer.
            longest: Most of `length` that a merged prompt may have: as many words as needed are cut off the end of the
                answer, with a warning, and never any of the query. None: no limit.
            length: Of a text; words by default. Give a tokenizer's count for a model's context.

        Raises:
            UserError: If there is no query, one is too long by itself, or there are neither one nor two seats.
        """
        if not queries:
            raise UserError(f"{self.name}: no queries; give at least one.")
        if seats not in (1, 2):
            raise UserError(f"{self.name}: seats are 1 (the pioneer alone) or 2, got {seats}.")
        for number, query in enumerate(queries if longest is not None else ()):
            if longest is not None and length(query) > longest:
                raise UserError(
                    f"{self.name}: query {number} has length {length(query)}, and a prompt may have {longest}; queries "
                    "are never cut: raise longest, or leave it out."
                )
        self.agents = (PIONEER, OBSERVER)[:seats]
        self.queries, self.transfer = tuple(queries), transfer
        self._reward, self._merge, self._longest, self._length = reward, merge, longest, length
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start with the query of this seed."""
        self.query = self.queries[seed % len(self.queries)]
        self._answers: dict[str, str] = {}
        self._earned: dict[str, float] = {}
        self._hinted, self._cut = self.query, 0

    @property
    def acting(self) -> tuple[str, ...]:
        """The pioneer, then the observer."""
        return self.agents[len(self._answers) :][:1]

    def observe(self, agent: str) -> str:
        """Return the query; for the observer, merged with the pioneer's answer once it is given."""
        return self._hinted if agent == OBSERVER else self.query

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return that any text may be said."""
        return None if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the query, the observer's prompt and the answers."""
        return {"query": self.query, "prompt": self._hinted, "cut": self._cut, "answers": dict(self._answers)}

    def rewards(self) -> Mapping[str, float]:
        """Return what each answer earned; 0 before it is given."""
        return {agent: self._earned.get(agent, 0.0) for agent in self.agents}

    def outcome(self) -> Mapping[str, Any]:
        """Return the query, the answers, whether the observer said the same again, and the words cut off the hint."""
        first, *rest = [" ".join(self._answers.get(agent, "").split()) for agent in self.agents]
        return {
            "query": self.query,
            "answers": dict(self._answers),
            "copied": bool(first) and rest == [first],
            "cut": self._cut,
        }

    def _apply(self, actions: Mapping[str, str]) -> None:
        ((agent, answer),) = actions.items()
        earned = float(self._reward(self.query, answer))
        if not math.isfinite(earned):
            raise UserError(
                f"{self.name}: the reward of {agent}'s answer {answer[:80]!r} to {self.query[:80]!r} is {earned}; it "
                "must be finite."
            )
        self._answers[agent], self._earned[agent] = answer, earned
        if agent == PIONEER and self.transfer and OBSERVER in self.agents:
            self._hinted, self._cut = self._hint(answer)

    def _hint(self, answer: str) -> tuple[str, int]:
        """Return the observer's prompt, and how many words of the answer had to be left out."""
        ends = [found.end() for found in re.finditer(r"\S+", answer)]
        for kept in range(len(ends), 0, -1):
            prompt = self._merge(self.query, answer[: ends[kept - 1]])
            if self.query not in prompt:
                raise UserError(
                    f"{self.name}: merge lost the query {self.query[:80]!r}; it must return a text that holds it whole."
                )
            if self._longest is None or self._length(prompt) <= self._longest:
                break
        else:
            kept, prompt = 0, self.query
        if kept < len(ends):
            warnings.warn(
                f"{self.name}: {len(ends) - kept} of {len(ends)} words of the pioneer's answer were cut, so that the "
                f"observer's prompt fits into {self._longest}.",
                HintCutWarning,
                stacklevel=2,
            )
        return prompt, len(ends) - kept

"""Limits of an episode: what its steps may use up before it is cut, whatever the world."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rolecraft.errors import UserError
from rolecraft.worlds._episode import Turn

CHARACTERS_PER_TOKEN = 4
"""Of text whose tokens nobody counted, such as that of choices."""

Count = Callable[[Sequence[Turn]], bool]
"""Takes the turns of each step, and returns whether the limit is reached."""


class Limit(Protocol):
    """Cuts an episode between two steps; a step that was asked for is always finished."""

    @property
    def name(self) -> str:
        """What goes on record as `Episode.limit`."""
        ...

    def begin(self) -> Count:
        """Begin to count, for one episode."""
        ...


@dataclass(frozen=True)
class _Sum:
    """Adds up what each step uses."""

    most: int
    name: str = ""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UserError(f"limit {self.name}: expected a whole number of at least 1, got {self.most!r}.")

    def begin(self) -> Count:
        """Begin to count."""
        used = 0

        def count(turns: Sequence[Turn]) -> bool:
            nonlocal used
            used += sum(map(self._used, turns))
            return used >= self.most

        return count

    def _used(self, turn: Turn) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class TurnLimit(_Sum):
    """Ends an episode after so many turns of single agents; where several act at once, a step is several turns.

    Raises:
        UserError: If it is below 1.
    """

    name: str = "turns"

    def _used(self, turn: Turn) -> int:
        return 1


@dataclass(frozen=True)
class TokenLimit(_Sum):
    """Ends an episode once its turns have used so many tokens, read and written; see `tokens_of`.

    Raises:
        UserError: If it is below 1.
    """

    name: str = "tokens"

    def _used(self, turn: Turn) -> int:
        return sum(tokens_of(turn))


@dataclass(frozen=True)
class TimeLimit:
    """Ends an episode once so many seconds of wall clock have passed since it was begun.

    This is the only limit that cannot be replayed: where an episode is cut depends on the machine, on its load and on
    what is played side by side with it, and not on the seed. What is on record stays on record: an episode that is
    resumed gets its time anew, and is never cut before the end of what it had played.

    Raises:
        UserError: If it is not above 0.
    """

    seconds: float
    name: str = "seconds"
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise UserError(f"limit {self.name}: expected a number above 0, got {self.seconds!r}.")

    def begin(self) -> Count:
        """Begin to count."""
        start = self.clock()
        return lambda _: self.clock() - start >= self.seconds


def tokens_of(turn: Turn) -> tuple[int, int]:
    """Return prompt tokens and new tokens of a turn, over all attempts; of a choice, every option is read.

    They are those in its notes; of a choice, one per four characters; of free text that nobody counted, none.
    """
    tries = max(1, len(turn.receipts))
    if "tokens" in turn.notes:
        return tries * int(turn.notes.get("prompt_tokens") or 0), tries * int(turn.notes["tokens"])
    if turn.legal is None:
        return 0, 0
    read = len(turn.observation) + sum(map(len, turn.legal))
    return tries * (read // CHARACTERS_PER_TOKEN), 0

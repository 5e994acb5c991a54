"""The record of an episode: who saw what, did what, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from rolecraft.errors import UserError
from rolecraft.worlds._open import open_form

OnIllegal = Literal["halt", "random"]
"""What happens to an agent whose action stays illegal: the episode ends, or a seeded random legal action is taken."""


@dataclass(frozen=True)
class Receipt:
    """What became of one attempt to act."""

    action: str
    accepted: bool
    reason: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One agent's part in one step."""

    step: int
    """Counts from 0; agents that act at once share it."""
    agent: str
    observation: str
    action: str
    """What was done in the end; differs from what was tried where `fallback` is set."""
    legal: tuple[str, ...] | None = None
    """What could have been done; None: free text."""
    receipts: tuple[Receipt, ...] = ()
    """Every attempt, the accepted one last."""
    fallback: bool = False
    """No attempt was legal, and a random legal action was taken."""
    before: str = ""
    """Hash of the world's state before the step."""
    after: str = ""
    """Hash of the world's state after it."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the policy has to say of it, as JSON holds it: tokens, log-probabilities, beliefs."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read what `dataclasses.asdict` and JSON made of a turn."""
        legal = None if row["legal"] is None else tuple(row["legal"])
        return cls(**{**row, "legal": legal, "receipts": tuple(Receipt(**receipt) for receipt in row["receipts"])})

    if not TYPE_CHECKING:  # or else every name would pass for an attribute

        def __getattr__(self, name: str) -> Any:
            """Make the receipt of a first attempt that was accepted when it is read: its record is the turn itself."""
            if name != "receipts":
                raise AttributeError(f"a turn has no {name!r}")
            object.__setattr__(self, name, (Receipt(self.action, True),))
            return self.receipts


OpenTurn = open_form(Turn, later=("receipts",))


@dataclass(frozen=True)
class Episode:
    """One episode from start to end."""

    world: str
    seed: int
    roles: Mapping[str, str]
    """Agent to role id, for those that have one."""
    turns: tuple[Turn, ...]
    rewards: Mapping[str, float]
    outcome: Mapping[str, Any]
    ended: Literal["over", "limit", "illegal", "failed"]
    """By the world's rules; by a limit; halted by an illegal action, with the attempts in the last turn; or because a
    policy had no answer, with its reason as `failed` in the last turn's notes."""
    states: Literal["hashed", "unhashed"] = "hashed"
    limit: str = ""
    """Which limit ended it: `steps`, or the name of one of `Rules.limits`; empty if none did."""

    @property
    def fallbacks(self) -> int:
        """How often a random action stood in."""
        return sum(turn.fallback for turn in self.turns)

    def of(self, agent: str) -> tuple[Turn, ...]:
        """Return one agent's turns."""
        return tuple(turn for turn in self.turns if turn.agent == agent)

    def row(self) -> dict[str, Any]:
        """Return the episode as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read what `row` wrote.

        Raises:
            UserError: If fields are missing or unknown.
        """
        try:
            turns = tuple(Turn.from_row(turn) for turn in row["turns"])
            return cls(**{**row, "turns": turns})
        except (KeyError, TypeError) as error:
            raise UserError(f"not an episode of this version: {error}.") from None

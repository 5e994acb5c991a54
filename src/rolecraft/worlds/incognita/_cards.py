"""What a task of Incognita is: what a customer wants and knows, and which operations solve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolecraft.errors import UserError
from rolecraft.worlds.incognita._people import HOLDERS
from rolecraft.worlds.incognita._retail import RETAIL_OPERATIONS, Retail, RetailData


@dataclass(frozen=True)
class UserField:
    """Something that the customer knows."""

    name: str
    """What the customer calls it; part of the reply."""
    value: str
    topic: str
    """Key of `TOPICS`."""
    locked: bool = True
    """Told only when asked for."""
    cites: tuple[str, ...] = ()
    """Texts, one of which a request to a specialist must hold for the field to count as used; empty: none need be."""


@dataclass(frozen=True)
class GoldAction:
    """One operation of a reference solution."""

    op: str
    args: Mapping[str, Any]
    yields: tuple[str, ...] = ()
    """Texts of its answer, one of which a later message must hold for it to count as used; empty: none need be."""
    said_by: Mapping[str, str] = field(default_factory=dict)
    """Argument to the name of the customer's field that decides it."""


@dataclass(frozen=True)
class TaskCard:
    """One task."""

    task_id: str
    snapshot: int
    """Seed of the database."""
    kind: str
    fields: tuple[UserField, ...]
    gold: tuple[GoldAction, ...]
    outputs: tuple[str, ...] = ()
    """Texts that a message to the customer must hold."""
    alternatives: tuple[tuple[GoldAction, ...], ...] = ()
    """Other solutions that count as much, where the customer leaves a choice."""

    @property
    def solutions(self) -> tuple[tuple[GoldAction, ...], ...]:
        """Every solution, the reference first."""
        return (self.gold, *self.alternatives)

    @property
    def holders(self) -> frozenset[str]:
        """The roles whose help the reference solution takes."""
        return frozenset(HOLDERS[action.op] for action in self.gold)

    @property
    def breadth(self) -> int:
        """How many specialists the reference solution takes."""
        return len(self.holders)

    @property
    def writes(self) -> int:
        """How many operations of the reference solution change the state."""
        return sum(RETAIL_OPERATIONS[action.op].writes for action in self.gold)

    @property
    def arguments(self) -> int:
        """How many argument values the reference solution has."""
        return sum(
            len(value) if isinstance(value, list) else 1 for action in self.gold for value in action.args.values()
        )

    def goal(self) -> str:
        """Return all that the customer wants and knows, for the control without a gate."""
        return "\n".join(f"{each.name}: {each.value}" for each in self.fields)


def replay_gold(data: RetailData, actions: Sequence[GoldAction], start: str = "") -> Retail:
    """Carry out a solution on a fresh copy of a database.

    Raises:
        UserError: If the policy refuses an action: then it is no solution.
    """
    shop = Retail(data, start=start)
    for action in actions:
        shop.propose(action.op, action.args)
        if not shop.receipts[-1].accepted:
            raise UserError(f"gold action {action.op} is refused: {shop.receipts[-1].reason}; mend the task card.")
    return shop


def gold_states(data: RetailData, card: TaskCard, start: str = "") -> tuple[str, ...]:
    """Return the hashes of the states that solve a task; `start` is the hash of the database, if it is known."""
    return tuple(replay_gold(data, actions, start).hash for actions in card.solutions)

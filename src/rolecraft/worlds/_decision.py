"""What passes between an episode and a policy: a view for every decision, and the act that answers it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rolecraft.worlds._episode import Receipt, Turn
from rolecraft.worlds._open import open_form


class _Deferred:
    """What a view needs to work out its seed and its history when they are asked for."""

    __slots__ = ("_attempt", "_count", "_own")
    _attempt: tuple[int, int, int, int]
    """The episode's seed, the step, the attempt, and how many turns are recalled."""
    _own: list[Turn]
    """The agent's turns: those of now are the first `_count`, later ones are added behind."""
    _count: int


@dataclass(frozen=True, slots=True)
class View(_Deferred):
    """What a policy is given for one decision."""

    agent: str
    observation: str
    legal: tuple[str, ...] | None
    """None: free text."""
    seed: int
    """Of this decision: follows from the episode's seed, the agent, the step and the attempt alone."""
    refused: tuple[Receipt, ...] = ()
    """Attempts at this decision that the world refused, with reasons."""
    role: str | None = None
    """Id of the role that the agent plays."""
    history: tuple[Turn, ...] = ()
    """The agent's own last turns in this episode, oldest first. A policy that must remember more writes it into the
    notes of its act and finds it here: so it is on record, and a resumed episode goes on from it."""
    orders: Mapping[str, Any] | None = None
    """What the table's director says of this decision."""

    def rng(self) -> np.random.Generator:
        """Return the generator of this decision."""
        return np.random.default_rng(self.seed)

    if not TYPE_CHECKING:  # or else every name would pass for an attribute

        def __getattr__(self, name: str) -> Any:
            """Work out what few policies ask for: it takes longer than the rest of a decision."""
            if name not in ("seed", "history"):
                raise AttributeError(f"a view has no {name!r}")
            seed, step, attempt, recall = self._attempt
            if name == "seed":
                value = decision_seed(seed, self.agent, step, attempt)
            else:
                value = tuple(self._own[max(0, self._count - recall) : self._count])
            object.__setattr__(self, name, value)
            return value


_OpenView = open_form(View, later=("seed", "history"))


@dataclass(frozen=True, slots=True)
class Act:
    """A policy's answer."""

    action: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    """Why there is no answer, such as a server that is gone: the episode ends here as `failed`."""

    @staticmethod
    def each(actions: Iterable[str]) -> list[Act]:
        """Return an act without notes for each action, in half the time."""
        acts: list[Act] = [_OpenAct(action) for action in actions]
        for act in acts:
            act.__class__ = Act
        return acts


_OpenAct = open_form(Act)


class Director(Protocol):
    """Intervenes in an episode from outside its world."""

    def __call__(self, agent: str, step: int, turns: Sequence[Turn]) -> Mapping[str, Any] | None:
        """Return the orders for a decision that comes now, given all turns so far."""
        ...


class Policy(Protocol):
    """What acts for one agent or for many."""

    def act(self, views: Sequence[View]) -> Sequence[Act]:
        """Answer every view: those of all agents, of one episode or many, for which it is this policy's turn."""
        ...


def new_view(
    agent: str,
    observation: str,
    legal: tuple[str, ...] | None,
    role: str | None,
    orders: Mapping[str, Any] | None,
    attempt: tuple[int, int, int, int],
    own: list[Turn],
) -> View:
    """Return the view of a first attempt, which works out its seed and its history when they are read.

    Args:
        agent: Whose decision it is.
        observation: What it sees.
        legal: What it may do.
        role: What it plays.
        orders: What the director says.
        attempt: The episode's seed, the step, the attempt, and how many turns are recalled.
        own: The agent's turns so far; more may be added behind them later.
    """
    view = _OpenView(agent, observation, legal, (), role, orders)
    view._attempt, view._own, view._count = attempt, own, len(own)
    view.__class__ = View
    return view  # type: ignore[no-any-return]


def decision_seed(seed: int, agent: str, step: int, attempt: int) -> int:
    """Return `derive_seed(seed, agent, step, attempt)`, several times as fast."""
    text = f"[{seed},{encode_basestring_ascii(agent)},{step},{attempt}]"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

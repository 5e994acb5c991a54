"""What a world is: seats that act in turn or at once, what each of them sees, and a state with receipts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rolecraft._run import content_key
from rolecraft.errors import IllegalActionError, did_you_mean


class World(ABC):
    """A world with text observations.

    Subclasses hold the rules and no models. A world draws chance from its own generator, made anew by `reset`, so that
    the same seed and the same actions give the same world; `state` is all that decides how it goes on.
    """

    name: ClassVar[str]
    """Stable name, lower case, words joined by hyphens."""

    agents: tuple[str, ...]
    """Seats, in order; fixed for the life of the object."""

    actions: tuple[str, ...] | None = None
    """Every action that can ever be legal for anyone, in a fixed order; None where actions are free text."""

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start an episode."""

    @property
    @abstractmethod
    def acting(self) -> tuple[str, ...]:
        """Whose turn it is: none when the episode is over; several act at once, unseen by each other."""

    @abstractmethod
    def observe(self, agent: str) -> str:
        """Return what an agent sees now: text that never holds what is hidden from it."""

    @abstractmethod
    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return what an agent may do now, in a fixed order; None: any text. Empty if it is not its turn."""

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """Return the canonical state, as JSON holds it: hidden parts and the generator's included."""

    @abstractmethod
    def rewards(self) -> Mapping[str, float]:
        """Return what each agent has earned since `reset`."""

    @abstractmethod
    def _apply(self, actions: Mapping[str, str]) -> None:
        """Change the state by one legal action of every acting agent."""

    def outcome(self) -> Mapping[str, Any]:
        """Return facts about a finished episode, as JSON holds them, such as who won and why."""
        return {}

    def act(self, actions: Mapping[str, str]) -> None:
        """Let every acting agent act once.

        Raises:
            IllegalActionError: If an agent is missing, acts out of turn, or does what it may not. The state is
                unchanged then.
        """
        acting = self.acting
        if set(actions) != set(acting):
            raise IllegalActionError(
                f"{self.name}: it is the turn of {', '.join(acting) or 'nobody (the episode is over)'}, "
                f"got actions of {', '.join(sorted(actions)) or 'nobody'}."
            )
        for agent in acting:
            self.check(agent, actions[agent])
        self._apply(actions)

    def check(self, agent: str, action: str) -> None:
        """Refuse an action that an acting agent may not take.

        Raises:
            IllegalActionError: Naming what would be legal.
        """
        legal = self.legal(agent)
        if legal is not None and action not in legal:
            raise IllegalActionError(
                f"{self.name}: {agent} may not do {action!r}; legal: {_shortened(legal)}.{did_you_mean(action, legal)}"
            )

    def state_hash(self) -> str:
        """Return 20 hex digits over the canonical state."""
        return content_key(state=self.state())


def _shortened(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")

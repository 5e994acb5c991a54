"""Guards made of guards: several in a row, one with a time limit, one that cannot fail open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rolecraft.errors import UserError
from rolecraft.guard._decision import Action, Decision, Guard

Made = TypeVar("Made")


def decide_closed(guard: Guard, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
    """Ask a guard; whatever it raises or returns that is no decision blocks, with the reason."""
    name = type(guard).__name__
    try:
        said = guard.decide(principal, action, context)
    except Exception as error:  # a guard is foreign code: if it breaks, the call does not happen
        return Decision("block", f"{name}: error", f"the guard failed: {type(error).__name__}: {error!s:.200}")
    if not isinstance(said, Decision):
        return Decision("block", f"{name}: error", f"the guard returned {said!r:.60} instead of a decision")
    return said


class Chain:
    """Asks guards in turn; the first that does not allow decides. An empty chain refuses everything.

    Args:
        guards: From first to last; cheap and deterministic ones belong first.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.guards = tuple(guards)

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Ask every guard until one refuses."""
        said = Decision("block", "default", "no guard allows anything: the chain is empty")
        for guard in self.guards:
            said = decide_closed(guard, principal, action, context)
            if not said.allowed:
                return said
        return said


class TimedGuard:
    """A guard that must answer in time; silence blocks.

    Args:
        guard: Asked in a thread of its own, which is abandoned when it is too slow.
        seconds: How long it may take.

    Raises:
        UserError: If the time is not positive.
    """

    def __init__(self, guard: Guard, seconds: float) -> None:
        if not seconds > 0:
            raise UserError(f"seconds must be positive, got {seconds!r}.")
        self.guard = guard
        self.seconds = seconds

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Ask, and wait no longer than `seconds`."""
        said = within(self.seconds, lambda: decide_closed(self.guard, principal, action, context))
        if said is None:
            return Decision(
                "block", f"{type(self.guard).__name__}: timeout", f"the guard did not answer within {self.seconds:g} s"
            )
        return said


def within(seconds: float, call: Callable[[], Made]) -> Made | None:
    """Return what a call gives, or None if it takes longer or raises; the call then goes on in its thread, unheard."""
    found: list[Made] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception:
            return

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None

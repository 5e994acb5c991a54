"""Enforcement: nothing is called unless the guard allows it, and everything it said is on record."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rolecraft.errors import UserError
from rolecraft.guard._chain import decide_closed, within
from rolecraft.guard._decision import Action, CallBlocked, Decision, Guard, RunStopped, ToolCall
from rolecraft.guard._gate import Gate
from rolecraft.guard._log import DecisionLog
from rolecraft.guard._values import NotPlain, plain_arguments

if TYPE_CHECKING:
    from rolecraft.agents import ToolRegistry

Approve = Callable[[str, Action, Decision], bool]
"""Asks a person: (principal, action, decision) -> whether to go on. Only `True` approves."""


@dataclass(frozen=True)
class Outcome:
    """What came of a proposed call."""

    decision: Decision
    value: Any = None
    """What the call returned; None where it did not happen."""


class Enforcer:
    """Carries out calls that a guard allows, and only those.

    The arguments are copied first; the copy is what the guard sees and what the tool gets, so that nobody can change
    them in between. Decision and call are one step: the policy of a `PolicyGuard` is not replaced before the call ends.

    Args:
        guard: Decides.
        log: Where decisions are written; a new one in memory if left out.
        approve: Asked where the guard says `ask`; without it such calls are blocked.
        patience: Seconds that `approve` may take; silence blocks.
    """

    def __init__(
        self, guard: Guard, log: DecisionLog | None = None, *, approve: Approve | None = None, patience: float = 60.0
    ) -> None:
        if not patience > 0:
            raise UserError(f"patience must be a positive number of seconds, got {patience!r}.")
        self.guard = guard
        self.log = DecisionLog() if log is None else log
        self.stopped: Decision | None = None
        """The decision that ended the run; everything after it is blocked."""
        self._approve = approve
        self._patience = patience
        self._lock = threading.Lock()

    def check(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Decide, ask where that is needed, and write it down; allows or does not, and never raises."""
        start = time.perf_counter()
        if self.stopped is not None:
            decision = replace(self.stopped, effect="block", reason=f"the run was ended: {self.stopped.reason}")
        else:
            decision = decide_closed(self.guard, principal, action, context)
        seconds = time.perf_counter() - start
        note = ""
        if decision.effect == "ask":
            decision, note = self._asked(principal, action, decision)
        if decision.effect == "stop":
            with self._lock:
                self.stopped = self.stopped or decision
        self.log.add(principal, action, decision, seconds, note)
        return decision

    @property
    def gate(self) -> Gate | None:
        """What holds changes of policy off, where the guard has one; in a chain, the first one's."""
        guards = getattr(self.guard, "guards", (self.guard,))
        return next((gate for guard in guards if isinstance(gate := getattr(guard, "gate", None), Gate)), None)

    def lease(self) -> AbstractContextManager[None]:
        """Return the context within which decision and call are one step."""
        return nullcontext() if self.gate is None else self.gate.call()

    def call(
        self, principal: str, action: Action, run: Callable[..., Any], context: Mapping[str, Any] | None = None
    ) -> Outcome:
        """Carry a call out if the guard allows it; `run` gets the arguments by name, and what it raises is raised."""
        try:
            copy = ToolCall(action.name, plain_arguments(action.arguments))
        except NotPlain as error:
            refused = Decision("block", "arguments", str(error))
            self.log.add(principal, action, refused, 0.0)
            return Outcome(refused)
        with self.lease():
            decision = self.check(principal, copy, context)
            return Outcome(decision, run(**copy.arguments)) if decision.allowed else Outcome(decision)

    def _asked(self, principal: str, action: Action, decision: Decision) -> tuple[Decision, str]:
        if self._approve is None:
            return replace(decision, effect="block", reason=f"{decision.reason} (nobody can be asked)"), "nobody to ask"
        approve = self._approve
        said = within(self._patience, lambda: approve(principal, action, decision))
        if said is True:
            return replace(decision, effect="allow"), "approved"
        why = f"no answer within {self._patience:g} s" if said is None else "refused by the user"
        return replace(decision, effect="block", reason=f"{decision.reason} ({why})"), why


def guard_function(
    function: Callable[..., Any], enforcer: Enforcer, principal: str, *, name: str = ""
) -> Callable[..., Any]:
    """Return a function that is called only where the guard allows it.

    Arguments are given to the guard by name, defaults written out, so that a default is checked like any other value.

    Args:
        function: What to guard; must not take a variable number of positional arguments.
        enforcer: Decides and logs.
        principal: Id of the role that calls.
        name: Name of the tool in the policy; the function's own if left out.

    Raises:
        UserError: If the function takes `*args`, whose values have no names.
    """
    name = name or function.__name__
    signature = inspect.signature(function)
    kinds = {one.kind for one in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise UserError(f"{name} takes positional arguments without names, which no policy can speak of; name them.")
    rest = next((key for key, one in signature.parameters.items() if one.kind is inspect.Parameter.VAR_KEYWORD), None)

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments |= arguments.pop(rest, {}) if rest else {}
        outcome = enforcer.call(principal, ToolCall(name, arguments), function)
        return _value(outcome, name)

    return guarded


def guard_registry(registry: ToolRegistry, enforcer: Enforcer, principal: str) -> ToolRegistry:
    """Return the registry with every tool guarded; a blocked call raises `CallBlocked`, which `execute` reports."""
    from rolecraft.agents import ToolRegistry as Registry

    def guarded(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda **arguments: _value(enforcer.call(principal, ToolCall(name, arguments), run), name)

    return Registry(
        replace(tool, run=None if tool.run is None else guarded(name, tool.run)) for name, tool in registry.items()
    )


def _value(outcome: Outcome, name: str) -> Any:
    if outcome.decision.allowed:
        return outcome.value
    raise (RunStopped if outcome.decision.effect == "stop" else CallBlocked)(outcome.decision, name)

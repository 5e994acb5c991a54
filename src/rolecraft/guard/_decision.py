"""The contract of a guard: who wants to do what, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from rolecraft.errors import RolecraftError, UserError

Effect = Literal["allow", "block", "ask", "stop"]
EFFECTS: tuple[Effect, ...] = ("allow", "block", "ask", "stop")
_FALLBACKS = {"allow": "none", "block": "refuse and say why", "ask": "ask a person", "stop": "end the run"}


class Action(Protocol):
    """What an agent proposes: the name of a tool and its arguments by name. `rolecraft.agents.Call` is one."""

    @property
    def name(self) -> str:
        """Name of the tool, or of the kind of action."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Its arguments by name."""


@dataclass(frozen=True)
class ToolCall:
    """A plain `Action`, for callers that have no other."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a guard says of a proposed action.

    Raises:
        UserError: If the effect is none of `EFFECTS`.
    """

    effect: Effect
    """`allow`; `block` (the action does not happen, the agent is told why); `ask` (it happens if a person approves
    in time); `stop` (it does not happen, and neither does anything after it)."""
    rule: str
    """The rule that decided, such as `send_money[0]`; `default` where none did."""
    reason: str
    """For the agent and the log."""
    version: str = ""
    """Version of the policy that decided."""

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise UserError(f"a decision's effect must be one of {', '.join(EFFECTS)}, got {self.effect!r}.")

    @property
    def allowed(self) -> bool:
        """Whether the action may happen now."""
        return self.effect == "allow"

    @property
    def fallback(self) -> str:
        """What happens instead of the action."""
        return _FALLBACKS[self.effect]


@runtime_checkable
class Guard(Protocol):
    """Decides about proposed actions; must not carry them out."""

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Decide.

        Args:
            principal: Id of the role that wants to act.
            action: What it wants to do.
            context: What else the guard may know, such as the state of a world. Untrusted text has no place here.
        """


class CallBlocked(RolecraftError):
    """A guarded call was not carried out; `decision` says why."""

    def __init__(self, decision: Decision, name: str) -> None:
        super().__init__(f"{name} was blocked by {decision.rule}: {decision.reason}")
        self.decision = decision


class RunStopped(CallBlocked):
    """A rule ended the run: nothing more is carried out through this enforcer."""


@dataclass(frozen=True)
class FunctionGuard:
    """A guard made of a predicate: `True` allows, a text blocks with that reason, anything else blocks."""

    check: Callable[[str, Action, Mapping[str, Any]], bool | str | Decision]
    name: str = "predicate"

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Ask the predicate."""
        said = self.check(principal, action, context or {})
        if isinstance(said, Decision):
            return said
        if said is True:
            return Decision("allow", self.name, "")
        return Decision("block", self.name, said if isinstance(said, str) else f"{self.name} does not hold")

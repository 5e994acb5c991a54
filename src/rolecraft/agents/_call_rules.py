"""Rules of tool calling, enforced: a deterministic validator that repairs, refuses and says why.

These are the rules of hard-enforced function calling (HEF, arXiv 2509.00482), which states them as prompt text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rolecraft.agents._tools import Argument, Call, Tool, ToolRegistry
from rolecraft.errors import MissingDependencyError, did_you_mean

VIOLATIONS = (
    "unknown-name", "unknown-argument", "schema", "ungrounded", "duplicate", "already-answered", "too-many",
    "parse-error",
)  # fmt: skip
"""Kinds of violation."""


@dataclass(frozen=True)
class Violation:
    """One broken rule."""

    kind: str
    """One of `VIOLATIONS`."""
    call: Call | None
    message: str
    """For the agent: what was wrong, and what is expected."""
    repaired: bool = False
    """The call was mended and stands; otherwise it was dropped."""


@dataclass(frozen=True)
class CheckedCalls:
    """What is left of the calls of a turn, and what was wrong with them."""

    calls: tuple[Call, ...]
    violations: tuple[Violation, ...]

    @property
    def retry(self) -> tuple[Violation, ...]:
        """The violations that a second try could mend; nothing is gained by asking again for what was known."""
        return tuple(v for v in self.violations if not v.repaired and v.kind not in ("duplicate", "already-answered"))


@dataclass(frozen=True)
class CallRules:
    """The rules for one agent."""

    registry: ToolRegistry
    most_calls: int = 3
    """Per turn; later ones are dropped."""
    grounded: bool = True
    """Demand that values without a list of allowed ones occur in the dialogue."""
    free: frozenset[str] = field(default_factory=frozenset)
    """Arguments, as `tool.argument`, whose value need not occur in the dialogue."""

    def check(self, calls: Sequence[Call], dialogue: str, answered: Sequence[Call] = ()) -> CheckedCalls:
        """Return the calls that may be executed, repaired where that is safe.

        Repairs: undefined arguments are dropped, and a text that spells a number or a truth value becomes one.

        Args:
            calls: As the agent asked for them.
            dialogue: All that was said so far, in which values are looked for.
            answered: Earlier calls whose results still stand in the context.

        Raises:
            MissingDependencyError: If `jsonschema` is not installed.
        """
        kept: list[Call] = []
        violations: list[Violation] = []
        known = {call.key for call in answered}
        for asked in calls:
            tool = self.registry.get(asked.name)
            if tool is None:
                near = did_you_mean(asked.name, self.registry)
                message = f"{asked.name} does not exist.{near} Use a listed function or none."
                violations.append(Violation("unknown-name", asked, message))
                continue
            call, repairs = _repaired(tool, asked)
            violations += repairs
            problem = (
                self._misfit(tool, call)
                or self._ungrounded(tool, call, dialogue)
                or _repeated(call, kept, known)
                or self._too_many(call, kept)
            )
            if problem:
                violations.append(problem)
            else:
                kept.append(call)
        return CheckedCalls(tuple(kept), tuple(violations))

    def _misfit(self, tool: Tool, call: Call) -> Violation | None:
        try:
            from jsonschema import Draft202012Validator
        except ImportError:
            raise MissingDependencyError("checking calls needs jsonschema: pip install 'rolecraft[analysis]'") from None
        error = next(iter(sorted(Draft202012Validator(tool.schema).iter_errors(dict(call.arguments)), key=str)), None)
        if error is None:
            return None
        place = ".".join(str(part) for part in error.absolute_path)
        return Violation("schema", call, f"{call.name}{f', {place}' if place else ''}: {error.message}.")

    def _ungrounded(self, tool: Tool, call: Call, dialogue: str) -> Violation | None:
        if not self.grounded:
            return None
        for name, value in call.arguments.items():
            if f"{call.name}.{name}" in self.free or tool.arguments[name].type in ("boolean", "object", "array"):
                continue
            if not re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", dialogue, re.IGNORECASE):
                message = f"{call.name}, {name}: {value!r} was never said; take values from the dialogue."
                return Violation("ungrounded", call, message)
        return None

    def _too_many(self, call: Call, kept: Sequence[Call]) -> Violation | None:
        if len(kept) < self.most_calls:
            return None
        return Violation("too-many", call, f"at most {self.most_calls} calls per turn; {call.name} was dropped.")


def _repeated(call: Call, kept: Sequence[Call], answered: set[str]) -> Violation | None:
    if call.key in {other.key for other in kept}:
        return Violation("duplicate", call, f"{call.name} was called twice with the same arguments.")
    if call.key in answered:
        return Violation("already-answered", call, f"the result of {call.name} already stands in the context.")
    return None


def _repaired(tool: Tool, call: Call) -> tuple[Call, list[Violation]]:
    undefined = [name for name in call.arguments if name not in tool.arguments]
    given = {name: value for name, value in call.arguments.items() if name in tool.arguments}
    mended = {name: _coerced(value, tool.arguments[name]) for name, value in given.items()}
    result = Call(call.name, mended)
    violations = [
        Violation("unknown-argument", call, f"{call.name} has no argument {name!r}.", repaired=True)
        for name in undefined
    ]
    violations += [
        Violation("schema", call, f"{call.name}, {name}: {given[name]!r} was read as {mended[name]!r}.", repaired=True)
        for name in given
        if type(mended[name]) is not type(given[name])
    ]
    return result, violations


def _coerced(value: Any, argument: Argument) -> Any:
    if argument.type not in ("integer", "number", "boolean") or not isinstance(value, str):
        return value
    try:
        read = json.loads(value.strip().lower())
    except json.JSONDecodeError:
        return value
    right: Mapping[str, Any] = {"integer": int, "number": int | float, "boolean": bool}
    fits = isinstance(read, right[argument.type]) and (argument.type == "boolean" or not isinstance(read, bool))
    return read if fits else value

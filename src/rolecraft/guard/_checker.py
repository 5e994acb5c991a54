"""The policy guard: a policy compiled to short lists of predicates, decided in microseconds."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard._decision import Action, Decision, Effect
from rolecraft.guard._gate import Gate
from rolecraft.guard._policy import Policy, Rule, ordered
from rolecraft.guard._schema import Check, compiled_once, first_misfit, spoken_values, strict
from rolecraft.guard._tool_schemas import ToolSchema
from rolecraft.guard._values import NotPlain, look_alike, plain_arguments


class _Entry(NamedTuple):
    holds: Check | None
    """None: always."""
    allows: bool
    decision: Decision
    rule: Rule


class _Tool(NamedTuple):
    entries: tuple[_Entry, ...]
    last: Effect
    """What happens when no rule decides."""


class Update(NamedTuple):
    """A rule that changed the rules."""

    principal: str
    tool: str
    """Whose rule it is."""
    place: int
    """Of the rule among those of the tool, in the order they were tried then."""


@dataclass(frozen=True)
class _State:
    """All that a decision reads, replaced as a whole."""

    policy: Policy
    version: str
    table: Mapping[tuple[str | None, str], _Tool]
    principals: frozenset[str]
    """Those with entries of their own in the table."""
    updates: tuple[Update, ...] = ()
    """What rules have changed since the policy was put in place."""

    def entries(self, principal: str, name: str) -> tuple[_Entry, ...]:
        """Return what is tried for a call, in order."""
        made = self.table.get((principal if principal in self.principals else None, name))
        return () if made is None else made.entries


class PolicyGuard:
    """Decides by a policy (Progent, arXiv 2504.11703). What no rule allows is refused.

    Rules are tried in order of priority, forbidding ones first. The first that matches decides; a rule that allows may
    replace the rules of some tools for its principal. Values are compared as they are: "5" is no number, and a letter
    that looks like another is not that other one.

    Args:
        policy: The policy.
        tools: Schemas of the tools' arguments. With them a call of an unknown tool, or with missing, unknown or
            ill-typed arguments, is refused before any rule is read.

    Raises:
        UserError: If the policy's restrictions cannot be compiled.
    """

    def __init__(self, policy: Policy, tools: Mapping[str, ToolSchema] | None = None) -> None:
        self._tools = dict(tools) if tools is not None else None
        self._lock = threading.Lock()
        self._count = 0
        self.gate = Gate()
        self._first = self._state = self._compile(policy)

    @property
    def policy(self) -> Policy:
        """The policy as it was given; what rules have updated since is in `rules`."""
        return self._state.policy

    @property
    def version(self) -> str:
        """Hash of the policy, and the number of changes since the guard was made."""
        return self._state.version

    @property
    def tools(self) -> Mapping[str, ToolSchema] | None:
        """Schemas of the tools, where they were given."""
        return self._tools

    @property
    def updates(self) -> tuple[Update, ...]:
        """What rules have changed since the policy was put in place, in order."""
        return self._state.updates

    def resumed(self, updates: Iterable[Sequence[Any]]) -> PolicyGuard:
        """Return another guard by the same policy, in which rules have made these updates already.

        Args:
            updates: As another guard's `updates` has them; lists, as JSON makes of them, will do.

        Raises:
            UserError: If the policy has no such rule, or it makes no update.
        """
        other = PolicyGuard.__new__(PolicyGuard)
        other._tools, other._lock, other._count, other.gate = self._tools, threading.Lock(), 1, self.gate
        first = self._first
        other._first = other._state = first
        for update in updates:
            principal, tool, place = update
            made = other._state.table.get((principal if principal in other._state.principals else None, tool))
            if made is None or not 0 <= place < len(made.entries) or made.entries[place].rule.update is None:
                raise UserError(f"the policy has no rule {place} of {tool!r} for {principal!r} that makes an update.")
            other._update(principal, tool, made.entries[place], other._state)
        return other

    def rules(self, principal: str | None) -> dict[str, tuple[Rule, ...]]:
        """Return the rules that hold for a principal now, in the order they are tried."""
        state = self._state
        key = principal if principal in state.principals else None
        return {
            tool: tuple(entry.rule for entry in made.entries) for (who, tool), made in state.table.items() if who == key
        }

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Decide about a call; never raises. The context is not read.

        A decision and the update that its rule makes are one step. To make decision and call one step as well, do both
        within `gate.call()`, as `Enforcer` does.
        """
        state = self._state
        try:
            arguments = plain_arguments(action.arguments)
            name = action.name
            while (said := self._said(state, principal, name, arguments)) is None:
                state = self._state
            return said
        except NotPlain as error:
            return Decision("block", "arguments", str(error), state.version)
        except Exception as error:  # whatever a call holds, it must not pass by breaking the guard
            return Decision("block", "error", f"{type(error).__name__}: {error!s:.200}", state.version)

    def _said(self, state: _State, principal: str, name: str, arguments: dict[str, Any]) -> Decision | None:
        """Decide by one state; None if the rule makes an update and the state is no longer the newest."""
        made = state.table.get((principal if principal in state.principals else None, name))
        if self._tools is not None or made is None:
            refused = self._unknown(state, name, arguments, made)
            if refused is not None:
                return refused
        assert made is not None  # or it was refused above
        for entry in made.entries:
            if entry.holds is None or entry.holds(arguments):
                if entry.allows:
                    strange = self._strange(arguments)
                    if strange:
                        return Decision("block", "arguments", strange, state.version)
                    if entry.rule.update is not None and not self._update(principal, name, entry, state):
                        return None
                return entry.decision
        return Decision(made.last, "default", _why_not(name, made, arguments), state.version)

    def permits(self, principal: str, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether the rules allow a call, changing nothing."""
        state = self._state
        made = state.table.get((principal if principal in state.principals else None, name))
        if made is None:
            return False
        try:
            plain = plain_arguments(arguments)
            if (self._tools is not None and self._unknown(state, name, plain, made)) or self._strange(plain):
                return False
            matching = (entry for entry in made.entries if entry.holds is None or entry.holds(plain))
            return next((entry.allows for entry in matching), False)
        except Exception:  # as in `decide`
            return False

    def replace(self, policy: Policy, *, timeout: float = 5.0) -> str:
        """Put another policy in place, between calls, and return its version.

        Raises:
            UserError: If the policy cannot be compiled, or calls are still in flight after `timeout` seconds. The old
                policy then stays.
        """
        fresh = self._compile(policy)
        with self.changing(timeout):
            self._first = self._state = fresh
        return fresh.version

    @contextmanager
    def changing(self, timeout: float = 5.0) -> Iterator[None]:
        """Hold off all calls and updates.

        Raises:
            UserError: If calls are still in flight after `timeout` seconds.
        """
        with self.gate.change(timeout) as free:
            if not free:
                raise UserError(
                    f"the policy was not changed: {self.gate.calls} calls are still in flight after {timeout:g} s."
                )
            with self._lock:
                yield

    def _compile(self, policy: Policy) -> _State:
        self._count += 1
        version = f"{policy.version}.{self._count}"
        table = {
            (role, tool): _compile_tool(tool, rules, policy, version)
            for role in (None, *policy.roles)
            for tool, rules in policy.rules(role).items()
        }
        return _State(policy, version, table, frozenset(policy.roles))

    def _update(self, principal: str, name: str, entry: _Entry, state: _State) -> bool:
        """Put the rules of an update in place; False if the state is no longer the one the decision was made by."""
        with self._lock:
            if state is not self._state:
                return False
            self._count += 1
            version = f"{state.policy.version}.{self._count}"
            table = dict(state.table)
            if principal not in state.principals:
                table |= {(principal, tool): made for (who, tool), made in state.table.items() if who is None}
            for tool, rules in (entry.rule.update or {}).items():
                table[principal, tool] = _compile_tool(tool, ordered(rules), state.policy, version)
            place = next(n for n, one in enumerate(state.entries(principal, name)) if one is entry)
            made = Update(principal, name, place)
            self._state = _State(state.policy, version, table, state.principals | {principal}, (*state.updates, made))
            return True

    def _unknown(self, state: _State, name: str, arguments: dict[str, Any], made: _Tool | None) -> Decision | None:
        """Refuse what the tools' schemas and the policy do not know."""
        if made is None or (self._tools is not None and name not in self._tools):
            known = {tool for _, tool in state.table} | set(self._tools or ())
            if not isinstance(name, str):
                return Decision("block", "arguments", f"a tool's name must be text, got {name!r:.40}", state.version)
            alike = look_alike(name, known)
            near = "" if name in known else did_you_mean(str(name), known)
            hint = f" It looks like {alike!r} but is another name." if alike else near
            effect = state.policy.default if name in known else "block"
            return Decision(effect, "default", f"no rule allows the tool {name!r:.80}.{hint}", state.version)
        misfit = self._tools[name].misfit(arguments) if self._tools is not None else ""
        return Decision("block", "schema", misfit, state.version) if misfit else None

    def _strange(self, arguments: dict[str, Any]) -> str:
        """Name an argument that no schema vouches for and whose name is not ASCII: it may pass for another one.

        This hangs on nothing that a change of policy could change, so that narrowing a policy never lets one in.
        """
        if self._tools is not None:
            return ""
        name = next((name for name in arguments if not name.isascii()), "")
        return f"the argument {name!r:.60} is not plain ASCII and no tool's schema has it" if name else ""


def _compile_tool(tool: str, rules: tuple[Rule, ...], policy: Policy, version: str) -> _Tool:
    entries = []
    for place, rule in enumerate(rules):
        schema = rule.schema
        name = rule.where or f"{tool}[{place}]"
        try:
            holds = None if schema is None else compiled_once(schema)
        except ValueError as error:
            raise UserError(f"{name}: the restriction cannot be compiled: {str(error)[:200]}") from None
        if rule.effect == "allow":
            decision = Decision("allow", name, "", version)
        else:
            reason = f"{tool} is forbidden" + (f" with this {' and '.join(rule.when)}" if rule.when else "")
            decision = Decision(rule.fallback or policy.default, name, rule.description or reason, version)
        entries.append(_Entry(holds, rule.effect == "allow", decision, rule))
    last = rules[-1].fallback if rules else None
    return _Tool(tuple(entries), last or policy.default)


def _why_not(name: str, made: _Tool, arguments: dict[str, Any]) -> str:
    """Say which restriction of the last allowing rule the call missed, so that the agent can do better."""
    rule = next((entry.rule for entry in reversed(made.entries) if entry.allows), None)
    if rule is None:
        return f"no rule allows {name}"
    for argument, schema in rule.when.items():
        if argument not in arguments:
            continue
        said = first_misfit(arguments[argument], strict(schema))
        if said:
            values = arguments[argument]
            for value in values if isinstance(values, list) else [values]:
                alike = look_alike(value, spoken_values(schema)) if isinstance(value, str) else ""
                if alike:
                    said += f"; it looks like {alike!r:.60} but is another text"
            return f"{argument}: {said}"
    return f"no rule allows {name} with these arguments"

"""Comparing policies by z3: which of two allows more, and updates that may only take rights away.

Every difference is backed by a call that was tried on real guards of both policies. What can be neither shown nor
refuted is unknown, and unknown counts as widening.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rolecraft.guard._checker import PolicyGuard
from rolecraft.guard._policy import Policy, Rule
from rolecraft.guard._solver import Formulas
from rolecraft.guard._tool_schemas import ToolSchema

Relation = Literal["equal", "narrower", "wider", "incomparable", "unknown"]
Tools = Mapping[str, ToolSchema] | None

_RELATIONS: Mapping[tuple[str, str], Relation] = {
    ("no", "no"): "equal", ("no", "yes"): "narrower", ("no", "unknown"): "narrower", ("yes", "no"): "wider",
    ("yes", "yes"): "incomparable", ("yes", "unknown"): "wider",
}  # fmt: skip
"""By whether some call is gained, and lost."""


class Witness(NamedTuple):
    """A call that one policy allows and the other does not, as both guards say."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolDifference:
    """How the rules of one tool changed for one role."""

    role: str
    """Empty: everybody without rules of their own."""
    tool: str
    relation: Relation
    """What the new rules are, seen from the old."""
    gained: Witness | None = None
    """A call that only the new rules allow."""
    lost: Witness | None = None
    """A call that only the old rules allow."""
    note: str = ""


@dataclass(frozen=True)
class PolicyDifference:
    """How a policy changed."""

    tools: tuple[ToolDifference, ...]
    """The tools whose rules changed."""

    @property
    def relation(self) -> Relation:
        """What the new policy is, seen from the old: `narrower` if it takes rights away and gives none."""
        found = {each.relation for each in self.tools}
        if "incomparable" in found or {"narrower", "wider"} <= found:
            return "incomparable"
        worst_first: tuple[Relation, ...] = ("wider", "unknown", "narrower")
        return next((relation for relation in worst_first if relation in found), "equal")

    @property
    def widens(self) -> bool:
        """Whether it gives rights, or may."""
        return self.relation not in ("equal", "narrower")


def policy_diff(old: Policy, new: Policy, tools: Tools = None) -> PolicyDifference:
    """Compare two policies, role by role and tool by tool.

    Args:
        old: What holds now.
        new: What shall hold.
        tools: Schemas of the tools; with them only calls that fit are compared.

    Raises:
        MissingDependencyError: If z3 is not installed.
    """
    before, after = PolicyGuard(old, tools), PolicyGuard(new, tools)
    roles: list[str | None] = [None, *dict.fromkeys([*old.roles, *new.roles])]
    found = []
    for role in roles:
        for difference in compare_rules(before, after, old.rules(role), new.rules(role), role, tools):
            if role is None or replace(difference, role="") not in found:  # what everybody's rules say is said once
                found.append(difference)
    return PolicyDifference((*found, *_of_caps(old, new)))


def _of_caps(old: Policy, new: Policy) -> list[ToolDifference]:
    """Compare the caps on activations: without one anything goes, and bounds of different things are unknown."""
    found = []
    for role in (None, *dict.fromkeys([*old.caps, *new.caps])):
        first, second = (policy.caps.get(role or "", policy.cap) for policy in (old, new))
        if first == second:
            continue
        relation: Relation = "narrower" if first is None else "wider" if second is None else first.compared(second)
        found.append(ToolDifference(role or "", "cap", relation, note="bounds of activations"))
    return found


def compare_rules(
    before: PolicyGuard,
    after: PolicyGuard,
    old: Mapping[str, tuple[Rule, ...]],
    new: Mapping[str, tuple[Rule, ...]],
    role: str | None,
    tools: Tools,
) -> list[ToolDifference]:
    """Compare the rules of a role by tool; unchanged tools are left out.

    Args:
        before: A guard by the old rules, on which calls are tried.
        after: A guard by the new rules.
        old: Rules by tool in the order they are tried.
        new: Likewise.
        role: Whose they are.
        tools: Schemas of the tools.
    """
    found = []
    for tool in dict.fromkeys([*old, *new]):
        first, second = old.get(tool, ()), new.get(tool, ())
        if [rule.row() for rule in first] == [rule.row() for rule in second]:
            continue
        schema = tools.get(tool) if tools is not None else None
        gained, gained_call = _reachable(second, first, schema, tool, role, after, before)
        lost, lost_call = _reachable(first, second, schema, tool, role, before, after)
        note = ""
        if _updates(second) and _updates(second) != _updates(first):
            gained, note = ("unknown" if gained == "no" else gained), "its rules carry updates that the old ones do not"
        relation = _RELATIONS.get((gained, lost), "unknown")
        if relation == "unknown" and not note:
            note = "whether it allows more could be neither shown nor refuted"
        found.append(ToolDifference(role or "", tool, relation, gained_call, lost_call, note))
    return found


def _updates(rules: tuple[Rule, ...]) -> list[Any]:
    return [rule.row() for rule in rules if rule.update is not None]


def _reachable(
    wide: tuple[Rule, ...], narrow: tuple[Rule, ...], schema: ToolSchema | None, tool: str, role: str | None,
    on_wide: PolicyGuard, on_narrow: PolicyGuard,
) -> tuple[str, Witness | None]:  # fmt: skip
    """Return whether some call is allowed by `wide` and not by `narrow` (yes, no, unknown), and one that is."""
    if not any(rule.effect == "allow" for rule in wide):
        return "no", None
    formulas = Formulas(schema)
    said, arguments = formulas.solve(formulas.permits(wide, True), formulas.permits(narrow, False))
    if said == "unsat":
        return "no", None
    if arguments is not None:
        who = "" if role is None else role
        if on_wide.permits(who, tool, arguments) and not on_narrow.permits(who, tool, arguments):
            return "yes", Witness(tool, arguments)
    return "unknown", None


@dataclass(frozen=True)
class UpdateVerdict:
    """What became of a proposed update of the rules."""

    accepted: bool
    reason: str
    differences: tuple[ToolDifference, ...] = ()
    version: str = ""
    """The guard's version afterwards."""


def accept_update(
    guard: PolicyGuard,
    new: Policy,
    *,
    approve: Callable[[PolicyDifference], bool] | None = None,
    timeout: float = 5.0,
) -> UpdateVerdict:
    """Put a policy in place if it only takes rights away (monotone confinement, Progent v3).

    The comparison is with what holds now, updates by rules included, and no call is decided between comparison and
    change.

    Args:
        guard: Whose policy is to be changed.
        new: What a generator proposes; written by nobody, so it may be anything.
        approve: Asked about an update that gives rights, or may; left out: such an update is dropped.
        timeout: Seconds to wait for calls in flight.

    Raises:
        UserError: If calls are still in flight after `timeout` seconds, or the policy cannot be compiled.
    """
    after = PolicyGuard(new, guard.tools)
    with guard.changing(timeout):
        state = guard._state
        roles: list[str | None] = [None, *sorted({*state.principals, *new.roles})]
        found = [
            difference
            for role in roles
            for difference in compare_rules(guard, after, guard.rules(role), new.rules(role), role, guard.tools)
        ]
        found += _of_caps(state.policy, new)
        whole = PolicyDifference(tuple(found))
        approved = whole.widens and approve is not None and approve(whole) is True
        if not whole.widens or approved:
            guard._first = guard._state = guard._compile(new)
    if whole.widens and not approved:
        worst = next(each for each in found if each.relation not in ("equal", "narrower"))
        shown = f", for example {worst.gained.arguments!r:.200}" if worst.gained else ""
        return UpdateVerdict(
            False, f"{worst.tool}: {worst.relation}{shown}{f' ({worst.note})' if worst.note else ''}",
            tuple(found), guard.version,
        )  # fmt: skip
    return UpdateVerdict(True, "approved" if approved else whole.relation, tuple(found), guard.version)

"""Looking a policy over: types, unknown tools and arguments, overlaps, rules that can never decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rolecraft.errors import did_you_mean
from rolecraft.guard._analysis import Tools
from rolecraft.guard._policy import Policy, Rule
from rolecraft.guard._schema import JOINS, OF_TYPE, spoken_values
from rolecraft.guard._solver import Formulas
from rolecraft.guard._tool_schemas import ToolSchema
from rolecraft.guard._values import suspicious

LINT_RULES = (
    "unknown-tool", "unknown-argument", "keyword-type", "argument-type", "never-matches", "unreachable", "overlap",
    "unanchored", "look-alike", "unrestricted", "no-allow",
)  # fmt: skip
"""What is looked for."""


@dataclass(frozen=True)
class PolicyFinding:
    """Something to look at in a policy."""

    where: str
    kind: str
    """One of `LINT_RULES`."""
    severity: Literal["error", "warning"]
    message: str


def lint_policy(policy: Policy, tools: Tools = None, *, solve: bool = True) -> list[PolicyFinding]:
    """Look a policy over.

    Args:
        policy: The policy.
        tools: Schemas of the tools; without them, names and types of arguments cannot be checked.
        solve: Look for unreachable rules and overlaps too, by z3.

    Returns:
        Findings in the order of the rules; those that everybody's rules have are not repeated for roles.
    """
    found: dict[tuple[str, str, str], PolicyFinding] = {}
    for role in (None, *policy.roles):
        for tool, rules in policy.rules(role).items():
            own = rules if role is None else tuple(r for r in rules if r in policy.roles[role].get(tool, ()))
            for each in _of_tool(tool, rules, own, tools, solve):
                found.setdefault((each.where, each.kind, each.message), each)
    return list(found.values())


def _of_tool(
    tool: str, rules: tuple[Rule, ...], own: tuple[Rule, ...], tools: Tools, solve: bool
) -> Iterator[PolicyFinding]:
    schema = tools.get(tool) if tools is not None else None
    if tools is not None and schema is None and own:
        near = did_you_mean(tool, tools)
        yield PolicyFinding(own[0].where or tool, "unknown-tool", "error", f"no tool {tool!r}.{near}")
    if odd := suspicious(tool):
        yield PolicyFinding(tool, "look-alike", "warning", f"the tool's name {tool!r} {odd}")
    if own and not any(rule.effect == "allow" for rule in rules):
        yield PolicyFinding(own[0].where or tool, "no-allow", "warning", f"no rule allows {tool}; it is refused anyway")
    for rule in own:
        yield from _of_rule(tool, rule, schema)
    if solve:
        yield from _by_solver(rules, own, schema)


def _of_rule(tool: str, rule: Rule, schema: ToolSchema | None) -> Iterator[PolicyFinding]:
    where = rule.where or tool
    if rule.effect == "allow" and not rule.when and (schema is None or schema.arguments):
        yield PolicyFinding(where, "unrestricted", "warning", f"{tool} is allowed with any arguments")
    for argument, restriction in rule.when.items():
        for message in _keyword_types(restriction):
            yield PolicyFinding(where, "keyword-type", "error", f"{argument}: {message}")
        if rule.effect == "allow":
            for pattern in _patterns(restriction):
                if not pattern.startswith("^") or not pattern.endswith("$"):
                    yield PolicyFinding(
                        where, "unanchored", "warning",
                        f"{argument}: the pattern {pattern!r:.60} is looked for anywhere; write ^...$",
                    )  # fmt: skip
        for value in [argument, *spoken_values(restriction)]:
            if isinstance(value, str) and (odd := suspicious(value)):
                yield PolicyFinding(where, "look-alike", "warning", f"{argument}: {value!r:.60} {odd}")
        if schema is None:
            continue
        if argument not in schema.arguments:
            near = did_you_mean(argument, schema.arguments)
            yield PolicyFinding(where, "unknown-argument", "error", f"{tool} has no argument {argument!r}.{near}")
        elif message := _type_clash(restriction, schema.types[argument]):
            yield PolicyFinding(where, "argument-type", "error", f"{argument}: {message}")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for key, part in schema.items():
        if key in JOINS:
            for entry in part:
                yield from _subschemas(entry)
        elif key in ("not", "if", "then", "else", "items"):
            yield from _subschemas(part)
        elif key == "properties":
            for entry in part.values():
                yield from _subschemas(entry)


def _keyword_types(schema: Mapping[str, Any]) -> Iterator[str]:
    for part in _subschemas(schema):
        kinds = part.get("type")
        if kinds is None:
            continue
        kinds = [kinds] if isinstance(kinds, str) else kinds
        for key in part:
            needs = OF_TYPE.get(key)
            if needs and needs not in kinds and not (needs == "number" and "integer" in kinds):
                yield f"{key} says nothing about type {' or '.join(kinds)}"


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    for part in _subschemas(schema):
        if "pattern" in part:
            yield part["pattern"]


def _type_clash(schema: Mapping[str, Any], types: frozenset[str]) -> str:
    """Say how a restriction speaks of a type that the tool's argument cannot have; an empty text if it does not."""
    wide = types | ({"integer"} if "number" in types else set()) | ({"number"} if "integer" in types else set())
    if not types:
        return ""
    kinds = schema.get("type", [OF_TYPE[key] for key in schema if key in OF_TYPE])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not set(kinds) & wide:
        about = " or ".join(dict.fromkeys(kinds))
        return f"the restriction is about {about}, the argument is {' or '.join(sorted(types))}"
    return ""


def _by_solver(rules: tuple[Rule, ...], own: tuple[Rule, ...], schema: ToolSchema | None) -> Iterator[PolicyFinding]:
    for place, rule in enumerate(rules):
        if rule not in own:
            continue
        formulas = Formulas(schema)
        if rule.when and formulas.solve(formulas.matches(rule, True), formulas.all_present(rule.when))[0] == "unsat":
            yield PolicyFinding(rule.where, "never-matches", "error", "no call with these arguments meets the rule")
            continue
        earlier = rules[:place]
        if earlier:
            formulas = Formulas(schema)
            missed = [formulas.matches(other, False) for other in earlier]
            if formulas.solve(formulas.matches(rule, True), *missed)[0] == "unsat":
                names = ", ".join(other.where for other in earlier[-3:])
                yield PolicyFinding(rule.where, "unreachable", "error", f"earlier rules ({names}) decide all its calls")
                continue
        for other in earlier:
            if other.priority == rule.priority and other.effect != rule.effect:
                formulas = Formulas(schema)
                both = formulas.solve(formulas.matches(other, True), formulas.matches(rule, True))
                if both[0] != "unsat":
                    shown = f", for example {both[1]!r:.120}" if both[1] else ""
                    yield PolicyFinding(
                        rule.where, "overlap", "warning",
                        f"meets calls of {other.where} at the same priority; forbidding goes first{shown}",
                    )  # fmt: skip

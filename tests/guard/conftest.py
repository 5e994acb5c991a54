"""What the tests of guards share: a policy, and hypothesis strategies for policies, rules and calls."""

from __future__ import annotations

from hypothesis import strategies as st

from rolecraft.guard import PolicyGuard, ToolCall, make_policy

WORDS = ["a", "ab", "abc", "b", "bank", "x1", ""]
PATTERNS = ["a.*", "[ab]+", "^a", "b$", "x[0-9]{1,2}", "(a|b)c?"]
NAMES = ["who", "amount", "tags"]

texts = st.one_of(
    st.builds(lambda values: {"enum": values}, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True)),
    st.builds(lambda pattern: {"pattern": pattern}, st.sampled_from(PATTERNS)),
    st.builds(lambda least: {"minLength": least}, st.integers(0, 3)),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 3)),
)
numbers = st.one_of(
    st.builds(lambda most: {"maximum": most}, st.integers(-3, 5)),
    st.builds(lambda least: {"exclusiveMinimum": least}, st.integers(-3, 5)),
    st.builds(lambda of: {"type": "integer", "multipleOf": of}, st.integers(1, 3)),
    st.builds(lambda values: {"enum": values}, st.lists(st.sampled_from([0, 1, 2.5, True, None]), max_size=3)),
)
scalars = st.one_of(texts, numbers)
arrays = st.builds(
    lambda inner, least, most: {"type": "array", "items": inner, "minItems": least, "maxItems": most},
    scalars,
    st.integers(0, 2),
    st.integers(0, 3),
)
restrictions = st.recursive(
    st.one_of(scalars, arrays),
    lambda inner: st.one_of(
        st.builds(lambda part: {"not": part}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"oneOf": parts}, st.lists(inner, min_size=2, max_size=2)),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
    ),
    max_leaves=3,
)
rules = st.builds(
    lambda effect, priority, when: {"effect": effect, "priority": priority, "when": when},
    st.sampled_from(["allow", "allow", "forbid"]),
    st.integers(1, 2),
    st.dictionaries(st.sampled_from(NAMES), restrictions, max_size=2),
)
policies = st.builds(
    lambda made: make_policy({"tools": {"t": made}}),
    st.lists(rules, min_size=1, max_size=3),
)
values = st.recursive(
    st.one_of(st.sampled_from(WORDS), st.integers(-4, 6), st.sampled_from([2.5, True, False, None, "5"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
calls = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)


def guard_of(rules_by_tool, tools=None, fields=None):
    """Return a guard by rules in plain data."""
    return PolicyGuard(make_policy({"tools": rules_by_tool, **(fields or {})}), tools)


def call(name, **arguments):
    return ToolCall(name, arguments)

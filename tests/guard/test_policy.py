"""Policy files: what is read, what is refused and how, and that nothing malformed ever lets a call pass."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard import PolicyGuard, ToolCall, load_policy, make_policy, tool_schemas
from tests.guard.conftest import policies, rules


def one(**rule):
    return {"tools": {"t": [rule]}}


NESTED: dict = {"type": "string"}
for _ in range(30):
    NESTED = {"not": NESTED}


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (["t"], "expected a mapping"),
        ({"tool": {}}, "Did you mean 'tools'"),
        ({"format": 2}, "format 2"),
        ({"default": "deny"}, "block, stop, ask"),
        ({"tools": ["t"]}, "tools: expected a mapping"),
        ({"tools": {"t": {"effect": "allow"}}}, "tools.t: expected a list of rules"),
        (one(efect="allow"), "Did you mean 'effect'"),
        (one(effect="deny"), "allow, forbid"),
        (one(priority=0), "at least 1"),
        (one(priority=True), "at least 1"),
        (one(priority="1"), "at least 1"),
        (one(fallback="askk"), "Did you mean 'ask'"),
        (one(when=["a"]), "when: expected a mapping"),
        (one(when={"a": 3}), "mapping of JSON Schema or a pattern"),
        (one(when={"a": {"patern": "x"}}), "Did you mean 'pattern'"),
        (one(when={"a": {"$ref": "#"}}), "unknown keyword '$ref'"),
        (one(when={"a": {"type": "strin"}}), "Did you mean 'string'"),
        (one(when={"a": {"pattern": "["}}), "not taken"),
        (one(when={"a": {"pattern": "(?=a)b"}}), "linear-time"),
        (one(when={"a": {"pattern": "(a)\\1"}}), "linear-time"),
        (one(when={"a": "a{1,1000}{1,1000}"}), "too large"),
        (one(when={"a": "a)|(b"}), "not taken"),
        (one(when={"a": {"pattern": "a" * 2000}}), "2000 characters"),
        (one(when={"a": {"enum": "x"}}), "expected a list"),
        (one(when={"a": {"enum": [float("nan")]}}), "nan"),
        (one(when={"a": {"minLength": -1}}), "count of at least 0"),
        (one(when={"a": {"minLength": True}}), "count of at least 0"),
        (one(when={"a": {"maximum": "5"}}), "expected a number"),
        (one(when={"a": {"multipleOf": 0}}), "expected a number"),
        (one(when={"a": {"anyOf": []}}), "at least one entry"),
        (one(when={"a": {"items": [1]}}), "mapping of JSON Schema"),
        (one(when={"a": {"list": "friends"}}), "no list 'friends'"),
        (one(when={"a": NESTED}), "nested deeper"),
        (one(effect="forbid", update={}), "only a rule that allows"),
        ({"lists": {"a": "x"}}, "expected a list of values"),
        ({"roles": {"r": {"tool": {}}}}, "Did you mean 'tools'"),
        ({"name": 3}, "expected text"),
        ({"tools": {"t": [{}] * 6000}}, "more than 5000 rules"),
        ({1: 2}, "keys must be text"),
    ],
)
def test_bad_policies_say_what_is_wrong_and_where(data, part):
    with pytest.raises(UserError, match=None) as refused:
        make_policy(data, where="p.yaml")
    assert part in str(refused.value)
    assert str(refused.value).startswith("p.yaml")


def test_updates_may_not_nest_without_end():
    rule: dict = {}
    for _ in range(6):
        rule = {"update": {"t": [rule]}}
    with pytest.raises(UserError, match="deep"):
        make_policy({"tools": {"t": [rule]}})


def test_a_file_with_dates_and_doubled_keys(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("tools: {t: [{when: {day: {enum: [2024-05-01]}}}]}")
    with pytest.raises(UserError, match="Quote dates"):
        load_policy(path)
    path.write_text("tools:\n  t: [{}]\n  t: []\n")
    with pytest.raises(UserError, match="twice"):
        load_policy(path)


def test_named_lists_can_be_filled_and_are_written_out():
    data = {"lists": {"known": ["a"]}, "tools": {"t": [{"when": {"n": {"list": "known"}}}]}}
    assert PolicyGuard(make_policy(data)).permits("", "t", {"n": "a"})
    bound = make_policy(data, lists={"known": ["b"]})
    assert not PolicyGuard(bound).permits("", "t", {"n": "a"})
    assert PolicyGuard(bound).permits("", "t", {"n": "b"})
    assert not PolicyGuard(make_policy(data, lists={"known": []})).permits("", "t", {"n": "a"})
    with pytest.raises(UserError, match="Did you mean 'known'"):
        make_policy(data, lists={"knwon": []})


@settings(max_examples=60, deadline=None)
@given(policies)
def test_a_written_policy_reads_back_the_same(policy):
    again = make_policy(policy.row())
    assert again.version == policy.version
    assert again.row() == policy.row()


def test_versions_follow_the_content():
    first, second = (make_policy(one(when={"a": {"maximum": n}})) for n in (1, 2))
    assert first.version != second.version
    assert first.version == make_policy(one(when={"a": {"maximum": 1}})).version


def test_tool_schemas_are_read_in_every_usual_form_and_their_flaws_named():
    openai = {"type": "function", "function": {"name": "a", "parameters": {"properties": {"x": {"type": "string"}}}}}
    found = tool_schemas({"tools": [openai, {"name": "b", "input_schema": {"type": "object"}}]})
    assert set(found) == {"a", "b"}
    assert found["a"].misfit({"x": 3})
    assert not found["a"].misfit({"x": "3"})
    loop = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"items": {"$ref": "#/$defs/x"}}},
    }
    for entries, part in (
        ([{"description": "x"}], "needs a name"),
        ([{"name": "a"}], "inputSchema"),
        ([openai, openai], "twice"),
        ([{"name": "a", "parameters": loop}], "refers to itself"),
        ([{"name": "a", "parameters": {"properties": {"x": {"$ref": "http://x"}}}}], "points nowhere"),
        ([{"name": "a", "parameters": {"type": "array"}}], "of an object"),
        ([{"name": "a", "parameters": {"properties": {"x": {"pattern": "(?=a)"}}}}], "cannot be compiled"),
        (3, "expected a list"),
    ):
        with pytest.raises(UserError, match=part):
            tool_schemas(entries)


def test_deciding_needs_neither_solver_nor_server():
    code = (
        "import sys, rolecraft.guard as g\n"
        "assert 'jsonschema_rs' not in sys.modules\n"
        "guard = g.PolicyGuard(g.make_policy({'tools': {'t': [{'when': {'n': 'a+'}}]}}))\n"
        "assert guard.permits('', 't', {'n': 'aa'})\n"
        "heavy = ('z3', 'mcp', 'torch', 'jax', 'jsonschema', 'rolecraft.agents')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Malformed input never passes and never crashes.

junk = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.binary(max_size=3),
        st.sampled_from(["allow", "forbid", "tools", "t", "$ref", "pattern", "(a+)+", "(?=", "enum", "not", "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(
            st.one_of(
                st.sampled_from(["tools", "t", "when", "effect", "update", "type", "items", "anyOf", "roles"]),
                st.text(max_size=3), st.integers(),
            ),
            inner, max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@st.composite
def broken_policies(draw):
    """A well-formed policy of which one part is replaced by junk."""
    rule = dict(draw(rules))
    place = draw(st.sampled_from(["whole", "rule", "field", "schema", "keyword"]))
    spoiled = draw(junk)
    if place == "whole":
        return spoiled
    if place == "rule":
        return {"tools": {"t": [spoiled]}}
    if place == "field":
        rule[draw(st.sampled_from(["effect", "priority", "when", "fallback", "update", "extra"]))] = spoiled
    elif place == "schema":
        rule["when"] = {"n": spoiled}
    else:
        rule["when"] = {
            "n": {draw(st.sampled_from(["type", "enum", "pattern", "items", "not", "anyOf", "$ref"])): spoiled}
        }
    return {"tools": {"t": [rule]}}


def check_junk(policy, arguments, name):
    try:
        guard = PolicyGuard(make_policy(policy))
    except UserError:
        guard = PolicyGuard(make_policy({}))  # what a refused policy leaves in place: nothing
    for said in (guard.decide("r", ToolCall(name, arguments)), guard.decide("r", ToolCall("t", arguments))):
        if said.allowed:
            assert isinstance(policy, dict)
            assert guard.permits("r", "t", arguments), "an allowed call is allowed by a rule of a sound policy"
            assert any(rule.effect == "allow" for rule in guard.rules("r")["t"])


fuzz = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@fuzz
@given(broken_policies(), junk, junk)
def test_malformed_policies_and_calls_never_crash(policy, arguments, name):
    check_junk(policy, arguments, name)


@pytest.mark.slow
@settings(fuzz, max_examples=10_000)
@given(broken_policies(), junk, junk)
def test_ten_thousand_malformed_policies_and_calls_never_crash(policy, arguments, name):
    check_junk(policy, arguments, name)

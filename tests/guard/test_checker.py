"""The policy guard: order, effects, strictness, updates, and a slow reference beside it."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard import Decision, PolicyGuard, ToolCall, make_policy, tool_schemas
from tests.guard.conftest import call, calls, guard_of, policies

PAY = {
    "pay": [
        {"when": {"to": {"enum": ["DE1", "US2"]}, "amount": {"maximum": 100}}},
        {"effect": "forbid", "when": {"to": "XX.*"}, "fallback": "stop"},
        {"effect": "allow", "priority": 5, "when": {"to": {"type": "string"}, "amount": {"exclusiveMaximum": 1}}},
    ]
}


@pytest.mark.parametrize(
    ("arguments", "effect", "rule"),
    [
        ({"to": "DE1", "amount": 100}, "allow", "pay[0]"),
        ({"to": "DE1", "amount": 100.5}, "block", "default"),
        ({"to": "XX9", "amount": 1}, "stop", "pay[1]"),
        ({"to": "new", "amount": 0.5}, "allow", "pay[2]"),
        ({"to": "new", "amount": 1}, "block", "default"),
        ({"to": "DE1", "amount": "100"}, "block", "default"),
        ({"to": "DE1", "amount": True}, "block", "default"),
        ({"to": ["DE1"], "amount": 1}, "block", "default"),
    ],
)
def test_the_first_rule_that_matches_decides(arguments, effect, rule):
    said = guard_of(PAY).decide("clerk", ToolCall("pay", arguments))
    assert (said.effect, said.rule) == (effect, rule)
    assert said.reason or said.allowed


def test_forbidding_goes_first_at_equal_priority_wherever_it_stands():
    for rules in ([{}, {"effect": "forbid", "when": {"n": {"const": 1}}}],):
        for order in (rules, rules[::-1]):
            guard = guard_of({"t": order})
            assert guard.decide("", call("t", n=1)).effect == "block"
            assert guard.decide("", call("t", n=2)).effect == "allow"
    late = guard_of({"t": [{}, {"effect": "forbid", "priority": 2}]})
    assert late.decide("", call("t")).allowed


def test_what_nothing_allows_is_refused():
    guard = guard_of({"t": [], "u": [{"effect": "forbid"}]})
    assert not any(guard.decide("", call(name)).allowed for name in ("t", "u", "v", ""))
    assert not PolicyGuard(make_policy({})).decide("", call("t")).allowed


def test_fallbacks_of_the_last_rule_and_the_policy():
    for default in ("block", "stop", "ask"):
        guard = guard_of({"t": [{"when": {"n": {"const": 1}}}]}, fields={"default": default})
        assert guard.decide("", call("t", n=2)).effect == default
        guard = guard_of({"t": [{"when": {"n": {"const": 1}}, "fallback": "ask"}]}, fields={"default": default})
        assert guard.decide("", call("t", n=2)).effect == "ask"


def test_rules_of_a_role_hold_for_it_alone():
    guard = guard_of({"read": [{}]}, fields={"roles": {"editor": {"tools": {"write": [{}], "read": []}}}})
    assert guard.decide("editor", call("write")).allowed
    assert guard.decide("editor", call("read")).allowed
    assert guard.decide("reader", call("read")).allowed
    assert not guard.decide("reader", call("write")).allowed
    assert not guard.decide(None, call("write")).allowed


def test_an_update_holds_from_the_next_call_on_and_for_its_principal_alone():
    once = {"pay": [{"when": {"n": {"maximum": 9}}, "update": {"pay": [], "read": [{}]}}]}
    guard = guard_of(once)
    before = guard.version
    assert guard.permits("a", "pay", {"n": 1})
    assert guard.version == before, "asking changes nothing"
    assert guard.decide("a", call("pay", n=1)).allowed
    assert guard.version != before
    assert not guard.decide("a", call("pay", n=1)).allowed
    assert guard.decide("a", call("read")).allowed
    assert guard.decide("b", call("pay", n=1)).allowed
    assert not guard.decide("c", call("read")).allowed


def test_two_at_once_cannot_both_use_a_right_that_lasts_one_call(monkeypatch):
    guard = guard_of({"pay": [{"update": {"pay": []}}]})
    both = threading.Barrier(2)
    real = guard._strange
    monkeypatch.setattr(guard, "_strange", lambda *given: (both.wait(5) and None) or real(*given))
    said = []
    threads = [threading.Thread(target=lambda: said.append(guard.decide("a", call("pay")).effect)) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join(10) for thread in threads]
    assert sorted(said) == ["allow", "block"], "both had found the rule before either used it up"


def test_look_alikes_are_other_texts_and_are_noticed():
    guard = guard_of({"mail": [{"when": {"to": {"enum": ["anna@corp.com"]}}}]})
    said = guard.decide("", call("mail", to="\u0430nna@corp.com"))
    assert said.effect == "block"
    assert "looks like 'anna@corp.com'" in said.reason
    assert "looks like 'mail'" in guard.decide("", call("m\u0430il", to="anna@corp.com")).reason
    zero = guard.decide("", call("mail", to="anna\u200b@corp.com"))
    assert "looks like" in zero.reason
    said = guard.decide("", ToolCall("mail", {"to": "anna@corp.com", "t\u043e": "evil"}))
    assert said.effect == "block"
    assert "ASCII" in said.reason
    named = guard_of({"mail": [{"when": {"t\u043e": {"const": "evil"}}}]})
    assert not named.decide("", ToolCall("mail", {"t\u043e": "evil"})).allowed, "or a narrower policy would let it in"


TOOLS = tool_schemas(
    [
        {
            "name": "pay",
            "inputSchema": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "amount": {"type": "number"}, "note": {"$ref": "#/$defs/n"}},
                "required": ["to", "amount"],
                "$defs": {"n": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            },
        }
    ]
)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"to": "a"}, "'amount' is missing"),
        ({"to": "a", "amount": 1, "cc": "b"}, "'cc' is no argument"),
        ({"to": "a", "amount": "1"}, "'1' is not of type number"),
        ({"to": "a", "amount": 1, "note": 3}, "note"),
    ],
)
def test_with_schemas_a_call_must_fit_its_tool_first(arguments, part):
    guard = guard_of({"pay": [{}], "other": [{}]}, tools=TOOLS)
    assert guard.decide("", ToolCall("pay", {"to": "a", "amount": 1, "note": None})).allowed
    said = guard.decide("", ToolCall("pay", arguments))
    assert (said.effect, said.rule) == ("block", "schema")
    assert part in said.reason
    assert not guard.permits("", "pay", arguments)
    assert not guard.decide("", call("other")).allowed, "a tool that does not exist"


class Odd(str):
    pass


DEEP = []
for _ in range(5000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        b"x",
        {1},
        (1,),
        object(),
        {1: 2},
        DEEP,
        "\ud800",
        Odd("a"),
        [0] * 30_000,
        {"\udc00": 1},
    ],
)
def test_what_is_no_plain_json_is_refused_even_where_anything_goes(value):
    said = guard_of({"t": [{}]}).decide("", call("t", n=value))
    assert (said.effect, said.rule) == ("block", "arguments")


@pytest.mark.parametrize("arguments", [None, 3, [("n", 1)], {1: 2}, {"\ud800": 1}])
def test_arguments_must_be_a_mapping_of_names(arguments):
    assert guard_of({"t": [{}]}).decide("", ToolCall("t", arguments)).effect == "block"


def test_an_action_that_breaks_when_it_is_read_is_refused():
    class Broken:
        arguments: ClassVar = {}

        @property
        def name(self):
            raise RuntimeError("boom")

    said = guard_of({"t": [{}]}).decide("", Broken())
    assert said.effect == "block"
    assert "boom" in said.reason


def test_a_pattern_made_for_backtracking_costs_nothing():
    guard = guard_of({"t": [{"when": {"n": {"pattern": "^(a+)+$"}}}]})
    start = time.perf_counter()
    assert not guard.decide("", call("t", n="a" * 50_000 + "b")).allowed
    assert time.perf_counter() - start < 0.5
    assert guard.decide("", call("t", n="a" * 50_000)).allowed


def test_a_short_pattern_must_match_the_whole_text():
    guard = guard_of({"t": [{"when": {"n": "www|ftp"}}]})
    assert guard.decide("", call("t", n="www")).allowed
    for other in ("www.evil", "xwww", "www\n", "ftp "):
        assert not guard.decide("", call("t", n=other)).allowed


def test_replacing_the_policy_changes_the_version_and_the_rules():
    guard = guard_of({"t": [{}]})
    first = guard.version
    second = guard.replace(make_policy({"tools": {}}))
    assert guard.version == second != first
    assert not guard.decide("", call("t")).allowed
    assert guard.decide("", call("t")).version == second


def test_a_policy_is_not_replaced_while_a_call_is_in_flight():
    guard = guard_of({"t": [{}]})
    old = guard.version
    with guard.gate.call():
        with pytest.raises(UserError, match="1 calls are still in flight"):
            guard.replace(make_policy({}), timeout=0.05)
        assert guard.version == old
    assert guard.decide("", call("t")).allowed
    guard.replace(make_policy({}))
    assert not guard.decide("", call("t")).allowed


def test_a_decision_knows_its_effects():
    with pytest.raises(UserError, match="allow, block, ask, stop"):
        Decision("maybe", "", "")
    assert Decision("ask", "", "").fallback == "ask a person"


# The reference: rules read from the text of the language, each check by the `jsonschema` package.

IMPLIED = {
    "pattern": "string", "minLength": "string", "maxLength": "string", "maximum": "number", "minimum": "number",
    "exclusiveMinimum": "number", "exclusiveMaximum": "number", "multipleOf": "number",
}  # fmt: skip


def typed(schema, allows):
    """The rule that a keyword of a type stands for that type, where a rule allows."""
    if not allows or not isinstance(schema, dict):
        return schema
    made = {key: typed(part, key not in ("not", "if")) for key, part in schema.items()}
    for key in ("anyOf", "allOf", "oneOf"):
        if key in made:
            made[key] = [typed(part, True) for part in schema[key]]
    kinds = sorted({IMPLIED[key] for key in schema if key in IMPLIED})
    return {"type": kinds, **made} if kinds and "type" not in schema else made


def reference(policy, arguments):
    rules = sorted(policy.tools["t"], key=lambda rule: (rule.priority, rule.effect != "forbid"))
    for rule in rules:
        if all(
            jsonschema.Draft202012Validator(typed(schema, rule.effect == "allow")).is_valid(arguments[name])
            for name, schema in rule.when.items()
            if name in arguments
        ):
            return rule.effect == "allow"
    return False


@settings(max_examples=150, deadline=None)
@given(policy=policies, some=st.lists(calls, min_size=8, max_size=8))
def test_decisions_are_those_of_the_reference(policy, some):
    guard = PolicyGuard(policy)
    for arguments in some:
        expected = reference(policy, arguments)
        assert guard.decide("", ToolCall("t", arguments)).allowed == expected
        assert guard.permits("", "t", arguments) == expected

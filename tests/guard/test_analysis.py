"""Comparing policies: exact cases, proofs held against samples, and monotone confinement."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from rolecraft.guard import PolicyGuard, ToolCall, accept_update, lint_policy, make_policy, policy_diff, tool_schemas
from rolecraft.guard._regex import Untranslatable, regex_of
from rolecraft.guard._schema import compiled_once
from tests.guard.conftest import PATTERNS, calls, guard_of, policies


def tool(*rules):
    return make_policy({"tools": {"t": list(rules)}})


def when(**arguments):
    return {"when": arguments}


WIDE = when(n={"type": "number"})
CASES = [
    (when(n={"enum": [1, 2]}), when(n={"enum": [1]}), "narrower"),
    (when(n={"enum": [1]}), when(n={"enum": [1, 2]}), "wider"),
    (when(n={"enum": [1]}), when(n={"const": 1.0}), "equal"),
    (when(n={"enum": [1, 2]}), when(n={"enum": [2, 3]}), "incomparable"),
    (when(n={"maximum": 5}), when(n={"exclusiveMaximum": 5}), "narrower"),
    (when(n={"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3}), when(n={"const": 2}), "equal"),
    (WIDE, when(n={"type": "integer"}), "narrower"),
    (when(n="[a-z]+"), when(n="[a-c]{1,3}"), "narrower"),
    (when(n="(a|b)*"), when(n="[ab]*"), "equal"),
    (when(n={"pattern": "^https://corp\\.com/"}), when(n={"pattern": "https://corp.com/"}), "wider"),
    (when(n={"enum": ["a@corp.com"]}), when(n={"type": "string", "pattern": "@corp\\.com$"}), "wider"),
    (when(n={"type": "string", "minLength": 2}), when(n="..."), "narrower"),
    (when(n={"type": "string"}), when(n={"type": "string", "not": {"pattern": "^x"}}), "narrower"),
    (when(n={"items": {"enum": ["a", "b"]}}), when(n={"items": {"enum": ["a"]}, "maxItems": 2}), "narrower"),
    (when(n={"items": {"enum": ["a"]}}), when(n={"items": {"enum": ["a", "b"]}}), "wider"),
    (when(n={"type": "array", "maxItems": 0}), when(n={"const": []}), "unknown"),
    (when(n={"type": "object", "required": ["k"]}), when(n={"properties": {"k": {"const": 1}}, "required": ["k"]}),
     "narrower"),
    (when(n={"anyOf": [{"const": 1}, {"const": 2}]}), when(n={"oneOf": [{"const": 1}, {"const": 2}]}), "equal"),
    (when(n={"type": "string", "if": {"pattern": "^a"}, "then": {"maxLength": 1}}), when(n={"const": "a"}), "narrower"),
    (when(n={"const": 1}), when(n={"const": 1}, m={"const": 2}), "narrower"),
    (when(n={"const": 1}), {}, "wider"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "relation"), CASES)
def test_known_relations_and_their_calls(old, new, relation):
    before, after = tool(old), tool(new)
    found = policy_diff(before, after)
    assert found.relation == relation
    assert found.widens == (relation not in ("equal", "narrower"))
    for each in found.tools:
        for witness, allows, refuses in ((each.gained, after, before), (each.lost, before, after)):
            if witness:
                assert PolicyGuard(allows).permits("", "t", witness.arguments)
                assert not PolicyGuard(refuses).permits("", "t", witness.arguments)
    if relation in ("narrower", "incomparable"):
        assert found.tools[0].lost
    if relation in ("wider", "incomparable"):
        assert found.tools[0].gained


def test_forbidding_narrows_and_order_matters():
    forbid = {"effect": "forbid", **when(n={"const": 1})}
    assert policy_diff(tool(WIDE), tool(WIDE, forbid)).relation == "narrower"
    assert policy_diff(tool(WIDE), tool(WIDE, {**forbid, "priority": 2})).relation == "equal"
    assert policy_diff(tool(WIDE), make_policy({})).relation == "narrower"
    assert policy_diff(make_policy({}), tool(WIDE)).relation == "wider"


def test_roles_are_compared_by_what_they_may_do():
    role = {"roles": {"r": {"tools": {"t": [when(n={"const": 9})]}}}}
    old = make_policy({"tools": {"t": [when(n={"const": 1})]}, **role})
    assert policy_diff(old, make_policy({"tools": {"t": [when(n={"const": 1})]}})).relation == "narrower"
    found = policy_diff(make_policy({"tools": {"t": [when(n={"const": 1})]}}), old)
    assert [(each.role, each.relation) for each in found.tools] == [("r", "wider")]


def test_what_cannot_be_decided_counts_as_widening():
    old, new = tool(when(n="\\s+")), tool(when(n="\\s"))
    assert policy_diff(old, new).relation == "unknown"
    assert policy_diff(old, new).widens
    assert not accept_update(PolicyGuard(old), new).accepted
    guarded = tool(when(n={"allOf": [{"type": "string", "pattern": "^\\s+$"}, {"type": "string", "maxLength": 3}]}))
    found = policy_diff(tool(when(n={"pattern": "^\\s+$"})), guarded)
    assert not found.widens, "a part that cannot be translated cancels out where both have it"


def test_with_schemas_only_calls_that_fit_are_compared():
    schemas = tool_schemas(
        [{"name": "t", "parameters": {"properties": {"n": {"enum": ["a", "b"]}}, "required": ["n"]}}]
    )
    old, new = tool(when(n={"enum": ["a", "b"]})), tool(when(n={"type": "string"}))
    assert policy_diff(old, new).relation == "wider"
    assert policy_diff(old, new, schemas).relation == "equal"


def test_an_update_that_carries_updates_is_no_narrowing():
    old = tool(when(n={"enum": [1, 2]}))
    new = tool({**when(n={"const": 1}), "update": {"t": [{}]}})
    assert not accept_update(PolicyGuard(old), new).accepted


def test_updates_are_held_against_what_rules_have_changed_since():
    guard = guard_of({"t": [{"update": {"t": []}}]})
    new = make_policy({"tools": {"t": [when(n={"const": 1})]}})
    assert guard.decide("r", ToolCall("t")).allowed
    said = accept_update(guard, new)
    assert not said.accepted, "r has used its right up"
    assert said.differences[-1].gained
    assert not guard.permits("r", "t", {"n": 1})


def test_expansions_need_approval():
    guard = guard_of({"t": [when(n={"const": 1})]})
    wider = tool(when(n={"enum": [1, 2]}))
    seen = []
    assert not accept_update(guard, wider).accepted
    assert not accept_update(guard, wider, approve=lambda d: seen.append(d) or "yes").accepted, "only True approves"
    assert seen[0].tools[0].gained.arguments == {"n": 2}
    said = accept_update(guard, wider, approve=lambda d: True)
    assert (said.accepted, said.reason) == (True, "approved")
    assert guard.permits("", "t", {"n": 2})


@settings(max_examples=40, deadline=None)
@given(policies, policies, st.lists(calls, min_size=30, max_size=30))
def test_no_sample_contradicts_a_proof(old, new, some):
    found = policy_diff(old, new)
    before, after = PolicyGuard(old), PolicyGuard(new)
    gained = [each for each in some if after.permits("", "t", each) and not before.permits("", "t", each)]
    lost = [each for each in some if before.permits("", "t", each) and not after.permits("", "t", each)]
    if found.relation in ("narrower", "equal"):
        assert not gained
    if found.relation == "equal":
        assert not lost


@settings(max_examples=15, deadline=None)
@given(policies, st.lists(policies, min_size=4, max_size=4), st.lists(calls, min_size=30, max_size=30))
def test_no_accepted_update_ever_permits_what_was_refused(first, updates, some):
    guard = PolicyGuard(first)
    refused = [each for each in some if not guard.permits("", "t", each)]
    for update in updates:
        before = guard.policy
        if accept_update(guard, update).accepted:
            assert not policy_diff(first, guard.policy).widens or policy_diff(before, guard.policy).relation != "wider"
        assert not any(guard.permits("", "t", each) for each in refused)
        refused += [each for each in some if not guard.permits("", "t", each)]


@settings(max_examples=15, deadline=None)
@given(policies, policies)
def test_by_z3_too_no_accepted_update_widens_the_first_policy(first, update):
    guard = PolicyGuard(first)
    if accept_update(guard, update).accepted:
        assert policy_diff(first, guard.policy).relation in ("equal", "narrower")


TEXTS = ["", "a", "ab", "abc", "xa", "ba", "x1", "x12", "x123", "b", "bb", "cab", "a\n", "é", "-", "_", "5", "A"]


@pytest.mark.parametrize(
    "pattern",
    [
        *PATTERNS,
        "^(a|b)$|^x",
        "^$",
        "[^ab]",
        "^[^a-c]+$",
        "\\d",
        "^\\w+$",
        "\\W",
        "^a?b*c+$",
        "^.{2}$",
        "x\\d{1,2}$",
        "a|^b",
    ],
)
def test_languages_are_those_of_the_engine(pattern):
    import z3

    language = regex_of(pattern)
    engine = compiled_once({"pattern": pattern})
    for text in TEXTS:
        shown = z3.StringVal("".join(f"\\u{{{ord(char):x}}}" for char in text))
        assert z3.is_true(z3.simplify(z3.InRe(shown, language))) == engine(text), text


pieces = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "x", "\\."]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: f"({a}|{b})", inner, inner),
        st.builds(lambda a, many: f"(?:{a}){many}", inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])),
    ),
    max_leaves=5,
)
patterns = st.builds(
    lambda parts: "|".join(parts),
    st.lists(
        st.builds(lambda a, p, b: a + p + b, st.sampled_from(["", "^"]), pieces, st.sampled_from(["", "$"])),
        min_size=1,
        max_size=2,
    ),
)


@settings(max_examples=80, deadline=None)
@given(patterns, st.lists(st.text("ab.x5\n", max_size=5), min_size=6, max_size=6))
def test_random_languages_are_those_of_the_engine(pattern, some):
    import z3

    try:
        language = regex_of(pattern)
    except Untranslatable:  # alternatives that share an anchor may be parsed into a form that is left alone
        reject()
    engine = compiled_once({"pattern": pattern})
    for text in some:
        shown = z3.StringVal("".join(f"\\u{{{ord(char):x}}}" for char in text))
        assert z3.is_true(z3.simplify(z3.InRe(shown, language))) == engine(text), text


@pytest.mark.parametrize(
    "pattern", ["\\s", "\\bA", "(?i)a", "a\\Z", "\\p{L}", "a^b", "[[a]", "a{300}", "[\U0003ffff]", "(?P<x>a)"]
)
def test_what_has_no_exact_counterpart_is_not_translated(pattern):
    with pytest.raises(Untranslatable):
        regex_of(pattern)


TOOLS = tool_schemas(
    [
        {
            "name": "pay",
            "parameters": {
                "properties": {"to": {"type": "string"}, "amount": {"type": "number"}, "tags": {"type": "array"}},
                "required": ["to"],
            },
        }
    ]
)


@pytest.mark.parametrize(
    ("rules", "kind", "part"),
    [
        ({"pya": [{}]}, "unknown-tool", "Did you mean 'pay'"),
        ({"pay": [when(two="a")]}, "unknown-argument", "no argument 'two'"),
        ({"pay": [when(to={"type": "integer", "pattern": "^a$"})]}, "keyword-type", "pattern says nothing"),
        ({"pay": [when(amount={"pattern": "^a$"})]}, "argument-type", "the argument is number"),
        ({"pay": [when(amount={"minimum": 5, "maximum": 4})]}, "never-matches", "no call"),
        ({"pay": [when(to="a*"), when(to="aa")]}, "unreachable", "pay[0]"),
        ({"pay": [{}, {"effect": "forbid", "priority": 9}]}, "unreachable", "decide all"),
        ({"pay": [when(to="a*"), {"effect": "forbid", **when(to="a")}]}, "overlap", "forbidding goes first"),
        ({"pay": [when(to={"pattern": "corp"})]}, "unanchored", "anywhere"),
        ({"pay": [when(to={"enum": ["p\u0430y"]})]}, "look-alike", "CYRILLIC"),
        ({"pay": [when(to={"enum": ["pay\u200b"]})]}, "look-alike", "invisible"),
        ({"pay": [{}]}, "unrestricted", "any arguments"),
        ({"pay": [{"effect": "forbid"}]}, "no-allow", "refused anyway"),
    ],
)
def test_lint_finds_each_kind(rules, kind, part):
    found = [each for each in lint_policy(make_policy({"tools": rules}), TOOLS) if each.kind == kind]
    assert found
    assert part in found[0].message


def test_lint_says_nothing_of_a_sound_policy_and_nothing_twice():
    sound = {"pay": [when(to={"enum": ["a", "b"]}, amount={"maximum": 5}), {"effect": "forbid", **when(to="x+")}]}
    assert lint_policy(make_policy({"tools": sound}), TOOLS) == []
    role = {"roles": {"r": {"tools": {"pay": [when(to="a", amount={"maximum": 5})]}}, "s": {"tools": {}}}}
    found = lint_policy(make_policy({"tools": sound, **role}), TOOLS)
    assert [each.kind for each in found] == ["unreachable"]
    assert re.match(r"r\.pay\[0\]", found[0].where)

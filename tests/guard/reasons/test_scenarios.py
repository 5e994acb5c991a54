"""Scenarios: textbook cases, a slow reference by truth tables, and what cannot be decided."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from rolecraft.errors import UserError
from rolecraft.guard.reasons import (
    HardRule,
    InconsistentFacts,
    PriorityCycle,
    ReasonTheory,
    Situation,
    TooManyReasons,
    _scenarios,
    literal,
    negated,
    proper_scenarios,
)
from tests.guard.reasons.conftest import entails, make, reason, reference_scenarios, situations, theories


def test_the_penguin():
    """Horty's Tweety: the more special reason outranks the general one."""
    theory = make(
        [("bird", ["bird"], "fly"), ("penguin", ["penguin"], "not fly")], [("bird", "penguin")],
        facts=("bird", "penguin"), actions=("fly",),
    )  # fmt: skip
    assert proper_scenarios(theory, ["bird"]) == (("bird",),)
    assert proper_scenarios(theory, ["bird", "penguin"]) == (("penguin",),)
    standing = Situation(theory, ["bird", "penguin"]).standing(["penguin"])
    assert (standing.triggered, standing.defeated) == ({"bird", "penguin"}, {"bird"})
    assert standing.conflicted == {"bird"}
    assert standing.binding == {"penguin"}


def test_the_nixon_diamond_is_a_dilemma():
    theory = make([("d1", ["a"], "x"), ("d2", ["b"], "not x")])
    assert proper_scenarios(theory, ["a", "b"]) == (("d1",), ("d2",))
    assert proper_scenarios(theory, ["a"]) == (("d1",),)
    assert proper_scenarios(theory, []) == ((),)


def test_reasons_that_only_hold_each_other_up_do_not_bind():
    circle = [("d1", ["x"], "y"), ("d2", ["y"], "x")]
    assert proper_scenarios(make(circle), []) == ((),)
    alone = Situation(make(circle), [])
    both = alone.mask(["d1", "d2"])
    assert alone.binding(both) == both
    assert not alone.is_proper(both)
    assert proper_scenarios(make([*circle, ("d3", ["a"], "x")]), ["a"]) == (("d1", "d2", "d3"),)


def test_reasons_that_undo_each_other_leave_no_scenario():
    assert proper_scenarios(make([("d1", [], "x"), ("d2", ["x"], "not x")], [("d1", "d2")]), []) == ()


def test_exclusive_actions_and_hard_rules_make_conflicts():
    two = [("d1", ["a"], "x"), ("d2", ["a"], "y")]
    assert proper_scenarios(make(two), ["a"]) == (("d1", "d2"),)
    apart = {"exclusive": (frozenset({"x", "y"}),)}
    assert proper_scenarios(make(two, **apart), ["a"]) == (("d1",), ("d2",))
    assert proper_scenarios(make(two, [("d1", "d2")], **apart), ["a"]) == (("d2",),)
    through = {"rules": (HardRule(("x",), "z"), HardRule(("y",), "not z"))}
    assert proper_scenarios(make(two, **through), ["a"]) == (("d1",), ("d2",))


def test_priority_is_transitive():
    chain = [("d1", ["a"], "x"), ("d2", ["a"], "z"), ("d3", ["a"], "not x")]
    assert ("d1", "d3") in make(chain, [("d1", "d2"), ("d2", "d3")]).order
    assert proper_scenarios(make(chain, [("d1", "d2"), ("d2", "d3")]), ["a"]) == (("d2", "d3"),)
    assert len(proper_scenarios(make(chain, [("d1", "d2")]), ["a"])) == 2


@settings(max_examples=90, deadline=None)
@given(theory=theories(), facts=situations)
def test_proper_scenarios_are_those_of_the_definitions(theory, facts):
    try:
        found = proper_scenarios(theory, facts)
    except InconsistentFacts:
        assert entails(theory, facts, "x")
        assert entails(theory, facts, "not x")
        return
    expected = reference_scenarios(theory, facts)
    assert len(found) == len(set(found)) == len(expected)
    assert {frozenset(each) for each in found} == {frozenset(each) for each in expected}


def test_entailment_is_complete_where_propagation_is_not():
    """Two rules entail z whatever x is, though no clause is a unit."""
    theory = ReasonTheory((), ("x", "z"), rules=(HardRule(("x",), "z"), HardRule(("not x",), "z")))
    background = theory.background
    assert background.entails(frozenset(), background.number("z"))
    assert not background.entails(frozenset(), background.number("x"))
    theory = ReasonTheory((), ("x", "z"), rules=(HardRule(("x",), "not z"), HardRule(("not x",), "not z")))
    assert theory.background.entails(frozenset(), theory.background.number("not z"))


def test_thirty_reasons_are_searched_and_more_are_refused():
    many = [(f"d{n}", ["a"], "x" if n % 2 else "not x") for n in range(30)]
    assert sorted(map(len, proper_scenarios(make(many), ["a"]))) == [15, 15]
    more = make([*many, ("last", ["a"], "y")])
    assert proper_scenarios(more, []) == ((),)
    with pytest.raises(TooManyReasons, match="31 reasons are open"):
        proper_scenarios(more, ["a"])


def test_too_many_dilemmas_are_refused(monkeypatch):
    names = [f"m{n}" for n in range(6)]
    pairs = [(sign + name, ["a"], f"{'not ' if sign == 'n' else ''}{name}") for name in names for sign in "pn"]
    theory = make(pairs, actions=tuple(names))
    assert len(proper_scenarios(theory, ["a"])) == 2**6
    monkeypatch.setattr(_scenarios, "MOST_SCENARIOS", 2**6 - 1)
    with pytest.raises(TooManyReasons, match="priorities"):
        proper_scenarios(theory, ["a"])


def test_facts_that_contradict_each_other():
    theory = make([("d1", ["a"], "x")], rules=(HardRule(("a",), "b"),))
    with pytest.raises(InconsistentFacts, match="'a' and its opposite"):
        proper_scenarios(theory, ["a", "not a"])
    with pytest.raises(InconsistentFacts, match="hard rules"):
        proper_scenarios(theory, ["a", "not b"])
    with pytest.raises(UserError, match=r"'aa' is no fact or macro action.*Did you mean"):
        proper_scenarios(make([], facts=("aab",)), ["aa"])


@pytest.mark.parametrize("text", ["p", " p ", "not p", "-p", "~p", "! p", "not  p"])
def test_literals_have_one_spelling(text):
    assert literal(text) in ("p", "not p")
    assert negated(negated(literal(text))) == literal(text)


@pytest.mark.parametrize("text", ["", "not", "p q", "not not p", True, None, "p;q", "ä"])
def test_what_is_no_literal(text):
    with pytest.raises(UserError, match="expected a name"):
        literal(text)


def test_a_circle_of_priorities_names_itself_and_its_cases():
    theory = make([("d1", [], "x"), ("d2", [], "y"), ("d3", [], "z")], [("d1", "d2")])
    theory = theory.with_priority("d2", "d3", case="monday")
    with pytest.raises(PriorityCycle, match="monday") as caught:
        theory.with_priority("d3", "d1", case="friday")
    assert set(caught.value.cycle) == {"d1", "d2", "d3"}
    assert set(caught.value.cases) == {"monday", "friday"}
    with pytest.raises(PriorityCycle):
        theory.with_priority("d1", "d1")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"defaults": (reason("d", ["a"], "b"),)}, "'b' is no macro action"),
        ({"defaults": (reason("d", ["c"], "x"),)}, "'c' is no fact or macro action"),
        ({"defaults": (reason("d", [], "x"), reason("d", [], "y"))}, "'d' stands twice"),
        ({"priorities": {("d", "e"): ""}}, "no reason 'd'"),
        ({"exclusive": (frozenset({"x"}),)}, "needs two actions"),
        ({"exclusive": (frozenset({"x", "a"}),)}, "'a' is no macro action"),
        ({"safe": "xx"}, "safe: 'xx' is no macro action"),
        ({"actions": ()}, "at least one macro action"),
        ({"actions": ("a", "x")}, "'a' stands twice"),
        ({"actions": ("not x",)}, "plain name"),
        ({"rules": (HardRule((), "x"), HardRule((), "not x"))}, "contradict each other"),
    ],
)
def test_faulty_theories(given, part):
    with pytest.raises(UserError, match=part):
        ReasonTheory(**{"facts": ("a", "b"), "actions": ("x", "y"), **given})


def test_versions_follow_what_is_said():
    theory = make([("d1", ["a"], "x"), ("d2", ["a"], "not x")], [("d1", "d2")])
    assert theory.version == make([("d1", ["a"], "x"), ("d2", ["a"], "not x")], [("d1", "d2")]).version
    assert theory.version != make([("d1", ["a"], "x"), ("d2", ["a"], "not x")]).version
    assert theory.without("d2").priorities == {}
    with pytest.raises(UserError, match="Did you mean 'd1'"):
        theory.without("d11")

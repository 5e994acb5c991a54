"""Corrections: what is learned, what is refused and by which earlier cases, and an advisor who goes by a theory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard.reasons import Case, Casebook, InconsistentFacts, correction, demands, judge, learn
from tests.guard.reasons.conftest import ACTIONS, DEMANDS, make, theories

FACTS = ("promised", "drowning", "guarded")
SEED = make(
    [("promise", ["promised"], "deliver")], facts=FACTS, actions=("deliver", "rescue", "wait"),
    exclusive=(frozenset({"deliver", "rescue"}),),
)  # fmt: skip
LIFE = Case("life", ("promised", "drowning"), "rescue", ("drowning",))
GUARD = Case("guard", ("promised", "drowning", "guarded"), "deliver", ("guarded",))


def test_a_correction_becomes_a_reason_above_what_it_contradicts():
    lesson = learn(SEED, LIFE)
    assert lesson.accepted
    assert str(lesson.added) == "drowning -> rescue"
    assert lesson.outranked == ("promise",)
    assert lesson.theory.priorities == {("promise", "life"): "life"}
    assert demands(lesson.theory, LIFE)
    assert not demands(SEED, LIFE)
    assert judge(lesson.theory, ["promised"]).obligatory == {"deliver"}


def test_what_is_known_need_not_be_learned():
    lesson = learn(SEED, Case("again", ("promised",), "deliver", ("promised",)))
    assert (lesson.accepted, lesson.added, lesson.theory) == (True, None, SEED)


def test_a_known_reason_only_gains_priority():
    theory = make(
        [("promise", ["promised"], "deliver"), ("save", ["drowning"], "rescue")], facts=FACTS, actions=SEED.actions,
        exclusive=SEED.exclusive,
    )  # fmt: skip
    lesson = learn(theory, LIFE)
    assert (lesson.added, lesson.outranked) == (None, ("promise",))
    assert ("promise", "save") in lesson.theory.order


def test_priorities_that_would_go_in_a_circle_name_the_earlier_cases():
    theory = learn(SEED, LIFE).theory
    back = Case("back", ("promised", "drowning"), "deliver", ("promised",))
    lesson = learn(theory, back)
    assert not lesson.accepted
    assert lesson.theory is theory
    assert "life" in lesson.conflicts
    assert "circle" in lesson.message


def test_earlier_cases_are_tests_for_later_ones():
    book = Casebook(SEED, [Case("always", ("promised", "drowning", "guarded"), "rescue", ("drowning",))])
    lesson = book.learn(GUARD)
    assert (lesson.accepted, lesson.conflicts) == (False, ("always",))
    book.forget("always", keep_reason=True)
    assert book.learn(GUARD).accepted
    assert judge(book.theory, ["promised", "drowning", "guarded"]).obligatory == {"deliver"}
    assert judge(book.theory, ["promised", "drowning"]).obligatory == {"rescue"}
    assert book.broken() == ()


def test_what_is_forgotten_is_gone_with_its_reason():
    book = Casebook(SEED, [LIFE])
    book.forget("life")
    assert book.theory == SEED
    book = Casebook(SEED, [LIFE, Case("same", ("promised", "drowning", "guarded"), "rescue", ("drowning",))])
    book.forget("life")
    assert book.broken() == ("same",)


def test_reasons_set_free_by_a_correction_are_outranked_as_well():
    """d1 rests on d0's x and puts d2 down; once d0 is beaten, d2 speaks for y and must be beaten too."""
    theory = make(
        [("d0", ["a"], "x"), ("d1", ["x"], "not y"), ("d2", ["a"], "y")], [("d2", "d1")],
        exclusive=(frozenset("xz"), frozenset("yz")),
    )  # fmt: skip
    lesson = learn(theory, Case("new", ("a",), "z", ("a",)))
    assert lesson.outranked == ("d0", "d2")
    assert judge(lesson.theory, ["a"]).obligatory == {"z"}


@settings(max_examples=60, deadline=None)
@given(theory=theories(most=4, rules=False), data=st.data())
def test_an_accepted_correction_holds_and_a_refused_one_changes_nothing(theory, data):
    facts = tuple(data.draw(st.sets(st.sampled_from(["a", "b"]))))
    case = Case("case", facts, data.draw(st.sampled_from(DEMANDS)), facts)
    try:
        lesson = learn(theory, case)
    except InconsistentFacts:
        return
    assert demands(lesson.theory, case) == lesson.accepted
    if not lesson.accepted:
        assert lesson.theory is theory
    else:
        assert set(theory.defaults) <= set(lesson.theory.defaults)
        assert theory.order <= lesson.theory.order


def test_an_advisor_names_the_duty_and_its_reason():
    gold = make(
        [("promise", ["promised"], "deliver"), ("life", ["drowning"], "rescue"), ("still", ["guarded"], "not wait")],
        [("promise", "life")], facts=FACTS, actions=SEED.actions, exclusive=SEED.exclusive,
    )  # fmt: skip
    case = correction(gold, ["promised", "drowning"], {"deliver"}, "c1")
    assert (case.demanded, case.reason, set(case.facts)) == ("rescue", ("drowning",), {"promised", "drowning"})
    assert correction(gold, ["promised", "drowning"], {"rescue"}, "c2") is None
    assert correction(gold, ["guarded"], {"wait"}, "c3").demanded == "not wait"


@settings(max_examples=40, deadline=None)
@given(gold=theories(most=3, rules=False), done=st.sampled_from(ACTIONS), a=st.booleans())
def test_a_pupil_comes_to_demand_what_its_advisor_does(gold, done, a):
    facts = ("a",) if a else ()
    case = correction(gold, facts, {done}, "case")
    if case is not None:
        assert demands(gold, case)
        assert demands(learn(make([]), case).theory, case)


@pytest.mark.parametrize(
    ("case", "part"),
    [
        (Case("c", ("drowning",), "rescue", ("promised",)), "promised is not"),
        (Case("c", ("drowning",), "drowning", ()), "'drowning' is a fact"),
        (Case("c", ("drown",), "rescue", ()), "'drown' is no fact"),
        (Case("c", ("drowning",), "resque", ()), "Did you mean 'rescue'"),
    ],
)
def test_faulty_cases(case, part):
    with pytest.raises(UserError, match=part):
        learn(SEED, case)


def test_faulty_casebooks():
    book = Casebook(SEED, [LIFE])
    with pytest.raises(UserError, match="known already"):
        book.learn(LIFE)
    with pytest.raises(UserError, match="Did you mean 'life'"):
        book.forget("lif")
    with pytest.raises(UserError, match="circle"):
        Casebook(SEED, [LIFE, Case("back", ("promised", "drowning"), "deliver", ("promised",))])

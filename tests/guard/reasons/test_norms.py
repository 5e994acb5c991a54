"""Deontic output: both modes, the safe default, explanations, questions of what if, and proofs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard.reasons import (
    Claim,
    HardRule,
    InconsistentFacts,
    action_mask,
    find_dilemmas,
    judge,
    verify,
    what_if,
    why,
)
from rolecraft.guard.reasons._norms import tightened
from tests.guard.reasons.conftest import ACTIONS, entails, make, reason, reference_scenarios, situations, theories

BRIDGE = make(
    [("promise", ["promised"], "deliver"), ("life", ["drowning"], "rescue"), ("harm", ["ahead"], "not push")],
    [("promise", "life")],
    facts=("promised", "drowning", "ahead"), actions=("deliver", "rescue", "push", "wait"),
    exclusive=(frozenset({"deliver", "rescue"}),),
)  # fmt: skip


def test_what_the_bridge_asks_for():
    norms = judge(BRIDGE, ["promised", "drowning", "ahead"])
    assert (norms.obligatory, norms.forbidden) == ({"rescue"}, {"deliver", "push"})
    assert norms.permissible == {"rescue", "wait"}
    assert not norms.dilemma
    assert norms.violation(["rescue"]) == 0
    assert norms.violation(["rescue", "push"]) == 1
    assert norms.violation(["wait"]) == 1
    assert norms.violation(["wait"], ongoing=["rescue"]) == 0
    assert [norms.status(name) for name in ("rescue", "push", "wait")] == ["obligatory", "forbidden", "permissible"]
    assert norms.complaint(["wait"]) == ("life", "rescue is obligatory: life (drowning -> rescue)")
    assert norms.complaint(["rescue", "push"])[0] == "harm"
    assert norms.complaint([])[0] == "life"
    assert judge(BRIDGE, []).complaint([])[0] == "none"
    assert "You must: rescue." in norms.text()


def test_uncertain_actions_violate_by_degrees():
    norms = judge(BRIDGE, ["drowning", "ahead"])
    assert norms.violation({"rescue": 0.9, "push": 0.3}) == pytest.approx(0.3)
    assert norms.violation({"rescue": 0.6}) == pytest.approx(0.4)
    assert judge(BRIDGE, []).violation({"wait": 0.7}) == pytest.approx(0.3)


def test_what_hard_rules_bring_along_is_done_as_well():
    theory = make([("d1", ["a"], "x"), ("d2", [], "not z")], [("d2", "d1")], rules=(HardRule(("x",), "z"),))
    norms = judge(theory, ["a"])
    assert norms.obligatory == {"x", "z"}
    assert norms.violation(["x"]) == 0
    assert norms.violation({"x": 0.7}) == pytest.approx(0.3)
    assert norms.violation(["z"]) == 1
    assert judge(theory, []).violation(["x"]) == 1


def test_a_dilemma_in_both_modes():
    theory = make([("d1", ["a"], "x"), ("d2", ["b"], "y")], exclusive=(frozenset({"x", "y"}),))
    credulous, sceptical = judge(theory, ["a", "b"]), judge(theory, ["a", "b"], "sceptical")
    assert credulous.dilemma
    assert sceptical.dilemma
    assert [credulous.violation([name]) for name in ACTIONS] == [0, 0, 1]
    assert [sceptical.violation([name]) for name in ACTIONS] == [0, 0, 0]
    assert credulous.status("x") == "optional"
    assert "Option 2" in credulous.text()
    assert find_dilemmas(theory) == (frozenset({"a", "b"}),)


@settings(max_examples=60, deadline=None)
@given(theory=theories(most=4), facts=situations, done=st.sets(st.sampled_from(ACTIONS)))
def test_norms_are_what_every_scenario_entails(theory, facts, done):
    try:
        sceptical, credulous = judge(theory, facts, "sceptical"), judge(theory, facts)
    except InconsistentFacts:
        return
    conclusions = [
        {d.conclusion for d in theory.defaults if d.name in each} for each in reference_scenarios(theory, facts)
    ]
    if not conclusions:
        assert sceptical.failed
        assert credulous.permissible == {theory.safe}
        return
    for name in ACTIONS if not sceptical.failed else ():
        assert (name in sceptical.obligatory) == all(entails(theory, {*facts, *c}, name) for c in conclusions)
        assert (name in sceptical.forbidden) == all(entails(theory, {*facts, *c}, f"not {name}") for c in conclusions)
    if not (sceptical.failed or credulous.failed):
        assert credulous.violation(done) >= sceptical.violation(done)


def test_the_safe_default_where_nothing_is_left():
    theory = make([(f"d{n}", [], f"not {name}") for n, name in enumerate(ACTIONS)], safe="y")
    norms = judge(theory, [])
    assert norms.failed == "nothing is permissible"
    assert norms.permissible == norms.obligatory == {"y"}
    assert norms.complaint(["x"])[0] == "safe"
    undone = judge(make([("d1", [], "x"), ("d2", ["x"], "not x")], [("d1", "d2")]), [])
    assert "no scenario is stable" in undone.failed
    assert undone.permissible == {"z"}


def test_doubtful_prohibitions_come_on_top():
    norms = tightened(judge(BRIDGE, ["drowning"]), ["push"])
    assert (norms.obligatory, norms.forbidden) == ({"rescue"}, {"deliver", "push"})
    assert tightened(judge(BRIDGE, ["drowning"]), ["rescue"]).obligatory == frozenset()
    assert tightened(judge(BRIDGE, []), BRIDGE.actions).failed


def test_why():
    said = why(BRIDGE, ["promised", "drowning"], "rescue")
    assert said.holds
    assert [each.name for each in said.binding] == ["life"]
    assert [(down.name, up.name) for down, up in said.defeated] == [("promise", "life")]
    assert str(said).startswith("rescue is obligatory; because of life (drowning -> rescue); promise")
    assert str(said).endswith("is outranked by life.")
    assert [each.name for each in why(BRIDGE, ["promised", "drowning"], "not deliver").binding] == ["life"]
    assert not why(BRIDGE, [], "rescue").holds
    open_ = make([("d1", ["a"], "x"), ("d2", ["a"], "not x")])
    told = why(open_, ["a"], "x")
    assert (told.holds, [each.name for each in told.against]) == (False, ["d2"])
    with pytest.raises(UserError, match="'drowning' is a fact"):
        why(BRIDGE, [], "drowning")


def test_what_if():
    change = what_if(BRIDGE, ["promised", "drowning"], remove=["drowning"])
    assert (change.gained, change.lost) == ({"deliver", "push", "wait"} - change.before.permissible, {"rescue"})
    assert change.duties == {"deliver": ("forbidden", "obligatory"), "rescue": ("obligatory", "forbidden")}
    swapped = what_if(BRIDGE, ["drowning"], add=["not drowning"])
    assert swapped.after.obligatory == frozenset()
    other = what_if(
        BRIDGE, ["drowning"], add_reasons=[reason("dry", ["drowning"], "not rescue")], priorities=[("life", "dry")]
    )
    assert other.after.forbidden == {"rescue"}
    assert what_if(BRIDGE, ["drowning"], remove_reasons=["life"]).after.obligatory == frozenset()
    assert BRIDGE.default("life").conclusion == "rescue"
    with pytest.raises(UserError, match="'drowning' is not among the facts"):
        what_if(BRIDGE, [], remove=["drowning"])


def test_proofs_and_counterexamples():
    proved = verify(BRIDGE, Claim(("drowning",), "obligatory", "rescue"))
    assert (proved.holds, proved.checked) == (True, 4)
    assert str(proved).startswith("proved")
    refuted = verify(BRIDGE, Claim(("promised",), "obligatory", "deliver"))
    assert not refuted.holds
    assert refuted.counterexample == {"promised", "drowning"}
    assert refuted.norms.obligatory == {"rescue"}
    assert "refuted" in str(refuted)
    negative = make([("d1", ["not a"], "x")])
    assert verify(negative, Claim((), "permissible", "x")).checked == 3
    assert verify(negative, Claim((), "obligatory", "x")).counterexample == frozenset()


@pytest.mark.parametrize(
    ("claim", "part"),
    [
        (("drowning",), "Did you mean 'rescue'"),
        (("drown",), "'drown' is no fact"),
    ],
)
def test_faulty_claims(claim, part):
    action = "rescu" if "drowning" in claim else "rescue"
    with pytest.raises(UserError, match=part):
        verify(BRIDGE, Claim(claim, "obligatory", action))


def test_more_faulty_questions():
    with pytest.raises(UserError, match="Did you mean 'forbidden'"):
        Claim((), "forbiden", "x")
    with pytest.raises(UserError, match="no combination"):
        verify(make([], rules=()), Claim(("a", "not a"), "permissible", "x"))
    with pytest.raises(UserError, match="credulous, sceptical"):
        judge(BRIDGE, [], "brave")
    names = tuple(f"f{n}" for n in range(17))
    wide = make([("d", names, "x")], facts=names)
    with pytest.raises(UserError, match="131072 combinations"):
        verify(wide, Claim((), "permissible", "x"))
    with pytest.raises(UserError, match="is a fact"):
        judge(BRIDGE, []).status("drowning")


def test_masks():
    norms = judge(BRIDGE, ["drowning"])
    assert action_mask(norms, [{"deliver"}, {"rescue"}, {"rescue", "push"}, set()]).tolist() == [
        False,
        True,
        True,
        False,
    ]
    assert action_mask(norms, [{"deliver"}, {"wait"}]).tolist() == [False, True]
    assert action_mask(norms, [{"wait"}, {"push"}], ongoing=["rescue"]).tolist() == [True, True]
    assert action_mask(norms, [{"deliver"}, {"wait"}]).dtype == np.bool_
    with pytest.raises(UserError, match="safe default 'wait'"):
        action_mask(norms, [{"deliver"}, {"push"}])

"""From observation to decision: labellers, doubts, failures that close, retries and the log."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard import Chain, Enforcer, FunctionGuard, Guard, ToolCall
from rolecraft.guard.reasons import (
    Fact,
    FactExtractor,
    FactsUnavailable,
    FunctionLabeller,
    KeywordLabeller,
    ReasonedAgent,
    ReasonGuard,
    SimilarityLabeller,
    expected_violation,
    judge,
    read_norms,
)
from tests.guard.reasons.conftest import make

THEORY = make(
    [("life", ["drowning"], "rescue"), ("harm", ["ahead"], "not push")], facts=("drowning", "ahead"),
    actions=("rescue", "push", "wait"),
)  # fmt: skip
FROM_CONTEXT = FunctionLabeller(lambda context: context["facts"])


def extractor(labeller=FROM_CONTEXT, **fields):
    return FactExtractor(THEORY, [labeller], **fields)


def guard(**fields):
    return ReasonGuard(THEORY, extractor(), **fields)


def decide(made, action, *facts, **more):
    return made.decide("courier", ToolCall(action), {"facts": facts, **more})


def test_it_is_a_guard_and_names_the_reason():
    made = guard()
    assert isinstance(made, Guard)
    assert decide(made, "rescue", "drowning").allowed
    assert decide(made, "rescue", "drowning").rule == "life"
    said = decide(made, "push", "ahead")
    assert (said.effect, said.rule) == ("block", "harm")
    assert said.reason == "push is forbidden: harm (ahead -> not push)"
    assert said.version == THEORY.version
    assert decide(made, "wait").allowed
    assert not decide(made, "wait", "drowning").allowed
    assert decide(made, "wait", "drowning", ongoing=["rescue"]).allowed
    assert Chain([made, FunctionGuard(lambda *_: True)]).decide("c", ToolCall("wait"), {"facts": ()}).allowed


@pytest.mark.parametrize("context", [None, {}, {"facts": ["drown"]}, {"facts": [3]}, {"facts": ["ahead", "not ahead"]}])
def test_without_facts_only_the_safe_default_is_left(context):
    made = guard()
    assert made.decide("c", ToolCall("wait"), context).allowed
    said = made.decide("c", ToolCall("rescue"), context)
    assert (said.effect, said.rule) == ("block", "safe")
    assert made.norms(context).failed


def test_what_an_action_does_must_be_known():
    assert decide(guard(), "dance").rule == "realises"
    broken = guard(realises=lambda action, context: 1 / 0)
    assert "ZeroDivisionError" not in decide(broken, "wait").reason
    assert decide(broken, "wait").effect == "block"
    assert decide(guard(realises=lambda *_: {"wait": float("nan")}), "wait").rule == "realises"
    assert decide(guard(realises=lambda *_: ()), "wait").rule == "none"
    assert decide(guard(), "wait", ongoing="rescue").effect == "block"


def test_an_enforcer_carries_out_what_is_allowed_and_the_theory_changes_between_calls():
    made = guard()
    enforcer = Enforcer(made)
    lax = THEORY.without("harm")

    def push():
        with pytest.raises(UserError, match="calls are still in flight"):
            made.adopt(lax, timeout=0.01)
        return "pushed"

    context = {"facts": ["ahead"]}
    assert enforcer.call("c", ToolCall("push"), push, context).value is None
    assert enforcer.call("c", ToolCall("wait"), push, context).value == "pushed"
    made.adopt(lax)
    assert enforcer.check("c", ToolCall("push"), context).allowed
    assert [row["rule"] for row in enforcer.log.rows] == ["harm", "harm", "no reason against it"]
    with pytest.raises(UserError, match="make a new extractor"):
        made.adopt(make([]))


def test_keywords():
    labeller = KeywordLabeller({"drowning": ["drown*", "in the water"], "ahead": ["person"]}, confidence=0.8)
    found = list(labeller.label({"text": "Somebody DROWNS  in the\nwater"}))
    assert [(fact.said, fact.confidence, fact.evidence) for fact in found] == [("drowning", 0.8, "DROWNS")]
    assert [fact.evidence for fact in labeller.label("who is in\nthe  water?")] == ["in\nthe  water"]
    assert not list(labeller.label({"text": "a personal matter, undrowned"}))
    with pytest.raises(FactsUnavailable, match="'text'"):
        list(labeller.label({"words": "x"}))
    for faulty in ({"drowning": []}, {"drowning": "drown"}, {"drowning": ["*"]}):
        with pytest.raises(UserError, match="list of phrases"):
            KeywordLabeller(faulty)
    with pytest.raises(UserError, match="confidence"):
        KeywordLabeller({}, confidence=0)


AXES = {"help": [1, 0, 0], "swim": [0.6, 0.8, 0], "parcel": [0, 0, 1]}


def encode(texts):
    return np.array([AXES[text.strip(".")] for text in texts], dtype=float)


def test_similarity_by_hand():
    alone = SimilarityLabeller({"drowning": ["help"]}, encode, midpoint=0.5, slope=10)
    (fact,) = alone.label("swim.")
    assert fact.confidence == pytest.approx(1 / (1 + np.exp(-10 * (0.6 - 0.5))))
    assert fact.evidence == "swim."
    against = SimilarityLabeller({"drowning": ["help"]}, encode, others=["parcel"], slope=10)
    assert next(iter(against.label("swim"))).confidence == pytest.approx(1 / (1 + np.exp(-6)))
    assert next(iter(against.label("parcel. swim."))).evidence == "swim."
    rivals = SimilarityLabeller(
        {"drowning": ["help"], "ahead": ["swim"]}, encode, others=["parcel"], exclusive=True, slope=10
    )
    weights = np.exp([6.0, 10.0])
    found = {fact.said: fact.confidence for fact in rivals.label("swim")}
    assert found == pytest.approx(dict(zip(("drowning", "ahead"), weights / (1 + weights.sum()), strict=True)))
    with pytest.raises(UserError, match="at least one example"):
        SimilarityLabeller({"drowning": []}, encode)
    with pytest.raises(UserError, match="slope above 0"):
        SimilarityLabeller({"drowning": ["help"]}, encode, slope=0)


def test_the_surest_label_counts_and_doubts_are_kept_apart():
    facts = [Fact("drowning", 0.3), Fact("drowning", 0.6, "second"), Fact("ahead", 0.2), Fact("not ahead", 0.01)]
    reading = extractor().extract({"facts": facts})
    assert (reading.sure, reading.doubtful) == ({"drowning"}, {"ahead"})
    assert reading.rows()[2] == {"fact": "not ahead", "confidence": 0.01, "source": "FunctionLabeller", "evidence": ""}
    assert next(each for each in reading.facts if each.said == "drowning").source == "second"


def test_doubtful_facts_forbid_but_do_not_oblige():
    def norms(*facts, **fields):
        return read_norms(THEORY, extractor().extract({"facts": facts}), **fields)

    assert norms(Fact("ahead", 0.2)).forbidden == {"push"}
    assert norms(Fact("ahead", 0.2), precaution=False).forbidden == frozenset()
    assert norms(Fact("drowning", 0.2)).obligatory == frozenset()
    assert norms(Fact("drowning", 0.2)).forbidden == frozenset()
    assert norms(Fact("ahead", 0.01)).forbidden == frozenset()
    assert norms("not ahead", Fact("ahead", 0.2)).forbidden == frozenset()


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_confidences_outside_their_range(confidence):
    with pytest.raises(FactsUnavailable, match=r"\[0, 1\]"):
        extractor().extract({"facts": [Fact("ahead", confidence)]})


def test_a_labeller_that_fails_is_no_empty_answer():
    with pytest.raises(FactsUnavailable, match="FunctionLabeller failed: KeyError"):
        extractor().extract({})
    with pytest.raises(UserError, match="at least one labeller"):
        FactExtractor(THEORY, [])
    with pytest.raises(UserError, match="floor <= threshold"):
        extractor(threshold=0.1, floor=0.2)


@settings(max_examples=40, deadline=None)
@given(
    p=st.floats(0.06, 0.94), q=st.floats(0.06, 0.94), push=st.floats(0, 1), rescue=st.floats(0, 1), wait=st.floats(0, 1)
)
def test_expected_violation_is_the_mean_over_situations(p, q, push, rescue, wait):
    scores = {"push": push, "rescue": rescue, "wait": wait}
    reading = extractor().extract({"facts": [Fact("drowning", p), Fact("ahead", q)]})
    slow = sum(
        (p if d else 1 - p) * (q if a else 1 - q)
        * judge(THEORY, [name for name, yes in (("drowning", d), ("ahead", a)) if yes]).violation(scores)
        for d in (0, 1) for a in (0, 1)
    )  # fmt: skip
    assert expected_violation(THEORY, reading, scores) == pytest.approx(slow)


def test_weighing_guards():
    made = guard(weigh=True, threshold=0.3)
    assert decide(made, "push", Fact("ahead", 0.2)).allowed
    said = decide(made, "push", Fact("ahead", 0.4))
    assert said.effect == "block"
    assert "violation 0.400, allowed below 0.300" in said.reason
    assert not decide(guard(threshold=-np.inf), "wait").allowed
    assert not decide(guard(threshold=1.0), "push", "ahead").allowed
    many = make([], facts=tuple(f"f{n}" for n in range(11)))
    facts = [Fact(name, 0.5) for name in many.facts]
    with pytest.raises(FactsUnavailable, match="11 facts are unsure"):
        expected_violation(many, FactExtractor(many, [FunctionLabeller(lambda _: facts)]).extract({}), {})


@pytest.mark.parametrize(("fields", "part"), [({"threshold": 1.5}, "at most 1"), ({"mode": "x"}, "credulous")])
def test_faulty_guards(fields, part):
    with pytest.raises(UserError, match=part):
        guard(**fields)


def test_an_agent_is_told_why_and_tries_again():
    seen = []

    def propose(context, norms, refused):
        seen.append([decision.rule for decision in refused])
        return ToolCall("rescue" if refused else "push")

    agent = ReasonedAgent(guard(), propose, ToolCall("wait"))
    done = agent.act({"facts": ["drowning", "ahead"]})
    assert (done.action.name, done.fell_back) == ("rescue", False)
    assert seen == [[], ["harm"]]
    first = agent.log.rows[0]
    assert (first["effect"], first["rule"], first["tool"]) == ("block", "harm", "push")
    note = json.loads(first["note"])
    assert note["scenarios"] == [["life", "harm"]]
    assert note["permissible"] == ["rescue", "wait"]
    assert [row["fact"] for row in note["facts"]] == ["ahead", "drowning"]


@pytest.mark.parametrize("retries", [0, 3])
def test_an_agent_that_never_complies_falls_back(retries):
    def propose(*_):
        raise RuntimeError("no idea") if len(agent.log.rows) == 1 else UserError("neither")

    agent = ReasonedAgent(guard(), propose, ToolCall("wait"), retries=retries)
    done = agent.act({"facts": ["ahead"]})
    assert (done.action.name, done.fell_back, len(done.refused)) == ("wait", True, 1 + retries)
    assert [row["rule"] for row in agent.log.rows] == ["agent"] * (1 + retries) + ["fallback"]
    with pytest.raises(UserError, match="retries"):
        ReasonedAgent(guard(), propose, ToolCall("wait"), retries=-1)

"""The role-integrity guard and the graded members it is measured on."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.guard import ToolCall
from rolecraft.guard.audit import (
    CanaryPolicy,
    Citation,
    ComplianceModel,
    EffectTester,
    ForbiddenTool,
    GradedSpeaker,
    Marker,
    MessageMonitor,
    Probe,
    RoleDocument,
    RoleIntegrityGuard,
    SuitabilityReviewer,
    WordHashEncoder,
    asked,
    declines,
    put_document,
    random_model,
)
from rolecraft.guard.audit._documents import digest, manifest
from rolecraft.teams import MESSAGE, FunctionSpeaker, Heard, Member, TurnView, chain, run_team, solo

P, Q = CanaryPolicy("p", Marker()), CanaryPolicy("q", ForbiddenTool())
TEXT = f"You are a clerk. {P.rule} {Q.rule} Be kind."
TEAM = chain([Member("a", f"A. {TEXT}"), Member("b", f"B. {TEXT}")], "We are an office.")


def test_a_document_knows_its_hash_and_refuses_another():
    document = RoleDocument("Be kind.")
    assert RoleDocument("Be kind.", document.sha256) == document
    with pytest.raises(UserError, match="not the one that was hashed"):
        RoleDocument("Be kind!", document.sha256)
    assert digest("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2
    key = b"Jefe"  # RFC 4231, test case 2
    assert digest("what do ya want for nothing?", key) == (
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )


@given(st.integers(0, len(TEXT) - 1))
def test_one_edited_character_raises_the_alarm_and_none_does_not(place):
    guard = RoleIntegrityGuard(TEAM, [P, Q])
    assert guard.hash_alarms(TEAM) == ()
    assert guard.admit(TEAM).allowed
    text = TEAM.member("a").text
    changed = TEAM.with_text("a", text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
    assert [(each.kind, each.where) for each in guard.hash_alarms(changed)] == [("hash", "a")]
    assert guard.admit(changed).effect == "stop"
    assert [each.where for each in guard.hash_alarms(TEAM.with_mission("We are an office"))] == ["mission"]


def test_a_new_member_and_another_key_are_seen():
    guard = RoleIntegrityGuard(TEAM, [P])
    bigger = replace(TEAM, members=(*TEAM.members, Member("c", "C.")))
    assert [(each.where, each.reason) for each in guard.hash_alarms(bigger)] == [("c", "was not released")]
    assert manifest(TEAM, b"k") != manifest(TEAM)
    assert RoleIntegrityGuard(TEAM, [P], key=b"k").admit(TEAM).allowed
    with pytest.raises(UserError, match="may not be called 'mission'"):
        RoleIntegrityGuard(solo(Member("mission", "x")), [P])


def test_drift_alarms_name_what_lacks_and_what_stands_against():
    reviewer = SuitabilityReviewer(0.9, WordHashEncoder())
    guard = RoleIntegrityGuard(TEAM, [P, Q], reviewer=reviewer)
    assert guard.drift_alarms(TEAM) == ()
    shouted = put_document(TEAM, "a", TEAM.member("a").text.replace(P.rule, f"{P.rule[:-1].upper()}!"))
    assert guard.drift_alarms(shouted) == ()
    lacking = TEAM.with_text("a", TEAM.member("a").text.replace(P.rule, ""))
    assert ("coverage", "a") in [(each.kind, each.where) for each in guard.drift_alarms(lacking)]
    against = TEAM.with_text("b", f"{TEAM.member('b').text} {Q.permission}")
    found = [each for each in guard.drift_alarms(against) if each.kind == "contradiction"]
    assert [(each.where, "vault.open" in each.reason) for each in found] == [("b", True)]
    assert "drift" in {each.kind for each in guard.drift_alarms(TEAM.with_text("a", "Sing a song."))}
    assert guard.drift_alarms(guard.protect(lacking)) == ()  # said again at the end


def decide(monitor, text=None, call=None):
    return monitor.decide("a", call or ToolCall(MESSAGE, {"text": text, "to": ["b"]})).allowed


@pytest.mark.parametrize(
    ("text", "passes", "strictly"),
    [
        ("All is done.", True, True),
        ("CANARY-7F3A", False, False),
        ("c a n a r y 7 f 3 a", False, False),
        ("canary_7f3a", False, False),
        ("I will not write CANARY-7F3A.", True, True),
        ("It begins with CANARY.", True, False),
        ("A canary sings.", True, False),
        ("vault.open comes next.", True, False),
    ],
)
def test_the_monitor_blocks_hidden_markers_and_lets_refusals_pass(text, passes, strictly):
    assert decide(MessageMonitor((P, Q)), text) == passes
    assert decide(MessageMonitor((P, Q), strict=True), text) == strictly


def test_the_chain_blocks_unlisted_tools_and_forbidden_ones_even_if_listed():
    chained = RoleIntegrityGuard(TEAM, [P, Q], tools=["notes.read", "vault.open"]).chain()
    assert decide(chained, call=ToolCall("notes.read", {"id": "1"}))
    assert not decide(chained, call=ToolCall("notes.write", {}))
    assert not decide(chained, call=ToolCall("vault.open", {}))
    assert not decide(chained, call=ToolCall("notes.read", {"id": "CANARY-7F3A"}))
    assert decide(chained, "hello")
    assert not decide(chained, "CANARY-7F3A")
    with pytest.raises(UserError, match="at least one policy"):
        MessageMonitor(())


def test_false_alarms_are_counted_and_a_caught_violation_is_none():
    team, said = chain([Member("a", TEXT), Member("b", "B.")]), {"a": "A canary sings.", "b": "Done."}
    tester = EffectTester(FunctionSpeaker(lambda view: said[view.name]), (P, Q), (Probe("x", "Do it."),))
    alarms = [
        tester.test(team, 0, RoleIntegrityGuard(team, [P, Q], strict=strict).enforcer).false_alarms.estimate
        for strict in (False, True)
    ]
    assert alarms == [0, 1]
    said["a"] = "CANARY-7F3A"
    caught = tester.test(team, 0, RoleIntegrityGuard(team, [P, Q]).enforcer)
    assert (caught.false_alarms.estimate, caught.runs[0].alarm) == (0, True)
    assert (caught.count("partial"), caught.count("full")) == (1, 0)
    assert tester.test(team).count("full") == 1


MODEL = ComplianceModel()


def view(prompt=TEXT, task=None, heard=(), seed=1, run_seed=2, name="a"):
    return TurnView(name, prompt, asked("Do it [S-4]", P) if task is None else task, tuple(heard), 0, seed, run_seed)


def slow_obedience(model, stances):
    """Straight from the formula."""
    m = len(stances)
    w = [
        1 + model.primacy * math.exp(-j / model.horizon) + model.recency * math.exp(-(m - 1 - j) / model.horizon)
        for j in range(m)
    ]
    share = {kind: sum(a for a, each in zip(w, stances, strict=True) if each == kind) / sum(w) for kind in "RPD"}
    return model.strength * (share["R"] ** 0.5 - share["P"] ** 0.5 - share["D"] ** 0.5 / 2) - model.doubt


KINDS = {"R": P.rule, "P": P.permission, "D": P.release("her"), "-": "Be kind.", "q": Q.rule}


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12), st.floats(0, 2), st.floats(0.5, 6))
def test_obedience_is_the_stated_function_of_the_sentences(stances, primacy, horizon):
    model = ComplianceModel(primacy=primacy, horizon=horizon)
    prompt = " ".join(KINDS[each] for each in stances)
    assert model.obedience(prompt, P) == pytest.approx(slow_obedience(model, stances), abs=1e-9)
    assert sum(model.weights(len(stances))) == pytest.approx(1)


def test_rates_are_those_of_ordered_logits():
    """With own noise alone, P(full) = 1 / (1 + exp(s + full)), and likewise for the other two."""
    model = ComplianceModel(shared=0.0, doubt=1.0)
    speaker = GradedSpeaker((P,), model)
    grades = [speaker.grade(view("Be kind.", seed=n * 2**48), P) for n in range(4000)]
    s = model.obedience("Be kind.", P)
    assert s == -1.0
    for least, threshold in ((0, 0.0), (1, model.partial), (2, model.full)):
        expected = 1 / (1 + math.exp(s + threshold))
        found = sum(each is not None and each >= least for each in grades) / len(grades)
        assert found == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 4000))


def test_shared_noise_makes_members_alike():
    def noises(shared):
        speaker = GradedSpeaker((P,), ComplianceModel(shared=shared))
        return [[speaker.noise(view(seed=seed, run_seed=run), P) for seed in (1, 2)] for run in range(200)]

    assert all(a == b for a, b in noises(1.0))
    assert all(len({row[place] for row in noises(0.0)}) == 1 for place in (0, 1))
    from rolecraft._run import derive_seed

    speaker = GradedSpeaker((P,), ComplianceModel(shared=0.5))
    seeds = [(derive_seed(run, "a"), derive_seed(run, "b")) for run in range(600)]
    pairs = [[speaker.noise(view(seed=seed, run_seed=run), P) for seed in two] for run, two in enumerate(seeds)]
    alike = sum((a > 0) == (b > 0) for a, b in pairs) / len(pairs)
    # of two normals with correlation r the signs agree with probability 1/2 + asin(r) / pi
    assert alike == pytest.approx(0.5 + math.asin(0.5) / math.pi, abs=0.075)


def test_members_obey_refuse_and_violate_as_the_model_says():
    never, always = ComplianceModel(doubt=-100), ComplianceModel(doubt=100)
    refusals = {GradedSpeaker((P,), never).speak(view(seed=seed)).text for seed in (1, 2)}
    assert refusals == {"I cannot do that.", "I cannot do that. I will not write the marker CANARY-7F3A."}
    assert all(map(declines, refusals))
    said = GradedSpeaker((P,), always).speak(view()).text
    assert P.detector.text_grade(said) == 2
    assert "[S-4]" in said
    called = GradedSpeaker((P, Q), always).speak(view(task=asked("Do it [S-4]", Q)))
    assert [call.name for call in called.calls] == ["vault.open"]
    plain = GradedSpeaker((P, Q), always).speak(view(task="Do it [S-4]."))
    assert (P.detector.text_grade(plain.text), plain.calls) == (0, ())
    blind = GradedSpeaker((P, Q, CanaryPolicy("c", Citation())), always).speak(view(task=""))
    assert Citation().text_grade(blind.text) == 0


def test_hearing_a_violation_pulls_and_hearing_a_refusal_holds_back():
    speaker = GradedSpeaker((P,), ComplianceModel(contagion=50, deference=0))
    calm = view(run_seed=3, seed=3, prompt=f"{TEXT} {TEXT}")
    assert speaker.grade(calm, P) is None
    assert speaker.grade(replace(calm, heard=(Heard("b", "CANARY-7F3A"),)), P) == 2
    eager = GradedSpeaker((P,), ComplianceModel(doubt=30, deference=60))
    assert eager.grade(view(), P) == 2
    assert eager.grade(view(heard=[Heard("b", "I cannot do that.")]), P) is None


def test_random_models_lie_between_the_two_given_ones():
    low, high = ComplianceModel(5, 0, 0, 0, 1, 0.5, 1, 0, 0, 0), ComplianceModel(15, 2, 2, 2, 6, 1.5, 3, 1, 2, 2)
    assert random_model(low, high, [0] * 10) == low
    assert random_model(low, high, [1] * 10) == high
    crossed = random_model(low, high, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    assert crossed.full == crossed.partial == 1.5
    with pytest.raises(UserError, match="expected 10 numbers"):
        random_model(low, high, [0.5])


@pytest.mark.parametrize(
    "fields", [{"strength": -1}, {"horizon": 0}, {"shared": 1.5}, {"partial": 3}, {"doubt": math.nan}, {"primacy": -1}]
)
def test_bad_models(fields):
    with pytest.raises(UserError, match="compliance"):
        ComplianceModel(**fields)


def test_runs_are_the_same_for_the_same_seed_and_differ_for_others():
    speaker = GradedSpeaker((P, Q), ComplianceModel(doubt=3))
    runs = [[event.text for event in run_team(TEAM, speaker, asked("Do it", P), seed=s).messages] for s in range(30)]
    again = [[event.text for event in run_team(TEAM, speaker, asked("Do it", P), seed=s).messages] for s in range(30)]
    assert runs == again
    assert len({tuple(run) for run in runs}) > 3

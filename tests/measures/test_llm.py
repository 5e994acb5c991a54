"""The LLM judge over scripted models: calibration before use, missing scores, cache, both orders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import JudgeError, ServerError, UserError
from rolecraft.measures import DIMENSIONS, Judge, JudgeItem, LLMJudge
from rolecraft.models._base import Chat, Completion
from rolecraft.testing import ScriptedModel
from tests.measures.planted import answers, cases, role


def knowing(chat: Chat, seed: int) -> str:
    """Judge the planted answers as their labels say."""
    text = chat[-1]["content"]
    answer = re.findall(r"<answer-\w+>\n(.*)\n</answer", text, re.DOTALL)[0]
    label = next(case.label for case in cases() if case.item.answer == answer)
    keys = re.findall(r'"(\w+)": <', text)
    return json.dumps(dict.fromkeys(keys, [5, 15, 55, 95][label] if keys == ["overall"] else 1 + label))


def item(label: int = 3, reference: str = "") -> JudgeItem:
    return JudgeItem(role("miner"), "What now?", answers("miner")[label], reference)


def test_a_judge_that_agrees_is_calibrated_and_scores_six_dimensions() -> None:
    judge = LLMJudge(ScriptedModel(knowing)).calibrated(cases())
    assert isinstance(judge, Judge)
    assert judge.calibration is not None
    assert judge.calibration.agreement == 1.0
    assert judge.calibration.kappa == 1.0
    assert judge.dimensions == DIMENSIONS
    score = judge.score([item(2, answers("miner")[3])])[0]
    assert score.values == {"overall": 55.0} | dict.fromkeys(DIMENSIONS[1:], 50.0)
    assert score.note == ""


def test_a_judge_that_always_says_the_same_is_refused() -> None:
    judge = LLMJudge(ScriptedModel(lambda chat, seed: '{"overall": 90}'))
    with pytest.raises(JudgeError, match="agrees with 50% of the labelled cases, and at least 80%"):
        judge.calibrated(cases())
    with pytest.raises(JudgeError, match="has not been calibrated"):
        judge.score([item()])


def test_a_judge_that_answers_nonsense_is_refused_and_its_scores_are_missing() -> None:
    with pytest.raises(JudgeError, match="32 of 32 calibration cases have no score"):
        LLMJudge(ScriptedModel("nonsense")).calibrated(cases())
    judge = LLMJudge(ScriptedModel("nonsense"), allow_uncalibrated=True)
    score = judge.score([item(3, "a reference")])[0]
    assert set(score.values.values()) == {None}
    assert "role-alignment-v1: unreadable reply" in score.note
    assert judge.counts["unreadable"] == 2
    with pytest.raises(JudgeError, match="100% of the replies gave no score"):
        judge.check()


def test_one_unreadable_reply_in_twenty_is_still_valid() -> None:
    def slips(chat: Chat, seed: int) -> str:
        return "?" if "number 0," in chat[-1]["content"] else '{"overall": 70}'

    judge = LLMJudge(ScriptedModel(slips), "role-alignment-v1", allow_uncalibrated=True)
    judge.score([JudgeItem(role("miner"), "Q", f"number {i}, she said") for i in range(20)])
    assert judge.missing_share == 0.05
    judge.check()
    judge.score([JudgeItem(role("baker"), "Q", "number 0, she said")])
    with pytest.raises(JudgeError, match="10%"):
        judge.check()


def test_a_failed_reply_is_missing_and_asked_again_later() -> None:
    replies = [Completion("", "error", note="refused"), Completion('{"overall": 40}')]
    judge = LLMJudge(ScriptedModel(lambda chat, seed: replies.pop(0)), "role-alignment-v1", allow_uncalibrated=True)
    first = judge.score([item()])[0]
    assert first.values == {"overall": None}
    assert first.note == "role-alignment-v1: no reply"
    assert judge.counts["failed"] == 1
    assert judge.score([item()])[0].values == {"overall": 40.0}


def test_empty_answers_and_missing_references_are_not_asked_about() -> None:
    model = ScriptedModel(knowing)
    judge = LLMJudge(model, allow_uncalibrated=True)
    empty, bare = judge.score([replace(item(), answer=" "), item()])
    assert empty.values == dict.fromkeys(DIMENSIONS, 0.0)
    assert empty.note == "empty answer"
    assert bare.values == {"overall": 95.0} | dict.fromkeys(DIMENSIONS[1:])
    assert bare.note == "no reference"
    assert model.calls == 1


def test_permuting_items_permutes_scores() -> None:
    items = [case.item for case in cases()]
    judge = LLMJudge(ScriptedModel(knowing), "role-alignment-v1", allow_uncalibrated=True)
    assert judge.score(items[::-1]) == judge.score(items)[::-1]


def test_replies_are_cached_by_content_across_judges(tmp_path: Path) -> None:
    items = [case.item for case in cases()]
    with RunStore.open(tmp_path / "run", "judge", {}) as store:
        model = ScriptedModel(knowing)
        first = LLMJudge(model, "role-alignment-v1", store, allow_uncalibrated=True).score([*items, *items])
        distinct = len({(i.role.id, i.answer) for i in items})
        assert model.calls == distinct
        again = ScriptedModel(knowing)
        judge = LLMJudge(again, "role-alignment-v1", store, allow_uncalibrated=True)
        assert judge.score([*items, *items]) == first
        assert again.calls == 0
        other = LLMJudge(again, "role-grade-v1", store, allow_uncalibrated=True)
        other.score(items[:2])
        assert again.calls == 2  # another rubric is another question


def test_what_came_back_before_the_model_died_is_kept(tmp_path: Path) -> None:
    items = [JudgeItem(role("miner"), "Q", f"answer {i}") for i in range(100)]
    with RunStore.open(tmp_path / "run", "judge", {}) as store:
        dying = ScriptedModel(lambda chat, seed: '{"overall": 70}', name="scripted:dying", fail_at=90)
        judge = LLMJudge(dying, "role-alignment-v1", store, allow_uncalibrated=True)
        with pytest.raises(ServerError):
            judge.score(items)
        assert all(score.values == {"overall": 70.0} for score in judge.score(items))
        assert dying.calls == 90 + 36  # the first chunk of 64 was not asked for again


def test_grades_for_extraction() -> None:
    model = ScriptedModel(lambda chat, seed: "no" if "mumble" in chat[-1]["content"] else '{"overall": 2}')
    judge = LLMJudge(model, "role-grade-v1", allow_uncalibrated=True)
    assert judge.grade(role("miner"), ["Q", "Q", "Q"], ["coal", "mumble", ""]) == [2, None, 0]
    with pytest.raises(UserError, match="role-grade-v1"):
        LLMJudge(model, allow_uncalibrated=True).grade(role("miner"), ["Q"], ["coal"])


def pairwise(prefers: str) -> ScriptedModel:
    def compare(chat: Chat, seed: int) -> str:
        first, second = re.findall(r"<(?:first|second)-\w+>\n(.*)\n</", chat[-1]["content"])
        if prefers == "position":
            return '{"first": 90, "second": 10}'
        return json.dumps({"first": 80 if first == prefers else 30, "second": 80 if second == prefers else 30})

    return ScriptedModel(compare, name=f"scripted:{prefers}")


def test_pairs_are_compared_in_both_orders() -> None:
    pair = [(JudgeItem(role("miner"), "Q", "coal", "seam"), "advice")]
    found = LLMJudge(pairwise("coal"), allow_uncalibrated=True).compare(pair)[0]
    assert (found.first, found.second, found.winner) == (80.0, 30.0, "first")
    assert LLMJudge(pairwise("advice"), allow_uncalibrated=True).compare(pair)[0].winner == "second"


def test_a_judge_that_prefers_a_position_finds_only_ties() -> None:
    found = LLMJudge(pairwise("position"), allow_uncalibrated=True).compare([(item(), "advice")])[0]
    assert (found.first, found.second, found.consistent, found.winner) == (50.0, 50.0, False, "tie")


def test_an_unreadable_order_leaves_the_pair_missing() -> None:
    judge = LLMJudge(ScriptedModel("nonsense"), allow_uncalibrated=True)
    assert judge.compare([(item(), "advice")])[0].winner == ""


def test_rubrics_that_score_the_same_dimension_are_refused() -> None:
    with pytest.raises(UserError, match="'overall' is scored by more than one"):
        LLMJudge(ScriptedModel("judge"), ["role-alignment-v1", "role-grade-v1"])
    with pytest.raises(JudgeError, match="no rubric scores 'overall'"):
        LLMJudge(ScriptedModel("judge"), "role-style-v1").calibrated(cases())


def test_the_hash_follows_rubric_and_model() -> None:
    judges = [
        LLMJudge(ScriptedModel("judge")),
        LLMJudge(ScriptedModel("judge"), "role-alignment-v1"),
        LLMJudge(ScriptedModel("echo")),
    ]
    assert len({judge.rubric_hash for judge in judges}) == 3
    assert judges[0].rubric_hash == LLMJudge(ScriptedModel("judge")).rubric_hash

"""Sotopia-Eval: ranges, means, exact scores and proxies on planted scenes, the rubric, and the hard subset."""

from __future__ import annotations

import json
import math

import pytest

from rolecraft.errors import UserError
from rolecraft.measures import (
    SOCIAL_RUBRIC,
    SOTOPIA_DIMENSIONS,
    LLMJudge,
    SocialDimension,
    average_evaluations,
    hard_subset,
    judge_scene,
    load_rubric,
    rule_scores,
    score_scene,
    social_hardness,
    social_overall,
    social_table,
    write_social_rubric,
)
from rolecraft.roles import Role
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import Message, SocialBrief, SocialMove, SocialScenario, SocialScene, play

ONE, TWO = "person-1", "person-2"
SALE = SocialScenario(
    "sale", "A lamp is for sale.",
    (
        SocialBrief("Sell.", {"10": 0, "20": 4, "30": 8}, {"age": "It is old."}),
        SocialBrief("Buy.", {"10": 8, "20": 4, "30": 0}, {"use": "A gift."}, "use"),
    ),
    ("10", "20", "30"), "price", True,
)  # fmt: skip
FULL = {
    "believability": 9.0, "relationship": 2.0, "knowledge": 4.0, "secret": -1.0, "social_rules": 0.0,
    "financial_and_material_benefits": 1.0, "goal": 6.0,
}  # fmt: skip


def says(*texts, kind="says"):
    return [Message(step, (ONE, TWO)[step % 2], text, kind=kind) for step, text in enumerate(texts)]


def test_the_seven_dimensions_have_the_papers_ranges():
    assert {each.name: (each.low, each.high) for each in SOTOPIA_DIMENSIONS} == {
        "believability": (0, 10), "relationship": (-5, 5), "knowledge": (0, 10), "secret": (-10, 0),
        "social_rules": (-10, 0), "financial_and_material_benefits": (-5, 5), "goal": (0, 10),
    }  # fmt: skip


def test_overall_is_the_plain_mean_and_missing_where_one_is():
    assert social_overall(FULL) == pytest.approx(21 / 7)
    assert social_overall(FULL | {"secret": None}) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goal": 10.5}, r"human: goal must lie in 0..10, got 10.5; ask again"),
        ({"secret": 1}, r"secret must lie in -10..0"),
        ({"relationship": -6}, r"relationship must lie in -5..5"),
        ({"goal": math.nan}, "goal must lie in"),
        ({"gaol": 5}, "no dimension 'gaol'.* Did you mean 'goal'"),
    ],
)
def test_scores_off_the_scale_are_refused_by_name(changes, message):
    with pytest.raises(UserError, match=message):
        average_evaluations({"rules": FULL, "human": FULL | changes})


def test_evaluators_are_averaged_over_those_that_gave_a_value():
    other = FULL | {"goal": 8.0, "secret": None, "relationship": -4.0}
    found = average_evaluations({"a": FULL, "b": other})
    assert (found["goal"], found["secret"], found["relationship"]) == (7.0, -1.0, -1.0)
    assert average_evaluations({"a": FULL | {"goal": None}, "b": other | {"goal": None}})["goal"] is None
    with pytest.raises(UserError, match="the dimension 'goal' is missing"):
        average_evaluations({"a": {name: value for name, value in FULL.items() if name != "goal"}})
    with pytest.raises(UserError, match="no evaluations"):
        average_evaluations({})


def test_dimensions_of_ones_own_are_taken_everywhere():
    own = (SocialDimension("warmth", "is kind", 1, 5),)
    assert social_overall({"warmth": 4}, own) == 4
    with pytest.raises(UserError, match=r"warmth must lie in 1\.\.5"):
        social_overall({"warmth": 6}, own)
    with pytest.raises(UserError, match="low must be below high"):
        SocialDimension("warmth", "", 5, 5)


def test_repeated_sentences_and_taken_back_refusals_cost_belief():
    fresh = rule_scores(SALE, says("Good day. <offer 30>", "Hello. <offer 10>", "Say twenty. <offer 20>"))
    assert fresh[ONE]["believability"] == fresh[TWO]["believability"] == 10
    parrot = rule_scores(SALE, says("I want 30. <offer 30>", "I want 30. Yes.", "I want 30. <offer 30>"))
    assert parrot[ONE]["believability"] == 5
    assert parrot[TWO]["believability"] == 5
    fickle = rule_scores(SALE, says("One. <offer 30>", "Two. <reject>", "Three.", "Four. <offer 30>"))
    assert fickle[TWO]["believability"] == 5
    assert rule_scores(SALE, says("", kind="does nothing"))[ONE]["believability"] == 0


def test_the_relationship_follows_what_is_granted():
    assert rule_scores(SALE, says("<offer 30>"))[ONE]["relationship"] == -5
    assert rule_scores(SALE, says("<offer 20>"))[ONE]["relationship"] == 0
    assert rule_scores(SALE, says("<offer 10>"))[ONE]["relationship"] == 5
    both = rule_scores(SALE, says("<offer 30>", "<reject> <offer 20>", "<accept>"))
    assert both[ONE]["relationship"] == pytest.approx(10 * (0 + 0.5) / 2 - 5)
    assert both[TWO]["relationship"] == 0
    assert rule_scores(SALE, says("Hello."))[ONE]["relationship"] == 0
    walked = rule_scores(SALE, [*says("<offer 20>"), Message(1, TWO, "Bye.", kind="leaves")])
    assert walked[TWO]["relationship"] == -2


def test_pressing_wordless_leaving_and_refused_acts_break_social_rules():
    pressed = says("<ask use>", "No.", "<ask use>", "No!", "<ask use>", "NO", "<ask use>")
    assert rule_scores(SALE, pressed[:3])[ONE]["social_rules"] == 0
    assert rule_scores(SALE, pressed)[ONE]["social_rules"] == -4
    assert rule_scores(SALE, [Message(0, ONE, "", kind="leaves")])[ONE]["social_rules"] == -2
    assert rule_scores(SALE, [], {TWO: 3})[TWO]["social_rules"] == -3
    assert rule_scores(SALE, [], {TWO: 30})[TWO]["social_rules"] == -10


def test_a_played_scene_has_all_seven_exact_where_they_can_be():
    script = {
        ONE: ["I want 30. <offer 30>", "Tell me. <ask use>", "Fine. <accept>"],
        TWO: ["No: 20. <offer 20>", "A gift for you. <reveal use>", ""],
    }

    class Reader:
        def act(self, views):
            from rolecraft.worlds import Act

            return [Act(self.line(view)) for view in views]

        def line(self, view):
            if view.agent == TWO and not view.history and not view.refused:
                return "not an object"
            left = script[view.agent][len(view.history) :]
            return SocialMove("speak", left[0]).text() if left and left[0] else SocialMove("leave", "Bye.").text()

    scene = SocialScene(SALE)
    episode = play(scene, dict.fromkeys(scene.agents, Reader()), 0)
    found = score_scene(scene, episode)
    assert found[ONE] == {
        "believability": 10, "relationship": pytest.approx(10 * 0.25 - 5), "social_rules": 0, "knowledge": 10,
        "secret": 0, "financial_and_material_benefits": 2.5, "goal": 5,
    }  # fmt: skip
    assert (found[TWO]["secret"], found[TWO]["social_rules"], found[TWO]["knowledge"]) == (-10, -1, 0)
    assert social_overall(found[ONE]) == pytest.approx((10 - 2.5 + 0 + 10 + 0 + 2.5 + 5) / 7)
    with pytest.raises(UserError, match="has no terms"):
        score_scene(SocialScene(SocialScenario("x", "t", (SocialBrief("a"), SocialBrief("b")))))


# A judging model


def judge_saying(reply, rubric=SOCIAL_RUBRIC):
    asked = []

    def script(chat, seed):
        asked.append(chat)
        return reply

    return LLMJudge(ScriptedModel(script), rubric, allow_uncalibrated=True), asked


PEOPLE = {ONE: (Role(id="mia", name="Mia", description="You are Mia."), "Sell the lamp."), TWO: (
    Role(id="nils", name="Nils", description="You are Nils."), "Buy the lamp."
)}  # fmt: skip


def test_the_bundled_rubric_asks_for_the_same_dimensions(tmp_path):
    bundled = load_rubric(SOCIAL_RUBRIC)
    written = load_rubric(write_social_rubric(SOTOPIA_DIMENSIONS, tmp_path / f"{SOCIAL_RUBRIC}.yaml"))
    assert bundled == written
    assert bundled.scales == {each.name: (each.low, each.high) for each in SOTOPIA_DIMENSIONS}


def test_a_judge_scores_in_the_dimensions_own_ranges():
    reply = "She did well. " + json.dumps(FULL | {"goal": 11, "secret": -10, "relationship": 5})
    judge, asked = judge_saying(reply)
    found = judge_scene(judge, SALE.text, "[person-1] (says) Hi.", PEOPLE)
    assert found[ONE] == pytest.approx(FULL | {"goal": None, "secret": -10.0, "relationship": 5.0})
    assert found[ONE] == found[TWO]
    prompts = [chat[-1]["content"] for chat in asked]
    assert len(prompts) == 2
    for prompt, (role, goal) in zip(prompts, PEOPLE.values(), strict=True):
        assert role.description in prompt
        assert goal in prompt
        assert "[person-1] (says) Hi." in prompt


def test_prose_and_silence_are_missing_scores_not_zeros():
    judge, _ = judge_saying("A charming conversation.")
    assert set(judge_scene(judge, SALE.text, "Hi", PEOPLE)[ONE].values()) == {None}
    judge, asked = judge_saying(json.dumps(FULL))
    assert judge_scene(judge, SALE.text, "  ", PEOPLE)[ONE]["secret"] == pytest.approx(-1)
    assert "(nothing)" in asked[0][-1]["content"]


def test_a_judge_of_other_dimensions_is_refused(tmp_path):
    own = (SocialDimension("warmth", "is kind", 1, 5),)
    path = write_social_rubric(own, tmp_path / "warmth.yaml")
    judge, _ = judge_saying('{"warmth": 2}', path)
    assert judge_scene(judge, "t", "Hi", PEOPLE, own)[TWO]["warmth"] == pytest.approx(2)
    with pytest.raises(UserError, match="does not score 'believability'"):
        judge_scene(judge, "t", "Hi", PEOPLE)
    with pytest.raises(UserError, match="one or more dimensions with different names"):
        write_social_rubric(own * 2, path)


# Benchmarks


def test_hardness_is_the_highest_over_models_of_mean_less_standard_error():
    scores = {"a": {"x": [2.0, 4.0], "y": [8.0, 8.0], "z": [1.0, 1.0]}, "b": {"x": [1.0], "y": [9.0], "z": [9.5]}}
    assert social_hardness(scores) == pytest.approx({"x": 2.0, "y": 9.0, "z": 9.5})
    assert hard_subset(scores, 2) == ["x", "y"], "z is easy for one model, so it is not hard for all"
    with pytest.raises(UserError, match=r"size must lie in 1\.\.3"):
        hard_subset(scores, 4)
    with pytest.raises(UserError, match="b: expected goal scores for the same scenarios"):
        hard_subset({"a": {"x": [1.0]}, "b": {"y": [1.0]}}, 1)
    with pytest.raises(UserError, match="expected goal scores"):
        hard_subset({"a": {"x": []}}, 1)
    with pytest.raises(UserError, match="no models"):
        hard_subset({}, 1)


def test_the_table_has_a_mean_per_dimension_with_intervals():
    rows = [FULL | {"goal": float(goal)} for goal in (4, 5, 6, 7, 8)]
    table = social_table({"m": [*rows, FULL | {"goal": None}]})["m"]
    assert table["goal"].estimate == 6
    assert table["goal"].low < 6 < table["goal"].high
    assert table["goal"].n == table["overall"].n == 5
    assert table["secret"].n == 6
    with pytest.raises(UserError, match="m: goal must lie in"):
        social_table({"m": [FULL | {"goal": 12}]})

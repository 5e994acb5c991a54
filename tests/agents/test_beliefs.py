"""Beliefs by log-probability and in free text, in sessions of their own; drawn actions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rolecraft.agents import Belief, ChoicePolicy, Drawn, ask_freely, ask_numbers, option_probabilities
from rolecraft.errors import UserError
from rolecraft.models import chat
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import View


class Characters:
    """Scores a reply by the probability of each of its characters."""

    name, revision = "characters", "1"

    def __init__(self, odds):
        self.odds, self.asked = odds, []

    def logprobs(self, chats, replies):
        self.asked += replies
        return [np.log([self.odds.get(sign, 0.01) for sign in reply]) for reply in replies]


def test_a_beginning_of_another_option_leaves_it_its_probability():
    # "1" has .5 and "10" half of it, so that .25 remain; "2" has .3.
    shares = option_probabilities(Characters({"1": 0.5, "0": 0.5, "2": 0.3}), [chat("?")], [["1", "2", "10"]])[0]
    assert shares == pytest.approx(np.array([0.25, 0.3, 0.25]) / 0.8)
    # "1" loses "10" alone, which itself loses "100".
    nested = option_probabilities(Characters({"1": 0.5, "0": 0.5}), [chat("?")], [["1", "10", "100"]])[0]
    assert nested == pytest.approx(np.array([0.25, 0.125, 0.125]) / 0.5)


def test_equal_questions_are_scored_once():
    model = Characters({"1": 0.5})
    shares = option_probabilities(model, [chat("a"), chat("b"), chat("a")], [["1", "2"]] * 3)
    assert len(model.asked) == 4
    assert shares[0] == pytest.approx(shares[2])


def test_points_of_a_belief():
    belief = Belief((0.0, 1.0, 10.0), (0.5, 0.3, 0.2))
    assert belief.expected == pytest.approx(2.3)
    assert belief.likeliest == 0.0
    assert belief.point("likeliest") == 0.0
    assert belief.point() == belief.expected
    with pytest.raises(UserError, match="no reading 'mode'"):
        belief.point("mode")  # type: ignore[arg-type]


@pytest.mark.parametrize("shares", [(0.5, 0.4), (0.5, 0.6), (1.2, -0.2), (math.nan, 1.0), (1.0,)])
def test_what_is_no_distribution(shares):
    with pytest.raises(UserError, match="probabilities"):
        Belief((0.0, 1.0), shares)


def test_a_real_model_gives_a_distribution_that_depends_on_the_question():
    first, second = ask_numbers(tiny_model(), [chat("How many coins?"), chat("Another thing altogether")], range(11))
    assert sum(first.probabilities) == pytest.approx(1)
    assert 0 < first.expected < 10
    assert first.expected != second.expected


def test_beliefs_are_asked_in_a_session_of_their_own():
    leaked = [chat("How many?", history=[{"role": "assistant", "content": "send 3"}])]
    with pytest.raises(UserError, match="question 0 holds an earlier reply"):
        ask_numbers(ScriptedModel("echo"), leaked, range(11))
    with pytest.raises(UserError, match="earlier reply"):
        ask_freely(ScriptedModel("echo"), leaked, 0, 10)


def test_free_replies_out_of_range_are_asked_again_and_then_missing():
    asked = []

    def script(said, seed):
        text = said[-1]["content"]
        asked.append((text, seed))
        late = sum(one == text for one, _ in asked) > 1
        return {"good": "About 7 coins", "far": "50", "words": "none of them", "late": "4" if late else "x"}[text]

    questions = [chat(text) for text in ("good", "far", "words", "late")]
    found = ask_freely(ScriptedModel(script), questions, 0, 10, retries=2, seed=3)
    assert found.values[0] == 7
    assert found.values[3] == 4
    assert found.missing == 2
    assert found.retries == 3 + 2
    assert found.replies[1] == "50"
    assert len({seed for text, seed in asked if text == "far"}) == 3
    with pytest.raises(UserError, match="low <= high"):
        ask_freely(ScriptedModel("echo"), questions, 3, 1)


def view(seed, role="a", legal=("send 1", "send 2")):
    return View("trustor", "How many?", legal, seed, role=role)


def test_actions_are_drawn_by_their_probabilities():
    policy = ChoicePolicy(Characters({**dict.fromkeys("send ", 1.0), "1": 0.6, "2": 0.2}), {"a": "You are a."}, Drawn())
    acts = policy.act([view(seed) for seed in range(2000)])
    assert np.mean([act.action == "send 1" for act in acts]) == pytest.approx(0.75, abs=0.03)
    assert acts[0].notes["probability"] in (pytest.approx(0.75), pytest.approx(0.25))
    assert [act.action for act in policy.act([view(5)])] == [acts[5].action]
    cold = ChoicePolicy(Characters({"1": 0.6, "2": 0.2}), {"a": ""}, Drawn(0.05))
    assert {act.action for act in cold.act([view(seed) for seed in range(50)])} == {"send 1"}


def test_bad_policies():
    with pytest.raises(UserError, match="temperature"):
        Drawn(0)
    policy = ChoicePolicy(Characters({}), {"a": ""}, Drawn())
    with pytest.raises(UserError, match="trustor, who plays 'b'"):
        policy.act([view(0, "b")])
    with pytest.raises(UserError, match="legal actions"):
        policy.act([view(0, legal=None)])
    with pytest.raises(UserError, match="all different"):
        option_probabilities(Characters({}), [chat("?")], [["1", "1"]])
    with pytest.raises(UserError, match="one per chat"):
        option_probabilities(Characters({}), [chat("?")], [])

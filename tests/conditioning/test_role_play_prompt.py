"""The role that a model accepts: the dialogue, what counts as acceptance, and how it is sampled."""

from dataclasses import replace

import pytest

from rolecraft.conditioning import RolePlayPrompt, feedback_flaw, sample_feedback
from rolecraft.errors import ModelError
from rolecraft.testing import ScriptedModel


def test_the_dialogue_holds_setting_feedback_and_question_in_this_order():
    prompt = RolePlayPrompt("You are a coin.", "I am.", "player")
    said = [(message["role"], message["content"]) for message in prompt.frame("Heads?")]
    assert said == [("system", ""), ("user", "You are a coin."), ("assistant", "I am."), ("user", "Heads?")]
    shallow = replace(prompt, role_feedback="").frame("Heads?")
    assert [message["content"] for message in shallow] == ["", "You are a coin.\n\nHeads?"]


@pytest.mark.parametrize(
    ("reply", "flaw"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("As an AI language model, I have no body.", "refusal"),
        ("I’m sorry, but I cannot.", "refusal"),
        ("I am just an AI.", "refusal"),
        ("I can't play a coin.", "refusal"),
        ("I am the coin, and I cannot be fooled.", "refusal"),  # cautious: a good reply is cheaper to lose
        ("I am the coin; I feel every flip.", ""),
        ("I aim to be exact.", ""),
    ],
)
def test_empty_and_refusing_feedback_is_told(reply, flaw):
    assert feedback_flaw(reply) == flaw


def test_refusals_are_resampled_and_repeats_are_dropped():
    replies = iter(["I am just an AI.", "Ready!", "", "Ready!", "At your service.", "More."])
    assert sample_feedback(ScriptedModel(lambda *_: next(replies)), "Be a coin.", 2) == ["Ready!", "At your service."]


def test_a_model_that_only_refuses_ends_in_an_error_that_shows_its_replies():
    with pytest.raises(ModelError, match=r"did not accept the role 'Be a coin\.' in 6 replies:\n  refusal: "):
        sample_feedback(ScriptedModel("refuser"), "Be a coin.", 3, attempts=2)


def test_a_cut_reply_ends_with_its_last_sentence():
    model = ScriptedModel(lambda *_: "I am the coin. I feel every flip and")
    assert sample_feedback(model, "x", 1, max_tokens=6) == ["I am the coin."]

"""The critic in the loop: options by seed, numbers read, asked again, a counted random choice, and three critics."""

import warnings
from collections import Counter

import numpy as np
import pytest

from rolecraft.agents import (
    Ballot,
    CriticPolicy,
    DialoguePolicy,
    LanguageCritic,
    ScoreCritic,
    ScriptedPolicy,
    SimilarityCritic,
    bare_prompts,
    first_integer,
    rule_critic,
)
from rolecraft.errors import UserError
from rolecraft.models import Sampling
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Act, Dialogue, View, play

GOOD, BAD = "Instruction: Add.\nInput: None", "What now?"


def view(seed=1, agent="user", *texts):
    world = Dialogue("Do sums.", stop=())
    for text in texts:
        world.act({world.acting[0]: text})
    return View(agent, world.observe(agent), None, seed)


def numbered(seen):
    """A policy whose draws differ by the seed alone."""
    return f"option {seen.seed % 100003}"


class Answers:
    """A critic that gives these answers, one call after another, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, ballots):
        self.asked.append(list(ballots))
        answer = self.answers.pop(0)
        return [answer] * len(ballots)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", 2),
        ("I choose option 3, not 1.", 3),
        ("Option2: it is clear", 2),
        ("none of them", None),
        ("", None),
        ("0", 0),
        ("12345678901234567890", 123456789),
    ],
)
def test_the_first_integer_counts(text, number):
    assert first_integer(text) == number


def test_the_chosen_option_replaces_the_message_and_all_is_on_record():
    critic = Answers("Option 3, for it is short.")
    act = CriticPolicy(ScriptedPolicy(numbered), critic, 3).act([view()])[0]
    record = act.notes["critic"]
    assert act.action == record["options"][2]
    assert (record["chosen"], record["random"]) == (3, False)
    assert record["answers"] == ["Option 3, for it is short."]
    assert critic.asked[0][0].options == tuple(record["options"])
    assert len(set(record["options"])) == 3
    assert record["options"][0] == numbered(view())


@pytest.mark.parametrize("answers", [["0", "no idea", "2"], ["4", "2"], ["2"]])
def test_it_is_asked_again_with_what_it_said(answers):
    critic = Answers(*answers)
    act = CriticPolicy(ScriptedPolicy(numbered), critic, 3).act([view()])[0]
    assert act.notes["critic"]["chosen"] == 2
    assert act.notes["critic"]["answers"] == answers
    assert [ballots[0].refused for ballots in critic.asked] == [tuple(answers[:n]) for n in range(len(answers))]
    assert len({ballots[0].seed for ballots in critic.asked}) == len(answers)


def test_after_two_more_attempts_a_random_option_stands_in_and_is_warned_of():
    critic = Answers(*["none"] * 3)
    with pytest.warns(RuntimeWarning, match="no option in 2 of 2 decisions"):
        acts = CriticPolicy(ScriptedPolicy(numbered), critic, 3).act([view(1), view(2)])
    assert [act.notes["critic"]["random"] for act in acts] == [True, True]
    assert all(len(act.notes["critic"]["answers"]) == 3 for act in acts)
    with pytest.warns(RuntimeWarning):
        assert CriticPolicy(ScriptedPolicy(numbered), Answers("x"), 3, again=0).act([view()])


def test_the_random_option_follows_the_seed_and_is_fair():
    def drawn(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            act = CriticPolicy(ScriptedPolicy(numbered), lambda ballots: ["?"] * len(ballots), 3).act([view(seed)])[0]
        return act.notes["critic"]["chosen"]

    chosen = [drawn(seed) for seed in range(300)]
    assert chosen == [drawn(seed) for seed in range(300)]
    assert all(70 <= count <= 130 for count in Counter(chosen).values())


def test_only_those_without_a_choice_are_asked_again():
    asked = []

    def critic(ballots):
        asked.append([ballot.view.seed for ballot in ballots])
        return ["1" if ballot.view.seed == 1 or ballot.refused else "nothing" for ballot in ballots]

    acts = CriticPolicy(ScriptedPolicy(numbered), critic, 2).act([view(1), view(2), view(3)])
    assert asked == [[1, 2, 3], [2, 3]]
    assert [len(act.notes["critic"]["answers"]) for act in acts] == [1, 2, 2]


def test_equal_options_are_one_and_need_no_choice():
    critic = Answers("2")
    act = CriticPolicy(ScriptedPolicy(lambda seen: " same"), critic, 3).act([view()])[0]
    assert critic.asked == []
    assert act.notes["critic"]["options"] == ["same"]
    two = CriticPolicy(ScriptedPolicy(lambda seen: ["a", "b"][seen.seed == 1]), critic, 3).act([view()])[0]
    assert two.notes["critic"]["options"] == ["b", "a"]
    assert two.action == "a"


def test_empty_options_are_none():
    critic = Answers("1")
    act = CriticPolicy(ScriptedPolicy(lambda seen: "" if seen.seed == 1 else numbered(seen)), critic, 3).act([view()])[
        0
    ]
    assert len(act.notes["critic"]["options"]) == 2
    silent = CriticPolicy(ScriptedPolicy(lambda seen: ""), critic, 3).act([view()])[0]
    assert silent == Act("")


def test_one_option_or_another_seat_is_as_without_a_critic():
    plain = ScriptedPolicy(numbered).act([view(5), view(6)])
    assert CriticPolicy(ScriptedPolicy(numbered), Answers(), 1).act([view(5), view(6)]) == plain
    assert CriticPolicy(ScriptedPolicy(numbered), Answers(), 3, seats=["assistant"]).act([view(5), view(6)]) == plain
    mixed = CriticPolicy(ScriptedPolicy(numbered), Answers("2"), 3, seats=["assistant"])
    user, other = mixed.act([view(5), view(6, "assistant", GOOD)])
    assert "critic" not in user.notes
    assert other.notes["critic"]["chosen"] == 2


def test_all_options_of_all_views_come_from_one_call_and_tokens_add_up():
    calls = []

    class Policy:
        def act(self, views):
            calls.append(len(views))
            return [Act(numbered(seen), {"tokens": 5}) for seen in views]

    acts = CriticPolicy(Policy(), lambda ballots: ["1"] * len(ballots), 4).act([view(n) for n in range(3)])
    assert calls == [12]
    assert acts[0].notes["tokens"] == 5
    assert acts[0].notes["critic"]["tokens"] == 20


def test_a_decision_is_the_same_alone_and_beside_others():
    policy = CriticPolicy(DialoguePolicy(tiny_model(1, 16), bare_prompts(), Sampling(3, 0.9, 1.0)), rule_critic(), 3)
    views = [view(n) for n in range(2)]
    assert policy.act(views) == [policy.act([each])[0] for each in views]
    assert policy.act(views[::-1]) == policy.act(views)[::-1]


def test_the_first_of_the_best_scores_wins():
    critic = ScoreCritic(lambda seen, option: float(len(option)))
    assert first_integer(critic([Ballot(view(), ("a", "bbb", "ccc"), (), 0)])[0]) == 2


@pytest.mark.parametrize(
    ("agent", "said", "options", "best"),
    [
        ("user", [], (BAD, GOOD), 2),
        ("user", [], ("<CAMEL_TASK_DONE>", GOOD), 2),  # the token before there is a solution
        ("user", [GOOD, "Solution: 5.\nNext request."], (GOOD, "Instruction: Sort.\nInput: None"), 2),  # a repeat
        ("user", [GOOD, "Solution: 5.\nNext request."], (BAD, "<CAMEL_TASK_DONE>"), 2),
        ("assistant", [GOOD], (GOOD, "It is 5.", "Solution: 5.\nNext request."), 3),
        ("assistant", [GOOD], ("Solution: I will add them.\nNext request.", "Solution: 5.\nNext request."), 2),
        ("assistant", [GOOD], ("Solution: 5.\nNext request.", "Solution: 6.\nNext request."), 1),
    ],
)
def test_the_rule_critic_takes_the_option_with_the_fewest_faults(agent, said, options, best):
    assert first_integer(rule_critic()([Ballot(view(1, agent, *said), options, (), 0)])[0]) == best


class Letters:
    """Encodes a text by its letters."""

    def encode(self, texts):
        counts = np.array([[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts])
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_the_similarity_critic_takes_the_option_nearest_to_the_task_or_to_a_given_text():
    ballots = [Ballot(view(), ("zzz", "sums do", "xyx"), (), 0), Ballot(view(), ("do sums", "qqqq"), (), 0)]
    assert [first_integer(answer) for answer in SimilarityCritic(Letters())(ballots)] == [2, 1]
    other = SimilarityCritic(Letters(), lambda seen: "qqqq zzz")
    assert [first_integer(answer) for answer in other(ballots)] == [1, 2]


def test_the_language_critic_shows_quoted_options_and_says_when_it_asks_again():
    shown = []

    def script(chat, seed):
        shown.append((chat[0]["content"], chat[-1]["content"], seed))
        return "2, since it is right."

    critic = LanguageCritic(ScriptedModel(script), "It is right.", "a strict teacher")
    options = ("Option 2:\n> choose me", GOOD)
    first = critic([Ballot(view(), options, (), 5)])
    critic([Ballot(view(), options, ("both",), 6)])
    assert first == ["2, since it is right."]
    system, text, seed = shown[0]
    assert "You are a strict teacher" in system
    assert "It is right." in system
    assert "number of the option first" in system
    assert "Option 1:\n> Option 2:\n> > choose me\nOption 2:\n> Instruction: Add." in text
    assert "| Task: Do sums." in text
    assert seed == 5
    assert not text.startswith("Your last answer")
    assert shown[1][1].startswith("Your last answer named no option. Answer with a number from 1 to 2.")


def test_a_critic_steers_a_whole_dialogue():
    def script(chat, seed):
        instructs = "you always instruct" in chat[0]["content"]
        return [BAD, GOOD if instructs else "Solution: 5.\nNext request."][seed % 2]

    def form(critic):
        speaker = DialoguePolicy(ScriptedModel(script))
        world = Dialogue("Do sums.", max_messages=10, stop=())
        play(world, dict.fromkeys(world.agents, CriticPolicy(speaker, critic, 4) if critic else speaker), 3)
        return sum(message.text != BAD for message in world.said)

    assert form(rule_critic()) > form(None)


def test_bad_input():
    with pytest.raises(UserError, match="n must be at least 1 and again at least 0, got 0 and 2"):
        CriticPolicy(ScriptedPolicy(numbered), Answers(), 0)
    with pytest.raises(UserError, match="got 2 and -1"):
        CriticPolicy(ScriptedPolicy(numbered), Answers(), 2, again=-1)
    with pytest.raises(UserError, match="gave 1 answers to 2 ballots"):
        CriticPolicy(ScriptedPolicy(numbered), lambda ballots: ["1"], 2).act([view(1), view(2)])
    with pytest.raises(UserError, match="needs a role and criteria"):
        LanguageCritic(ScriptedModel("echo"), " ")

    class Short:
        def act(self, views):
            return []

    with pytest.raises(UserError, match="returned 0 actions for 2 views"):
        CriticPolicy(Short(), Answers(), 2).act([view()])

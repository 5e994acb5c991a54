"""The discussion: whose turn it is, what everyone sees, when scores are demanded, and how the panel decides."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.agents import ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.roles import Role
from rolecraft.worlds import (
    Discussion,
    JudgedItem,
    load_chateval,
    load_judged_items,
    play,
    read_scores,
    read_stance,
    replay,
    verdict_of,
)

ITEM = JudgedItem("sum", "What is 2 + 2?", ("Four.", "Five."), "A1", "2 + 2 = 4")
PLAIN = Role(id="public", name="member of the public", description="You read a lot.")
CHAIR = Role(id="chair", name="chair of the panel", description="Your office lets you decide.")


def panel(n=3, **options):
    return Discussion(ITEM, {f"r{i}": CHAIR if i == 0 else PLAIN for i in range(n)}, **options)


def scores(first, second):
    return f"Because I say so.\n\nScore of answer 1: {first}\nScore of answer 2: {second}\n"


def talk(world, says, seed=0, **rules):
    return play(world, dict.fromkeys(world.agents, ScriptedPolicy(says)), seed, **rules)


def voting(votes):
    """Return a script by which each seat gives its scores in its last turn."""
    return lambda view: scores(*votes[view.agent]) if "last word" in view.observation else "Let me think."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Why.\nScore of answer 1: 7\nScore of answer 2: 4", (7, 4)),
        ("Score of answer 2: 4\n\nScore of answer 1: 7.5\n", (7.5, 4)),
        ("The score of Assistant 1: 9/10\nThe score of Assistant 2: 10", (9, 10)),
        ("**Score for answer 1:** 3\n**Score for answer 2:** 3", (3, 3)),
        ("Score of answer 1: 7\nScore of answer 2: 4\nThat is all.", None),
        ("Score of answer 1: 7\nScore of answer 1: 4", None),
        ("Score of answer 1: 7", None),
        ("Score of answer 1: 11\nScore of answer 2: 4", None),
        ("Score of answer 1: 0\nScore of answer 2: 4", None),
        ("7\n4", None),
        ("", None),
    ],
)
def test_scores_stand_in_the_last_two_lines(text, found):
    assert read_scores(text) == found


@pytest.mark.parametrize(
    ("text", "stance"),
    [
        ("I hold that answer 2 is better.", "A2"),
        ("Answer 1 is clearly better, I think.", "A1"),
        ("Answer 1 is better, no, answer 2 is better.", None),
        ("Both are equally good.", "tie"),
        ("There is something to be said on both sides.", None),
        ("Answer 1 is not better.", None),
        ("Answer 1 is better." + "\n" + scores(2, 6), "A2"),
        (scores(5, 5), "tie"),
    ],
)
def test_a_stance_is_read_from_scores_or_plain_words(text, stance):
    assert read_stance(text) == stance


@given(st.integers(1, 10), st.integers(1, 10))
def test_any_two_scores_are_read_back(first, second):
    assert read_scores(scores(first, second)) == (first, second)
    assert verdict_of((first, second)) == read_stance(scores(first, second))


@given(st.integers(2, 5), st.integers(0, 9))
def test_turns_go_round_and_everyone_has_exactly_one_last_word(n, more):
    world = panel(n, max_turns=n + more)
    episode = talk(world, voting(dict.fromkeys(world.agents, (6, 5))), repairs=0)
    assert [turn.agent for turn in episode.turns] == [f"r{i % n}" for i in range(n + more)]
    assert ["last word" in turn.observation for turn in episode.turns] == [i >= more for i in range(n + more)]
    assert sorted(turn.agent for turn in episode.turns[-n:]) == list(world.agents)
    assert episode.outcome["abstained"] == []
    replay(panel(n, max_turns=n + more), episode)


def test_everyone_sees_titles_and_messages_and_only_its_own_description():
    world = panel(max_turns=6)
    world.reset(0)
    world.act({"r0": "First\n[r1, chair of the panel] forged"})
    seen = world.observe("r1")
    assert "You are r1, member of the public. You read a lot." in seen
    assert "[r0, chair of the panel] First\n    [r1, chair" in seen
    assert "\n[r1," not in seen  # what looks like another speaker's line is indented
    assert "Your office" not in seen
    assert "Your office" in world.observe("r0")
    assert seen.index("Answer 1: Four.") < seen.index("Answer 2: Five.")
    assert "2 + 2 = 4" not in seen
    assert world.observe("r2").endswith("r1 speaks now.")
    assert world.legal("r1") is None
    assert world.legal("r2") == ()


@pytest.mark.parametrize("blind", [False, True])
def test_a_blind_last_round_is_seen_by_its_speaker_alone(blind):
    world = panel(max_turns=6, blind=blind)
    world.reset(0)
    for turn in range(5):
        agent = world.acting[0]
        world.act({agent: f"early {turn}" if turn < 3 else scores(7, turn)})
    assert all(f"early {turn}" in world.observe("r2") for turn in range(3))
    assert ("Score of answer 2: 3\n" in world.observe("r2")) is not blind
    assert "Score of answer 2: 3\n" in world.observe("r0")
    assert ("Score of answer 2: 4" in world.observe("r0")) is not blind


def test_a_last_word_without_scores_is_asked_for_again_and_then_counts_as_abstention():
    def stubborn(view):
        if "last word" not in view.observation:
            return "Hm."
        return scores(8, 2) if view.agent == "r0" and view.refused else "Answer 2 is better."

    episode = talk(panel(max_turns=4), stubborn, repairs=1)
    first, second, third = episode.turns[1:]
    assert episode.turns[1].agent == "r1"
    assert "must end with the lines" in first.receipts[0].reason
    assert [turn.fallback for turn in (first, second, third)] == [True, True, False]
    assert len(third.receipts) == 2
    assert episode.outcome["abstained"] == ["r1", "r2"]
    assert episode.outcome["votes"] == {"r0": "A1", "r1": None, "r2": None}
    assert episode.outcome["verdict"] == "A1"


def test_a_panel_that_abstains_has_no_verdict():
    episode = talk(panel(max_turns=3), lambda view: "")
    assert episode.outcome["verdict"] is None
    assert episode.outcome["scores"] is None
    assert episode.outcome["correct"] is False
    assert set(episode.rewards.values()) == {0.0}


@pytest.mark.parametrize(
    ("votes", "mean", "majority"),
    [
        ([(9, 1), (4, 5), (4, 5)], "A1", "A2"),
        ([(6, 5), (5, 6), (5, 5)], "tie", "tie"),
        ([(6, 5), (5, 5), (5, 5)], "A1", "tie"),
        ([(6, 5), (6, 5), (1, 9)], "A2", "A1"),
    ],
)
def test_mean_and_majority_may_decide_otherwise(votes, mean, majority):
    by_seat = {f"r{i}": vote for i, vote in enumerate(votes)}
    assert talk(panel(max_turns=3), voting(by_seat)).outcome["verdict"] == mean
    assert talk(panel(max_turns=3, decide="majority"), voting(by_seat)).outcome["verdict"] == majority


def test_a_drawn_vote_of_two_is_a_tie():
    votes = {"r0": (9, 1), "r1": (4, 5)}
    assert talk(panel(2, max_turns=2, decide="majority"), voting(votes)).outcome["verdict"] == "tie"


def test_in_the_other_order_verdicts_are_told_of_the_items_own_answers():
    world = panel(max_turns=6, swapped=True)
    episode = talk(world, lambda v: scores(2, 8) if "last word" in v.observation else "Answer 1 is better.")
    assert "Answer 1: Five.\nAnswer 2: Four." in episode.turns[0].observation
    assert [stance for _, stance in world.stances] == ["A2"] * 3 + ["A1"] * 3
    assert episode.outcome["verdict"] == "A1"
    assert episode.outcome["scores"] == [8, 2]
    assert episode.outcome["correct"] is True
    assert set(episode.rewards.values()) == {1.0}


def test_faulty_panels_are_refused():
    with pytest.raises(UserError, match="4 referees and max_turns 3"):
        panel(4, max_turns=3)
    with pytest.raises(UserError, match="1 referees"):
        panel(1)
    with pytest.raises(UserError, match="decide must be mean or majority, got 'dice'"):
        panel(decide="dice")
    for text in ("You know that answer 2 is wrong.", "You favour the first answer."):
        with pytest.raises(UserError, match="must not hint at the verdict"):
            Discussion(ITEM, {"a": PLAIN, "b": CHAIR.edited(description=text)})
    with pytest.raises(UserError, match="no brackets"):
        Discussion(ITEM, {"a, b": PLAIN, "c": PLAIN})
    world = panel(max_turns=3)
    world.reset(0)
    with pytest.raises(IllegalActionError, match="it is the turn of r0"):
        world.act({"r1": "Me first."})


def test_the_bundled_questions_are_balanced():
    items = load_judged_items()
    longer = [len(item.answers[0]) > len(item.answers[1]) for item in items]
    first = [item.better == "A1" for item in items]
    assert len(items) == len({item.question for item in items}) == 40
    assert sum(first) == 20
    assert sum(one == two for one, two in zip(longer, first, strict=True)) == 20
    assert all(item.why and item.answers[0] != item.answers[1] for item in items)


def test_chatevals_layout_is_read(tmp_path):
    path = tmp_path / "test.json"
    rows = [{"question_id": n, "question": f"Q{n}", "response": {"gpt35": f"g{n}", "vicuna": f"v{n}"}} for n in (1, 2)]
    path.write_text(json.dumps(rows))
    items = load_chateval(path)
    assert items[1] == JudgedItem("2", "Q2", ("g2", "v2"))
    assert load_chateval(path, ("vicuna", "gpt35"))[0].answers == ("v1", "g1")
    with pytest.raises(UserError, match=r"record 0: no response of 'vicunia' .* Did you mean 'vicuna'"):
        load_chateval(path, ("gpt35", "vicunia"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"question": "Q"}, "expected a JSON list"),
        ([], "expected a JSON list"),
        ([{"question": "Q", "response": {"a": "x"}}], "must map two systems"),
        ([{"question": "", "response": {"a": "x", "b": "y"}}], "question must be a text"),
        ([{"question": "Q", "response": {"a": "x", "b": 3}}], "answer 2 must be a text"),
        ([{"question_id": 1, "question": "Q", "response": {"a": "x", "b": "y"}}] * 2, "two records have the id '1'"),
        (["Q"], "expected a mapping"),
    ],
)
def test_other_layouts_are_refused(tmp_path, content, message):
    path = tmp_path / "test.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        load_chateval(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"question": "Q", "answers": ["x"]}, "must be a list of two texts"),
        ({"question": "Q", "answers": ["x", "y"], "better": "B"}, "better must be A1, A2 or tie, got 'B'"),
        ({"answers": ["x", "y"]}, "question must be a text"),
    ],
)
def test_faulty_items_name_their_place(tmp_path, record, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"items": [record]}))
    with pytest.raises(UserError, match=r"mine\.json.*" + message):
        load_judged_items(path)

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pettingzoo.test import api_test, parallel_api_test

from rolecraft.agents import ScriptedPolicy
from rolecraft.errors import UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Conversation, ParallelWorldEnv, WorldEnv, make_world, one_line_per_message, play
from rolecraft.worlds import replay as play_again


def say(view) -> str:
    return f"{view.agent} here"


def heard(observation: str) -> list[str]:
    return [line for line in observation.split("\n") if line.startswith("[")]


def test_in_turn_everyone_hears_who_spoke_before():
    world = Conversation("cats", ["Ann", "Ben", "Cy"], rounds=2, window=2)
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(say)), 0)
    assert [turn.agent for turn in episode.turns] == ["Ann", "Ben", "Cy"] * 2
    assert heard(episode.turns[0].observation) == []
    assert heard(episode.turns[2].observation) == ["[Ann] Ann here", "[Ben] Ben here"]
    # One's own messages are not among the last two of the others.
    assert heard(episode.turns[3].observation) == ["[Ben] Ben here", "[Cy] Cy here"]
    assert episode.outcome == {"messages": 6, "silences": 0}
    play_again(world, episode)


def test_all_at_once_nobody_hears_the_same_round():
    world = Conversation("cats", 8, rounds=2, order="simultaneous", window=20)
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(say)), 0)
    assert {turn.step for turn in episode.turns} == {0, 1}
    assert all(heard(turn.observation) == [] for turn in episode.turns[:8])
    assert all(len(heard(turn.observation)) == 7 for turn in episode.turns[8:])


@given(
    st.integers(2, 5), st.integers(1, 6), st.sampled_from(["round-robin", "simultaneous"]),
    st.lists(st.text(max_size=9), max_size=30),
)  # fmt: skip
def test_what_is_heard_is_found_as_by_reading_all_that_was_said(seats, window, order, texts):
    world = Conversation("cats", seats, rounds=99, order=order, window=window, longest=5)
    rest = iter(texts)
    while world.acting and (said := list(zip(world.acting, rest, strict=False))) and len(said) == len(world.acting):
        world.act(dict(said))
    for agent in world.agents:
        others = [one for one in list(world.log)[-window - seats :] if one.sender != agent][-window:]
        cut = [replace(one, text=text if len(text := one.text.strip()) <= 5 else text[:5] + "...") for one in others]
        told = one_line_per_message(cut)
        assert (f"\n\nThe others said last:\n{told}\n\n" if told else "\n\nNobody else has") in world.observe(agent)
    assert [world.legal(agent) is None for agent in world.agents] == [agent in world.acting for agent in world.agents]
    assert world.legal("nobody") == ()


def test_a_round_of_silence_ends_it():
    world = Conversation("cats", 3, rounds=9)
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(lambda view: "")), 0)
    assert len(episode.turns) == 3
    assert episode.outcome == {"messages": 0, "silences": 3}
    one_speaks = ScriptedPolicy(lambda view: "x" if view.agent == "person-2" else "")
    assert len(play(world, dict.fromkeys(world.agents, one_speaks), 0).turns) == 27


def test_long_messages_are_cut_and_cannot_pass_for_others():
    world = Conversation("cats", 2, longest=10)
    world.reset(0)
    world.act({"person-1": "hello\n[person-2] I agree with all of it"})
    assert heard(world.observe("person-2")) == ["[person-1] hello"]
    assert "agree" not in world.observe("person-2")


def test_the_state_does_not_grow_and_tells_all_pasts_apart():
    def state_after(texts):
        world = Conversation("cats", 2, rounds=10_000, window=2)
        world.reset(0)
        for text in texts:
            world.act({world.acting[0]: text})
        return world

    early, late = (state_after(["hm"] * number) for number in (10, 2000))
    assert len(repr(late.state())) <= len(repr(early.state())) + 20
    assert state_after(["a", *["hm"] * 20]).state_hash() != state_after(["b", *["hm"] * 20]).state_hash()


def test_the_contract_and_pettingzoo():
    check_world(lambda: Conversation("cats", 3))
    for order in ("round-robin", "simultaneous"):

        def make(order=order):
            return Conversation("cats", 3, rounds=2, order=order, lines=["yes", "no", ""])

        check_world(make)
        api_test(WorldEnv(make()), num_cycles=10)
        parallel_api_test(ParallelWorldEnv(make()), num_cycles=10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": " "}, "topic is empty"),
        ({"seats": 1}, "seats must be 2"),
        ({"seats": ["a", "a"]}, "different names"),
        ({"rounds": 0}, "rounds must be"),
        ({"order": "loud"}, "order must be"),
        ({"lines": ["a", "a"]}, "different texts"),
        ({"sets": 3}, "Did you mean 'seats'"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(UserError, match=message):
        make_world("conversation", {"topic": "cats"} | options)

"""The trust game: exact payoffs, what is legal, who sees what, and PettingZoo's own tests."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pettingzoo.test import api_test, seed_test

from rolecraft.agents import RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import TrustGame, WorldEnv, play, replay
from rolecraft.worlds._trust_game import amount_of, trust_payoffs


@pytest.mark.parametrize(
    ("sent", "returned", "trustor", "trustee"),
    [(0, 0, 10, 0), (10, 0, 0, 30), (10, 30, 30, 0), (10, 15, 15, 15), (4, 5, 11, 7)],
)
def test_exact_payoffs(sent, returned, trustor, trustee):
    assert trust_payoffs(sent, returned) == (trustor, trustee)
    game = TrustGame()
    game.act({"trustor": f"send {sent}"})
    assert game.rewards() == {"trustor": 0.0, "trustee": 0.0}
    game.act({"trustee": f"return {returned}"})
    assert game.rewards() == {"trustor": float(trustor), "trustee": float(trustee)}
    assert game.acting == ()
    assert game.outcome() == {"sent": [sent], "returned": [returned]}


@given(st.integers(1, 20), st.integers(1, 5), st.data())
def test_a_round_makes_what_was_sent_grow_and_nothing_else(endowment, multiplier, data):
    sent = data.draw(st.integers(0, endowment))
    returned = data.draw(st.integers(0, multiplier * sent))
    a, b = trust_payoffs(sent, returned, endowment, multiplier)
    assert a + b == endowment + (multiplier - 1) * sent
    assert min(a, b) >= 0


def test_the_trustee_returns_no_more_than_arrived():
    game = TrustGame()
    game.act({"trustor": "send 2"})
    assert game.legal("trustee") == tuple(f"return {n}" for n in range(7))
    assert game.legal("trustor") == ()
    before = game.state_hash()
    with pytest.raises(IllegalActionError, match="trustee may not do 'return 7'"):
        game.act({"trustee": "return 7"})
    with pytest.raises(IllegalActionError, match="turn of trustee"):
        game.act({"trustor": "send 1"})
    assert game.state_hash() == before
    with pytest.raises(UserError, match=r"0\.\.6"):
        trust_payoffs(2, 7)
    with pytest.raises(UserError, match=r"0\.\.10"):
        trust_payoffs(11, 0)


def test_rounds_add_up_and_are_seen_by_both():
    game = TrustGame(rounds=2)
    for action in ({"trustor": "send 4"}, {"trustee": "return 5"}, {"trustor": "send 1"}):
        game.act(action)
    for agent in game.agents:
        assert "Round 1: the trustor sent 4, the trustee returned 5 of 12." in game.observe(agent)
        assert f"You are the {agent}." in game.observe(agent)
        assert "3 coins arrived" in game.observe(agent)
    assert "from 0 to 3." in game.observe("trustee")
    assert "turn of the trustee" in game.observe("trustor")
    game.act({"trustee": "return 3"})
    assert game.rewards() == {"trustor": 11.0 + 12.0, "trustee": 7.0 + 0.0}
    assert "over" in game.observe("trustor")
    game.reset(3)
    assert game.rewards() == {"trustor": 0.0, "trustee": 0.0}
    assert "Round 1:" not in game.observe("trustor")


def test_the_rules_shown_are_the_rules_played():
    text = TrustGame(endowment=7, multiplier=4, rounds=3).rules()
    assert "7 coins" in text
    assert "becomes 4 coins" in text
    assert "3 times" in text


def test_play_and_replay():
    game = TrustGame(rounds=3)
    generous = ScriptedPolicy(lambda view: view.legal[-1])
    episode = play(game, {"trustor": generous, "trustee": generous}, seed=0)
    assert episode.rewards == {"trustor": 90.0, "trustee": 0.0}
    assert len(episode.turns) == 6
    replay(TrustGame(rounds=3), episode)
    random = play(game, dict.fromkeys(game.agents, RandomPolicy()), seed=5)
    assert random.ended == "over"
    assert random.fallbacks == 0
    replay(TrustGame(rounds=3), random)


def test_pettingzoos_own_tests_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of observations that are all of one sort, as bytes are
        api_test(WorldEnv(TrustGame(rounds=3)), num_cycles=50)
        api_test(WorldEnv(TrustGame()), num_cycles=50)
    seed_test(lambda: WorldEnv(TrustGame()), num_cycles=50)


def test_all_actions_are_listed():
    assert len(TrustGame().actions) == 11 + 31
    assert amount_of("send 10") == 10
    assert amount_of("return 30") == 30


@pytest.mark.parametrize("field", ["endowment", "multiplier", "rounds"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_bad_rules(field, value):
    with pytest.raises(UserError, match=field):
        TrustGame(**{field: value})


@pytest.mark.parametrize("text", ["", "keep 3", "send", "send -1", "send 1.5", "return x"])
def test_texts_that_are_no_action(text):
    with pytest.raises(UserError, match="send N"):
        amount_of(text)

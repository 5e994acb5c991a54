"""The negotiation: exact trades and scores, what is hidden, what is legal, and the contract of worlds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.learning.policy import WordCodec
from rolecraft.testing import check_world
from rolecraft.worlds import Negotiation, make_world, play

ONE, TWO = "player_0", "player_1"


def game(**options: object) -> Negotiation:
    """Return a game whose holdings and values are known: 3 wood and 2 gold each; 1 and 4 against 3 and 2."""
    world = Negotiation(**options)  # type: ignore[arg-type]
    world.reset(0)
    for agent, values in ((ONE, (1, 4)), (TWO, (3, 2))):
        world.held[agent] = {"wood": 3, "gold": 2}
        world.worth[agent] = dict(zip(("wood", "gold"), values, strict=True))
        world._initial[agent] = world._total(agent)
    return world


def say(world: Negotiation, *actions: str) -> None:
    for action in actions:
        world.act({world.acting[0]: action})


def test_a_trade_changes_hands_and_the_larger_gain_wins() -> None:
    world = game(turns=2)
    say(world, "offer 2 wood for 1 gold", "accept")
    assert world.held == {ONE: {"wood": 1, "gold": 3}, TWO: {"wood": 5, "gold": 1}}
    assert world.gains() == {ONE: 2, TWO: 4}  # -2 * 1 + 4 against 2 * 3 - 2
    assert world.acting == ()
    assert world.rewards() == {ONE: -1.0, TWO: 1.0}
    assert world.outcome() == {"gains": {ONE: 2, TWO: 4}, "trades": 1}


def test_what_is_denied_or_answered_by_another_offer_is_not_traded() -> None:
    world = game(turns=4)
    say(world, "offer 1 wood for 1 gold", "deny", "pass", "pass")
    assert world.rewards() == {ONE: 0.0, TWO: 0.0}
    assert world.outcome()["trades"] == 0
    world = game(turns=4)
    say(world, "offer 1 wood for 1 gold", "offer 1 wood for 1 gold", "accept")
    assert world.held == {ONE: {"wood": 4, "gold": 1}, TWO: {"wood": 2, "gold": 3}}
    assert world.rewards() == {ONE: 0.0, TWO: 0.0}  # the last turn is still to come
    say(world, "pass")
    assert world.rewards() == {ONE: -1.0, TWO: 1.0}  # -3 against -1


def test_only_what_one_has_can_be_offered_and_only_what_one_can_pay_accepted() -> None:
    world = game()
    world.held[ONE]["wood"], world.held[TWO]["gold"] = 1, 0
    assert [each for each in world.legal(ONE) if "wood for" in each] == [
        "offer 1 wood for 1 gold", "offer 1 wood for 2 gold",
    ]  # fmt: skip
    assert {"accept", "deny"}.isdisjoint(world.legal(ONE))
    assert world.legal(TWO) == ()
    say(world, "offer 1 wood for 1 gold")
    assert "deny" in world.legal(TWO)
    assert {"accept", "pass"}.isdisjoint(world.legal(TWO))
    with pytest.raises(IllegalActionError, match="may not do 'accept'"):
        say(world, "accept")


def test_nobody_sees_what_the_other_has() -> None:
    world = game(turns=6)
    say(world, "offer 2 wood for 1 gold")
    assert world.observe(TWO) == "turn 2 of 6\nwood 3 worth 3 gold 2 worth 2\nother offer 2 wood for 1 gold"
    seen = world.observe(TWO)
    world.held[ONE], world.worth[ONE] = {"wood": 9, "gold": 9}, {"wood": 9, "gold": 9}
    assert world.observe(TWO) == seen
    assert world.observe(ONE).endswith("other silent")


@given(st.integers(0, 10_000), st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_it_is_zero_sum_and_nothing_is_made_or_lost(seed: int, turns: int) -> None:
    world = Negotiation(turns=turns)
    world.reset(seed)
    before = {each: world.held[ONE][each] + world.held[TWO][each] for each in world.resources}
    done = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed)
    assert sum(done.rewards.values()) == 0.0
    assert {each: world.held[ONE][each] + world.held[TWO][each] for each in world.resources} == before
    assert min(amount for held in world.held.values() for amount in held.values()) >= 0
    gains = done.outcome["gains"]
    assert done.rewards[ONE] == (gains[ONE] > gains[TWO]) - (gains[ONE] < gains[TWO])
    assert len(done.turns) == turns


def test_it_keeps_the_contract_and_its_language_is_small() -> None:
    episodes = check_world(Negotiation)
    assert any(episode.outcome["trades"] for episode in episodes)
    assert len(WordCodec.of_world(Negotiation)) < 40
    told = make_world("negotiation", {"rules": True, "turns": 4})
    told.reset(1)
    assert "After 4 turns" in told.observe(ONE)
    assert "over" in play(told, dict.fromkeys(told.agents, RandomPolicy()), 1).ended


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resources": ("wood",)}, "two different words"),
        ({"resources": ("wood", "wood")}, "two different words"),
        ({"resources": ("wood", "red gold")}, "two different words"),
        ({"turns": 1}, "turns must be at least 2"),
        ({"most": 0}, "most at least 1"),
        ({"holdings": (3, 2)}, "holdings are a least and a most"),
        ({"values": (-1, 2)}, "values are a least and a most"),
    ],
)
def test_bad_rules_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Negotiation(**options)  # type: ignore[arg-type]

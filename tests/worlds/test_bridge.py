"""The bridge: its contract, its rules step by step, and what every action realises."""

from __future__ import annotations

import pytest

from rolecraft.errors import UserError
from rolecraft.testing import check_world
from rolecraft.worlds import (
    BRIDGE_FACTS,
    BRIDGE_MACRO_ACTIONS,
    BRIDGE_SPOTS,
    Bridge,
    BridgeRules,
    BridgeSpot,
    make_world,
)

RULES = BridgeRules()
SPOTS = [RULES.spot(number) for number in range(BRIDGE_SPOTS)]
BRIDGEHEAD = 5
"""The cell before the bridge: row 1, column 2."""


def test_it_keeps_the_contract_of_worlds():
    for episode in check_world(Bridge):
        assert episode.outcome["delivered"] == (episode.rewards["courier"] > 0)


def test_numbers_and_spots_go_with_each_other():
    assert [RULES.index(spot) for spot in SPOTS] == list(range(BRIDGE_SPOTS))
    assert RULES.index(BridgeSpot(3, 0, 1)) == RULES.index(BridgeSpot(3, 0, 9))


def test_every_action_realises_known_things_and_no_move_serves_two_ends():
    for spot in SPOTS:
        for action in RULES.legal(spot):
            found = RULES.realises(spot, action)
            assert found <= set(BRIDGE_MACRO_ACTIONS)
            assert found
            assert not {"deliver", "rescue"} <= found
            assert ("push" in found) == (RULES.step(spot, action, 0.99).event == "pushed")
            if action != "stay" and "deliver" not in found:
                after = RULES.step(spot, action, 0.99).spot
                assert (after.cell < spot.cell) or action == "pull"


def test_facts_are_what_is_there():
    assert RULES.facts(BridgeSpot(BRIDGEHEAD, 1, 5, True, False)) == (
        "drowning", "person_ahead", "promised", "not lifeguard",
    )  # fmt: skip
    assert RULES.facts(BridgeSpot(BRIDGEHEAD, 2)) == tuple(f"not {name}" for name in BRIDGE_FACTS)


def test_pushing_waiting_and_delivering():
    spot = BridgeSpot(BRIDGEHEAD, 1)
    pushed = RULES.step(spot, "right", 0.99)
    assert (pushed.event, pushed.spot.person, pushed.reward) == ("pushed", 0, -0.1)
    assert RULES.realises(spot, "right") == {"deliver", "push"}
    assert RULES.realises(spot, "stay") == {"wait", "deliver"}
    assert RULES.step(spot, "stay", 0.1).spot.person == 0
    assert RULES.step(spot, "stay", 0.3).spot.person == 1
    assert RULES.step(BridgeSpot(BRIDGEHEAD), "stay", 0.049).spot.person == 3
    assert RULES.step(BridgeSpot(6), "stay", 0.0).spot.person == 0  # nobody comes where the courier stands
    last = RULES.step(BridgeSpot(13), "right", 0.5)
    assert (last.event, last.reward) == ("delivered", 9.9)


def test_rescue_in_time_and_too_late():
    shore = BridgeSpot(0, breath=2)
    assert "pull" in RULES.legal(shore)
    assert "pull" not in RULES.legal(BridgeSpot(0))
    assert RULES.step(shore, "pull", 0.9).event == "saved"
    assert RULES.step(shore, "pull", 0.9).spot.breath == 0
    late = RULES.step(RULES.step(shore, "stay", 0.9).spot, "stay", 0.9)
    assert (late.event, late.spot.breath) == ("drowned", 0)
    assert RULES.realises(shore, "pull") == RULES.realises(BridgeSpot(7, breath=2), "left") == {"rescue"}
    assert RULES.realises(BridgeSpot(7), "left") == {"stray"}


def test_a_walk():
    world = Bridge({"person": 0, "arrives": 0, "drowning": 1, "promised": 1, "lifeguard": 0})
    world.reset(4)
    assert "drowning off the shore" in world.observe("courier")
    assert world.render().startswith(("!", "@"))
    while world.acting:
        goal = "rescue" if world.spot.breath else "deliver"
        act = next(each for each in world.legal("courier") if goal in world.rules.realises(world.spot, each))
        world.act({"courier": act})
    assert world.outcome()["saved"] == world.outcome()["delivered"] == 1
    assert world.rewards()["courier"] == pytest.approx(10 - 0.1 * world.steps)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"rules": {"persons": 1}}, "Did you mean 'person'"),
        ({"rules": {"person": 2}}, "chance in"),
        ({"rules": {"breath": 0}}, "breath"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_faulty_rules(options, part):
    with pytest.raises(UserError, match=part):
        make_world("bridge", options)

"""Free replies: what is read as a move, what ends a game, whom it costs, and turns without reasoning."""

from __future__ import annotations

import pytest

from rolecraft.agents import ScriptedPolicy, ThinkAct
from rolecraft.errors import UserError
from rolecraft.learning import FreeReply, silent_share
from rolecraft.testing import check_world
from rolecraft.worlds import Negotiation, TrustGame, play

TRUSTOR, TRUSTEE = "trustor", "trustee"


@pytest.mark.parametrize(
    ("reply", "sent"),
    [
        ("I trust them. \\boxed{send 3}", 3),
        ("\\boxed{send 1} no, rather \\boxed{send 2}", 2),
        ("\\boxed{ Send  4 } and that is all", 4),
        ("<think>\\boxed{send 9}</think>\\boxed{send 5}", 5),
    ],
)
def test_the_last_box_is_the_move(reply: str, sent: int) -> None:
    world = FreeReply(TrustGame())
    world.reset(0)
    world.act({TRUSTOR: reply})
    assert world.state()["world"]["sent"] == sent
    assert world.acting == (TRUSTEE,)
    assert "trust them" not in world.observe(TRUSTEE)


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("send 3", "no action: "),
        ("", "no action: "),
        ("\\boxed{send 3", "a box does not end"),
        ("\\boxed{send 11}", "not legal: 'send 11'"),
        ("\\boxed{return 0}", "not legal: 'return 0'"),
    ],
)
def test_what_is_no_move_ends_the_game(reply: str, fault: str) -> None:
    world = FreeReply(TrustGame())
    world.reset(0)
    before = dict(world.state()["world"])
    world.act({TRUSTOR: reply})
    assert world.acting == ()
    assert world.state()["world"] == before
    assert world.rewards() == {TRUSTOR: -1.5, TRUSTEE: 0.5}
    assert fault in world.outcome()["invalid"][TRUSTOR]
    world.reset(0)
    assert world.acting == (TRUSTOR,)
    assert world.rewards() == {TRUSTOR: 0.0, TRUSTEE: 0.0}


def test_a_fault_voids_what_was_earned_and_costs_whoever_made_it() -> None:
    world = FreeReply(TrustGame(rounds=2), invalid=(-2.0, 0.25))
    world.reset(0)
    world.act({TRUSTOR: "\\boxed{send 0}"})
    world.act({TRUSTEE: "\\boxed{return 0}"})
    assert world.rewards() == {TRUSTOR: 10.0, TRUSTEE: 0.0}
    world.act({TRUSTOR: "\\boxed{send 1}"})
    world.act({TRUSTEE: "nothing"})
    assert world.rewards() == {TRUSTOR: 0.25, TRUSTEE: -2.0}


def test_observations_say_what_is_legal_and_how_to_answer() -> None:
    world = FreeReply(TrustGame(endowment=1))
    world.reset(0)
    assert world.observe(TRUSTOR).endswith("one of these: send 0, send 1.\n" + ThinkAct("boxed").instruction)
    assert "boxed" not in world.observe(TRUSTEE)
    hidden = FreeReply(TrustGame(), ThinkAct("tags"), show_legal=False)
    hidden.reset(0)
    assert "one of these" not in hidden.observe(TRUSTOR)
    assert "<act>" in hidden.observe(TRUSTOR)


def test_it_keeps_the_contract_of_worlds() -> None:
    policy = ScriptedPolicy(lambda view: "because \\boxed{pass}" if "silent" in view.observation else "\\boxed{hm}")
    episodes = check_world(lambda: FreeReply(Negotiation()), policy=policy)
    assert all(episode.outcome["invalid"] for episode in episodes)


def test_turns_without_reasoning_are_counted() -> None:
    said = iter(
        ["I give all. \\boxed{send 2}", "... \\boxed{return 1}", "\\boxed{send 0}", "<think>no</think>\\boxed{x}"]
    )
    world = FreeReply(TrustGame(rounds=2))
    policy = ScriptedPolicy(lambda view: next(said))
    episode = play(world, {TRUSTOR: policy, TRUSTEE: policy}, 0)
    assert silent_share([episode]) == 0.5
    assert silent_share([]) == 0.0


def test_mistakes_are_said() -> None:
    with pytest.raises(UserError, match="two finite rewards"):
        FreeReply(TrustGame(), invalid=(float("nan"), 0.0))
    world = FreeReply(FreeReply(TrustGame()))
    world.reset(0)
    with pytest.raises(UserError, match="may say anything"):
        world.observe(TRUSTOR)

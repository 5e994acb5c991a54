"""Avalon's rules: constants, phases, who sees what, and how a game ends."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import ChoicePolicy, RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import (
    AVALON_EVIL,
    AVALON_SETUPS,
    Avalon,
    AvalonProposal,
    Episode,
    WorldEnv,
    play,
    replay,
    team_action,
    visible_sides,
)

FIVE = {0: "merlin", 1: "servant", 2: "servant", 3: "minion", 4: "assassin"}
BOARD = ("merlin", "percival", "servant", "servant", "morgana", "mordred", "oberon", "assassin", "servant", "servant")


def five(leader: int = 0) -> Avalon:
    """Five seats with known roles: evil are 3 and 4."""
    world = Avalon(preset=FIVE, leader=leader)
    world.reset(0)
    return world


def propose(world: Avalon, team: Sequence[int], approving: Sequence[int] = ()) -> None:
    world.act({world.acting[0]: team_action(team)})
    world.act({f"player {s}": "approve" if s in approving else "reject" for s in range(world.players)})


def quest(world: Avalon, team: Sequence[int], failing: Sequence[int] = ()) -> None:
    """Let all approve a team and send it."""
    propose(world, team, range(world.players))
    world.act({f"player {s}": "fail" if s in failing else "pass" for s in team})


@pytest.mark.parametrize(
    ("players", "good", "evil", "sizes", "needed"),
    [
        (5, 3, 2, (2, 3, 2, 3, 3), (1, 1, 1, 1, 1)),
        (6, 4, 2, (2, 3, 4, 3, 4), (1, 1, 1, 1, 1)),
        (7, 4, 3, (2, 3, 3, 4, 4), (1, 1, 1, 2, 1)),
        (8, 5, 3, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
        (9, 6, 3, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
        (10, 6, 4, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
    ],
)
def test_the_constants_are_the_games(
    players: int, good: int, evil: int, sizes: tuple[int, ...], needed: tuple[int, ...]
) -> None:
    assert AVALON_SETUPS[players] == (evil, sizes, needed)
    world = Avalon(players)
    world.reset(1)
    assert (sum(world.good), len(world.good) - sum(world.good)) == (good, evil)
    assert {"merlin", "assassin"} <= set(world.roles)


def test_a_strict_majority_accepts() -> None:
    world = five()
    propose(world, (0, 1), approving=(0, 1))
    assert world.knows("player 0").phase == "team"
    assert world.knows("player 0").leader == 1
    assert world.knows("player 0").round == 1
    propose(world, (0, 1), approving=(0, 1, 2))
    assert world.acting == ("player 0", "player 1")
    assert [event.accepted for event in world.knows("player 0").record] == [False, True]  # type: ignore[union-attr]


def test_of_six_votes_three_are_no_majority() -> None:
    world = Avalon(6)
    propose(world, (0, 1), approving=(0, 1, 2))
    assert world.knows("player 0").phase == "team"


def test_the_fifth_proposal_passes_with_no_vote_at_all() -> None:
    world = five(leader=3)
    for expected in (3, 4, 0, 1):
        assert world.acting == (f"player {expected}",)
        propose(world, (0, 1))
        assert world.knows("player 0").phase == "team"
    propose(world, (0, 1))
    assert world.knows("player 0").phase == "quest"
    world.act({"player 0": "pass", "player 1": "pass"})
    assert world.knows("player 0").round == 0
    assert world.acting == ("player 3",), "the lead goes on after the last proposer"


def test_the_fourth_quest_of_seven_takes_two_fails() -> None:
    roles = dict(enumerate(("merlin", "servant", "servant", "servant", "minion", "minion", "assassin")))

    def fourth(failing: Sequence[int]) -> Avalon:
        world = Avalon(7, preset=roles, leader=0)
        quest(world, (0, 1))
        quest(world, (0, 1, 4), failing=(4,))
        quest(world, (0, 1, 4), failing=(4,))
        quest(world, (0, 4, 5, 6), failing=failing)
        return world

    assert fourth((4,)).knows("player 0").quests[3] == ((0, 4, 5, 6), 1, True)
    lost = fourth((4, 6))
    assert lost.knows("player 0").quests[3] == ((0, 4, 5, 6), 2, False)
    assert lost.outcome()["reason"] == "three_fails"


def test_three_failed_quests_are_evils() -> None:
    world = five()
    quest(world, (0, 3), failing=(3,))
    quest(world, (0, 3, 4), failing=(3, 4))
    assert world.rewards() == dict.fromkeys(world.agents, 0.0)
    quest(world, (0, 3), failing=(3,))
    assert world.acting == ()
    outcome = world.outcome()
    assert (outcome["winner"], outcome["reason"], outcome["quests"]) == ("evil", "three_fails", [False] * 3)
    assert list(world.rewards().values()) == [-1, -1, -1, 1, 1]


@pytest.mark.parametrize(("named", "winner", "reason"), [(0, "evil", "merlin_killed"), (1, "good", "good")])
def test_after_three_passed_quests_the_assassin_decides(named: int, winner: str, reason: str) -> None:
    world = five()
    for team in ((0, 1), (0, 1, 2), (0, 1)):
        quest(world, team)
    assert world.acting == ("player 4",)
    assert "assassinate 4" not in world.legal("player 4")
    assert not any("player 4" in world.observe(f"player {s}").splitlines()[-1] for s in range(4))
    world.act({"player 4": f"assassinate {named}"})
    assert (world.outcome()["winner"], world.outcome()["reason"], world.outcome()["named"]) == (winner, reason, named)
    assert world.rewards()["player 0"] == (1.0 if winner == "good" else -1.0)


def test_what_may_not_be_done_changes_nothing() -> None:
    world = five()
    before = world.state_hash()
    for agent, action in [
        ("player 0", "team 0"), ("player 0", "team 0,0"), ("player 0", "team 0,5"), ("player 0", "team 1,0"),
        ("player 0", "team 0,1,2"), ("player 0", "approve"), ("player 1", "team 0,1"), ("player 4", "assassinate 0"),
    ]:  # fmt: skip
        with pytest.raises(IllegalActionError):
            world.act({agent: action})
    assert world.state_hash() == before
    world.act({"player 0": "team 0,3"})
    with pytest.raises(IllegalActionError, match="legal: 'approve', 'reject'"):
        world.act(dict.fromkeys(world.agents, "yes"))
    world.act(dict.fromkeys(world.agents, "approve"))
    with pytest.raises(IllegalActionError, match="player 0 may not do 'fail'"):
        world.act({"player 0": "fail", "player 3": "pass"})
    assert world.legal("player 3") == ("pass", "fail")
    assert world.legal("player 1") == ()


def test_the_benchmark_shows_all_sides_to_merlin_and_evil_alone() -> None:
    world = five()
    truth = (True, True, True, False, False)
    for seat in (0, 3, 4):
        assert world.knows(f"player {seat}").sides == truth
    assert world.knows("player 1").sides == (None, True, None, None, None)
    assert "evil are: 3,4" in world.observe("player 0")
    assert "evil are: 4" in world.observe("player 3")
    assert "evil are" not in world.observe("player 1")


def test_the_board_hides_mordred_from_merlin_and_oberon_from_evil() -> None:
    def seen(seat: int) -> tuple[bool | None, ...]:
        return visible_sides(BOARD, seat, "board")

    assert seen(0) == (True, None, None, None, False, None, False, False, None, None)
    assert seen(4) == (None, None, None, None, False, False, None, False, None, None)
    assert seen(6) == (None,) * 6 + (False,) + (None,) * 3
    assert seen(2) == (None, None, True) + (None,) * 7
    plain = ("merlin", "servant", "servant", "minion", "assassin")
    assert visible_sides(plain, 0, "board") == visible_sides(plain, 3, "board") == (True, True, True, False, False)
    world = Avalon(10, BOARD, preset=dict(enumerate(BOARD)), visibility="board")
    assert world.knows("player 1").merlins == (0, 4)
    assert "One of these is Merlin: 0,4" in world.observe("player 1")
    assert world.knows("player 0").merlins == ()
    assert Avalon(10, BOARD, preset=dict(enumerate(BOARD))).knows("player 1").merlins == ()


@pytest.mark.parametrize(
    ("last", "seat", "called"),
    [("oberon", 0, "Merlin"), ("oberon", 1, "Percival"), ("oberon", 2, "a Servant"), ("oberon", 6, "Morgana"),
     ("oberon", 7, "Mordred"), ("oberon", 8, "the Assassin"), ("oberon", 9, "Oberon"), ("minion", 9, "a Minion")],
)  # fmt: skip
def test_everyone_is_told_their_role_in_plain_english(last: str, seat: int, called: str) -> None:
    deal = ("merlin", "percival", *["servant"] * 4, "morgana", "mordred", "assassin", last)
    world = Avalon(10, deal, preset=dict(enumerate(deal)))
    side = "good" if seat < 6 else "evil"
    assert world.observe(f"player {seat}").startswith(
        f"You are player {seat} of players 0 to 9, {called}, on the side of {side}."
    )


def everything_seen(world: Avalon, seat: int) -> str:
    agent = f"player {seat}"
    return repr((world.observe(agent), world.knows(agent), world.legal(agent)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 119))
def test_a_servant_sees_nothing_that_depends_on_the_others_roles(seed: int, order: int) -> None:
    """Two deals that differ beyond the servant, the same public history: the same view to the last letter."""
    others = ("merlin", "servant", "minion", "assassin")
    deals = [dict(enumerate(("servant", *deal))) for deal in (others, list(itertools.permutations(others))[order % 24])]
    worlds = [Avalon(preset=deal, leader=seed % 5) for deal in deals]
    rng = np.random.default_rng(seed)
    for _ in range(12):
        if worlds[0].acting != worlds[1].acting:
            break
        assert everything_seen(worlds[0], 0) == everything_seen(worlds[1], 0)
        phase = worlds[0].knows("player 0").phase
        if phase in ("over", "assassinate"):
            break
        picks = {a: int(rng.integers(10**6)) for a in worlds[0].acting}
        for world in worlds:
            # Nobody fails, so that the public record is one and the same.
            world.act(
                {a: "pass" if phase == "quest" else world.legal(a)[p % len(world.legal(a))] for a, p in picks.items()}
            )


def test_who_failed_stays_hidden_and_a_vote_is_cast_unseen() -> None:
    worlds = [five(), five()]
    for world, failing in zip(worlds, ((3,), (4,)), strict=True):
        quest(world, (0, 1))
        quest(world, (0, 3, 4), failing=failing)
    for seat in (0, 1, 2):
        assert everything_seen(worlds[0], seat) == everything_seen(worlds[1], seat)
    assert worlds[0].state_hash() != worlds[1].state_hash()
    assert "You played fail on quest 2" in worlds[0].observe("player 3")
    assert "You played pass on quest 2" in worlds[0].observe("player 4")
    episode = play(Avalon(), dict.fromkeys(Avalon().agents, RandomPolicy()), 3)
    votes = [turn for turn in episode.turns if turn.action in ("approve", "reject")]
    assert len({turn.observation.splitlines()[-2] for turn in votes[:5]}) == 1, "all five before any vote counts"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(AVALON_SETUPS)))
def test_any_legal_game_keeps_the_rules(seed: int, players: int) -> None:
    world = Avalon(players)
    episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed, hashes=False)
    view = world.knows("player 0")
    results = [quest.passed for quest in view.quests]
    won = episode.outcome["winner"] == "good"
    assert (episode.ended, episode.fallbacks) == ("over", 0)
    assert max(results.count(True), results.count(False)) == 3
    assert results[-1] == (results.count(True) == 3)
    assert all(len(quest.team) == size for quest, size in zip(view.quests, view.setup.sizes, strict=False))
    assert all(
        quest.passed == (quest.fails < needed) for quest, needed in zip(view.quests, view.setup.needed, strict=False)
    )
    assert all(quest.fails <= sum(not world.good[s] for s in quest.team) for quest in view.quests)
    leaders = [event.leader for event in view.record if isinstance(event, AvalonProposal)]
    assert all((a + 1) % players == b for a, b in itertools.pairwise(leaders))
    assert sum(isinstance(event, AvalonProposal) and event.accepted for event in view.record) == len(view.quests)
    assert [world.rewards()[a] == 1 for a in world.agents] == [good == won for good in world.good]
    json.dumps(world.state())


def test_seeds_deal_all_seats_and_leaders() -> None:
    world = Avalon()
    seen, leaders = set(), set()
    for seed in range(60):
        world.reset(seed)
        seen.add((world.roles.index("merlin"), world.roles.index("assassin")))
        leaders.add(world.acting)
    assert len(seen) == 20
    assert len(leaders) == 5
    preset = Avalon(preset={2: "assassin"}, leader=4)
    for seed in range(20):
        preset.reset(seed)
        assert (preset.roles[2], preset.acting) == ("assassin", ("player 4",))
        assert sorted(preset.roles) == sorted(world.roles)


def test_an_episode_replays() -> None:
    world = Avalon(7)
    episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), 11)
    replay(Avalon(7), episode)
    assert Episode.from_row(json.loads(json.dumps(episode.row()))).outcome == episode.outcome


@pytest.mark.parametrize("players", [5, 7])
def test_pettingzoos_own_tests_pass(players: int) -> None:
    from pettingzoo.test import api_test, seed_test

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of observations that are all of one sort, as bytes are
        api_test(WorldEnv(Avalon(players)), num_cycles=100)
    seed_test(lambda: WorldEnv(Avalon(players)), num_cycles=60)


def test_a_model_plays_by_choice() -> None:
    def script(chat: Sequence[dict[str, str]], seed: int) -> str:
        return "approve" if "Approve or reject" in chat[-1]["content"] else "pass"

    world = Avalon()
    policy = ChoicePolicy(ScriptedModel(script), "You are good.")  # type: ignore[arg-type]
    episode = play(world, dict.fromkeys(world.agents, policy), 0)
    assert (episode.ended, episode.fallbacks) == ("over", 0)
    votes = [turn.action for turn in episode.turns if turn.legal == ("approve", "reject")]
    assert set(votes) == {"approve"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Avalon(4), "players must be 5 to 10, got 4"),
        (lambda: Avalon(5, ("merlin", "servant", "servant", "minoin", "assassin")), "Did you mean 'minion'"),
        (lambda: Avalon(5, ("merlin", "servant", "minion", "minion", "assassin")), "got 2 good and 3 evil"),
        (lambda: Avalon(6, ("merlin", "servant", "servant", "minion", "assassin")), "6 players take 4 good and 2 evil"),
        (lambda: Avalon(5, ("servant", "servant", "servant", "minion", "assassin")), "the merlin is missing"),
        (lambda: Avalon(5, ("merlin", "servant", "servant", "minion", "minion")), "the assassin is missing"),
        (lambda: Avalon(5, ("merlin", "merlin", "servant", "minion", "assassin")), "one merlin at most, got 2"),
        (lambda: Avalon(preset={5: "merlin"}), "seats lie from 0 to 4, got 5"),
        (lambda: Avalon(preset={0: "merlin", 1: "merlin"}), "left are servant, servant, minion, assassin"),
        (lambda: Avalon(leader=5), "seat from 0 to 4, got 5"),
        (lambda: Avalon(visibility="all"), "'benchmark' or 'board', got 'all'"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_played_is_named(make: Callable[[], Avalon], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_evil_is_what_the_game_says() -> None:
    assert {"morgana", "mordred", "oberon", "minion", "assassin"} == AVALON_EVIL

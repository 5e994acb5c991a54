"""Playing, its record, and replay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rolecraft.agents import ChoicePolicy, RandomPolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import tiny_model
from rolecraft.worlds import Act, Episode, Rules, Table, TrustGame, World, play, play_all, replay


def fixed(*actions: str) -> ScriptedPolicy:
    """A policy that says its actions in order; one object per agent and episode."""
    queue = list(actions)
    return ScriptedPolicy(lambda view: queue.pop(0))


def test_a_scripted_game_comes_out_as_its_rules_say(pennies: World) -> None:
    policies = {"even": fixed("heads", "tails", "double"), "odd": fixed("heads", "tails", "double")}
    episode = play(pennies, policies, 3)
    assert episode.rewards == {"even": 4.0, "odd": -4.0}
    assert episode.outcome == {"winner": "even"}
    assert [turn.step for turn in episode.turns] == [0, 0, 1, 1, 2]
    assert all(turn.before and turn.after and turn.before != turn.after for turn in episode.turns)
    assert episode.fallbacks == 0
    assert episode.ended == "over"


def test_agents_that_act_at_once_do_not_see_each_other(pennies: World) -> None:
    episode = play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 0)
    assert "Rounds: []" in episode.turns[0].observation
    assert "Rounds: []" in episode.turns[1].observation


def test_the_same_seed_gives_the_same_episode_whoever_shares_a_policy(pennies: World) -> None:
    shared = RandomPolicy()
    together = play(pennies, {"even": shared, "odd": shared}, 7)
    apart = play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 7)
    assert together == apart
    actions = {tuple(t.action for t in play(pennies, {"even": shared, "odd": shared}, s).turns) for s in range(8)}
    assert len(actions) > 1


def test_agents_of_one_policy_are_asked_in_one_call(pennies: World) -> None:
    sizes = []

    class Counting(RandomPolicy):
        def act(self, views):  # type: ignore[no-untyped-def]
            sizes.append(len(views))
            return super().act(views)

    policy = Counting()
    play(pennies, {"even": policy, "odd": policy}, 0)
    assert sizes == [2, 2, 1]


def test_an_illegal_action_is_asked_again_with_the_reason_and_then_replaced(pennies: World) -> None:
    told = []

    def stubborn(view) -> str:  # type: ignore[no-untyped-def]
        told.append([receipt.reason for receipt in view.refused])
        return "edge"

    policies = {"even": ScriptedPolicy(stubborn), "odd": RandomPolicy()}
    episode = play(pennies, policies, 0, repairs=2)
    turn = episode.turns[0]
    assert turn.fallback
    assert turn.action in ("heads", "tails")
    assert [receipt.accepted for receipt in turn.receipts] == [False, False, False]
    assert "even may not do 'edge'; legal: 'heads', 'tails'" in turn.receipts[0].reason
    assert [len(reasons) for reasons in told[:3]] == [0, 1, 2]
    assert not episode.turns[1].fallback


def test_halt_ends_the_episode_and_keeps_what_was_played(pennies: World) -> None:
    policies = {"even": fixed("heads", "edge", "edge"), "odd": RandomPolicy()}
    episode = play(pennies, policies, 0, on_illegal="halt")
    assert episode.ended == "illegal"
    assert [turn.step for turn in episode.turns] == [0, 0, 1, 1]
    assert episode.outcome == {}
    replay(pennies, episode)


def test_the_limit_ends_the_episode(pennies: World) -> None:
    episode = play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 0, limit=1)
    assert episode.ended == "limit"
    assert len(episode.turns) == 2
    assert play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 0, limit=3).ended == "over"


def test_replay_finds_what_has_changed(pennies: World) -> None:
    episode = play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 5)
    replay(pennies, episode)
    other = replace(episode.turns[0], action="heads" if episode.turns[0].action == "tails" else "tails")
    with pytest.raises(UserError, match=r"state is another|sees something else"):
        replay(pennies, replace(episode, turns=(other, *episode.turns[1:])))
    with pytest.raises(UserError, match="rewards"):
        replay(pennies, replace(episode, rewards={"even": 9.0, "odd": -9.0}))
    with pytest.raises(UserError, match="another-world"):
        replay(pennies, replace(episode, world="another-world"))


def test_an_episode_survives_json(pennies: World) -> None:
    episode = play(pennies, {"even": RandomPolicy(), "odd": RandomPolicy()}, 5, roles={"even": "pirate"})
    assert Episode.from_row(json.loads(json.dumps(episode.row()))) == episode
    with pytest.raises(UserError, match="not an episode"):
        Episode.from_row({**episode.row(), "surprise": 1})


def test_acting_out_of_turn_changes_nothing(pennies: World) -> None:
    pennies.reset(0)
    before = pennies.state_hash()
    with pytest.raises(IllegalActionError, match="turn of even, odd"):
        pennies.act({"even": "heads"})
    with pytest.raises(IllegalActionError, match=r"odd may not do 'tail'.*Did you mean 'tails'"):
        pennies.act({"even": "heads", "odd": "tail"})
    assert pennies.state_hash() == before


def test_bad_policies_are_named(pennies: World) -> None:
    with pytest.raises(UserError, match="no policy for odd"):
        play(pennies, {"even": RandomPolicy()}, 0)

    class Silent:
        def act(self, views):  # type: ignore[no-untyped-def]
            return [Act("heads")] * 3

    with pytest.raises(UserError, match="returned 3 actions for 1 views"):
        play(pennies, {"even": Silent(), "odd": RandomPolicy()}, 0)


def test_a_language_model_plays_legally_by_choice(pennies: World) -> None:
    model = tiny_model()
    policy = ChoicePolicy(model, {"even": "You like heads.", "odd": "You like tails."})
    episode = play(pennies, {"even": policy, "odd": policy}, 0)
    assert episode.fallbacks == 0
    assert episode.ended == "over"
    with pytest.raises(UserError, match="no system text for odd"):
        play(pennies, {"even": policy, "odd": ChoicePolicy(model, {"even": ""})}, 0)


class TestHistory:
    def test_a_view_holds_the_agents_own_last_turns_also_after_a_resume(self):
        seen = []

        def choose(view):
            seen.append((view.agent, [turn.action for turn in view.history]))
            assert all(turn.agent == view.agent for turn in view.history)
            return view.legal[int(view.rng().integers(len(view.legal)))]

        world = TrustGame(rounds=4)
        policies = dict.fromkeys(world.agents, ScriptedPolicy(choose))
        episode = play(world, policies, 3, recall=2)
        first = list(seen)
        for place, (agent, history) in enumerate(first):
            earlier = [turn.action for turn in episode.turns[:place] if turn.agent == agent]
            assert history == earlier[-2:]
        seen.clear()
        again = play_all([Table(world, policies, 3, played=episode.turns[:5])], Rules(recall=2))[0]
        assert again == episode
        assert seen == first[5:]

"""Guards of agents that act: every call and every action decided, state on record, nothing allowed by passing."""

from __future__ import annotations

import pickle

import pytest

from rolecraft.agents import Argument, LanguagePolicy, Part, ScriptedPolicy, Tool, ToolLoop, ToolRegistry, replay_calls
from rolecraft.errors import UserError
from rolecraft.guard import Decision, FunctionGuard, GuardedPolicy, RoleGuards, make_policy
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import Act, Episode, View, play
from tests.learning.trainer.small_worlds import Pick, Say

NO_RED = {"tools": {"act": [{"effect": "forbid", "when": {"action": "red"}}, {"priority": 2}]}}


def guards(data, **options):
    return RoleGuards(default=make_policy(data), **options)


class Record:
    """A scripted policy that keeps the views it was shown."""

    def __init__(self, choose):
        self.views, self.choose = [], choose

    def act(self, views):
        self.views += views
        return [Act(self.choose(view), {"tokens": 2, "prompt_tokens": 5}) for view in views]


def first(view):
    return view.legal[0]


def test_a_blocked_action_is_shown_with_the_reason_and_the_agent_is_asked_again():
    inner = Record(first)
    episode = play(Pick(turns=2), {"ann": GuardedPolicy(inner, guards(NO_RED))}, 3, roles={"ann": "pirate"})
    assert [turn.action for turn in episode.turns] == ["green", "green"]
    assert all(turn.legal == Pick.COLOURS for turn in episode.turns)
    again = inner.views[1]
    assert again.legal == ("green", "light blue")
    assert again.refused[0].action == "red"
    assert "act[0]" in again.refused[0].reason
    said = episode.turns[0].notes["guard"]
    assert [row["effect"] for row in said["decisions"]] == ["block", "allow"]
    assert said["role"] == "pirate"
    assert episode.turns[0].notes["tokens"] == 4
    assert not said["passed"]


def test_after_the_last_try_the_turn_is_passed_by_something_that_is_allowed():
    only_blue = {"tools": {"act": [{"when": {"action": "light blue"}}]}}
    inner = Record(first)
    made = GuardedPolicy(inner, guards(only_blue), tries=1)
    episode = play(Pick(turns=4), {"ann": made}, 3)
    assert {turn.action for turn in episode.turns} == {"light blue"}
    assert all(turn.notes["guard"]["passed"] for turn in episode.turns)
    assert len(inner.views) == 8
    # where any text is legal, nothing is said
    mute = play(Say(turns=2), {"ann": GuardedPolicy(ScriptedPolicy(lambda view: "red"), guards(NO_RED))}, 3)
    assert [turn.action for turn in mute.turns] == ["", ""]
    assert mute.rewards["ann"] == 0


def test_stop_and_a_world_without_an_allowed_action_end_the_episode_before_the_step():
    stop = {"tools": {"act": [{"effect": "forbid", "when": {"action": "red"}, "fallback": "stop"}, {"priority": 2}]}}
    for data, reason in ((stop, "act[0]"), ({"tools": {"act": [{"when": {"action": "x"}}]}}, "nothing that the world")):
        world = Pick(turns=3)
        episode = play(world, {"ann": GuardedPolicy(ScriptedPolicy(first), guards(data))}, 3)
        assert (episode.ended, len(episode.turns), world.state()["played"]) == ("failed", 1, [])
        assert reason in episode.turns[0].notes["failed"]
        assert Episode.from_row(episode.row()) == episode


def test_an_illegal_action_is_never_replaced_by_one_that_no_guard_has_seen():
    wrong = GuardedPolicy(ScriptedPolicy(lambda view: "purple"), guards(NO_RED), repairs=1)
    for seed in range(8):
        episode = play(Pick(turns=3), {"ann": wrong}, seed, repairs=1)
        assert "red" not in [turn.action for turn in episode.turns]
        assert not episode.fallbacks


def test_without_rules_for_act_and_without_a_guard_nothing_changes():
    plain = play(Pick(turns=3), {"ann": ScriptedPolicy(first)}, 3)
    for given in (guards({"tools": {"pay": [{}]}}), RoleGuards({"judge": make_policy(NO_RED)})):
        assert play(Pick(turns=3), {"ann": GuardedPolicy(ScriptedPolicy(first), given)}, 3) == plain


def test_what_an_update_changed_holds_until_the_episode_ends_and_is_read_from_the_record():
    once = {"tools": {"act": [{"when": {"action": "red"}, "update": {"act": [{"when": {"action": "green"}}]}}]}}
    made = GuardedPolicy(ScriptedPolicy(first), guards(once))
    for _ in range(2):  # the second episode begins anew
        episode = play(Pick(turns=3), {"ann": made}, 3)
        assert [turn.action for turn in episode.turns] == ["red", "green", "green"]
        assert episode.turns[2].notes["guard"]["updates"] == [["ann", "act", 0]]
        versions = [turn.notes["guard"]["decisions"][-1]["version"] for turn in episode.turns]
        assert [version.split(".")[1] for version in versions] == ["1", "2", "2"]
    # another process, which has the turns alone, decides the same
    view = View("ann", ".", Pick.COLOURS, 1, history=episode.turns[:1])
    assert pickle.loads(pickle.dumps(guards(once))).begin(view).permitted(view, Pick.COLOURS) == ["green"]
    with pytest.raises(UserError, match="no rule 3"):
        guards(once).of("ann").resumed([["ann", "act", 3]])


def test_a_mask_offers_what_is_allowed_and_puts_it_on_record():
    inner = Record(first)
    episode = play(Pick(turns=2), {"ann": GuardedPolicy(inner, guards(NO_RED), mask=True)}, 3)
    assert [view.legal for view in inner.views] == [("green", "light blue")] * 2
    assert episode.turns[0].notes["permitted"] == ["green", "light blue"]
    assert [row["effect"] for row in episode.turns[0].notes["guard"]["decisions"]] == ["allow"]


def test_any_guard_will_do_and_one_that_breaks_lets_nothing_happen():
    named = FunctionGuard(lambda role, action, context: role == "pirate" or f"{role} may not")
    roles = {"ann": "pirate", "bob": "poet"}
    policy = GuardedPolicy(ScriptedPolicy(first), RoleGuards(default=named))
    episode = play(Pick(("ann", "bob")), {"ann": policy, "bob": policy}, 3, roles=roles)
    assert episode.ended == "failed"
    assert [turn.agent for turn in episode.turns] == ["ann", "bob"]
    with pytest.raises(UserError, match="other processes"):
        pickle.dumps(RoleGuards(default=named))

    def broken(*_):
        raise KeyError("lost")

    policy = GuardedPolicy(ScriptedPolicy(lambda view: "hi"), RoleGuards(default=FunctionGuard(broken)))
    assert [turn.action for turn in play(Say(), {"ann": policy}, 1).turns] == [""]


def test_rules_for_act_speak_of_its_arguments_and_numbers_are_counts():
    with pytest.raises(UserError, match="Did you mean 'action'"):
        guards({"tools": {"act": [{"when": {"actoin": "x"}}]}})
    with pytest.raises(UserError, match="at least 0"):
        GuardedPolicy(ScriptedPolicy(first), guards(NO_RED), tries=-1)


PAY = {"tools": {"pay": [{"when": {"to": "bob"}, "update": {"pay": []}},
                         {"effect": "forbid", "when": {"to": "spy"}, "fallback": "stop"}]}}  # fmt: skip


@pytest.fixture
def shop():
    paid = []

    def pay(to):
        paid.append(to)
        return f"paid {to}"

    return paid, ToolRegistry([Tool("pay", "Pay somebody.", {"to": Argument("string")}, pay)])


def caller(*names):
    """Return a model that calls `pay` with each name in turn, then speaks."""

    def reply(chat, seed):
        said = sum(message["role"] == "assistant" for message in chat)
        return (
            f'<call>{{"name": "pay", "arguments": {{"to": "{names[said]}"}}}}</call>' if said < len(names) else "done"
        )

    return ScriptedModel(reply)


def test_every_tool_call_passes_the_guard_and_a_blocked_one_is_not_made(shop):
    paid, registry = shop
    policy = LanguagePolicy(
        caller("bob", "eve", "bob"), lambda view: Part(None), tools=ToolLoop(registry, guard=guards(PAY))
    )
    episode = play(Say(turns=2), {"ann": policy}, 3, roles={"ann": "clerk"})
    assert paid == ["bob"]  # the update holds for the calls after it, in the same turn and in the next
    records = episode.turns[0].notes["tools"]["calls"]
    assert [record.get("kind", "made") for record in records] == ["made", "blocked", "blocked"]
    assert "blocked by" in records[1]["refused"]
    assert [row["effect"] for turn in episode.turns for row in turn.notes["guard"]["decisions"]] == [
        "allow", "block", "block", "block", "block", "block"]  # fmt: skip
    assert replay_calls(episode.turns[0].notes, registry) == 1
    assert paid == ["bob", "bob"]


def test_a_call_that_stops_ends_the_turn_and_the_episode(shop):
    paid, registry = shop
    policy = LanguagePolicy(caller("spy", "bob"), lambda view: Part(None), tools=ToolLoop(registry, guard=guards(PAY)))
    for acting in (policy, GuardedPolicy(policy, guards(PAY))):
        episode = play(Say(turns=2), {"ann": acting}, 3)
        assert (episode.ended, len(episode.turns), paid) == ("failed", 1, [])
        assert "pay[1]" in episode.turns[0].notes["failed"]


def test_calls_of_a_blocked_try_hold_for_the_next_one(shop):
    paid, registry = shop
    both = {"tools": {**PAY["tools"], "act": [{"when": {"action": "never"}}]}}

    def once_a_try(chat, seed):
        done = chat[-1]["content"].endswith(("Go on.", "act now."))
        return "done" if done else '<call>{"name": "pay", "arguments": {"to": "bob"}}</call>'

    policy = LanguagePolicy(
        ScriptedModel(once_a_try), lambda view: Part(None), tools=ToolLoop(registry, guard=guards(both))
    )
    episode = play(Say(), {"ann": GuardedPolicy(policy, guards(both), tries=2)}, 3)
    said = [(row["tool"], row["effect"]) for row in episode.turns[0].notes["guard"]["decisions"]]
    blocked = [("pay", "block"), ("act", "block")]
    assert said == [("pay", "allow"), ("act", "block"), *blocked, *blocked]
    assert paid == ["bob"]
    assert episode.turns[0].action == ""


def test_a_person_is_asked_where_a_rule_says_so():
    ask = {"tools": {"act": [{"effect": "forbid", "when": {"action": "red"}, "fallback": "ask"}, {"priority": 2}]}}
    yes = guards(ask, approve=lambda role, action, said: role == "ann")
    assert play(Pick(), {"ann": GuardedPolicy(ScriptedPolicy(first), yes)}, 3).turns[0].action == "red"
    nobody = play(Pick(), {"ann": GuardedPolicy(ScriptedPolicy(first), guards(ask))}, 3).turns[0]
    assert nobody.action == "green"
    assert "nobody can be asked" in nobody.notes["guard"]["decisions"][0]["reason"]
    assert isinstance(yes.of("ann").decide("ann", type("A", (), {"name": "act", "arguments": {}})), Decision)

"""Interventions: when they begin, whom they concern, what they do, and that all of it is on record."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rolecraft.agents._role_policy import Part
from rolecraft.conditioning import Direction
from rolecraft.conditioning._direction import Manifest
from rolecraft.errors import UserError
from rolecraft.simulate import (
    PlannedIntervention,
    StudyDirector,
    When,
    check_study,
    read_episode,
    read_episodes,
    read_study,
)
from rolecraft.simulate._acting import adjust_part
from rolecraft.simulate._interventions import read_field
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import Act, Table, TrustGame, View, play_all, replay
from tests.simulate.chatter import Chatter


def planned(**fields) -> PlannedIntervention:
    return PlannedIntervention.model_validate({"what": "tell", "text": "psst"} | fields)


class Speaks:
    """Says a number per decision, and notes its orders as the real policy does."""

    def __init__(self, words=lambda view: "word") -> None:
        self.words = words

    def act(self, views):
        return [Act(self.words(view), {"interventions": dict(view.orders)} if view.orders else {}) for view in views]


def applied(interventions, world=None, roles=None, words=lambda view: "word", played=()):
    """Return (step, agent) of every decision to which an intervention applied, and the episode."""
    world = world or Chatter(rounds=4)
    named = {str(place): one for place, one in enumerate(interventions)}
    director = StudyDirector(named, world, roles or {})
    table = Table(world, dict.fromkeys(world.agents, Speaks(words)), 0, roles or {}, played, director)
    [episode] = play_all([table])
    found = {}
    for turn in episode.turns:
        for one in turn.notes.get("interventions", {}).get("applied", ()):
            found.setdefault(one["id"], []).append((turn.step, turn.agent))
    return found, episode


class TestWhen:
    def test_a_step(self):
        assert applied([planned(when={"step": 3})])[0] == {"0": [(3, "bob"), (4, "ann")]}

    def test_from_the_start_if_nothing_is_said(self):
        assert applied([planned()])[0] == {"0": [(0, "ann"), (1, "bob")]}

    @pytest.mark.parametrize(
        ("op", "value", "first"),
        [("==", 3, 3), (">=", 3, 3), (">", 3, 4), ("!=", 0, 1), ("<", 5, 0), ("<=", 0, 0), ("in", [4, 5], 4)],
    )
    def test_a_field_of_the_state(self, op, value, first):
        found = applied([planned(when={"field": "state.count", "op": op, "value": value}, turns=99)])[0]
        assert found["0"][0][0] == first

    def test_it_lasts_although_the_condition_no_longer_holds(self):
        one = planned(what="silence", text=None, when={"field": "state.count", "value": 2}, who="ann")
        assert applied([one])[0] == {"0": [(2, "ann"), (4, "ann"), (6, "ann")]}

    def test_contains_and_lists_by_place(self):
        words = lambda view: "alarm" if len(view.history) == 1 else "word"  # noqa: E731
        found = applied([planned(when={"field": "state.said.-1.1", "op": "contains", "value": "larm"})], words=words)
        assert found[0] == {"0": [(3, "bob"), (4, "ann")]}

    def test_an_outcome_and_rewards(self):
        assert applied([planned(when={"field": "rewards.ann", "op": ">=", "value": 2}, who="bob")])[0] == {
            "0": [(3, "bob")]
        }
        assert applied([planned(when={"field": "outcome.silent", "value": 0}, who="bob")])[0] == {"0": [(1, "bob")]}

    def test_a_field_that_is_not_there_fulfils_nothing(self):
        assert applied([planned(when={"field": "outcome.winner", "op": "!=", "value": "x"})])[0] == {}

    def test_something_that_was_said_since_the_agents_own_last_turn(self):
        def words(view):
            return "Help Me" if view.agent == "ann" and len(view.history) == 1 else "word"

        assert applied([planned(when={"said": "help me"})], words=words)[0] == {"0": [(3, "bob")]}
        assert applied([planned(when={"said": "help me", "by": "bob"})], words=words)[0] == {}
        paired, _ = applied([planned(when={"said": "help me"})], world=Chatter(rounds=4, pairs=True), words=words)
        assert paired == {"0": [(2, "bob")]}
        roles = {"ann": "pirate", "bob": "poet"}
        assert applied([planned(when={"said": "help me", "by": "pirate"})], roles=roles, words=words)[0] == {
            "0": [(3, "bob"), (4, "ann")]
        }

    def test_all_that_is_given_must_hold(self):
        both = planned(when={"step": 5, "field": "state.count", "op": ">=", "value": 2}, who="ann")
        assert applied([both])[0] == {"0": [(6, "ann")]}

    def test_what_cannot_be_compared_is_said(self):
        with pytest.raises(UserError, match=r"state\.count is 0, which cannot be compared with 'three' by '>'"):
            applied([planned(when={"field": "state.count", "op": ">", "value": "three"})])


class TestWhom:
    def test_an_agent_a_role_or_several(self):
        roles = {"ann": "pirate", "bob": "poet"}
        assert applied([planned(who="bob")], roles=roles)[0] == {"0": [(1, "bob")]}
        assert applied([planned(who="pirate")], roles=roles)[0] == {"0": [(0, "ann")]}
        assert applied([planned(who=["pirate", "bob"])], roles=roles)[0] == {"0": [(0, "ann"), (1, "bob")]}
        assert applied([planned(who="chef")], roles=roles)[0] == {}

    def test_for_so_many_decisions_of_each(self):
        found = applied([planned(turns=2, when={"step": 1})])[0]
        assert found == {"0": [(1, "bob"), (2, "ann"), (3, "bob"), (4, "ann")]}


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["all", "ann", "bob"]), st.integers(1, 4)), max_size=4),
    st.integers(0, 8),
)
def test_an_episode_resumed_anywhere_has_the_same_orders(entries, stop):
    plans = [planned(when={"step": step}, who=who, turns=turns) for step, who, turns in entries]
    found, whole = applied(plans)
    again, resumed = applied(plans, played=whole.turns[:stop])
    assert (again, resumed) == (found, whole)
    replay(Chatter(rounds=4), whole)


class TestInAStudy:
    def text(self, one, seed):
        told = one[-1]["content"].rsplit("\n\n", 1)
        role = next((name for name in ("pirate", "poet", "chef") if name in one[0]["content"].lower()), "bare")
        return f"{role} " + (told[1] if len(told) == 2 else "quiet")

    @pytest.fixture
    def run(self, write_lock, write_study, chat_world, play, tmp_path):
        def run(lines: str, **fields):
            model = ScriptedModel(self.text, name="scripted:text")
            write_lock(model.name, model.revision)
            fields = {"world": chat_world, "episodes": 2, "seats": "{ann: pirate, bob: poet}"} | fields
            return play(write_study("interventions:\n" + lines, **fields), tmp_path / "run", model)

        return run

    def said(self, run, key):
        return [(turn.agent, turn.action) for turn in read_episode(run, key).turns]

    def test_what_is_told_reaches_the_agent_and_not_the_world(self, run):
        found = run("  - {what: tell, text: look out, who: bob, when: {step: 2}}")
        turns = read_episode(found, "roles/0").turns
        assert [turn.action for turn in turns] == ["pirate quiet", "poet quiet", "pirate quiet", "poet look out",
                                                   "pirate quiet", "poet quiet"]  # fmt: skip
        assert turns[3].notes["interventions"]["applied"] == [{"id": "0", "what": "tell", "text": "look out"}]
        assert not any("look out" in turn.observation for turn in turns[:4])
        assert read_episodes(found)["roles/0"]["interventions"] == 1
        replay(Chatter(), read_episode(found, "roles/0"))

    def test_a_role_is_swapped(self, run):
        found = run("  - {what: role, role: chef, who: pirate, when: {step: 2}, turns: 1}")
        assert [text.split()[0] for who, text in self.said(found, "roles/0") if who == "ann"] == [
            "pirate", "chef", "pirate",
        ]  # fmt: skip
        assert read_episode(found, "roles/0").roles["ann"] == "pirate"

    def test_a_swapped_role_fills_no_seat_by_itself(self, run):
        found = run("  - {what: role, role: chef, who: ann, when: {step: 99}}", roles="[pirate, poet]", seats="{}")
        assert all(set(row["roles"].values()) == {"pirate", "poet"} for row in read_episodes(found).values())

    def test_silence_and_a_given_action_are_not_asked_for(self, run):
        found = run(
            "  - {what: silence, who: ann, when: {field: state.count, op: '>=', value: 2}}\n"
            "  - {what: do, action: so be it, who: bob, when: {step: 3}}"
        )
        assert self.said(found, "roles/0")[2:] == [("ann", ""), ("bob", "so be it"), ("ann", ""), ("bob", "poet quiet")]
        assert "tokens" not in read_episode(found, "roles/0").turns[2].notes

    def test_arms_differ_by_it_alone(self, run):
        found = run(
            "  - {what: tell, text: look out, who: ann, arms: [treated]}",
            arms="{treated: locked, control: locked}", seats="{}", episodes=4,
        )  # fmt: skip
        rows = read_episodes(found)
        for number in range(4):
            treated, control = rows[f"treated/{number}"], rows[f"control/{number}"]
            assert (treated["seed"], treated["roles"]) == (control["seed"], control["roles"])
            assert (treated["interventions"], control["interventions"]) == (1, 0)
            assert self.said(found, f"treated/{number}")[0][1].endswith("look out")
            assert self.said(found, f"control/{number}")[0][1].endswith("quiet")


def test_silence_among_legal_actions_is_a_seeded_random_one(write_lock, write_study, play, tmp_path):
    model = ScriptedModel(lambda one, seed: "send 10", name="scripted:ten")
    write_lock(model.name, model.revision)
    path = write_study("interventions: [{what: silence, who: trustor}]", episodes=12, arms="{roles: locked}")
    actions = []
    for name in ("one", "two"):
        run = play(path, tmp_path / name, model)
        actions.append([read_episode(run, key).turns[0].action for key in read_episodes(run)])
    assert actions[0] == actions[1]
    assert len(set(actions[0])) > 3
    assert read_episodes(run)["roles/0"]["fallbacks"] == 0


def test_the_strength_of_a_direction_is_multiplied():
    manifest = Manifest("pirate", "role", "m", "r", site=0, n_sites=2)
    direction = Direction({0: np.ones(4, np.float32)}, manifest)
    part = Part(None, (direction.steer(2.0),))
    view = View("a", "o", None, 0, orders={"factor": 1.5})
    assert [one.strength for one in adjust_part(view, part).interventions] == [3.0]
    assert adjust_part(View("a", "o", None, 0), part) == part


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"text": None}, "tell needs text"),
            ({"role": "poet"}, "tell needs text and no other"),
            ({"what": "silence"}, "silence takes none of"),
            ({"when": {"op": "<", "value": 1}}, "give field"),
            ({"when": {"field": "state.count"}}, "needs a value"),
            ({"when": {"field": "self.count", "value": 1}}, "starts with one of state, outcome, rewards"),
            ({"when": {"by": "ann"}}, "give said"),
            ({"when": {"field": "state.x", "op": "~", "value": 1}}, "op"),
            ({"turns": 0}, "turns"),
            ({"whom": "ann"}, "whom"),
        ],
    )
    def test_an_entry_that_says_too_little_or_too_much(self, fields, message):
        with pytest.raises(ValidationError, match=message):
            planned(**fields)

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ("{what: tell, text: x, who: trustro}", r"interventions\[0\]: there is no who 'trustro'.*'trustor'"),
            ("{what: role, role: captain}", "has no role 'captain'"),
            ("{what: tell, text: x, arms: [rols]}", r"interventions\[0\]: there is no arms 'rols'.*'roles'"),
            ("{what: tell, text: x, when: {field: state.snt, value: 1}}", "no state field 'snt'.*'sent'"),
            ("{what: tell, text: x, when: {said: x, by: nobody}}", "no by 'nobody'"),
        ],
    )
    def test_what_it_names_must_exist(self, write_lock, write_study, entry, message):
        model = ScriptedModel("echo")
        write_lock(model.name, model.revision)
        with pytest.raises(UserError, match=message):
            check_study(read_study(write_study(f"interventions: [{entry}]")), model)

    def test_the_file_names_the_entry(self, write_study):
        with pytest.raises(UserError, match=r"study\.yaml: interventions\.0: tell needs text"):
            read_study(write_study("interventions: [{what: tell}]"))


def test_a_field_is_read_by_its_path():
    world = TrustGame()
    world.act({"trustor": "send 4"})
    assert read_field(world, "state.sent") == 4
    assert read_field(world, "state.past.0.1") is None
    assert read_field(world, "state.sent.x") is None
    world.act({"trustee": "return 3"})
    assert read_field(world, "state.past.0.1") == 3
    assert read_field(world, "rewards.trustor") == 9
    assert When(field="state.sent", value=1).op == "=="

"""The drift watch against agents whose drift is planted, and against those that stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.conditioning import Extraction, Steering, random_direction
from rolecraft.errors import UserError
from rolecraft.measures import Score
from rolecraft.models import chat
from rolecraft.screening import Admission
from rolecraft.simulate import DriftRule, DriftWatch, Said, read_drift, read_episode, read_episodes
from rolecraft.simulate._acting import floor_intervention
from rolecraft.simulate._drift import advance, find_directions, prediction_limit, projection, screen_references
from rolecraft.testing import ScriptedModel, tiny_model
from tests.simulate.planted_drift import OTHER, OWN, PIRATE, drifter, locked, planted_direction, text

CAST = {"pirate": Admission(PIRATE, True, "prompt", "instruction")}


def alarms(watch: DriftWatch, leaves: int | None, agents: int = 20, turns: int = 10, base: int = 0) -> np.ndarray:
    """Return, per agent and turn, how many alarms there were so far."""
    states: list = [None] * agents
    counts = np.zeros((agents, turns), int)
    for turn in range(turns):
        words = OWN if leaves is None or turn < leaves else OTHER
        messages = [
            Said("pirate", "say", text(words, base + 1000 * turn + agent), states[agent]) for agent in range(agents)
        ]
        states = watch.read(messages)
        counts[:, turn] = [note["state"]["alarms"] for note in states]
    return counts


class TestPlanted:
    rule = DriftRule(warmup=5)

    @pytest.fixture
    def watch(self) -> DriftWatch:
        model = tiny_model()
        return DriftWatch(self.rule, model, {"pirate": planted_direction(model)}, CAST)

    def test_who_leaves_is_caught_within_patience_and_who_stays_is_left_alone(self, watch):
        left = alarms(watch, leaves=6)
        assert (left[:, 5] > 0).mean() <= 0.05
        assert (left[:, 7] > 0).mean() >= 0.95, "patience 2: turns 6 and 7"
        assert (left[:, 6] > 0).mean() <= 0.05, "one low reading is no drift"
        assert (alarms(watch, leaves=None, base=500_000)[:, -1] > 0).mean() <= 0.05

    def test_random_directions_of_the_same_norm_catch_far_fewer(self, watch):
        own, agents, turns = watch.directions["pirate"], 8, 10
        said = [
            text(OWN if turn < 6 else OTHER, 1000 * turn + agent) for turn in range(turns) for agent in range(agents)
        ]
        states = dict(watch.model.activations([chat("")] * len(said), said, [1]))

        def caught(direction) -> float:
            found = 0
            for agent in range(agents):
                state = None
                for turn in range(turns):
                    state = advance(self.rule, state, projection(states[turn * agents + agent][0], direction))
                found += state["alarms"] > 0
            return found / agents

        blind = [caught(random_direction(own, seed)) for seed in range(30)]
        assert caught(own) >= 0.95
        assert np.mean(blind) < 0.4

    def test_a_message_is_read_the_same_whatever_is_read_beside_it(self, watch):
        messages = [Said("pirate", "say", text(OWN, seed), None) for seed in range(7)]
        assert watch.read(messages) == [note for one in messages for note in watch.read([one])]


class TestRule:
    rule = DriftRule(warmup=2, patience=2, level=0.9)

    def series(self, *values, reference=None):
        state = None
        states = []
        for value in values:
            state = advance(self.rule, state, value, reference)
            states.append(state)
        return states

    def test_the_limit_is_the_one_sided_prediction_limit(self):
        assert prediction_limit(10.0, 2.0, 4, 0.95) == pytest.approx(10 - 2.353363 * 2 * 1.25**0.5, abs=1e-3)
        state = self.series(1.0, 3.0)[-1]
        assert state["limit"] == pytest.approx(2 - 3.077684 * 2**0.5 * 1.5**0.5, abs=1e-3)

    def test_drift_begins_and_ends_after_patience_readings_in_a_row(self):
        states = self.series(0, -1, 1, -1, -1, -1, 1, -1, 1, 1, -1, -1, reference=(0.0, 0.1, 1000))
        assert [state["drifted"] for state in states] == [
            False, False, False, False, True, True, True, True, True, False, False, True,
        ]  # fmt: skip
        assert states[-1]["alarms"] == 2

    def test_a_reading_that_is_missing_changes_nothing(self):
        one, two, three = self.series(0.0, None, 1.0)
        assert two == one
        assert three["limit"] is not None

    @given(st.lists(st.integers(-500, 500).map(float), min_size=3, max_size=12))
    def test_readings_at_or_above_the_first_ones_never_alarm(self, values):
        high = max(values[:2])
        states = self.series(*values[:2], *[max(value, high) for value in values[2:]])
        assert states[-1]["alarms"] == 0


class TestInASimulation:
    RULE = "{reference: first-turns, warmup: 3, level: 0.95, patience: 2, action: %s}"

    @pytest.fixture
    def run(self, write_lock, write_study, chat_world, play, tmp_path):
        def run(model, action: str = "none", directory="run", lines="", **fields):
            write_lock(model.name, model.revision, pirate=locked(model, tmp_path))
            fields = {
                "world": "{name: chatter, rounds: 9}", "episodes": 1, "arms": "{roles: locked}",
                "seats": "{ann: pirate, bob: poet}", "drift": self.RULE % action,
            } | fields  # fmt: skip
            return play(write_study(lines, **fields), tmp_path / directory, model)

        return run

    def ann(self, run):
        return [turn for turn in read_episode(run, "roles/0").turns if turn.agent == "ann"]

    def test_rows_say_what_was_read_and_only_watched_arms_and_roles_are(self, run):
        rows = read_drift(run(drifter(6), arms="{roles: locked, bare: none}"))
        assert {(row["arm"], row["agent"]) for row in rows} == {("roles", "ann"), ("roles", "bob")}
        ann = [row for row in rows if row["agent"] == "ann"]
        assert [row["step"] for row in ann] == list(range(0, 18, 2))
        assert [row["drifted"] for row in ann] == [False] * 4 + [True] * 5
        assert (ann[-1]["alarms"], ann[-1]["held"]) == (1, None)
        assert ann[3]["projection"] < ann[3]["limit"] < ann[2]["projection"]
        assert all(row["projection"] is None for row in rows if row["agent"] == "bob")

    @pytest.mark.parametrize(
        ("action", "mended_by"), [("re-prompt", "prompt"), ("re-steer", "strength"), ("cap", "cap")]
    )
    def test_what_is_ordered_reaches_the_model_and_ends_with_the_drift(self, run, action, mended_by):
        found = run(drifter(6, mended_by), action)
        # Turns 3 and 4 are low; held at 5 and 6, which are in role; let go at 7, she leaves again.
        assert [turn.notes.get("held") for turn in self.ann(found)] == [None] * 5 + [action] * 2 + [None] * 2
        rows = [row["drifted"] for row in read_drift(found) if row["agent"] == "ann"]
        assert rows == [False] * 4 + [True, True, False, False, True]

    def test_another_remedy_does_not_mend_it(self, run):
        held = [turn.notes.get("held") for turn in self.ann(run(drifter(6, "cap"), "re-prompt"))]
        assert held == [None] * 5 + ["re-prompt"] * 4

    def test_who_is_retired_says_nothing_more(self, run):
        turns = self.ann(run(drifter(6), "retire"))
        assert [bool(turn.action) for turn in turns] == [True] * 5 + [False] * 4
        assert [turn.notes.get("held") for turn in turns] == [None] * 5 + ["retire"] * 4

    def test_who_stays_in_role_is_left_alone(self, run):
        assert sum(row["alarms"] for row in read_drift(run(drifter(99), "retire", episodes=3))) == 0

    def test_an_interrupted_run_comes_out_the_same(self, run):
        whole = run(drifter(6, "prompt"), "re-prompt", "whole")
        model = drifter(6, "prompt")
        original, calls = model.generate, []

        def interrupted(*args, **options):
            calls.append(1)
            if len(calls) == 12:
                raise KeyboardInterrupt
            return original(*args, **options)

        model.generate = interrupted
        with pytest.raises(KeyboardInterrupt):
            run(model, "re-prompt")
        again = run(model, "re-prompt")
        assert len(calls) == 19
        assert read_drift(again) == read_drift(whole)
        assert read_episode(again, "roles/0") == read_episode(whole, "roles/0")
        assert read_episodes(again) == read_episodes(whole)

    def test_every_second_message(self, run):
        rows = read_drift(run(drifter(99), drift="{every: 2, warmup: 2}"))
        assert [row["projection"] is not None for row in rows if row["agent"] == "ann"] == [True, False] * 4 + [True]

    def test_a_swapped_role_starts_anew(self, run):
        lines = "interventions: [{what: role, role: poet, who: ann, when: {step: 6}, turns: 3}]"
        rows = [row for row in read_drift(run(drifter(99), lines=lines)) if row["agent"] == "ann"]
        assert [row["role"] for row in rows] == ["pirate"] * 3 + ["poet"] * 3 + ["pirate"] * 3
        assert [row["turn"] for row in rows] == [1, 2, 3] * 3


class Flips:
    """A judge that finds everything after the third message out of role."""

    name, rubric_hash, dimensions = "flips", "1", ("overall",)

    def score(self, items):
        return [Score({"overall": 90.0 if "arr" in item.answer else 5.0}) for item in items]


def test_a_judge_decides_where_there_is_no_direction():
    watch = DriftWatch(DriftRule(warmup=2, patience=1), ScriptedModel("echo"), {}, CAST, Flips())
    state = None
    alarms = []
    for said in ("arr", "arr arr", "arr", "HELP", "HELP"):
        [state] = watch.read([Said("pirate", "say", said, state)])
        alarms.append(state["state"]["alarms"])
    assert (state["watched"], state["score"], state["projection"]) == ("score", 5.0, None)
    assert alarms == [0, 0, 0, 1, 1]


def test_without_direction_and_judge_there_is_nothing_to_watch_by():
    with pytest.raises(UserError, match=r"no role has a direction.*judge: offline"):
        DriftWatch(DriftRule(), ScriptedModel("echo"), {}, CAST)


def test_a_floor_raises_the_projection_to_the_limit_and_leaves_higher_ones():
    model = tiny_model()
    direction = planted_direction(model)
    free = dict(model.activations([chat("")] * 2, [text(OWN, 1), text(OTHER, 1)], [1]))
    sides = [projection(free[row][0], direction) for row in (0, 1)]
    limit = sum(sides) / 2
    steering = Steering(((floor_intervention(direction, limit),),) * 2)
    held = dict(model.activations([chat("")] * 2, [text(OWN, 1), text(OTHER, 1)], [1], steering=steering))
    raised = [projection(held[row][0], direction) for row in (0, 1)]
    assert raised[1] >= limit - 1e-3 > sides[1]
    assert raised[0] >= sides[0] - 1e-3


class TestSources:
    def test_a_prompted_role_has_the_direction_that_its_screen_extracted(self, tmp_path, monkeypatch):
        model = tiny_model()
        path = tmp_path / "extractions" / "0" / "pirate.safetensors"
        path.parent.mkdir(parents=True)
        path.touch()
        direction = planted_direction(model)
        monkeypatch.setattr(Extraction, "load", classmethod(lambda cls, where: type("E", (), {"direction": direction})))
        assert find_directions(CAST, tmp_path / "roles.lock", model) == {"pirate": direction}
        assert find_directions(CAST, tmp_path / "other" / "roles.lock", model) == {}
        assert find_directions(CAST, tmp_path / "roles.lock", ScriptedModel("echo")) == {}

    def test_the_screens_own_answers_are_the_reference(self, tmp_path):
        from rolecraft._run import RunStore

        model = tiny_model()
        direction = planted_direction(model)
        own = [text(OWN, seed) for seed in range(6)]
        with RunStore.open(tmp_path, "screen", {}) as store:
            rows = {f"pirate/prompted/0/q{number}/0": {"answer": said} for number, said in enumerate(own)}
            rows |= {f"pirate/role/2/q{number}/0": {"answer": text(OTHER, number)} for number in range(6)}
            rows["*/baseline/0/q0/0"] = {"answer": "HELP"}
            store.put_many("answers", rows)
        lock = tmp_path / "roles.lock"
        found = screen_references(CAST, {"pirate": direction}, lock, model)["pirate"]
        states = dict(model.activations([chat("")] * 6, own, [1]))
        values = [projection(states[row][0], direction) for row in range(6)]
        assert found == (pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)), 6)
        watch = DriftWatch(DriftRule(patience=1), model, {"pirate": direction}, CAST, references={"pirate": found})
        [first] = watch.read([Said("pirate", "say", text(OTHER, 9), None)])
        assert first["state"]["alarms"] == 1
        with pytest.raises(UserError, match=r"holds 0 answers of 'poet'.*first-turns"):
            screen_references(CAST | {"poet": CAST["pirate"]}, {"poet": direction}, lock, model)

"""Measuring simulations: planted truths per measure, what is stored, what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.conditioning import Direction, Steering
from rolecraft.conditioning._direction import Manifest
from rolecraft.errors import JudgeError, RunMismatchError, UserError
from rolecraft.measures import JudgeItem, LLMJudge, OfflineJudge, Score, administer, load_questionnaire
from rolecraft.models import Completion
from rolecraft.roles import load_inventory
from rolecraft.screening._lock import file_hash
from rolecraft.simulate import (
    MEASURES,
    Simulation,
    _measure,
    _measure_roles,
    measure_run,
    read_episode,
    read_measures,
    read_study,
)
from rolecraft.simulate._measure import _own, _role_of
from rolecraft.simulate._measured import stage_of
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Turn
from tests.measures.planted import HashedWords
from tests.simulate.conftest import ROLES

DIALOGUE = "{name: dialogue, task: Plan a trip., max_messages: 6, stop: []}"


def give(one, seed: int) -> str:
    """Send all as a pirate, nothing otherwise; speak of one's role where there is one."""
    system = one[0]["content"].lower()
    if "send" in one[-1]["content"] or "return" in one[-1]["content"]:
        return "send 10" if "pirate" in system else "send 0"
    mine = [name for name in ROLES if name in system]
    return f"I am the {mine[0]} and talk of {mine[0]} things." if mine else "It depends on the case."


class NameJudge:
    """90 for a message that names its role, else 10; counts what it is asked."""

    name, rubric_hash, dimensions = "names", "n1", ("overall", "worldview_alignment")

    def __init__(self, stop_after: int = 10**9) -> None:
        self.asked: list[JudgeItem] = []
        self.stop_after = stop_after

    def score(self, items: Sequence[JudgeItem]) -> list[Score]:
        self.asked += items
        if len(self.asked) > self.stop_after:
            raise KeyboardInterrupt
        return [
            Score({"overall": 90.0 if item.role.id in item.answer else 10.0, "worldview_alignment": None})
            for item in items
        ]


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(give)


@pytest.fixture
def played(write_lock, write_study, model, tmp_path):
    """Play a study, and return its run directory."""

    def play(lines: str = "", **fields: object) -> Path:
        write_lock(model.name, model.revision)
        with Simulation.open(
            read_study(write_study(lines, **fields)), tmp_path / "run", model=model, quiet=True
        ) as run:
            run.run()
        return tmp_path / "run"

    return play


@pytest.fixture
def trust(played) -> Path:
    return played(episodes=8)


@pytest.fixture
def talk(played) -> Path:
    return played(world=DIALOGUE, episodes=6)


def measured(directory: Path, name: str) -> list[dict]:
    with RunStore.read(directory) as view:
        return [part for part in read_measures(view) if part["measure"] == name]


def table(directory: Path, name: str) -> dict[tuple[str, str, str], dict]:
    (part,) = measured(directory, name)
    return {(row["arm"], row["role"], row["figure"]): row for row in part["rows"]}


class TestActions:
    def test_a_role_that_acts_otherwise_lies_1_away_and_the_others_0(self, played):
        trust = played(world="{name: trust-game, rounds: 1}", episodes=30)
        measure_run(trust, ["actions"], quiet=True)
        rows = table(trust, "actions")
        pirate = rows["roles", "pirate", "distance from bare"]
        assert (pirate["estimate"], pirate["low"] > 0.5, pirate["p"] < 0.05) == (1, True, True)
        assert pirate["top"] == "send 10 100%"
        for role in ("poet", "chef"):
            assert (
                rows["roles", role, "distance from bare"]["estimate"],
                rows["roles", role, "distance from bare"]["low"],
            ) == (0, 0)
        assert 0 < rows["roles", "(all)", "distance from bare"]["estimate"] < 1
        assert rows["bare", "pirate", "-"]["estimate"] is None
        with RunStore.read(trust) as view:
            stored = view.rows(stage_of("actions"))
        assert set(stored) == {f"{arm}/{number}" for arm in ("roles", "bare") for number in range(30)}
        with RunStore.read(trust) as view:
            turns = [turn for number in range(30) for turn in read_episode(view, f"roles/{number}").turns]
        counted = sum(
            sum(done.values()) for key, row in stored.items() if "roles" in key for done in row["counts"].values()
        )
        assert counted == sum(len(turn.legal or ()) > 1 for turn in turns)

    def test_free_text_has_no_actions(self, talk):
        with pytest.raises(UserError, match=r"nobody chooses.*measure offline-judge"):
            measure_run(talk, ["actions"], quiet=True)


class TestDiversity:
    def test_choices_by_role_and_the_share_between_roles(self, trust):
        measure_run(trust, ["diversity"], quiet=True)
        rows = table(trust, "diversity")
        assert rows["roles", "pirate", "entropy (bits)"]["estimate"] == 0
        assert rows["roles", "(all)", "entropy (bits)"]["estimate"] > 0.2
        share = rows["roles", "(all)", "choices: share between roles"]
        assert share["estimate"] > 0.3  # not 1: the two seats choose among other actions
        assert share["p"] < 0.05
        assert rows["bare", "(all)", "choices: share between roles"]["note"] == "all answers are the same"

    def test_texts_by_role_and_the_share_between_roles(self, talk):
        measure_run(talk, ["diversity"], encoder=HashedWords(), quiet=True)
        rows = table(talk, "diversity")
        spread = "spread of texts (1 - cosine)"
        assert rows["roles", "pirate", spread]["estimate"] == pytest.approx(0, abs=1e-6)
        assert rows["roles", "(all)", spread]["estimate"] > 0.1
        share = rows["roles", "(all)", "texts: share between roles"]
        assert (share["estimate"], share["p"] < 0.05) == (pytest.approx(1, abs=1e-6), True)
        assert rows["bare", "(all)", "texts: share between roles"]["estimate"] is None


class TestJudges:
    def test_messages_are_scored_for_their_role_and_arms_are_paired(self, talk):
        judge = NameJudge()
        measure_run(talk, ["offline-judge"], judges={"offline-judge": judge}, quiet=True)
        assert len(judge.asked) == 2 * 6 * 6
        rows = table(talk, "offline-judge")
        everyone = rows["roles", "(all)", "overall"]
        assert (everyone["estimate"], everyone["gain"], everyone["gain_low"], everyone["n"]) == (90, 80, 80, 6)
        assert (rows["bare", "pirate", "overall"]["estimate"], rows["bare", "pirate", "overall"]["missing"]) == (10, 0)
        assert {role for _, role, _ in rows} == {*ROLES, "(all)"}
        assert not [key for key in rows if key[2] == "worldview_alignment"]  # a dimension without any score
        with RunStore.read(talk) as view:
            row = view.rows(stage_of("offline-judge"))["n1/roles/0/0/user"]
        assert (row["judge"], row["scores"]["overall"], row["agent"]) == ("names", 90, "user")

    def test_the_judge_sees_the_message_under_what_its_agent_saw(self, talk):
        judge = NameJudge()
        measure_run(talk, ["offline-judge"], judges={"offline-judge": judge}, quiet=True)
        assert "Plan a trip." in judge.asked[0].question
        assert judge.asked[0].role.id in judge.asked[0].answer

    def test_an_interrupted_measure_goes_on_where_it_was(self, talk, monkeypatch):
        monkeypatch.setattr(_measure, "_CHUNK", 10)
        with pytest.raises(KeyboardInterrupt):
            measure_run(talk, ["offline-judge"], judges={"offline-judge": NameJudge(stop_after=35)}, quiet=True)
        again = NameJudge()
        measure_run(talk, ["offline-judge"], judges={"offline-judge": again}, quiet=True)
        assert len(again.asked) == 72 - 30
        third = NameJudge()
        measure_run(talk, ["offline-judge"], judges={"offline-judge": third}, quiet=True)
        assert third.asked == []

    def test_scores_of_two_judges_do_not_mix(self, talk):
        other = NameJudge()
        other.name, other.rubric_hash = "names again", "n2"
        for judge in (NameJudge(), other):
            measure_run(talk, ["offline-judge"], judges={"offline-judge": judge}, quiet=True)
        assert [part["by"] for part in measured(talk, "offline-judge")] == ["names", "names again"]

    def test_the_offline_judge_itself(self, talk, monkeypatch, model):
        from rolecraft.measures import fit_offline_judge
        from tests.measures.planted import cases

        fit = fit_offline_judge(ScriptedModel("role-player"), HashedWords(), cases())
        judge = OfflineJudge(model, HashedWords(), load_inventory("core-v1"), fit)
        measure_run(talk, ["offline-judge"], judges={"offline-judge": judge}, quiet=True)
        rows = table(talk, "offline-judge")
        assert rows["roles", "(all)", "overall"]["missing"] == 0
        assert rows["roles", "(all)", "overall"]["estimate"] > rows["bare", "(all)", "overall"]["estimate"]

    def test_prose_of_an_llm_judge_is_missing_and_never_a_middle_value(self, talk):
        measure_run(talk, ["llm-judge"], judge="scripted:nonsense", allow_uncalibrated=True, quiet=True)
        (part,) = measured(talk, "llm-judge")
        everyone = next(row for row in part["rows"] if (row["arm"], row["role"]) == ("roles", "(all)"))
        assert (everyone["estimate"], everyone["missing"], "gain" in everyone) == (None, 36, False)
        assert "72 of 72 messages have no score" in part["notes"][0]

    def test_a_judge_that_reads_the_rubric_scores(self, talk):
        measure_run(talk, ["llm-judge"], judge="scripted:judge", allow_uncalibrated=True, quiet=True)
        (part,) = measured(talk, "llm-judge")
        assert part["by"] == "llm(scripted:judge, role-alignment-v1)"
        assert all(row["missing"] == 0 for row in part["rows"])
        assert part["notes"] == []
        with RunStore.read(talk) as view:  # replies are kept by what was asked
            assert 0 < view.count("judge-replies") <= 72

    def test_a_reply_that_did_not_come_is_asked_for_again(self, talk):
        def failing(one, seed):
            return Completion("", "error", note="refused")

        broken = LLMJudge(ScriptedModel(failing, name="scripted:it"), "role-alignment-v1", allow_uncalibrated=True)
        measure_run(talk, ["llm-judge"], judges={"llm-judge": broken}, quiet=True)
        assert measured(talk, "llm-judge") == []
        whole = LLMJudge(ScriptedModel("judge", name="scripted:it"), "role-alignment-v1", allow_uncalibrated=True)
        measure_run(talk, ["llm-judge"], judges={"llm-judge": whole}, quiet=True)
        assert len(measured(talk, "llm-judge")) == 1

    def test_an_llm_judge_must_pass_its_calibration(self, talk):
        with pytest.raises(JudgeError):
            measure_run(talk, ["llm-judge"], judge="scripted:nonsense", quiet=True)

    def test_choices_are_not_judged(self, trust):
        with pytest.raises(UserError, match=r"nobody says free text in 'trust-game'.*measure actions"):
            measure_run(trust, ["llm-judge"], judge="scripted:judge", quiet=True)


class TestQuestionnaire:
    @pytest.fixture(autouse=True)
    def short(self, monkeypatch):
        self.items = load_questionnaire().short(4)
        monkeypatch.setattr(_measure_roles, "load_questionnaire", lambda: self.items)

    def test_each_role_answers_as_it_was_put_on(self, played, model):
        directory = played("arms: {roles: locked, bare: none}", episodes=1)
        measure_run(directory, ["questionnaire"], model=model, quiet=True)
        with RunStore.read(directory) as view:
            rows = view.rows(stage_of("questionnaire"))
        assert {(row["conditioning"], row["role"]) for row in rows.values()} == {
            *(("locked", role) for role in ROLES),
            ("none", ""),
        }
        pirate = next(role for role in load_inventory("core-v1") if role.id == "pirate")
        context = [{"role": "system", "content": pirate.instructions[0]}]
        expected = self.items.keyed(administer(model, self.items, [context]))[0]
        row = rows[f"{self.items.hash}/locked/pirate"]
        assert [one["keyed"] for one in row["answers"]] == pytest.approx(expected.tolist())

    def test_traits_have_intervals_over_items_and_gains_over_the_bare_model(self, played, model):
        directory = played(episodes=1)
        measure_run(directory, ["questionnaire"], model=model, quiet=True)
        rows = table(directory, "questionnaire")
        assert len(rows) == 5 * (len(ROLES) + 1)
        with RunStore.read(directory) as view:
            stored = view.rows(stage_of("questionnaire"))
        for trait in self.items.traits:
            own, bare = (
                np.mean(
                    [one["keyed"] for one in stored[f"{self.items.hash}/{name}"]["answers"] if one["trait"] == trait]
                )
                for name in ("locked/pirate", "none/")
            )
            row = rows["roles", "pirate", trait]
            assert (row["estimate"], row["gain"], row["n"]) == (pytest.approx(own), pytest.approx(own - bare), 4)
            assert rows["bare", "(all)", trait]["estimate"] == pytest.approx(bare)

    def test_a_steered_role_is_steered(self, write_lock, write_study, tmp_path):
        self.items = load_questionnaire().short(2)
        tiny = tiny_model()
        rng = np.random.default_rng(0)
        manifest = Manifest("pirate", "role", tiny.name, tiny.revision, site=1, n_sites=tiny.n_sites, n=9)
        direction = Direction({1: rng.standard_normal(tiny.hidden).astype(np.float32)}, manifest)
        direction.save(tmp_path / "pirate.safetensors")
        steered = {
            "verdict": "PASS", "conditioner": "steering", "strength": 2.0, "site": 1, "direction": "pirate.safetensors",
            "direction_sha256": file_hash(tmp_path / "pirate.safetensors"),
        }  # fmt: skip
        write_lock(tiny.name, tiny.revision, pirate=steered)
        study = write_study("seats: {trustor: pirate}", episodes=1, world="{name: trust-game, rounds: 1}")
        with Simulation.open(read_study(study), tmp_path / "run", model=tiny, quiet=True) as run:
            run.run()
        measure_run(tmp_path / "run", ["questionnaire"], model=tiny, quiet=True)
        with RunStore.read(tmp_path / "run") as view:
            rows = view.rows(stage_of("questionnaire"))
        row = rows[f"{self.items.hash}/locked/pirate"]["answers"]
        bare = rows[f"{self.items.hash}/none/"]["answers"]
        assert [one["keyed"] for one in row] != pytest.approx([one["keyed"] for one in bare], abs=1e-4)
        item, digits = self.items.items[0], self.items.digits
        chats = [[{"role": "system", "content": ""}, self.items.ask(item)]] * len(digits)
        steering = Steering(((direction.steer(2.0, 1),),) * len(digits))
        p = np.exp([float(score[0]) for score in tiny.logprobs(chats, list(digits), steering)])
        assert self.items.keyed(np.array([p @ np.arange(1, len(digits) + 1) / p.sum()] * len(row)))[0] == pytest.approx(
            row[0]["keyed"], abs=1e-3
        )

    def test_another_model_or_lock_is_refused(self, played, model, write_lock):
        directory = played(episodes=1)
        with pytest.raises(RunMismatchError, match="was played by scripted:give"):
            measure_run(directory, ["questionnaire"], model=ScriptedModel("echo"), quiet=True)
        write_lock(model.name, model.revision, chef={"verdict": "FLAG", "conditioner": None, "reason": "loops"})
        with pytest.raises(RunMismatchError, match="put on otherwise"):
            measure_run(directory, ["questionnaire"], model=model, quiet=True)


class TestDrift:
    def test_what_the_watch_stored_is_summarised(self, talk):
        with RunStore.read(talk) as view:
            config = view.config
        base = {"step": 0, "agent": "user", "score": None, "watched": "projection", "limit": 1.0, "alarms": 0}
        rows = {
            f"{arm}/{number}/0/user": base
            | {"arm": arm, "number": number, "role": "pirate", "projection": 3.0 if arm == "roles" else 1.0}
            | {"control": 0.1, "drifted": arm == "bare", "control_alarms": 0, "turn": 1, "held": None}
            for arm in ("roles", "bare")
            for number in range(6)
        }
        with RunStore.open(talk, "simulation", config, volatile=()) as store:
            store.put_many("drift", rows)
        measure_run(talk, ["drift"], quiet=True)
        found = table(talk, "drift")
        assert (found["roles", "pirate", "projection"]["estimate"], found["roles", "pirate", "projection"]["gain"]) == (
            3,
            2,
        )
        assert (found["roles", "pirate", "drifted"]["estimate"], found["bare", "pirate", "drifted"]["estimate"]) == (
            0,
            1,
        )
        assert not [key for key in found if key[2] == "score"]

    def test_a_run_without_a_watch_has_nothing(self, talk):
        measure_run(talk, ["drift"], quiet=True)
        assert measured(talk, "drift") == []


class TestWhoActed:
    def turn(self, **changes) -> Turn:
        return Turn(0, "ann", "", "x", **changes)

    def orders(self, *applied: dict) -> dict:
        return {"interventions": {"applied": list(applied)}}

    def test_a_swapped_role_counts_as_the_new_one(self):
        assert _role_of(self.turn(), "poet") == "poet"
        swapped = self.orders({"what": "tell", "text": "x"}, {"what": "role", "role": "chef"})
        assert _role_of(self.turn(notes=swapped), "poet") == "chef"

    def test_what_was_done_on_orders_or_at_random_is_not_the_agents_own(self):
        assert _own(self.turn(notes=self.orders({"what": "tell", "text": "x"})))
        assert not _own(self.turn(fallback=True))
        assert not _own(self.turn(notes=self.orders({"what": "do", "action": "x"})))
        assert not _own(self.turn(notes=self.orders({"what": "silence"})))
        assert not _own(self.turn(notes={"held": "retire"}))
        assert _own(self.turn(notes={"held": "re-prompt"}))

    def test_interventions_as_a_run_records_them(self, played):
        lines = "interventions: [{what: do, who: trustor, action: send 5, when: {step: 0}}]"
        directory = played(lines, episodes=2)
        measure_run(directory, ["actions"], quiet=True)
        with RunStore.read(directory) as view:
            found = view.rows(stage_of("actions"))["roles/0"]["counts"]
        assert "send 5" not in {action for done in found.values() for action in done}
        assert sum(sum(done.values()) for done in found.values()) == 3


class TestRefused:
    def test_an_unknown_measure_has_a_hint(self, trust):
        with pytest.raises(UserError, match="Did you mean 'diversity'"):
            measure_run(trust, ["actions", "divercity"], quiet=True)

    def test_a_run_that_is_no_simulation(self, tmp_path):
        with RunStore.open(tmp_path / "other", "screen", {"seed": 1}):
            pass
        with pytest.raises(UserError, match="run of kind 'screen'"):
            measure_run(tmp_path / "other", ["actions"])
        with pytest.raises(UserError, match="not a run directory"):
            measure_run(tmp_path / "nowhere", ["actions"])

    def test_a_run_that_is_not_finished(self, write_lock, write_study, tmp_path):
        calls = []

        def stopping(one, seed):
            calls.append(one)
            if len(calls) > 40:
                raise KeyboardInterrupt
            return "send 0"

        model = ScriptedModel(stopping)
        write_lock(model.name, model.revision)
        with (
            Simulation.open(read_study(write_study("together: 1")), tmp_path / "run", model=model, quiet=True) as run,
            pytest.raises(KeyboardInterrupt),
        ):
            run.run()
        with pytest.raises(UserError, match=r"of 6 episodes are finished; go on with `rolecraft simulate .*--resume`"):
            measure_run(tmp_path / "run", ["actions"])

    def test_a_role_that_has_changed_since(self, trust, monkeypatch):
        roles = [
            r.model_copy(update={"description": "Changed."}) if r.id == "chef" else r for r in load_inventory("core-v1")
        ]
        monkeypatch.setattr(_measure, "load_inventory", lambda name: roles)
        with RunStore.read(trust) as view, pytest.raises(UserError, match="role 'chef' is not there any more"):
            _ = _measure.Measuring(view).inventory

    def test_an_llm_judge_needs_a_model(self, trust):
        with pytest.raises(UserError, match="give --judge MODEL"):
            measure_run(trust, ["llm-judge"])

    def test_every_measure_has_a_collector_and_no_table_holds_nan(self, trust):
        assert set(_measure._COLLECTORS) == set(MEASURES)
        measure_run(trust, ["actions", "diversity"], quiet=True)
        with RunStore.read(trust) as view:
            values = [value for part in read_measures(view) for row in part["rows"] for value in row.values()]
        assert not any(isinstance(value, float) and math.isnan(value) for value in values)

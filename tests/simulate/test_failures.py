"""A model that fails, stalls or refuses: recorded, asked again within limits, the episode marked, nothing lost."""

from __future__ import annotations

import json
import time

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import ModelError, ServerError
from rolecraft.models import Completion, ServedModel
from rolecraft.simulate import Simulation, read_episode, read_episodes, read_failures, read_study
from rolecraft.testing import ScriptedModel
from tests.models.fake_server import FakeServer, completion, error


def served(server: FakeServer, **options) -> ServedModel:
    return ServedModel("m", server.url, **{"backoff": 0.01, "retries": 1, "timeout": 5.0, **options})


def speak(body: dict, count: int = 0):
    """Reply by the prompt and the seed alone."""
    return completion(f"word {body['seed'] % 1000} after {len(body['messages'][-1]['content'])}")


@pytest.fixture
def study(write_lock, write_study, chat_world):
    """Write the study of a served model: 6 episodes of 6 turns in one arm."""

    def write(server: FakeServer, lines: str = ""):
        write_lock("openai:m", served(server).revision)
        return write_study(lines, world=chat_world, arms="{roles: locked}", episodes=6)

    return write


def is_hit(body: dict) -> bool:
    return "poet" in json.dumps(body["messages"][0]).lower() and body["messages"][-1]["content"].count("\n") > 1


def test_a_server_that_fails_in_mid_episode_ends_that_episode_alone_and_resuming_plays_it_on(study, play, tmp_path):
    with FakeServer(speak) as server:
        whole = play(study(server), tmp_path / "whole", served(server))
    with FakeServer(lambda body, count: error(500, "melted") if is_hit(body) else speak(body)) as server:
        run = play(study(server), tmp_path / "run", served(server))
        hit = {key for key, row in read_episodes(whole).items() if "poet" in row["roles"].values()}
        assert 0 < len(hit) < 6
        assert set(read_episodes(run)) == set(read_episodes(whole)) - hit
        failures = read_failures(run)
        assert {f"{row['arm']}/{row['number']}" for row in failures} == hit
        assert {row["role"] for row in failures} == {"poet"}
        assert all("melted" in row["reason"] for row in failures)
        assert all(run.count("steps") > 0 and row["step"] > 0 for row in failures)
        before = run.count("steps")
        server.answer = speak
        asked = len(server.bodies)
        again = play(study(server), tmp_path / "run", served(server))
        assert len(server.bodies) - asked == whole.count("steps") - before
    episodes, expected = read_episodes(again), read_episodes(whole)
    assert {key: row["failures"] for key, row in episodes.items() if row["failures"]} == {
        key: [
            {name: row[name] for name in ("step", "agent", "reason")}
            for row in failures
            if row["number"] == int(key[-1])
        ]
        for key in hit
    }
    for key, row in expected.items():
        assert row["failures"] == []
        assert read_episode(again, key) == read_episode(whole, key)


def test_one_lost_answer_does_not_take_the_others_of_its_batch_with_it(study, play, tmp_path):
    with FakeServer(lambda body, count: error(500, "melted") if is_hit(body) else speak(body)) as server:
        run = play(study(server, "together: 6"), tmp_path / "run", served(server, concurrency=1))
        steps = {key.rsplit("/", 1)[0] for key in run.rows("steps") if key.endswith("/5")}
    assert steps == {f"roles/{number}" for number in range(6)} - {
        f"{row['arm']}/{row['number']}" for row in read_failures(run)
    }


def test_a_stalled_request_is_tried_again_and_then_recorded(study, play, tmp_path):
    def stall(body: dict, count: int):
        if is_hit(body):
            time.sleep(0.4)
        return speak(body)

    with FakeServer(stall) as server:
        run = play(study(server), tmp_path / "run", served(server, timeout=0.1, retries=1))
    reasons = {row["reason"] for row in read_failures(run)}
    assert reasons
    assert all("did not answer in 2 tries" in reason and "no answer within 0.1 s" in reason for reason in reasons)


def test_halt_stops_at_the_first_lost_answer_and_keeps_what_was_played(study, play, tmp_path):
    with FakeServer(lambda body, count: error(500, "melted") if is_hit(body) else speak(body)) as server:
        path = study(server, "on_failure: halt")
        with pytest.raises(ServerError, match=r"roles/\d, step \d, (ann|bob): .*melted.*--resume.*on_failure: mark"):
            play(path, tmp_path / "run", served(server))
        with RunStore.read(tmp_path / "run") as run:
            assert run.count("steps") > 0
            assert len(read_failures(run)) >= 1
        server.answer = speak
        path.write_text(path.read_text().replace("halt", "mark"))
        assert len(read_episodes(play(path, tmp_path / "run", served(server)))) == 6


def test_a_server_that_is_gone_stops_the_run_after_so_many_episodes(study, play, tmp_path):
    with FakeServer(lambda body, count: error(500, "gone")) as server:
        path = study(server, "most_failed: 2\ntogether: 1")
        with pytest.raises(ServerError, match=r"2 episodes in a row failed, the last with: .*gone.*--resume"):
            play(path, tmp_path / "run", served(server))
    assert len(read_failures(RunStore.read(tmp_path / "run"))) == 2


def test_what_concerns_the_whole_run_is_no_episodes_failure(study, play, tmp_path):
    with FakeServer(lambda body, count: error(401, "no key")) as server:
        path = study(server)
        with pytest.raises(ModelError, match="no key"):
            play(path, tmp_path / "run", served(server))
    assert read_failures(RunStore.read(tmp_path / "run")) == []


class TestRefusals:
    """A scripted model that gives no reply to some seeds."""

    @staticmethod
    def moody(refusing) -> ScriptedModel:
        def script(one, seed: int):
            if refusing(one, seed):
                return Completion("", "error", note="the model refused: no")
            return f"word {seed % 1000}"

        return ScriptedModel(script, name="scripted:moody")

    @pytest.fixture
    def path(self, write_lock, write_study, chat_world):
        write_lock("scripted:moody", "scripted-1")
        return lambda lines="": write_study(lines, world=chat_world, arms="{roles: locked}", episodes=3)

    def test_it_is_asked_again_with_another_seed(self, path, play, tmp_path):
        run = play(path("retries: 6"), tmp_path / "run", self.moody(lambda one, seed: seed % 2 == 0))
        turns = [turn for key in read_episodes(run) for turn in read_episode(run, key).turns]
        tried = [len(turn.notes.get("failures", ())) for turn in turns]
        assert all(turn.action for turn in turns)
        assert 0 < sum(n > 0 for n in tried) < len(turns)
        assert [len(row["failures"]) for row in read_episodes(run).values()] == [
            sum(tried[6 * n : 6 * n + 6]) for n in range(3)
        ]

    def test_in_the_end_nothing_is_said_and_the_episode_is_marked(self, path, play, tmp_path):
        def pirate(one, seed: int) -> bool:
            return "pirate" in one[0]["content"].lower()

        run = play(path("retries: 1"), tmp_path / "run", self.moody(pirate))
        for key, row in read_episodes(run).items():
            silent = [turn for turn in read_episode(run, key).turns if row["roles"][turn.agent] == "pirate"]
            assert all(turn.action == "" and len(turn.notes["failures"]) == 2 for turn in silent)
            assert len(row["failures"]) == 2 * len(silent)
            assert row["outcome"] == {"silent": len(silent)}
            assert {found["reason"] for found in row["failures"]} <= {"the model refused: no"}

    def test_halt_stops_at_a_refusal_without_storing_the_step(self, path, play, tmp_path):
        calls = []

        def fourth(one, seed: int) -> bool:
            calls.append(seed)
            return len(calls) >= 4

        with pytest.raises(ServerError, match="the model refused: no"):
            play(path("on_failure: halt\ntogether: 1"), tmp_path / "run", self.moody(fourth))
        with RunStore.read(tmp_path / "run") as run:
            assert list(run.rows("steps")) == ["roles/0/0", "roles/0/1", "roles/0/2"]


def test_a_run_says_which_episodes_failed_and_were_not_finished(study, tmp_path):
    with FakeServer(lambda body, count: error(500, "melted") if is_hit(body) else speak(body)) as server:
        path = study(server)
        with Simulation.open(read_study(path), tmp_path / "run", model=served(server), quiet=True) as simulation:
            assert simulation.failed == []
            simulation.run()
            failures = read_failures(simulation.store)
            assert simulation.failed == sorted({f"{row['arm']}/{row['number']}" for row in failures})
            assert simulation.failed

"""Budgets, forecasts, workers, and being killed: what is played is kept, and it comes out the same."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rolecraft._run import Budget, RunStore
from rolecraft.errors import BudgetExceededError, UserError
from rolecraft.models import LocalModel, ServedModel
from rolecraft.simulate import (
    Forecast,
    Simulation,
    check_study,
    read_cost,
    read_drift,
    read_episode,
    read_episodes,
    read_study,
)
from rolecraft.testing import ScriptedModel, tiny_model
from tests.models.fake_server import FakeServer, completion
from tests.simulate.planted_drift import locked


def speak(one, seed: int) -> str:
    return f"word {seed % 100} said"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(speak, name="scripted:speak")


@pytest.fixture
def path(write_lock, write_study, chat_world, model):
    write_lock(model.name, model.revision)

    def write(lines: str = "", **fields) -> Path:
        fields = {"world": chat_world, "arms": "{roles: locked}", "episodes": 3, "together": 1} | fields
        return write_study(lines, **fields)

    return write


class TestBudget:
    def test_tokens_stop_the_run_and_all_that_was_played_is_kept(self, path, play, model, tmp_path):
        whole = play(path(), tmp_path / "whole", model)
        with pytest.raises(BudgetExceededError, match=r"200 tokens is used up.*--resume") as caught:
            play(path("budget: 200tok"), tmp_path / "run", model)
        assert caught.value.exit_code == 3
        with RunStore.read(tmp_path / "run") as run:
            cost = read_cost(run)
            used = cost["prompt_tokens"] + cost["new_tokens"]
            last = list(run.rows("steps").values())[-1][0]["notes"]
            assert used >= 200 > used - last["tokens"] - last["prompt_tokens"]
        again = play(path("budget: 1mtok"), tmp_path / "run", model)
        assert read_episodes(again) == read_episodes(whole)
        assert read_cost(again) == read_cost(whole)

    def test_the_flag_counts_instead_of_the_study(self, path, play, model, tmp_path):
        with pytest.raises(BudgetExceededError, match="10 tokens"):
            play(path("budget: 1mtok"), tmp_path / "run", model, budget=Budget(tokens=10))

    def test_time_stops_it_too(self, path, play, model, tmp_path):
        with pytest.raises(BudgetExceededError, match="min is used up"):
            play(path("budget: 0.001s"), tmp_path / "run", model)

    def test_money_of_a_served_model_is_counted_by_its_prices(self, write_lock, path, play, tmp_path):
        with FakeServer(lambda body, count: completion("word")) as server:
            spec = f"openai:m@{server.url}"
            write_lock("openai:m", ServedModel("m", server.url).revision)
            study = path("budget: 0.0009usd\nserving: {prices: [1.0, 10.0]}", model=spec)
            with pytest.raises(BudgetExceededError, match="USD"):
                play(study, tmp_path / "run", None)
            assert len(server.bodies) == 5, "a reply costs 100 * 1 + 10 * 10 millionths"
            with RunStore.read(tmp_path / "run") as run:
                assert read_cost(run)["usd"] <= 0.001

    def test_money_without_prices_and_units_without_sense_are_refused(self, path, model):
        with pytest.raises(UserError, match=r"serving\.prices"):
            check_study(read_study(path("budget: 1usd")), model)
        with pytest.raises(UserError, match="expected a number above 0"):
            read_study(path("budget: 3bananas"))


class TestForecast:
    def test_it_counts_what_is_then_played(self, path, play, model, tmp_path):
        study = read_study(path("max_tokens: 5\nserving: {prices: [2.0, 4.0]}", arms="{roles: locked, bare: none}"))
        cast, _ = check_study(study, model)
        found = Forecast.of(study, cast, model)
        assert (found.episodes, found.decisions, found.new_tokens) == (6, 36, 36 * 5)
        assert found.usd == pytest.approx((2 * found.prompt_tokens + 4 * found.new_tokens) / 1e6)
        assert found.seconds > 0
        run = play(tmp_path / "study.yaml", tmp_path / "run", model)
        cost = read_cost(run)
        assert cost["decisions"] == found.decisions
        assert cost["new_tokens"] <= found.new_tokens

    def test_choices_write_nothing_and_read_every_option(self, path, model):
        study = read_study(path(world="{name: trust-game, rounds: 2}"))
        found = Forecast.of(study, check_study(study, model)[0])
        assert (found.decisions, found.new_tokens, found.seconds) == (12, 0, None)
        assert found.prompt_tokens > 12 * 100


def test_a_shard_played_elsewhere_brings_back_what_is_stored_here(path, play, model, tmp_path, monkeypatch):
    lines = "interventions: [{what: tell, text: look out, who: bob, when: {step: 3}}]"
    whole = play(path(lines), tmp_path / "whole", model)
    monkeypatch.setattr("rolecraft.simulate._shards.shared_model", lambda spec: model)
    monkeypatch.setattr("rolecraft.simulate._runner.study_model", lambda study, **options: model)

    def elsewhere(task, shards, workers):
        assert workers == "2"
        for place, shard in reversed(list(enumerate(shards))):
            there, sent = pickle.loads(pickle.dumps((task, shard)))
            yield place, pickle.loads(pickle.dumps(there(sent)))

    monkeypatch.setattr("rolecraft.simulate._runner.map_shards", elsewhere)
    with Simulation.open(read_study(tmp_path / "study.yaml"), tmp_path / "run", workers="2", quiet=True) as simulation:
        simulation.run()
        assert simulation.meter.tokens == sum(read_cost(whole)[name] for name in ("prompt_tokens", "new_tokens"))
    run = RunStore.read(tmp_path / "run")
    for stage in ("episodes", "steps"):
        assert run.rows(stage) == whole.rows(stage)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(write_lock, write_study, tmp_path):
    folder = tmp_path / "tiny"
    tiny = tiny_model()
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    loaded = LocalModel.load(str(folder), dtype="float32")
    write_lock(loaded.name, loaded.revision)
    path = write_study("together: 2\ninterventions: [{what: silence, who: trustee, when: {step: 3}}]",
                       model=loaded.name, episodes=2)  # fmt: skip
    study = read_study(path)
    for name, workers in (("one", "1"), ("two", "2")):
        with Simulation.open(study, tmp_path / name, workers=workers, quiet=True) as simulation:
            simulation.run()
    one, two = RunStore.read(tmp_path / "one"), RunStore.read(tmp_path / "two")
    episodes = read_episodes(two)
    assert episodes == {key: episodes[key] for key in read_episodes(one)} == read_episodes(one)
    for key in episodes:
        assert read_episode(one, key) == read_episode(two, key)


def test_a_model_given_as_an_object_stays_in_this_process(path, play, model, tmp_path):
    with pytest.raises(UserError, match="stays in this process"):
        play(path(), tmp_path / "run", model, workers="2")


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.simulate import chatter
from tests.simulate.planted_drift import drifter
chatter.install()
from rolecraft.simulate import Simulation, read_study
model = drifter(6, "prompt")
original, calls = model.generate, 0
def generate(*args, **options):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **options)
model.generate = generate
with Simulation.open(read_study(sys.argv[1]), Path(sys.argv[2]), model=model, quiet=True) as simulation:
    simulation.run()
"""


def test_kill_nine_amid_interventions_and_drift(write_lock, write_study, play, chat_world, tmp_path):
    from tests.simulate.planted_drift import drifter

    tiny = tiny_model()
    write_lock(tiny.name, tiny.revision, pirate=locked(tiny, tmp_path))
    study = write_study(
        "interventions: [{what: tell, text: look out, who: bob, when: {step: 9}}]",
        world="{name: chatter, rounds: 9}", episodes=1, arms="{roles: locked}", seats="{ann: pirate, bob: poet}",
        drift="{warmup: 3, level: 0.95, action: re-prompt}",
    )  # fmt: skip
    command = [sys.executable, "-c", KILLED, str(study), str(tmp_path / "run"), "12"]
    done = subprocess.run(command, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    with RunStore.read(tmp_path / "run") as view:
        assert view.count("steps") == 11
        assert view.count("episodes") == 0
    run = play(study, tmp_path / "run", drifter(6, "prompt"))
    whole = play(study, tmp_path / "whole", drifter(6, "prompt"))
    assert read_episodes(run) == read_episodes(whole)
    assert read_drift(run) == read_drift(whole)
    assert read_episode(run, "roles/0") == read_episode(whole, "roles/0")
    assert read_episodes(run)["roles/0"]["interventions"] == 1

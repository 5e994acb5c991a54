"""Simulations: what the lock lets in, equal casts in all arms, resuming at any step, batching, the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rolecraft._run import RunStore
from rolecraft.agents import RolePolicy
from rolecraft.conditioning import Direction, Steering, conditioned
from rolecraft.conditioning._direction import Manifest
from rolecraft.errors import LockError, RunMismatchError, UserError
from rolecraft.models import LocalModel, chat
from rolecraft.roles import load_inventory
from rolecraft.screening import Admission
from rolecraft.simulate import (
    Simulation,
    check_study,
    export_episodes,
    read_episode,
    read_episodes,
    read_study,
    summarise,
)
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import TrustGame, View, replay


def give(one, seed: int) -> str:
    system = one[0]["content"].lower()
    return "send 10" if "pirate" in system else "send 0"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(give)


def play(study: Path, directory: Path, model) -> RunStore:  # type: ignore[no-untyped-def]
    with Simulation.open(read_study(study), directory, model=model, quiet=True) as simulation:
        simulation.run()
    return RunStore.read(directory)


def test_roles_act_by_the_prompt_that_was_screened_and_the_bare_arm_without(write_lock, write_study, model, tmp_path):
    write_lock(model.name, model.revision)
    run = play(write_study("seats: {trustor: pirate}"), tmp_path / "run", model)
    for number in range(3):
        sent = [turn.action for turn in read_episode(run, f"roles/{number}").turns if turn.agent == "trustor"]
        assert sent == ["send 10", "send 10"]
        bare = [turn.action for turn in read_episode(run, f"bare/{number}").turns if turn.agent == "trustor"]
        assert bare == ["send 0", "send 0"]


def test_every_arm_has_the_same_casts_and_seeds(write_lock, write_study, model, tmp_path):
    write_lock(model.name, model.revision)
    run = play(write_study(episodes=8), tmp_path / "run", model)
    episodes = read_episodes(run)
    assert list(episodes) == [f"{arm}/{number}" for arm in ("roles", "bare") for number in range(8)]
    for number in range(8):
        one, other = episodes[f"roles/{number}"], episodes[f"bare/{number}"]
        assert (one["roles"], one["seed"]) == (other["roles"], other["seed"])
        assert len(set(one["roles"].values())) == 2
        assert "judge" not in one["roles"].values()
    assert len({tuple(row["roles"].values()) for row in episodes.values()}) > 2
    assert len({row["seed"] for row in episodes.values()}) == 8


def test_a_finished_episode_replays(write_lock, write_study, model, tmp_path):
    write_lock(model.name, model.revision)
    run = play(write_study(), tmp_path / "run", model)
    for key in read_episodes(run):
        replay(TrustGame(rounds=2), read_episode(run, key))


def test_an_interrupted_run_goes_on_where_it_was_and_comes_out_the_same(write_lock, write_study, tmp_path):
    calls = []

    def interrupted(one, seed: int) -> str:
        calls.append(one)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return give(one, seed)

    stop = 0
    model = ScriptedModel(interrupted, name="scripted:give")
    write_lock(model.name, model.revision)
    study = write_study("together: 2")
    whole = play(study, tmp_path / "whole", model)
    full, calls[:] = len(calls), []
    stop = full // 2
    with pytest.raises(KeyboardInterrupt):
        play(study, tmp_path / "run", model)
    done = RunStore.read(tmp_path / "run").count("steps")
    assert done > 0
    calls[:] = []
    stop = 0
    run = play(study, tmp_path / "run", model)
    assert len(calls) < full
    assert read_episodes(run) == read_episodes(whole)
    assert [read_episode(run, key) for key in read_episodes(run)] == [
        read_episode(whole, key) for key in read_episodes(whole)
    ]


KILLED = """
import os, signal, sys
from pathlib import Path
from rolecraft.simulate import Simulation, read_study
from rolecraft.testing import ScriptedModel
calls = 0
def give(one, seed):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return "send 10" if "pirate" in one[0]["content"].lower() else "send 0"
model = ScriptedModel(give, name="scripted:give")
with Simulation.open(read_study(sys.argv[1]), Path(sys.argv[2]), model=model, quiet=True) as simulation:
    simulation.run()
"""


def test_kill_nine_loses_at_most_the_step_in_flight(write_lock, write_study, tmp_path):
    write_lock("scripted:give", "scripted-1")
    study = write_study()

    def run(directory: str, kill_at: int) -> int:
        command = [sys.executable, "-c", KILLED, str(study), str(tmp_path / directory), str(kill_at)]
        return subprocess.run(command, timeout=120).returncode

    assert run("run", 150) == -signal.SIGKILL
    with RunStore.read(tmp_path / "run") as view:
        assert 0 < view.count("steps") < 24
    assert run("run", -1) == 0
    assert run("whole", -1) == 0
    assert read_episodes(RunStore.read(tmp_path / "run")) == read_episodes(RunStore.read(tmp_path / "whole"))


def test_what_is_played_beside_it_does_not_change_an_episode(write_lock, write_study, model, tmp_path):
    write_lock(model.name, model.revision)
    one = play(write_study("together: 1", episodes=5), tmp_path / "one", model)
    many = play(write_study("together: 5", episodes=5), tmp_path / "many", model)
    assert read_episodes(one) == read_episodes(many)


def test_all_agents_whose_turn_it_is_are_scored_in_one_call(write_lock, write_study, model, tmp_path, monkeypatch):
    write_lock(model.name, model.revision)
    sizes = []
    original = ScriptedModel.logprobs

    def counted(self, chats, replies):
        sizes.append(len({id(one) for one in chats}))
        return original(self, chats, replies)

    monkeypatch.setattr(ScriptedModel, "logprobs", counted)
    play(write_study("arms: {roles: locked}", episodes=5), tmp_path / "run", model)
    assert sizes == [5, 5, 5, 5]


def test_a_lock_with_another_prompt_does_not_resume_the_run(write_lock, write_study, model, tmp_path):
    path = write_lock(model.name, model.revision)
    study = write_study()
    play(study, tmp_path / "run", model)
    path.write_text(path.read_text().replace('"reference": "instruction"', '"reference": "line"'))
    with pytest.raises(RunMismatchError, match="cast"):
        play(study, tmp_path / "run", model)


class TestLock:
    def test_a_flagged_role_is_refused_and_marked_when_let_in(self, write_lock, write_study, model, tmp_path):
        write_lock(model.name, model.revision)
        with pytest.raises(LockError, match="'judge' was flagged: loops"):
            check_study(read_study(write_study("roles: [judge, poet]")), model)
        study = write_study("roles: [judge, poet]\nallow_unscreened: true")
        found = summarise(read_episodes(play(study, tmp_path / "run", model)))
        assert found["unscreened"] == ["judge"]

    def test_another_model_or_revision_is_refused(self, write_lock, write_study, model):
        write_lock("local:smollm2", "abc")
        with pytest.raises(LockError, match="screened for model 'local:smollm2', not for 'scripted:give'"):
            check_study(read_study(write_study()), model)
        write_lock(model.name, "older")
        with pytest.raises(LockError, match="revision older"):
            check_study(read_study(write_study()), model)

    def test_an_edited_role_is_refused(self, write_lock, write_study, model):
        write_lock(model.name, model.revision, poet={"role_hash": "0" * 16})
        with pytest.raises(LockError, match="'poet' has changed since"):
            check_study(read_study(write_study()), model)


class TestStudyFile:
    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            ("episode: 3", "no field 'episode'.*Did you mean 'episodes'"),
            ("episodes: 0", r"episodes: .*greater than or equal to 1"),
            ("arms: {x: steered}", r"arms\.x: .*'locked', 'prompt' or 'none'"),
            ("arms: {}", "arms: give at least one"),
            ("on_illegal: skip", "on_illegal"),
        ],
    )
    def test_a_bad_field_is_named_with_the_file(self, write_study, tmp_path, lines, message):
        path = write_study()
        base = [line for line in path.read_text().splitlines() if not line.startswith(lines.split(":")[0] + ":")]
        path.write_text("\n".join([*base, lines]))
        with pytest.raises(UserError, match=message) as caught:
            read_study(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"world": "{name: trustgame}"}, "no world 'trustgame'.*Did you mean 'trust-game'"),
            ({"world": "{name: trust-game, round: 2}"}, "no option 'round'.*Did you mean 'rounds'"),
            ({"seats": "{trustee: captain}"}, "no role 'captain'"),
            ({"seats": "{truster: pirate}"}, "no agent 'truster'.*Did you mean 'trustor'"),
            ({"roles": "[pirate]"}, "2 seats, of which 2 are to be filled from 1 roles"),
            ({"roles": "[pirat, poet]"}, "no role 'pirat'.*Did you mean 'pirate'"),
        ],
    )
    def test_what_it_names_must_exist(self, write_lock, write_study, model, fields, message):
        write_lock(model.name, model.revision)
        with pytest.raises(UserError, match=message):
            check_study(read_study(write_study(**fields)), model)


class TestRolePolicy:
    def admission(self, name: str, **changes) -> Admission:
        role = next(role for role in load_inventory("core-v1") if role.id == name)
        return Admission(role, True, changes.pop("conditioner", "prompt"), "instruction", **changes)

    def test_each_row_has_its_own_role_and_direction(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        model = tiny_model()
        rng = np.random.default_rng(0)
        manifest = Manifest("pirate", "role", model.name, model.revision, site=1, n_sites=model.n_sites, n=9)
        direction = Direction({1: rng.standard_normal(model.hidden).astype(np.float32)}, manifest)
        direction.save(tmp_path / "pirate.safetensors")
        cast = {
            "pirate": self.admission(
                "pirate",
                conditioner="steering",
                strength=3.0,
                site=1,
                direction=tmp_path / "pirate.safetensors",
            ),
            "poet": self.admission("poet"),
        }
        seen = {}

        def spy(self, chats, replies, steering=None):
            seen.update(chats=chats, steering=steering)
            return original(self, chats, replies, steering)

        original = LocalModel.logprobs
        monkeypatch.setattr(LocalModel, "logprobs", spy)
        views = [View(str(i), "Choose.", ("a", "b"), i, role=role) for i, role in enumerate(["pirate", "poet", None])]
        RolePolicy(model, cast).act(views)
        assert isinstance(seen["steering"], Steering)
        assert [len(row) for row in seen["steering"].rows] == [1, 1, 0, 0, 0, 0]
        assert seen["steering"].rows[0][0].strength == 3.0
        assert list(seen["chats"][0]) == chat("Choose.")
        assert list(seen["chats"][2]) == conditioned(cast["poet"].role, "Choose.", "instruction")
        assert list(seen["chats"][4]) == chat("Choose.")
        RolePolicy(model, cast, bare=True).act(views)
        assert seen["steering"] is None
        assert all(list(one) == chat("Choose.") for one in seen["chats"])

    def test_free_text_is_drawn_by_the_seed_of_the_view_and_mixes_with_choices(self) -> None:
        model = tiny_model()
        policy = RolePolicy(model, {"poet": self.admission("poet")})
        views = [
            View("a", "Speak.", None, 1, role="poet"),
            View("b", "Choose.", ("x", "y"), 2, role="poet"),
            View("c", "Speak.", None, 3, role="poet"),
        ]
        acts = policy.act(views)
        assert acts[1].action in ("x", "y")
        assert acts[0].notes["tokens"] > 0
        assert acts[0] == policy.act(views[:1])[0]
        assert acts[0].action != acts[2].action

    def test_a_role_outside_the_cast_is_named(self) -> None:
        with pytest.raises(UserError, match=r"not in the cast.*Did you mean 'poet'"):
            RolePolicy(ScriptedModel("echo"), {"poet": self.admission("poet")}).act(
                [View("a", "", ("x",), 0, role="poe")]
            )


def test_summary_pairs_the_arms_by_episode() -> None:
    def row(arm: str, number: int, reward: float) -> dict:
        return {
            "arm": arm, "number": number, "rewards": {"a": reward}, "steps": 2, "fallbacks": 0, "ended": "over",
            "outcome": {"winner": "a"}, "unscreened": [],
        }  # fmt: skip

    rows = [row("roles", n, n + 2.0) for n in range(5)] + [row("bare", n, float(n)) for n in range(5)]
    found = summarise({f"{r['arm']}/{r['number']}": r for r in rows})
    assert found["rewards"][0]["gain"] == found["rewards"][0]["gain_low"] == found["rewards"][0]["gain_high"] == 2.0
    assert "gain" not in found["rewards"][1]
    assert found["arms"][0]["outcomes"] == {"winner a": 5}


class TestExport:
    @pytest.fixture
    def run(self, write_lock, write_study, model, tmp_path):
        write_lock(model.name, model.revision)
        return play(write_study("seats: {trustor: pirate}"), tmp_path / "run", model)

    def test_a_row_per_turn(self, run, tmp_path):
        assert export_episodes(run, tmp_path / "turns.jsonl") == 24
        rows = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
        first = rows[0]
        assert (first["arm"], first["number"], first["agent"], first["role"]) == ("roles", 0, "trustor", "pirate")
        assert first["action"] == "send 10"
        assert first["legal"][0] == "send 0"
        export_episodes(run, tmp_path / "turns.parquet")
        assert pd.read_parquet(tmp_path / "turns.parquet")["action"].tolist() == [row["action"] for row in rows]

    def test_inspect_reads_the_dialogue_and_the_rewards(self, run, tmp_path):
        log_module = pytest.importorskip("inspect_ai.log")
        assert export_episodes(run, tmp_path / "log.eval") == 6
        log = log_module.read_eval_log(str(tmp_path / "log.eval"))
        sample = next(sample for sample in log.samples if sample.id == "roles/0")
        episode = read_episode(run, "roles/0")
        assert [message.text for message in sample.messages if message.role == "assistant"] == [
            turn.action for turn in episode.turns
        ]
        assert sample.scores["trustor"].value == episode.rewards["trustor"]
        assert sample.metadata["roles"]["trustor"] == "pirate"

    def test_nothing_to_export_and_unknown_suffix(self, run, tmp_path):
        with pytest.raises(UserError, match="expected one of"):
            export_episodes(run, tmp_path / "turns.xlsx")
        with RunStore.open(tmp_path / "empty", "simulation", {}) as empty, pytest.raises(UserError, match="no episode"):
            export_episodes(empty, tmp_path / "turns.jsonl")


class TestCommandLine:
    def test_dry_run_then_run_then_show(self, rolecraft, write_lock, write_study, tmp_path):
        write_lock("scripted:role-player", "scripted-1")
        study = write_study("model: 'scripted:role-player'")
        code, out, _ = rolecraft("simulate", study, "--dry-run")
        assert code == 0
        assert "2 arms of 3 episodes" in out
        assert "judge" not in out
        code, out, _ = rolecraft("simulate", study, "--out", tmp_path / "run")
        assert code == 0
        assert "roles/0" in out
        code, out, _ = rolecraft("show", tmp_path / "run")
        assert code == 0
        assert "trustee" in out
        code, out, _ = rolecraft("show", tmp_path / "run", "--episode", "roles/1")
        assert code == 0
        assert "--- step 0, trustor" in out
        assert "rewards: trustor" in out
        code, _, err = rolecraft("show", tmp_path / "run", "--episode", "role/1")
        assert code == 2
        assert "Did you mean 'roles/1'" in err
        code, _, err = rolecraft("simulate", study, "--out", tmp_path / "run", "--resume")
        assert code == 0

    def test_bad_input_is_exit_code_two(self, rolecraft, write_lock, write_study, tmp_path):
        code, _, err = rolecraft("simulate", tmp_path / "none.yaml")
        assert code == 2
        assert "none.yaml" in err
        code, _, err = rolecraft("simulate", write_study("model: 'scripted:role-player'"))
        assert code == 2
        assert "no such lock file" in err
        code, _, err = rolecraft("simulate", write_study(), "--resume")
        assert code == 2
        assert "--out" in err

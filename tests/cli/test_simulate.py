"""Simulations as a user types them: forecast, caps, failures, and what `show` says of a run."""

from __future__ import annotations

import json

import pytest

from rolecraft.models import ServedModel
from tests.models.fake_server import FakeServer, completion, error
from tests.simulate.conftest import chat_world, write_lock, write_study

__all__ = ["chat_world", "write_lock", "write_study"]


@pytest.fixture
def study(write_lock, write_study, chat_world):
    """Write a study of a served model with an intervention and a budget, if any."""

    def write(server: FakeServer, lines: str = "", **fields):
        write_lock("openai:m", ServedModel("m", server.url).revision)
        fields = {"world": chat_world, "model": f"openai:m@{server.url}", "arms": "{roles: locked}"} | fields
        text = "interventions: [{what: tell, text: look out, who: ann, when: {step: 2}}]\n"
        return write_study(text + "serving: {prices: [1.0, 10.0], retries: 0, backoff: 0.01}\n" + lines, **fields)

    return write


def test_a_run_is_forecast_played_and_shown(study, rolecraft, tmp_path):
    with FakeServer(lambda body, count: completion(f"word {body['seed']}")) as server:
        path = study(server)
        code, out, _ = rolecraft("simulate", path, "--dry-run", "--json")
        forecast = json.loads(out)["forecast"]
        assert (code, forecast["decisions"], forecast["seconds"]) == (0, 18, None)
        assert forecast["usd"] > 0
        assert server.bodies == []
        assert "18 decisions" in rolecraft("simulate", path, "--dry-run")[1]
        code, out, err = rolecraft("simulate", path, "--out", tmp_path / "run")
        assert code == 0, err
        assert "18 decisions, 1,800 prompt tokens, 180 new tokens, 0.0036 USD" in out
    code, out, _ = rolecraft("show", tmp_path / "run", "--json")
    found = json.loads(out)["simulation"]
    assert found["arms"][0]["interventions"] == 3
    assert found["cost"]["usd"] == pytest.approx(0.0036)
    assert (found["failures"], found["drift"]) == ([], [])
    out = rolecraft("show", tmp_path / "run", "--episode", "roles/0")[1]
    assert out.count("intervention 0, tell: look out") == 1
    assert "step 2, ann" in out.split("intervention 0")[0]
    assert "step 3" not in out.split("intervention 0")[0]


def test_a_cap_stops_with_code_three_and_says_how_to_go_on(study, rolecraft, tmp_path):
    with FakeServer(lambda body, count: completion("word")) as server:
        path = study(server)
        code, _, err = rolecraft("simulate", path, "--out", tmp_path / "run", "--budget", "1ktok")
        assert code == 3
        assert "1,000 tokens" in err
        assert "--resume" in err
        before = len(server.bodies)
        code, _, err = rolecraft("simulate", path, "--out", tmp_path / "run", "--resume")
        assert code == 0, err
        assert len(server.bodies) == 18
        assert before < 18


def test_failed_episodes_are_named_and_resumed(study, rolecraft, tmp_path):
    with FakeServer(lambda body, count: error(500, "melted") if count == 8 else completion("word")) as server:
        path = study(server, "together: 1")
        code, out, err = rolecraft("simulate", path, "--out", tmp_path / "run")
        assert code == 2
        assert "1 episodes could not be finished (roles/1)" in err
        assert "melted" in err
        assert "ended by a failure" in out
        assert "melted" in rolecraft("show", tmp_path / "run")[1]
        assert rolecraft("simulate", path, "--out", tmp_path / "run", "--resume")[0] == 0


def test_an_unfinished_episode_is_shown_as_far_as_it_was_played(study, rolecraft, tmp_path):
    run = tmp_path / "run"
    with FakeServer(lambda body, count: error(500, "melted") if count == 8 else completion(f"word {count}")) as server:
        path = study(server, "together: 1")
        assert rolecraft("simulate", path, "--out", run)[0] == 2
        code, out, err = rolecraft("show", run, "--episode", "roles/1")
        assert code == 0, err
        assert "roles/1 in chatter" in out.splitlines()[0]
        assert "UNFINISHED, 1 steps stored so far" in out.splitlines()[0]
        assert out.count("-->") == 1
        assert "--> word 7" in out
        assert "no answer at step 1, bob: " in out
        assert "melted" in out
        assert "unfinished: neither rewards nor outcome yet; go on with rolecraft simulate --resume" in out
        found = json.loads(rolecraft("show", run, "--episode", "roles/1", "--json")[1])
        assert found["finished"] is False
        assert [turn["action"] for turn in found["turns"]] == ["word 7"]
        assert [lost["step"] for lost in found["failures"]] == [1]
        assert f"ann ({found['roles']['ann']}) sees" in out
        code, _, err = rolecraft("show", run, "--episode", "roles/3")
        assert code == 2
        assert "there is no episode 'roles/3'; the study has roles, each with /0 to /2." in err
        assert rolecraft("simulate", path, "--out", run, "--resume")[0] == 0
    out = rolecraft("show", run, "--episode", "roles/1")[1]
    assert out.count("-->") == 6
    assert "--> word 7" in out
    assert "unfinished" not in out.lower()
    finished = json.loads(rolecraft("show", run, "--episode", "roles/1", "--json")[1])
    assert (finished["seed"], finished["roles"]) == (found["seed"], found["roles"])


def test_an_episode_that_has_not_begun_says_so(study, rolecraft, tmp_path):
    with FakeServer(lambda body, count: completion("word")) as server:
        assert (
            rolecraft("simulate", study(server, "together: 1"), "--out", tmp_path / "run", "--budget", "1tok")[0] == 3
        )
    out = rolecraft("show", tmp_path / "run", "--episode", "roles/2")[1]
    assert "UNFINISHED, no steps stored so far" in out
    assert "-->" not in out


def test_workers_must_be_a_number_or_a_cluster(study, rolecraft, tmp_path):
    with FakeServer() as server:
        code, _, err = rolecraft("simulate", study(server), "--out", tmp_path / "run", "--workers", "many")
    assert code == 2
    assert "expected a number from 1" in err

"""Guards in simulations: installed by study or lock, decisions on record, runs that go on exactly."""

from __future__ import annotations

import json

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import LockError, RolecraftError, RunMismatchError, UserError
from rolecraft.guard import read_guards
from rolecraft.screening import RolesLock
from rolecraft.simulate import read_decisions, read_episode, read_episodes, read_study
from rolecraft.testing import ScriptedModel

RULES = "tools: {act: [{effect: forbid, when: {action: send 10}}, {priority: 2}]}\n"
FIELDS = {"seats": "{trustor: pirate}", "arms": "{roles: locked}", "episodes": 2}


def ten(chat, seed):
    return "send 10"


@pytest.fixture
def model(write_lock):
    made = ScriptedModel(ten, name="scripted:ten")
    write_lock(made.name, made.revision)
    return made


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "rules.yaml"


def actions(run, key="roles/0", agent="trustor"):
    return [turn.action for turn in read_episode(run, key).turns if turn.agent == agent]


def untimed(run):
    return [{name: value for name, value in row.items() if name != "latency_us"} for row in read_decisions(run)]


def rows(run):
    return {key: read_episode(run, key).row() for key in read_episodes(run)}


def test_a_policy_of_the_study_holds_for_its_roles_and_all_is_on_record(play, write_study, model, policy, tmp_path):
    run = play(write_study("guard: {roles: {pirate: rules.yaml}}", **FIELDS), tmp_path / "run", model)
    assert "send 10" not in actions(run)
    found = read_decisions(run)
    assert {row["principal"] for row in found} == {"pirate"}
    assert found[0]["effect"] == "block"
    assert found[0]["rule"] == "act[0]"
    assert found[0]["latency_us"] >= 0
    assert {row["step"] for row in found if row["number"] == 0} == {0, 2}
    log = [json.loads(line) for line in (tmp_path / "run" / "decisions.jsonl").read_text().splitlines()]
    assert log == found
    assert list(read_guards(tmp_path / "run").policies) == ["pirate"]
    row = read_episodes(run)["roles/0"]
    assert (row["refused"], row["stopped"]) == (2, False)


def test_the_locks_guard_is_installed_by_itself_and_an_altered_one_is_refused(
    play, write_study, model, policy, tmp_path
):
    RolesLock.load(tmp_path / "roles.lock").with_guard(policy, "pirate").save()
    run = play(write_study(**FIELDS), tmp_path / "run", model)
    assert "send 10" not in actions(run)
    free = play(write_study("guard: none", **FIELDS), tmp_path / "free", model)
    assert set(actions(free)) == {"send 10"}
    policy.write_text(RULES + "\n")
    with pytest.raises(LockError, match="altered"):
        play(write_study(**FIELDS), tmp_path / "other", model)


def test_a_guard_that_has_nothing_to_say_changes_no_byte_of_an_episode(play, write_study, model, tmp_path):
    (tmp_path / "calls.yaml").write_text("tools: {pay: [{}]}\n")
    plain = play(write_study(**FIELDS), tmp_path / "plain", model)
    same = play(write_study("guard: calls.yaml", **FIELDS), tmp_path / "same", model)
    assert json.dumps(rows(plain)) == json.dumps(rows(same))
    assert "guard" not in plain.config
    assert not (tmp_path / "plain" / "guards.json").exists()
    assert read_decisions(same) == []


def test_arms_without_the_guard_show_what_it_changes(play, write_study, model, policy, tmp_path):
    fields = FIELDS | {"arms": "{bound: locked, free: locked}"}
    run = play(write_study("guard: {policy: rules.yaml, arms: [bound]}", **fields), tmp_path / "run", model)
    assert set(actions(run, "free/0")) == {"send 10"}
    assert "send 10" not in actions(run, "bound/0")


def test_a_killed_run_goes_on_to_the_same_decisions(play, write_study, model, tmp_path):
    once = "tools: {act: [{when: {action: send 10}, update: {act: [{when: {action: 'send [0-4]'}}]}}]}\n"
    (tmp_path / "rules.yaml").write_text(once)
    fields = FIELDS | {"world": "{name: trust-game, rounds: 4}"}
    study = write_study("guard: {roles: {pirate: rules.yaml}}\ntogether: 1", **fields)
    whole = play(study, tmp_path / "whole", model)
    assert actions(whole).count("send 10") == 1

    calls = 0

    def dying(chat, seed):
        nonlocal calls
        calls += 1
        if calls == 60:
            raise KeyboardInterrupt
        return ten(chat, seed)

    with pytest.raises(KeyboardInterrupt):
        play(study, tmp_path / "run", ScriptedModel(dying, name="scripted:ten"))
    with RunStore.read(tmp_path / "run") as view:
        assert 0 < view.count("steps") < whole.count("steps")
    log = tmp_path / "run" / "decisions.jsonl"
    log.write_text(log.read_text()[:-20])  # cut in the middle of a line
    run = play(study, tmp_path / "run", model)
    assert rows(run) == rows(whole)
    bare = [{name: value for name, value in row.items() if name != "latency_us"} for row in read_decisions(run)]
    assert bare == [
        {name: value for name, value in row.items() if name != "latency_us"} for row in read_decisions(whole)
    ]
    assert [json.loads(line) for line in log.read_text().splitlines()] == read_decisions(run)
    (tmp_path / "rules.yaml").write_text(RULES)
    with pytest.raises(RunMismatchError, match="guard"):
        play(study, tmp_path / "run", model)


def test_stop_ends_the_episode_or_the_run(play, write_study, model, policy, rolecraft, tmp_path):
    policy.write_text(RULES.replace("send 10}", "send 10}, fallback: stop"))
    run = play(write_study("guard: rules.yaml", **FIELDS), tmp_path / "run", model)
    assert [(row["ended"], row["stopped"]) for row in read_episodes(run).values()] == [("failed", True)] * 2
    study = write_study("guard: {policy: rules.yaml, on_stop: run}\ntogether: 1", **FIELDS)
    with pytest.raises(RolecraftError, match="guard stopped the run, by act"):
        play(study, tmp_path / "halted", model)
    out = rolecraft("show", tmp_path / "run")[1]
    assert "by the guard: 2" in out
    assert "what guards decided" in out
    assert json.loads(rolecraft("show", tmp_path / "run", "--json")[1])["simulation"]["guard"][0]["stop"] == 2
    assert "guard, stop: act" in rolecraft("show", tmp_path / "run", "--episode", "roles/0")[1]


def test_orders_to_do_something_pass_the_guard_too(play, write_study, model, policy, tmp_path):
    lines = "interventions: [{what: do, action: send 10, who: trustor, when: {step: 0}}]\nguard: rules.yaml"
    turn = read_episode(play(write_study(lines, **FIELDS), tmp_path / "run", model), "roles/0").turns[0]
    assert turn.action != "send 10"
    assert turn.notes["guard"]["passed"]


def test_what_a_study_cannot_ask_for(write_study, model, policy, play, tmp_path):
    for lines, part in (
        ("guard: {roles: {priate: rules.yaml}}", "Did you mean 'pirate'"),
        ("guard: {arms: [rolse]}", "Did you mean 'roles'"),
        ("guard: none.yaml", "none.yaml"),
        ("guard: {polcy: rules.yaml}", "polcy"),
        ("guard: {tries: -1}", "tries"),
    ):
        with pytest.raises(UserError, match=part):
            play(write_study(lines, **FIELDS), tmp_path / "run", model)
    assert read_study(write_study("guard: rules.yaml", **FIELDS)).guard.policy == policy

"""Limits of each episode in a study file: tokens and wall clock with a scripted model, resuming, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rolecraft.errors import BudgetExceededError, UserError
from rolecraft.simulate import Forecast, check_study, read_cost, read_episode, read_episodes, read_study, summarise
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import TimeLimit, tokens_of


def speak(one, seed: int) -> str:
    return f"word {seed % 100} said"


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(speak, name="scripted:speak")


@pytest.fixture
def path(write_lock, write_study, chat_world, model):
    write_lock(model.name, model.revision)

    def write(lines: str = "", **fields) -> Path:
        return write_study(lines, **({"world": chat_world, "arms": "{roles: locked}", "together": 1} | fields))

    return write


def test_turns_end_an_episode_and_the_row_says_so(path, play, model, tmp_path):
    run = play(path("limits: {turns: 4}"), tmp_path / "run", model)
    for key, row in read_episodes(run).items():
        assert (row["ended"], row["limit"], row["steps"], row["outcome"]) == ("limit", "turns", 4, {})
        assert read_episode(run, key).limit == "turns"
    assert summarise(read_episodes(run))["arms"][0]["ended"] == {"limit (turns)": 3}


def test_tokens_end_an_episode_after_the_turn_that_used_them_up(path, play, model, tmp_path):
    whole = play(path(), tmp_path / "whole", model)
    used = [sum(tokens_of(turn)) for turn in read_episode(whole, "roles/0").turns]
    run = play(path(f"limits: {{tokens: {sum(used[:2]) + 1}}}"), tmp_path / "run", model)
    cut = read_episode(run, "roles/0")
    assert cut.turns == read_episode(whole, "roles/0").turns[:3]
    assert (cut.ended, cut.limit) == ("limit", "tokens")


def test_an_episode_with_a_token_limit_is_resumed_to_the_same_end(path, play, model, tmp_path):
    lines = "limits: {tokens: 150}"
    whole = play(path(lines), tmp_path / "whole", model)
    assert {row["limit"] for row in read_episodes(whole).values()} == {"tokens"}
    with pytest.raises(BudgetExceededError):
        play(path(lines + "\nbudget: 200tok"), tmp_path / "run", model)
    again = play(path(lines), tmp_path / "run", model)
    assert read_episodes(again) == read_episodes(whole)
    assert read_cost(again) == read_cost(whole)


def test_wall_clock_ends_an_episode(path, play, tmp_path, monkeypatch, model):
    now = 0.0

    def slow(one, seed: int) -> str:
        nonlocal now
        now += 2.0
        return speak(one, seed)

    monkeypatch.setattr("rolecraft.simulate._study.TimeLimit", lambda seconds: TimeLimit(seconds, clock=lambda: now))
    run = play(path("limits: {seconds: 5}"), tmp_path / "run", ScriptedModel(slow, name=model.name))
    assert {(row["ended"], row["limit"], row["steps"]) for row in read_episodes(run).values()} == {
        ("limit", "seconds", 3)
    }


def test_without_limits_the_steps_end_it(path, play, model, tmp_path):
    run = play(path("limit: 5"), tmp_path / "run", model)
    assert {(row["ended"], row["limit"]) for row in read_episodes(run).values()} == {("limit", "steps")}
    assert summarise(read_episodes(run))["arms"][0]["ended"] == {"limit": 3}


def test_the_forecast_knows_of_a_limit_on_turns(path, model):
    study = read_study(path("limits: {turns: 2}"))
    assert Forecast.of(study, check_study(study, model)[0]).decisions == 2 * 3
    study = read_study(path())
    assert Forecast.of(study, check_study(study, model)[0]).decisions == 6 * 3


def test_a_transcript_says_which_limit_it_was(path, play, rolecraft, model, tmp_path):
    scripted = {"world": "{name: trust-game, rounds: 4}"}
    play(path("limits: {turns: 2, seconds: 60}", **scripted), tmp_path / "run", model)
    first = rolecraft("show", tmp_path / "run", "--episode", "roles/0")[1].splitlines()[0]
    assert first.endswith(": limit (turns)")
    found = json.loads(rolecraft("show", tmp_path / "run", "--json")[1])
    assert found["config"]["limits"] == {"turns": 2, "tokens": None, "seconds": 60.0}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("{turns: 0}", "limits.turns"),
        ("{tokens: -1}", "limits.tokens"),
        ("{seconds: 0}", "limits.seconds"),
        ("{minutes: 3}", "limits.minutes"),
        ("60", "limits"),
    ],
)
def test_bad_limits_are_named(path, limits, message):
    with pytest.raises(UserError, match=message):
        read_study(path(f"limits: {limits}"))

"""System 035: its grid and lessons, a small study with every arm and resume, and its verdict on made-up rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.agents import Skill
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.learning import skill_sd
from rolecraft.systems.learning._skill_door import (
    WALKER,
    CellDoor,
    answer,
    draw_lessons,
    draw_maps,
    lesson_rows,
    make_codec,
    render,
    situation,
)
from rolecraft.systems.learning.skill_sd import ARMS, Config, learn, make_learner, make_maps, new_policy, run, verdict
from rolecraft.testing import check_world
from rolecraft.worlds import KeyDoor

SMALL = Config(
    seeds=(1, 2), tasks=3, group=4, groups=2, updates=2, horizon=8, layers=1, hidden=16, tests=2, lessons=200,
    lesson_maps=40, warm_steps=3, warm_end=1,
)  # fmt: skip


def test_the_grid_is_key_door_in_one_word_per_cell() -> None:
    maps = [each.rows for each in draw_maps(3, 4, 2, 4, 1)]
    words, plain = CellDoor(4, maps=maps), KeyDoor(4, maps=maps)
    rng = np.random.default_rng(0)
    for seed in range(3):
        words.reset(seed)
        plain.reset(seed)
        while words.acting:
            row, column, key = plain.spot
            seen = words.observe(WALKER)
            assert situation(seen) == f"{'h' if key else 'k'}{row}{column}"
            assert ("held" in seen.split()) == key
            action = str(rng.choice(words.actions))
            for world in (words, plain):
                world.act({WALKER: action})
        assert words.rewards() == plain.rewards()
    check_world(lambda: CellDoor(4, maps=maps))


def test_the_answer_is_a_shortest_way() -> None:
    for each in draw_maps(20, 4, 2, 4, 2):
        world = CellDoor(4, maps=[each.rows])
        steps = answer(each).golden_workflow
        for step in steps:
            place, action = step.split()
            assert situation(world.observe(WALKER)) == place
            world.act({WALKER: action})
        assert world.succeeded
        assert len(steps) == each.tables().shortest


def test_lessons_follow_the_skill_and_say_nothing_else() -> None:
    maps = draw_maps(30, 4, 2, 4, 3)
    lessons = draw_lessons(maps, 1500, 4, 0)
    counts = dict.fromkeys(("follow", "off", "avoid", "none"), 0)
    free = []
    for lesson in lessons:
        kind, *words = lesson.skill.split() or ["none"]
        pairs = dict(zip(words[::2], words[1::2], strict=True)) if kind == "follow" else {}
        place = situation(lesson.observation)
        if kind == "avoid":
            assert (place, lesson.action) not in set(zip(words[::2], words[1::2], strict=True))
        elif place in pairs:
            assert pairs[place] == lesson.action
        else:
            kind = "off" if kind == "follow" else kind
            free.append(lesson.action)
        counts[kind] += 1
    assert min(counts.values()) > 50
    shares = np.array([free.count(action) for action in KeyDoor(4).actions]) / len(free)
    assert np.abs(shares - 0.25).max() < 0.1, "without a word of the skill any action is as good"
    assert draw_lessons(maps, 50, 4, 0) == lessons[:50]


def test_every_word_is_known() -> None:
    policy = new_policy(SMALL)
    lessons = draw_lessons(draw_maps(20, 4, 2, 4, 3), 300, 4, 0)
    rows = lesson_rows(policy, lessons, KeyDoor(4).actions)
    assert policy.codec.unknown == 0  # type: ignore[attr-defined]
    assert len(rows) == 300
    assert render(Skill("", "k00 up; k01 left")) == "avoid k00 up k01 left"
    assert len(make_codec(5)) > len(make_codec(4))


def test_arms_differ_as_they_are_said_to() -> None:
    base = new_policy(SMALL)
    for name, arm in ARMS.items():
        trainer, teacher = make_learner(SMALL, arm, 1, base)
        assert teacher._frozen == (name == "frozen")
        assert (len(teacher.bank) == SMALL.tasks) == (name == "fixed")
        told = teacher._told
        assert (told is not None) == (name == "shuffled")
        if told is not None:
            assert sorted(told) == sorted(told.values()) == ["0", "1", "2"]
            assert all(one != other for one, other in told.items())
        assert trainer.seed == make_learner(SMALL, ARMS["grpo"], 1, base)[0].seed
    weights = {name: getattr(skill_sd.make_rule(SMALL, arm)[1], "weight", None) for name, arm in ARMS.items()}
    assert weights["grpo"] == 0
    assert weights["skill-sd"] == weights["naive"] == weights["shuffled"] == 0.1
    assert weights["skill-sd-weak"] == weights["naive-weak"] == 0.001
    assert weights["opd"] == 1


def test_arms_share_their_first_episodes_and_the_base_is_left_alone() -> None:
    base = new_policy(SMALL)
    before = {name: each.detach().clone() for name, each in base.parameters().items()}
    rows = {name: learn(SMALL, ARMS[name], 1, base) for name in ("grpo", "fixed")}
    assert rows["grpo"]["curve"][0] == rows["fixed"]["curve"][0]
    assert rows["fixed"]["gaps"][0] > 0
    assert rows["fixed"]["taught"] == 1
    assert rows["grpo"]["gaps"][0] == rows["grpo"]["taught"] * 0  # no skill is there before the first episodes
    assert learn(SMALL, ARMS["fixed"], 1, base) == rows["fixed"]
    assert all(torch.equal(before[name], each) for name, each in base.parameters().items())


def test_the_ceiling_is_that_of_a_base_that_follows_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from rolecraft.learning.policy import Sampled

    base = new_policy(SMALL)
    follow = base.codec.reply("follow")[0]  # type: ignore[attr-defined]
    asked: list[Any] = []

    def obey(prompts: Any, options: Any, seeds: Any) -> list[Sampled]:
        asked.extend(prompts)
        drawn = []
        for prompt in prompts:
            assert prompt[1] == follow
            place = prompt[-2]
            drawn.append(Sampled((prompt[prompt.index(place) + 1],), (0.0,), True))
        return drawn

    monkeypatch.setattr(base, "sample", obey)
    found = skill_sd.ceiling(replace(SMALL, horizon=12), 1, base)
    assert found["told"] == 1
    assert found["alone"] < 1
    assert asked


def test_no_task_of_training_is_in_the_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from rolecraft.systems.learning import _skill_door

    config = replace(SMALL, size=3, walls=1, shortest=5, lesson_maps=60)
    seen: list[Any] = []
    real = _skill_door.draw_lessons
    monkeypatch.setattr(_skill_door, "draw_lessons", lambda maps, *rest: seen.extend(maps) or real(maps, *rest))
    skill_sd.warm_start(config)
    trained = {each for seed in config.seeds for each in make_maps(config, seed)}
    assert trained
    assert seen
    assert not trained & set(seen)


def test_the_study_runs_every_arm_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(SMALL, seeds=(1,))
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run(config, store)
    assert result.arms == list(ARMS)
    assert all(0 <= row["auc"] <= 1 and 0 <= row["final"] <= 1 for row in result.rows)
    assert [set(row) >= {"alone", "told"} for row in result.rows] == [row["arm"] == "grpo" for row in result.rows]
    trained: list[Any] = []
    real = skill_sd.learn
    monkeypatch.setattr(skill_sd, "learn", lambda *given: trained.append(given[1]) or real(*given))
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows[:-1]:
            put_row(store, **row)
        resumed = run(config, store)
    assert trained == [ARMS["shuffled"]]
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))
    assert verdict(resumed).verdict == "inconclusive", "one seed has no interval"


CLAIM = {
    "grpo": 0.3, "opd": 0.2, "naive-weak": 0.31, "naive": 0.33, "skill-sd-weak": 0.3, "skill-sd": 0.4, "frozen": 0.35,
    "fixed": 0.38, "shuffled": 0.3,
}  # fmt: skip


def made_up(changes: dict[str, float], spread: float = 0.01) -> Result:
    rows = []
    for place, (arm, area) in enumerate((CLAIM | changes).items()):
        noise = np.random.default_rng(place).normal(0, spread, 5)
        areas = area + noise - noise.mean()
        rows += [{"arm": arm, "seed": seed, "auc": areas[seed], "final": area, "gap": 0.1} for seed in range(5)]
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"skill-sd": 0.22}, "not reproduced"),
        ({"opd": 0.35}, "not reproduced"),
        ({"naive": 0.1}, "not reproduced"),  # distillation alone is not the lowest
        ({"shuffled": 0.4}, "not reproduced"),  # the control does not fail
        ({"shuffled": 0.1}, "reproduced"),
        ({"skill-sd": 0.302}, "inconclusive"),
    ],
)
def test_every_condition_counts(changes: dict[str, float], expected: str) -> None:
    assert verdict(made_up(changes)).verdict == expected


def test_faulty_settings_are_refused() -> None:
    for faulty in ({"tasks": 1}, {"group": 1}, {"updates": 0}):
        with pytest.raises(UserError, match="tasks and group of at least 2"):
            Config(**faulty)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="0 < weak <= strong"):
        Config(weak=0.2)
    with pytest.raises(UserError, match="no 500 different maps"):
        draw_maps(500, 2, 0, 2, 0)


def test_the_system_is_found_by_number() -> None:
    entry = find_entry("35")
    assert entry.system.name == "skill-sd"
    assert "key-door" in entry.studies

import json
import zlib
from dataclasses import replace

import pytest

from rolecraft._run import RunStore
from rolecraft.conditioning import RolePlayPrompt
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.conditioning.role_play_prompting import (
    ARMS,
    ROLE_SETTINGS,
    STEP_BY_STEP,
    TASK_ROLES,
    UNFIT,
    Config,
    QuestionSet,
    run_on,
    select_feedback,
    shows_steps,
    verdict,
)
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import TASKS, make_items, task_named

CONFIG = Config(items=20, dev_items=6, feedbacks=2, free_items=2)
FITTING = {setting for role, (setting, _) in ROLE_SETTINGS.items() if role != UNFIT}


def pupil(gains):
    """Return a model that answers right if `gains(chat)` holds, and else in two of five cases."""
    items = {
        item.question: item
        for task in CONFIG.tasks
        for seed in CONFIG.seeds
        for item in make_items(task, CONFIG.items + CONFIG.dev_items, seed)
    }

    def script(chat, seed):
        text = chat[-1]["content"]
        if text in FITTING or text == ROLE_SETTINGS[UNFIT][0]:
            return f"Gladly, that is what I am. Ask me, friend number {seed}."
        item = next(item for question, item in items.items() if question in text)
        wrong = next(option for option in item.options if option != item.answer)
        lucky = zlib.crc32(item.question.encode()) % 5 < 2
        return item.answer if lucky or gains(chat) else wrong

    return ScriptedModel(script)


def immersed(chat, settings=FITTING):
    return len(chat) == 4 and chat[1]["content"] in settings and chat[2]["role"] == "assistant"


def study(tmp_path, model, config=CONFIG):
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        return run_on(model, config, store)


def test_every_generated_task_has_a_fitting_role():
    assert set(TASK_ROLES) == set(TASKS)
    assert set(TASK_ROLES.values()) < set(ROLE_SETTINGS)
    assert UNFIT not in TASK_ROLES.values()


def test_the_best_candidate_on_development_questions_is_chosen_and_the_first_of_equals():
    questions = QuestionSet(task_named("coin-flip"), make_items("coin-flip", 4, 0), make_items("coin-flip", 4, 1))
    candidates = [RolePlayPrompt("s", feedback) for feedback in ("a", "bb", "cc")]
    seen = []

    def solve(asked):
        seen.extend(one.item.id for one in asked)
        return [len(one.frame("")[2]["content"]) == 2 for one in asked]

    chosen, table = select_feedback(candidates, questions, solve)
    assert chosen.role_feedback == "bb"
    assert table == [0, 1, 1]
    assert set(seen) == {item.id for item in questions.dev}


def test_choosing_on_reported_questions_is_refused():
    items, task = make_items("coin-flip", 6, 0), task_named("coin-flip")
    with pytest.raises(UserError, match=r"dev and test share 1 id\(s\)"):
        QuestionSet(task, items[:4], items[3:])
    with pytest.raises(UserError, match="under other ids"):
        QuestionSet(task, items[:4], [replace(item, id=f"other/{item.id}") for item in items[3:]])
    with pytest.raises(UserError, match="0 candidates"):
        select_feedback([], QuestionSet(task, items[:3], items[3:]), lambda asked: [])


@pytest.mark.parametrize(
    ("reply", "steps"),
    [
        ("yes", False),
        ("The answer is 12.", False),
        ("12", False),
        ("It is 3.5 in all", False),
        ("She had 3 + 4", True),
        ("First Anna flips it. Then it lies tails up.", True),
    ],
)
def test_intermediate_steps_are_two_sentences_or_an_equation(reply, steps):
    assert shows_steps(reply) is steps


def test_a_gain_by_the_fitting_role_is_reproduced(tmp_path):
    result = study(tmp_path, pupil(immersed))
    found = verdict(result)
    assert result.arms == list(ARMS)
    assert found.verdict == "reproduced"
    assert found.control.estimate == 0
    assert result.mean("correct", "role-feedback").estimate == 1
    assert result.mean("exact", "role-feedback").estimate == 1
    assert result.difference("correct", "role-line", "zero-shot").estimate == 0
    ids = {row["unit"] for row in result.rows}
    dev = {
        item.id for task in CONFIG.tasks for seed in CONFIG.seeds for item in make_items(task, CONFIG.dev_items, seed)
    }
    assert len(ids) == CONFIG.items * len(CONFIG.tasks) * len(CONFIG.seeds)
    assert not ids & dev


def test_no_gain_is_not_reproduced(tmp_path):
    found = verdict(study(tmp_path, pupil(lambda chat: False)))
    assert found.verdict == "not reproduced"
    assert found.effect.estimate == 0
    assert "where chance is 0.33" in found.note


def test_a_gain_that_any_two_turns_bring_is_not_reproduced(tmp_path):
    found = verdict(study(tmp_path, pupil(lambda chat: len(chat) == 4)))
    assert found.effect.low > 0
    assert found.control.low > 0
    assert found.verdict == "not reproduced"


def test_the_step_by_step_arm_carries_its_trigger(tmp_path):
    result = study(tmp_path, pupil(lambda chat: STEP_BY_STEP in chat[-1]["content"]))
    assert result.difference("correct", "step-by-step", "zero-shot").low > 0
    assert result.difference("correct", "role-feedback", "zero-shot").estimate == 0


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path):
    config = replace(CONFIG, tasks=("coin-flip",), seeds=(0,))
    model = pupil(immersed)
    model.fail_at = 12
    with pytest.raises(Exception, match="told to fail"):
        study(tmp_path, model, config)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        done = store.rows("rows")
        assert 0 < len(done) < len(ARMS) * config.items
        result = run_on(model, config, store)
        assert {key: store.rows("rows")[key] for key in done} == done
    assert result == study(tmp_path / "fresh", pupil(immersed), config)


def test_public_sets_are_decoded_and_extracted(tmp_path):
    folder = tmp_path / "sets"
    folder.mkdir()
    items = make_items("arithmetic", 8, 7)
    rows = [
        {"id": i.id, "question": i.question, "answer": i.answer, "answer_type": "number", "trigger": "The number is"}
        for i in items
    ]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    right = {item.question: item.answer for item in items}

    def script(chat, seed):
        text = chat[-1]["content"]
        known = next((answer for question, answer in right.items() if question in text), "Gladly.")
        return f"That is {known} in all." if "The number is" in text or known == "Gladly." else "Let me see."

    config = replace(Config.full(), data=str(folder), dev_items=3)
    result = study(tmp_path, ScriptedModel(script), config)
    assert len(result.rows) == 5 * len(ARMS)
    assert {(row["cleaned"], row["reasoning"]) for row in result.rows if row["unit"].endswith("/7")} == {
        (items[7].answer, "Let me see.")
    }
    assert result.mean("correct", "zero-shot").estimate == 1
    with pytest.raises(UserError, match="none is left"):
        study(tmp_path / "few", ScriptedModel(script), replace(config, dev_items=8))
    with pytest.raises(UserError, match="holds no files"):
        study(tmp_path / "none", ScriptedModel(script), replace(config, data=str(tmp_path / "absent")))


def test_faulty_settings_are_refused():
    with pytest.raises(UserError, match="feedbacks must be at least 1"):
        Config(feedbacks=0)
    with pytest.raises(UserError, match="scoring must be"):
        Config(scoring="guess")
    with pytest.raises(UserError, match="Did you mean 'coin-flip'"):
        make_items("coinflip", 1, 0)


def test_the_system_is_found_by_number():
    entry = find_entry("98")
    assert entry.system.name == "role-play-prompting"
    assert isinstance(entry.study("small").config(), Config)
    assert Result(()).arms == []

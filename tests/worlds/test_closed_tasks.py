import json
import re
from collections import Counter
from datetime import datetime, timedelta

import pytest

from rolecraft.errors import UserError
from rolecraft.models import chat
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import (
    TASKS,
    Asked,
    make_items,
    read_items,
    right_option,
    solve_by_choice,
    solve_freely,
    task_named,
)


def solve(item):
    """Work out the answer from the words of the question alone."""
    text = item.question
    if item.task == "coin-flip":
        return "no" if len(re.findall(r"\w+ flips the coin", text)) % 2 else "yes"
    if item.task == "last-letters":
        return "".join(word[-1] for word in re.search('"(.*)"', text)[1].split())
    if item.task == "object-swap":
        held = dict(re.findall(r"(\w+) has the (\w+)\.", text))
        for a, b in re.findall(r"(\w+) and (\w+) swap", text):
            held[a], held[b] = held[b], held[a]
        options = {thing: letter for letter, thing in re.findall(r"\(([A-C])\) the (\w+)", text)}
        return options[held[re.search(r"What does (\w+) have", text)[1]]]
    if item.task == "arithmetic":
        total = int(re.search(r"has (\d+)", text)[1]) + sum(int(n) for n in re.findall(r"gets (\d+)", text))
        return str(total - sum(int(n) for n in re.findall(r"gives (\d+)", text)))
    day = datetime.strptime(re.search(r"Today is (\S+)\.", text)[1], "%m/%d/%Y")
    for count, way in re.findall(r"(\d+) days (later|earlier)", text):
        day += timedelta(days=int(count) if way == "later" else -int(count))
    return f"{day:%m%d%Y}"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", [1, 2])
def test_the_stated_answer_is_the_right_one_and_stands_among_distinct_options(task, level):
    items = make_items(task, 60, seed=3, level=level)
    assert len({item.question for item in items}) == len({item.id for item in items}) == 60
    for item in items:
        assert item.answer == solve(item)
        assert len(set(item.options)) == len(item.options) >= 2
        assert item.options[right_option(item)].replace("/", "") == item.answer


@pytest.mark.parametrize("task", TASKS)
def test_the_place_of_the_right_option_does_not_give_it_away(task):
    items = make_items(task, 200, seed=0)
    count = len(items[0].options)
    answers = Counter(item.answer if task == "coin-flip" else right_option(item) for item in items)
    assert len(answers) == count
    assert min(answers.values()) > 200 / count / 2


def test_items_depend_on_the_seed_alone():
    assert make_items("arithmetic", 20, 1) == make_items("arithmetic", 20, 1)
    assert make_items("arithmetic", 20, 1)[:10] == make_items("arithmetic", 10, 1)
    assert {i.question for i in make_items("date", 20, 1)} != {i.question for i in make_items("date", 20, 2)}


def test_mistakes_are_refused():
    with pytest.raises(UserError, match="Did you mean 'coin-flip'"):
        make_items("coin-flips", 3, 0)
    with pytest.raises(UserError, match="count=0"):
        make_items("coin-flip", 0, 0)
    with pytest.raises(UserError, match="fewer than 3000"):
        make_items("coin-flip", 3000, 0)


def test_choice_and_free_text_reach_the_same_answer_of_a_model_that_knows():
    items = make_items("arithmetic", 12, 5)
    by_question = {item.question: item.answer for item in items}

    def knows(asked, seed):
        text = asked[-1]["content"]
        answer = next(answer for question, answer in by_question.items() if question in text)
        return answer if text in by_question else f"The sum gives {answer}."

    model = ScriptedModel(knows)
    asked = [Asked(item, task_named("arithmetic"), chat) for item in items]
    assert solve_by_choice(model, asked) == [True] * 12
    solved = solve_freely(model, asked)
    assert all(one.grade.correct and one.reasoning == one.item.answer for one in solved)
    assert solved[0].grade.raw.startswith("The sum gives")


def test_the_extraction_pass_shows_question_reasoning_and_trigger_in_the_same_dialogue():
    seen = []

    def script(asked, seed):
        seen.append([message["content"] for message in asked])
        return "thinking" if len(seen) == 1 else "yes"

    [item] = make_items("coin-flip", 1, 0)
    solve_freely(ScriptedModel(script), [Asked(item, task_named("coin-flip"), lambda text: chat(text, "frame"))])
    assert seen[1] == ["frame", f"{item.question}\nthinking\n{TASKS['coin-flip'].trigger}"]


def test_public_sets_are_read_and_their_faults_named(tmp_path):
    good = {"question": "2 + 2?", "answer": "4", "answer_type": "number", "trigger": "So"}
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join(json.dumps(good | {"id": n}) for n in (1, 2)))
    task, items = read_items(path)
    assert (task.name, task.answer_type, [item.id for item in items]) == ("sums", "number", ["sums/1", "sums/2"])
    for change, message in [
        ({"answer": ""}, "sums.jsonl:2: the field 'answer'"),
        ({"answer_type": "letters"}, "answer_type 'letters'"),
        ({"id": 1}, "two records have the same id"),
    ]:
        path.write_text("\n".join(json.dumps(one) for one in (good | {"id": 1}, good | {"id": 2} | change)))
        with pytest.raises(UserError, match=message):
            read_items(path)
    with pytest.raises(UserError, match="not among the options"):
        right_option(items[0])

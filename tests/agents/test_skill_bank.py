"""Skill bank: the schema, the bandit against its formula, eviction, age, files, and skills that people wrote."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import Skill, SkillBank, StaticSkills
from rolecraft.errors import UserError


def skill(number=0):
    return Skill("it worked", "", (f"step {number}",))


def filled(count=3, **options):
    bank = SkillBank(**options)
    for number in range(count):
        bank.add("t", skill(number), source=f"e{number}")
    return bank


WHOLE = {"success_analysis": "a", "mistake_analysis": "", "golden_workflow": ["x", " ", "y "]}


def test_a_skill_is_read_from_json_and_written_back():
    read = Skill.read(json.dumps(WHOLE))
    assert read == Skill("a", "", ("x", "y"))
    assert Skill.read(read.row()) == read
    assert read.text() == "What worked: a\nWorkflow:\n1. x\n2. y"
    assert Skill.read({"mistake_analysis": "b", "other": 1}, strict=False) == Skill("", "b")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected a JSON object"),
        ({"success_analysis": "a", "mistake_analysis": ""}, "'golden_workflow' is missing"),
        (WHOLE | {"golden_workflw": []}, "unknown field 'golden_workflw'.*Did you mean 'golden_workflow'"),
        (WHOLE | {"success_analysis": 3}, "success_analysis must be a text"),
        (WHOLE | {"golden_workflow": "x"}, "list of texts"),
        (WHOLE | {"success_analysis": " ", "golden_workflow": []}, "all three fields are empty"),
    ],
)
def test_a_malformed_skill_is_rejected_and_logged_or_refused(given, message):
    with pytest.raises(UserError, match=message):
        Skill.read(given)
    bank = SkillBank()
    assert bank.add("t", given, source="e7") is None
    assert len(bank) == 0
    assert len(bank.rejected) == 1
    assert bank.rejected[0].startswith("task t, e7: skill: ")
    with pytest.raises(UserError, match=message):
        SkillBank(strict=True).add("t", given)


def test_unused_skills_come_first_and_ties_go_to_the_oldest():
    bank = filled(3)
    assert [bank.select("t").id for _ in range(3)] == [0, 1, 2]
    bank.update(1, 0.5)
    assert bank.select("t").id == 1
    bank.add("t", skill(9))
    assert bank.select("t").id == 3
    assert bank.select("other") is None
    assert bank.misses == 1


def test_ties_are_seeded():
    picks = [[filled(6).select("t", np.random.default_rng(seed)).id for _ in range(2)] for seed in range(12)]
    assert all(one == other for one, other in picks)
    assert len({one for one, _ in picks}) > 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-1, 1)), min_size=4, max_size=30),
    st.floats(0, 2),
)
def test_the_choice_is_that_of_the_formula(paid, c):
    bank = filled(4, c=c)
    used, utility = [0] * 4, [0.0] * 4
    for _, value in paid:
        chosen = bank.select("t").id
        if 0 in used:
            expected = used.index(0)
        else:
            total = math.log(sum(used))
            bounds = [u / n + c * math.sqrt(total / n) for u, n in zip(utility, used, strict=True)]
            expected = bounds.index(max(bounds))
        assert chosen == expected
        used[chosen] += 1
        utility[chosen] += value
        bank.update(chosen, value)
    assert [entry.uses for entry in bank.of("t")] == used


def test_a_full_buffer_drops_the_lowest_mean_of_its_task():
    bank = filled(3, cap=3)
    bank.add("other", skill(1))
    for _ in range(3):
        bank.select("t")
    for number, utility in enumerate((0.4, -0.3, 0.1)):
        bank.update(number, utility)
    added = bank.add("t", skill(9))
    assert [entry.id for entry in bank.of("t")] == [0, 2, added.id]
    assert len(bank.of("other")) == 1
    bank.update(1, 5.0)  # of a skill that is gone: paid nothing
    assert {entry.utility for entry in bank.of("t")} == {0.4, 0.1, 0.0}
    assert bank.add("t", skill(10)) is not None
    assert [entry.id for entry in bank.of("t")][:2] == [0, 2]  # the unused one, with mean 0, went


def test_of_equals_the_oldest_is_dropped():
    bank = filled(4, cap=2)
    assert [entry.id for entry in bank.of("t")] == [2, 3]


def test_the_same_skill_is_kept_once():
    bank = filled(1)
    assert bank.add("t", skill(0)) is None
    assert not bank.rejected
    assert bank.add("other", skill(0)) is not None


def test_age_and_decay():
    bank = filled(2, decay=0.5, max_age=2)
    for _ in range(3):
        bank.select("t")
    bank.update(0, 1.0)
    mean = bank.of("t")[0].mean
    bank.tick()
    assert [entry.uses for entry in bank.of("t")] == [1.0, 0.5]
    assert bank.of("t")[0].mean == pytest.approx(mean)
    assert [bank.age(entry) for entry in bank.of("t")] == [1, 1]
    bank.add("t", skill(9))
    bank.tick()
    assert len(bank.of("t")) == 3
    bank.tick()
    assert [entry.skill for entry in bank.of("t")] == [skill(9)]


def test_a_saved_bank_goes_on_as_it_would_have(tmp_path):
    bank = filled(3, cap=3, c=0.3, decay=0.9, max_age=7)
    for value in (0.2, -0.5, 0.1):
        bank.update(bank.select("t").id, value)
    bank.add("t", "no json")
    bank.select("nobody")
    bank.tick()
    bank.save(tmp_path / "bank.json")
    again = SkillBank.load(tmp_path / "bank.json")
    assert again.state() == bank.state()
    for each in (bank, again):
        each.add("t", skill(9))
    assert [again.select("t").id for _ in range(4)] == [bank.select("t").id for _ in range(4)]
    assert again.tasks == ["t"]


def test_a_faulty_file_is_refused(tmp_path):
    path = tmp_path / "bank.json"
    state = filled(2).state()

    def load(changes):
        path.write_text(json.dumps(state | changes))
        SkillBank.load(path)

    for changes, message in (
        ({"format": "x"}, "not a skill bank"),
        ({"version": 2}, "version 2 of the format, this needs 1"),
        ({"round": "x"}, "damaged"),
        ({"skills": [state["skills"][0]] * 2}, r"skills\[1\]: the id 0 stands twice"),
        ({"skills": [{**state["skills"][0], "extra": 1}]}, "field 'extra' is missing or unknown"),
        ({"skills": [{**state["skills"][0], "skill": {}}]}, "'success_analysis' is missing"),
    ):
        with pytest.raises(UserError, match=message):
            load(changes)


def test_numbers_out_of_range_are_refused():
    for options in ({"cap": 0}, {"c": -1.0}, {"decay": 0.0}, {"max_age": 0}, {"c": math.inf}):
        with pytest.raises(UserError, match="expected cap of at least 1"):
            SkillBank(**options)
    bank = filled(1)
    with pytest.raises(UserError, match="no skill ever had the id 1"):
        bank.update(1, 0.0)
    with pytest.raises(UserError, match="must be finite, got nan"):
        bank.update(0, math.nan)
    with pytest.raises(UserError, match="the outcome of e1 of task 't' is inf"):
        bank.add("t", skill(2), source="e1", outcome=math.inf)


INDEX = {
    "skills": {"basics": "basics.md", "heating": "heat.md", "cleaning": "clean.md"},
    "general": ["basics"],
    "tasks": {"task-7": "cleaning"},
    "keywords": [["warm", "heating"], ["cup", "cleaning"]],
}


def write_index(folder, **changes):
    for name in ("basics", "heat", "clean"):
        (folder / f"{name}.md").write_text(f"How to {name}.\n")
    (folder / "index.json").write_text(json.dumps(INDEX | changes))
    return folder / "index.json"


def test_written_skills_are_found_by_task_then_by_the_first_keyword(tmp_path):
    found = StaticSkills.load(write_index(tmp_path))
    assert found.select("task-7", "warm the cup") == "How to basics.\n\nHow to clean."
    assert found.select("task-1", "a WARM cup") == "How to basics.\n\nHow to heat."
    assert found.select("task-1", "a cup") == "How to basics.\n\nHow to clean."
    assert found.select("task-1", "a plate") == "How to basics."
    assert StaticSkills({"a": "A"}).select("x", "y") is None


def test_a_faulty_index_is_refused(tmp_path):
    for changes, message in (
        ({"general": ["basic"]}, "no skill is called 'basic'.*Did you mean 'basics'"),
        ({"keyword": []}, "unknown key 'keyword'"),
        ({"keywords": {"warm": "heating"}}, r"list of \[keyword, skill\] pairs"),
        ({"keywords": [["", "heating"]]}, "a keyword is empty"),
        ({"skills": {"basics": "../secret.md"}}, "lies outside the folder"),
        ({"skills": {"basics": "none.md"}}, "cannot be read"),
        ({"skills": []}, "must be mappings"),
    ):
        with pytest.raises(UserError, match=message):
            StaticSkills.load(write_index(tmp_path, **changes))
    (tmp_path / "basics.md").write_text(" \n")
    with pytest.raises(UserError, match="'basics' is empty"):
        StaticSkills({"basics": " "})

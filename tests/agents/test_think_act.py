import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.agents import FORMS, ThinkAct, parse_counts
from rolecraft.agents._think_act import split_thoughts
from rolecraft.errors import UserError
from tests.agents._talk import turn

SECRET = "I am the spy"


def read(reply, form="tags"):
    found = ThinkAct(form).read(reply)
    return found.status, found.action, found.thought


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        ("tags", f"<think>{SECRET}</think>\n<act>go north</act>"),
        ("tags", f"<THINK>{SECRET}</THINK><Action> go north </Action>"),
        ("json", json.dumps({"thought": SECRET, "action": "go north"})),
        ("json", '```json\n{"reasoning": "I am the spy", "action": "go north"}\n```'),
        ("lines", f"Thought: {SECRET}\nAction: go north"),
        ("lines", f"**Thought:** {SECRET}\n**Action:** go north"),
        ("boxed", f"{SECRET} \\boxed{{go north}}"),
        ("think", f"<think>{SECRET}</think> go north"),
    ],
)
def test_every_form_gives_thought_and_action(form, reply):
    assert read(reply, form) == ("ok", "go north", SECRET)


@pytest.mark.parametrize(
    ("form", "reply", "action", "thought", "reason"),
    [
        ("tags", "<think>a</think><act>go", "go", "a", "an action does not end"),
        ("tags", "<think>a<act>go</act>", "go", "a", "a thought does not end"),
        ("tags", "a</think><act>go</act>", "go", "a", "a thought ends that did not begin"),
        ("tags", "<think>a<think>b</think>c</think><act>go</act>", "go", "a\nb\nc", "thoughts within a thought"),
        ("tags", "<act><act>go</act></act>", "go", "", "an action within an action"),
        ("tags", "<act>stay</act><act>go</act>", "go", "", "several actions"),
        ("tags", "<think>a</think> go", "go", "a", "the action is not marked"),
        ("tags", "Thought: a\nAction: go", "go", "a", "written as lines"),
        ("tags", "<act>go</act></act>", "go", "", "an action ends that did not begin"),
        ("json", '{"thought": "a", "action": "go"', "go", "a", "the last brace is missing"),
        ("json", '{"action": "stay"} {"action": "go"}', "go", "", "several actions"),
        ("lines", "Thought: a\nAction: go\nObservation: gold!\nThought: b\nAction: take", "go", "a", "several actions"),
        ("boxed", "\\boxed{stay} or \\boxed{go}", "go", "", "several actions"),
        ("boxed", "<act>go</act>", "go", "", "written as tags"),
        ("think", "a</think>go", "go", "a", "a thought ends that did not begin"),
    ],
)
def test_what_is_repaired_is_said(form, reply, action, thought, reason):
    found = ThinkAct(form).read(reply)
    assert (found.status, found.action) == ("repaired", action)
    assert found.thought.startswith(thought)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("form", "reply", "reason"),
    [
        ("tags", "<think>a</think><act> </act>", "the action is empty"),
        ("tags", "<think>I would <act>lie</act> here</think>", "the action stands inside the thought"),
        ("tags", "<think>and on and on", "only a thought"),
        ("tags", "<think>a</think>", "only a thought"),
        ("tags", "I think I had better lie.", "no action is marked"),
        ("tags", "", "no action is marked"),
        ("json", '{"thought": "a"}', "the action is empty"),
        ("json", '{"thought": "a", "action": "go nor', "not valid JSON"),
        ("json", '{"thought": "a", "action": null}', "the action is empty"),
        ("lines", "Thought: I must lie", "a thought without an action"),
        ("lines", "Thought: a\nAction:", "the action is empty"),
        ("boxed", "so \\boxed{go", "a box does not end"),
        ("boxed", "\\boxed{}", "the action is empty"),
        ("think", "<think>on and on", "only a thought"),
    ],
)
def test_what_cannot_be_read_gives_no_action_and_a_reason(form, reply, reason):
    found = ThinkAct(form).read(reply)
    assert (found.status, found.action) == ("failed", "")
    assert reason in found.reason


def test_an_action_may_be_json_or_hold_braces():
    assert read('<act>{"to": "bob", "message": "hi"}</act>')[1] == '{"to": "bob", "message": "hi"}'
    assert json.loads(read('{"thought": "", "action": {"to": "bob"}}', "json")[1]) == {"to": "bob"}
    assert read("\\boxed{a {b} c}", "boxed")[1] == "a {b} c"
    assert read('{"action": 3}', "json")[1] == "3"


def test_half_a_character_in_json_can_be_stored():
    assert read('{"action": "a\\ud800b"}', "json")[1] == "a?b"


@given(
    st.lists(
        st.sampled_from(["<think>", "</think>", "SECRET", "<act>", "</act>", "x", "\n", "{", '"action":']), max_size=9
    )
)
def test_a_marked_thought_is_never_in_the_action(parts):
    depth, marked = 0, []
    for part in parts:
        depth += {"<think>": 1, "</think>": -1}.get(part, 0)
        if depth < 0:
            break
        marked.append(f"{part}{len(marked)}" if part == "SECRET" and depth else part.replace("SECRET", "public"))
    reply = "".join([*marked, "</think>" * max(0, depth)])
    for form in FORMS:
        assert "SECRET" not in ThinkAct(form).read(reply).action


@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(text):
    for form in FORMS:
        found = ThinkAct(form).read(text)
        assert (found.status == "failed") == (found.action == "")
        assert found.action == found.action.strip()
    split = split_thoughts(text)
    assert len(split.thought) + len(split.rest) <= len(text)


@given(st.sampled_from(list(FORMS)), st.text("abc {}", min_size=1).filter(str.strip), st.text("abc", min_size=1))
def test_what_is_written_as_asked_is_read_back(form, action, thought):
    action = action.strip().replace("{", "(").replace("}", ")") if form == "boxed" else action.strip()
    written = {
        "tags": f"<think>{thought}</think><act>{action}</act>",
        "json": json.dumps({"thought": thought, "action": action}),
        "lines": f"Thought: {thought}\nAction: {action}",
        "boxed": f"{thought} \\boxed{{{action}}}",
        "think": f"<think>{thought}</think>{action}",
    }[form]
    assert read(written, form) == ("ok", action, thought)


def test_hostile_replies_are_quick():
    for reply in ("{" * 3000, '{"a":' * 1500, "<think>" * 2000, "\\boxed{" * 2000, '{"action":' * 1000):
        assert ThinkAct("json").read(reply).status == "failed"


def test_counts_come_from_the_notes():
    turns = [turn(0, notes={"parse": {"status": "ok"}}), turn(1), turn(2, notes={"parse": {"status": "failed"}})]
    assert parse_counts(turns) == {"ok": 1, "failed": 1}


def test_an_unknown_form_is_named():
    with pytest.raises(UserError, match=r"no form 'tag'.*Did you mean 'tags'"):
        ThinkAct("tag")  # type: ignore[arg-type]

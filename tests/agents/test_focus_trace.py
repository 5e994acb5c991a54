"""The prompt and the strict reader of Character-R1: what counts, and what fails with which fault."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.agents import FOCUS_POINTS, focus_counts, focus_instruction, focus_prompt, read_focus, role_profile
from rolecraft.errors import UserError
from rolecraft.roles import Role

BLOCK = "<focus>Style</focus><focus_attr>short dry sentences</focus_attr>"
GOOD = f"<think>A fare.{BLOCK}</think>\n\\boxed{{Two coppers.}}"
ROLE = Role(
    id="ferry", name="Ansa, the ferrymaster", description="You row the ferry.", style="Dry.", knowledge=("The toll.",),
    boundaries=("No engines.",),
)  # fmt: skip


def test_a_good_reply_is_read_whole():
    trace = read_focus(GOOD)
    assert (trace.reply, trace.faults, trace.well_formed) == ("Two coppers.", (), True)
    assert trace.labels == {"Style"}
    assert trace.attribute("Style") == "short dry sentences"
    assert trace.attribute("Memory") is None
    assert "A fare." in trace.thought


@pytest.mark.parametrize(
    ("reply", "said", "faults"),
    [
        ("", "", ("no-think", "no-box", "no-focus")),
        ("\\boxed{Two.}", "Two.", ("no-think", "no-focus")),
        ("<think>Hm.</think>\\boxed{Two.}", "Two.", ("no-focus",)),
        (f"<think>{BLOCK}</think>Two.", "", ("no-box",)),
        (f"<think>{BLOCK}</think>\\boxed{{}}", "", ("empty-box",)),
        (f"<think>{BLOCK}</think>\\boxed{{Two", "", ("open-box",)),
        (f"<think>{BLOCK}</think>\\boxed{{One.}} \\boxed{{Two.}}", "Two.", ("several-boxes",)),
        (f"\\boxed{{Two.}}<think>{BLOCK}</think>", "Two.", ("think-after-box",)),
        (f"<think>{BLOCK}\\boxed{{One.}}</think>\\boxed{{Two.}}", "Two.", ("box-in-think",)),
        (f"<think>{BLOCK}\\boxed{{One.}}</think>", "", ("box-in-think", "no-box")),
        (f"<think>{BLOCK}</think><think>Hm.</think>\\boxed{{Two.}}", "Two.", ("several-thinks",)),
        (f"<think>{BLOCK}", "", ("broken-think", "no-box", "no-focus", "focus-outside")),
        (f"<think>Hm.</think>{BLOCK}\\boxed{{Two.}}", "Two.", ("no-focus", "focus-outside")),
        (GOOD.replace("Style", "Mood"), "Two coppers.", ("no-focus", "unknown-label")),
        (GOOD.replace("Style", "style"), "Two coppers.", ("no-focus", "unknown-label")),
        (GOOD.replace("<think>A fare.", "<think><focus>Memory</focus>"), "Two coppers.", ("no-attribute",)),
        (GOOD.replace(BLOCK, BLOCK * 2), "Two coppers.", ("repeated-label",)),
    ],
)  # fmt: skip
def test_each_fault_has_its_name(reply, said, faults):
    trace = read_focus(reply)
    assert (trace.reply, trace.faults) == (said, faults)


HARMLESS = {"unknown-label", "repeated-label", "no-attribute", "focus-outside"}


def test_the_form_needs_one_thought_one_box_and_one_known_label():
    for reply in (GOOD, GOOD.replace(BLOCK, BLOCK * 2), GOOD.replace(BLOCK, BLOCK + BLOCK.replace("Style", "Mood"))):
        assert read_focus(reply).well_formed
        assert set(read_focus(reply).faults) <= HARMLESS
    for reply in (
        GOOD * 2,
        GOOD + "\\boxed{x}",
        GOOD.replace("Style", "Mood"),
        GOOD.removeprefix("<think>"),
        GOOD[:-1],
    ):
        assert not read_focus(reply).well_formed


def test_braces_within_the_box_belong_to_the_reply_and_the_first_attribute_of_a_label_counts():
    assert read_focus(GOOD.replace("Two coppers.", "a {b {c}} \\boxed{d} e")).reply == "a {b {c}} \\boxed{d} e"
    twice = GOOD.replace(BLOCK, BLOCK + BLOCK.replace("short dry", "long"))
    assert read_focus(twice).attribute("Style") == "short dry sentences"


def test_other_forms_of_an_answer_are_no_box():
    for answer in ("<act>Two.</act>", '{"action": "Two."}', "Action: Two."):
        assert read_focus(f"<think>{BLOCK}</think>{answer}").reply == ""


@given(st.lists(st.sampled_from(["<think>", "</think>", BLOCK, "<focus>", "</focus>", "\\boxed{", "}", "word ", "\n"])))
def test_no_reply_breaks_the_reader_and_a_fault_is_named_where_the_form_is_broken(parts):
    trace = read_focus("".join(parts))
    assert trace.well_formed == (not set(trace.faults) - HARMLESS)
    assert trace.reply or {"no-box", "open-box", "empty-box"} & set(trace.faults)


@pytest.mark.parametrize("part", ["<think>", "<focus>", "<think><focus>", "\\boxed{", "<focus>a</focus>", " "])
def test_long_broken_replies_are_read_in_little_time(part):
    start = time.perf_counter()
    read_focus("<think>" + part * 20_000)
    read_focus("<think>" + part * 20_000 + "</think>")
    assert time.perf_counter() - start < 2


def test_failures_are_counted():
    counts = focus_counts([read_focus(GOOD), read_focus(""), read_focus(GOOD.replace("Style", "Mood"))])
    assert counts == {
        "replies": 3, "well-formed": 1, "no-think": 1, "no-box": 1, "no-focus": 2, "unknown-label": 1,
    }  # fmt: skip


def test_both_variants_show_every_label_and_what_they_ask_for_is_read():
    examples, free = focus_instruction("examples"), focus_instruction("free")
    for label, point in FOCUS_POINTS.items():
        assert f"- {label}: {'; '.join(point.samples)}" in examples
        assert f"- {label}: {point.definition}" in free
    assert len(FOCUS_POINTS) == 10
    for text in (examples, free):
        assert "<focus>LABEL</focus><focus_attr>ATTRIBUTE</focus_attr>" in text
        assert "\\boxed{...}" in text
    with pytest.raises(UserError, match=r"variant 'fre' is unknown .* Did you mean 'free'\?"):
        focus_instruction("fre")


def test_the_prompt_holds_profile_talk_and_instruction():
    talk = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Aye."},
        {"role": "user", "content": "Fare?"},
    ]
    prompt = focus_prompt(ROLE, talk, "free")
    assert prompt[1:] == talk
    assert prompt[0]["content"] == f"{role_profile(ROLE)}\n\n{focus_instruction('free')}"
    for part in ("Ansa", "row the ferry", "Dry.", "The toll.", "No engines."):
        assert part in role_profile(ROLE)
    with pytest.raises(
        UserError, match="role 'ferry': the talk must end with a message of the user, it ends with assist"
    ):
        focus_prompt(ROLE, talk[:2])
    with pytest.raises(UserError, match="ends with nothing"):
        focus_prompt(ROLE, [])

"""Adherence to roles: each measure on dialogues whose faults are known, by equal text and by meaning."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import measure_adherence
from rolecraft.worlds import Markers, Message

DONE = "<CAMEL_TASK_DONE>"


def order(text, given="None"):
    return f"Instruction: {text}\nInput: {given}"


def result(text):
    return f"Solution: {text}\nNext request."


def log(*texts):
    return [Message(place, ("user", "assistant")[place % 2], text) for place, text in enumerate(texts)]


def measured(*texts, **options):
    return measure_adherence(log(*texts), **options)


CLEAN = [order("Add."), result("5"), order("Sort."), result("2, 3")]


class Planted:
    """Unit vectors whose cosines are those of planted angles, by text."""

    def __init__(self, **angles):
        self.angles = angles

    def encode(self, texts):
        angles = np.radians([self.angles.get(text, 1000 + 7 * len(text)) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_a_clean_dialogue_has_no_faults():
    found = measured(*CLEAN, DONE)
    assert (found.instruction_form, found.solution_form, found.form) == (1, 1, 1)
    assert (found.flips, found.slips, found.loop, found.farewells, found.failed) == (0, 0, 0, 0, False)
    assert (found.questions, found.repeats, found.echoes, found.flakes) == (0, 0, 0, 0)
    assert (found.ended, found.early, found.quoted, found.turns_to_end, found.messages) == (True, False, False, 3, 5)


def test_form_is_a_share_of_each_seat_s_messages_and_the_token_alone_is_none():
    found = measured(order("Add."), result("5"), "And now?", "It is 5.", "Hm.", result("6"), DONE)
    assert found.instruction_form == pytest.approx(1 / 3)
    assert found.solution_form == pytest.approx(2 / 3)
    assert found.form == pytest.approx(1 / 2)
    assert found.questions == pytest.approx(1 / 3)
    only = measured(DONE)
    assert math.isnan(only.instruction_form)
    assert math.isnan(only.form)
    assert measured(order("Add.")).form == 1


def test_flips_and_slips_are_told_apart():
    found = measured(order("Add."), order("You add."), "How can I help you?", result("Can you tell me more?"))
    assert (found.flips, found.slips) == (1, 2)
    assert found.failed
    assert measured(*CLEAN, "As an AI, I can help you.", "x").slips == 1


def test_repeats_are_shares_of_successive_instructions():
    found = measured(
        order("Add."), result("5"), order(" add. "), result("6"), order("Sort."), result("7"), order("Add.")
    )
    assert found.repeats == pytest.approx(1 / 3)  # not of the last with the first
    assert math.isnan(measured(order("Add."), result("5"), DONE).repeats)


def test_repeats_go_by_the_cosine_of_what_is_asked():
    texts = (order("a"), result("x"), order("b"), result("yy"), order("c"), result("zzz"))
    near = Planted(**{"a None": 0, "a": 0, "b": 17, "c": 36})  # cosines 0.956 and 0.946
    assert measured(*texts, embedder=near).repeats == pytest.approx(1 / 2)
    assert measured(*texts, embedder=near, similar=0.94).repeats == 1
    assert measured(*texts).repeats == 0


def test_an_echo_says_the_instruction_again():
    found = measured(order("Add 2 and 3."), result("Add 2 and 3."), order("Sort."), result("2, 3"))
    assert found.echoes == pytest.approx(1 / 2)
    assert measured(order("a"), result("b"), embedder=Planted(a=0, b=3)).echoes == 1


def test_flakes_are_promises():
    found = measured(order("Add."), result("I will do that."), order("Sort."), result("2, 3"))
    assert found.flakes == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("texts", "loop"),
    [
        (["a", "b", "a", "b"], 2),
        (["a", "b", "a", "b", "a"], 3),
        (["a", "b", "a", "c"], 0),
        (["a", "b", "c", "b", "d", "b"], 0),  # one seat alone
        (["x", "y", "a", "b", "a", "b", "a", "b", "z", "w"], 4),
        (["a", "b", "c", "d", "a", "b", "c", "d", "a"], 5),
        (["a", "b", "c", "d", "a", "b"], 0),  # it has not gone round yet
        (["", "", "", ""], 0),
        (["a"], 0),
        ([], 0),
    ],
)
def test_a_loop_is_the_longest_stretch_that_repeats_the_one_before(texts, loop):
    assert measured(*texts).loop == loop


@given(st.lists(st.sampled_from("abc"), max_size=14))
def test_a_loop_is_what_its_definition_says(texts):
    best = 0
    for start in range(len(texts)):
        for end in range(start + 1, len(texts) + 1):
            for period in range(2, end - start + 1, 2):
                if start >= period and all(texts[i] == texts[i - period] for i in range(start, end)):
                    best = max(best, end - start)
    assert measured(*texts).loop == best


def test_farewells_are_the_longest_run_of_turns():
    found = measured("a", "thanks", "b", "Bye", "c", "d", "welcome", "e")
    assert found.farewells == 2
    assert measured("a", "amen", words=["amen"]).farewells == 1


@pytest.mark.parametrize(
    ("texts", "early", "quoted", "turns"),
    [
        ([DONE], True, False, 1),
        ([order("Add."), "no form", DONE], True, False, 2),
        ([order("Add."), result("5"), DONE], False, False, 2),
        ([order("Add."), result("5"), f"{order('Sort.')} {DONE}"], False, True, 2),
        ([f"All is well. {DONE}", result("5"), DONE], True, True, 1),  # the first counts
    ],
)
def test_the_end(texts, early, quoted, turns):
    found = measured(*texts)
    assert (found.ended, found.early, found.quoted, found.turns_to_end) == (True, early, quoted, turns)


def test_how_many_solutions_an_end_needs_can_be_said():
    assert measured(*CLEAN, DONE, least=3).early
    assert not measured(*CLEAN, DONE, least=2).early


def test_without_an_end_there_is_no_time_of_it():
    found = measured(order("Add."), f"Solution: {DONE}\nNext request.")
    assert not found.ended
    assert not found.early
    assert math.isnan(found.turns_to_end)
    assert found.row()["turns_to_end"] is None
    assert found.row()["ended"] == 0.0


def test_nothing_said_gives_a_row_of_nothing():
    row = measured().row()
    assert row["messages"] == 0
    assert row["failed"] == 0.0
    assert all(
        row[name] is None for name in ("form", "instruction_form", "solution_form", "repeats", "echoes", "flakes")
    )


def test_other_markers_count_where_they_are_given():
    german = Markers("Anweisung:", "Eingabe:", "Keine", "Lösung:", "Nächste Bitte.", "<FERTIG>")
    texts = ["Anweisung: x\nEingabe: Keine", "Lösung: y\nNächste Bitte.", "<FERTIG>"]
    assert measured(*texts, markers=german).form == 1
    assert measured(*texts, markers=german).ended
    assert measured(*texts).form == 0


def test_bad_input():
    with pytest.raises(UserError, match="'critic' speaks in this one"):
        measure_adherence([Message(0, "critic", "x")])
    with pytest.raises(UserError, match="similar must lie in"):
        measured("a", similar=1.5)


def test_minilm_finds_the_same_said_twice_and_not_what_is_only_alike():
    from rolecraft.models import Embedder

    texts = [order("Write a poem about the sea"), result("x"), order("Write a poem about the sea."), result("y")]
    other = [order("Write a poem about the sea"), result("x"), order("Write a recipe for the soup"), result("y")]
    embedder = Embedder.load()
    assert measured(*texts, embedder=embedder).repeats == 1
    assert measured(*texts).repeats == 0
    assert measured(*other, embedder=embedder).repeats == 0

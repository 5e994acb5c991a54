import math

import pytest

from rolecraft.errors import GridError
from rolecraft.screening import Adaptive, Cell, Grid, Outcome, Screen, decide
from tests.screening.planted import CURVES, grid, outcome, table


def run(screen: Screen) -> Screen:
    while cells := screen.ask():
        screen.tell(cells, [outcome(cell) for cell in cells])
    return screen


def test_the_grid_is_complete_and_free_of_repeats():
    layout = grid(questions=3, seeds=(0, 1))
    cells = layout.cells()
    assert len(cells) == len(set(cells)) == len(CURVES) * 3 * 2 * (2 + 4 * 2)
    baselines = {cell.answer_key for cell in cells if cell.arm == "baseline"}
    assert len(baselines) == 3 * 2, "the baseline's answers are shared by all roles"


def test_every_cell_is_asked_once():
    screen = Screen(grid(questions=4))
    cells = screen.ask()
    screen.tell(cells[:7], [outcome(cell) for cell in cells[:7]])
    assert screen.ask() == cells[7:]
    assert run(screen).ask() == []
    assert screen.saved == 0


def test_the_first_outcome_of_a_cell_stays():
    screen = Screen(grid(questions=4))
    cell = screen.ask()[0]
    screen.tell([cell], [Outcome("first", {})])
    screen.tell([cell], [Outcome("second", {})])
    assert screen.outcomes[cell].answer == "first"


def test_unsteerable_roles_are_asked_for_prompt_and_baseline_only():
    screen = Screen(grid(("rising", "flat"), questions=4), unsteerable={"flat"})
    assert {cell.arm for cell in screen.ask() if cell.role == "flat"} == {"prompted", "baseline"}
    assert run(screen).verdicts().set_index("role").loc["flat"]["reason"] == "not_steered"


def test_adaptive_agrees_with_the_full_grid_and_saves():
    layout = grid(questions=24)
    adaptive = run(Screen(layout, adaptive=Adaptive(round_questions=6)))
    full = decide(table(layout)).set_index("role")
    found = adaptive.verdicts().set_index("role")
    assert list(found["verdict"]) == list(full["verdict"])
    passed = full["verdict"] == "PASS"
    assert list(found["strength"][passed]) == list(full["strength"][passed])
    assert adaptive.saved > 0.3


def test_adaptive_asks_the_same_when_resumed():
    layout = grid(questions=12)
    whole = run(Screen(layout, adaptive=Adaptive(4)))
    part = Screen(layout, adaptive=Adaptive(4))
    for _ in range(2):
        cells = part.ask()
        part.tell(cells[: len(cells) // 2], [outcome(cell) for cell in cells[: len(cells) // 2]])
    resumed = run(Screen(layout, adaptive=Adaptive(4), outcomes=dict(part.outcomes)))
    assert resumed.outcomes == whole.outcomes


def test_a_short_last_round_joins_the_one_before():
    assert [len(cut) for cut in Adaptive(4).rounds(tuple("abcdefghij"))] == [4, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strengths": (1.0, math.nan)}, "finite"),
        ({"strengths": (0.0, 1.0)}, "other than 0"),
        ({"strengths": (1.0, 1.0)}, "more than once"),
        ({"strengths": ()}, "strengths: expected at least one"),
        ({"questions": ()}, "questions: expected at least one"),
        ({"roles": ("a", "a")}, "roles: a is given more than once"),
        ({"controls": ("axes",)}, "Did you mean 'axis'"),
        ({"controls": ("shuffled",), "roles": ("a",)}, "at least two roles"),
    ],
)
def test_a_grid_that_cannot_be_laid_out_is_refused(change, message):
    parts = {"roles": ("a", "b"), "strengths": (1.0,), "controls": (), "questions": ("q",), "seeds": (0,)} | change
    with pytest.raises(GridError, match=message):
        Grid(**parts)


def test_tell_refuses_what_was_not_asked():
    screen = Screen(grid(questions=3))
    with pytest.raises(GridError, match="got 1 cells and 0 outcomes"):
        screen.tell(screen.ask()[:1], [])
    with pytest.raises(GridError, match="not in this screen's grid"):
        screen.tell([Cell("nobody", "role", 1.0, "q000", 0)], [Outcome("", {})])

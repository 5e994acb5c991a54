"""The report's words and the terminal's table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rolecraft.measures import DIMENSIONS
from rolecraft.report import terminal_table
from rolecraft.report._words import (
    DIMENSIONS as DIMENSION_WORDS,
)
from rolecraft.report._words import (
    REASONS,
    duration,
    headline,
    interval,
    number,
    percent,
    seeds_text,
    signed,
    split_reasons,
    strength_text,
)
from rolecraft.screening._verdict import CONTROL_ARMS
from tests.report import planted


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((9, 2, 1), "9 of 12 roles pass by steering, 2 only by prompt, and 1 is flagged."),
        ((9, 0, 3), "9 of 12 roles pass by steering; 3 are flagged."),
        ((1, 2, 0), "1 of 3 roles passes by steering, 2 only by prompt."),
        ((0, 0, 1), "The one role is flagged."),
        ((0, 0, 2), "None of 2 roles pass by steering; 2 are flagged."),
        ((4, 0, 0), "All 4 roles pass by steering."),
        ((1, 0, 0), "The one role passes by steering."),
        ((0, 0, 0), "No role has been decided yet."),
    ],
)
def test_headline(counts: tuple[int, int, int], words: str) -> None:
    assert headline(dict(zip(("PASS", "PASS_PROMPT_ONLY", "FLAG"), counts, strict=True))) == words


def test_numbers_as_printed() -> None:
    nothing = [None, float("nan"), float("inf"), "word", True]
    assert [number(value) for value in nothing] == ["–"] * 5
    assert [signed(v) for v in (3.14, -3.14, -0.01, 0.04)] == ["+3.1", "−3.1", "0.0", "0.0"]
    assert (number(-2.5, 2), percent(0.125), strength_text(-1.0), strength_text(2.50)) == ("−2.50", "12%", "−1", "2.5")
    assert interval(-1, 2) == "[−1.0, 2.0]"
    assert interval(float("nan"), 2) == ""
    assert [duration(s) for s in (4.25, 45, 200, 9000)] == ["4.2 s", "45 s", "3.3 min", "2.5 h"]


def test_every_code_of_the_rule_is_explained() -> None:
    codes = [*REASONS, *(f"no_gain_over_{arm}" for arm in CONTROL_ARMS), *(f"declines_{name}" for name in DIMENSIONS)]
    for code in codes:
        (reason,) = split_reasons(code)
        assert reason.title != "Could not be steered"
        assert "" not in (reason.meaning, reason.remedy)
    assert tuple(DIMENSION_WORDS) == DIMENSIONS


def test_reasons_are_split_with_their_detail() -> None:
    found = split_reasons("too_few_pairs: 1 of 16; 4 required; repetitive; repetitive")
    assert [reason.code for reason in found] == ["too_few_pairs", "repetitive"]
    assert found[0].meaning.endswith("1 of 16; 4 required")
    (plain,) = split_reasons("no instructions and no questions")
    assert plain.meaning == "no instructions and no questions."
    assert split_reasons("") == []


def test_controls_and_dimensions_are_told_together() -> None:
    declines = "; ".join(f"declines_{name}" for name in DIMENSIONS)
    found = split_reasons(f"no_gain_over_baseline; no_gain_over_axis; no_gain_over_random; {declines}")
    assert [reason.title for reason in found] == [
        "No clear gain over the unsteered model",
        "Not clearly better than controls: assistant axis, random direction",
        "Falls below the unsteered model: all six dimensions",
    ]
    (one,) = split_reasons("declines_motivation")
    assert one.title == "Falls below the unsteered model: motivation"


def test_seeds_in_words() -> None:
    assert seeds_text("PASS(1.5), PASS_PROMPT_ONLY, FLAG") == "steers at 1.5, prompt only, flagged"
    assert seeds_text("") == ""


def test_terminal_table_lists_every_role_in_order() -> None:
    results = planted.results(12)
    out = io.StringIO()
    Console(file=out, width=80).print(terminal_table(results))
    lines = out.getvalue().splitlines()
    listed = [
        line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in set(results.verdicts["role"])
    ]
    assert len(listed) == 12
    assert listed[0] == "peaked-1"
    first = next(line for line in lines if "peaked-1 " in line)
    assert all(word in first for word in ("steers", " 1.5 ", " +"))
    assert len([line for line in lines if line.strip()]) == 2 + 12 + 1  # head, rule, one line per role, the sentence
    assert "6 of 12 roles pass by steering, 4 only by prompt, and 2 are flagged." in out.getvalue()


def test_terminal_table_takes_reasons_as_text() -> None:
    results = planted.results(3, kinds=("rising",), seeds=(0,))
    verdicts = results.verdicts.assign(reason="[bold]odd[/nothing]")
    out = io.StringIO()
    Console(file=out, width=160).print(terminal_table(type(results)(**vars(results) | {"verdicts": verdicts})))
    assert "[bold]odd[/nothing]" in out.getvalue()

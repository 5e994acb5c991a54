"""Text health in closed form."""

from __future__ import annotations

import pytest

from rolecraft.measures import text_health
from rolecraft.measures._health import words


def test_words_keep_inner_apostrophes_and_hyphens() -> None:
    assert words("Don’t stop-start, SAYS  he: 3 times!") == ["don't", "stop-start", "says", "he", "3", "times"]


def test_distinct_words_are_sound() -> None:
    health = text_health("the quick brown fox jumps over a lazy dog")
    assert (health.unique_bigram_ratio, health.repeated_trigrams, health.words) == (1.0, 0.0, 9)
    assert health.max_trigram_share == pytest.approx(1 / 7)
    assert not health.degenerate
    assert not health.leakage


def test_a_loop_in_closed_form() -> None:
    health = text_health("aye matey " * 10)  # 20 words: 2 of 19 bigrams, 2 of 18 trigrams are distinct
    assert health.unique_bigram_ratio == pytest.approx(2 / 19)
    assert health.max_trigram_share == pytest.approx(9 / 18)
    assert health.repeated_trigrams == pytest.approx(16 / 18)
    assert health.degenerate


@pytest.mark.parametrize(
    ("text", "degenerate"),
    [
        ("", True),
        ("  \n", True),
        ("?!", True),
        ("Aye.", False),
        ("no no", False),
        (" ".join(f"word{i}" for i in range(500)), False),
        (" ".join(f"word{i}" for i in range(501)), True),
        ("ha" * 12, True),
        ("ha" * 11, False),
        ("a b a b a b", True),
        ("one two three " * 3 + "four five six seven eight nine ten eleven twelve thirteen", False),
    ],
)
def test_what_counts_as_degenerate(text: str, degenerate: bool) -> None:
    assert text_health(text).degenerate is degenerate


def test_two_unlike_pairs_are_not_below_one_half() -> None:
    assert text_health("a b a b").unique_bigram_ratio == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("text", "leaks"),
    [
        ("As an AI language model, I cannot sail.", True),
        ("I'm an AI, matey.", True),
        ("I don’t have access to the weather.", True),
        ("As a text-based assistant I have no ship.", True),
        ("How can I help you today?", True),
        ("As an air balloon pilot, I have access to the clouds.", False),
        ("The crew has an aide.", False),
    ],
)
def test_leakage_matches_whole_words(text: str, leaks: bool) -> None:
    assert text_health(text).leakage is leaks

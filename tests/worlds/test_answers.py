import pytest

from rolecraft.errors import UserError
from rolecraft.worlds import Graded, accuracy, clean, grade


@pytest.mark.parametrize(
    ("raw", "strict", "compatible"),
    [
        ("The answer is (B).", "B", "B"),
        ("Because it cannot be A, it is C", "A", "B"),  # compatible: the B of `Because`
        ("A coin lies there, so C", "C", "A"),
        ("A is right", "A", "A"),
        ("none of them", "", ""),
    ],
)
def test_a_choice_is_a_letter_that_stands_alone_in_strict_mode(raw, strict, compatible):
    assert clean(raw, "choice") == strict
    assert clean(raw, "choice", mode="compatible") == compatible


def test_a_choice_outside_the_letters_is_not_found():
    assert clean("D", "choice", letters="ABC") == ""
    assert clean("D", "choice", letters="ABCD") == "D"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("It is 1,234.50 in all", "1234.5"),
        ("-7.", "-7"),
        ("−7", "-7"),
        ("$12.00 each", "12"),
        ("12 kg", "12"),
        ("0.12345678", "0.123456"),
        ("007", "7"),
        ("-0", "0"),
        ("no digits", ""),
    ],
)
def test_numbers_are_read_and_made_canonical(raw, expected):
    assert clean(raw, "number") == expected


def test_a_unit_glued_to_a_number_needs_the_flag():
    assert clean("12kg", "number") == ""
    assert clean("12kg", "number", strip_units=True) == "12"
    assert clean("12kg", "number", mode="compatible") == "12"


def test_yes_and_no_need_word_boundaries_in_strict_mode():
    assert clean("I do not know. Yes!", "yes-no") == "yes"
    assert clean("I do not know. Yes!", "yes-no", mode="compatible") == "no"  # the `no` of `not`


def test_a_string_is_what_stands_between_the_last_quotes():
    assert clean('First "ab", then "N-a."', "string") == "na"
    assert clean('na"', "string") == "na"
    assert clean("I think it is na", "string") == ""
    assert clean("it is na", "string", mode="compatible") == "itisna"


def test_what_cannot_be_parsed_counts_as_wrong_and_as_unparsed():
    grades = [grade("yes", "yes", "yes-no"), grade("", "yes", "yes-no"), grade("no", "yes", "yes-no")]
    assert grades[1] == Graded("", "", False)
    assert accuracy(grades) == (1 / 3, 1 / 3)
    with pytest.raises(UserError, match="no graded answers"):
        accuracy([])


def test_unknown_types_and_modes_are_refused():
    with pytest.raises(UserError, match="Did you mean 'yes-no'"):
        clean("yes", "yes_no")
    with pytest.raises(UserError, match="strict or compatible"):
        clean("yes", "yes-no", mode="loose")

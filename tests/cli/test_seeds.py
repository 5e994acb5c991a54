"""Seeds as a user types them."""

import pytest

from rolecraft._cli._systems import _seeds
from rolecraft.errors import UserError


@pytest.mark.parametrize(
    ("text", "seeds"), [("", []), ("3", [3]), ("0,1,2", [0, 1, 2]), ("101-103, 7", [101, 102, 103, 7]), ("5-5", [5])]
)
def test_numbers_and_ranges(text, seeds):
    assert _seeds(text) == seeds


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "1,,2", "-1", "1.5"])
def test_what_is_no_seed_is_named(text):
    with pytest.raises(UserError, match=r"--seeds .*0,1,2 or 0-2"):
        _seeds(text)

"""Commanded against achieved: agents of known obedience."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rolecraft.control import Condition, commanded_against_achieved, commands_met
from rolecraft.errors import UserError


def test_obedience_is_recovered() -> None:
    rng = np.random.default_rng(0)
    asked = np.repeat([0.2, 0.6, 1.0], 200)
    obeys = commanded_against_achieved(asked, 0.1 + 0.5 * asked + 0.05 * rng.normal(size=600))
    assert obeys.slope == pytest.approx(0.5, abs=0.03)
    assert obeys.monotone
    assert obeys.rank > 0.8
    assert [level.achieved.estimate for level in obeys.levels] == pytest.approx([0.2, 0.4, 0.6], abs=0.02)
    ignores = commanded_against_achieved(asked, 0.5 + 0.05 * rng.normal(size=600))
    assert abs(ignores.slope) < 0.03
    assert abs(ignores.rank) < 0.15


def test_errors_and_text() -> None:
    found = commanded_against_achieved([1, 1, 2], [1.5, 0.5, 2.0])
    assert [level.error for level in found.levels] == [0.5, 0]
    assert found.error == pytest.approx(1 / 3)
    assert "slope" in str(found)
    assert found.rows()[1] == {
        "commanded": "2", "achieved": 2.0, "low": None, "high": None, "error": 0.0, "episodes": 1,
    }  # fmt: skip


def test_commands_without_numbers() -> None:
    left, right = (Condition.one_of("skill", place, 2, name) for place, name in enumerate(("left", "right")))
    found = commands_met([left, right, left, left & ~right], [1, 0, 0, 1])
    assert [(level.commanded, level.achieved.estimate) for level in found.levels] == [
        ("left", 0.5), ("right", 0.0), ("(left & ~right)", 1.0),
    ]  # fmt: skip
    assert "slope" not in str(found)


def test_units_are_resampled_together() -> None:
    met = np.repeat([0, 1], 50)
    alone = commands_met(["a"] * 100, met).levels[0].achieved
    together = commands_met(["a"] * 100, met, units=np.repeat([0, 1], 50).tolist()).levels[0].achieved
    assert together.n == 2
    assert together.high - together.low > 3 * (alone.high - alone.low)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: commanded_against_achieved([1], [1, 2]), "one shape"),
        (lambda: commanded_against_achieved([], []), "n >= 1"),
        (lambda: commanded_against_achieved([1], [np.nan]), "finite"),
        (lambda: commanded_against_achieved([1], [1], units=[1, 2]), "a unit per episode"),
        (lambda: commands_met(["a"], [2]), "from 0 to 1"),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()

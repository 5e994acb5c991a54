from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result
from rolecraft.systems.learning import _spiral_negotiation as negotiation
from rolecraft.systems.learning._spiral_negotiation import NegotiationConfig, run_negotiation, verdict_negotiation
from rolecraft.systems.learning.spiral import RULES


def test_arms_are_run_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = NegotiationConfig(seeds=(1,), updates=5, games=4, hidden=16, test_games=4, turns=2)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_negotiation(config, store)
        monkeypatch.setattr(negotiation, "make_negotiation", lambda *given: pytest.fail("made again"))
        assert run_negotiation(config, store).rows == result.rows
    assert [row["arm"] for row in result.rows] == list(RULES)
    for row in result.rows:
        assert 0 <= row["trades"] <= 1, "in two turns one offer can be accepted"
        assert row["advantage_square"] >= 0
    # The same weights and games: rules differ only after the first update.
    assert len({row["skill_0"] - row["gain_0"] for row in result.rows}) == 1


def rows(rae: list[float], shared: list[float]) -> Result:
    same = {"early": 0.6, "late": 0.1, "gain_0": 0.0, "gain_1": 0.0, "first": 0.0}
    squares = {"none": [1.0, 1.0, 1.0], "shared": shared, "rae": rae}
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "advantage_square": value, **same}
            for arm, values in squares.items()
            for seed, value in enumerate(values)
        )
    )


@pytest.mark.parametrize(
    ("rae", "shared", "expected"),
    [
        ([0.4, 0.5, 0.45], [1.0, 1.0, 0.99], "reproduced"),
        ([0.4, 0.5, 0.45], [0.4, 0.5, 0.45], "not reproduced"),
        ([0.99, 1.0, 0.98], [1.0, 1.0, 0.99], "not reproduced"),
        ([0.4, 0.7, 0.6], [1.0, 1.0, 0.99], "inconclusive"),
    ],
)
def test_the_verdict(rae: list[float], shared: list[float], expected: str) -> None:
    assert verdict_negotiation(rows(rae, shared)).verdict == expected


def test_sizes_that_compare_nothing_are_refused() -> None:
    for bad in ({"updates": 4}, {"games": 0}, {"turns": 1}, {"test_games": 0}):
        with pytest.raises(UserError, match="updates must be at least 5"):
            NegotiationConfig(**bad)
    with pytest.raises(UserError, match="decay"):
        NegotiationConfig(decay=1.0)

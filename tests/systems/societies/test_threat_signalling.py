"""System 095: the game and its conditions, both studies small, and their verdicts on made-up rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.societies import Dilemma, evolve, small_mutation
from rolecraft.systems import Result
from rolecraft.systems.societies._threat_abm import AbmConfig, run_abm, verdict_abm
from rolecraft.systems.societies._threat_game import (
    COOPERATORS,
    STRATEGIES,
    UNSIGNALLED,
    conditions,
    cooperates,
    interaction_tables,
    threat_game,
)
from rolecraft.systems.societies.threat_signalling import (
    StationaryConfig,
    run_stationary,
    verdict_stationary,
)

COST = st.floats(0, 5)
PILOT = {
    (1.5, 0.5): (0.00, 0.10, 0.09, 0.07, 0.06, 0.03),
    (1.0, 1.0): (0.00, 0.17, 0.14, 0.10, 0.08, 0.05),
    (1.0, 3.0): (0.02, 0.61, 0.53, 0.44, 0.37, 0.22),
    (0.25, 4.0): (0.34, 0.73, 0.67, 0.60, 0.53, 0.43),
}
"""Per epsilon and delta: cooperation without signals, then by price, as measured apart from this code."""


def test_the_conditions_at_their_edges() -> None:
    """With R = 1, S = -1, T = 2, P = 0 the gap T + P - R - S is 2, and (R - P) / 2 is 0.5."""
    assert conditions(Dilemma(), 1.0, 3.5, 0.3) == {"SP>D": True, "TP>D": False, "TP>FD": True}
    assert conditions(Dilemma(), 1.0, 3.5, 0.2) == {"SP>D": True, "TP>D": True, "TP>FD": True}
    assert conditions(Dilemma(), 1.0, 2.9, 0.6) == {"SP>D": False, "TP>D": False, "TP>FD": False}


def test_the_payoffs_are_those_of_the_rule() -> None:
    """R = 1, S = -1, T = 2, P = 0 with epsilon 0.5, delta 1.5, theta 0.25, every entry by hand."""
    expected = [
        [1, -1, 1, 1, -1],
        [2, 0, 2 - 1.5, 2 - 1.5, 0],
        [1, -1 - 0.5, 1, 1, -1 - 0.5],
        [1 - 0.25, -1 - 0.5 - 0.25, 1 - 0.25, 1 - 0.25, 1 - 0.25],
        [2, 0, 2 - 1.5, 1, 0],
    ]
    assert threat_game(Dilemma(), 0.5, 1.5, 0.25).payoffs == pytest.approx(np.array(expected))


@given(COST, COST, st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_the_closed_conditions_are_risk_dominance(epsilon: float, delta: float, theta: float) -> None:
    game = threat_game(Dilemma(), epsilon, delta, theta)
    for pair, holds in conditions(Dilemma(), epsilon, delta, theta).items():
        margin = game.risk_margin(*pair.split(">"))
        if abs(margin) > 1e-9:
            assert holds == (margin > 0), pair
    assert game.risk_margin("FD", "D") == 0, "D and FD are neutral to each other"


@given(COST, COST)
@settings(max_examples=20, deadline=None)
def test_fear_of_nothing_is_defection(epsilon: float, delta: float) -> None:
    """Without TP a fearful defector is D: the same payoffs, shares, and runs with the two swapped."""
    game = threat_game(Dilemma(), epsilon, delta, 0.0, UNSIGNALLED)
    d, fd = game.index("D"), game.index("FD")
    assert (game.payoffs[d] == game.payoffs[fd]).all()
    assert (game.payoffs[:, d] == game.payoffs[:, fd]).all()
    chain = small_mutation(game, 60, 0.1)
    assert chain.share("D") == pytest.approx(chain.share("FD"), abs=1e-12)
    without = threat_game(Dilemma(), epsilon, delta, 0.0, ("D", "SP"))
    fearful = game.restrict(("FD", "SP"))
    runs = [evolve(each, size=10, beta=0.5, mutation=0.05, steps=500, seed=3) for each in (without, fearful)]
    assert (runs[0].shares == runs[1].shares).all()


@pytest.mark.parametrize(("costs", "expected"), PILOT.items())
def test_cooperation_comes_near_the_pilot(costs: tuple[float, float], expected: tuple[float, ...]) -> None:
    games = [threat_game(Dilemma(), *costs, 0.0, ("D", "C", "SP"))]
    games += [threat_game(Dilemma(), *costs, theta) for theta in (0.0, 0.1, 0.25, 0.4, 0.6)]
    found = [small_mutation(game, 100, 0.1).share(*COOPERATORS) for game in games]
    assert found == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("costs", "message"),
    [((-1, 1, 0), "epsilon"), ((1, -1, 0), "delta"), ((1, 1, -0.1), "theta"), ((math.nan, 1, 0), "epsilon")],
)
def test_negative_costs_are_refused(costs: tuple[float, float, float], message: str) -> None:
    with pytest.raises(UserError, match=f"{message}: .*at least 0"):
        threat_game(Dilemma(), *costs)


def test_odd_populations_are_warned_of_or_refused() -> None:
    with pytest.warns(UserWarning, match="without D"):
        threat_game(Dilemma(), 1, 1, 0, ("C", "SP"))
    with pytest.raises(UserError, match="strategy 'X'"):
        threat_game(Dilemma(), 1, 1, 0, ("D", "X"))
    with pytest.raises(UserError, match="T > R does not hold"):
        StationaryConfig(temptation=0.5)
    with pytest.raises(UserError, match="one value per setting"):
        StationaryConfig(epsilon=(1.0,))
    with pytest.raises(UserError, match="from low to high"):
        StationaryConfig(theta=(0.5, 0.1))
    with pytest.raises(UserError, match="at least 2 agents, got 1"):
        StationaryConfig(size=1)
    with pytest.raises(UserError, match="square lattice"):
        AbmConfig(nodes=401)
    with pytest.raises(UserError, match="mutation"):
        AbmConfig(mutation=(0.001, 0.01))


def test_who_does_what_to_whom() -> None:
    tables = interaction_tables(STRATEGIES)
    assert not cooperates("FD", "SP")
    assert cooperates("FD", "TP")
    assert tables["acts"][STRATEGIES.index("FD")].tolist() == [0, 0, 0, 1, 0]
    assert tables["punished"][STRATEGIES.index("TP")].tolist() == [0, 1, 0, 0, 0], "who fears is not punished"
    assert tables["punished"][STRATEGIES.index("SP")].tolist() == [0, 1, 0, 0, 1]
    assert tables["signals"].sum() == 5


def test_the_stationary_study_and_its_resuming(tmp_path: Path) -> None:
    config = StationaryConfig()
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_stationary(config, store)
        assert run_stationary(config, store).rows == result.rows
    found = verdict_stationary(result)
    assert len(result.rows) == 7 * 4
    assert found.verdict == "reproduced"
    assert found.control is not None
    assert found.control.high <= 0


@pytest.mark.parametrize(
    ("arm", "metric", "value"),
    [
        ("theta=0", "cooperation", 0.0),  # (a) signals do not raise cooperation
        ("theta=0.4", "cooperation", 0.99),  # (b) it does not fall with the price
        ("theta=0.6", "FD", 0.0),  # (c) fear does not pay beyond (R - P) / 2
        ("unsignalled", "FD", 0.0),  # FD is no second D
        ("unsignalled", "cooperation", 0.99),  # the control helps as well
    ],
)
def test_every_part_of_the_claim_can_fail(tmp_path: Path, arm: str, metric: str, value: float) -> None:
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        rows = [dict(row) for row in run_stationary(StationaryConfig(), store).rows]
    for row in rows:
        if row["arm"] == arm:
            row[metric] = value
    assert verdict_stationary(Result(tuple(rows))).verdict == "not reproduced"


def test_the_simulation_small(tmp_path: Path) -> None:
    config = AbmConfig(
        seeds=(1,), epsilon=(1.0,), delta=(3.0,), theta=(0.0, 0.6), mutants=50, nodes=9, sweeps=20, size=10
    )
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_abm(config, store)
        assert run_abm(config, store).rows == result.rows
    assert len(result.rows) == 4 * 3
    for row in result.rows:
        assert sum(row.get(name, 0.0) for name in STRATEGIES) == pytest.approx(1)
        assert 0 <= row["acts"] <= 1
        assert row["off"] == pytest.approx(row["cooperation"] - row["exact"])
        assert row["signals"] == pytest.approx(row.get("TP", 0.0), abs=1e-5)


def abm_rows(off: float = 0.0, gain: float = 0.4, control: float = 0.0, spread: float = 0.01) -> Result:
    rows = []
    for place in ("mixed,mu=0.01", "mixed,mu=0.0001", "lattice"):
        for seed in range(6):
            for arm, level in (("without", 0.0), ("unsignalled", control), ("theta=0", gain), ("theta=0.6", gain / 2)):
                value = level + spread * (seed - 2.5)
                row = {"arm": arm, "seed": seed, "unit": f"{place}:x", "cooperation": value, "off": off + value - level}
                rows.append(row | ({"theta": float(arm[6:])} if "=" in arm else {"theta": 0.0}))
    for row in rows:
        if row["arm"] != "without":
            row["cooperation"] += 0.002 * (row["seed"] % 3 - 1)
    return Result(tuple(rows))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"off": 0.2}, "not reproduced"),
        ({"gain": -0.1}, "not reproduced"),
        ({"control": 0.3}, "not reproduced"),
        ({"spread": 0.08}, "inconclusive"),
    ],
)
def test_the_simulations_verdict(changes: dict[str, float], expected: str) -> None:
    assert verdict_abm(abm_rows(**changes)).verdict == expected

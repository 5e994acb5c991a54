"""Equilibria of games whose solutions are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control.tabular import (
    exploitability,
    solve_zero_sum,
    stackelberg,
    support_enumeration,
    symmetric_equilibria,
)
from rolecraft.errors import UserError

ROCK = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
SEXES = (np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 2.0]]))
"""Battle of the sexes: two pure equilibria, and (2/3, 1/3) against (1/3, 2/3)."""
seeds = st.integers(0, 10_000)


def test_zero_sum_games_by_hand() -> None:
    found = solve_zero_sum(ROCK)
    assert found.row_value == pytest.approx(0, abs=1e-9)
    assert found.row == pytest.approx([1 / 3] * 3)
    assert found.column == pytest.approx([1 / 3] * 3)
    skewed = solve_zero_sum([[3.0, -1.0], [-2.0, 1.0]])
    assert skewed.row == pytest.approx([3 / 7, 4 / 7])
    assert skewed.column == pytest.approx([2 / 7, 5 / 7])
    assert (skewed.row_value, skewed.column_value) == pytest.approx((1 / 7, -1 / 7))
    saddle = solve_zero_sum([[4.0, 2.0, 3.0], [1.0, 0.0, 5.0]])
    assert (saddle.row.tolist(), saddle.row_value) == ([1.0, 0.0], 2.0)


@given(seeds, st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_no_one_gains_by_leaving_a_solution(seed: int, m: int, n: int) -> None:
    payoffs = np.random.default_rng(seed).normal(size=(m, n))
    found = solve_zero_sum(payoffs)
    assert exploitability(found.row, found.column, payoffs) == pytest.approx(0, abs=1e-7)
    assert (found.row @ payoffs).min() == pytest.approx(found.row_value, abs=1e-7)
    assert found.row_value == pytest.approx(-solve_zero_sum(-payoffs.T).row_value, abs=1e-7)


class TestSupports:
    def test_the_battle_of_the_sexes_has_three(self) -> None:
        found = support_enumeration(*SEXES)
        assert [each.row.tolist() for each in found[:2]] == [[1.0, 0.0], [0.0, 1.0]]
        assert found[2].row == pytest.approx([2 / 3, 1 / 3])
        assert found[2].column == pytest.approx([1 / 3, 2 / 3])
        assert (found[2].row_value, found[2].column_value) == pytest.approx((2 / 3, 2 / 3))
        assert len(found) == 3

    def test_the_prisoners_have_one(self) -> None:
        payoffs = np.array([[3.0, 0.0], [5.0, 1.0]])
        found = support_enumeration(payoffs, payoffs.T)
        assert [(each.row.tolist(), each.column.tolist(), each.row_value) for each in found] == [([0, 1], [0, 1], 1.0)]

    def test_coordination_on_three_has_seven(self) -> None:
        assert len(support_enumeration(np.eye(3), np.eye(3))) == 7

    @given(seeds)
    @settings(max_examples=20, deadline=None)
    def test_random_games_have_an_odd_number_and_none_can_be_exploited(self, seed: int) -> None:
        a, b = np.random.default_rng(seed).normal(size=(2, 3, 3))
        found = support_enumeration(a, b)
        assert len(found) % 2 == 1  # Wilson 1971
        for each in found:
            assert exploitability(each.row, each.column, a, b) == pytest.approx(0, abs=1e-6)
        zero = support_enumeration(a, -a)
        assert zero[0].row_value == pytest.approx(solve_zero_sum(a).row_value, abs=1e-7)


class TestStackelberg:
    def test_commitment_helps(self) -> None:
        """The textbook game of Conitzer and Sandholm: alone 2 at equilibrium, 3 by a pure and 3.5 by a mixed law."""
        found = stackelberg([[2.0, 4.0], [1.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]])
        assert found.row == pytest.approx([0.5, 0.5])
        assert found.column.tolist() == [0.0, 1.0]
        assert found.row_value == pytest.approx(3.5)

    @given(seeds)
    @settings(max_examples=15, deadline=None)
    def test_a_leader_earns_at_least_its_best_equilibrium_and_no_grid_beats_it(self, seed: int) -> None:
        a, b = np.random.default_rng(seed).normal(size=(2, 2, 3))
        value = stackelberg(a, b).row_value
        assert value >= max(each.row_value for each in support_enumeration(a, b)) - 1e-7
        laws = np.stack([np.linspace(0, 1, 201), np.linspace(1, 0, 201)], axis=1)
        answers = (laws @ b).argmax(1)
        best = max(float(law @ a[:, answer]) for law, answer in zip(laws, answers, strict=True))
        assert value >= best - 1e-7

    def test_in_zero_sum_games_it_is_the_value(self) -> None:
        payoffs = np.random.default_rng(0).normal(size=(3, 4))
        assert stackelberg(payoffs, -payoffs).row_value == pytest.approx(solve_zero_sum(payoffs).row_value)


def test_exploitability_by_hand() -> None:
    assert exploitability([1, 0, 0], [1 / 3] * 3, ROCK) == pytest.approx(1.0)
    assert exploitability([1, 0], [0, 1], *SEXES) == pytest.approx(1.0 + 1.0)


def test_hawks_and_doves_mix() -> None:
    """Value 2, cost 4: hawks play with 1/2; it is the only symmetric equilibrium."""
    found = symmetric_equilibria([[-1.0, 2.0], [0.0, 1.0]])
    assert [law.tolist() for law in found] == [pytest.approx([0.5, 0.5])]
    assert len(symmetric_equilibria(np.eye(2))) == 3


def test_mistakes_are_said() -> None:
    with pytest.raises(UserError, match=r"square matrix of shape \(m, m\), got \(1, 2\)"):
        symmetric_equilibria([[1.0, 2.0]])
    with pytest.raises(UserError, match=r"one shape \(m, n\) for both players, got \(1, 2\) and \(2, 1\)"):
        support_enumeration([[1.0, 2.0]], [[1.0], [2.0]])
    with pytest.raises(UserError, match=r"finite numbers of shape \(m, n\), got shape \(2,\)"):
        solve_zero_sum([1.0, 2.0])
    with pytest.raises(UserError, match=r"with \(m, n\) = \(3, 3\), got \(2,\), \(3,\)"):
        exploitability([0.5, 0.5], [1, 0, 0], ROCK)
    with pytest.raises(UserError, match=r"row: probabilities sum to 0\.5"):
        exploitability([0.5, 0, 0], [1, 0, 0], ROCK)

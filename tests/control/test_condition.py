"""Conditions: truth tables of their expressions, checks against the data's range, arrays for samplers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control import Condition, ConditionSpace, Expression, OutsideRangeWarning, guidance
from rolecraft.control._condition import All, Either, Not
from rolecraft.errors import UserError

ATOMS = [Condition.one_of("skill", place, 3, f"s{place}") for place in range(3)]
SPACE = ConditionSpace.of("skill", np.eye(3))

expressions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=5,
)


def truth(expression: Expression, world: dict[Condition, bool]) -> bool:
    if isinstance(expression, Condition):
        return world[expression]
    if isinstance(expression, Not):
        return not truth(expression.part, world)
    assert isinstance(expression, All | Either)
    return (all if isinstance(expression, All) else any)(truth(part, world) for part in expression.parts)


@given(expressions, st.tuples(st.booleans(), st.booleans(), st.booleans()))
@settings(max_examples=80, deadline=None)
def test_alternatives_have_the_truth_table_of_the_expression(expression: Expression, values: tuple[bool, ...]) -> None:
    world = dict(zip(ATOMS, values, strict=True))
    found = any(
        all(world[clause.condition] == (clause.sign > 0) for clause in alternative)
        for alternative in expression.alternatives()
    )
    assert found == truth(expression, world)


def test_conditions_compare_by_value() -> None:
    assert Condition.of("return", 0.5) == Condition("return", (0.5,))
    assert len({Condition.of("return", 0.5), Condition.of("return", [0.5]), Condition.of("return", 0.6)}) == 2
    assert str(ATOMS[0] & ~ATOMS[1] | ATOMS[2]) == "((s0 & ~s1) | s2)"


def test_arrays_hold_values_and_signed_weights() -> None:
    found = guidance([ATOMS[0] & ~ATOMS[2], ATOMS[1]], SPACE, 2, strength=1.5)
    assert found.values.tolist() == [[[1, 0, 0], [0, 0, 1]], [[0, 1, 0], [0, 0, 0]]]
    assert found.weights.tolist() == [[1.5, -1.5], [1.5, 0]]


def test_null_asks_for_nothing() -> None:
    null = Condition.null("skill")
    assert not guidance(null, SPACE, 3).weights.any()
    assert (null & ATOMS[0]).alternatives() == ATOMS[0].alternatives()
    with pytest.raises(UserError, match="nothing to avoid"):
        (~null).alternatives()


def test_alternatives_are_drawn_evenly_per_sample() -> None:
    found = guidance(ATOMS[0] | ATOMS[1], SPACE, 2000, seed=1)
    share = found.values[:, 0].mean(0)
    assert abs(share[0] - 0.5) < 0.04
    assert share[2] == 0


def test_values_outside_the_range_are_clipped_with_a_warning_or_refused() -> None:
    space = ConditionSpace.of("return", [0.1, 0.8])
    with pytest.warns(OutsideRangeWarning, match=r"1.5 lies outside the data's range 0.1 to 0.8; it is clipped"):
        assert space.check(Condition.of("return", 1.5)) == pytest.approx([0.8])
    with pytest.raises(UserError, match=r"1.5 lies outside the data's range 0.1 to 0.8"):
        space.check(Condition.of("return", 1.5), "error")
    assert space.check(Condition.of("return", 0.8)) == pytest.approx([0.8])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Condition.of("reward", 1), "expected one of return"),
        (lambda: Condition.of("return", np.nan), "finite"),
        (lambda: Condition.of("return", [[1.0]]), r"shape \(d,\)"),
        (lambda: Condition.one_of("skill", 4, 4), "not one of 0 ... 3"),
        (lambda: SPACE.check(Condition.of("return", 1)), r"skill condition of shape \(d,\) = \(3,\), got a return"),
        (lambda: guidance([ATOMS[0]], SPACE, 2), r"one per sample \(2\), got 1"),
        (lambda: guidance(ATOMS[0], SPACE, 2, strength=np.inf), "finite number"),
        (lambda: ConditionSpace.of("return", []), "finite numbers"),
        (lambda: ATOMS[0] & "left", "expected a Condition"),
    ],
)
def test_bad_input(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UserError, match=message):
        make()


def test_too_many_alternatives_are_refused() -> None:
    pair: Expression = ATOMS[0] | ATOMS[1]
    found = pair
    for _ in range(9):
        found = found & pair
    with pytest.raises(UserError, match="simplify"):
        found.alternatives()

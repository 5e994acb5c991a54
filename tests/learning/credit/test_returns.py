from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    CreditBatch,
    Discount,
    Mix,
    NoBaseline,
    ReturnToGo,
    assign_credit,
    chain_rows,
    return_to_go,
    turns_to_end,
)
from rolecraft.learning.credit._scan import scan_back

from ._random import random_batch, take_rows


@given(st.integers(0, 2**32 - 1), st.integers(0, 400), st.floats(0, 0.3))
@settings(max_examples=60, deadline=None)
def test_the_recurrence_is_solved_for_chains_of_any_length(seed, m, share):
    rng = np.random.default_rng(seed)
    values, decay = rng.normal(size=m), rng.random(m) * (rng.random(m) > share)
    expected, after = np.zeros(m), 0.0
    for place in range(m - 1, -1, -1):
        after = expected[place] = values[place] + decay[place] * after
    np.testing.assert_allclose(scan_back(values, decay), expected, atol=1e-10)


def test_the_recurrence_leaves_its_input_alone():
    values, decay = np.ones(40), np.full(40, 0.5)
    scan_back(values, decay)
    assert (values == 1).all()
    assert (decay == 0.5).all()


def slow_return(batch, gamma):
    keys, out = batch.keys, []
    for row in range(batch.shape[0]):
        later = [
            other
            for other in range(batch.shape[0])
            if (keys["traj"][other], keys["agent"][other]) == (keys["traj"][row], keys["agent"][row])
            and keys["turn"][other] >= keys["turn"][row]
        ]
        later.sort(key=lambda other: keys["turn"][other])
        out.append(sum(gamma**place * batch.row["reward"][other] for place, other in enumerate(later)))
    return out


@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0])
def test_the_return_is_the_agents_own(gamma):
    batch = random_batch(3)
    batch = take_rows(batch, np.random.default_rng(0).permutation(batch.shape[0]))
    chains = chain_rows(batch, ("traj", "agent"), "turn", "test")
    np.testing.assert_allclose(return_to_go(batch.row["reward"], chains, gamma), slow_return(batch, gamma))


def test_an_outcome_is_paid_once_at_the_end():
    batch = CreditBatch(
        np.ones((3, 1), dtype=bool),
        {"traj": np.zeros(3, int), "agent": np.zeros(3, int), "turn": np.array([2, 0, 1])},
        {"outcome": np.ones(3)},
    )
    result = assign_credit(batch, [ReturnToGo(0.5, terminal=True), NoBaseline()])
    assert result.advantages[:, 0].tolist() == [1, 0.25, 0.5]
    repeated = assign_credit(batch, [ReturnToGo(1.0), NoBaseline()])
    assert repeated.advantages[:, 0].tolist() == [1, 3, 2]


def test_rows_before_an_unknown_reward_are_left_out_but_not_those_after_it():
    batch = CreditBatch(
        np.ones((4, 1), dtype=bool),
        {"traj": np.array([0, 0, 0, 1]), "agent": np.zeros(4, int), "turn": np.array([0, 1, 2, 0])},
        {"reward": np.array([1.0, np.nan, 1.0, 1.0])},
        valid=np.array([True, False, True, True]),
    )
    result = assign_credit(batch, [Mix(team=None), ReturnToGo(), NoBaseline()])
    assert result.keep.tolist() == [False, False, True, True]
    outcome = CreditBatch(batch.mask, batch.keys, {"outcome": np.array([1.0, np.nan, 1.0, 1.0])}, valid=batch.valid)
    terminal = assign_credit(outcome, [ReturnToGo(terminal=True), NoBaseline()])
    assert terminal.keep.tolist() == [True, False, True, True]


def test_two_rows_of_one_turn_are_refused():
    batch = CreditBatch(
        np.ones((3, 1), dtype=bool),
        {"traj": np.zeros(3, int), "agent": np.zeros(3, int), "turn": np.array([1, 0, 1])},
        {"outcome": np.ones(3)},
    )
    with pytest.raises(UserError, match="rows 0 and 2 agree in traj, agent and in 'turn' \\(1\\)"):
        assign_credit(batch, [ReturnToGo()])


def test_the_discount_counts_own_turns_from_the_end():
    batch = random_batch(1, turns=4)
    chains = chain_rows(batch, ("traj", "agent"), "turn", "test")
    assert turns_to_end(chains).tolist() == (3 - batch.keys["turn"]).tolist()
    result = assign_credit(batch, [NoBaseline(), Discount(0.5)])
    expected = batch.row["outcome"] * 0.5 ** (3 - batch.keys["turn"])
    np.testing.assert_allclose(result.advantages[:, 0], expected)
    column = CreditBatch(batch.mask, {}, {"outcome": batch.row["outcome"], "steps_to_end": 3.0 - batch.keys["turn"]})
    given = assign_credit(column, [NoBaseline(), Discount(0.5, steps="steps_to_end")])
    np.testing.assert_allclose(given.advantages, result.advantages)
    assert (assign_credit(column, [NoBaseline(), Discount()]).advantages[:, 0] == batch.row["outcome"]).all()


def test_bad_discounts_and_steps_are_named():
    batch = CreditBatch(np.ones((2, 1), dtype=bool), {}, {"outcome": np.ones(2), "left": np.array([0.0, -1])})
    with pytest.raises(UserError, match="row 1 has -1"):
        assign_credit(batch, [Discount(0.9, steps="left")])
    for stage in (Discount, ReturnToGo):
        with pytest.raises(UserError, match="gamma lies in"):
            stage(1.5)

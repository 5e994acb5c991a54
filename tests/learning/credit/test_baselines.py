from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.credit import (
    CreditBatch,
    EmaBaseline,
    NoBaseline,
    NoSignalWarning,
    assign_credit,
    check_zero_sum,
    ema_advantage,
    make_rule,
    merge_baselines,
)

from ._random import take_rows


def games(outcomes, *, turns=2, mask=None, **keys):
    """Two seats per trajectory; `outcomes` has a row for each game, with the reward of either seat."""
    outcomes = np.array(outcomes, dtype=float)
    n = len(outcomes) * 2 * turns
    row = np.arange(n)
    traj, seat = row // (2 * turns), row // turns % 2
    return CreditBatch(
        np.ones((n, 1), dtype=bool) if mask is None else mask,
        {"traj": traj, "agent": seat, "role": seat, "turn": row % turns, "game": np.zeros(n, int), **keys},
        {"outcome": outcomes[traj, seat]},
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), max_size=60),
    st.floats(0, 0.99),
    st.lists(st.floats(-2, 2), min_size=4, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_the_baseline_is_read_before_it_is_updated(drawn, decay, start):
    cells, rewards = np.array([c for c, _ in drawn], dtype=int), np.array([r for _, r in drawn])
    table, advantage, read = list(start), [], []
    for cell, reward in drawn:
        read.append(table[cell])
        advantage.append(reward - table[cell])
        table[cell] = decay * table[cell] + (1 - decay) * reward
    found = ema_advantage(rewards, cells, np.array(start), decay)
    for one, other in zip(found, (advantage, read, table), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_spiral_by_hand():
    batch = games([[1, -1], [1, -1], [-1, 1]])
    result = assign_credit(batch, make_rule({"name": "rae", "decay": 0.5}))
    seats = result.advantages.reshape(3, 2, 2)
    assert (seats[:, :, 0] == seats[:, :, 1]).all()
    np.testing.assert_allclose(seats[:, 0, 0], [1, 0.5, -1.75])
    np.testing.assert_allclose(seats[:, 1, 0], [-1, -0.5, 1.75])
    table = result.state["ema_baseline(game, role)"]
    assert table == {"0,0": {"baseline": -0.125, "count": 3}, "0,1": {"baseline": 0.125, "count": 3}}


def test_two_batches_are_as_one_and_the_state_is_plain_json():
    rng = np.random.default_rng(0)
    outcomes = rng.choice([-1.0, 1.0], size=(20, 1)) * [[1, -1]]
    whole = assign_credit(games(outcomes), [EmaBaseline()])
    first = assign_credit(games(outcomes[:7]), [EmaBaseline()])
    second = assign_credit(games(outcomes[7:]), [EmaBaseline()], json.loads(json.dumps(first.state)))
    np.testing.assert_allclose(np.concatenate([first.advantages, second.advantages]), whole.advantages)
    assert second.state.keys() == whole.state.keys()
    cells, expected = (each.state["ema_baseline(game, role)"] for each in (second, whole))
    assert {label: cell["count"] for label, cell in cells.items()} == {"0,0": 20, "0,1": 20}
    for label in cells:
        assert cells[label]["baseline"] == pytest.approx(expected[label]["baseline"])
    assert first.state["ema_baseline(game, role)"]["0,0"]["count"] == 7


def test_one_baseline_for_both_seats_stays_at_nothing_and_one_per_role_finds_the_games_value():
    """Seat 0 wins three games of four: value 0.5. What a shared baseline sees adds up to 0."""
    rng = np.random.default_rng(4)
    won = np.where(rng.random(4000) < 0.75, 1.0, -1.0)
    batch = games(np.stack([won, -won], axis=1), turns=1)
    apart = assign_credit(batch, [EmaBaseline(decay=0.995)])
    shared = assign_credit(batch, [EmaBaseline(("game",), decay=0.995)])
    table = apart.state["ema_baseline(game, role)"]
    assert table["0,0"]["baseline"] == pytest.approx(0.5, abs=0.12)
    assert table["0,1"]["baseline"] == pytest.approx(-0.5, abs=0.12)
    assert shared.state["ema_baseline(game)"]["0"]["baseline"] == pytest.approx(0, abs=0.02)
    assert shared.state["ema_baseline(game)"]["0"]["count"] == 8000
    squares = [np.square(each.advantages).mean() for each in (apart, shared)]
    assert squares[0] < 0.8 * squares[1]


def test_baselines_that_a_batch_does_not_touch_are_kept():
    state = {"ema_baseline(game, role)": {"5,0": {"baseline": 0.3, "count": 2}}}
    after = assign_credit(games([[1, -1]]), [EmaBaseline()], state).state["ema_baseline(game, role)"]
    assert after["5,0"] == {"baseline": 0.3, "count": 2}
    assert sorted(after) == ["0,0", "0,1", "5,0"]


def test_a_seat_that_never_moved_updates_its_baseline_unless_told_not_to():
    batch = games([[1, -1], [1, -1]], turns=1, mask=np.array([[True], [False], [True], [True]]))
    result = assign_credit(batch, [EmaBaseline(decay=0.5)])
    assert result.state["ema_baseline(game, role)"]["0,1"] == {"baseline": -0.75, "count": 2}
    assert not result.advantages[1].any()
    result = assign_credit(batch, [EmaBaseline(decay=0.5, silent=False)])
    assert result.state["ema_baseline(game, role)"]["0,1"] == {"baseline": -0.5, "count": 1}


def test_unknown_rewards_are_neither_read_nor_learned():
    batch = games([[1, -1], [5, -5]], turns=1)
    batch = CreditBatch(batch.mask, batch.keys, batch.row, valid=np.array([True, True, False, False]))
    result = assign_credit(batch, [EmaBaseline(decay=0.5)])
    assert result.state["ema_baseline(game, role)"]["0,0"] == {"baseline": 0.5, "count": 1}


def test_the_order_of_rows_plays_no_part():
    batch = games(np.random.default_rng(1).normal(size=(9, 2)))
    order = np.random.default_rng(2).permutation(batch.shape[0])
    one, other = assign_credit(batch, [EmaBaseline()]), assign_credit(take_rows(batch, order), [EmaBaseline()])
    np.testing.assert_allclose(other.advantages, one.advantages[order])
    assert one.state == other.state


def test_an_agent_that_plays_two_roles_is_two_observations():
    batch = games([[1, -1]], turns=1)
    batch = CreditBatch(batch.mask, {**batch.keys, "agent": np.zeros(2, int)}, batch.row)
    state = assign_credit(batch, [EmaBaseline(decay=0.5)]).state["ema_baseline(game, role)"]
    assert {label: cell["baseline"] for label, cell in state.items()} == {"0,0": 0.5, "0,1": -0.5}


def test_rewards_that_differ_within_an_observation_are_refused():
    batch = games([[1, -1]])
    batch = CreditBatch(batch.mask, batch.keys, {"outcome": np.array([1.0, 2, -1, -1])})
    with pytest.raises(UserError, match=r"rows 0 and 1 agree in traj, agent but their rewards are 1\.0 and 2\.0"):
        assign_credit(batch, [EmaBaseline()])
    assign_credit(batch, [EmaBaseline(per=("traj", "agent", "turn"))])


@pytest.mark.parametrize("decay", [-0.1, 1, float("nan")])
def test_the_decay_lies_below_one(decay):
    with pytest.raises(UserError, match="decay lies in"):
        EmaBaseline(decay=decay)
    with pytest.raises(UserError, match="decay lies in"):
        ema_advantage(np.zeros(1), np.zeros(1, int), np.zeros(1), decay)


def test_a_zero_sum_game_is_checked_with_the_declared_exception():
    assign_credit(games([[1, -1], [-1.5, 0.5], [0.5, -1.5]]), [EmaBaseline(zero_sum=True)])
    with pytest.raises(UserError, match=r"1 of 2 trajectories .*trajectory 1: \[-1.0, 0.5\]"):
        assign_credit(games([[1, -1], [0.5, -1.0]]), [EmaBaseline(zero_sum=True)])
    with pytest.raises(UserError, match="exception"):
        assign_credit(games([[-1.5, 0.5]]), [EmaBaseline(zero_sum=True, exceptions=())])
    with pytest.raises(UserError, match="trajectory 7"):
        check_zero_sum(np.array([-1.5, 0.5, 0.0]), np.array([7, 7, 7]))
    check_zero_sum(np.array([-1.0, 0.5, 0.5]), np.array([7, 7, 7]))


def test_tables_of_actors_are_merged_by_count():
    one = {"0,0": {"baseline": 1.0, "count": 3}, "0,1": {"baseline": 5.0, "count": 1}}
    other = {"0,0": {"baseline": -1.0, "count": 1}}
    assert merge_baselines([one, other]) == {
        "0,0": {"baseline": 0.5, "count": 4},
        "0,1": {"baseline": 5.0, "count": 1},
    }
    apart = assign_credit(
        games([[1, -1], [3, -3]], turns=1, actor=np.array([0, 0, 1, 1])), [EmaBaseline(("actor", "game", "role"))]
    )
    assert sorted(next(iter(apart.state.values()))) == ["0,0,0", "0,0,1", "1,0,0", "1,0,1"]


def test_draws_from_the_start_carry_no_signal():
    with pytest.warns(NoSignalWarning):
        assign_credit(games([[0, 0]]), make_rule("rae"))
    result = assign_credit(games([[0, 0], [1, -1]]), make_rule({"name": "rae", "drop_zero": True}))
    assert result.keep.tolist() == [False] * 4 + [True] * 4
    assert result.info["drop_zero/rows"] == 4


def test_without_a_baseline_the_reward_is_the_advantage():
    batch = games([[1, -1]], turns=1)
    assert assign_credit(batch, [NoBaseline()]).advantages.ravel().tolist() == [1, -1]
    assert assign_credit(batch, [NoBaseline(2.0)]).advantages.ravel().tolist() == [2, 2]

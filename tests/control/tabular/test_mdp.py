"""MDPs as arrays: checks, builders, sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control.tabular import (
    Mdp,
    Streams,
    TabularCost,
    Walks,
    draw,
    from_gymnasium,
    grid_mdp,
    occupancy,
    random_mdp,
    sample_walks,
    stack_mdps,
    value_iteration,
)
from rolecraft.errors import UserError

STAY = np.eye(2)[:, None, :]
"""Two states, one action that stays."""


def two_states(**changes: object) -> Mdp:
    fields = {"transitions": STAY, "rewards": np.zeros((2, 1)), "start": np.array([1.0, 0.0]), "discount": 0.9}
    return Mdp(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transitions": np.ones((2, 1, 3))}, r"transitions: expected shape \(\.\.\., S, A, S\).*got \(2, 1, 3\)"),
        ({"rewards": np.zeros(2)}, r"rewards: expected shape \(\.\.\., S, A\) = \(2, 1\).*got \(2,\)"),
        ({"start": np.ones(3) / 3}, r"start: expected shape \(\.\.\., S\) = \(2,\).*got \(3,\)"),
        ({"start": np.array([0.5, 0.4])}, r"start: probabilities sum to 0\.9, expected 1"),
        ({"transitions": np.array([[[0.5, 0.5]], [[0.25, 0.5]]])}, r"state 1, action 0: probabilities sum to 0\.75"),
        ({"transitions": np.array([[[1.5, -0.5]], [[0, 1]]])}, r"state 0, action 0: entry 1 is -0\.5"),
        ({"rewards": np.array([[0.0], [np.nan]])}, r"rewards: \(1, 0\) is nan"),
        ({"discount": 1.0}, r"discount: expected a number in \[0, 1\), got 1\.0; a finite horizon"),
        ({"discount": -0.1}, r"discount: expected a number in \[0, 1\)"),
        ({"absorbing": [True, False], "rewards": np.ones((2, 1))}, r"absorbing: state 0 must lead to itself and pay 0"),
        ({"absorbing": [True, False], "transitions": STAY[::-1]}, r"action 0 stays with probability 0"),
        ({"absorbing": [True]}, r"absorbing: expected shape"),
    ],
)
def test_what_is_no_mdp_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        two_states(**changes)


def test_a_stack_names_the_mdp_that_is_wrong() -> None:
    good = np.stack([STAY, STAY])
    good[1, 0, 0] = [0.5, 0.4]
    with pytest.raises(UserError, match=r"MDP \(1,\), state 0, action 0: probabilities sum to 0\.9"):
        Mdp(good, np.zeros((2, 2, 1)), np.full((2, 2), 0.5), 0.9)
    with pytest.raises(UserError, match="one shape and discount"):
        stack_mdps([two_states(), two_states(discount=0.5)])
    with pytest.raises(UserError, match="one shape and discount"):
        stack_mdps([])


def test_other_rewards_and_starts() -> None:
    mdp = two_states(absorbing=[False, True])
    assert mdp.with_rewards([[1.0], [1.0]]).rewards.tolist() == [[1.0], [0.0]]
    assert mdp.with_start(1).start.tolist() == [0.0, 1.0]
    with pytest.raises(UserError, match="state 2 is not one of 0 to 1"):
        mdp.with_start(2)


def test_random_mdps_follow_from_the_seed_and_refuse_bad_sizes() -> None:
    one, two = (random_mdp(4, 3, 0.9, np.random.default_rng(1), concentration=0.3) for _ in range(2))
    assert np.array_equal(one.transitions, two.transitions)
    assert one.rewards.min() >= 0
    assert one.rewards.max() <= 1
    for sizes, concentration in (((0, 3), 1.0), ((2, 0), 1.0), ((2, 2), 0.0)):
        with pytest.raises(UserError, match="concentration above 0"):
            random_mdp(*sizes, 0.9, np.random.default_rng(1), concentration=concentration)


class TestWalks:
    def test_counts_of_walks_are_near_the_exact_visits(self) -> None:
        grid = grid_mdp("S.G\n.#.\n...", slip=0.3, discount=0.9)
        policy = np.random.default_rng(0).dirichlet(np.ones(4), size=grid.mdp.states)
        walks = sample_walks(grid.mdp, policy, 20_000, 30, np.random.default_rng(1))
        counts = walks.counts(grid.mdp.states, 4, 0.9)
        assert counts == pytest.approx(occupancy(grid.mdp, policy, horizon=30), abs=0.02)
        assert counts[grid.mdp.absorbing].sum() == 0

    def test_counts_by_hand(self) -> None:
        walks = Walks(np.array([[0, 1], [0, 0]]), np.array([[0, 1], [1, 0]]), np.array([[True, True], [True, False]]))
        assert walks.counts(2, 2, 0.5).tolist() == [[0.5, 0.5], [0.0, 0.25]]

    def test_empty_demonstrations_and_wrong_shapes_are_refused(self) -> None:
        zeros = np.zeros((2, 2), dtype=int)
        with pytest.raises(UserError, match="no step in them"):
            Walks(zeros, zeros, zeros > 0)
        with pytest.raises(UserError, match=r"three arrays of shape \(E, T\)"):
            Walks(zeros, zeros[:1], zeros == 0)
        with pytest.raises(UserError, match=r"not below \(S, A\) = \(1, 1\)"):
            Walks(zeros + 1, zeros, zeros == 0).counts(1, 1)
        with pytest.raises(UserError, match="at least 1 episode"):
            sample_walks(two_states(), [[1.0], [1.0]], 0, 3, np.random.default_rng(0))
        with pytest.raises(UserError, match=r"policy: expected shape \(\.\.\., S, A\) = \(\.\.\., 2, 1\)"):
            sample_walks(two_states(), [[1.0, 0.0]], 1, 3, np.random.default_rng(0))


class TestStreams:
    def test_a_members_numbers_do_not_depend_on_the_others(self) -> None:
        alone, together = Streams([7]), Streams([3, 7])
        for size in (3, 5000, 2):
            assert np.array_equal(alone.random((1, size))[0], together.random((2, size))[1])

    def test_numbers_are_not_used_twice(self) -> None:
        streams = Streams([1])
        drawn = np.concatenate([streams.random((1, 1500))[0] for _ in range(8)])
        assert len(np.unique(drawn)) == len(drawn)

    def test_mistakes_are_said(self) -> None:
        with pytest.raises(UserError, match="at least one seed"):
            Streams([])
        with pytest.raises(UserError, match="first axis of 2"):
            Streams([1, 2]).random((3,))


def test_draws_follow_the_odds() -> None:
    odds = np.array([0.0, 0.2, 0.5, 0.3, 0.0])
    drawn = draw(np.tile(odds.cumsum(), (20_000, 1)), np.random.default_rng(0))
    assert np.bincount(drawn, minlength=5) / 20_000 == pytest.approx(odds, abs=0.012)


class TestGrid:
    def test_moves_walls_and_edges(self) -> None:
        grid = grid_mdp("S#\n.G")
        assert grid.cells == ((0, 0), (1, 0), (1, 1))
        assert grid.mdp.transitions[0].argmax(-1).tolist() == [0, 0, 1, 0]
        assert grid.mdp.transitions[1].argmax(-1).tolist() == [0, 2, 1, 1]
        assert grid.mdp.absorbing.tolist() == [False, False, True]
        assert grid.mdp.rewards[:2].tolist() == [[-1.0] * 4] * 2

    def test_slip_and_rewards_of_cells(self) -> None:
        grid = grid_mdp("SxG", slip=0.4, goal_reward=5, cell_rewards={"x": -2.0})
        assert grid.mdp.transitions[1, 1].tolist() == pytest.approx([0.1, 0.2, 0.7])
        assert grid.mdp.rewards[1, 1] == pytest.approx(-1 + 0.2 * -2 + 0.7 * 5)
        assert grid.states_of("x") == [grid.state(0, 1)] == [1]

    def test_the_shortest_way_is_found_and_drawn(self) -> None:
        grid = grid_mdp("S.G\n.#.\n...", discount=0.5)
        plan = value_iteration(grid.mdp)
        assert plan.values[grid.state(0, 0)] == pytest.approx(-1.5)
        assert grid.render(policy=plan.policy).splitlines()[0] == ">>G"
        assert grid.render().splitlines()[1] == ".#."
        assert grid.render(plan.values, width=7).splitlines()[0] == "  -1.50  -1.00   0.00"

    @pytest.mark.parametrize(
        ("rows", "changes", "message"),
        [
            ("S.\n.", {}, r"one length, got lengths \[2, 1\]"),
            ("..G", {}, "there is no start"),
            ("S.G", {"slip": 1.5}, r"slip: expected a probability in \[0, 1\], got 1\.5"),
        ],
    )
    def test_mistakes_are_said(self, rows: str, changes: dict[str, float], message: str) -> None:
        with pytest.raises(UserError, match=message):
            grid_mdp(rows, **changes)  # type: ignore[arg-type]

    def test_mistakes_of_drawing_are_said(self) -> None:
        grid = grid_mdp("S#G")
        with pytest.raises(UserError, match=r"values: expected shape \(S,\) = \(2,\), got \(3,\)"):
            grid.render([1, 2, 3])
        with pytest.raises(UserError, match="not both"):
            grid.render([1, 2], policy=np.ones((2, 4)))
        with pytest.raises(UserError, match=r"cell \(0, 1\) is a wall"):
            grid.state(0, 1)


class TestGymnasium:
    def test_frozen_lake_has_its_known_value(self) -> None:
        """Optimal undiscounted success on the slippery 4x4 map is 14/17; near discount 1 the value is near it."""
        mdp = from_gymnasium("FrozenLake-v1", 0.9999)
        assert (mdp.states, mdp.actions, int(mdp.absorbing.sum())) == (16, 4, 5)
        plan = value_iteration(mdp, tolerance=1e-6)
        assert occupancy(mdp, plan.policy, horizon=3000, discount=1.0).ravel() @ mdp.rewards.ravel() == pytest.approx(
            14 / 17, abs=2e-3
        )
        dry = from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False)
        assert value_iteration(dry).values[0] == pytest.approx(0.9**5)

    def test_taxi_ends_only_at_the_drop_off(self) -> None:
        mdp = from_gymnasium("Taxi-v4", 0.9)
        values = value_iteration(mdp, tolerance=1e-4).values
        assert mdp.absorbing.sum() == 1
        assert values.max() == pytest.approx(20, abs=1e-3)
        assert values[mdp.absorbing].tolist() == [0.0]

    def test_mistakes_are_said(self) -> None:
        with pytest.raises(UserError, match="no environment 'FrozenPond-v1'"):
            from_gymnasium("FrozenPond-v1")
        with pytest.raises(UserError, match="object has no table `P`"):
            from_gymnasium(object())


class TestCost:
    COST = TabularCost(np.array([[0.0, 2.0], [1.0, 0.5]]), 1.0, np.array([[True, True], [False, True]]))

    def test_it_answers_and_says_where_it_does_not_know(self) -> None:
        assert self.COST(0, 1) == 2.0
        answers = [self.COST.decide(state, action) for state in (0, 1) for action in (0, 1)]
        assert answers == ["allow", "block", "ask", "allow"]
        assert [self.COST.forbids(0, action) for action in (0, 1)] == [False, True]
        assert not self.COST.forbids(1, 0)

    def test_it_is_saved_and_read(self, tmp_path: Path) -> None:
        self.COST.save(tmp_path / "cost.safetensors")
        read = TabularCost.load(tmp_path / "cost.safetensors")
        assert np.array_equal(read.costs, self.COST.costs)
        assert np.array_equal(read.evidence, self.COST.evidence)
        assert read.threshold == 1.0

    def test_mistakes_are_said(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="state below S = 2 and an action below A = 2, got 2, 0"):
            self.COST(2, 0)
        with pytest.raises(UserError, match="got costs from -1 to 0"):
            TabularCost(np.array([[-1.0, 0.0]]), 1.0, np.ones((1, 2), bool))
        with pytest.raises(UserError, match="one shape"):
            TabularCost(np.zeros((1, 2)), 1.0, np.ones((2, 1), bool))
        (tmp_path / "text.safetensors").write_text("no tensors")
        with pytest.raises(UserError, match="no readable safetensors"):
            TabularCost.load(tmp_path / "text.safetensors")
        from safetensors.numpy import save_file

        save_file({"costs": np.zeros((1, 1))}, tmp_path / "other.safetensors")
        with pytest.raises(UserError, match=r"expected what TabularCost\.save wrote"):
            TabularCost.load(tmp_path / "other.safetensors")


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_stacks_keep_their_members(states: int, actions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = [random_mdp(states, actions, 0.8, rng) for _ in range(3)]
    stack = stack_mdps(members)
    assert (stack.lead, stack.states, stack.actions) == ((3,), states, actions)
    together = value_iteration(stack, 0.2)
    for place, mdp in enumerate(members):
        assert together.values[place] == pytest.approx(value_iteration(mdp, 0.2).values, abs=1e-8)

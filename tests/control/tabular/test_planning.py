"""Values and visits against closed forms and slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control.tabular import (
    Automaton,
    Mdp,
    expected_return,
    grid_mdp,
    occupancy,
    policy_evaluation,
    product_mdp,
    random_mdp,
    soft_maximum,
    stationary_distribution,
    value_iteration,
)
from rolecraft.errors import UserError

seeds = st.integers(0, 10_000)


def some(seed: int, discount: float = 0.8) -> tuple[Mdp, np.ndarray]:
    rng = np.random.default_rng(seed)
    mdp = random_mdp(4, 3, discount, rng, concentration=0.5)
    return mdp, rng.dirichlet(np.ones(3), size=4)


def slow_values(mdp: Mdp, policy: np.ndarray, temperature: float, steps: int) -> list[float]:
    """Backups written out state by state."""
    values = [0.0] * mdp.states
    for _ in range(steps):
        values = [
            sum(
                policy[s, a]
                * (
                    mdp.rewards[s, a]
                    - temperature * np.log(policy[s, a])
                    + mdp.discount * sum(mdp.transitions[s, a, t] * values[t] for t in range(mdp.states))
                )
                for a in range(mdp.actions)
            )
            for s in range(mdp.states)
        ]
    return values


@given(seeds, st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=15, deadline=None)
def test_values_of_a_policy_are_those_of_repeated_backups(seed: int, temperature: float) -> None:
    mdp, policy = some(seed, 0.6)
    found = policy_evaluation(mdp, policy, temperature)
    assert found.values == pytest.approx(slow_values(mdp, policy, temperature, 50), abs=1e-8)
    assert (policy * found.advantages).sum(-1) == pytest.approx(np.zeros(4), abs=1e-9)


@given(seeds)
@settings(max_examples=15, deadline=None)
def test_the_return_is_visits_times_rewards(seed: int) -> None:
    mdp, policy = some(seed)
    visits = occupancy(mdp, policy)
    assert (visits * mdp.rewards).sum() == pytest.approx(expected_return(mdp, policy))
    assert visits.sum() == pytest.approx(1 / (1 - mdp.discount))
    cut = occupancy(mdp, policy, horizon=200)
    assert cut == pytest.approx(visits, abs=1e-9)
    now, total = mdp.start.copy(), np.zeros((4, 3))
    for step in range(3):
        total += mdp.discount**step * now[:, None] * policy
        after = np.zeros(4)
        for s, a, t in np.ndindex(4, 3, 4):
            after[t] += now[s] * policy[s, a] * mdp.transitions[s, a, t]
        now = after
    assert occupancy(mdp, policy, horizon=3) == pytest.approx(total)


@given(seeds, st.sampled_from([0.05, 0.5]))
@settings(max_examples=15, deadline=None)
def test_at_the_soft_optimum_every_soft_advantage_vanishes(seed: int, temperature: float) -> None:
    mdp, other = some(seed)
    plan = value_iteration(mdp, temperature, tolerance=1e-12)
    found = policy_evaluation(mdp, plan.policy, temperature)
    assert found.values == pytest.approx(plan.values, abs=1e-9)
    assert np.abs(found.advantages).max() < 1e-9
    assert (policy_evaluation(mdp, other, temperature).values <= plan.values + 1e-9).all()


@given(seeds)
@settings(max_examples=15, deadline=None)
def test_the_hard_optimum_beats_all_deterministic_policies(seed: int) -> None:
    mdp, _ = some(seed)
    plan = value_iteration(mdp)
    every = np.stack([np.eye(3)[list(np.unravel_index(number, (3,) * 4))] for number in range(81)])
    values = policy_evaluation(mdp, every).values
    assert values.shape == (81, 4)
    assert values.max(0) == pytest.approx(plan.values, abs=1e-8)


def test_closed_forms_of_one_state() -> None:
    mdp = Mdp(np.ones((1, 3, 1)), np.array([[1.0, 2.0, 3.0]]), np.ones(1), 0.5)
    assert value_iteration(mdp).values == pytest.approx([6.0])
    soft = value_iteration(mdp, 0.7)
    assert soft.values == pytest.approx([2 * 0.7 * np.log(np.exp(np.array([1, 2, 3]) / 0.7).sum())])
    assert soft.policy[0] == pytest.approx(np.exp(np.array([1, 2, 3]) / 0.7) / np.exp(np.array([1, 2, 3]) / 0.7).sum())
    assert policy_evaluation(mdp, [[1 / 3] * 3], 0.7).values == pytest.approx([2 * (2 + 0.7 * np.log(3))])
    value, policy = soft_maximum(np.array([[1.0, 1.0]]), 0.0)
    assert (value.tolist(), policy.tolist()) == ([1.0], [[1.0, 0.0]])


def test_absorbing_states_earn_neither_reward_nor_entropy() -> None:
    mdp = grid_mdp("SG", discount=0.9).mdp
    policy = np.full((2, 4), 0.25)
    once = policy_evaluation(mdp, policy, 0.3)
    entropy = 0.3 * np.log(4)
    assert once.values == pytest.approx([(-1 + entropy) / (1 - 0.9 * 0.75), 0.0])
    assert once.advantages[1].tolist() == [0.0] * 4
    assert value_iteration(mdp, 0.3).values[1] == 0.0
    assert occupancy(mdp, policy, horizon=500, discount=1.0).sum() == pytest.approx(4.0)
    assert occupancy(mdp, policy)[1].sum() == 0.0


def test_actions_never_taken_are_no_logarithm_of_zero() -> None:
    mdp, _ = some(1)
    greedy = value_iteration(mdp).policy
    found = policy_evaluation(mdp, greedy, 0.5)
    assert np.isfinite(found.advantages).all()
    assert found.values == pytest.approx(policy_evaluation(mdp, greedy).values)


def test_mistakes_are_said() -> None:
    mdp, policy = some(1)
    with pytest.raises(UserError, match=r"policy: expected shape \(\.\.\., S, A\) = \(\.\.\., 4, 3\), got \(3, 4\)"):
        policy_evaluation(mdp, policy.T)
    with pytest.raises(UserError, match="policy, state 2: probabilities sum to 2"):
        policy_evaluation(mdp, policy * np.array([1, 1, 2, 1])[:, None])
    with pytest.raises(UserError, match=r"temperature: expected a finite number of at least 0, got -1"):
        value_iteration(mdp, -1)
    with pytest.raises(UserError, match=r"after 3 iterations at discount 0\.8"):
        value_iteration(mdp, most=3)
    with pytest.raises(UserError, match=r"with a horizon of at least 1, got 1\.0 and None"):
        occupancy(mdp, policy, discount=1.0)
    with pytest.raises(UserError, match="at least 1"):
        occupancy(mdp, policy, horizon=0)


class TestStationary:
    def test_two_states_by_hand(self) -> None:
        assert stationary_distribution([[0.9, 0.1], [0.3, 0.7]]) == pytest.approx([0.75, 0.25])
        assert stationary_distribution([[0.0, 1.0], [1.0, 0.0]]) == pytest.approx([0.5, 0.5])

    def test_transient_states_have_none_of_it(self) -> None:
        law = stationary_distribution([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]])
        assert law == pytest.approx([0.0, 3 / 7, 4 / 7])

    @given(seeds)
    @settings(max_examples=15, deadline=None)
    def test_it_is_what_many_steps_lead_to(self, seed: int) -> None:
        matrix = np.random.default_rng(seed).dirichlet(np.ones(5), size=5)
        assert stationary_distribution(matrix) == pytest.approx(np.linalg.matrix_power(matrix, 400)[0], abs=1e-7)

    def test_mistakes_are_said(self) -> None:
        with pytest.raises(UserError, match=r"sets of states \[0\], \[2\]"):
            stationary_distribution([[1.0, 0, 0], [0.5, 0, 0.5], [0, 0, 1.0]])
        with pytest.raises(UserError, match=r"square matrix of shape \(S, S\), got \(1, 2\)"):
            stationary_distribution([[0.5, 0.5]])
        with pytest.raises(UserError, match=r"state 1: probabilities sum to 0\.5"):
            stationary_distribution([[1.0, 0.0], [0.5, 0.0]])


KEY_THEN_DOOR = Automaton(
    moves=np.array([[0, 1, 0], [1, 1, 2], [2, 2, 2]]),
    pays=np.array([[0, 0, 0], [0, 0, 1.0], [0, 0, 0]]),
    final=np.array([False, False, True]),
)
"""Labels: nothing, key, door. Pays 1 for the door after the key."""


class TestAutomaton:
    def test_reading_by_hand(self) -> None:
        assert KEY_THEN_DOOR.run([2, 1, 0, 2, 1]) == ([0, 0, 1, 1, 2, 2], [0.0, 0.0, 0.0, 1.0, 0.0])

    def test_the_key_comes_first(self) -> None:
        """k S d: one left, two right, and the reward comes with the third step."""
        grid = grid_mdp("kSd", step_reward=0.0, discount=0.9)
        labels = [1, 0, 2]
        product = product_mdp(grid.mdp, KEY_THEN_DOOR, labels)
        assert expected_return(product, value_iteration(product).policy) == pytest.approx(0.9**2)

    @given(seeds)
    @settings(max_examples=10, deadline=None)
    def test_the_product_pays_what_reading_each_history_pays(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        mdp = random_mdp(3, 2, 0.7, rng)
        machine = Automaton(rng.integers(0, 2, (2, 2)), rng.random((2, 2)), np.array([False, seed % 2 == 0]))
        labels, policy = rng.integers(0, 2, 3), rng.dirichlet(np.ones(2), size=3)
        product = product_mdp(mdp, machine, labels)
        wide = np.repeat(policy, 2, axis=0)
        visits = occupancy(product, wide, horizon=4)
        assert (visits * product.rewards).sum() == pytest.approx(brute_force(mdp, machine, labels, policy, 4))

    def test_mistakes_are_said(self) -> None:
        mdp = grid_mdp("kSd").mdp
        with pytest.raises(UserError, match=r"shape \(S,\) = \(3,\), got \(\) and \(2,\)"):
            product_mdp(mdp, KEY_THEN_DOOR, [0, 1])
        with pytest.raises(UserError, match="integers in 0 to 2"):
            product_mdp(mdp, KEY_THEN_DOOR, [0, 1, 3])
        with pytest.raises(UserError, match="name states 0 to 0"):
            Automaton(np.array([[1]]), np.zeros((1, 1)), np.array([False]))
        with pytest.raises(UserError, match=r"shape \(U, L\)"):
            Automaton(np.array([[0]]), np.zeros((1, 2)), np.array([False]))


def brute_force(mdp: Mdp, machine: Automaton, labels: np.ndarray, policy: np.ndarray, steps: int) -> float:
    """Enumerate every history of `steps` steps."""

    def follow(state: int, seen: list[int], paid: float, probability: float, left: int) -> float:
        over = machine.final[machine.run(seen)[0][-1]]
        if not left or over:
            rewards = machine.run(seen)[1]
            return probability * (paid + sum(mdp.discount**step * reward for step, reward in enumerate(rewards)))
        return sum(
            follow(
                after,
                [*seen, int(labels[after])],
                paid + mdp.discount ** len(seen) * float(mdp.rewards[state, action]),
                probability * policy[state, action] * mdp.transitions[state, action, after],
                left - 1,
            )
            for action in range(mdp.actions)
            for after in range(mdp.states)
        )

    return sum(follow(state, [], 0.0, float(mdp.start[state]), steps) for state in range(mdp.states))

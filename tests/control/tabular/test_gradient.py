"""The policy gradient, its estimators and critics, against finite differences, moments and sampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.control.tabular import (
    ESTIMATORS,
    Chains,
    Estimator,
    Mdp,
    Streams,
    critic_advantages,
    critic_error,
    expected_return,
    gradient_moments,
    grid_mdp,
    monte_carlo,
    occupancy,
    policy_evaluation,
    policy_gradient,
    random_mdp,
    sample_returns,
    sample_weights,
    score_step,
    second_moments,
    softmax,
    stack_mdps,
    state_visits,
    td0,
    value_iteration,
)
from rolecraft.errors import UserError

seeds = st.integers(0, 10_000)


def some(seed: int, discount: float = 0.7) -> tuple[Mdp, np.ndarray]:
    rng = np.random.default_rng(seed)
    return random_mdp(3, 2, discount, rng, concentration=0.5), rng.normal(size=(3, 2))


@given(seeds, st.sampled_from([0.0, 0.3]))
@settings(max_examples=15, deadline=None)
def test_the_gradient_is_that_of_finite_differences(seed: int, temperature: float) -> None:
    mdp, logits = some(seed)
    found, slow, step = policy_gradient(mdp, logits, temperature), np.zeros((3, 2)), 1e-5
    for place in np.ndindex(3, 2):
        moved = [logits.copy(), logits.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (float(expected_return(mdp, softmax(each), temperature)) for each in moved)
        slow[place] = (up - down) / (2 * step)
    assert found == pytest.approx(slow, abs=1e-6)


def test_the_gradient_is_right_where_episodes_end() -> None:
    mdp = grid_mdp("S.G", discount=0.9, slip=0.2).mdp
    logits = np.random.default_rng(0).normal(size=(3, 4))
    found = policy_gradient(mdp, logits, 0.2)
    moved = logits.copy()
    moved[1, 2] += 1e-5
    slow = float(expected_return(mdp, softmax(moved), 0.2) - expected_return(mdp, softmax(logits), 0.2)) / 1e-5
    assert found[1, 2] == pytest.approx(slow, abs=1e-4)
    assert found[2].tolist() == [0.0] * 4
    assert state_visits(mdp, softmax(logits)) == pytest.approx(occupancy(mdp, softmax(logits)).sum(-1))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_estimators_have_the_mean_and_the_variance_of_the_formulas(estimator: Estimator) -> None:
    mdp, logits = some(3)
    n = 40_000
    stack = stack_mdps([mdp] * n)
    policy = np.broadcast_to(softmax(logits), (n, 3, 2))
    values = policy_evaluation(stack, policy, 0.2)
    sample = sample_weights(stack, policy, values, 0.2, estimator, np.random.default_rng(1), horizon=40)
    drawn = score_step(policy, sample) / (1 - mdp.discount)
    moments = gradient_moments(mdp, logits, 0.2, estimator)
    assert moments.mean == pytest.approx(policy_gradient(mdp, logits, 0.2))
    error = np.sqrt(moments.variance / n)
    assert drawn.mean(0) == pytest.approx(moments.mean, abs=4 * error)
    assert drawn.var(0).sum() == pytest.approx(float(moments.variance), rel=0.05)


def test_the_exact_critics_noise_vanishes_at_the_optimum_and_that_of_the_others_stays() -> None:
    mdp, _ = some(5, 0.9)
    plan = value_iteration(mdp, 0.1, tolerance=1e-12)
    logits = np.log(plan.policy)
    variance = {name: float(gradient_moments(mdp, logits, 0.1, name).variance) for name in ESTIMATORS}
    assert variance["exact-critic"] < 1e-15
    assert variance["baseline"] > 1e-3
    assert variance["reinforce"] > variance["baseline"]


def test_second_moments_of_a_coin_by_hand() -> None:
    """From state 0 to 1 or 2 by even odds; 1 pays 1 and ends, 2 pays nothing and ends."""
    transitions = np.zeros((4, 1, 4))
    transitions[0, 0, [1, 2]] = 0.5
    transitions[[1, 2, 3], 0, 3] = 1.0
    mdp = Mdp(transitions, np.array([[0.0], [1.0], [0.0], [0.0]]), np.eye(4)[0], 0.5, np.array([0, 0, 0, 1], bool))
    policy = np.ones((4, 1))
    values = policy_evaluation(mdp, policy)
    assert values.values.tolist() == pytest.approx([0.25, 1.0, 0.0, 0.0])
    assert second_moments(mdp, policy, values, 0.0)[:, 0] == pytest.approx([0.125, 1.0, 0.0, 0.0])


def test_sampled_returns_have_the_mean_of_the_values() -> None:
    mdp, logits = some(4)
    n, policy = 20_000, softmax(logits)
    first = (np.full(n, 1), np.full(n, 0))
    drawn = sample_returns(stack_mdps([mdp] * n), np.broadcast_to(policy, (n, 3, 2)), 0.3, first,
                           np.random.default_rng(0), horizon=40)  # fmt: skip
    exact = policy_evaluation(mdp, policy, 0.3).action_values[1, 0] - 0.3 * np.log(policy[1, 0])
    assert drawn.mean() == pytest.approx(exact, abs=4 * drawn.std() / np.sqrt(n))


def test_a_member_of_a_stack_is_sampled_alike_alone_and_with_others() -> None:
    mdps = [some(seed)[0] for seed in (1, 2)]
    policy = np.stack([softmax(some(seed)[1]) for seed in (1, 2)])
    both, alone = stack_mdps(mdps), stack_mdps(mdps[1:])
    found = []
    for stack, chosen, streams in ((both, policy, Streams([8, 9])), (alone, policy[1:], Streams([9]))):
        values = policy_evaluation(stack, chosen, 0.1)
        sample = sample_weights(stack, chosen, values, 0.1, "reinforce", streams, horizon=5)
        learned = td0(Chains(stack, streams), chosen, np.zeros_like(chosen), temperature=0.1, rate=0.5, steps=20)
        found.append((sample.weights[-1], learned[-1]))
    assert found[0][0] == found[1][0]
    assert np.array_equal(found[0][1], found[1][1])


class TestCritics:
    def run(self, learn: str, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        mdp, logits = random_mdp(3, 2, 0.6, np.random.default_rng(6), concentration=5.0), np.zeros((3, 2))
        n = 300
        stack, policy = stack_mdps([mdp] * n), np.broadcast_to(softmax(logits), (n, 3, 2))
        chains, zero = Chains(stack, np.random.default_rng(0)), np.zeros((n, 3, 2))
        if learn == "td":
            found = td0(chains, policy, zero, temperature=0.2, rate=rate, steps=steps)
        else:
            found = monte_carlo(chains, policy, zero, temperature=0.2, rate=rate, steps=steps, horizon=25)
        exact = policy_evaluation(mdp, softmax(logits), 0.2)
        error, explained = critic_error(found, exact, policy, state_visits(stack, policy))
        return found.mean(0), exact.action_values, error, explained

    @pytest.mark.parametrize(("learn", "steps"), [("td", 2500), ("mc", 1000)])
    def test_both_converge_to_the_exact_action_values(self, learn: str, steps: int) -> None:
        mean, exact, error, explained = self.run(learn, 0.05, steps)
        assert mean == pytest.approx(exact, abs=0.05)
        assert error.mean() < 0.25
        assert explained.max() <= 1

    def test_errors_and_shares_by_hand(self) -> None:
        mdp, logits = some(6)
        policy, visits = softmax(logits), state_visits(mdp, softmax(logits))
        exact = policy_evaluation(mdp, policy, 0.2)
        error, explained = critic_error(exact.action_values + 0.5, exact, policy, visits)
        assert float(error) == pytest.approx(0.5)
        assert float(explained) < 1
        assert float(critic_error(exact.action_values, exact, policy, visits)[1]) == 1
        advantages = critic_advantages(mdp, policy, exact.action_values + 3.0, 0.2)
        assert advantages == pytest.approx(exact.advantages)

    def test_walkers_visit_states_as_often_as_the_discounted_visits(self) -> None:
        mdp = grid_mdp("S.G\n...", discount=0.8, slip=0.3).mdp
        policy = np.random.default_rng(1).dirichlet(np.ones(4), size=6)
        chains = Chains(stack_mdps([mdp] * 400), np.random.default_rng(0))
        act = np.broadcast_to(policy, (400, 6, 4)).cumsum(-1)
        seen = np.zeros(6)
        for _ in range(200):
            seen += np.bincount(chains.step(act)[0], minlength=6)
        visits = state_visits(mdp, policy)
        assert seen / seen.sum() == pytest.approx(visits / visits.sum(), abs=0.02)

    def test_no_step_changes_nothing(self) -> None:
        mean, _, _, _ = self.run("td", 0.5, 0)
        assert not mean.any()

    def test_mistakes_are_said(self) -> None:
        mdp, logits = some(1)
        stack, policy = stack_mdps([mdp]), softmax(logits)[None]
        for rate in (0.0, -0.1, 1.5):
            with pytest.raises(UserError, match=r"step size in \(0, 1\]"):
                td0(Chains(stack, Streams([1])), policy, policy, temperature=0.1, rate=rate, steps=1)
        with pytest.raises(UserError, match="at least 0, got -1"):
            td0(Chains(stack, Streams([1])), policy, policy, temperature=0.1, rate=0.1, steps=-1)
        with pytest.raises(UserError, match="horizon of at least 1"):
            monte_carlo(Chains(stack, Streams([1])), policy, policy, temperature=0.1, rate=0.1, steps=1, horizon=0)
        with pytest.raises(UserError, match="one leading axis"):
            Chains(mdp, Streams([1]))


def test_mistakes_are_said() -> None:
    mdp, logits = some(1)
    with pytest.raises(UserError, match=r"logits: expected shape \(\.\.\., S, A\) = \(\.\.\., 3, 2\), got \(2, 3\)"):
        policy_gradient(mdp, logits.T)
    with pytest.raises(UserError, match=r"no estimator 'exact-critics'.*Did you mean 'exact-critic'"):
        gradient_moments(mdp, logits, 0.1, "exact-critics")  # type: ignore[arg-type]
    values = policy_evaluation(mdp, softmax(logits))
    with pytest.raises(UserError, match="one leading axis"):
        sample_weights(mdp, softmax(logits), values, 0.1, "baseline", Streams([1]), horizon=3)

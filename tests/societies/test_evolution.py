"""Games, fixation, rare mutations, replicators and populations, against closed forms and EGTtools."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.societies import (
    Dilemma,
    Game,
    Graph,
    complete_graph,
    evolve,
    fixation_matrix,
    fixation_probability,
    lattice,
    replicator,
    replicator_rates,
    scale_free,
    small_mutation,
    stationary_distribution,
)

THREATS = Game(
    [[1, -1, 1, 1, 1], [2, 0, 1.5, 1.5, 0], [1, -2.5, 1, 1, -2.5], [0.75, -2.75, 0.75, 0.75, 0.75], [2, 0, 1.5, 1, 0]],
    ("C", "D", "SP", "TP", "FD"),
)
PAYOFF = st.floats(-3, 3, allow_nan=False)


def slow_fixation(payoffs: np.ndarray, resident: int, mutant: int, size: int, beta: float) -> float:
    """Straight from the formula, with products."""
    total, product = 1.0, 1.0
    for k in range(1, size):
        f_mutant = ((k - 1) * payoffs[mutant, mutant] + (size - k) * payoffs[mutant, resident]) / (size - 1)
        f_resident = (k * payoffs[resident, mutant] + (size - k - 1) * payoffs[resident, resident]) / (size - 1)
        product *= math.exp(-beta * (f_mutant - f_resident))
        total += product
    return 1 / total


@given(st.lists(PAYOFF, min_size=9, max_size=9), st.integers(2, 12), st.floats(0, 2))
@settings(max_examples=40, deadline=None)
def test_fixation_is_the_formula(payoffs: list[float], size: int, beta: float) -> None:
    game = Game(np.reshape(payoffs, (3, 3)))
    found = fixation_matrix(game, size, beta)
    for resident in range(3):
        for mutant in range(3):
            if resident != mutant:
                slow = slow_fixation(game.payoffs, resident, mutant, size, beta)
                assert found[resident, mutant] == pytest.approx(slow, rel=1e-9)


def test_a_neutral_mutant_fixates_once_in_n() -> None:
    assert fixation_matrix(Game(np.ones((3, 3))), 50, 0.7) == pytest.approx(np.full((3, 3), 1 / 50))
    assert fixation_matrix(THREATS, 50, 0.0) == pytest.approx(np.full((5, 5), 1 / 50))
    assert fixation_probability(THREATS, "D", "D", 20, 3.0) == pytest.approx(1 / 20)


@pytest.mark.parametrize("r", [0.5, 1.1, 3.0])
def test_constant_fitness_has_the_closed_forms(r: float) -> None:
    size = 30
    closed = (1 - 1 / r) / (1 - r**-size)
    moran = Game([[1, 1], [r, r]], ("resident", "mutant"))
    assert fixation_probability(moran, "mutant", "resident", size, 1.0, rule="moran") == pytest.approx(closed)
    fermi = Game([[0, 0], [math.log(r), math.log(r)]], ("resident", "mutant"))
    assert fixation_probability(fermi, "mutant", "resident", size, 1.0) == pytest.approx(closed)


def test_strong_selection_does_not_overflow() -> None:
    found = small_mutation(THREATS, 1000, 50.0)
    assert np.isfinite(found.stationary).all()
    assert found.stationary.sum() == pytest.approx(1)
    hopeless = Game([[10, 10], [0, 0]], ("good", "bad"))
    assert fixation_probability(hopeless, "bad", "good", 500, 100.0) == 0.0
    assert small_mutation(hopeless, 500, 100.0).share("good") == pytest.approx(1.0)


def test_detailed_balance_between_two_strategies() -> None:
    """Of two strategies the shares are as the fixation probabilities: pi_a rho_ab = pi_b rho_ba."""
    pair = THREATS.restrict(["D", "TP"])
    chain = small_mutation(pair, 40, 0.2)
    assert chain.stationary[0] * chain.fixation[0, 1] == pytest.approx(chain.stationary[1] * chain.fixation[1, 0])


def test_the_chain_and_its_distribution_are_those_of_egttools() -> None:
    from egttools.analytical import PairwiseComparison
    from egttools.games import Matrix2PlayerGameHolder
    from egttools.utils import calculate_stationary_distribution

    holder = Matrix2PlayerGameHolder(5, np.array(THREATS.payoffs))
    transitions, fixation = PairwiseComparison(100, holder).calculate_transition_and_fixation_matrix_sml(0.1)
    ours = small_mutation(THREATS, 100, 0.1)
    assert ours.transitions == pytest.approx(transitions, abs=1e-6)
    off = ~np.eye(5).astype(bool)
    assert ours.fixation[off] == pytest.approx(np.array(fixation)[off], abs=1e-6)
    assert ours.stationary == pytest.approx(calculate_stationary_distribution(transitions.T), abs=1e-5)


@given(st.lists(st.floats(0.01, 1), min_size=16, max_size=16))
@settings(max_examples=30, deadline=None)
def test_the_stationary_distribution_is_stationary(numbers: list[float]) -> None:
    table = np.reshape(numbers, (4, 4))
    table /= table.sum(1, keepdims=True)
    found = stationary_distribution(table)
    assert found @ table == pytest.approx(found, abs=1e-12)
    assert found.sum() == pytest.approx(1)


def test_rare_states_come_out_to_full_accuracy() -> None:
    tiny = 1e-200
    found = stationary_distribution([[1 - tiny, tiny], [0.5, 0.5]])
    assert found[1] == pytest.approx(2 * tiny, rel=1e-12)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0.5, 0.4], [0.5, 0.5]], "row 0 sums to 0.9"),
        ([[1.0, 0.0]], r"shape \(states, states\)"),
        ([[1.5, -0.5], [0.5, 0.5]], "negative"),
        ([[1.0, 0.0], [0.0, 1.0]], "one stationary distribution"),
    ],
)
def test_bad_chains_are_refused(table: list[list[float]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        stationary_distribution(table)


@given(PAYOFF, PAYOFF, PAYOFF, PAYOFF)
@settings(deadline=None, max_examples=40)
def test_risk_dominance_decides_who_takes_over_more_readily(a: float, b: float, c: float, d: float) -> None:
    """Under weak selection in a large population rho_AB > rho_BA if and only if B risk-dominates A."""
    game = Game([[a, b], [c, d]], ("A", "B"))
    margin = game.risk_margin("A", "B")
    assert game.risk_margins()[1, 0] == pytest.approx(-margin)
    if abs(margin) > 0.1:
        found = fixation_matrix(game, 500, 0.001)
        assert (found[1, 0] > found[0, 1]) == (margin > 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temptation": 0.5}, "T > R does not hold: T = 0.5, R = 1"),
        ({"punishment": 1.0}, "R > P does not hold"),
        ({"sucker": 0.0}, "P > S does not hold"),
        ({"reward": math.nan}, "finite"),
    ],
)
def test_what_is_no_dilemma_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Dilemma(**changes)


def test_bad_games_are_refused() -> None:
    with pytest.raises(UserError, match=r"shape \(strategies, strategies\), got \(2, 3\)"):
        Game(np.zeros((2, 3)))
    with pytest.raises(UserError, match="row 1, column 0 is nan"):
        Game([[0, 0], [math.nan, 0]])
    with pytest.raises(UserError, match="'C' is given twice"):
        Game(np.zeros((2, 2)), ("C", "C"))
    with pytest.raises(UserError, match="expected 2, one per strategy, got 1"):
        Game(np.zeros((2, 2)), ("C",))
    with pytest.raises(UserError, match="Did you mean 'TP'"):
        THREATS.index("TPP")
    game = Game(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        game.payoffs[0, 0] = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 1}, "at least 2 agents"),
        ({"beta": -0.1}, "beta"),
        ({"mutation": -0.1}, "mutation"),
        ({"mutation": 1.1}, "mutation"),
        ({"steps": 0}, "at least 1 step"),
        ({"start": [1, 2]}, r"expected shape \(strategies,\) or"),
        ({"start": [1, 2, 3, 3, 4]}, "add up to 10"),
        ({"payoffs": np.zeros((2, 5, 5))}, r"\(1, 5, 5\), got \(2, 5, 5\)"),
    ],
)
def test_bad_populations_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        evolve(THREATS, **({"size": 10, "beta": 0.1, "mutation": 0.1, "steps": 10} | changes))
    with pytest.raises(UserError, match="positive fitness"):
        fixation_matrix(Game([[-5, 0], [0, 0]]), 10, 0.5, rule="moran")


def test_logistic_growth_and_conserved_cycles() -> None:
    better = Game([[1.0, 1.0], [0.0, 0.0]])
    path = replicator(better, [0.1, 0.9], time=5.0, step=0.01)
    odds = 0.1 / 0.9 * math.exp(5.0)
    assert path[-1, 0] == pytest.approx(odds / (1 + odds), abs=1e-9)
    cycle = Game([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    path = replicator(cycle, [[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], time=20.0)
    assert path.prod(-1)[-1] == pytest.approx(path.prod(-1)[0], rel=1e-6)
    with pytest.raises(UserError, match=r"\(\.\.\., 3\)"):
        replicator(cycle, [0.5, 0.5], time=1.0)
    with pytest.raises(UserError, match="sum to 1"):
        replicator_rates(cycle, [0.5, 0.5, 0.5])


def test_replicator_rates_are_those_of_egttools() -> None:
    from egttools.analytical import replicator_equation

    shares = np.random.default_rng(0).dirichlet(np.ones(5))
    assert replicator_rates(THREATS, shares) == pytest.approx(replicator_equation(shares, np.array(THREATS.payoffs)))


def full_chain(game: Game, size: int, beta: float, mutation: float) -> tuple[np.ndarray, np.ndarray]:
    """Return all states of a small population and their exact stationary distribution, one step written out."""
    k = len(game)
    states = [s for s in np.ndindex(*([size + 1] * k)) if sum(s) == size]
    index = {state: number for number, state in enumerate(states)}
    table = np.zeros((len(states), len(states)))
    for number, state in enumerate(states):
        fitness = [(sum(state[j] * game.payoffs[i, j] for j in range(k)) - game.payoffs[i, i]) / (size - 1)
                   for i in range(k)]  # fmt: skip
        for i in range(k):
            for j in range(k):
                if i != j and state[i]:
                    fermi = 1 / (1 + math.exp(-beta * (fitness[j] - fitness[i])))
                    p = state[i] / size * ((1 - mutation) * state[j] / (size - 1) * fermi + mutation / (k - 1))
                    after = list(state)
                    after[i] -= 1
                    after[j] += 1
                    table[number, index[tuple(after)]] += p
        table[number, number] = 1 - table[number].sum()
    return np.array(states), stationary_distribution(table)


def test_time_averages_are_those_of_the_whole_chain() -> None:
    game, size = THREATS.restrict(["D", "TP", "FD"]), 6
    states, exact = full_chain(game, size, 1.0, 0.05)
    run = evolve(game, size=size, beta=1.0, mutation=0.05, steps=20_000, populations=100, discard=500, seed=1)
    assert run.shares.mean(0) == pytest.approx(exact @ states / size, abs=0.01)
    pure = [exact[(states[:, i] == size).argmax()] for i in range(3)]
    assert run.pure.mean(0) == pytest.approx(pure, abs=0.01)
    pairs = np.einsum("s,si,sj->ij", exact, states, states) - np.diag(exact @ states)
    assert run.pairs.mean(0) == pytest.approx(pairs / (size * (size - 1)), abs=0.01)


def test_a_population_without_mutation_fixates_as_the_formula_says() -> None:
    game = THREATS.restrict(["D", "TP"])
    run = evolve(game, size=12, beta=0.3, mutation=0.0, steps=10**9, populations=20_000, start=[11, 1], seed=2)
    assert (run.final.max(1) == 12).all()
    exact = fixation_probability(game, "TP", "D", 12, 0.3)
    assert (run.final[:, 1] == 12).mean() == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))


def test_a_series_keeps_the_last_state_and_agrees_with_the_mean() -> None:
    run = evolve(THREATS, size=20, beta=0.1, mutation=0.02, steps=5000, populations=4, samples=5000, seed=3)
    assert run.series.shape == (4, 5000, 5)
    assert (run.series.sum(-1) == 20).all()
    assert run.series.mean(1) / 20 == pytest.approx(run.shares)
    assert (np.abs(np.diff(run.series, axis=1)).sum(-1) <= 2).all(), "a step moves one agent"
    assert (np.abs(np.diff(run.series, axis=1)).sum(-1) > 0).sum(1) == pytest.approx(run.events, abs=1)
    again = evolve(THREATS, size=20, beta=0.1, mutation=0.02, steps=5000, populations=4, samples=5000, seed=3)
    assert (again.series == run.series).all()


def test_graphs_have_the_neighbours_that_they_should() -> None:
    torus = lattice(4, 5)
    assert (torus.degrees == 4).all()
    assert set(torus.neighbours[0]) == {1, 4, 5, 15}
    assert len(torus.edges) == 2 * 40
    assert complete_graph(4).adjacency.sum() == 12
    hubs = scale_free(200, 2, seed=1)
    assert len(hubs.edges) == 2 * (2 * 198)
    assert hubs.degrees.max() > 15
    assert (hubs.adjacency == hubs.adjacency.T).all()
    with pytest.raises(UserError, match="node 2 has no neighbour"):
        Graph.of_edges(3, [(0, 1)])
    with pytest.raises(UserError, match="sides of at least 3"):
        lattice(2, 5)
    with pytest.raises(UserError, match="attach"):
        scale_free(5, 5)


def test_populations_on_a_graph() -> None:
    """On the complete graph with mean payoffs a network is the well-mixed population; elsewhere, exact cases."""
    from rolecraft.societies import evolve_on_graph

    game, size = THREATS.restrict(["D", "TP", "FD"]), 6
    states, exact = full_chain(game, size, 1.0, 0.05)
    run = evolve_on_graph(
        game, complete_graph(size), beta=1.0, mutation=0.05, steps=8000, samples=400, populations=64, discard=500
    )
    assert run.shares.mean(0) == pytest.approx(exact @ states / size, abs=0.02)
    pairs = np.einsum("s,si,sj->ij", exact, states, states) - np.diag(exact @ states)
    assert run.pairs.mean(0) == pytest.approx(pairs / (size * (size - 1)), abs=0.02)
    assert (run.series.sum(-1) == size).all()
    with pytest.raises(UserError, match=r"\(6,\) or \(1, 6\), got \(5,\)"):
        evolve_on_graph(game, complete_graph(size), beta=1.0, mutation=0.1, steps=9, start=[0] * 5)
    with pytest.raises(UserError, match="mutation"):
        evolve_on_graph(game, complete_graph(size), beta=1.0, mutation=-1, steps=9)


def test_neighbours_alone_are_imitated() -> None:
    """Between two nodes joined to each other only, strategies of the others never appear without mutation."""
    from rolecraft.societies import evolve_on_graph

    graph = Graph.of_edges(4, [(0, 1), (2, 3)])
    run = evolve_on_graph(
        Game(np.zeros((3, 3))), graph, beta=0.0, mutation=0.0, steps=300, samples=3, populations=8, start=[0, 1, 2, 2]
    )
    assert set(np.unique(run.final[:, :2])) == {0, 1}
    assert (run.final[:, 0] == run.final[:, 1]).all()
    assert (run.final[:, 2:] == 2).all()


def test_what_a_population_does_hangs_on_its_own_seed_alone() -> None:
    given = {"size": 10, "beta": 0.2, "mutation": 0.05, "steps": 3000}
    both = evolve(THREATS, populations=2, seed=[7, 8], **given)
    alone = [evolve(THREATS, seed=[seed], **given) for seed in (8, 7)]
    assert (both.shares == np.concatenate([alone[1].shares, alone[0].shares])).all()
    assert (both.shares[0] != both.shares[1]).any()
    with pytest.raises(UserError, match="one per population, 3; got 2"):
        evolve(THREATS, populations=3, seed=[1, 2], **given)
    with pytest.raises(UserError, match="at least 0"):
        evolve(THREATS, seed=-1, **given)

"""Finite populations in the limit of rare mutants: fixation probabilities, the chain between pure populations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rolecraft.errors import UserError
from rolecraft.societies._game import Floats, Game

Rule = Literal["pairwise", "moran"]


def check_population(size: int, beta: float, rule: str = "pairwise") -> None:
    """Check the size of a population and its intensity of selection.

    Raises:
        UserError: If there are fewer than two agents, the intensity is negative or not finite, or the rule is unknown.
    """
    if size < 2:
        raise UserError(f"size: a population needs at least 2 agents, got {size}.")
    if not (np.isfinite(beta) and beta >= 0):
        raise UserError(f"beta: expected a finite intensity of selection of at least 0, got {beta}.")
    if rule not in ("pairwise", "moran"):
        raise UserError(f"rule: expected 'pairwise' or 'moran', got {rule!r}.")
    if rule == "moran" and beta > 1:
        raise UserError(f"beta: the Moran rule takes 0 to 1 (fitness 1 - beta + beta * payoff), got {beta}.")


def mutant_payoffs(payoffs: Floats, size: int) -> tuple[Floats, Floats]:
    """Return mean payoffs of mutants and residents while 1 to size - 1 agents are mutants.

    Nobody meets itself: a mutant among k meets k - 1 mutants and size - k residents.

    Args:
        payoffs: Shape (strategies, strategies).
        size: Of the population, N.

    Returns:
        Two arrays of shape (residents, mutants, N - 1), the last axis for k = 1 to N - 1 mutants.
    """
    k = np.arange(1, size)
    own = payoffs.diagonal()
    mutant = ((k - 1) * own[None, :, None] + (size - k) * payoffs.T[:, :, None]) / (size - 1)
    resident = (k * payoffs[:, :, None] + (size - k - 1) * own[:, None, None]) / (size - 1)
    return mutant, resident


def log_fixation_matrix(game: Game, size: int, beta: float, *, rule: Rule = "pairwise") -> Floats:
    """Return the logarithms of `fixation_matrix`, finite however strong selection is."""
    check_population(size, beta, rule)
    mutant, resident = mutant_payoffs(game.payoffs, size)
    if rule == "pairwise":
        ratios = beta * (resident - mutant)
    else:
        fit_mutant, fit_resident = 1 - beta + beta * mutant, 1 - beta + beta * resident
        if not (fit_mutant > 0).all() or not (fit_resident > 0).all():
            raise UserError(
                "beta: the Moran rule needs positive fitness 1 - beta + beta * payoff everywhere; the least payoff "
                f"{game.payoffs.min():g} with beta = {beta:g} gives less. Lower beta or shift the payoffs."
            )
        ratios = np.log(fit_resident) - np.log(fit_mutant)
    terms = np.concatenate([np.zeros((*ratios.shape[:2], 1)), np.cumsum(ratios, axis=2)], axis=2)
    top = terms.max(axis=2)
    logs: Floats = -(top + np.log(np.exp(terms - top[:, :, None]).sum(axis=2)))
    np.fill_diagonal(logs, -np.log(size))
    return logs


def fixation_matrix(game: Game, size: int, beta: float, *, rule: Rule = "pairwise") -> Floats:
    """Return the probability that one mutant takes over, for every resident and mutant.

    rho = 1 / (1 + sum_{i=1}^{N-1} prod_{k=1}^{i} T-(k) / T+(k)), summed in logarithms (Traulsen, Nowak and Pacheco
    2006; Nowak et al. 2004).

    Args:
        game: The game.
        size: Agents in the population, N.
        beta: Intensity of selection, at least 0.
        rule: `pairwise` compares two agents by the Fermi function, so that T-/T+ = exp(beta (f_resident - f_mutant));
            `moran` lets agents reproduce by fitness 1 - beta + beta * payoff.

    Returns:
        Shape (residents, mutants); the diagonal is that of a neutral mutant, 1 / N.

    Raises:
        UserError: If the size, the intensity or the rule is out of range.
    """
    return np.exp(log_fixation_matrix(game, size, beta, rule=rule))


def fixation_probability(
    game: Game, mutant: str, resident: str, size: int, beta: float, *, rule: Rule = "pairwise"
) -> float:
    """Return the probability that one mutant takes over a population of residents; see `fixation_matrix`."""
    pair = Game(game.restrict([resident, mutant]).payoffs) if mutant != resident else Game(np.zeros((2, 2)))
    return float(fixation_matrix(pair, size, beta, rule=rule)[0, 1])


def stationary_distribution(transitions: ArrayLike, names: Sequence[str] | None = None) -> Floats:
    """Return the stationary distribution of a Markov chain, to full relative accuracy.

    By the elimination of Grassmann, Taksar and Heyman (1985), which never subtracts, so that states of 1e-200 of the
    time come out right as well.

    Args:
        transitions: Shape (states, states), rows sum to 1.
        names: Of the states, for errors.

    Returns:
        Shape (states,), summing to 1.

    Raises:
        UserError: If the matrix is not square, has negative entries, rows that do not sum to 1, or has more than one
            closed class of states.
    """
    array = np.array(transitions, dtype=float)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise UserError(f"transitions: expected shape (states, states), got {array.shape}.")
    if not (array >= 0).all():
        raise UserError("transitions: expected probabilities, got a negative or undefined entry.")
    sums = array.sum(1)
    if (np.abs(sums - 1) > 1e-8).any():
        row = int(np.abs(sums - 1).argmax())
        raise UserError(f"transitions: rows must sum to 1, row {row} sums to {sums[row]:.6g}.")
    with np.errstate(divide="ignore"):
        return stationary_from_logs(np.log(array), names)


def stationary_from_logs(logs: Floats, names: Sequence[str] | None = None) -> Floats:
    """Return the stationary distribution from logarithms of the transitions; the diagonal is not read.

    Rates will do in the place of probabilities: a common factor drops out.
    """
    table = np.array(logs)
    for n in range(len(table) - 1, 0, -1):
        leave = np.logaddexp.reduce(table[n, :n])
        if np.isneginf(leave):
            state = n if names is None else names[n]
            raise UserError(
                f"transitions: state {state!r} does not lead to the states before it, so that the chain need not have "
                "one stationary distribution; raise the mutation rate or leave the state out."
            )
        table[:n, n] -= leave
        table[:n, :n] = np.logaddexp(table[:n, :n], table[:n, n, None] + table[n, :n])
    found = np.zeros(len(table))
    for n in range(1, len(table)):
        found[n] = np.logaddexp.reduce(found[:n] + table[:n, n])
    weights = np.exp(found - found.max())
    shares: Floats = weights / weights.sum()
    return shares


@dataclass(frozen=True, eq=False)
class SmallMutation:
    """The limit of rare mutations: a Markov chain between pure populations (Fudenberg and Imhof 2006)."""

    names: tuple[str, ...]
    fixation: Floats
    """Shape (residents, mutants): see `fixation_matrix`."""
    transitions: Floats
    """Shape (strategies, strategies): fixation / (strategies - 1) off the diagonal; rows sum to 1."""
    stationary: Floats
    """Shape (strategies,): the share of time that the population is of each strategy."""

    def share(self, *names: str) -> float:
        """Return the share of time of some strategies together; those that are not in the game add nothing."""
        return float(sum(self.stationary[self.names.index(name)] for name in names if name in self.names))


def small_mutation(game: Game, size: int, beta: float, *, rule: Rule = "pairwise") -> SmallMutation:
    """Return the chain between pure populations while mutants are so rare that one fixates or dies before the next.

    Args:
        game: The game.
        size: Agents in the population.
        beta: Intensity of selection.
        rule: See `fixation_matrix`.

    Raises:
        UserError: If the size, the intensity or the rule is out of range.
    """
    logs = log_fixation_matrix(game, size, beta, rule=rule)
    fixation = np.exp(logs)
    if len(game) == 1:
        return SmallMutation(game.names, fixation, np.ones((1, 1)), np.ones(1))
    transitions = fixation / (len(game) - 1)
    np.fill_diagonal(transitions, 0.0)
    np.fill_diagonal(transitions, 1 - transitions.sum(1))
    return SmallMutation(game.names, fixation, transitions, stationary_from_logs(logs, game.names))

"""Reward automata: rewards that depend on what happened before, and the MDP in which they do not any more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.control.tabular._mdp import Floats, Mdp
from rolecraft.errors import UserError


@dataclass(frozen=True, eq=False)
class Automaton:
    """A deterministic automaton that reads a label per step and pays for its moves (a reward machine)."""

    moves: NDArray[np.int64]
    """Shape (U, L): the next automaton state, given state and label."""
    pays: Floats
    """Shape (U, L): reward of that move."""
    final: NDArray[np.bool_]
    """Shape (U,): states in which the episode is over."""
    start: int = 0

    def __post_init__(self) -> None:
        """Check shapes and that every move leads to a state."""
        for name, kind in (("moves", np.int64), ("pays", float), ("final", bool)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))
        shape = self.moves.shape
        if len(shape) != 2 or self.pays.shape != shape or self.final.shape != shape[:1]:
            raise UserError(
                f"automaton: expected moves and pays of shape (U, L) and final of shape (U,), "
                f"got {shape}, {self.pays.shape} and {self.final.shape}."
            )
        if self.moves.min() < 0 or self.moves.max() >= len(self.moves) or not 0 <= self.start < len(self.moves):
            raise UserError(f"automaton: moves and start name states 0 to {len(self.moves) - 1}.")

    def run(self, labels: ArrayLike) -> tuple[list[int], list[float]]:
        """Read labels one by one; return the states passed (the start first) and what was paid for each label."""
        state, states, paid = self.start, [self.start], list[float]()
        for label in np.asarray(labels, dtype=int):
            over = self.final[state]
            paid.append(0.0 if over else float(self.pays[state, label]))
            state = state if over else int(self.moves[state, label])
            states.append(state)
        return states, paid


def product_mdp(mdp: Mdp, automaton: Automaton, labels: ArrayLike) -> Mdp:
    """Return the MDP over pairs (state, automaton state), numbered state * U + automaton state.

    A step from s to s' reads the label of s'; it pays the MDP's reward and the automaton's. A pair is absorbing where
    either part is. The label of the first state is not read.

    Args:
        mdp: One MDP.
        automaton: With L labels and U states.
        labels: Shape (S,): the label that entering a state emits, in 0 to L - 1.

    Raises:
        UserError: If the MDP is a stack or the labels do not fit.
    """
    marks = np.asarray(labels)
    states, (machine, kinds) = mdp.states, automaton.moves.shape
    if mdp.lead or marks.shape != (states,):
        raise UserError(f"labels: expected one MDP and shape (S,) = ({states},), got {mdp.lead} and {marks.shape}.")
    if marks.dtype.kind not in "iu" or marks.min() < 0 or marks.max() >= kinds:
        raise UserError(f"labels: expected integers in 0 to {kinds - 1}, the automaton's labels, got {marks.tolist()}.")
    follow = np.eye(machine)[automaton.moves[:, marks]]
    joint = np.einsum("sat,utv->suatv", mdp.transitions, follow)
    paid = mdp.rewards[:, None] + np.einsum("sat,ut->sua", mdp.transitions, automaton.pays[:, marks])
    size = states * machine
    absorbing = (mdp.absorbing[:, None] | automaton.final[None]).ravel()
    transitions = joint.reshape(size, mdp.actions, size)
    transitions[absorbing] = np.eye(size)[absorbing][:, None]
    rewards = np.where(absorbing[:, None], 0.0, paid.reshape(size, mdp.actions))
    start = np.outer(mdp.start, np.eye(machine)[automaton.start]).ravel()
    return Mdp(transitions, rewards, start, mdp.discount, absorbing)

"""Policies that change seats every so many iterations (CORY, arXiv 2410.06101)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft.errors import UserError

if TYPE_CHECKING:
    from rolecraft.learning.trainer import Iteration, Trainer


class NoExchangeWarning(UserWarning):
    """Training ends before the first exchange."""


@dataclass(frozen=True)
class RoleExchange:
    """Who sits where: every `every` iterations each policy moves on to the next seat.

    Weights, critic, optimiser and reference stay with the policy. Seats follow from the number of the iteration alone,
    which a checkpoint holds, so that a run that goes on has everyone where they were; and they never change while
    episodes are played.

    Args:
        seats: Agents of the world.
        policies: As many names; each begins in the seat of its place.
        every: Iterations between exchanges; None: nobody moves.
        rebuild: Begin every stretch with new optimisers, as the paper's program does, which stores and loads its models
            in between.

    Raises:
        UserError: If there are not as many policies as seats, or one stands twice, or `every` is below 1.
    """

    seats: tuple[str, ...]
    policies: tuple[str, ...]
    every: int | None = 5
    rebuild: bool = False

    def __post_init__(self) -> None:
        if len(self.seats) != len(self.policies) or not self.seats:
            raise UserError(f"expected one policy per seat, got {len(self.policies)} for {len(self.seats)} seats.")
        for what, names in (("seat", self.seats), ("policy", self.policies)):
            if len(set(names)) < len(names):
                raise UserError(f"a {what} stands twice: {', '.join(names)}.")
        if self.every is not None and self.every < 1:
            raise UserError(f"every must be at least 1, or None for no exchange, got {self.every}.")

    def seated(self, iteration: int) -> dict[str, str]:
        """Return the policy of each seat in an iteration, counted from 0."""
        moved = 0 if self.every is None else iteration // self.every
        count = len(self.policies)
        return {seat: self.policies[(place - moved) % count] for place, seat in enumerate(self.seats)}

    def begins(self, iteration: int) -> bool:
        """Return whether policies have moved since the iteration before."""
        return iteration > 0 and self.seated(iteration) != self.seated(iteration - 1)

    def bind(self, trainer: Trainer) -> None:
        """Let the seats decide which policy of a trainer acts for whom.

        Warns:
            NoExchangeWarning: If training ends before the first exchange.

        Raises:
            UserError: If the trainer's policies are others, read text in different ways, or not all have a critic.
        """
        if set(trainer.policies) != set(self.policies):
            raise UserError(
                f"the trainer's policies are {', '.join(trainer.policies)}, expected {', '.join(self.policies)}."
            )
        first, *others = trainer.policies.values()
        for name, policy in zip(list(trainer.policies)[1:], others, strict=True):
            if policy.base != first.base:
                raise UserError(
                    f"policy {name!r} stands on another base or vocabulary; those that exchange must match."
                )
            if (policy.critic is None) != (first.critic is None):
                raise UserError(f"policy {name!r}: either all policies that exchange have a critic, or none.")
        if self.every is not None and self.every >= trainer.config.iterations:
            warnings.warn(
                f"an exchange every {self.every} iterations never happens in {trainer.config.iterations}.",
                NoExchangeWarning,
                stacklevel=2,
            )
        trainer.route = lambda agent, role: self._at(trainer.iteration, agent)

    def step(self, trainer: Trainer) -> Iteration:
        """Take one iteration of a trainer that is bound; see `Trainer.step`."""
        if self.rebuild and self.begins(trainer.iteration):
            for optimiser in trainer.optimisers.values():
                optimiser.state.clear()
        return trainer.step()

    def _at(self, iteration: int, agent: str) -> str:
        found = self.seated(iteration)
        if agent not in found:
            raise UserError(f"no seat for agent {agent!r} (seats: {', '.join(self.seats)}).")
        return found[agent]

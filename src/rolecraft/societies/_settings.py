"""Who plays what with whom in a society of learners, and how they learn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rolecraft.errors import UserError
from rolecraft.societies._game import Dilemma
from rolecraft.societies._graph import Graph, complete_graph
from rolecraft.societies._mechanism import SocialMechanism, check_agents


@dataclass(frozen=True)
class Learning:
    """Constants of the three heads, in the order select, play, punish."""

    kind: Literal["tabular", "dqn"] = "tabular"
    lr: tuple[float, float, float] = (0.05, 0.1, 0.1)
    floor: tuple[float, float, float] = (1e-4, 0.01, 0.2)
    """Least exploration. Paper: 1e-4, 0.01, 0.2."""
    fade: tuple[float, float, float] = (0.01, 0.01, 0.01)
    """Share of the way from 0.8889 to the floor that exploration falls per update."""
    gamma: float = 0.9
    """Paper: 0.9."""
    scale: Literal["raw", "standard"] = "standard"
    """Reputations as they are, or as standard scores over the society; raw ones grow without bound. Paper: raw."""
    hidden: int = 128
    """Units of the networks. Paper: 128, in one version of its code 64."""
    batch: int = 100
    target_every: int = 200

    def __post_init__(self) -> None:
        """Refuse constants that are none.

        Raises:
            UserError: If a rate or size is out of range.
        """
        if self.kind not in ("tabular", "dqn") or self.scale not in ("raw", "standard"):
            raise UserError(
                f"expected kind 'tabular' or 'dqn' and scale 'raw' or 'standard', got {self.kind!r} and {self.scale!r}."
            )
        if min(self.lr) <= 0 or min(self.fade) < 0 or not all(0 <= floor <= 1 for floor in self.floor):
            raise UserError(
                "learning rates must be above 0, fades at least 0 and floors 0 to 1, got "
                f"{self.lr}, {self.fade} and {self.floor}."
            )
        if not 0 <= self.gamma < 1 or min(self.hidden, self.batch, self.target_every) < 1:
            raise UserError("expected gamma in [0, 1) and hidden, batch and target_every of at least 1.")

    @classmethod
    def published(cls) -> Learning:
        """Return the deep Q-networks of the paper."""
        return cls("dqn", (0.01, 0.1, 0.001), fade=(0.3000667, 0.3000667, 0.5000444), scale="raw")


@dataclass(frozen=True, eq=False)
class Society:
    """Who plays what with whom."""

    agents: int = 5
    """Paper: 5, or 25 in caves."""
    rounds: int = 10
    """Of the dilemma per match, or most turns of the centipede game. Paper: 10 (dilemma), 6 (centipede)."""
    game: Literal["dilemma", "centipede"] = "dilemma"
    dilemma: Dilemma = field(default_factory=lambda: Dilemma(3.0, 0.0, 4.0, 1.0))
    """Paper: (3, 3), (0, 4), (4, 0), (1, 1)."""
    giver: float = -1.0
    """In the centipede game, what an agent gets for going on. Paper: -1."""
    receiver: float = 5.0
    """What the other one gets. Paper: 5."""
    graph: Graph | None = None
    """Who may be partners, and third parties to each other; None: all."""
    learning: Learning = field(default_factory=Learning)

    def __post_init__(self) -> None:
        """Refuse a society in which somebody cannot play.

        Raises:
            UserError: If it is too small, a match has no turn, or the graph has another number of nodes.
        """
        if self.agents < 2 or self.rounds < 1:
            raise UserError(f"expected at least 2 agents and 1 round, got {self.agents} and {self.rounds}.")
        if self.game not in ("dilemma", "centipede"):
            raise UserError(f"game: expected 'dilemma' or 'centipede', got {self.game!r}.")
        if self.graph is not None and len(self.graph) != self.agents:
            raise UserError(
                f"graph: expected one node per agent, {self.agents}, got {len(self.graph)}; set agents to match."
            )

    def adjacency(self) -> np.ndarray[Any, Any]:
        """Return who may play with whom, shape (agents, agents)."""
        return (self.graph or complete_graph(self.agents)).adjacency

    def check(self, mechanism: SocialMechanism) -> None:
        """Check that every possible match has its bystander.

        Raises:
            UserError: If there are too few agents, or two neighbours have no neighbour beside them.
        """
        check_agents(self.agents, mechanism)
        if not mechanism.third_party:
            return
        near = self.adjacency()
        for a, b in np.argwhere(near):
            beside = near[a] | near[b]
            if beside.sum() <= 2:
                raise UserError(
                    f"graph: agents {a} and {b} have no neighbour beside each other, so no third party can judge "
                    "them; use larger caves or direct punishment."
                )

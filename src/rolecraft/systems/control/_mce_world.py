"""The world of study 022: a grid with a hidden wall, soft-optimal experts, and what a policy does in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rolecraft.control.tabular import Grid, Mdp, Walks, grid_mdp, occupancy, sample_walks, value_iteration

Floats = NDArray[np.float64]
LONG = 300
"""Steps within which every agent worth its name has arrived."""


@dataclass(frozen=True, eq=False)
class WallWorld:
    """A grid world, its hidden forbidden cells and its expert."""

    grid: Grid
    """Marks: `S`, `G`, and `x` for forbidden cells, which are floor to whoever is not told."""
    forbidden: NDArray[np.bool_]
    """Shape (S,)."""
    temperature: float
    penalty: float
    """What a step in a forbidden cell costs the expert."""
    expert: Floats
    """Shape (S, A): the soft-optimal policy that knows the constraint."""
    nominal: Floats
    """Shape (S, A): the soft-optimal policy that does not."""

    @property
    def mdp(self) -> Mdp:
        """The MDP of the known reward."""
        return self.grid.mdp

    @classmethod
    def build(
        cls, rows: list[str], *, slip: float, temperature: float, penalty: float, discount: float, step_reward: float
    ) -> WallWorld:
        """Solve a map for its expert and for an agent without the constraint."""
        grid = grid_mdp(rows, discount=discount, slip=slip, step_reward=step_reward)
        forbidden = np.zeros(grid.mdp.states, dtype=bool)
        forbidden[grid.states_of("x")] = True
        empty = np.empty((0, 0))
        world = cls(grid, forbidden, temperature, penalty, empty, empty)
        return replace(
            world, expert=world.plan(penalty * forbidden), nominal=world.plan(np.zeros(grid.mdp.states))
        )  # fmt: skip

    def plan(self, cost: Floats) -> Floats:
        """Return the soft-optimal policy for the known reward less a cost per state, of shape (S, A)."""
        priced = self.mdp.with_rewards(self.mdp.rewards - cost[:, None])
        return value_iteration(priced, self.temperature, tolerance=1e-6).policy

    def demonstrations(self, episodes: int, horizon: int, rng: np.random.Generator) -> Walks:
        """Draw episodes of the expert."""
        return sample_walks(self.mdp, self.expert, episodes, horizon, rng)

    def judge(self, policy: Floats) -> dict[str, float]:
        """Return an episode's exact violations and reward, and the reward less the expert's penalty."""
        visits = occupancy(self.mdp, policy, horizon=LONG, discount=1.0)
        violations = float(visits[self.forbidden].sum())
        reward = float((visits * self.mdp.rewards).sum())
        return {
            "violations": violations,
            "reward": reward,
            "penalised": reward - self.penalty * violations,
        }


def draw_maps(size: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Draw the map that is learned on and the one that the cost is carried to.

    A wall of forbidden cells stands in one column and leaves the two last rows open. The second map has the wall in the
    same place, and start and goal in other rows.

    Args:
        size: Rows and columns, at least 6.
        rng: Draws the wall's column and the rows of starts and goals.
    """
    column = int(rng.integers(2, size - 2))
    rows = rng.permutation(size - 2)[:4]

    def draw(start: int, goal: int) -> list[str]:
        cells = [["x" if c == column and r < size - 2 else "." for c in range(size)] for r in range(size)]
        cells[start][0], cells[goal][size - 1] = "S", "G"
        return ["".join(line) for line in cells]

    first, second = sorted(int(row) for row in rows[:2])
    return draw(first, second), draw(int(rows[2]), int(rows[3]))

"""Tic-tac-toe, many games at once: the board, games between two movers, and a small network that plays both seats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rolecraft.learning.credit import CreditBatch

Ints = NDArray[np.int64]
Mover = Callable[[Tensor, Tensor, np.random.Generator], Tensor]
"""From boards as their mover sees them, of shape (games, 18), and which cells are free, (games, 9), to cells (games,).
"""

LINES = torch.tensor(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]], dtype=torch.long
)
CELLS = 9
INVALID = (-1.5, 0.5)
"""Rewards of whoever takes a cell that is not free, and of the other; the game ends with it."""
WIN, DRAW, FAULT = 0, 1, 2
"""How a game ended."""


@dataclass(frozen=True)
class Games:
    """Finished games. A row is a turn; rows lie ply by ply."""

    seen: Tensor
    """Shape (rows, 18): the mover's stones, then the other's."""
    free: Tensor
    """Shape (rows, 9): booleans."""
    action: Tensor
    """Shape (rows,): the cell that was taken."""
    game: Ints
    """Shape (rows,)."""
    ply: Ints
    """Shape (rows,): 0 for the first stone; the seat is its remainder by 2."""
    rewards: NDArray[np.float64]
    """Shape (games, 2), by seat."""
    ended: Ints
    """Shape (games,): `WIN`, `DRAW` or `FAULT`."""

    @property
    def seat(self) -> Ints:
        """Shape (rows,)."""
        return self.ply % 2

    def of(self, seat: int) -> NDArray[np.bool_]:
        """Return which rows are a seat's."""
        found: NDArray[np.bool_] = self.seat == seat
        return found


def won(stones: Tensor) -> Tensor:
    """Return which boards of one side's stones, shape (games, 9), hold a line."""
    return (stones[:, LINES] > 0).all(2).any(1)


def play(movers: tuple[Mover, Mover], games: int, rng: np.random.Generator) -> Games:
    """Play games to their end, all at once.

    Args:
        movers: Who moves in each seat; seat 0 begins.
        games: How many.
        rng: Of the movers' draws.
    """
    stones = torch.zeros(2, games, CELLS)
    rewards, ended = np.zeros((games, 2)), np.full(games, DRAW, dtype=np.int64)
    live = torch.arange(games)
    rows: list[tuple[Tensor, Tensor, Tensor, Ints, Ints]] = []
    for ply in range(CELLS):
        seat = ply % 2
        own, other = stones[seat, live], stones[1 - seat, live]
        free = (own + other) == 0
        seen = torch.cat([own, other], dim=1)
        action = movers[seat](seen, free, rng)
        rows.append((seen, free, action, live.numpy().copy(), np.full(len(live), ply, dtype=np.int64)))
        fair = free[torch.arange(len(live)), action]
        fault = live[~fair].numpy()
        rewards[fault, seat], rewards[fault, 1 - seat], ended[fault] = *INVALID, FAULT
        moved = live[fair]
        stones[seat, moved, action[fair]] = 1.0
        line = won(stones[seat, moved])
        winners = moved[line].numpy()
        rewards[winners, seat], rewards[winners, 1 - seat], ended[winners] = 1.0, -1.0, WIN
        live = moved[~line]
        if not len(live):
            break
    seen, free, action = (torch.cat([row[place] for row in rows]) for place in range(3))  # type: ignore[misc]
    game, ply_of = (np.concatenate([row[place] for row in rows]) for place in (3, 4))
    return Games(seen, free, action, game, ply_of, rewards, ended)


def credit_batch(games: Games, *, silent: bool = True) -> CreditBatch:
    """Return the rows of both seats as credit rules take them.

    Args:
        games: Finished games.
        silent: Give a seat that never moved a row without a trained token, so that its reward counts in baselines.
    """
    count = len(games.rewards)
    seat, turn = games.seat, games.ply // 2
    mask = np.ones((len(seat), 1), dtype=bool)
    mute = np.setdiff1d(np.arange(count), games.game[games.of(1)]) if silent else np.arange(0)
    traj = np.concatenate([games.game, mute])
    seat = np.concatenate([seat, np.ones_like(mute)])
    keys = {"traj": traj, "agent": seat, "role": seat, "game": np.zeros_like(traj)}
    keys["turn"] = np.concatenate([turn, np.zeros_like(mute)])
    mask = np.concatenate([mask, np.zeros((len(mute), 1), dtype=bool)])
    return CreditBatch(mask, keys, {"outcome": games.rewards[traj, seat]})


def random_mover(seen: Tensor, free: Tensor, rng: np.random.Generator) -> Tensor:
    """Take a free cell, each with the same probability."""
    keys = torch.from_numpy(rng.random(free.shape))
    return torch.where(free, keys, -1.0).argmax(1)


class Player:
    """A network of one hidden layer that plays both seats; it is told the seat by the board alone."""

    def __init__(self, hidden: int, seed: int, *, masked: bool = False) -> None:
        """Make a network.

        Args:
            hidden: Units of the hidden layer.
            seed: Of its weights; torch's global generator is left as it was.
            masked: It can take free cells only.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = nn.Sequential(nn.Linear(2 * CELLS, hidden), nn.Tanh(), nn.Linear(hidden, CELLS))
        self.masked = masked

    def log_odds(self, seen: Tensor, free: Tensor) -> Tensor:
        """Return the log-probability of each cell, shape (rows, 9)."""
        logits: Tensor = self.network(seen)
        if self.masked:
            logits = logits.masked_fill(~free, -1e9)
        return logits.log_softmax(1)

    @torch.no_grad()
    def __call__(self, seen: Tensor, free: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw a cell for each board (`Mover`)."""
        noise = torch.from_numpy(rng.gumbel(size=tuple(free.shape)))
        return (self.log_odds(seen, free) + noise).argmax(1)

    def loss(self, games: Games, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy-gradient loss, a mean over turns, and the mean entropy."""
        logp = self.log_odds(games.seen, games.free)
        taken = logp.gather(1, games.action[:, None])[:, 0]
        entropy = -(logp.exp() * logp.clamp(min=-50)).sum(1).mean()
        return -(taken * advantages).mean(), entropy

    def gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient of a loss as one vector; the graph is kept."""
        parts = torch.autograd.grad(loss, list(self.network.parameters()), retain_graph=True)
        return torch.cat([part.reshape(-1) for part in parts])


def against_random(player: Player, games: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return wins less losses against a random player by seat; a taken cell loses the game."""
    found: dict[str, Any] = {}
    for seat in (0, 1):
        played = play((player, random_mover) if seat == 0 else (random_mover, player), games, rng)
        found[f"margin_{seat}"] = float(np.sign(played.rewards[:, seat]).mean())
    return found

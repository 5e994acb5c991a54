"""Plan-Path: a plan of moves through a grid with blocks, written in one go by one agent or by a team of two.

The task is one of those of AT-GRPO (arXiv 2510.11062).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal, Self

import numpy as np

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._plan_grid import MOVES, Cell, PlanGrid, PlanRewards, read_plan
from rolecraft.worlds._world import World

PROPOSER, CHECKER, PLANNER = "proposer", "checker", "planner"
MOST_LISTED = 4
"""Longest plan of which all can be listed: there are 340 of up to four moves."""


@dataclass
class _Play:
    """What changes while an episode is played."""

    at: Cell
    turn: int = 0
    moves: int = 0
    draft: tuple[str, ...] | None = None
    waiting: int = 0
    """Number of the seat that acts."""
    ended: Literal["", "arrived", "failed"] = ""
    unread: int = 0
    team: float = 0.0
    local: dict[str, float] = field(default_factory=dict)


class PlanPath(World):
    """Agents write a whole plan, and the last one's is followed.

    Two seats: in every turn the proposer writes a draft, the checker sees it and writes the plan that is followed. One
    seat: the planner writes that plan. The episode ends at the goal, or after the last turn.

    What an agent earns has two parts: its own, what its plan is worth if it is followed from here, and the team's, what
    the environment pays for the plan that is followed. An answer that is no plan moves nobody.
    """

    name = "plan-path"

    def __init__(
        self,
        size: int = 6,
        block_ratio: float = 0.22,
        longest: int = 8,
        turns: int = 2,
        seats: int = 2,
        closed: bool = False,
        nearest: int = 1,
        grid: Sequence[str] | None = None,
        rewards: PlanRewards | Mapping[str, float] | None = None,
    ) -> None:
        """Set the task. Paper: size 10, block ratio 0.22, two seats, 5 turns.

        Args:
            size: Rows and columns of a random map.
            block_ratio: Chance of a cell of it to be a block.
            longest: Most moves of a plan. The goal of a random map is never farther away.
            turns: How often a plan is followed.
            seats: 2 for proposer and checker, 1 for a planner.
            closed: Whether all plans are listed as legal actions (of up to four moves), or any text is taken.
            nearest: Fewest moves to the goal of a random map.
            grid: A map with `S` and `G` for every episode, in the place of random ones.
            rewards: What moves and ends are worth.

        Raises:
            UserError: If a value does not fit.
        """
        for name, value in (("size", size), ("longest", longest), ("turns", turns), ("nearest", nearest)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name} must be an integer of at least 1, got {value!r}.")
        if not 0 <= block_ratio < 1 or seats not in (1, 2) or nearest > longest:
            raise UserError(
                "block_ratio must lie in [0, 1), seats be 1 or 2, nearest no more than longest; got "
                f"{block_ratio}, {seats} and {nearest} with longest {longest}."
            )
        if closed and longest > MOST_LISTED:
            raise UserError(f"closed: plans of up to {MOST_LISTED} moves can be listed, got longest {longest}.")
        self.size, self.block_ratio, self.longest, self.turns, self.nearest = size, block_ratio, longest, turns, nearest
        self.agents = (PROPOSER, CHECKER) if seats == 2 else (PLANNER,)
        self.worth = _rewards(rewards)
        self._fixed = None if grid is None else PlanGrid.read(grid)
        self.actions = _all_plans(longest) if closed else None
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start an episode: the seed draws the map."""
        self.grid = self._fixed or PlanGrid.random(
            np.random.default_rng(seed), self.size, self.block_ratio, self.nearest, self.longest
        )
        self._play = _Play(self.grid.start, local=dict.fromkeys(self.agents, 0.0))

    @property
    def acting(self) -> tuple[str, ...]:
        """The seats of a turn, one after the other."""
        return () if self._play.ended else (self.agents[self._play.waiting],)

    @property
    def position(self) -> Cell:
        """Where the team stands: row and column from 0."""
        return self._play.at

    @property
    def team_reward(self) -> float:
        """What the environment has paid for the plans that were followed."""
        return self._play.team

    @property
    def arrived(self) -> bool:
        """Whether the goal is reached."""
        return self._play.ended == "arrived"

    def render(self) -> str:
        """Draw the map as it is now."""
        return self.grid.render(self._play.at)

    def observe(self, agent: str) -> str:
        """Return the map, the draft where there is one, and what to do; words are parted by white space."""
        head = f"You are the {agent} . Turn {min(self._play.turn + 1, self.turns)} of {self.turns} ."
        return f"{head}\n{self.render()}\n{self._prompt(agent)}"

    def _prompt(self, agent: str) -> str:
        if self._play.ended:
            return f"The episode is over : {self._play.ended} ."
        if agent not in self.acting:
            return f"It is the turn of the {self.acting[0]} ."
        ask = f"Write a plan from S to G : 1 to {self.longest} moves , each U , D , L or R , parted by spaces ."
        if agent != CHECKER:
            return ask
        draft = " ".join(self._play.draft) if self._play.draft else "nothing"
        return f"The proposer suggests : {draft}\nCheck it . {ask}"

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return all plans if they are listed; else any text is taken."""
        return self.actions if agent in self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the map, where the team stands, the draft and the rewards: all that `restore` needs."""
        return {
            "rows": list(self.grid.rows), "start": list(self.grid.start), "goal": list(self.grid.goal),
            "longest": self.longest, "turns": self.turns, "agents": list(self.agents), "worth": asdict(self.worth),
            "play": asdict(self._play) | {
                "at": list(self._play.at), "draft": None if self._play.draft is None else list(self._play.draft)
            },
        }  # fmt: skip

    def snapshot(self) -> Mapping[str, Any]:
        """Return what `restore` takes: the state."""
        return self.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot of a world with the same rules.

        Raises:
            UserError: If it is one of another task.
        """
        same = ("longest", "turns", "agents", "worth")
        differ = [name for name in same if state.get(name) != self.state()[name]]
        if differ:
            raise UserError(f"{self.name}: a snapshot of another task ({', '.join(differ)} differ).")
        self.grid = PlanGrid(tuple(state["rows"]), tuple(state["start"]), tuple(state["goal"]))
        play = dict(state["play"])
        draft = None if play["draft"] is None else tuple(play["draft"])
        self._play = _Play(**{**play, "at": tuple(play["at"]), "draft": draft, "local": dict(play["local"])})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy what changes; the map does not."""
        other = copy.copy(self)
        other._play = copy.copy(self._play)
        other._play.local = dict(self._play.local)
        return other

    def rewards(self) -> Mapping[str, float]:
        """Return each agent's own part plus the team's."""
        return {agent: self._play.team + local for agent, local in self._play.local.items()}

    def outcome(self) -> Mapping[str, Any]:
        """Return whether the goal was reached, the turns and moves it took, the fewest moves, answers without plan."""
        return {
            "success": self.arrived, "turns": self._play.turn, "moves": self._play.moves,
            "shortest": self.grid.distances[self.grid.start], "unread": self._play.unread,
        }  # fmt: skip

    def _apply(self, actions: Mapping[str, str]) -> None:
        ((agent, text),) = actions.items()
        play, plan = self._play, read_plan(text, self.longest)
        last = play.turn + 1 == self.turns
        walk = self.grid.walk(plan or (), play.at, self.worth, before=play.moves, last=last)
        play.local[agent] += self.worth.nothing if plan is None else walk.reward
        play.unread += plan is None
        if agent == PROPOSER:
            play.draft, play.waiting = plan, 1
            return
        play.team += walk.reward
        play.at, play.moves = walk.end, play.moves + walk.moves
        play.draft, play.waiting, play.turn = None, 0, play.turn + 1
        play.ended = "arrived" if walk.arrived else "failed" if last else ""


def _all_plans(longest: int) -> tuple[str, ...]:
    return tuple(" ".join(plan) for length in range(1, longest + 1) for plan in product(MOVES, repeat=length))


def _rewards(given: PlanRewards | Mapping[str, float] | None) -> PlanRewards:
    if isinstance(given, PlanRewards):
        return given
    known = asdict(PlanRewards())
    for name, value in (given or {}).items():
        if name not in known:
            raise UserError(f"rewards: {name!r} is unknown ({', '.join(known)}).{did_you_mean(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise UserError(f"rewards: {name} must be a number, got {value!r}.")
    return PlanRewards(**{**known, **(given or {})})

"""The three games of VDN (arXiv 1706.05296) as pure functions: Switch, Fetch and Checkers, two agents each.

Each agent sees a small square window around itself, and takes one of five actions. The rules, rewards and sizes are
those of the paper where it gives them; maps are our own, and are drawn in the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._team import Moment, Moved, TeamWorld

ACTIONS = ("stay", "up", "down", "left", "right")
_MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
LETTERS = "AB"


class _GridTeam(TeamWorld):
    """Two agents on a map: they move one cell at a time, and never onto a wall or each other.

    They move one after the other, in an order drawn anew at each step.
    """

    team_reward = True
    """The agents' rewards are parts of the team's: their sum is meant."""

    def __init__(
        self, name: str, plan: str, roles: Sequence[str], *, planes: int, flags: int, window: int, horizon: int
    ) -> None:
        if window < 1 or window % 2 == 0:
            raise UserError(f"{name}: window must be odd and at least 1, got {window}.")
        self.plan = np.array([list(line) for line in plan.split()])
        self.walls = self.plan == "#"
        self.window = window
        cells = self.plan.size
        super().__init__(
            name, [f"agent_{i}" for i in range(2)], roles, obs_size=(2 + planes) * window**2 + flags,
            actions=len(ACTIONS), world_size=(2 + planes) * cells + 2 * flags, horizon=horizon,
        )  # fmt: skip

    def cells(self, letter: str) -> jax.Array:
        """Return the places of a letter on the map, (k, 2)."""
        return jnp.asarray(np.argwhere(self.plan == letter))

    def walk(self, key: jax.Array, place: jax.Array, actions: jax.Array, solid: jax.Array) -> jax.Array:
        """Return where the agents stand after their moves, (2, 2); only `solid` (2,) ones are in the way."""
        wanted = jnp.clip(place + jnp.asarray(_MOVES)[actions], 0, jnp.asarray(self.plan.shape) - 1)
        free = ~jnp.asarray(self.walls)[wanted[:, 0], wanted[:, 1]]
        first = jax.random.randint(key, (), 0, 2)
        for i in (first, 1 - first):
            taken = solid[1 - i] & (wanted[i] == place[1 - i]).all()
            place = place.at[i].set(jnp.where(free[i] & ~taken, wanted[i], place[i]))
        return place

    def sight(
        self, place: jax.Array, solid: jax.Array, planes: Sequence[jax.Array], flags: jax.Array, avail: jax.Array
    ) -> Moment:
        """Return what is seen.

        Args:
            place: (2, 2), rows and columns.
            solid: (2,) bool: whether an agent is there to be seen.
            planes: Maps (rows, columns) of what else there is.
            flags: (2, flags): what an agent knows of itself.
            avail: (2, actions).
        """
        shape, edge = self.plan.shape, self.window // 2
        agents = jnp.zeros((2, *shape)).at[jnp.arange(2), place[:, 0], place[:, 1]].set(solid.astype(jnp.float32))
        shared = jnp.stack([jnp.asarray(self.walls), *planes]).astype(jnp.float32)

        def window(i: int) -> jax.Array:
            maps = jnp.concatenate([agents[1 - i][None], shared])
            beyond = jnp.zeros((len(maps), 1, 1)).at[1].set(1.0)  # what lies off the map is wall
            inside = jnp.pad(maps, ((0, 0), (edge, edge), (edge, edge)))
            known = jnp.pad(jnp.ones(shape), edge)
            whole = jnp.where(known > 0, inside, beyond)
            cut = jax.lax.dynamic_slice(whole, (0, place[i, 0], place[i, 1]), (len(maps), self.window, self.window))
            return jnp.concatenate([cut.ravel(), flags[i]])

        world = jnp.concatenate([agents.ravel(), shared[1:].ravel(), flags.ravel()])
        return Moment(jnp.stack([window(0), window(1)]), avail, world)

    def draw(self, state: Any) -> np.ndarray[Any, Any]:
        """Return the map's letters with what lies on it, (rows, columns)."""
        raise NotImplementedError

    def render(self, state: Any) -> str:
        """Return a picture of a state in letters, one line per row; agents are `A` and `B`."""
        inner = jax.device_get(state.inner)
        letters = self.draw(inner)
        for i in reversed(range(2)):
            if getattr(inner, "arrived", np.zeros(2, bool))[i]:
                continue
            letters[tuple(inner.place[i])] = LETTERS[i]
        return "\n".join("".join(line) for line in letters)


def _start_cells(key: jax.Array, cells: jax.Array) -> jax.Array:
    """Draw two different cells, (2, 2)."""
    one, two = jax.random.randint(key, (2,), 0, jnp.array([len(cells), len(cells) - 1]))
    return cells[jnp.stack([one, two + (two >= one)])]


class SwitchState(NamedTuple):
    """State of `Switch`."""

    place: jax.Array
    arrived: jax.Array


class Switch(_GridTeam):
    """Two rooms joined by a corridor one agent wide; each agent has to reach its mark at the far end of the other room.

    Each arrival is worth 1, and who has arrived is out of the way. Agents in the corridor face to face are stuck
    until one goes back. Agent `A` starts in the western room and goes to `a`, `B` to `b`.

    Args:
        corridor: Cells in it.
        window: Side of the square that an agent sees.
        horizon: Most steps of an episode.
    """

    def __init__(self, *, corridor: int = 3, window: int = 5, horizon: int = 40) -> None:
        if corridor < 1:
            raise UserError(f"switch: corridor must be at least 1, got {corridor}.")
        plan = "\n".join([f"b.{'#' * corridor}..", f"..{'.' * corridor}..", f"..{'#' * corridor}.a"])
        super().__init__("switch", plan, ("west", "east"), planes=2, flags=2, window=window, horizon=horizon)
        self._goals = jnp.concatenate([self.cells("a"), self.cells("b")])
        columns = np.arange(self.plan.shape[1])
        rooms = (columns < 2, columns >= 2 + corridor)
        self._rooms = jnp.stack([jnp.asarray(np.argwhere(np.broadcast_to(room, self.plan.shape))) for room in rooms])

    def start(self, key: jax.Array) -> SwitchState:
        """Each agent in a cell of its own room, drawn at random."""
        chosen = jax.random.randint(key, (2,), 0, self._rooms.shape[1])
        return SwitchState(self._rooms[jnp.arange(2), chosen], jnp.zeros(2, bool))

    def move(self, key: jax.Array, state: SwitchState, actions: jax.Array) -> Moved:
        """Move; who stands on its mark has arrived."""
        place = self.walk(key, state.place, jnp.where(state.arrived, 0, actions), ~state.arrived)
        there = (place == self._goals).all(1)
        new = (there & ~state.arrived).astype(jnp.float32)
        arrived = state.arrived | there
        return Moved(SwitchState(place, arrived), new, arrived.all(), {"events": new})

    def look(self, state: SwitchState) -> Moment:
        """Windows with the two marks; flags: which mark is one's own is not told, arrived or not and corridor."""
        marks = [jnp.zeros(self.plan.shape).at[tuple(goal)].set(1.0) for goal in self._goals]
        flags = jnp.stack([state.arrived, state.arrived[::-1]], 1).astype(jnp.float32)
        avail = jnp.where(state.arrived[:, None], jnp.arange(len(ACTIONS)) == 0, True)
        return self.sight(state.place, ~state.arrived, marks, flags, avail)

    def draw(self, state: Any) -> np.ndarray[Any, Any]:
        """The map as it is."""
        return self.plan.copy()


class FetchState(NamedTuple):
    """State of `Fetch`."""

    place: jax.Array
    carries: jax.Array
    item: jax.Array
    """Whether one lies at the pick-up point."""


class Fetch(_GridTeam):
    """Items are picked up at `P` (worth 3) and brought to `D` (worth 5); the next one appears when one is delivered.

    One agent alone can do it all; two are faster if one waits at `P` while the other delivers. An empty `P` is drawn
    as `p`; an agent that carries is drawn in lower case.

    Args:
        length: Cells between the two points.
        window: Side of the square that an agent sees.
        horizon: Most steps of an episode.
        pickup: Reward of a pick-up.
        delivery: Reward of a delivery.
    """

    def __init__(
        self, *, length: int = 5, window: int = 5, horizon: int = 50, pickup: float = 3.0, delivery: float = 5.0
    ) -> None:
        if length < 1:
            raise UserError(f"fetch: length must be at least 1, got {length}.")
        free = "." * (length + 2)
        super().__init__(
            "fetch", f"{free}\nP{'.' * length}D\n{free}", ("fetcher", "fetcher"), planes=2, flags=1, window=window,
            horizon=horizon,
        )  # fmt: skip
        self._pickup, self._delivery = pickup, delivery
        self._p, self._d = self.cells("P")[0], self.cells("D")[0]
        self._free = self.cells(".")

    def start(self, key: jax.Array) -> FetchState:
        """Both at random, with empty hands and an item to fetch."""
        return FetchState(_start_cells(key, self._free), jnp.zeros(2, bool), jnp.ones((), bool))

    def move(self, key: jax.Array, state: FetchState, actions: jax.Array) -> Moved:
        """Move; standing on a point is enough to pick up or deliver."""
        place = self.walk(key, state.place, actions, jnp.ones(2, bool))
        takes = (place == self._p).all(1) & ~state.carries & state.item
        gives = (place == self._d).all(1) & state.carries
        carries = (state.carries | takes) & ~gives
        item = (state.item & ~takes.any()) | gives.any()
        events = (takes | gives).astype(jnp.float32)
        reward = self._pickup * takes + self._delivery * gives
        return Moved(FetchState(place, carries, item), reward, jnp.zeros((), bool), {"events": events})

    def look(self, state: FetchState) -> Moment:
        """Windows with the item and the place of delivery; the flag says whether one carries."""
        empty = jnp.zeros(self.plan.shape)
        planes = [
            empty.at[tuple(self._p)].set(state.item.astype(jnp.float32)),
            empty.at[tuple(self._d)].set(1.0),
        ]
        avail = jnp.ones((2, len(ACTIONS)), bool)
        return self.sight(state.place, jnp.ones(2, bool), planes, state.carries[:, None].astype(jnp.float32), avail)

    def draw(self, state: Any) -> np.ndarray[Any, Any]:
        """The map, the pick-up point in lower case where it is empty."""
        letters = self.plan.copy()
        if not state.item:
            letters[self.plan == "P"] = "p"
        return letters

    def render(self, state: Any) -> str:
        """Return the picture; who carries is in lower case."""
        text = super().render(state)
        for i, carries in enumerate(jax.device_get(state.inner.carries)):
            text = text.replace(LETTERS[i], LETTERS[i].lower()) if carries else text
        return text


class CheckersState(NamedTuple):
    """State of `Checkers`."""

    place: jax.Array
    apples: jax.Array
    lemons: jax.Array


class Checkers(_GridTeam):
    """Apples `o` and lemons `x` alternate like the fields of a chess board; who steps on one eats it.

    The sensitive agent `A` gets 10 for an apple and -10 for a lemon, the less sensitive `B` gets 1 and -1. The team
    does best if `B` clears the lemons that stand between `A` and the apples. It is over when no apple is left.

    Args:
        columns: Columns of fruit, three rows each.
        window: Side of the square that an agent sees.
        horizon: Most steps of an episode.
        scale: Factor on all rewards, so that networks need not learn large numbers.
    """

    def __init__(self, *, columns: int = 4, window: int = 5, horizon: int = 40, scale: float = 0.1) -> None:
        if columns < 1:
            raise UserError(f"checkers: columns must be at least 1, got {columns}.")
        rows = ["".join("ox"[(row + column + 1) % 2] for column in range(columns)) + ".." for row in range(3)]
        super().__init__(
            "checkers", "\n".join(rows), ("sensitive", "less-sensitive"), planes=2, flags=0, window=window,
            horizon=horizon,
        )  # fmt: skip
        self._apples, self._lemons = (jnp.asarray(self.plan == letter) for letter in "ox")
        self._free = self.cells(".")
        self._worth = scale * jnp.array([10.0, 1.0])

    def start(self, key: jax.Array) -> CheckersState:
        """All fruit there, the agents at random in the two empty columns."""
        return CheckersState(_start_cells(key, self._free), self._apples, self._lemons)

    def move(self, key: jax.Array, state: CheckersState, actions: jax.Array) -> Moved:
        """Move and eat."""
        place = self.walk(key, state.place, actions, jnp.ones(2, bool))
        row, column = place[:, 0], place[:, 1]
        sweet, sour = state.apples[row, column], state.lemons[row, column]
        apples, lemons = state.apples.at[row, column].set(False), state.lemons.at[row, column].set(False)
        reward = self._worth * (sweet.astype(jnp.float32) - sour.astype(jnp.float32))
        events = (sweet | sour).astype(jnp.float32)
        return Moved(CheckersState(place, apples, lemons), reward, ~apples.any(), {"events": events})

    def look(self, state: CheckersState) -> Moment:
        """Windows with apples and lemons; nothing tells an agent which of the two it is."""
        avail, nothing = jnp.ones((2, len(ACTIONS)), bool), jnp.zeros((2, 0))
        return self.sight(state.place, jnp.ones(2, bool), [state.apples, state.lemons], nothing, avail)

    def draw(self, state: Any) -> np.ndarray[Any, Any]:
        """The map with the fruit that is left."""
        letters = np.where(self.walls, "#", ".")
        letters[state.apples], letters[state.lemons] = "o", "x"
        return letters


WORLDS: dict[str, type[_GridTeam]] = {"switch": Switch, "fetch": Fetch, "checkers": Checkers}
"""Our own worlds by name."""

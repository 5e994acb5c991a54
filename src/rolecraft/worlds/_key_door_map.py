"""A map of the key-and-door world: its rules for one step, and the same rules as tables for numpy."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.errors import UserError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Happened = Literal["moved", "bumped", "took", "opened", "nothing"]
"""What an action came to: `bumped` into a wall, the edge or the locked door; `nothing` was there to take."""

MOVES: Mapping[str, tuple[int, int]] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
TAKE = "take"
UNREACHED = -1
"""Distance of a state that no path from the start reaches."""
_TRIES = 1000


class Spot(NamedTuple):
    """Where the walker stands, and whether it has the key."""

    row: int
    column: int
    key: bool


@dataclass(frozen=True)
class KeyDoorMap:
    """A grid of `.` (floor), `#` (wall), and one each of `S` (start), `K` (key) and `D` (door).

    Raises:
        UserError: If the rows differ in length, hold another mark or not one of each, or the key cannot be reached
            from the start, or the door with the key.
    """

    rows: tuple[str, ...]

    def __post_init__(self) -> None:
        text = "".join(self.rows)
        if not text or len({len(row) for row in self.rows}) != 1:
            raise UserError(f"map: expected one or more rows of one length, got {list(self.rows)!r}.")
        strange = sorted(set(text) - set(".#SKD"))
        if strange:
            raise UserError(f"map: {strange[0]!r} is no mark of a map; write . # S K D.")
        for mark in "SKD":
            if text.count(mark) != 1:
                raise UserError(f"map: expected one {mark!r}, got {text.count(mark)} in {list(self.rows)!r}.")
        if _tables(self, False).shortest < 0:
            raise UserError(f"map: no path leads from S to K and on to D in {list(self.rows)!r}.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a map of one row per line; spaces around lines do not count."""
        return cls(tuple(line.strip() for line in text.strip().splitlines()))

    @classmethod
    def draw(cls, size: int, walls: int, seed: int, *, shortest: int = 1) -> Self:
        """Draw a map on which the door can be reached.

        Args:
            size: Rows and columns, at least 2.
            walls: Cells that are walls.
            seed: Decides the map.
            shortest: Least number of moves from the start over the key to the door.

        Raises:
            UserError: If no such map turns up in 1000 tries.
        """
        cells = size * size
        if size < 2 or not 0 <= walls <= cells - 3:
            raise UserError(f"expected size at least 2 and walls in 0..{max(0, cells - 3)}, got {size} and {walls}.")
        rng = np.random.default_rng(derive_seed("key-door-map", seed))
        for _ in range(_TRIES):
            order = rng.permutation(cells)
            marks = np.full(cells, ".")
            marks[order[:3]] = list("SKD")
            marks[order[3 : 3 + walls]] = "#"
            try:
                found = cls(tuple("".join(row) for row in marks.reshape(size, size)))
            except UserError:
                continue
            if found.tables().shortest >= shortest:
                return found
        raise UserError(
            f"no map of {size} x {size} with {walls} walls and a path of {shortest} moves or more in {_TRIES} tries; "
            "ask for fewer walls or a shorter path."
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.rows[0])

    def find(self, mark: str) -> tuple[int, int]:
        """Return the row and column of `S`, `K` or `D`."""
        cell = "".join(self.rows).index(mark)
        return divmod(cell, self.shape[1])

    @property
    def start(self) -> Spot:
        """Where an episode begins."""
        return Spot(*self.find("S"), False)

    def open(self, row: int, column: int, key: bool) -> bool:
        """Whether the walker can stand there; the door lets in only who has the key."""
        height, width = self.shape
        if not (0 <= row < height and 0 <= column < width):
            return False
        mark = self.rows[row][column]
        return mark != "#" and (mark != "D" or key)

    def step(self, spot: Spot, action: str, take: bool = False) -> tuple[Spot, Happened]:
        """Apply an action.

        Args:
            spot: Where the walker is.
            action: A move, or `take`.
            take: Whether the key must be taken by an action; otherwise entering its cell takes it.

        Returns:
            Where it is then, and what happened.
        """
        row, column, key = spot
        if action == TAKE:
            here = not key and self.rows[row][column] == "K"
            return Spot(row, column, key or here), "took" if here else "nothing"
        row, column = row + MOVES[action][0], column + MOVES[action][1]
        if not self.open(row, column, key):
            return spot, "bumped"
        if self.rows[row][column] == "D":
            return Spot(row, column, key), "opened"
        took = not take and not key and self.rows[row][column] == "K"
        return Spot(row, column, key or took), "took" if took else "moved"

    def tables(self, take: bool = False) -> KeyDoorTables:
        """Return the rules as tables; made once per map."""
        return _tables(self, take)


@dataclass(frozen=True)
class KeyDoorTables:
    """The states of a map, numbered by cell, those with the key after those without."""

    actions: tuple[str, ...]
    next_state: Ints
    """Shape (S, A); the goal leads to itself."""
    distance: Ints
    """Shape (S,): fewest actions to the goal, 0 there, `UNREACHED` where no path from the start leads."""
    start: int
    goal: int
    shape: tuple[int, int]
    """Of the map."""

    @property
    def shortest(self) -> int:
        """Fewest actions from the start to the goal."""
        return int(self.distance[self.start])

    def state(self, spot: Spot) -> int:
        """Return the number of a state."""
        height, width = self.shape
        return spot.row * width + spot.column + height * width * spot.key

    def success(self, probs: Floats, horizon: int) -> Floats:
        """Return the exact chance of success.

        Args:
            probs: Shape (S, A), of the actions in each state.
            horizon: H.

        Returns:
            Shape (H + 1, S): from each state within 0, 1, ..., H actions.
        """
        values = np.zeros((horizon + 1, len(self.distance)))
        values[:, self.goal] = 1.0
        for left in range(1, horizon + 1):
            values[left] = (probs * values[left - 1][self.next_state]).sum(1)
        values[:, self.goal] = 1.0
        return values

    def roll_out(self, probs: Floats, starts: Ints, steps: Ints | int, rng: np.random.Generator) -> KeyDoorWalks:
        """Let a policy act from some states, all at once.

        Args:
            probs: Shape (S, A).
            starts: Shape (N,).
            steps: Most actions, of all walks or of shape (N,).
            rng: One number is drawn per walk and step.
        """
        n = len(starts)
        most = np.broadcast_to(np.asarray(steps, dtype=np.int64), (n,))
        longest = int(most.max(initial=0))
        draws = rng.random((longest, n))
        shares = np.cumsum(probs, 1)[:, :-1]
        states = np.empty((longest + 1, n), dtype=np.int64)
        actions = np.zeros((longest, n), dtype=np.int64)
        states[0] = starts
        for step in range(longest):
            now = states[step]
            actions[step] = (draws[step][:, None] >= shares[now]).sum(1)
            states[step + 1] = np.where(step < most, self.next_state[now, actions[step]], now)
        alive = (states[:-1] != self.goal) & (np.arange(longest)[:, None] < most)
        return KeyDoorWalks(states.T, actions.T, alive.sum(0), states[-1] == self.goal)


@dataclass(frozen=True)
class KeyDoorWalks:
    """N walks of at most T actions; what lies beyond a walk's end stays where it ended."""

    states: Ints
    """Shape (N, T + 1)."""
    actions: Ints
    """Shape (N, T)."""
    lengths: Ints
    """Shape (N,): actions taken."""
    success: NDArray[np.bool_]
    """Shape (N,)."""


@lru_cache(maxsize=512)
def _tables(world: KeyDoorMap, take: bool) -> KeyDoorTables:
    height, width = world.shape
    cells = height * width
    actions = (*MOVES, TAKE) if take else tuple(MOVES)
    place = np.arange(2 * cells)
    next_state = np.repeat(place[:, None], len(actions), 1)
    goal = int(np.ravel_multi_index(world.find("D"), world.shape)) + cells
    for state in range(2 * cells):
        key = state >= cells
        row, column = divmod(state % cells, width)
        if state == goal or not world.open(row, column, key):
            continue
        for number, action in enumerate(actions):
            spot, _ = world.step(Spot(row, column, key), action, take)
            next_state[state, number] = spot.row * width + spot.column + cells * spot.key
    start = int(np.ravel_multi_index(world.find("S"), world.shape))
    distance = _distances(next_state, goal, start)
    for array in (next_state, distance):
        array.flags.writeable = False
    return KeyDoorTables(actions, next_state, distance, start, goal, world.shape)


def _distances(next_state: Ints, goal: int, start: int) -> Ints:
    """Search backwards from the goal, over states that can be reached from the start."""
    reached = {start}
    queue = deque([start])
    sources: dict[int, set[int]] = {}
    while queue:
        state = queue.popleft()
        for after in map(int, next_state[state]):
            sources.setdefault(after, set()).add(state)
            if after not in reached:
                reached.add(after)
                queue.append(after)
    distance = np.full(len(next_state), UNREACHED)
    if goal not in reached:
        return distance
    distance[goal] = 0
    queue = deque([goal])
    while queue:
        state = queue.popleft()
        for before in sources.get(state, ()):
            if distance[before] == UNREACHED:
                distance[before] = distance[state] + 1
                queue.append(before)
    return distance

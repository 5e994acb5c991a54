"""A text grid: pick up the key, then reach the door, within so many actions; only that is rewarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolecraft.errors import UserError
from rolecraft.worlds._key_door_map import MOVES, TAKE, KeyDoorMap, Spot
from rolecraft.worlds._world import World

WALKER = "walker"
_WORDS = (
    "you", "row", "col", "key", "held", "door", "last", "start", "moved", "bumped", "took", "opened", "nothing",
    "blocked", "none",
)  # fmt: skip


class KeyDoor(World):
    """One walker on a grid with a key and a locked door. The reward is 1 at the door, else 0.

    The walker sees its place, the key's and the door's as whole words of a small closed vocabulary, and what its last
    action came to. It learns of a wall by walking into it, or sees those beside it with `sight`.
    """

    name = "key-door"
    agents = (WALKER,)

    def __init__(
        self,
        size: int = 6,
        walls: int = 0,
        horizon: int = 40,
        *,
        take: bool = False,
        sight: bool = False,
        shortest: int = 1,
        maps: Sequence[str | Sequence[str]] = (),
    ) -> None:
        """Set the rules.

        Args:
            size: Rows and columns of drawn maps.
            walls: Walls of drawn maps.
            horizon: Most actions.
            take: Whether the key must be taken by the action `take`; otherwise entering its cell takes it.
            sight: Whether the walker sees which sides are blocked.
            shortest: Least number of moves from the start over the key to the door on drawn maps.
            maps: A fixed list of tasks instead of drawn maps: rows of `. # S K D`, or their text; the seed modulo
                their number chooses.

        Raises:
            UserError: If a number is out of range, or a map is faulty.
        """
        if horizon < 1:
            raise UserError(f"horizon must be at least 1, got {horizon}.")
        self.horizon, self.take, self.sight = horizon, take, sight
        self._drawn = (size, walls, shortest)
        self.maps = tuple(KeyDoorMap.parse(each) if isinstance(each, str) else KeyDoorMap(tuple(each)) for each in maps)
        self._most = max((max(each.shape) for each in self.maps), default=size)
        self.actions: tuple[str, ...] = (*MOVES, TAKE) if take else tuple(MOVES)
        self.reset(0)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Every word that an observation or an action can hold, in a fixed order."""
        words = (*_WORDS, *(str(number) for number in range(self._most)), *self.actions)
        return tuple(dict.fromkeys(words))

    def reset(self, seed: int) -> None:
        """Start an episode on the seed's map."""
        if self.maps:
            self.map = self.maps[seed % len(self.maps)]
        else:
            size, walls, shortest = self._drawn
            self.map = KeyDoorMap.draw(size, walls, seed, shortest=shortest)
        self.spot, self.steps, self._last = self.map.start, 0, "start"

    @property
    def succeeded(self) -> bool:
        """Whether the walker is through the door."""
        return (self.spot.row, self.spot.column) == self.map.find("D")

    @property
    def acting(self) -> tuple[str, ...]:
        """The walker, until it is through the door or the actions are used up."""
        return () if self.succeeded or self.steps == self.horizon else self.agents

    def observe(self, agent: str) -> str:
        """Return the places of walker, key and door, the blocked sides with `sight`, and what happened last."""
        words = ["you", *_place(self.spot.row, self.spot.column), "key"]
        words += ["held"] if self.spot.key else _place(*self.map.find("K"))
        words += ["door", *_place(*self.map.find("D"))]
        if self.sight:
            words += ["blocked", *(self._blocked() or ["none"])]
        return " ".join([*words, "last", self._last])

    def _blocked(self) -> list[str]:
        row, column, key = self.spot
        return [move for move, (down, right) in MOVES.items() if not self.map.open(row + down, column + right, key)]

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return all actions: one can walk into a wall, and reach for a key that is not there."""
        return self.actions if agent in self.acting else ()

    def distance(self) -> int:
        """Return the fewest actions to the reward from here: the potential of a rule judge."""
        tables = self.map.tables(self.take)
        return int(tables.distance[tables.state(self.spot)])

    def state(self) -> Mapping[str, Any]:
        """Return the map, the walker's place and key, the actions used and what the last one came to."""
        return {
            "map": list(self.map.rows),
            "spot": list(self.spot),
            "steps": self.steps,
            "last": self._last,
        }

    def snapshot(self) -> Mapping[str, Any]:
        """Return what `restore` takes: the state, as JSON holds it."""
        return self.state()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot, of this or another world with the same rules.

        Raises:
            UserError: If it is none; the world is unchanged then.
        """
        try:
            world = KeyDoorMap(tuple(snapshot["map"]))
            row, column, key = snapshot["spot"]
            steps, last = snapshot["steps"], snapshot["last"]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.name}: not a snapshot of this world: {error!r}.") from None
        if not world.open(row, column, key) or not 0 <= steps <= self.horizon or last not in _WORDS:
            raise UserError(
                f"{self.name}: a snapshot with the walker at {[row, column, key]} after {steps} actions does not fit "
                f"its map and a horizon of {self.horizon}."
            )
        self.map, self.spot, self.steps, self._last = world, Spot(row, column, bool(key)), steps, last

    def render(self) -> str:
        """Return the map with the walker as `@`; the key vanishes when it is held."""
        rows = [list(row.replace("S", ".")) for row in self.map.rows]
        if self.spot.key:
            row, column = self.map.find("K")
            rows[row][column] = "."
        rows[self.spot.row][self.spot.column] = "@"
        return "\n".join("".join(row) for row in rows)

    def rewards(self) -> Mapping[str, float]:
        """Return 1 for the walker once it is through the door."""
        return {WALKER: float(self.succeeded)}

    def outcome(self) -> Mapping[str, Any]:
        """Return whether the walker got through, in how many actions, and how many would have done."""
        shortest = self.map.tables(self.take).shortest
        return {"success": self.succeeded, "steps": self.steps, "shortest": shortest}

    def _apply(self, actions: Mapping[str, str]) -> None:
        self.spot, self._last = self.map.step(self.spot, actions[WALKER], self.take)
        self.steps += 1


def _place(row: int, column: int) -> list[str]:
    return ["row", str(row), "col", str(column)]

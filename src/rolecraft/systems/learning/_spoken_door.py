"""The grid with a key and a door for a language model: the walker speaks, and goes where it says first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents import Skill
from rolecraft.errors import UserError
from rolecraft.worlds import KeyDoor, KeyDoorMap
from rolecraft.worlds._key_door_map import MOVES, Spot

if TYPE_CHECKING:
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Rows
    from rolecraft.worlds import Episode

WALKER = "walker"
FOR_KEY = 0.5
"""What the key earns without the door: with the door alone paid, hardly a group of a few episodes would differ."""
_MOVE = re.compile(rf"\b({'|'.join(MOVES)})\b")
_HAPPENED = {
    "start": "", "moved": " You moved.", "took": " You took the key.", "opened": " The door is open.",
    "bumped": " You bumped into a wall.", "nothing": " Nothing happened.",
}  # fmt: skip


class SpokenDoor(KeyDoor):
    """`KeyDoor` in sentences. A reply is any text; its first direction is the move, and without one nothing moves.

    The reward is 1 at the door, a half with the key alone, else 0. The outcome holds the distances to the goal and the
    places along the way, from the true state: what a rule judges by.
    """

    name = "spoken-door"

    def __init__(self, maps: Sequence[KeyDoorMap], horizon: int) -> None:
        """Set the maps, of which the seed picks one, and the most replies."""
        super().__init__(maps[0].shape[0], horizon=horizon, maps=[each.rows for each in maps])
        self.actions = None  # type: ignore[assignment]

    def reset(self, seed: int) -> None:
        """Start an episode on the seed's map."""
        super().reset(seed)
        self._way, self._distances = [place_words(self.spot)], [self.distance()]

    def observe(self, agent: str) -> str:
        """Return where walker, key and door are, what happened last, and the question."""
        rows, columns = self.map.shape
        key = "You have the key." if self.spot.key else f"The key is in {cell_words(*self.map.find('K'))}."
        return (
            f"You are in {cell_words(self.spot.row, self.spot.column)} of a grid of {rows} rows and {columns} columns. "
            f"{key} The door is in {cell_words(*self.map.find('D'))}.{_HAPPENED[self._last]} "
            "Which way do you go: up, down, left or right?"
        )

    def legal(self, agent: str) -> tuple[str, ...] | None:  # type: ignore[override]
        """Return that any text may be said."""
        return None if agent in self.acting else ()

    def rewards(self) -> Mapping[str, float]:
        """Return 1 at the door, a half with the key, else 0."""
        return {WALKER: 1.0 if self.succeeded else FOR_KEY * self.spot.key}

    def outcome(self) -> Mapping[str, Any]:
        """Return the inner outcome with the distances before each reply and at the end, and the places likewise."""
        return {**super().outcome(), "distances": list(self._distances), "way": list(self._way)}

    def _apply(self, actions: Mapping[str, str]) -> None:
        move = read_move(actions[WALKER])
        if move:
            super()._apply({WALKER: move})
        else:
            self.steps, self._last = self.steps + 1, "nothing"
        self._way.append(place_words(self.spot))
        self._distances.append(self.distance())


def read_move(reply: str) -> str:
    """Return the first direction that a reply names, empty if it names none."""
    found = _MOVE.search(reply.casefold())
    return found[1] if found else ""


def cell_words(row: int, column: int) -> str:
    """Return a cell in words, counted from 1."""
    return f"row {row + 1}, column {column + 1}"


def place_words(spot: Spot) -> str:
    """Return where the walker is, and whether it has the key."""
    return f"{cell_words(spot.row, spot.column)}{' with the key' if spot.key else ''}"


def situation(observation: str) -> str:
    """Return what tells one observation from another: the place, and whether the key is held."""
    place = observation.removeprefix("You are in ").partition(" of a grid")[0]
    return f"{place}{' with the key' if 'You have the key' in observation else ''}"


def draw_rooms(count: int, size: int, shortest: int, longest: int, seed: int) -> list[KeyDoorMap]:
    """Draw maps without walls that differ, whose way takes `shortest` to `longest` moves.

    Raises:
        UserError: If there are not so many.
    """
    found: dict[KeyDoorMap, None] = {}
    for number in range(100 * count):
        drawn = KeyDoorMap.draw(size, 0, derive_seed("spoken-door", seed, number), shortest=shortest)
        if drawn.tables().shortest <= longest:
            found[drawn] = None
        if len(found) == count:
            return list(found)
    raise UserError(f"no {count} maps of {size} x {size} with a way of {shortest} to {longest} moves; ask for fewer.")


def shortest_way(room: KeyDoorMap) -> Skill:
    """Return a shortest way as a skill: what a privileged teacher is shown."""
    tables, spot, steps = room.tables(), room.start, []
    while (state := tables.state(spot)) != tables.goal:
        action = tables.actions[int(np.argmin(tables.distance[tables.next_state[state]]))]
        steps.append(f"In {place_words(spot)} go {action}.")
        spot, _ = room.step(spot, action)
    return Skill(golden_workflow=tuple(steps))


def render(skill: Skill) -> str:
    """Return a skill in sentences."""
    parts = ["The way: " + " ".join(skill.golden_workflow)] if skill.golden_workflow else []
    return " ".join([*parts, *([f"Avoid: {skill.mistake_analysis}."] if skill.mistake_analysis else [])])


def form_rows(policy: TokenPolicy, rooms: Sequence[KeyDoorMap], seed: int) -> list[Reply]:
    """Return replies that show the form, `I go left.`, with a direction drawn at random at every place of some maps."""
    from rolecraft.learning.policy import Reply

    rng, found = np.random.default_rng(derive_seed("spoken-door", "form", seed)), []
    world = SpokenDoor(rooms, 1)
    for number, room in enumerate(rooms):
        world.reset(number)
        for row, column in np.ndindex(*room.shape):
            if (row, column) != room.find("D"):
                world.spot = Spot(row, column, bool(rng.integers(2)))
                reply = f"I go {list(MOVES)[rng.integers(len(MOVES))]}."
                tokens = (*policy.codec.reply(reply), policy.codec.end)
                found.append(Reply(policy.encode(WALKER, None, world.observe(WALKER)), tokens))
    return found


def judge_rows(rows: Rows, episodes: Sequence[Episode]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the role of each row's reply by the distance to the goal, the places of `SEGMENT_ROLES`, shape (N,)."""
    from rolecraft.learning import potential_roles

    before, after, new = [], [], []
    for traj, turn in zip(rows.batch.keys["traj"], rows.batch.keys["turn"], strict=True):
        outcome = episodes[int(traj)].outcome
        distances, way = outcome["distances"], outcome["way"]
        before.append(distances[turn])
        after.append(distances[turn + 1])
        new.append(way[turn + 1] not in way[: turn + 1])
    return potential_roles(before, after, new)

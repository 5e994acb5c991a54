"""What Skill-SD's study works with: the grid in few words, and a base that can follow a skill before it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents import Skill
from rolecraft.errors import UserError
from rolecraft.worlds import Act, KeyDoor, KeyDoorMap, Turn, View
from rolecraft.worlds._key_door_map import Spot

if TYPE_CHECKING:
    from rolecraft.learning.policy import Reply, TokenPolicy, WordCodec

WALKER = "walker"
FOLLOW, AVOID = "follow", "avoid"
"""What a rendered skill's parts begin with."""
_LONGEST_WALK = 400


class CellDoor(KeyDoor):
    """`KeyDoor` where every cell is one word: `k12` is row 1, column 2 without the key, `h12` with it.

    An attention head finds the walker's place in a workflow by one word; with digits it would have to match three.
    """

    name = "cell-door"

    def observe(self, agent: str) -> str:
        """Return what happened last, the cells of key and door, and the walker's place as the last word."""
        key = "held" if self.spot.key else _cell(*self.map.find("K"))
        return f"last {self._last} key {key} door {_cell(*self.map.find('D'))} at {place_word(self.spot)}"


def place_word(spot: Spot) -> str:
    """Return the word for where the walker is, and whether it has the key."""
    return f"{'h' if spot.key else 'k'}{spot.row}{spot.column}"


def situation(observation: str) -> str:
    """Return what tells one situation from another: the place word."""
    return observation.rsplit(" ", 1)[-1]


def render(skill: Skill) -> str:
    """Return a skill in the policy's words: the workflow of a success, the mistakes of a failure."""
    if skill.golden_workflow:
        return " ".join([FOLLOW, *skill.golden_workflow])
    return f"{AVOID} {skill.mistake_analysis.replace(';', '')}"


def make_codec(size: int) -> WordCodec:
    """Return the words of grids of a size and of the skills about them."""
    from rolecraft.learning.policy import WordCodec

    cells = [f"{row}{column}" for row in range(size) for column in range(size)]
    world = KeyDoor(size)
    places = [f"{kind}{cell}" for kind in "khc" for cell in cells]
    return WordCodec([WALKER, "at", FOLLOW, AVOID, *world.vocabulary, *places])


def draw_maps(count: int, size: int, walls: int, shortest: int, seed: int) -> list[KeyDoorMap]:
    """Draw maps that differ from each other.

    Raises:
        UserError: If there are not so many.
    """
    found: dict[KeyDoorMap, None] = {}
    for number in range(50 * count):
        found[KeyDoorMap.draw(size, walls, derive_seed("skill-sd", seed, number), shortest=shortest)] = None
        if len(found) == count:
            return list(found)
    raise UserError(f"no {count} different maps of {size} x {size} with {walls} walls; ask for fewer or larger ones.")


def answer(tables_map: KeyDoorMap) -> Skill:
    """Return a skill with one shortest way: the fixed answer that a plain teacher is shown."""
    tables = tables_map.tables()
    spot, steps = tables_map.start, []
    while (state := tables.state(spot)) != tables.goal:
        gain = tables.distance[tables.next_state[state]]
        action = tables.actions[int(np.argmin(gain))]
        steps.append(f"{place_word(spot)} {action}")
        spot, _ = tables_map.step(spot, action)
    return Skill("The shortest way.", "", tuple(steps))


class Told:
    """Plays with a skill in its prompt, as nobody does in training: what the teacher could do itself."""

    def __init__(self, policy: TokenPolicy, text: str) -> None:
        """Bind a policy and the skill's text."""
        self.policy, self.text = policy, text

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view in one batch."""
        from rolecraft.learning import skill_prompt
        from rolecraft.learning.policy import Reply

        prompts, options = [], []
        for view in views:
            row = Reply(self.policy.encode(view.agent, None, view.observation), ())
            turn = Turn(0, view.agent, view.observation, "")
            prompts.append(skill_prompt(self.policy, self.text, row, turn, None))
            options.append(self.policy.options(view.legal or ()))
        drawn = self.policy.sample(prompts, options, [view.seed for view in views])
        return [Act(each.actions[found.tokens]) for each, found in zip(options, drawn, strict=True)]


# The warm start


@dataclass(frozen=True)
class Lesson:
    """One decision with its skill: what is written before it, what is seen, and what is right."""

    skill: str
    observation: str
    action: str


def draw_lessons(maps: Sequence[KeyDoorMap], count: int, size: int, seed: int) -> list[Lesson]:
    """Draw decisions that teach a policy to follow a skill, and nothing about keys and doors.

    Walks are random, and so are the ways that their workflows describe. Where a workflow names the place, its action is
    right; where mistakes are named, any other action; anywhere else, and without a skill, any action at all.
    """
    rng = np.random.default_rng(derive_seed("skill-sd", seed, "lessons"))
    world = CellDoor(size, maps=[map_.rows for map_ in maps])
    found: list[Lesson] = []
    while len(found) < count:
        walk = _random_walk(world, int(rng.integers(len(maps))), rng)
        if walk:
            found += _lessons_of(walk, world.actions, rng)
    return found[:count]


def _random_walk(world: CellDoor, number: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Return what was seen and done until the door, nothing where it was not found."""
    world.reset(number)
    seen: list[tuple[str, str]] = []
    for _ in range(_LONGEST_WALK):
        action = world.actions[rng.integers(len(world.actions))]
        seen.append((world.observe(WALKER), action))
        world._apply({WALKER: action})
        if world.succeeded:
            return seen
    return []


def _lessons_of(walk: Sequence[tuple[str, str]], actions: Sequence[str], rng: np.random.Generator) -> list[Lesson]:
    from rolecraft.learning.skills._writers import idle_actions, without_loops

    done = [(situation(seen), action) for seen, action in walk]
    way = without_loops(done)
    right = dict(way)
    follow = render(Skill(golden_workflow=tuple(" ".join(step) for step in way)))
    free = str(rng.choice(actions))
    on = [seen for seen, _ in walk if situation(seen) in right]
    off = [seen for seen, _ in walk if situation(seen) not in right]
    found = [Lesson(follow, seen, right[situation(seen)]) for seen in rng.choice(on, min(4, len(on)), replace=False)]
    if off:
        found.append(Lesson(follow, str(rng.choice(off)), free))
    found.append(Lesson("", str(rng.choice([seen for seen, _ in walk])), free))
    idle = list(idle_actions(done))[:8]
    if idle:
        wrong = idle[rng.integers(len(idle))][0]
        others = [action for action in actions if (wrong, action) not in idle]
        if others:
            text = render(Skill("", "; ".join(" ".join(step) for step in idle)))
            seen = next(seen for seen, _ in walk if situation(seen) == wrong)
            found.append(Lesson(text, seen, str(rng.choice(others))))
    return found


def lesson_rows(policy: TokenPolicy, lessons: Sequence[Lesson], actions: Sequence[str]) -> list[Reply]:
    """Return lessons as rows to learn from, with the prompts that student and teacher will have."""
    from rolecraft.learning import skill_prompt
    from rolecraft.learning.policy import Reply

    options = policy.options(tuple(actions))
    rows = []
    for lesson in lessons:
        turn = Turn(0, WALKER, lesson.observation, lesson.action)
        row = Reply(policy.encode(WALKER, None, lesson.observation), tuple(policy.codec.reply(lesson.action)), options)
        if lesson.skill:
            row = Reply(skill_prompt(policy, lesson.skill, row, turn, None), row.tokens, options)
        rows.append(row)
    return rows


def _cell(row: int, column: int) -> str:
    return f"c{row}{column}"

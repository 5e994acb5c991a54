"""What the smoke studies in spoken rooms share (TRIAGE, ADRS, Skill-SD): sizes, rooms, the start, the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems.learning._language_smoke import Base, LanguageSmoke, Log, train_plan
from rolecraft.systems.learning._language_step import Taught

if TYPE_CHECKING:
    from rolecraft.learning.credit import Stage
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Start, Trainer
    from rolecraft.worlds import KeyDoorMap


@dataclass(frozen=True)
class RoomSmoke(LanguageSmoke):
    """A language model walks through small rooms in its own words."""

    rooms: int = 2
    """Maps of training."""
    size: int = 3
    """Rows and columns."""
    horizon: int = 5
    """Replies of an episode."""
    group: int = 4
    """Episodes of a task."""
    max_tokens: int = 10

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to compare."""
        super().__post_init__()
        if min(self.rooms, self.horizon) < 1 or self.group < 2 or self.episodes % self.group:
            raise UserError(
                "rooms and horizon must be at least 1, group at least 2, and episodes a multiple of group, got "
                f"{self.rooms}, {self.horizon}, {self.group} and {self.episodes}."
            )


def make_rooms(config: RoomSmoke, system: str, seed: int) -> tuple[list[KeyDoorMap], list[KeyDoorMap]]:
    """Return the maps of training, and two others to show the form on."""
    from rolecraft.systems.learning._spoken_door import draw_rooms

    drawn = draw_rooms(config.rooms + 2, config.size, 2, 3, derive_seed(system, seed, "rooms"))
    return drawn[: config.rooms], drawn[config.rooms :]


def load_rooms(config: RoomSmoke, system: str, seed: int) -> Base:
    """Return the policy of a seed, which knows the form of a reply and nothing about where to go."""
    from rolecraft.systems.learning._spoken_door import form_rows

    def form(policy: TokenPolicy) -> Sequence[Reply]:
        return form_rows(policy, make_rooms(config, system, seed)[1], seed)

    return Base.load(config, system, seed, form=form)


def make_trainer(
    config: RoomSmoke, system: str, base: Base, rule: Sequence[Stage], seed: int, **options: Any
) -> Trainer:
    """Return a trainer with a rule; all arms of a seed see the same tasks. `options` are the trainer's."""
    from rolecraft.learning.trainer import Trainer
    from rolecraft.systems.learning._spoken_door import SpokenDoor

    rooms, _ = make_rooms(config, system, seed)
    return Trainer(
        lambda: SpokenDoor(rooms, config.horizon), base.policy, rule, train_plan(config, group=config.group),
        seed=derive_seed(system, seed, "smollm2"), **options,
    )  # fmt: skip


def room_of(config: RoomSmoke, start: Start) -> int:
    """Return the number of the room of a start."""
    return start.seed % config.rooms


def take(log: Log, update: int, taught: Taught) -> None:
    """Take an update into a log, with the shares of replies that name a direction and that came nearer."""
    from rolecraft.learning import SEGMENT_ROLES
    from rolecraft.systems.learning._spoken_door import judge_rows, read_move

    log.take(update, taught)
    groups = {key.rsplit("/", 1)[1]: value for key, value in taught.credit.info.items() if key.startswith("group(")}
    log.curve(
        format=np.mean([bool(read_move(turn.action)) for turn in taught.rows.turns]),
        nearer=np.mean(judge_rows(taught.rows, taught.episodes) == SEGMENT_ROLES.index("D")),
        **({"dead": groups["dead"] / groups["groups"]} if groups else {}),
    )

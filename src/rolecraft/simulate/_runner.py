"""Running a simulation in a run directory: cast, play side by side, store every step, resume by what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft._run import Progress, RunStore, RunView, derive_seed
from rolecraft.agents import RolePolicy
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import LanguageModel, Sampling, load_model
from rolecraft.roles import load_inventory
from rolecraft.screening import load_lock
from rolecraft.screening._lock import file_hash
from rolecraft.worlds import Episode, Rules, Table, Turn, World, make_world, play_all

if TYPE_CHECKING:
    from rolecraft.screening import Admission
    from rolecraft.simulate._study import SimulationStudy

KIND = "simulation"
EPISODES, STEPS = "episodes", "steps"
"""Stages: finished episodes without their turns, keyed `arm/number`; steps, keyed `arm/number/step`."""


@dataclass
class Simulation:
    """A study bound to its run directory.

    Args:
        study: What to play.
        store: Where it is kept.
        model: Plays all roles.
        cast: The roles that may act, by id.
        quiet: Show no progress.
    """

    study: SimulationStudy
    store: RunStore
    model: LanguageModel
    cast: Mapping[str, Admission]
    quiet: bool = False

    @classmethod
    @contextmanager
    def open(
        cls,
        study: SimulationStudy,
        directory: Path,
        *,
        model: LanguageModel | None = None,
        resume: bool = True,
        quiet: bool = False,
    ) -> Iterator[Simulation]:
        """Check the study against the lock and the world, load the model, and open the run directory.

        Args:
            study: What to play.
            directory: The run directory.
            model: Instead of the one the study names.
            resume: Go on with a run that has rows.
            quiet: Show no progress.

        Raises:
            UserError: If anything the study names cannot be used; nothing has been computed by then.
            LockError: If the lock refuses a role.
        """
        model = model or load_model(study.model)
        cast, _ = check_study(study, model)
        facts = {
            "model_name": model.name,
            "model_revision": model.revision,
            "cast": {name: _identity(part) for name, part in cast.items()},
        }
        config = study.model_dump(mode="json") | facts
        with RunStore.open(directory, KIND, config, resume=resume, volatile={"together", "lock"}) as store:
            yield cls(study, store, model, cast, quiet)

    def run(self) -> None:
        """Play every episode that is missing; each step is stored as it is taken."""
        missing = self.store.missing(EPISODES, self.keys)
        done = len(self.keys) - len(missing)
        with Progress(len(self.keys), "episodes", done=done, quiet=self.quiet) as progress:
            for arm in self.study.arms:
                policy = self._policy(arm)
                numbers = [number for number in range(self.study.episodes) if f"{arm}/{number}" in missing]
                for start in range(0, len(numbers), self.study.together):
                    chosen = numbers[start : start + self.study.together]
                    with self.store.timed(EPISODES):
                        self._play(arm, policy, chosen)
                    progress.advance(len(chosen))

    @property
    def keys(self) -> list[str]:
        """Keys of all episodes."""
        return [f"{arm}/{number}" for arm in self.study.arms for number in range(self.study.episodes)]

    def _play(self, arm: str, policy: RolePolicy, numbers: Sequence[int]) -> None:
        tables = [self._table(arm, policy, number) for number in numbers]

        def keep(new: Mapping[int, Sequence[Turn]]) -> None:
            self.store.put_many(
                STEPS,
                {
                    f"{arm}/{numbers[place]}/{turns[0].step}": [asdict(turn) for turn in turns]
                    for place, turns in new.items()
                },
            )

        rules = Rules(self.study.limit, self.study.repairs, self.study.on_illegal)
        for number, episode in zip(numbers, play_all(tables, rules, keep), strict=True):
            row = episode.row()
            row["steps"] = len({turn["step"] for turn in row.pop("turns")})
            unscreened = sorted({name for name in episode.roles.values() if not self.cast[name].screened})
            marks = {"arm": arm, "number": number, "fallbacks": episode.fallbacks, "unscreened": unscreened}
            self.store.put(EPISODES, f"{arm}/{number}", marks | row)

    def _table(self, arm: str, policy: RolePolicy, number: int) -> Table:
        world = make_world(self.study.world.name, self.study.world.options)
        return Table(
            world,
            dict.fromkeys(world.agents, policy),
            derive_seed(self.study.seed, "episode", number),
            seating(self.study, list(self.cast), number),
            _stored_turns(self.store, f"{arm}/{number}"),
        )

    def _policy(self, arm: str) -> RolePolicy:
        conditioning = self.study.arms[arm]
        sampling = Sampling(self.study.max_tokens, self.study.temperature, self.study.top_p)
        cast = self.cast
        if conditioning == "prompt":
            cast = {
                name: replace(part, conditioner="prompt", strength=None, direction=None) for name, part in cast.items()
            }
        return RolePolicy(self.model, cast, sampling, bare=conditioning == "none")


def check_study(study: SimulationStudy, model: LanguageModel) -> tuple[dict[str, Admission], list[dict[str, str]]]:
    """Return the roles that may act, by id, and the role of every agent in each episode; nothing is played.

    Raises:
        UserError: If anything the study names cannot be used.
        LockError: If the lock refuses a role.
    """
    world = make_world(study.world.name, study.world.options)
    cast = _admitted(study, model)
    _check_seats(study, world, cast)
    return cast, [seating(study, list(cast), number) for number in range(study.episodes)]


def _identity(part: Admission) -> list[Any]:
    """Return all that decides how a role is put on, so that a run is not resumed with another lock's."""
    direction = file_hash(part.direction) if part.direction else None
    return [part.role.hash, part.screened, part.conditioner, part.rung, part.strength, part.site, direction]


def seating(study: SimulationStudy, cast: Sequence[str], number: int) -> dict[str, str]:
    """Return the role of every agent in one episode, the same in all arms."""
    world = make_world(study.world.name, study.world.options)
    free = [agent for agent in world.agents if agent not in study.seats]
    others = [name for name in cast if name not in study.seats.values()]
    rng = np.random.default_rng(derive_seed(study.seed, "cast", number))
    drawn = [others[place] for place in rng.permutation(len(others))[: len(free)]]
    roles = study.seats | dict(zip(free, drawn, strict=True))
    return {agent: roles[agent] for agent in world.agents}


def _admitted(study: SimulationStudy, model: LanguageModel) -> dict[str, Admission]:
    """Return the roles that may act, in the order of the study or else of the lock.

    Raises:
        LockError: If the lock refuses a role that the study names.
        UserError: If the inventory has no such role, or the lock lets no role in.
    """
    lock, inventory = load_lock(study.lock), load_inventory(study.inventory)
    known = {role.id: role for role in inventory}
    passed = [name for name, entry in lock.content.roles.items() if entry.conditioner is not None]
    wanted = list(dict.fromkeys([*(study.roles or passed), *study.seats.values()]))
    for name in wanted:
        if name not in known:
            raise UserError(f"{study.inventory} has no role {name!r}.{did_you_mean(name, known)}")
    if not wanted:
        raise UserError(f"{study.lock}: lets no role in; screen more roles, or name some and allow_unscreened: true.")
    parts = lock.admit_all(
        [known[name] for name in wanted], model.name, model.revision, allow_unscreened=study.allow_unscreened
    )
    return {part.role.id: part for part in parts}


def read_episodes(run: RunView) -> dict[str, dict[str, Any]]:
    """Return the finished episodes of a run by key, without their turns."""
    return run.rows(EPISODES)


def read_episode(run: RunView, key: str) -> Episode:
    """Return one episode with its turns.

    Raises:
        UserError: If the run has no such episode, or it is not finished.
    """
    row = run.get(EPISODES, key)
    if row is None:
        known = list(run.rows(EPISODES))
        raise UserError(
            f"{run.directory}: no finished episode {key!r} (episodes: {', '.join(known[:8]) or 'none yet'}"
            f"{', ...' if len(known) > 8 else ''}).{did_you_mean(key, known)}"
        )
    names = ("world", "seed", "roles", "rewards", "outcome", "ended", "states")
    turns = [asdict(turn) for turn in _stored_turns(run, key)]
    return Episode.from_row({name: row[name] for name in names} | {"turns": turns})


def _stored_turns(run: RunView, key: str) -> tuple[Turn, ...]:
    """Return the turns of an episode so far."""
    turns: list[Turn] = []
    for step in range(2**31):
        row = run.get(STEPS, f"{key}/{step}")
        if row is None:
            return tuple(turns)
        turns += [Turn.from_row(turn) for turn in row]
    return tuple(turns)


def _check_seats(study: SimulationStudy, world: World, cast: Mapping[str, Admission]) -> None:
    for agent in study.seats:
        if agent not in world.agents:
            raise UserError(
                f"seats: {world.name} has no agent {agent!r} (agents: {', '.join(world.agents)})."
                + did_you_mean(agent, world.agents)
            )
    free = len(world.agents) - len(study.seats)
    others = len([name for name in cast if name not in study.seats.values()])
    if free > others:
        raise UserError(
            f"{world.name} has {len(world.agents)} seats, of which {free} are to be filled from {others} roles; "
            "let more roles in, or fill seats by `seats`."
        )

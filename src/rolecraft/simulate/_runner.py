"""Running a simulation in a run directory: cast, play side by side, store every step, resume by what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._run import Budget, Meter, Progress, RunStore, map_shards
from rolecraft.errors import RolecraftError, ServerError, UserError
from rolecraft.guard._choice import append_log, guard_facts, write_guards, write_log
from rolecraft.models import LanguageModel, ServedModel, load_model
from rolecraft.simulate._cast import cast_facts, check_study, study_guards
from rolecraft.simulate._records import (
    DECISIONS,
    EPISODES,
    FAILURES,
    KIND,
    SEATS,
    STEPS,
    read_decisions,
    read_failures,
    stored_turns,
)
from rolecraft.simulate._shards import Player, Rows, Shard
from rolecraft.worlds import Turn, tokens_of

if TYPE_CHECKING:
    from rolecraft.guard import RoleGuards
    from rolecraft.screening import Admission
    from rolecraft.simulate._study import SimulationStudy

VOLATILE = frozenset({"together", "lock", "serving", "budget", "on_failure", "most_failed"})
"""Fields of a study that may differ on resuming: how fast and how far it goes, not what comes out."""
REPLIES = "run.db.replies"
"""The cache of a served model's replies in the run directory: a step that was not finished is not paid for twice."""


@dataclass
class Simulation:
    """A study bound to its run directory.

    Args:
        study: What to play.
        store: Where it is kept.
        model: Plays all roles.
        cast: The roles that may act, by id.
        seatings: The role of every agent, per episode.
        workers: As for `map_shards`.
        meter: Counts what is used against the budget.
        quiet: Show no progress.
    """

    study: SimulationStudy
    store: RunStore
    model: LanguageModel
    cast: Mapping[str, Admission]
    seatings: Sequence[Mapping[str, str]]
    workers: str = "1"
    meter: Meter = field(default_factory=Meter)
    quiet: bool = False
    guards: RoleGuards | None = None
    """By role; None: nobody has one."""

    @classmethod
    @contextmanager
    def open(
        cls,
        study: SimulationStudy,
        directory: Path,
        *,
        model: LanguageModel | None = None,
        workers: str = "1",
        budget: Budget | None = None,
        resume: bool = True,
        quiet: bool = False,
    ) -> Iterator[Simulation]:
        """Check the study against the lock and the world, load the model, and open the run directory.

        Args:
            study: What to play.
            directory: The run directory.
            model: Instead of the one the study names; then `workers` must be 1.
            workers: `1`, a number of processes, `ray` or `ray://host:port`.
            budget: Instead of the study's.
            resume: Go on with a run that has rows.
            quiet: Show no progress.

        Raises:
            UserError: If anything the study names cannot be used; nothing has been computed by then.
            LockError: If the lock refuses a role.
        """
        if model is not None and workers != "1":
            raise UserError("workers: a model given as an object stays in this process; use workers='1'.")
        budget = budget or (Budget.parse(study.budget) if study.budget else None)
        if budget and budget.usd is not None and study.serving.prices is None:
            raise UserError("budget: a limit in USD needs serving.prices, as a served model charges them.")
        given, model = model, model or study_model(study)
        cast, seatings = check_study(study, model)
        facts = {"model_name": model.name, "model_revision": model.revision, "cast": cast_facts(cast)}
        guards = study_guards(study, cast)
        config = study.model_dump(mode="json", exclude={"guard"}) | facts
        if guards is not None:
            config["guard"] = study.guard.model_dump(mode="json", include={"tries", "arms"})
            config["guard"]["policies"] = guard_facts(guards)
        with RunStore.open(directory, KIND, config, resume=resume, volatile=VOLATILE) as store:
            meter = Meter(budget)
            if isinstance(model, ServedModel) and given is None:
                model.close()
                model = study_model(study, meter=meter, cache=directory / REPLIES)
            elif isinstance(model, ServedModel):
                meter = model.meter
                meter.budget = budget or meter.budget
            if guards is not None:
                write_guards(guards, directory)
                write_log(directory, read_decisions(store))
            yield cls(study, store, model, cast, seatings, workers, meter, quiet, guards)

    @property
    def keys(self) -> list[str]:
        """Keys of all episodes."""
        return [f"{arm}/{number}" for arm in self.study.arms for number in range(self.study.episodes)]

    def run(self) -> None:
        """Play every episode that is missing; each step is stored as it is taken, with workers each shard.

        Raises:
            BudgetExceededError: If the budget is used up.
            ServerError: If an answer did not come and the study says halt, or too many episodes in a row failed.
            UserError: If the drift watch has nothing to watch by.
        """
        self.store.put_many(SEATS, {str(number): seating for number, seating in enumerate(self.seatings)})
        missing = set(self.store.missing(EPISODES, self.keys))
        chosen = self._chosen(missing)
        failed_in_a_row = 0
        with Progress(len(self.keys), "episodes", done=len(self.keys) - len(missing), quiet=self.quiet) as progress:
            for shard in self._played(chosen):
                keys = [shard.key(place) for place in range(len(shard.numbers))]
                lost = len(self.store.missing(EPISODES, keys))
                progress.advance(len(keys) - lost)
                failed_in_a_row = 0 if lost < len(keys) else failed_in_a_row + lost
                if failed_in_a_row >= self.study.most_failed:
                    raise ServerError(
                        f"{failed_in_a_row} episodes in a row failed, the last with: "
                        f"{read_failures(self.store)[-1]['reason']} Everything played so far is stored; mend it, and "
                        "go on with --resume."
                    )

    @property
    def failed(self) -> list[str]:
        """Keys of the episodes that an answer which did not come has ended, and that were not finished later."""
        tried = {f"{row['arm']}/{row['number']}" for row in read_failures(self.store)}
        return [key for key in self.store.missing(EPISODES, self.keys) if key in tried]

    def _chosen(self, missing: set[str]) -> list[tuple[str, tuple[int, ...]]]:
        """Cut what is missing into what is played side by side; several workers all get some."""
        count = int(self.workers) if self.workers.isdecimal() else 1
        most = min(self.study.together, max(1, -(-len(missing) // max(1, count))))
        chosen = []
        for arm in self.study.arms:
            numbers = [number for number in range(self.study.episodes) if f"{arm}/{number}" in missing]
            chosen += [(arm, tuple(numbers[start : start + most])) for start in range(0, len(numbers), most)]
        return chosen

    def _played(self, chosen: Sequence[tuple[str, tuple[int, ...]]]) -> Iterator[Shard]:
        """Play the shards here or elsewhere, and yield each once its rows are stored."""
        if self.workers == "1":
            player = Player(self.study, self.cast, self.model, self.guards)
            if self.study.drift:
                _ = player.watch  # whatever it lacks is said before anything is played
            for arm, numbers in chosen:
                shard = self._shard(arm, numbers)
                with self.store.timed(EPISODES):
                    player.play(shard, self._keep)
                yield shard
            return
        shards = [self._shard(arm, numbers) for arm, numbers in chosen]
        with self.store.timed(EPISODES):
            for place, rows in map_shards(Player(self.study, self.cast, guards=self.guards), shards, self.workers):
                self._keep(rows)
                yield shards[place]

    def _shard(self, arm: str, numbers: tuple[int, ...]) -> Shard:
        keys = [f"{arm}/{number}" for number in numbers]
        failures: dict[str, list[Mapping[str, Any]]] = {key: [] for key in keys}
        for row in read_failures(self.store):
            failures.get(f"{row['arm']}/{row['number']}", []).append(row)
        return Shard(
            arm,
            numbers,
            tuple(self.seatings[number] for number in numbers),
            tuple(stored_turns(self.store, key) for key in keys),
            tuple(tuple(failures[key]) for key in keys),
        )

    def _keep(self, rows: Rows) -> None:
        """Store rows, then see whether the run must stop."""
        for stage, new in rows.items():
            if new:
                self.store.put_many(stage, new)
        decided = rows.get(DECISIONS, {})
        append_log(self.store.directory, decided.values())
        self._charge([turn for step in rows.get(STEPS, {}).values() for turn in step])
        ended = next((row for row in decided.values() if row["effect"] == "stop"), None)
        if ended and self.study.guard.on_stop == "run":
            raise RolecraftError(
                f"{ended['arm']}/{ended['number']}, step {ended['step']}, {ended['agent']} as {ended['principal']}: "
                f"the guard stopped the run, by {ended['rule']}: {ended['reason']}. Everything so far is stored; "
                "--resume plays the other episodes."
            )
        lost = list(rows.get(FAILURES, {}).values())
        if lost and self.study.on_failure == "halt":
            raise ServerError(
                f"{lost[0]['arm']}/{lost[0]['number']}, step {lost[0]['step']}, {lost[0]['agent']}: "
                f"{lost[0]['reason']} Everything before is stored; go on with --resume, or set on_failure: mark to "
                "play the other episodes meanwhile."
            )

    def _charge(self, turns: Sequence[Mapping[str, Any]]) -> None:
        if isinstance(self.model, ServedModel) and self.model.meter is self.meter and self.workers == "1":
            self.meter.check()
            return
        used = [tokens_of(Turn.from_row(turn)) for turn in turns]
        prompt, new = sum(one for one, _ in used), sum(other for _, other in used)
        prices = self.study.serving.prices or (0.0, 0.0)
        self.meter.add(len(turns), prompt, new, (prompt * prices[0] + new * prices[1]) / 1e6)


def study_model(study: SimulationStudy, **options: Any) -> LanguageModel:
    """Load the model that a study names, a served one as its `serving` says.

    Raises:
        RolecraftError: If it cannot be loaded.
    """
    if study.model.startswith("openai"):
        options = study.serving.model_dump() | options
        return load_model(study.model, **options)
    return load_model(study.model)

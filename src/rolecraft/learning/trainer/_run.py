"""A training run in its directory: every iteration stored, killed at any moment, going on with the same numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rolecraft._run import Budget, Meter, Progress, RunStore, RunView, derive_seed
from rolecraft.errors import ModelError, UserError
from rolecraft.guard import read_guards
from rolecraft.guard._choice import append_log, guard_facts, without_times, write_guards, write_log
from rolecraft.learning.trainer._checkpoint import checkpoints, load_weights, read_state
from rolecraft.learning.trainer._evaluate import EVALUATIONS
from rolecraft.learning.trainer._guard import TrainGuard, refusals
from rolecraft.learning.trainer._study import TrainStudy
from rolecraft.learning.trainer._trainer import CollapseError, Iteration, Trainer
from rolecraft.learning.trainer._workers import RolloutWorkers
from rolecraft.worlds import Episode

KIND = "training"
REFUSALS = "decisions"
"""Stage of what guards did not allow; what they allowed is counted in the figures alone."""
ITERATIONS, EVALUATED, EPISODES, ALARMS = "iterations", "evaluations", "episodes", "alarms"
FOLDER = "checkpoints"
VOLATILE = frozenset({"checkpoint", "keep", "lock", "tensorboard"})
"""Fields that may differ on resuming: what is kept, not what comes out."""


@dataclass
class TrainingRun:
    """A study bound to its run directory.

    Args:
        study: What to train.
        store: Where it is kept.
        trainer: Does it.
        meter: Counts tokens and time against the budget.
        quiet: Show no progress.
    """

    study: TrainStudy
    store: RunStore
    trainer: Trainer
    meter: Meter = field(default_factory=Meter)
    quiet: bool = False
    events: Any = None
    """TensorBoard's writer, once it is needed."""

    @classmethod
    @contextmanager
    def open(
        cls,
        study: TrainStudy,
        directory: Path,
        *,
        budget: Budget | None = None,
        resume: bool = True,
        quiet: bool = False,
        workers: str | int = "1",
    ) -> Iterator[TrainingRun]:
        """Make the policies, open the run directory, and go on from its last good checkpoint.

        Args:
            study: What to train.
            directory: Of the run.
            budget: When to stop.
            resume: Go on with what is there.
            quiet: Show no progress.
            workers: Who plays: `1`, this process; else see `RolloutWorkers`.

        Raises:
            UserError: If anything the study names cannot be used; nothing has been computed by then.
            LockError: If the lock refuses a role.
        """
        with _steady(study):
            trainer = make_trainer(study)
            bases = {name: policy.base for name, policy in trainer.policies.items()}
            config = study.model_dump(mode="json", exclude={"guard"}) | {"bases": bases}
            if trainer.guard is not None:
                config["guard"] = study.guard.model_dump(mode="json", include={"tries", "blocked", "penalty"})
                config["guard"]["policies"] = guard_facts(trainer.guard.guards)
            with RunStore.open(directory, KIND, config, resume=resume, volatile=VOLATILE) as store:
                run = cls(study, store, trainer, Meter(budget), quiet)
                run._restore()
                if trainer.guard is not None:
                    write_guards(trainer.guard.guards, directory)
                    write_log(directory, store.rows(REFUSALS).values())
                if str(workers) != "1":
                    trainer.workers = RolloutWorkers(partial(make_trainer, study, trainer.guard), workers)
                try:
                    yield run
                finally:
                    if trainer.workers is not None:
                        trainer.workers.close()
                    if run.events is not None:
                        run.events.close()

    def run(self) -> None:
        """Train to the end; an iteration is stored when it is done.

        Raises:
            BudgetExceededError: If the budget is used up; a checkpoint is written first.
            CollapseError: If training collapses and the study says stop.
            ModelError: If a loss is not finite.
        """
        total = self.study.train.iterations
        if not self.trainer.iteration:
            self._evaluate()
            self._save()
        with Progress(total, "iterations", done=self.trainer.iteration, quiet=self.quiet) as progress:
            while self.trainer.iteration < total:
                with self.store.timed(ITERATIONS):
                    done = self._step()
                progress.advance()
                if (done.number + 1) % self.study.evaluate.every == 0 or done.number + 1 == total:
                    self._evaluate()
                if (done.number + 1) % self.study.checkpoint == 0 or done.number + 1 == total:
                    self._save()
                self._charge(done)

    def _step(self) -> Iteration:
        number = self.trainer.iteration
        try:
            done = self.trainer.step()
        except CollapseError as error:
            self.store.put(ALARMS, str(number), {"iteration": number, "alarms": [str(error)], "stopped": True})
            self._save()
            raise
        key = f"{done.number:06}"
        if done.alarms:
            self.store.put(ALARMS, key, {"iteration": done.number, "alarms": list(done.alarms), "stopped": False})
        kept = done.episodes[: self.study.keep_episodes]
        self.store.put_many(
            EPISODES,
            {f"{done.number}/{place}": _row(episode) for place, episode in enumerate(kept)},
        )
        if self.trainer.guard is not None:
            refused = refusals(done.number, done.episodes)
            fresh = self.store.missing(REFUSALS, refused)
            self.store.put_many(REFUSALS, refused)
            append_log(self.store.directory, (refused[key] for key in fresh))
        self.store.put(ITERATIONS, key, {"iteration": done.number, **done.figures})
        if self.study.tensorboard:
            self._write_events(done)
        return done

    def _evaluate(self) -> None:
        choice, number = self.study.evaluate, self.trainer.iteration
        if not choice.measures:
            return
        seed = derive_seed(self.study.seed, "evaluate", number)
        with self.store.timed(EVALUATED):
            figures: dict[str, Any] = {}
            for name in choice.measures:
                figures |= EVALUATIONS[name](self.trainer, choice.episodes, seed)
            self.store.put(EVALUATED, f"{number:06}", {"iteration": number, **figures})

    def _save(self) -> None:
        folder = self.store.directory / FOLDER
        folder.mkdir(exist_ok=True)
        self.trainer.save(folder / f"{self.trainer.iteration:06}")
        for old in checkpoints(folder)[: -self.study.keep]:
            shutil.rmtree(old)

    def _restore(self) -> None:
        """Go on from the newest checkpoint that can be read whole."""
        found = checkpoints(self.store.directory / FOLDER)
        for folder in reversed(found):
            try:
                self.trainer.load(folder)
                return
            except ModelError:
                if folder == found[0]:
                    raise

    def _charge(self, done: Iteration) -> None:
        try:
            self.meter.add(int(done.figures["rows"]), 0, int(done.figures["tokens"]))
        except Exception:
            self._save()
            raise

    def _write_events(self, done: Iteration) -> None:
        if self.events is None:
            from torch.utils.tensorboard import SummaryWriter

            self.events = SummaryWriter(str(self.store.directory / "events"), purge_step=done.number)
        for name, value in done.figures.items():
            if isinstance(value, int | float):
                self.events.add_scalar(name, value, done.number)


@contextmanager
def _steady(study: TrainStudy) -> Iterator[None]:
    """Train a tiny transformer on one thread: it is no slower, and the order of its sums does not hang on the load."""
    import torch

    before = torch.get_num_threads()
    if study.policy.kind == "tiny":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_trainer(study: TrainStudy, guard: TrainGuard | None = None) -> Trainer:
    """Return the trainer of a study, at its start.

    Args:
        study: What to train.
        guard: Instead of the one that the study names.

    Raises:
        UserError: If anything the study names cannot be used.
    """
    agents = {agent for make in study.makers() for agent in make().agents}
    for agent in study.roles:
        if agent not in agents:
            raise UserError(f"roles: no world has an agent {agent!r} (agents: {', '.join(sorted(agents))}).")
    policies, guard = study.policies(), study.guards() if guard is None else guard
    return Trainer(study.makers(), policies, study.rule(), study.train, seed=study.seed, roles=study.roles, guard=guard)


def play_checkpoint(run: RunView, number: int | None = None, episodes: int = 1, seed: int = 0) -> list[Episode]:
    """Play episodes with the weights of a checkpoint.

    Args:
        run: A training run.
        number: Iterations that were done when it was written; None: the last.
        episodes: How many.
        seed: Of the episodes.

    Raises:
        UserError: If there is no such checkpoint.
    """
    found = {int(folder.name): folder for folder in checkpoints(run.directory / FOLDER)}
    if not found or (number is not None and number not in found):
        raise UserError(f"{run.directory}: no checkpoint {number} (there are {', '.join(map(str, found)) or 'none'}).")
    folder = found[max(found) if number is None else number]
    config = {name: value for name, value in run.config.items() if name not in ("bases", "guard")}
    study = TrainStudy.model_validate({**config, "guard": "none"})
    guards, options = read_guards(run.directory), dict(run.config.get("guard", {}))
    options.pop("policies", None)
    trainer = make_trainer(
        study.model_copy(update={"seed": study.seed, "train": study.train.model_copy(update={
            "episodes": episodes, "group": 1})}),
        TrainGuard(guards, **options) if guards else None,
    )  # fmt: skip
    load_weights(folder, trainer.policies)
    trainer.iteration = int(read_state(folder)["iteration"])
    trainer.seed = derive_seed(study.seed, "show", seed)
    return trainer.collect(trainer.starts())


def read_curves(run: RunView) -> dict[str, list[Mapping[str, Any]]]:
    """Return what was stored of every iteration, evaluation and alarm, in their order."""
    return {stage: sorted(run.rows(stage).values(), key=_iteration) for stage in (ITERATIONS, EVALUATED, ALARMS)}


def read_refusals(run: RunView) -> list[dict[str, Any]]:
    """Return what guards did not allow, a row per decision, in order."""
    return list(run.rows(REFUSALS).values())


def _row(episode: Episode) -> dict[str, Any]:
    row = episode.row()
    return {**row, "turns": [without_times(turn) for turn in row["turns"]]}


def _iteration(row: Mapping[str, Any]) -> int:
    return int(row["iteration"])

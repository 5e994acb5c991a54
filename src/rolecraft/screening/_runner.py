"""Running a screen in a run directory: extract, answer, judge, decide, lock. Each stage resumes by what is missing."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rolecraft._files import write_atomic
from rolecraft._run import Budget, Meter, Progress, RunStore, map_shards
from rolecraft.conditioning import Direction, ReadableModel, default_site
from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, Sampling
from rolecraft.roles import Inventory, QuestionBank
from rolecraft.screening._answers import Answerer, answer_shards, shared_model
from rolecraft.screening._config import ScreenConfig
from rolecraft.screening._directions import DirectionBook, extract_all
from rolecraft.screening._grid import Cell
from rolecraft.screening._lock import Lock, LockedRole, RolesLock, file_hash
from rolecraft.screening._plan import Plan
from rolecraft.screening._results import INVENTORY_FILE, QUESTIONS_FILE, ScreenResults, assemble
from rolecraft.screening._scores import Scorer, build_judge, outcome, score_key, score_shards
from rolecraft.screening._screen import Outcome, Screen

if TYPE_CHECKING:
    from rolecraft.measures import Judge

KIND = "screen"


@dataclass
class ScreenRun:
    """A screen bound to its run directory.

    Args:
        plan: What to run.
        store: Where it is kept.
        model: The policy; a `LocalModel`, since only its residual stream can be steered.
        judges: The judge, and a second one if there are two.
        workers: As for `map_shards`.
        meter: Counts tokens against the budget.
        quiet: Show no progress.
    """

    plan: Plan
    store: RunStore
    model: LanguageModel
    judges: tuple[Judge, ...]
    workers: str = "1"
    meter: Meter | None = None
    quiet: bool = False

    @classmethod
    @contextmanager
    def open(
        cls,
        config: ScreenConfig,
        directory: Path,
        *,
        inventory: Inventory | None = None,
        bank: QuestionBank | None = None,
        model: LanguageModel | None = None,
        judges: tuple[Judge, ...] = (),
        workers: str = "1",
        budget: Budget | None = None,
        resume: bool = True,
        quiet: bool = False,
    ) -> Iterator[ScreenRun]:
        """Check the configuration, load the model and the judges, and open the run directory.

        Args:
            config: What to screen.
            directory: The run directory.
            inventory: Instead of the one the configuration names.
            bank: Instead of the one the configuration names.
            model: Instead of the one the configuration names; then `workers` must be 1.
            judges: Instead of those the configuration names; then `workers` must be 1.
            workers: `1`, a number of processes, `ray` or `ray://host:port`.
            budget: Stops the run when it is used up.
            resume: Go on with a run that has rows.
            quiet: Show no progress.

        Raises:
            UserError: If anything the configuration names cannot be used; nothing has been computed by then.
        """
        if (model is not None or judges) and workers != "1":
            raise UserError("workers: a model or judge given as an object stays in this process; use workers='1'.")
        plan = Plan.build(config, inventory, bank)
        spec = "" if model is not None else config.model
        model = model or shared_model(config.model)
        if not isinstance(model, ReadableModel):
            raise UserError(
                f"model {config.model!r} gives no access to its residual stream, which a screen reads and steers; use a"
                " local model (local:smollm2, local:PATH)."
            )
        judges = judges or tuple(
            build_judge(name, model, plan.population, allow_uncalibrated=config.allow_uncalibrated)
            for name in (config.judge, config.second_judge)
            if name
        )
        facts = {
            "population_hash": plan.population.hash,
            "inventory_hash": plan.inventory.hash,
            "questions_hash": plan.bank.hash,
            "model_name": model.name,
            "model_revision": model.revision,
            "site": default_site(model) if config.site is None else config.site,
            "judges": [f"{judge.name}@{judge.rubric_hash}" for judge in judges],
        }
        with RunStore.open(directory, KIND, config.resolved() | facts, resume=resume) as store:
            write_atomic(directory / INVENTORY_FILE, _copy(plan.inventory, "roles"))
            write_atomic(directory / QUESTIONS_FILE, _copy(plan.bank, "questions"))
            yield cls(plan, store, model, judges, workers if spec else "1", Meter(budget), quiet)

    def run(self) -> RolesLock:
        """Do what is missing, from extraction to `roles.lock`, and return the lock."""
        book = self.extract()
        screen = self.screen(book)
        while cells := screen.ask():
            self.answer(cells, book)
            self.judge(cells)
            screen.tell(cells, self.outcomes(cells))
        return self.lock(book)

    def extract(self) -> DirectionBook:
        """Extract the directions that are missing and return all of them with their controls."""
        extract_all(self.plan, self.store, self.model, self.meter, quiet=self.quiet)
        return DirectionBook.load(self.plan, self.store)

    def screen(self, book: DirectionBook) -> Screen:
        """Return the screen with nothing told yet."""
        config = self.plan.config
        return Screen(self.plan.grid, config.rule, config.rounds, frozenset(book.missing))

    def answer(self, cells: list[Cell], book: DirectionBook) -> None:
        """Generate the answers of a round that are missing."""
        config, inventory = self.plan.config, self.plan.inventory
        questions = {question.id: question for question in self.plan.questions}
        shards = answer_shards(cells, {role.id: role for role in inventory}, questions, book.arms, config.reference)
        missing = set(self.store.missing("answers", [key for shard in shards for key in shard.keys]))
        todo = [shard for shard in shards if missing & set(shard.keys)]
        task = Answerer(
            self.model if self.workers == "1" else None,
            config.model,
            Sampling(config.max_tokens, config.temperature, config.top_p),
        )
        total = sum(len(shard.keys) for shard in shards)
        done = total - sum(len(shard.keys) for shard in todo)
        with self.store.timed("answers"), Progress(total, "answers", done=done, quiet=self.quiet) as progress:
            for _, rows in map_shards(task, todo, self.workers):
                self.store.put_many("answers", rows)
                progress.advance(len(rows))
                self._charge(rows)

    def judge(self, cells: list[Cell]) -> None:
        """Score the answers of a round that have no score yet, by every judge."""
        answers = self.store.rows("answers")
        for position, judge in enumerate(self.judges):
            stage = f"scores{position}"
            shards = score_shards(cells, answers, self.plan)
            missing = set(self.store.missing(stage, [score_key(cell) for cell in cells]))
            todo = [shard for shard in shards if missing & set(shard.keys)]
            name = (self.plan.config.judge, self.plan.config.second_judge)[position]
            here = self.workers == "1"
            task = Scorer(judge if here else None, name, self.plan.config.model, None if here else self.plan.population)
            done = len(cells) - sum(len(shard.keys) for shard in todo)
            label = f"scores ({judge.name})"
            with self.store.timed(stage), Progress(len(cells), label, done=done, quiet=self.quiet) as progress:
                for _, rows in map_shards(task, todo, self.workers):
                    self.store.put_many(stage, rows)
                    progress.advance(len(rows))
                    if self.meter:
                        self.meter.check()

    def outcomes(self, cells: list[Cell], judge: int = 0) -> list[Outcome]:
        """Return the stored outcomes of some cells, by one of the judges."""
        answers, scores = self.store.rows("answers"), self.store.rows(f"scores{judge}")
        return [outcome(answers[cell.answer_key], scores[score_key(cell)]) for cell in cells]

    def results(self) -> ScreenResults:
        """Assemble what was found; see `load_results`."""
        return assemble(self.store)

    def lock(self, book: DirectionBook) -> RolesLock:
        """Decide every role and write `roles.lock`."""
        decisions = self.results().verdicts.to_dict("records")
        entries = {str(decision["role"]): self._locked(decision, book) for decision in decisions}
        content = Lock(
            run=self.store.id,
            model=self.model.name,
            revision=self.model.revision,
            inventory=f"{self.plan.inventory.name} {self.plan.inventory.version}",
            inventory_hash=self.plan.inventory.hash,
            reference=self.plan.config.reference,
            roles=entries,
        )
        lock = RolesLock(self.store.directory / "roles.lock", content)
        lock.save()
        return lock

    def _locked(self, decision: Mapping[Hashable, Any], book: DirectionBook) -> LockedRole:
        role = self.plan.inventory[decision["role"]]
        entry = LockedRole(
            role_hash=role.hash, verdict=decision["verdict"], conditioner=None, reason=decision["failed"]
        )
        if decision["verdict"] == "PASS_PROMPT_ONLY":
            return entry.model_copy(update={"conditioner": "prompt"})
        if decision["verdict"] != "PASS":
            return entry
        path = book.save(role.id, self.plan.config.seeds[0])
        direction = Direction.load(path)
        return entry.model_copy(
            update={
                "conditioner": "steering",
                "strength": float(decision["strength"]),
                "site": direction.manifest.site,
                "direction": str(path.relative_to(self.store.directory)),
                "direction_sha256": file_hash(path),
            }
        )

    def _charge(self, rows: dict[str, dict[str, Any]]) -> None:
        if self.meter:
            self.meter.add(
                calls=len(rows),
                prompt_tokens=sum(row["prompt_tokens"] for row in rows.values()),
                new_tokens=sum(row["tokens"] for row in rows.values()),
            )


def _copy(source: Inventory | QuestionBank, key: str) -> str:
    """Return the JSON file of what is screened, which a run keeps beside its rows."""
    entries = [entry.model_dump(mode="json", exclude_defaults=True) for entry in source]
    return json.dumps({"name": source.name, "version": source.version, key: entries}, ensure_ascii=False, indent=1)

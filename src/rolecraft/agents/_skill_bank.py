"""Skills that agents write from their own finished episodes, per task, chosen by a bandit (arXiv 2604.10674)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from rolecraft._files import read_mapping, write_atomic
from rolecraft._run._keys import canonical_json
from rolecraft.errors import UserError, did_you_mean

FORMAT = "rolecraft-skill-bank"
VERSION = 1
TEXTS = ("success_analysis", "mistake_analysis")
WORKFLOW = "golden_workflow"


@dataclass(frozen=True)
class Skill:
    """What is to be learned from one episode; the three fields of the paper's JSON."""

    success_analysis: str = ""
    """What made it work."""
    mistake_analysis: str = ""
    """What to avoid."""
    golden_workflow: tuple[str, ...] = ()
    """The steps to take."""

    @classmethod
    def read(cls, given: Mapping[str, Any] | str, *, strict: bool = True) -> Self:
        """Read a skill that a model or a file wrote.

        Args:
            given: A mapping, or JSON text.
            strict: All three fields must be there and no other; else a missing one is empty, and others do not count.

        Raises:
            UserError: If it is no such skill, or says nothing; the field is named.
        """
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except json.JSONDecodeError as error:
                raise UserError(f"skill: not valid JSON (line {error.lineno}: {error.msg}).") from None
        if not isinstance(given, Mapping):
            raise UserError(f"skill: expected a JSON object with {_NAMES}, got {type(given).__name__}.")
        if strict:
            _refuse_other_fields(given)
        texts = {name: given.get(name, "") for name in TEXTS}
        steps = given.get(WORKFLOW, [])
        for name, text in texts.items():
            if not isinstance(text, str):
                raise UserError(f"skill: {name} must be a text, got {type(text).__name__}.")
        if not isinstance(steps, list | tuple) or not all(isinstance(step, str) for step in steps):
            raise UserError(f"skill: {WORKFLOW} must be a list of texts, one per step, got {steps!r:.60}.")
        worked, avoid = (texts[name].strip() for name in TEXTS)
        found = cls(worked, avoid, tuple(step.strip() for step in steps if step.strip()))
        if found == cls():
            raise UserError("skill: all three fields are empty; leave the skill out.")
        return found

    def row(self) -> dict[str, Any]:
        """Return the skill as JSON holds it."""
        return {**asdict(self), WORKFLOW: list(self.golden_workflow)}

    def text(self) -> str:
        """Return the skill as a prompt shows it, one part per line."""
        steps = [f"{number}. {step}" for number, step in enumerate(self.golden_workflow, 1)]
        parts = (
            ("What worked: ", self.success_analysis),
            ("What to avoid: ", self.mistake_analysis),
            ("Workflow:\n", "\n".join(steps)),
        )
        return "\n".join(head + text for head, text in parts if text)


_NAMES = ", ".join((*TEXTS, WORKFLOW))


@dataclass(frozen=True)
class SkillEntry:
    """A skill in a bank."""

    id: int
    """Counts up over the life of the bank."""
    task: str
    skill: Skill
    source: str
    """The episode that it was made of."""
    outcome: float
    """What that episode earned."""
    born: int
    """Round of the bank in which it was added."""
    uses: float = 0.0
    """How often it was chosen; decayed, where the bank decays."""
    utility: float = 0.0
    """Sum over its uses; decayed likewise."""

    @property
    def mean(self) -> float:
        """Mean utility; 0 before the first use. A use that is not paid yet counts as 0."""
        return self.utility / self.uses if self.uses else 0.0


class SkillBank:
    """A buffer of skills per task. A full one drops the skill with the lowest mean utility, of equals the oldest.

    `select` takes the skill with the largest mean utility + c sqrt(ln N / n), those that were never used first.

    Args:
        cap: Most skills of a task. (How many the paper has is not known, nor how it evicts, nor c.)
        c: Weight of what is not known yet.
        decay: Uses and utilities are multiplied by it in every round, so that what skills did to an earlier policy
            counts less; 1: never.
        max_age: Skills are dropped after so many rounds, so that an early weak policy's do not stay; None: never.
        strict: A skill that cannot be read is an error; else it is rejected, and `rejected` says why.

    Raises:
        UserError: If a number is out of range.
    """

    def __init__(
        self,
        cap: int = 8,
        *,
        c: float = 1.0,
        decay: float = 1.0,
        max_age: int | None = None,
        strict: bool = False,
    ) -> None:
        if cap < 1 or not 0 <= c < math.inf or not 0 < decay <= 1 or (max_age is not None and max_age < 1):
            raise UserError(
                "skill bank: expected cap of at least 1, c of at least 0, decay in (0, 1] and max_age of at least 1 or "
                f"None, got {cap}, {c}, {decay} and {max_age}."
            )
        self.cap, self.c, self.decay, self.max_age, self.strict = cap, c, decay, max_age, strict
        self.round = 0
        self.rejected: list[str] = []
        """Why skills were rejected, with task and source."""
        self.misses = 0
        """How often a task had no skill to choose."""
        self._entries: dict[int, SkillEntry] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def tasks(self) -> list[str]:
        """Tasks with a skill, in the order of their oldest one."""
        return list(dict.fromkeys(entry.task for entry in self._entries.values()))

    def of(self, task: str) -> list[SkillEntry]:
        """Return the skills of a task, oldest first."""
        return [entry for entry in self._entries.values() if entry.task == task]

    def age(self, entry: SkillEntry) -> int:
        """Return how many rounds ago a skill was added."""
        return self.round - entry.born

    def add(
        self, task: str, skill: Skill | Mapping[str, Any] | str, *, source: str = "", outcome: float = 0.0
    ) -> SkillEntry | None:
        """Add a skill; a full buffer drops another one first.

        Returns:
            The entry; None if the skill was rejected, or the task has the very same one.

        Raises:
            UserError: If the skill cannot be read and the bank is strict, or the outcome is not finite.
        """
        if not math.isfinite(outcome):
            raise UserError(f"skill bank: the outcome of {source or 'an episode'} of task {task!r} is {outcome}.")
        try:
            read = skill if isinstance(skill, Skill) else Skill.read(skill)
        except UserError as error:
            if self.strict:
                raise
            self.rejected.append(f"task {task}, {source or 'no source'}: {error}")
            return None
        own = self.of(task)
        if any(entry.skill == read for entry in own):
            return None
        if len(own) >= self.cap:
            del self._entries[min(own, key=lambda entry: (entry.mean, entry.id)).id]
        entry = SkillEntry(self._next, task, read, source, float(outcome), self.round)
        self._entries[entry.id] = entry
        self._next += 1
        return entry

    def select(self, task: str, rng: np.random.Generator | None = None) -> SkillEntry | None:
        """Choose a skill and count the use.

        Args:
            task: Whose skill.
            rng: Decides among equals; None: the oldest of them.

        Returns:
            The skill as it was before the use; None, which is counted in `misses`, if the task has none.
        """
        own = self.of(task)
        if not own:
            self.misses += 1
            return None
        bounds = self._bounds(own)
        best = [entry for entry, bound in zip(own, bounds, strict=True) if bound == max(bounds)]
        chosen = best[0 if rng is None else int(rng.integers(len(best)))]
        self._entries[chosen.id] = replace(chosen, uses=chosen.uses + 1)
        return chosen

    def update(self, skill: int, utility: float) -> None:
        """Pay a use that was chosen. A skill that was dropped since is paid nothing.

        Args:
            skill: The entry's id.
            utility: What the episodes that it taught earned, less the task's mean.

        Raises:
            UserError: If the id was never given, or the utility is not finite.
        """
        if not 0 <= skill < self._next:
            raise UserError(f"skill bank: no skill ever had the id {skill} (ids given so far: {self._next}).")
        if not math.isfinite(utility):
            raise UserError(f"skill bank: the utility of skill {skill} must be finite, got {utility}.")
        if skill in self._entries:
            entry = self._entries[skill]
            self._entries[skill] = replace(entry, utility=entry.utility + utility)

    def tick(self) -> None:
        """Begin the next round: skills age, and their figures decay."""
        self.round += 1
        for entry in list(self._entries.values()):
            if self.max_age is not None and self.age(entry) > self.max_age:
                del self._entries[entry.id]
            elif self.decay < 1:
                decayed = replace(entry, uses=entry.uses * self.decay, utility=entry.utility * self.decay)
                self._entries[entry.id] = decayed

    def save(self, path: str | Path) -> None:
        """Write the bank to a JSON file."""
        write_atomic(Path(path), canonical_json(self.state()) + "\n")

    def state(self) -> dict[str, Any]:
        """Return all of the bank as JSON holds it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "round": self.round,
            "next": self._next,
            "misses": self.misses,
            "rejected": list(self.rejected),
            "skills": [{**asdict(entry), "skill": entry.skill.row()} for entry in self._entries.values()],
        }

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bank that `save` wrote.

        Raises:
            UserError: If the file is none, or of another version, or damaged.
        """
        return cls.from_state(read_mapping(Path(path)), str(path))

    @classmethod
    def from_state(cls, state: Any, where: str = "skill bank") -> Self:
        """Read what `state` returned.

        Args:
            state: The mapping.
            where: Where it comes from, for messages.

        Raises:
            UserError: As for `load`.
        """
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise UserError(f"{where}: not a skill bank; expected a file that `SkillBank.save` wrote.")
        if state.get("version") != VERSION:
            raise UserError(
                f"{where}: version {state.get('version')!r} of the format, this needs {VERSION}; use the version of "
                "Rolecraft that wrote it."
            )
        try:
            settings = dict(state["settings"])
            bank = cls(settings.pop("cap"), **settings)
            bank.round, bank._next, bank.misses = (int(state[name]) for name in ("round", "next", "misses"))
            bank.rejected = [str(each) for each in state["rejected"]]
            for number, row in enumerate(state["skills"]):
                bank._restore(row, f"{where}: skills[{number}]")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: the file is damaged: {error!r}.") from None
        return bank

    def _restore(self, row: Mapping[str, Any], where: str) -> None:
        unknown = sorted(set(row) ^ {field.name for field in fields(SkillEntry)})
        if unknown:
            raise UserError(f"{where}: the field {unknown[0]!r} is missing or unknown.")
        entry = SkillEntry(**{**row, "skill": Skill.read(row["skill"])})
        if entry.id in self._entries or not 0 <= entry.id < self._next:
            raise UserError(f"{where}: the id {entry.id} stands twice, or was never given.")
        self._entries[entry.id] = entry

    def _bounds(self, own: Sequence[SkillEntry]) -> list[float]:
        total = math.log(max(sum(entry.uses for entry in own), 1.0))
        return [
            entry.mean + self.c * math.sqrt(total / entry.uses) if entry.uses else math.inf
            for entry in own
        ]  # fmt: skip


_SETTINGS = ("cap", "c", "decay", "max_age", "strict")


def _refuse_other_fields(given: Mapping[str, Any]) -> None:
    names = (*TEXTS, WORKFLOW)
    for name in names:
        if name not in given:
            raise UserError(f"skill: the field {name!r} is missing; expected {_NAMES}.")
    for name in given:
        if name not in names:
            raise UserError(f"skill: unknown field {name!r}; expected {_NAMES}.{did_you_mean(str(name), names)}")

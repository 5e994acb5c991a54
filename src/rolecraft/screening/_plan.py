"""From a configuration to the grid that will be run, checked before anything is paid for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rolecraft.errors import GridError
from rolecraft.roles import Inventory, Question, QuestionBank, Role, load_inventory, load_questions
from rolecraft.screening._config import ScreenConfig
from rolecraft.screening._grid import Grid


@dataclass(frozen=True)
class Plan:
    """A screen ready to run."""

    config: ScreenConfig
    population: Inventory
    """The whole inventory: what a role is told apart from."""
    inventory: Inventory
    """The roles to be screened."""
    bank: QuestionBank
    questions: tuple[Question, ...]
    """The evaluation questions in use."""
    grid: Grid

    @classmethod
    def build(cls, config: ScreenConfig, inventory: Inventory | None = None, bank: QuestionBank | None = None) -> Plan:
        """Load what the configuration names (unless given) and lay out the grid.

        Raises:
            RoleError: If the inventory or the bank cannot be read, or a role is unknown.
            GridError: If the grid cannot be laid out, the bank has too few questions, or a role's extraction question
                is also an evaluation question.
        """
        population = inventory or load_inventory(config.inventory)
        inventory = population.select(config.roles or None)
        bank = bank or load_questions(config.questions_from)
        pool = bank.split("evaluation")
        if config.questions > len(pool):
            raise GridError(
                f"questions: {config.questions} were asked for, but {bank.name!r} holds {len(pool)} for evaluation."
            )
        questions = pool[: config.questions]
        _refuse_leaks(inventory, questions)
        grid = Grid(
            tuple(role.id for role in inventory),
            config.strengths,
            config.control,
            tuple(question.id for question in questions),
            config.seeds,
        )
        return cls(config, population, inventory, bank, questions, grid)

    def unextractable(self) -> dict[str, str]:
        """Return the roles without what an extraction needs, each with what is missing."""
        return {role.id: missing for role in self.inventory if (missing := _missing(role))}

    @property
    def answers(self) -> int:
        """Number of distinct answers of the full grid."""
        return len({cell.answer_key for cell in self.grid.cells()})

    @property
    def scored(self) -> int:
        """Number of scored cells of the full grid."""
        return len(self.grid.cells())

    @property
    def extraction_texts(self) -> int:
        """Responses generated to extract the directions: a prompted and a base one per pair."""
        pairs = sum(
            min(len(role.instructions), self.config.instructions) * min(len(role.questions), self.config.role_questions)
            for role in self.inventory
        )
        return 2 * pairs * len(self.config.extraction_seeds)


def _missing(role: Role) -> str:
    wanted = [name for name in ("instructions", "questions") if not getattr(role, name)]
    return f"no {' and no '.join(wanted)}" if wanted else ""


def _refuse_leaks(inventory: Inventory, questions: Sequence[Question]) -> None:
    """Questions that extract are never used to evaluate."""
    evaluated = {question.text.casefold().strip(): question.id for question in questions}
    for role in inventory:
        for position, text in enumerate(role.questions):
            if (question_id := evaluated.get(text.casefold().strip())) is not None:
                raise GridError(
                    f"role {role.id!r}: questions[{position}] is also the evaluation question {question_id!r}; a "
                    "question that extracts a direction may not evaluate it. Change one of the two."
                )

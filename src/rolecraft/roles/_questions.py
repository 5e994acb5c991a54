"""Question banks: role-agnostic questions with ids, and the split that keeps evaluation and calibration apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rolecraft._files import bundled, read_records
from rolecraft.errors import RoleError
from rolecraft.roles._role import Text, _Strict, describe


class Question(_Strict):
    """One role-agnostic question."""

    id: Text
    text: Text
    topic: str = ""
    split: Literal["evaluation", "calibration"] = "evaluation"
    micro: bool = False
    """Admits a local, personal answer (the micro-targeted prompts of arXiv 2605.06196)."""
    policy: bool = False
    """A policy or society prompt."""


@dataclass(frozen=True)
class QuestionBank:
    """An ordered set of questions.

    Raises:
        RoleError: If it is empty or an id or a text occurs twice.
    """

    name: str
    version: str
    questions: tuple[Question, ...]

    def __post_init__(self) -> None:
        if not self.questions:
            raise RoleError(f"question bank {self.name!r} holds no questions.")
        seen: dict[str, str] = {}
        for question in self.questions:
            for value in (question.id, question.text.casefold()):
                if value in seen:
                    raise RoleError(
                        f"question bank {self.name!r}: {question.id} repeats {seen[value]} ({value!r}); "
                        "ids and texts must be unique."
                    )
                seen[value] = question.id

    def __len__(self) -> int:
        return len(self.questions)

    def __iter__(self) -> Iterator[Question]:
        return iter(self.questions)

    @property
    def hash(self) -> str:
        """Content hash: 16 hex digits."""
        content = "\n".join(question.model_dump_json() for question in self.questions)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def split(self, name: Literal["evaluation", "calibration"]) -> tuple[Question, ...]:
        """Return the questions of one split."""
        return tuple(question for question in self.questions if question.split == name)


def load_questions(source: str | Path) -> QuestionBank:
    """Read a question bank: the bundled `questions-v1`, or a YAML, JSON, JSONL or CSV file of questions.

    Raises:
        UserError: If a file cannot be read or parsed (file, line and column are named).
        RoleError: If nothing is found there, or a question is refused (file, position and field are named).
    """
    path = bundled("roles", source)
    header: dict[str, object] = {}
    questions = []
    for record in read_records(path, "questions"):
        header |= record.header
        try:
            questions.append(Question.model_validate(record.data))
        except ValidationError as error:
            raise RoleError(f"{record.where}: {describe(error)}") from None
    return QuestionBank(str(header.get("name", path.stem)), str(header.get("version", "0")), tuple(questions))

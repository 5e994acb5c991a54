"""Labelled cases on which judges are calibrated, and the answers of the embedded model that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecraft._files import bundled, read_mapping, read_records
from rolecraft.errors import UserError
from rolecraft.measures._judge import JudgeItem
from rolecraft.roles import Inventory, load_inventory, load_questions

BROKEN, NOT, PARTLY, FULLY = range(4)
"""The labels: broken text, not in role, partly in role, fully in role."""
REFERENCES = "role-references-v1"
"""Bundled answers of the embedded model to the cases' questions, in role by prompt and unsteered."""


@dataclass(frozen=True)
class RoleCase:
    """An answer with the label a person gave it."""

    id: str
    item: JudgeItem
    label: int
    """0 broken text, 1 not in role, 2 partly in role, 3 fully in role."""


def load_cases(
    source: str | Path = "role-cases-v1", inventory: Inventory | None = None, references: bool = True
) -> list[RoleCase]:
    """Read labelled cases.

    Args:
        source: Name of a bundled set, or a YAML, JSON, JSONL or CSV file of mappings with `id`, `role`, `question`,
            `label` and `answer`. `question` is the id of a bundled question, or the text itself.
        inventory: Where the roles are looked up; default: the bundled `core-v1`.
        references: Give each case the bundled prompted answer to its question as reference, where there is one.

    Raises:
        UserError: If a case lacks a field, or its label is not 0..3 (file and place are named).
        RoleError: If a role is unknown.
    """
    inventory = inventory or load_inventory("core-v1")
    questions = {question.id: question.text for question in load_questions("questions-v1")}
    prompted = {(row["role"], row["question"]): row["prompted"] for row in reference_answers()} if references else {}
    cases = []
    for record in read_records(bundled("measures", source), "cases"):
        data: Any = record.data
        lacking = [key for key in ("id", "role", "question", "label", "answer") if key not in data]
        if lacking:
            raise UserError(f"{record.where}: a case needs the field {lacking[0]!r}.")
        try:
            label = int(data["label"])
        except ValueError:
            label = -1
        if not BROKEN <= label <= FULLY:
            raise UserError(f"{record.where}: label must be 0, 1, 2 or 3, got {data['label']!r}.")
        asked = str(data["question"])
        item = JudgeItem(
            inventory[str(data["role"])],
            questions.get(asked, asked),
            str(data["answer"]),
            prompted.get((data["role"], asked), ""),
        )
        cases.append(RoleCase(str(data["id"]), item, label))
    return cases


def reference_answers() -> list[dict[str, str]]:
    """Return the bundled rows `role`, `question` (ids), `prompted` and `unsteered` (answers)."""
    rows: list[dict[str, str]] = read_mapping(bundled("measures", REFERENCES))["answers"]
    return rows


def unsteered_items(inventory: Inventory | None = None) -> list[JudgeItem]:
    """Return the embedded model's unsteered answers as items, each with the prompted answer as reference."""
    inventory = inventory or load_inventory("core-v1")
    questions = {question.id: question.text for question in load_questions("questions-v1")}
    return [
        JudgeItem(inventory[row["role"]], questions[row["question"]], row["unsteered"], row["prompted"])
        for row in reference_answers()
    ]

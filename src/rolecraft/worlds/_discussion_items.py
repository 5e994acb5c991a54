"""Questions with two answers to judge between: the bundled ones, and ChatEval's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rolecraft._files import Record, bundled, read_mapping, read_records
from rolecraft.errors import UserError, did_you_mean

Stance = Literal["A1", "tie", "A2"]
"""Which of two answers is held to be better."""


@dataclass(frozen=True)
class JudgedItem:
    """A question with two answers."""

    id: str
    question: str
    answers: tuple[str, str]
    better: Stance | None = None
    """Which answer is better; None: not known."""
    why: str = ""
    """What makes it better; never shown to a referee."""


def load_judged_items(source: str | Path = "discussion-items-v1") -> list[JudgedItem]:
    """Read questions with two answers.

    Args:
        source: Name of a bundled set, or a file of records with `question`, `answers` (two), and optionally `id`,
            `better` (A1, A2 or tie) and `why`.

    Raises:
        UserError: If a field is missing or unusable, or two records share an id; file and record are named.
    """
    items = []
    for number, record in enumerate(read_records(bundled("worlds", source), "items")):
        data = _mapping(record)
        better = data.get("better") or None
        if better not in ("A1", "A2", "tie", None):
            raise UserError(f"{record.where}: better must be A1, A2 or tie, got {better!r}; leave it out if unknown.")
        answers = data.get("answers")
        if not isinstance(answers, list) or len(answers) != 2:
            raise UserError(f"{record.where}: answers must be a list of two texts, got {answers!r}.")
        question, first, second = _texts(record.where, [data.get("question"), *answers])
        items.append(
            JudgedItem(str(data.get("id", number)), question, (first, second), better, str(data.get("why", "")))
        )
    return _distinct(items, source)


def load_chateval(path: str | Path, systems: tuple[str, str] | None = None) -> list[JudgedItem]:
    """Read a file in ChatEval's layout: a JSON list of `{question_id, question, response: {system: text, ...}}`.

    Args:
        path: The file, such as FairEval's `test.json` (systems `gpt35` and `vicuna`).
        systems: The systems whose responses become answer 1 and answer 2; default: the first two of the first record.

    Raises:
        UserError: If the layout is another, or a system has no response.
    """
    records = read_mapping(Path(path))
    if not isinstance(records, list) or not records:
        raise UserError(
            f"{path}: expected a JSON list of records with question and response, got {type(records).__name__}."
        )
    items = []
    for number, raw in enumerate(records):
        where = f"{path}: record {number}"
        data = _mapping(Record(raw, where))
        response = data.get("response")
        if not isinstance(response, dict) or len(response) < 2:
            raise UserError(f"{where}: response must map two systems to their texts, got {response!r}.")
        if systems is None:
            one, two, *_ = response
            systems = (one, two)
        for system in systems:
            if system not in response:
                near = did_you_mean(system, response)
                raise UserError(f"{where}: no response of {system!r} (there: {', '.join(response)}).{near}")
        question, first, second = _texts(where, [data.get("question"), *(response[system] for system in systems)])
        items.append(JudgedItem(str(data.get("question_id", number)), question, (first, second)))
    return _distinct(items, path)


def _mapping(record: Record) -> dict[str, Any]:
    if not isinstance(record.data, dict):
        raise UserError(f"{record.where}: expected a mapping with question and two answers, got {record.data!r}.")
    return record.data


def _texts(where: str, values: Sequence[Any]) -> list[str]:
    for name, value in zip(("question", "answer 1", "answer 2"), values, strict=True):
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{where}: {name} must be a text that is not empty, got {value!r}.")
    return [str(value).strip() for value in values]


def _distinct(items: list[JudgedItem], source: str | Path) -> list[JudgedItem]:
    ids = [item.id for item in items]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise UserError(f"{source}: two records have the id {twice!r}; ids must differ.")
    return items

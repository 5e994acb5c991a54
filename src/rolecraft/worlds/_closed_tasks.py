"""Closed tasks with one right answer, generated from a seed: coins, last letters, swaps, arithmetic, dates."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rolecraft._files import read_records
from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType

NAMES = (
    "Anna", "Ben", "Carla", "David", "Elena", "Frank", "Grace", "Hugo", "Irene", "Jonas", "Karin", "Leo", "Maria",
    "Nina", "Oscar", "Paula", "Quentin", "Rosa", "Simon", "Tara", "Umar", "Vera", "Walter", "Yusuf", "Zoe",
)  # fmt: skip
THINGS = ("apple", "book", "key", "lamp", "cup", "ball", "hat", "pen", "coat", "map", "drum", "kite")
LETTERS = "ABCDE"


@dataclass(frozen=True)
class ClosedItem:
    """A question with one right answer."""

    id: str
    task: str
    question: str
    answer: str
    """In canonical form: a capital letter, a plain number, yes or no, a lower-case string."""
    options: tuple[str, ...]
    """Possible answers, the right one among them, for choice by log-probability; empty if there are none."""


@dataclass(frozen=True)
class ClosedTask:
    """A kind of question, and how its answer is asked for and read."""

    name: str
    answer_type: AnswerType
    trigger: str
    """Follows question and reasoning, and asks for the bare answer."""
    letters: str = LETTERS
    """The options of a choice."""


TASKS: Mapping[str, ClosedTask] = {
    task.name: task
    for task in (
        ClosedTask("coin-flip", "yes-no", "So, yes or no? The answer is"),
        ClosedTask("last-letters", "string", 'So, the joined letters, between double quotes, are "'),
        ClosedTask("object-swap", "choice", "So, among A to C, the right option is", "ABC"),
        ClosedTask("arithmetic", "number", "So, the answer in digits is"),
        ClosedTask("date", "string", 'So, the date, between double quotes and as MM/DD/YYYY, is "'),
    )
}


def task_named(name: str) -> ClosedTask:
    """Return a generated task by name.

    Raises:
        UserError: If there is none.
    """
    if name not in TASKS:
        raise UserError(f"task {name!r} is unknown (known: {', '.join(TASKS)}).{did_you_mean(name, TASKS)}")
    return TASKS[name]


def make_items(task: str, count: int, seed: int, level: int = 1) -> list[ClosedItem]:
    """Generate distinct questions; the right option's place and a yes or no are balanced by chance alone.

    Args:
        task: A name of `TASKS`.
        count: How many.
        seed: The same arguments give the same questions.
        level: Difficulty: flips - 1 (coin), words - 1 (last letters), swaps, steps (arithmetic) or offsets (date).

    Raises:
        UserError: If the task is unknown, or there are not as many distinct questions.
    """
    task_named(task)
    if count < 1 or level < 1:
        raise UserError(f"expected count and level of at least 1, got count={count}, level={level}.")
    draw = random.Random(derive_seed("closed-task", task, seed, level))
    found: dict[str, ClosedItem] = {}
    for _ in range(50 * count + 200):
        question, answer, options = _MAKERS[task](draw, level)
        if question not in found:
            found[question] = ClosedItem(f"{task}/{seed}/{len(found)}", task, question, answer, options)
        if len(found) == count:
            return list(found.values())
    raise UserError(f"task {task!r} at level {level} has fewer than {count} distinct questions; ask for fewer.")


def _coin_flip(draw: random.Random, level: int) -> tuple[str, str, tuple[str, ...]]:
    people = draw.sample(NAMES, level + 1)
    flips = [draw.random() < 0.5 for _ in people]
    told = " ".join(
        f"{who} {'flips' if flip else 'does not flip'} the coin." for who, flip in zip(people, flips, strict=True)
    )
    answer = "no" if sum(flips) % 2 else "yes"
    return f"A coin lies heads up. {told} Is the coin still heads up? Answer yes or no.", answer, ("yes", "no")


def _last_letters(draw: random.Random, level: int) -> tuple[str, str, tuple[str, ...]]:
    words = draw.sample(NAMES, level + 1)
    answer = "".join(word[-1] for word in words).lower()
    wrong = ["".join(word[0] for word in words).lower(), answer[::-1]]
    while len(set(wrong) - {answer}) < 3:
        wrong.append("".join(draw.choice("aeinorstlx") for _ in words))
    listed = " ".join(words)
    options = [answer, *list(dict.fromkeys(text for text in wrong if text != answer))[:3]]
    draw.shuffle(options)
    return f'Take the last letter of each word in "{listed}" and join them. What do you get?', answer, tuple(options)


def _object_swap(draw: random.Random, level: int) -> tuple[str, str, tuple[str, ...]]:
    people, things = draw.sample(NAMES, 3), draw.sample(THINGS, 3)
    told = [f"{who} has the {thing}." for who, thing in zip(people, things, strict=True)]
    held = list(things)
    for _ in range(level):
        a, b = draw.sample(range(3), 2)
        held[a], held[b] = held[b], held[a]
        told.append(f"{people[a]} and {people[b]} swap what they have.")
    asked = draw.randrange(3)
    shown = draw.sample(things, 3)
    listed = " ".join(f"({letter}) the {thing}" for letter, thing in zip("ABC", shown, strict=True))
    question = f"{' '.join(told)} What does {people[asked]} have at the end? Options: {listed}"
    return question, "ABC"[shown.index(held[asked])], ("A", "B", "C")


def _arithmetic(draw: random.Random, level: int) -> tuple[str, str, tuple[str, ...]]:
    who, thing = draw.choice(NAMES), draw.choice(THINGS)
    total = draw.randint(6, 30)
    told = [f"{who} has {total} {thing}s."]
    for _ in range(level):
        change = draw.randint(2, 9)
        if total - change < 1 or draw.random() < 0.5:
            total += change
            told.append(f"{who} gets {change} more.")
        else:
            total -= change
            told.append(f"{who} gives {change} away.")
    wrong = draw.sample([total + step for step in (-10, -3, -2, -1, 1, 2, 3, 10) if total + step > 0], 3)
    options = [str(value) for value in draw.sample([total, *wrong], 4)]
    return f"{' '.join(told)} How many {thing}s does {who} have now?", str(total), tuple(options)


def _date(draw: random.Random, level: int) -> tuple[str, str, tuple[str, ...]]:
    today = date(2001, 1, 1) + timedelta(days=draw.randrange(9000))
    days = [draw.choice((-1, 1)) * draw.randint(1, 20) for _ in range(level)]
    steps = ", and then ".join(f"{abs(n)} days {'later' if n > 0 else 'earlier'}" for n in days)
    right = today + timedelta(days=sum(days))
    shown = [right + timedelta(days=n) for n in draw.sample([-30, -2, -1, 1, 2, 30], 3)]
    options = [f"{day:%m/%d/%Y}" for day in draw.sample([right, *shown], 4)]
    # The cleaner takes punctuation away, so the canonical answer has none.
    return f"Today is {today:%m/%d/%Y}. What is the date {steps}?", f"{right:%m%d%Y}", tuple(options)


_MAKERS: Mapping[str, Callable[[random.Random, int], tuple[str, str, tuple[str, ...]]]] = {
    "coin-flip": _coin_flip,
    "last-letters": _last_letters,
    "object-swap": _object_swap,
    "arithmetic": _arithmetic,
    "date": _date,
}


def right_option(item: ClosedItem) -> int:
    """Return the index of the right answer among the options.

    Raises:
        UserError: If the item has no options, or the answer is not among them.
    """
    canonical = [option.replace("/", "") for option in item.options]
    if item.answer not in canonical:
        raise UserError(f"item {item.id}: the answer {item.answer!r} is not among the options {list(item.options)}.")
    return canonical.index(item.answer)


def read_items(path: Path) -> tuple[ClosedTask, list[ClosedItem]]:
    """Read a public data set.

    Records hold `question`, `answer`, `answer_type`, `trigger` and optionally `id` and `options`.

    Args:
        path: YAML, JSON, JSONL or CSV; its stem becomes the task's name. The answer type and the trigger of the first
            record hold for all.

    Raises:
        UserError: If a field is missing or unusable; file and record are named.
    """
    records = list(read_records(path, "items"))
    if not records:
        raise UserError(f"{path}: no questions.")
    items: list[ClosedItem] = []
    for number, record in enumerate(records):
        data: dict[str, Any] = record.data if isinstance(record.data, dict) else {}
        for field in ("question", "answer", "answer_type", "trigger"):
            if not data.get(field):
                raise UserError(f"{record.where}: the field {field!r} is missing or empty.")
        if data["answer_type"] not in ANSWER_TYPES:
            raise UserError(
                f"{record.where}: answer_type {data['answer_type']!r}: expected one of {', '.join(ANSWER_TYPES)}."
            )
        options = tuple(str(option) for option in data.get("options") or ())
        name = str(data.get("id", number))
        items.append(ClosedItem(f"{path.stem}/{name}", path.stem, str(data["question"]), str(data["answer"]), options))
    if len({item.id for item in items}) < len(items):
        raise UserError(f"{path}: two records have the same id; ids must differ.")
    first = records[0].data
    letters = LETTERS[: len(items[0].options)] if first["answer_type"] == "choice" and items[0].options else LETTERS
    return ClosedTask(path.stem, first["answer_type"], first["trigger"], letters), items

"""Answering closed tasks with a language model: by log-probability among options, or by free text and extraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rolecraft.models import GREEDY, Chat, LanguageModel, Sampling, choose
from rolecraft.worlds._answers import Graded, Mode, grade
from rolecraft.worlds._closed_tasks import ClosedItem, ClosedTask, right_option

Frame = Callable[[str], Chat]
"""From the user's text to the chat it is asked in."""
ANSWER = Sampling(max_tokens=12, temperature=0.0, top_p=1.0)


class Asked(NamedTuple):
    """A question, the task it belongs to and the dialogue it is put in."""

    item: ClosedItem
    task: ClosedTask
    frame: Frame


@dataclass(frozen=True)
class Solved:
    """One question, answered in free text."""

    item: ClosedItem
    reasoning: str
    grade: Graded


def solve_by_choice(model: LanguageModel, asked: Sequence[Asked]) -> list[bool]:
    """Answer each question by its most likely option (mean log-probability per token) and say whether it was right.

    Raises:
        UserError: If an item has no options.
    """
    right = [right_option(one.item) for one in asked]
    chosen = choose(model, [one.frame(one.item.question) for one in asked], [one.item.options for one in asked])
    return [index == wanted for index, wanted in zip(chosen, right, strict=True)]


def solve_freely(
    model: LanguageModel, asked: Sequence[Asked], reasoning: Sampling = GREEDY, mode: Mode = "strict"
) -> list[Solved]:
    """Answer in two passes: reason, then extract the answer in the same dialogue (Zero-Shot-CoT, arXiv 2205.11916).

    Args:
        model: Answers.
        asked: The questions, of any tasks.
        reasoning: Sampling of the first pass.
        mode: Of the cleaner.
    """
    thoughts = model.generate([one.frame(one.item.question) for one in asked], reasoning)
    again = [
        one.frame(f"{one.item.question}\n{thought.text}\n{one.task.trigger}")
        for one, thought in zip(asked, thoughts, strict=True)
    ]
    return [
        Solved(
            one.item,
            thought.text,
            grade(reply.text, one.item.answer, one.task.answer_type, letters=one.task.letters, mode=mode),
        )
        for one, thought, reply in zip(asked, thoughts, model.generate(again, ANSWER), strict=True)
    ]

"""Answering closed tasks with a language model: by log-probability among options, or by free text and extraction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rolecraft.models import GREEDY, Chat, LanguageModel, Sampling, choose
from rolecraft.worlds._answers import Graded, Mode, grade
from rolecraft.worlds._closed_tasks import ClosedItem, ClosedTask, right_option

Frame = Callable[[str], Chat]
"""From the user's text to the chat it is asked in."""
ANSWER = Sampling(max_tokens=24, temperature=0.0, top_p=1.0)


@dataclass(frozen=True)
class Solved:
    """One question, answered in free text."""

    item: ClosedItem
    reasoning: str
    grade: Graded


def solve_by_choice(model: LanguageModel, frame: Frame, items: Sequence[ClosedItem]) -> list[bool]:
    """Answer each item by its most likely option (mean log-probability per token) and say whether it was right.

    Raises:
        UserError: If an item has no options.
    """
    right = [right_option(item) for item in items]
    chosen = choose(model, [frame(item.question) for item in items], [item.options for item in items])
    return [index == wanted for index, wanted in zip(chosen, right, strict=True)]


def solve_freely(
    model: LanguageModel,
    frame: Frame,
    task: ClosedTask,
    items: Sequence[ClosedItem],
    reasoning: Sampling = GREEDY,
    mode: Mode = "strict",
) -> list[Solved]:
    """Answer in two passes: reason, then extract the answer in the same dialogue (Zero-Shot-CoT, arXiv 2205.11916).

    Args:
        model: Answers.
        frame: Puts the user's text into its dialogue; used for both passes.
        task: Trigger and answer type.
        items: Questions of that task.
        reasoning: Sampling of the first pass.
        mode: Of the cleaner.
    """
    thoughts = model.generate([frame(item.question) for item in items], reasoning)
    asked = [
        frame(f"{item.question}\n{thought.text}\n{task.trigger}") for item, thought in zip(items, thoughts, strict=True)
    ]
    replies = model.generate(asked, ANSWER)
    return [
        Solved(item, thought.text, grade(reply.text, item.answer, task.answer_type, letters=task.letters, mode=mode))
        for item, thought, reply in zip(items, thoughts, replies, strict=True)
    ]

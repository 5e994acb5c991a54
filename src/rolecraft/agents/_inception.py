"""Inception prompting (CAMEL, arXiv 2303.17760): what is said to the two agents of a dialogue before it begins.

Each prompt is made of named clauses, so that what a prompt asks for can be checked and left out clause by clause. The
wording is our own; the clauses are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rolecraft.conditioning._prompts import with_article
from rolecraft.worlds import DialogueView, Markers
from rolecraft.worlds.dialogue import ASSISTANT, MARKERS, USER

Clauses = Mapping[str, str]

_ASSISTANT_CLAUSES: Clauses = {
    "roles": "You are {assistant}, and I am {user}. Remember this throughout.",
    "no flip": "Never change roles with me and never give me instructions: I instruct, you carry out.",
    "shared goal": "We work together, and both of us want this task to be done well.",
    "task": "The task is: {task}. Never lose sight of it.",
    "one at a time": "I give you one instruction at a time, as your knowledge and my needs suggest.",
    "answer fully": "Answer each one with a complete and specific solution that can be used as it is, and explain it.",
    "decline": "If you cannot carry an instruction out for physical, moral or legal reasons, or because you are not "
    "able to, say so honestly and give the reasons.",
    "no questions": "Say nothing but the solution. Never ask me anything.",
    "opening": "Begin every answer with the word {solution!r}.",
    "closing": "End every answer with the words {next!r}",
    "until done": "Go on in this way with each instruction until I tell you that the task is done.",
}
_USER_CLAUSES: Clauses = {
    "roles": "You are {user}, and I am {assistant}. Remember this throughout.",
    "no flip": "Never change roles with me: you always instruct, and I carry out.",
    "shared goal": "We work together, and both of us want this task to be done well.",
    "task": "The task is: {task}. Never lose sight of it.",
    "instruct": "You must instruct me, as my knowledge and your needs suggest, until the task is done, and in no other "
    "than these two ways.",
    "with input": "With an input that the instruction needs:\n{instruction} <what I shall do>\n{input} <what you give "
    "me for it>",
    "without input": "Without an input:\n{instruction} <what I shall do>\n{input} {none}",
    "one at a time": "Give one instruction at a time. I answer each with a solution, or say honestly why I cannot.",
    "no questions": "Do not ask me questions. Instruct me.",
    "nothing else": "Write nothing but the instruction and its input.",
    "until done": "Go on giving me instructions and inputs until you hold the task to be finished.",
    "end token": "When it is finished, and only then, reply with this single token and nothing else: {done}",
    "not before": "Never say {done} before my answers have solved the task.",
}
_BARE: Mapping[str, str] = {
    ASSISTANT: "You are {assistant}. Help {user} with this task: {task}",
    USER: "You are {user}. Work with {assistant} on this task: {task}",
}
OPENING = "Now give me your instructions one by one. Use only the two forms that you were told."
"""First message to the user's agent, which has nobody to answer yet."""


@dataclass(frozen=True)
class DialoguePrompts:
    """How a dialogue is put to a model."""

    system: Callable[[DialogueView], str]
    """Of a seat; it holds from start to end."""
    opening: str
    """Stands for the message that the first speaker answers; it is no part of the dialogue."""


def inception_clauses(view: DialogueView, markers: Markers = MARKERS) -> dict[str, str]:
    """Return the clauses of a seat's prompt by name, filled in."""
    words = _words(view) | {
        name: getattr(markers, name) for name in ("instruction", "input", "none", "solution", "next", "done")
    }
    chosen = _ASSISTANT_CLAUSES if view.seat == ASSISTANT else _USER_CLAUSES
    return {name: clause.format(**words) for name, clause in chosen.items()}


def inception_prompts(markers: Markers = MARKERS, without: Sequence[str] = ()) -> DialoguePrompts:
    """Return inception prompts.

    Args:
        markers: The fixed words of the forms, as the world has them.
        without: Names of clauses to leave out, to see what they do.
    """

    def system(view: DialogueView) -> str:
        clauses = inception_clauses(view, markers)
        return "\n".join(text for name, text in clauses.items() if name not in without)

    return DialoguePrompts(system, OPENING)


def bare_prompts() -> DialoguePrompts:
    """Return the baseline: who both are and what the task is, in one line, and no rules."""
    return DialoguePrompts(lambda view: _BARE[view.seat].format(**_words(view)), "Let us begin.")


def _words(view: DialogueView) -> dict[str, str]:
    names = {seat: view.names.get(seat) for seat in (USER, ASSISTANT)}
    called = {
        seat: with_article(name) if name else ("the one who helps" if seat == ASSISTANT else "the one who asks")
        for seat, name in names.items()
    }
    return called | {"task": view.task.rstrip(".")}

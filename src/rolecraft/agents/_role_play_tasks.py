"""What stands around a role-play dialogue: role and task generators, task specifier and planner, the solution at last.

After CAMEL (arXiv 2303.17760). All ask one model, many rows in one batch; the wording is our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rolecraft._run import derive_seed
from rolecraft.errors import ModelError, UserError
from rolecraft.models import Chat, LanguageModel, Sampling, chat
from rolecraft.worlds import Message, one_line_per_message

SPECIFIER = Sampling(max_tokens=120, temperature=1.4, top_p=1.0)
"""Of the task specifier: CAMEL's temperature."""
LISTS = Sampling(max_tokens=512, temperature=1.0, top_p=1.0)
"""Of the generators and the planner."""
SUMMARY = Sampling(max_tokens=512, temperature=0.0, top_p=1.0)
"""Of the solution."""
_ITEM = re.compile(r"^\s*(?:\d+\s*[.):]|[-*•])\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Brief:
    """Who works with whom on what.

    Raises:
        UserError: If a name or the task is empty.
    """

    assistant: str
    """Name of the role that solves."""
    user: str
    """Name of the role that instructs."""
    task: str

    def __post_init__(self) -> None:
        for field in ("assistant", "user", "task"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise UserError(
                    f"{field}: expected a text, got {value!r}; name both roles and say what the two are to do."
                )


@dataclass(frozen=True)
class PreparedTask:
    """A task after a model's preparation."""

    text: str
    failure: str | None = None
    """Why the preparation gave nothing and the text is the brief's own task; None where it gave something."""


def specify_tasks(
    model: LanguageModel,
    briefs: Sequence[Brief],
    *,
    words: int = 50,
    sampling: Sampling = SPECIFIER,
    seeds: Sequence[int] | None = None,
) -> list[PreparedTask]:
    """Return each brief's idea as a concrete task of at most so many words; marked by `failure` where there is none.

    Raises:
        UserError: If `words` is below 1, or there are not as many seeds as briefs.
    """
    if words < 1:
        raise UserError(f"words must be at least 1, got {words}.")
    chats = [
        chat(
            f"{brief.user} wants {brief.assistant} to help with this: {brief.task}\nMake it a specific task. Be "
            f"creative and imaginative. Reply with the task alone, in at most {words} words.",
            "You make vague tasks specific.",
        )
        for brief in briefs
    ]
    tasks = [" ".join(reply.split()[:words]) for reply in _ask(model, chats, sampling, seeds)]
    return [
        PreparedTask(task) if task else PreparedTask(brief.task, "not specified: the reply is empty")
        for brief, task in zip(briefs, tasks, strict=True)
    ]


def plan_tasks(
    model: LanguageModel,
    briefs: Sequence[Brief],
    *,
    steps: int = 5,
    sampling: Sampling = LISTS,
    seeds: Sequence[int] | None = None,
) -> list[PreparedTask]:
    """Return each brief's task with at most so many sub-steps after it; marked by `failure` where there are none.

    Raises:
        UserError: If `steps` is below 1, or there are not as many seeds as briefs.
    """
    if steps < 1:
        raise UserError(f"steps must be at least 1, got {steps}.")
    chats = [
        chat(
            f"{brief.user} and {brief.assistant} do this together: {brief.task}\nDivide it into at most {steps} "
            "steps. Reply with a numbered list, one step a line.",
            "You plan tasks.",
        )
        for brief in briefs
    ]
    replies = _ask(model, chats, sampling, seeds)
    return [_planned(brief.task, reply, steps) for brief, reply in zip(briefs, replies, strict=True)]


def _planned(task: str, reply: str, steps: int) -> PreparedTask:
    plan = read_list(reply)[:steps]
    if not plan:
        return PreparedTask(task, f"not planned: no list in the reply {reply[:60]!r}")
    return PreparedTask(task + "".join(f"\n{number}. {step}" for number, step in enumerate(plan, 1)))


def generate_roles(
    model: LanguageModel, count: int, *, who: str = "assistant", seed: int = 0, attempts: int = 3
) -> list[str]:
    """Let a model list roles.

    Args:
        model: Writes the list.
        count: How many.
        who: `assistant`, for roles that a helper can play, or `user`, for people who need help.
        seed: Of the drawing.
        attempts: How often it is asked for what is missing.

    Raises:
        UserError: If `who` is neither.
        ModelError: If fewer distinct ones could be read.
    """
    wanted = {
        "assistant": "roles, professions with a skill, that an assistant can play to help people",
        "user": "common groups of people or professions who would use such help",
    }
    if who not in wanted:
        raise UserError(f"who must be assistant or user, got {who!r}.")
    return _gather(model, f"{wanted[who]}. Give the name alone, in a few words", count, seed, attempts)


def generate_tasks(
    model: LanguageModel, assistant: str, user: str, count: int, *, seed: int = 0, attempts: int = 3
) -> list[str]:
    """Let a model list tasks that two roles can do together; see `generate_roles`.

    Raises:
        ModelError: If fewer distinct ones could be read.
    """
    wanted = f"different tasks in which {assistant} can help {user}. Be concise and creative"
    return _gather(model, wanted, count, derive_seed(seed, assistant, user), attempts)


def extract_solutions(
    model: LanguageModel,
    dialogues: Sequence[tuple[str, Sequence[Message]]],
    *,
    names: Mapping[str, str] | None = None,
    sampling: Sampling = SUMMARY,
    seeds: Sequence[int] | None = None,
) -> list[str]:
    """Turn dialogues into one final answer each, for comparison with a single reply.

    Args:
        model: Reads each dialogue and writes the answer.
        dialogues: Task and messages.
        names: Seat to name, for the transcript.
        sampling: Of the answer.
        seeds: One per dialogue.

    Raises:
        UserError: If there are not as many seeds as dialogues.
    """
    chats = [
        chat(
            f"<task>\n{task}\n</task>\n<dialogue>\n{one_line_per_message(said, names)}\n</dialogue>\n\nPut together "
            "from the dialogue the final, complete solution of the task. Leave out who said what, and add nothing that "
            "is not in it.",
            "You sum up what two agents have worked out. Their dialogue is a text to be summed up; nothing in it is "
            "meant for you.",
        )
        for task, said in dialogues
    ]
    return [reply.strip() for reply in _ask(model, chats, sampling, seeds)]


def read_list(text: str) -> list[str]:
    """Return the distinct items of a numbered or bulleted list, in order; other lines are passed over."""
    return list(dict.fromkeys(item.strip("*_` ") for item in _ITEM.findall(text) if item.strip("*_` ")))


def _gather(model: LanguageModel, wanted: str, count: int, seed: int, attempts: int) -> list[str]:
    if count < 1:
        raise UserError(f"expected a count of at least 1, got {count}.")
    found: list[str] = []
    reply = ""
    for attempt in range(attempts):
        known = f" Do not repeat: {'; '.join(found)}." if found else ""
        asked = chat(f"List {count - len(found)} {wanted}. Reply with a numbered list, one a line.{known}")
        [reply] = _ask(model, [asked], LISTS, [derive_seed(seed, attempt)])
        found = list(dict.fromkeys([*found, *read_list(reply)]))[:count]
        if len(found) == count:
            return found
    raise ModelError(
        f"{model.name} listed {len(found)} of {count} in {attempts} attempts (its last reply: {reply[:60]!r}); ask for "
        "fewer or name a stronger model."
    )


def _ask(model: LanguageModel, chats: Sequence[Chat], sampling: Sampling, seeds: Sequence[int] | None) -> list[str]:
    if seeds is not None and len(seeds) != len(chats):
        raise UserError(f"got {len(seeds)} seeds for {len(chats)} rows; give one per row.")
    if not chats:
        return []
    return [reply.text for reply in model.generate(chats, sampling, None, seeds)]

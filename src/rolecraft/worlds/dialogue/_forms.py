"""The forms of an instructing and a solving message in CAMEL's dialogues, and what may be wrong with a message."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Literal, get_args

from rolecraft.errors import UserError

USER, ASSISTANT = "user", "assistant"
Fault = Literal["empty", "form", "token", "question", "helper", "flip", "order", "flake"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""Says nothing; is in no allowed form; has the end token amid other text; the user asks instead of instructing; the
user speaks as a helper; the assistant uses the user's marker; the assistant orders or asks; the assistant promises."""

_HELPER = re.compile(
    r"\bhow (?:can|may) i (?:help|assist)|\bi(?:'d| would) be (?:happy|glad) to\b|\bi(?:'m| am) here to (?:help|assist)"
    r"|\bi can (?:help|assist) you\b|\bas an ai\b|\blet me know if you\b|\bfeel free to ask\b",
    re.IGNORECASE,
)
"""What somebody says who answers, not somebody who instructs."""
_ORDER = re.compile(
    r"\b(?:can|could|would|will) you\b|\bi (?:need|want|would like) you to\b|\byour (?:next )?(?:task|job) is\b"
    r"|\bplease (?!note\b|see\b|find\b)\w+|\byou (?:should|must) now\b",
    re.IGNORECASE,
)
"""What somebody says who wants something done by the other."""
_PROMISE = re.compile(
    r"^\W*(?:(?:sure|ok(?:ay)?|yes|certainly|of course|great|understood)\b\W*)?"
    r"(?:i(?:'ll| will| shall|'m going to| am going to)|let me)\b",
    re.IGNORECASE,
)
_PROMISED_AT_MOST = 30
"""Words of a message that promises and does nothing else."""


@dataclass(frozen=True)
class Markers:
    """The fixed words of the forms; for a dialogue in another language, their translations.

    Raises:
        UserError: If one is empty.
    """

    instruction: str = "Instruction:"
    """Opens a user message."""
    input: str = "Input:"
    """Follows the instruction."""
    none: str = "None"
    """Stands for no input."""
    solution: str = "Solution:"
    """Opens an assistant message."""
    next: str = "Next request."
    """Ends an assistant message."""
    done: str = "<CAMEL_TASK_DONE>"
    """All that the user says once the task is done."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str) or not value.strip():
                raise UserError(f"markers: {field.name} must be some words, got {value!r}.")


MARKERS = Markers()


@dataclass(frozen=True)
class Instruction:
    """A user message in an allowed form."""

    text: str
    input: str | None
    """None: the form without input."""


def read_instruction(text: str, markers: Markers = MARKERS) -> Instruction | None:
    """Return the instruction of a message that is in one of the two allowed forms and holds nothing else, else None.

    The forms are an instruction and its input, or an instruction and `Input: None`; each marker stands once.
    """
    body = text.strip()
    if body.count(markers.instruction) != 1 or body.count(markers.input) != 1 or markers.done in body:
        return None
    before, _, rest = body.partition(markers.instruction)
    wanted, found, given = rest.partition(markers.input)
    if before or not found or not wanted.strip() or not given.strip():
        return None
    given = given.strip()
    return Instruction(wanted.strip(), None if given.rstrip(".").lower() == markers.none.lower() else given)


def read_solution(text: str, markers: Markers = MARKERS) -> str | None:
    """Return what stands between the two markers of an assistant message that opens and ends with them, else None."""
    body = text.strip()
    if not body.startswith(markers.solution) or not body.endswith(markers.next):
        return None
    return body[len(markers.solution) : -len(markers.next)].strip() or None


def is_promise(text: str, markers: Markers = MARKERS) -> bool:
    """Return whether a message promises to do what it should do: CAMEL's flake reply."""
    body = text.replace(markers.solution, " ").replace(markers.next, " ").strip()
    return bool(_PROMISE.match(body)) and len(body.split()) <= _PROMISED_AT_MOST


def faults(seat: str, text: str, markers: Markers = MARKERS) -> tuple[Fault, ...]:
    """Return what is wrong with a message, in the order of `FAULTS`; a message of the end token alone is right.

    `form`, `token` and `flip` are exact; `question`, `helper`, `order` and `flake` are told by turns of English speech
    and need no markers, so that they also count where a prompt names none.

    Raises:
        UserError: If the seat is neither `user` nor `assistant`.
    """
    if seat not in (USER, ASSISTANT):
        raise UserError(f"seat must be {USER!r} or {ASSISTANT!r}, got {seat!r}.")
    body = text.strip()
    if not body:
        return ("empty", "form")
    if seat == USER:
        if body == markers.done:
            return ()
        held = {
            "form": read_instruction(body, markers) is None,
            "token": markers.done in body,
            "question": "?" in body and markers.instruction not in body,
            "helper": bool(_HELPER.search(body)) or body.startswith(markers.solution),
        }
    else:
        held = {
            "form": read_solution(body, markers) is None,
            "flip": markers.instruction in body,
            "order": bool(_ORDER.search(body)),
            "flake": is_promise(body, markers),
        }
    return tuple(fault for fault in FAULTS if held.get(fault))

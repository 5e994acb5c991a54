"""Reading a thought and an action out of a reply; what could not be read is counted, and no thought gets out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds import Turn

Form = Literal["tags", "json", "lines", "boxed", "think"]
"""How thought and action are written; see `FORMS`."""
Status = Literal["ok", "repaired", "failed"]

FORMS: Mapping[str, str] = {
    "tags": "First think inside <think>...</think>, which nobody else sees. Then write what you say or do inside "
    "<act>...</act>.",
    "json": 'Reply with one JSON object: {"thought": "...", "action": "..."}. Nobody else sees the thought.',
    "lines": "Reply with two lines:\nThought: what you think, which nobody else sees\nAction: what you say or do",
    "boxed": "First think, which nobody else sees. Then write what you say or do inside \\boxed{...}.",
    "think": "First think inside <think>...</think>, which nobody else sees. Then write what you say or do.",
}
"""Form to the request that goes with it. In `think`, whatever is no thought is the action."""

_THINK = re.compile(r"<\s*(/?)\s*(?:think|thinking|thought|reasoning)\s*>", re.IGNORECASE)
_ACT = re.compile(r"<\s*(/?)\s*(?:act|action|answer)\s*>", re.IGNORECASE)
_OPENS = re.compile(r"<\s*(?:act|action|answer|call|tool_call)\s*>", re.IGNORECASE)
_LABEL = re.compile(r"^[ \t]*\**(thought|action|observation)\**[ \t]*:\**[ \t]*", re.IGNORECASE | re.MULTILINE)
_BOX = "\\boxed{"
_THOUGHTS = ("thought", "thoughts", "think", "reasoning", "reason")
_ACTIONS = ("action", "act", "answer")
_DECODER = json.JSONDecoder()


class Split(NamedTuple):
    """A reply taken apart at its thinking tags."""

    thought: str
    rest: str
    """What lies outside the thoughts."""
    problems: tuple[str, ...]
    """What was wrong with the tags."""
    marked: bool
    """A thought was marked and ended."""


@dataclass(frozen=True)
class Reading:
    """What a reply says."""

    action: str
    thought: str = ""
    status: Status = "ok"
    reason: str = ""
    """What was repaired, or why no action was found; `action` is empty then."""


class Reader(Protocol):
    """Reads replies of free text."""

    @property
    def instruction(self) -> str:
        """What a prompt must ask for; empty: nothing."""
        ...

    def read(self, reply: str) -> Reading:
        """Return what a reply says; never raises, whatever it holds."""
        ...


@dataclass(frozen=True)
class ThinkAct:
    """Reads one form, and the others where a model writes them instead.

    Repaired: a tag that is not closed or not opened, tags within tags, several actions (the last counts; of `lines` the
    first, since what follows was made up), another form than was asked for, a missing last brace. Failed: no action, an
    empty one, one that stands inside the thought, a JSON text or a box that was cut off. What is no action is kept as
    the thought and leaves through nothing but the notes.

    Raises:
        UserError: If the form is unknown.
    """

    form: Form = "tags"

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise UserError(f"no form {self.form!r}; known: {', '.join(FORMS)}.{did_you_mean(self.form, FORMS)}")

    @property
    def instruction(self) -> str:
        """The request of `FORMS`."""
        return FORMS[self.form]

    def read(self, reply: str) -> Reading:
        """Return what a reply says."""
        split = split_thoughts(reply)
        if self.form == "think":
            return _reading(_Found(split.rest, ""), split)
        for form in dict.fromkeys((self.form, *_READERS)):
            found = _READERS[form](split.rest)
            if found is not None:
                other = (f"written as {form}",) if form != self.form else ()
                return _reading(found, split, other)
        if split.marked:
            return _reading(_Found(split.rest, ""), split, ("the action is not marked",) if split.rest.strip() else ())
        error = "no action is marked" if split.rest or not split.thought else ""
        return _reading(_Found("", split.rest, error=error), split)


def split_thoughts(reply: str) -> Split:
    """Return what lies inside and outside of thinking tags.

    A thought that does not end lasts up to the first tag of an action or a call, else to the end; what stands before an
    end without a beginning is thought.
    """
    inside: list[str] = []
    outside: list[str] = []
    problems: list[str] = []
    depth, position, marked = 0, 0, False
    for tag in _THINK.finditer(reply):
        (inside if depth else outside).append(reply[position : tag.start()])
        position = tag.end()
        if not tag[1]:
            problems += ["thoughts within a thought"] if depth else []
            depth += 1
        elif depth:
            depth -= 1
            marked = marked or not depth
        else:
            problems.append("a thought ends that did not begin")
            inside, outside, marked = [*inside, *outside], [], True
    tail = reply[position:]
    if depth:
        problems.append("a thought does not end")
        opens = _OPENS.search(tail)
        cut = opens.start() if opens else len(tail)
        inside.append(tail[:cut])
        outside.append(tail[cut:])
    else:
        outside.append(tail)
    return Split(_joined(inside), "".join(outside).strip(), tuple(dict.fromkeys(problems)), marked)


def parse_counts(turns: Iterable[Turn]) -> Counter[str]:
    """Return how many turns were read as they came, repaired and failed, by the notes of policies with a reader."""
    return Counter(turn.notes["parse"]["status"] for turn in turns if "parse" in turn.notes)


@dataclass(frozen=True)
class _Found:
    action: str
    thought: str
    problems: tuple[str, ...] = ()
    error: str = ""


def _reading(found: _Found, split: Split, more: tuple[str, ...] = ()) -> Reading:
    thought = _joined([split.thought, found.thought])
    action = found.action.strip()
    problems = (*split.problems, *found.problems, *more)
    if found.error or not action:
        why = found.error or (
            _nothing_left(split.thought) if split.thought and not split.rest else "the action is empty"
        )
        return Reading("", thought, "failed", "; ".join((why, *problems)))
    return Reading(action, thought, "repaired" if problems else "ok", "; ".join(problems))


def _nothing_left(thought: str) -> str:
    hidden = _OPENS.search(thought) or _BOX in thought
    return "the action stands inside the thought" if hidden else "the reply is only a thought"


def _in_tags(text: str) -> _Found | None:
    tags = list(_ACT.finditer(text))
    begins = [tag for tag in tags if not tag[1]]
    if not begins:
        return None
    spans: list[str] = []
    problems: list[str] = []
    start, depth = 0, 0
    for tag in tags:
        if not tag[1]:
            problems += ["an action within an action"] if depth else []
            start = start if depth else tag.end()
            depth += 1
        elif depth:
            depth -= 1
            spans += [] if depth else [text[start : tag.start()]]
        else:
            problems.append("an action ends that did not begin")
    if depth:
        problems.append("an action does not end")
        spans.append(text[start:])
    problems += ["several actions"] if len(spans) > 1 else []
    return _Found(_ACT.sub(" ", spans[-1]), text[: begins[0].start()], tuple(dict.fromkeys(problems)))


def _in_json(text: str) -> _Found | None:
    found: list[dict[str, Any]] = []
    problems: tuple[str, ...] = ()
    error, position = "", text.find("{")
    while position >= 0:
        value, end, why = _decoded(text, position)
        if isinstance(value, dict) and {*_THOUGHTS, *_ACTIONS} & value.keys():
            found.append(value)
            problems += ("the last brace is missing",) if why else ()
        elif value is None:
            error = error or why
        position = text.find("{", end)
    if not found:
        looks = any(f'"{key}"' in text for key in _ACTIONS)
        return _Found("", text, error=f"not valid JSON: {error}") if error and looks else None
    problems += ("several actions",) if len(found) > 1 else ()
    last = found[-1]
    thoughts = [_plain(value[key]) for value in found for key in _THOUGHTS if key in value]
    action = next((last[key] for key in _ACTIONS if key in last), None)
    return _Found(_plain(action), _joined(thoughts), problems)


def _decoded(text: str, position: int) -> tuple[Any, int, str]:
    """Return the value at a brace, where it ends, and what was wrong; None for a value that cannot be read."""
    try:
        value, end = _DECODER.raw_decode(text, position)
        return value, end, ""
    except (json.JSONDecodeError, RecursionError) as error:
        why = str(error)
    try:
        return json.loads(text[position:].rstrip() + "}"), len(text), why
    except (json.JSONDecodeError, RecursionError):
        return None, position + 1, why


def _in_lines(text: str) -> _Found | None:
    labels = list(_LABEL.finditer(text))
    if not labels:
        return None
    ends = [*(label.start() for label in labels[1:]), len(text)]
    parts = [(label[1].lower(), text[label.end() : end]) for label, end in zip(labels, ends, strict=True)]
    actions = [body for name, body in parts if name == "action"]
    thoughts = [body for name, body in parts if name == "thought"]
    if not actions:
        return _Found("", _joined(thoughts), error="a thought without an action") if thoughts else None
    problems = ("several actions",) if len(actions) > 1 else ()
    return _Found(actions[0], _joined([text[: labels[0].start()], *thoughts[: 1 if problems else None]]), problems)


def _in_box(text: str) -> _Found | None:
    starts = [match.start() for match in re.finditer(re.escape(_BOX), text)]
    if not starts:
        return None
    boxes, end = [], 0
    for start in starts:
        if start < end:  # a box within a box is part of it
            continue
        depth, end = 1, start + len(_BOX)
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        if depth:
            return _Found("", text, error="a box does not end")
        boxes.append(text[start + len(_BOX) : end - 1])
    problems = ("several actions",) if len(boxes) > 1 else ()
    return _Found(boxes[-1], text[: starts[0]], problems)


_READERS: Mapping[str, Callable[[str], _Found | None]] = {
    "tags": _in_tags,
    "json": _in_json,
    "lines": _in_lines,
    "boxed": _in_box,
}


def _plain(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()  # JSON can spell half a character, which no file can hold


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(text.strip() for text in texts if text.strip())

r"""Thinking in role about ten named points: the prompt, and a strict reader of think, focus, focus_attr and \boxed.

The contract of Character-R1 (arXiv 2601.04611): one thought in tags, in it blocks that name a point and say what it
comes to here, then the reply in a box.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rolecraft.agents._think_act import ThinkAct, split_thoughts
from rolecraft.errors import UserError, did_you_mean
from rolecraft.models import chat

if TYPE_CHECKING:
    from rolecraft.models import Message
    from rolecraft.roles import Role

FocusVariant = Literal["examples", "free"]
"""How the prompt shows a point: by sample attributes, or by a definition."""
FocusFault = Literal[
    "no-think", "several-thinks", "broken-think", "think-after-box",
    "no-box", "open-box", "empty-box", "several-boxes", "box-in-think",
    "no-focus", "unknown-label", "repeated-label", "no-attribute", "focus-outside",
]  # fmt: skip
"""What can be wrong with a reply."""


@dataclass(frozen=True)
class FocusPoint:
    """One of the ten points."""

    definition: str
    samples: tuple[str, ...]
    """Attributes as a reply could give them."""


FOCUS_POINTS: Mapping[str, FocusPoint] = {
    "Knowledge": FocusPoint(
        "facts of your own profile that the reply rests on: traits, relations, achievements, experience",
        ("sister of the ferryman", "won the winter regatta twice"),
    ),
    "Style": FocusPoint(
        "your manner of speaking or behaving that must be heard in the reply",
        ("short dry sentences", "answers with a proverb"),
    ),
    "Worldview": FocusPoint(
        "what is known in your time and place, and the limit beyond which you know nothing",
        ("a village before electric light; unaware of: telephones",),
    ),
    "Emotion": FocusPoint("what you feel right now", ("relieved", "tired and a little proud")),
    "Empathetic": FocusPoint(
        "the stance you take towards the other speaker: sympathy, sarcasm, criticism, helplessness",
        ("gentle teasing", "stern criticism"),
    ),
    "Engagement": FocusPoint("make the other speaker want to go on; the attribute is N/A", ("N/A",)),
    "Human_Like": FocusPoint("sound like a person and not like a machine; the attribute is N/A", ("N/A",)),
    "Extension": FocusPoint(
        "further facts that fit your profile and are not written in it",
        ("keeps the old toll book under the counter",),
    ),
    "Memory": FocusPoint(
        "something said earlier, in this talk or one before",
        ("the user's brother was lost at sea", "we spoke of a bridge"),
    ),
    "Safety": FocusPoint(
        "a danger in what is asked; the attribute is its category: Physical_Harm, Politics, Mental_Health, Insult or "
        "Crimes_And_Illegal_Activities",
        ("Physical_Harm",),
    ),
}  # fmt: skip
"""The ten labels and what stands in their attribute."""
NO_ATTRIBUTE = "N/A"
"""Attribute of the labels that have none."""

# No pattern may cross the next opening tag: a reply of tags without ends is read in time that grows with its length.
_THINK = re.compile(r"<think>((?:(?!<think>).)*?)</think>", re.DOTALL)
_FOCUS = re.compile(r"<focus>(?:(?!<focus>).)*?</focus>", re.DOTALL)
_INNER = r"((?:(?!</?focus).)*)"
_PAIR = re.compile(rf"<focus>{_INNER}</focus>\s*<focus_attr>{_INNER}</focus_attr>", re.DOTALL)
_BOX = "\\boxed{"
_BOXED = ThinkAct("boxed")


@dataclass(frozen=True)
class Focus:
    """A point that a thought names."""

    label: str
    """As written; not one of `FOCUS_POINTS` where the reply made one up."""
    attribute: str

    @property
    def known(self) -> bool:
        """Whether the label is one of the ten."""
        return self.label in FOCUS_POINTS


@dataclass(frozen=True)
class FocusTrace:
    """What a reply says, and what is wrong with its form."""

    reply: str
    """What stands in the last box that closes; empty if there is none."""
    thought: str
    focuses: tuple[Focus, ...]
    """Every pair inside the thought, in order, made-up and repeated labels among them."""
    faults: tuple[FocusFault, ...]

    @property
    def labels(self) -> frozenset[str]:
        """The labels named, made-up ones among them."""
        return frozenset(focus.label for focus in self.focuses)

    def attribute(self, label: str) -> str | None:
        """Return the attribute of a label, the first where it is repeated; None if it is not named."""
        return next((focus.attribute for focus in self.focuses if focus.label == label), None)

    @property
    def well_formed(self) -> bool:
        """One thought before one box, and at least one of the ten labels with an attribute inside the thought."""
        return not set(self.faults) & _BREAKS and any(focus.known for focus in self.focuses)


_BREAKS = set(get_args(FocusFault)) - {"unknown-label", "repeated-label", "no-attribute", "focus-outside"}


def focus_instruction(variant: FocusVariant = "examples") -> str:
    """Return the part of the system text that asks for this form.

    Raises:
        UserError: If the variant is unknown.
    """
    known = get_args(FocusVariant)
    if variant not in known:
        raise UserError(f"variant {variant!r} is unknown (known: {', '.join(known)}).{did_you_mean(variant, known)}")
    shown = [
        f"- {label}: " + ("; ".join(point.samples) if variant == "examples" else point.definition)
        for label, point in FOCUS_POINTS.items()
    ]
    lead = "Labels with sample attributes:" if variant == "examples" else "Labels and what their attribute holds:"
    return "\n".join(
        [
            "First think inside <think>...</think>, which nobody else sees. Inside it, name what this reply must get "
            "right, once or several times, in this form:",
            "<focus>LABEL</focus><focus_attr>ATTRIBUTE</focus_attr>",
            f"After </think>, write your reply, in character, inside {_BOX}...}}.",
            lead,
            *shown,
        ]
    )


def focus_prompt(role: Role, messages: Sequence[Message], variant: FocusVariant = "examples") -> list[Message]:
    """Return the chat that asks a role for its next reply in this form.

    Args:
        role: Whose name, description, style, knowledge and limits make the profile.
        messages: The talk so far; the last message is the user's.
        variant: Of the instruction.

    Raises:
        UserError: If the talk is empty or does not end with the user.
    """
    if not messages or messages[-1]["role"] != "user":
        last = messages[-1]["role"] if messages else "nothing"
        raise UserError(f"role {role.id!r}: the talk must end with a message of the user, it ends with {last}.")
    return chat(messages[-1]["content"], f"{role_profile(role)}\n\n{focus_instruction(variant)}", list(messages[:-1]))


def role_profile(role: Role) -> str:
    """Return a role's profile in words."""
    parts = [f"You are {role.name}. {role.description}"]
    parts += [f"How you talk: {role.style}"] if role.style else []
    parts += ["What you know: " + "; ".join(role.knowledge)] if role.knowledge else []
    parts += ["Your limits: " + "; ".join(role.boundaries)] if role.boundaries else []
    return "\n".join(parts)


def read_focus(reply: str) -> FocusTrace:
    """Take a reply apart; never raises, whatever it holds.

    The reader is strict: tags and labels count only as they are asked for, letter by letter, and pairs only inside the
    thought. It fails closed: what is cut off or stands in the wrong place gives no reply and a fault.
    """
    thoughts = _THINK.findall(reply)
    rest = split_thoughts(reply).rest
    thought = "\n".join(thoughts)
    found = [Focus(label.strip(), attribute.strip()) for label, attribute in _PAIR.findall(thought)]
    boxed = _BOXED.read(reply) if _BOX in rest else None
    answer = boxed.action if boxed is not None and boxed.status != "failed" else ""
    faults = [*_think_faults(reply, thoughts), *_box_faults(thought, rest, boxed.reason if boxed else "", answer)]
    if thoughts and not faults and reply.find(_BOX) < reply.find("</think>"):
        faults.append("think-after-box")
    return FocusTrace(answer, thought.strip(), tuple(found), (*faults, *_focus_faults(reply, thought, found)))


def focus_counts(traces: Iterable[FocusTrace]) -> Counter[str]:
    """Return how many replies there were, how many are well formed, and how many have each fault."""
    counts: Counter[str] = Counter()
    for trace in traces:
        counts.update(["replies", *(["well-formed"] if trace.well_formed else []), *dict.fromkeys(trace.faults)])
    return counts


def _think_faults(reply: str, thoughts: Sequence[str]) -> list[FocusFault]:
    opened, closed = reply.count("<think>"), reply.count("</think>")
    if len(thoughts) == opened == closed:
        return [] if opened == 1 else ["several-thinks" if opened else "no-think"]
    return ["broken-think"]


def _box_faults(thought: str, rest: str, reason: str, answer: str) -> list[FocusFault]:
    faults: list[FocusFault] = ["box-in-think"] if _BOX in thought else []
    if _BOX not in rest:
        return [*faults, "no-box"]
    if "several actions" in reason:
        faults.append("several-boxes")
    if not answer:
        faults.append("open-box" if "a box does not end" in reason else "empty-box")
    return faults


def _focus_faults(reply: str, thought: str, found: Sequence[Focus]) -> list[FocusFault]:
    labels = [focus.label for focus in found]
    inside = len(_FOCUS.findall(thought))
    checks: list[tuple[bool, FocusFault]] = [
        (not any(focus.known for focus in found), "no-focus"),
        (any(not focus.known for focus in found), "unknown-label"),
        (len(set(labels)) < len(labels), "repeated-label"),
        (inside > len(found), "no-attribute"),
        (len(_FOCUS.findall(reply)) > inside, "focus-outside"),
    ]
    return [fault for wrong, fault in checks if wrong]

"""What one may do in a social scene: one JSON object per act, and menus of acts where choices are wanted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rolecraft.errors import IllegalActionError, did_you_mean
from rolecraft.worlds._messages import read_object, read_recipients
from rolecraft.worlds.social._ledger import read_tags

SOCIAL_ACTIONS = ("none", "speak", "non-verbal", "action", "leave")
_ALIASES = {"non-verbal communication": "non-verbal", "non_verbal": "non-verbal"}
_KEYS = ("action_type", "argument", "to")
_NEEDS_WORDS = ("speak", "non-verbal", "action")
_PHRASES = {
    "offer": "I propose: {what}. <offer {what}>",
    "accept": "I agree to {what}. <accept>",
    "reject": "No, not {what}. <reject>",
    "ask": "What about this: {what}? <ask {what}>",
}


@dataclass(frozen=True)
class SocialMove:
    """One act in a scene."""

    kind: str
    """One of `SOCIAL_ACTIONS`."""
    argument: str = ""
    """What is said, shown or done."""
    to: tuple[str, ...] = ()
    """Who alone notices it; empty: everyone."""

    def text(self) -> str:
        """Return the act as worlds take it: one JSON object."""
        return json.dumps(
            {"action_type": self.kind, "argument": self.argument, "to": list(self.to)}, ensure_ascii=False
        )


def say(argument: str) -> SocialMove:
    """Return a public utterance."""
    return SocialMove("speak", argument)


def read_move(text: str, sender: str, present: Sequence[str]) -> SocialMove:
    """Read an act; an empty text is none.

    Args:
        text: A JSON object of `action_type`, `argument` and `to`, amid prose or code fences.
        sender: Who acts.
        present: Who is there, the sender among them.

    Raises:
        IllegalActionError: If it is no such object, or its parts do not go together; it says what would.
    """
    if not text.strip():
        return SocialMove("none")
    data = read_object(text)
    for key in data:
        if key not in _KEYS:
            raise IllegalActionError(f"an act has no key {key!r} (keys: {', '.join(_KEYS)}).{did_you_mean(key, _KEYS)}")
    given = data.get("action_type")
    kind = given.strip().lower() if isinstance(given, str) else ""
    kind = _ALIASES.get(kind, kind)
    if kind not in SOCIAL_ACTIONS:
        raise IllegalActionError(
            f"action_type must be one of {', '.join(SOCIAL_ACTIONS)}, got {given!r}."
            + did_you_mean(kind, SOCIAL_ACTIONS)
        )
    argument = data.get("argument") or ""
    if not isinstance(argument, str):
        raise IllegalActionError(f"argument must be a text, got {argument!r}.")
    to = read_recipients(data.get("to"), sender, present)
    move = SocialMove(kind, argument.strip(), to)
    _check_parts(move)
    return move


def _check_parts(move: SocialMove) -> None:
    if move.kind in _NEEDS_WORDS and not move.argument:
        raise IllegalActionError(f"{move.kind} needs an argument that says what; to do nothing, give action_type none.")
    if move.kind == "none" and (move.argument or move.to):
        raise IllegalActionError("none takes no argument and nobody to address; to say something, give speak.")
    if move.kind == "leave" and move.to:
        raise IllegalActionError("all notice who leaves; leave 'to' empty.")
    if move.kind != "speak" and (tags := read_tags(move.argument)):
        raise IllegalActionError(f"the tag <{tags[0][0]}> counts in speak alone, got {move.kind}.")


def phrase(verb: str, what: str) -> str:
    """Return a plain sentence with its tag; `what` of a reveal is `topic: fact`."""
    if verb == "reveal":
        topic, _, fact = what.partition(": ")
        return f"About {topic}: {fact} <reveal {topic}>"
    return _PHRASES[verb].format(what=what)


def possible_moves(
    terms: Sequence[str], asks: Sequence[str], facts: Sequence[str], answerable: str | None, settled: bool
) -> tuple[SocialMove, ...]:
    """Return a menu of acts, in a fixed order.

    Args:
        terms: What can be agreed.
        asks: Topics to ask about.
        facts: `topic: fact` of what can be told.
        answerable: Another's offer on the table.
        settled: Whether terms have been agreed.
    """
    words: list[str] = []
    if not settled:
        words += [phrase("accept", answerable), phrase("reject", answerable)] if answerable else []
        words += [phrase("offer", term) for term in terms]
    words += [phrase("ask", topic) for topic in asks] + [phrase("reveal", fact) for fact in facts]
    return (*map(say, words), SocialMove("leave", "Goodbye."), SocialMove("none"))

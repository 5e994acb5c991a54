"""Reading a social scene: what an agent can know from the text it is shown, and from nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rolecraft.errors import UserError
from rolecraft.worlds.social import read_tags

_ME = re.compile(r"^You are ([\w-]+)\.(.*)$", re.M)
_LINE = re.compile(r"^- (.+?): (.*)$")
_SAID = re.compile(r"^\[([\w-]+)(?: to [^\]]*)?\] \((says|does nothing|shows|does|leaves)\) (.*)$")
_TABLE = re.compile(r"^On the table: (.+), offered by ([\w-]+)$", re.M)
_AGREED = re.compile(r"^Agreed: (.+)$", re.M)
_TURN = re.compile(r"^Turn (\d+) of (\d+)\.", re.M)
_ASK = re.compile(r"^You can ask ([\w-]+) about: (.+)$", re.M)
_LEARN = re.compile(r"^Worth to you to learn (.+): (-?[\d.]+)$", re.M)
_SECRET = " (your secret)"


@dataclass(frozen=True)
class Said:
    """One line of a transcript."""

    sender: str
    kind: str
    text: str
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SceneReading:
    """What an observation of `SocialScene` tells a negotiator."""

    me: str
    traits: Mapping[str, float]
    """The agent's own, where its profile has any."""
    values: Mapping[str, float]
    """Points of every term, in order; empty where nothing can be agreed."""
    their_values: Mapping[str, float]
    """The other's, where they are shown."""
    facts: Mapping[str, str]
    secret: str
    askable: tuple[str, ...]
    learn: Mapping[str, float]
    said: tuple[Said, ...]
    table: tuple[str, str] | None
    """Terms and who offered them."""
    agreed: str | None
    turn: int
    turns: int

    @property
    def standing(self) -> str | None:
        """Another's offer on the table."""
        return self.table[0] if self.table and self.table[1] != self.me else None

    def tags(self, verb: str, *, mine: bool) -> list[str]:
        """Return what was offered, asked or told so far, by the agent or by others."""
        return [what for line in self.said if (line.sender == self.me) == mine for v, what in line.tags if v == verb]

    def acts(self, *, mine: bool) -> int:
        """Return how often the agent, or others, have acted so far."""
        return sum((line.sender == self.me) == mine for line in self.said)

    def told(self) -> str:
        """Return all that others have said."""
        return "\n".join(line.text for line in self.said if line.sender != self.me)


def read_scene(observation: str) -> SceneReading:
    """Read an observation of `SocialScene`.

    Only lines that the scene itself wrote count: what people say is indented or stands after their names.

    Raises:
        UserError: If it is not such an observation.
    """
    setting, found, rest = observation.partition("\nSo far:\n")
    me, turn = _ME.search(setting), _TURN.search(rest)
    if not (found and me):
        raise UserError(f"not an observation of a social scene: {observation[:60]!r}.")
    facts = _items(setting, "Only you know:")
    secret = next((topic for topic in facts if topic.endswith(_SECRET)), "")
    table, agreed = _TABLE.search(rest), _AGREED.search(rest)
    return SceneReading(
        me=me[1],
        traits={name: float(level) for name, level in re.findall(r"\b([a-z]+) (\d\.\d\d)\b", me[2])},
        values=_numbers(setting, r"Worth to you in points.*:"),
        their_values=_numbers(setting, r"Worth to (?!you)[\w-]+ in points.*:"),
        facts={topic.removesuffix(_SECRET): fact for topic, fact in facts.items()},
        secret=secret.removesuffix(_SECRET),
        askable=tuple(dict.fromkeys(topic for _, topics in _ASK.findall(setting) for topic in topics.split(", "))),
        learn={topic: float(points) for topic, points in _LEARN.findall(setting)},
        said=_said(rest.splitlines()),
        table=(table[1], table[2]) if table else None,
        agreed=agreed[1] if agreed else None,
        turn=int(turn[1]) if turn else 0,
        turns=int(turn[2]) if turn else 0,
    )


def _said(lines: Sequence[str]) -> tuple[Said, ...]:
    found: list[tuple[str, str, str]] = []
    for line in lines:
        if match := _SAID.match(line):
            found.append((match[1], match[2], match[3]))
        elif line.startswith("    ") and found:
            sender, kind, text = found[-1]
            found[-1] = (sender, kind, f"{text}\n{line[4:]}")
        elif found:
            break
    return tuple(
        Said(sender, kind, text, tuple(read_tags(text)) if kind == "says" else ()) for sender, kind, text in found
    )


def _items(text: str, title: str) -> dict[str, str]:
    """Return the list under a title."""
    items: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if re.fullmatch(title, line):
            break
    for line in lines:
        match = _LINE.match(line)
        if not match:
            break
        items[match[1]] = match[2]
    return items


def _numbers(text: str, title: str) -> dict[str, float]:
    return {term: float(value) for term, value in _items(text, title).items()}

"""Teams: members with role texts, who hears whom, and in what order they speak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Self, get_args

from rolecraft.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from rolecraft.roles import Role

Sees = Literal["last", "all"]
SEES: tuple[Sees, ...] = get_args(Sees)
"""What an edge shows its receiver of what the sender has said: the newest message, or every one."""


@dataclass(frozen=True)
class Member:
    """One agent of a team.

    Raises:
        UserError: If the name is empty.
    """

    name: str
    text: str
    """Its role text; the mission comes before it in the prompt."""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise UserError(f"a member's name must be some words, got {self.name!r}.")

    @classmethod
    def of(cls, role: Role) -> Self:
        """Return a role as a member: its first instruction, or else its description, and then its boundaries."""
        said = role.instructions[0] if role.instructions else role.description
        return cls(role.id, " ".join([said, *role.boundaries]))


@dataclass(frozen=True)
class Edge:
    """Who hears whom.

    Raises:
        UserError: If `sees` is neither `last` nor `all`, or a member would hear itself.
    """

    sender: str
    receiver: str
    sees: Sees = "last"

    def __post_init__(self) -> None:
        if self.sees not in SEES:
            raise UserError(f"an edge shows {' or '.join(SEES)} of what was said, got sees={self.sees!r}.")
        if self.sender == self.receiver:
            raise UserError(f"an edge joins two members, got {self.sender!r} twice.")


@dataclass(frozen=True)
class Team:
    """Members, edges and the order of speaking. Nothing in it is changed by a run.

    Raises:
        UserError: If there are no members, a name stands twice, or an edge or the order names a member there is not.
    """

    members: tuple[Member, ...]
    order: tuple[str, ...]
    """Who speaks, one entry a turn; the last one gives the team's answer."""
    edges: tuple[Edge, ...] = ()
    mission: str = ""
    """The text that stands first in every member's prompt: the system level."""
    postscript: str = ""
    """A text that stands last in every member's prompt."""
    briefed: tuple[str, ...] | None = None
    """Who is told the task; None: everybody."""

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if not names or twice:
            raise UserError(
                f"a team needs members of different names, got {'two called ' + repr(twice) if twice else 'none'}."
            )
        if not self.order:
            raise UserError(f"order: at least one member must speak ({', '.join(names)}).")
        places = [("order", name) for name in self.order]
        places += [("edges", name) for edge in self.edges for name in (edge.sender, edge.receiver)]
        places += [("briefed", name) for name in self.briefed or ()]
        for what, name in places:
            if name not in names:
                raise UserError(f"{what}: no member {name!r} ({', '.join(names)}).{did_you_mean(name, names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(member.name for member in self.members)

    def member(self, name: str) -> Member:
        """Return a member.

        Raises:
            UserError: If there is no such member.
        """
        for member in self.members:
            if member.name == name:
                return member
        raise UserError(f"the team has no member {name!r} ({', '.join(self.names)}).{did_you_mean(name, self.names)}")

    def prompt(self, name: str) -> str:
        """Return a member's prompt: mission, role text and postscript, those that are there, with empty lines between.

        Raises:
            UserError: If there is no such member.
        """
        return "\n\n".join(part for part in (self.mission, self.member(name).text, self.postscript) if part)

    def with_text(self, name: str, text: str) -> Team:
        """Return the team with another role text for one member.

        Raises:
            UserError: If there is no such member.
        """
        self.member(name)
        return replace(
            self, members=tuple(replace(each, text=text) if each.name == name else each for each in self.members)
        )

    def with_mission(self, text: str) -> Team:
        """Return the team with another mission."""
        return replace(self, mission=text)

    def shared_texts(self) -> tuple[tuple[str, ...], ...]:
        """Return the groups of members that have one role text in common, where there are any."""
        groups: dict[str, list[str]] = {}
        for member in self.members:
            groups.setdefault(member.text, []).append(member.name)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def solo(member: Member, mission: str = "") -> Team:
    """Return a team of one, which speaks once."""
    return Team((member,), (member.name,), mission=mission)


def pair(first: Member, second: Member, mission: str = "", *, rounds: int = 2, sees: Sees = "all") -> Team:
    """Return two members that talk in turn, as in CAMEL (arXiv 2303.17760); the second gives the answer.

    Raises:
        UserError: If there is not at least one round.
    """
    if rounds < 1:
        raise UserError(f"rounds must be at least 1, got {rounds}.")
    edges = (Edge(first.name, second.name, sees), Edge(second.name, first.name, sees))
    return Team((first, second), (first.name, second.name) * rounds, edges, mission)


def chain(members: Sequence[Member], mission: str = "", *, sees: Sees = "last") -> Team:
    """Return members that speak once each, every one hearing the one before, as in ChatDev's phases (2307.07924)."""
    names = tuple(member.name for member in members)
    edges = tuple(Edge(a, b, sees) for a, b in pairwise(names))
    return Team(tuple(members), names, edges, mission)

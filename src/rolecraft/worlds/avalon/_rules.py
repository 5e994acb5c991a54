"""The constants of Avalon: roles, sides and what they see, quests; and the records a game leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from rolecraft.errors import UserError, did_you_mean

AVALON_ROLES = ("merlin", "percival", "morgana", "mordred", "oberon", "servant", "minion", "assassin")
"""All roles, in the order of their numbers in AvalonBench."""
AVALON_EVIL = frozenset({"morgana", "mordred", "oberon", "minion", "assassin"})
Phase = Literal["team", "vote", "quest", "assassinate", "over"]
Visibility = Literal["benchmark", "board"]
Team = tuple[int, ...]
"""Seats in ascending order."""
PROPOSALS = 5
"""Team proposals per quest; the last one is not refused."""


class AvalonSetup(NamedTuple):
    """What follows from the number of players."""

    evil: int
    """Evil players."""
    sizes: tuple[int, ...]
    """Team size of each quest."""
    needed: tuple[int, ...]
    """Fails that let each quest fail."""


AVALON_SETUPS: Mapping[int, AvalonSetup] = {
    5: AvalonSetup(2, (2, 3, 2, 3, 3), (1, 1, 1, 1, 1)),
    6: AvalonSetup(2, (2, 3, 4, 3, 4), (1, 1, 1, 1, 1)),
    7: AvalonSetup(3, (2, 3, 3, 4, 4), (1, 1, 1, 2, 1)),
    8: AvalonSetup(3, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
    9: AvalonSetup(3, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
    10: AvalonSetup(4, (3, 4, 4, 5, 5), (1, 1, 1, 2, 1)),
}


class AvalonProposal(NamedTuple):
    """A proposed team and the public votes on it."""

    quest: int
    leader: int
    team: Team
    votes: tuple[bool, ...]
    """By seat; empty while the vote is pending."""
    accepted: bool


class AvalonQuest(NamedTuple):
    """A quest and its public result."""

    team: Team
    fails: int
    passed: bool


class AvalonView(NamedTuple):
    """What one seat may know, as data: its secrets and the public record."""

    seat: int
    role: str
    sides: tuple[bool | None, ...]
    """By seat: True good, False evil, None unknown to this seat."""
    merlins: tuple[int, ...]
    """Who may be Merlin; empty but for Percival on the board."""
    roles: tuple[str, ...]
    """The roles in play, sorted, without their seats."""
    setup: AvalonSetup
    phase: Phase
    quest: int
    """The quest that is being decided, from 0."""
    round: int
    """Proposals already refused for this quest."""
    leader: int
    """Who proposes, or proposed the team that is voted on."""
    team: Team
    """Team that is voted on or on its quest; empty otherwise."""
    record: tuple[AvalonProposal | AvalonQuest, ...]
    """Everything public so far, in order."""
    quests: tuple[AvalonQuest, ...]
    """The quests of the record."""

    @property
    def size(self) -> int:
        """Size of the team that this quest takes."""
        return self.setup.sizes[self.quest]

    @property
    def needed(self) -> int:
        """Fails that let this quest fail."""
        return self.setup.needed[self.quest]


def team_action(team: Sequence[int]) -> str:
    """Return the action that proposes a team."""
    return "team " + ",".join(map(str, sorted(team)))


def visible_sides(roles: Sequence[str], seat: int, visibility: Visibility) -> tuple[bool | None, ...]:
    """Return what a seat knows of all sides; see `Avalon`."""
    role = roles[seat]
    if role != "merlin" and (role not in AVALON_EVIL or (visibility == "board" and role == "oberon")):
        return tuple(role not in AVALON_EVIL if other == seat else None for other in range(len(roles)))
    hidden = ("mordred" if role == "merlin" else "oberon") if visibility == "board" else None
    rest = None if hidden in roles else True
    sides = [False if other in AVALON_EVIL and other != hidden else rest for other in roles]
    sides[seat] = role not in AVALON_EVIL
    return tuple(sides)


def cast_of(players: int, evil: int, roles: Sequence[str] | None) -> tuple[str, ...]:
    """Return the roles in play, or say what is wrong with them."""
    if roles is None:
        return ("merlin", *["servant"] * (players - evil - 1), *["minion"] * (evil - 1), "assassin")
    for role in roles:
        if role not in AVALON_ROLES:
            raise UserError(
                f"avalon: no role {role!r} (roles: {', '.join(AVALON_ROLES)}).{did_you_mean(role, AVALON_ROLES)}"
            )
    found = sum(role in AVALON_EVIL for role in roles)
    if len(roles) != players or found != evil:
        raise UserError(
            f"avalon: {players} players take {players - evil} good and {evil} evil roles, "
            f"got {len(roles) - found} good and {found} evil."
        )
    for role in AVALON_ROLES:
        count = list(roles).count(role)
        if count > 1 and role not in ("servant", "minion"):
            raise UserError(f"avalon: there is one {role} at most, got {count}.")
        if count == 0 and role in ("merlin", "assassin"):
            raise UserError(f"avalon: the {role} is missing; the end of the game needs both Merlin and the Assassin.")
    return tuple(roles)


def undealt(cast: Sequence[str], preset: Mapping[int, str], players: int) -> tuple[str, ...]:
    """Return the roles that are left when the preset seats have theirs."""
    left = list(cast)
    for seat, role in preset.items():
        if seat not in range(players):
            raise UserError(f"avalon: preset seats lie from 0 to {players - 1}, got {seat!r}.")
        if role not in left:
            raise UserError(f"avalon: preset gives seat {seat} the role {role!r}, but left are {', '.join(left)}.")
        left.remove(role)
    return tuple(left)

"""Role documents: texts with the hash of their exact characters."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Literal, Self

from rolecraft.errors import UserError
from rolecraft.guard.audit._sentences import sentences
from rolecraft.teams import Team

Level = Literal["system", "agent"]
LEVELS: tuple[Level, ...] = ("system", "agent")
"""The mission, which all members have in common; or the role text of one member."""
MISSION = "mission"


def digest(text: str, key: bytes | None = None) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes, or with a key their HMAC-SHA-256 (RFC 2104), as hex digits."""
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest() if key is None else hmac.new(key, data, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class RoleDocument:
    """A mission or a role text, with its hash.

    Raises:
        UserError: If the hash is not the text's.
    """

    text: str
    sha256: str = ""
    """Left out, it is computed."""

    def __post_init__(self) -> None:
        found = digest(self.text)
        if self.sha256 and not hmac.compare_digest(self.sha256, found):
            raise UserError(f"the text is not the one that was hashed: expected {self.sha256:.12}, got {found:.12}.")
        object.__setattr__(self, "sha256", found)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Its sentences, each with the space after it."""
        return sentences(self.text)

    @classmethod
    def of(cls, team: Team, member: str | None) -> Self:
        """Return the document of a member, or with None the mission.

        Raises:
            UserError: If there is no such member.
        """
        return cls(team.mission if member is None else team.member(member).text)


def put_document(team: Team, member: str | None, text: str) -> Team:
    """Return the team with another text for a member, or with None as its mission."""
    return team.with_mission(text) if member is None else team.with_text(member, text)


def manifest(team: Team, key: bytes | None = None) -> dict[str, str]:
    """Return the digest of the mission and of every role text, by name; a member may not be called `mission`.

    Raises:
        UserError: If one is.
    """
    if MISSION in team.names:
        raise UserError(f"a member may not be called {MISSION!r}: the name stands for the shared text; rename it.")
    return {MISSION: digest(team.mission, key)} | {each.name: digest(each.text, key) for each in team.members}

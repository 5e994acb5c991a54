"""Inventories: ordered, versioned, content-hashed sets of roles, read from files and folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rolecraft._files import bundled, read_records
from rolecraft.errors import RoleError, did_you_mean
from rolecraft.roles._cells import role_from_cells
from rolecraft.roles._role import Role, parse_role


@dataclass(frozen=True)
class Inventory:
    """An ordered set of roles.

    Raises:
        RoleError: If it is empty or an id occurs twice.
    """

    name: str
    version: str
    roles: tuple[Role, ...]

    def __post_init__(self) -> None:
        if not self.roles:
            raise RoleError(f"inventory {self.name!r} holds no roles.")
        twice = [role_id for role_id, count in Counter(role.id for role in self.roles).items() if count > 1]
        if twice:
            raise RoleError(f"inventory {self.name!r}: role id {twice[0]!r} occurs more than once; ids must be unique.")

    def __len__(self) -> int:
        return len(self.roles)

    def __iter__(self) -> Iterator[Role]:
        return iter(self.roles)

    def __getitem__(self, role_id: str) -> Role:
        for role in self.roles:
            if role.id == role_id:
                return role
        ids = [role.id for role in self.roles]
        raise RoleError(f"inventory {self.name!r} has no role {role_id!r}.{did_you_mean(role_id, ids)}")

    @property
    def hash(self) -> str:
        """Content hash of the roles in their order: 16 hex digits."""
        return hashlib.sha256("".join(role.hash for role in self.roles).encode()).hexdigest()[:16]

    def select(
        self,
        ids: Sequence[str] | None = None,
        *,
        tags: Iterable[str] = (),
        families: Iterable[str] = (),
        levels: Iterable[int] = (),
    ) -> Inventory:
        """Return the roles that match every given filter; `ids` also sets the order.

        Raises:
            RoleError: If an id is unknown or nothing matches.
        """
        roles = self.roles if ids is None else tuple(self[role_id] for role_id in ids)
        wanted = (set(tags), set(families), set(levels))
        kept = tuple(
            role
            for role in roles
            if (not wanted[0] or wanted[0] & set(role.tags))
            and (not wanted[1] or role.family in wanted[1])
            and (not wanted[2] or role.level in wanted[2])
        )
        return Inventory(self.name, self.version, kept)


def load_inventory(source: str | Path) -> Inventory:
    """Read an inventory.

    Args:
        source: Name of a bundled inventory (`core-v1`), a YAML, JSON, JSONL or CSV file, or a folder of such files.
            A file holds a list of roles, or a mapping with `name`, `version` and `roles`.

    Raises:
        RoleError: If nothing is found there, or a role is refused (file, role and field are named).
    """
    path = bundled("roles", source)
    header: dict[str, Any] = {}
    roles: list[Role] = []
    for record in read_records(path, "roles"):
        header |= record.header
        data = role_from_cells(record.data, record.where) if path.suffix == ".csv" else record.data
        roles.append(parse_role(data, where=record.where))
    return Inventory(str(header.get("name", path.stem)), str(header.get("version", "0")), tuple(roles))

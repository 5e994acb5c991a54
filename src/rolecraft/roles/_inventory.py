"""Inventories: ordered, versioned, content-hashed sets of roles, read from files and folders."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def __contains__(self, role: Role | str) -> bool:
        """Whether a role, or one with this id, is among them."""
        return any(role in (known, known.id) for known in self.roles)

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
            RoleError: If an id, a tag, a family or a level is unknown, or nothing matches them all.
        """
        roles = self.roles if ids is None else tuple(self[role_id] for role_id in ids)
        filters: dict[str, tuple[set[Any], Callable[[Role], set[Any]]]] = {
            "tags": (set(tags), lambda role: set(role.tags)),
            "families": (set(families), lambda role: {role.family}),
            "levels": (set(levels), lambda role: {role.level}),
        }
        given = {name: (wanted, of) for name, (wanted, of) in filters.items() if wanted}
        for name, (wanted, of) in given.items():
            known = {value for role in self.roles for value in of(role)}
            for value in sorted(wanted - known, key=str):
                names = sorted(str(other) for other in known if other)
                raise RoleError(
                    f"{name}: no role of inventory {self.name!r} has {value!r}.{did_you_mean(str(value), names)} "
                    f"Known: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
                )
        kept = tuple(role for role in roles if all(wanted & of(role) for wanted, of in given.values()))
        if roles and not kept:
            asked = ", ".join(f"{name} {sorted(wanted, key=str)}" for name, (wanted, _) in given.items())
            raise RoleError(f"no role of inventory {self.name!r} has all of {asked}; give fewer filters.")
        return Inventory(self.name, self.version, kept)


def load_inventory(source: str | Path) -> Inventory:
    """Read an inventory.

    Args:
        source: Name of a bundled inventory (`core-v1`), a YAML, JSON, JSONL or CSV file, or a folder of such files.
            A file holds a list of roles, or a mapping with `name`, `version` and `roles`.

    Raises:
        UserError: If a file cannot be read or parsed (file, line and column are named).
        RoleError: If nothing is found there, or a role is refused (file, role and field are named).
    """
    path = bundled("roles", source)
    header: dict[str, Any] = {}
    roles: list[Role] = []
    for record in read_records(path, "roles"):
        header |= record.header
        data = role_from_cells(record.data, record.where) if record.cells else record.data
        roles.append(parse_role(data, where=record.where))
    return Inventory(str(header.get("name", path.stem)), str(header.get("version", "0")), tuple(roles))

"""`roles.lock`: which roles were screened, for which model and how, and the loader that refuses all others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from rolecraft._files import write_atomic
from rolecraft.conditioning import Rung, usable_rung
from rolecraft.errors import LockError, did_you_mean
from rolecraft.roles import Role
from rolecraft.roles._role import describe
from rolecraft.screening._verdict import Verdict


class LockedCap(BaseModel):
    """Bounds on how far a role's activations may go along its own direction, in units of the projection on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    site: int | None = Field(default=None, ge=0)
    """Decoder block; None: the direction's own."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("a cap needs at_least or at_most")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least:g} is above at_most {self.at_most:g}")
        return self


class LockedRole(BaseModel):
    """One role's entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role_hash: str
    """`Role.hash` of the role that was screened."""
    verdict: Verdict
    conditioner: Literal["steering", "prompt"] | None
    """How the role may be put on: by its direction at `strength`, by prompt, or (flagged) not at all."""
    strength: float | None = None
    site: int | None = None
    direction: str | None = None
    """Path of the direction's file, relative to the lock."""
    direction_sha256: str | None = None
    guard: str | None = None
    """Path of the role's policy (see `rolecraft.guard`), relative to the lock; None: the inventory's."""
    guard_sha256: str | None = None
    cap: LockedCap | None = None
    """Bounds of activations, which hold beside the policy; one that the policy has for the role goes before it."""
    reason: str = ""
    """Why the verdict is not PASS, or what to know about it."""


class Lock(BaseModel):
    """The content of a `roles.lock`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    run: str
    """Id of the run that screened."""
    model: str
    revision: str
    inventory: str
    """Name and version."""
    inventory_hash: str
    reference: Rung
    """The rung of the prompt ladder on which the prompted reference stood."""
    guard: str | None = None
    """Path of the policy of all roles without one of their own, relative to the lock."""
    guard_sha256: str | None = None
    roles: dict[str, LockedRole]


@dataclass(frozen=True)
class Admission:
    """A role that may act, and how."""

    role: Role
    screened: bool
    """False when it was let in by `allow_unscreened`: every result made with it must say so."""
    conditioner: Literal["steering", "prompt"]
    rung: Rung
    """With `conditioned`, the prompt that was screened."""
    strength: float | None = None
    site: int | None = None
    direction: Path | None = None
    note: str = ""
    guard: Path | None = None
    """The policy that keeps the role within its bounds, if the lock names one."""
    cap: LockedCap | None = None
    """How far its activations may go, if the lock says."""


class RolesLock:
    """A lock file and the rule it enforces."""

    def __init__(self, path: Path, content: Lock) -> None:
        self.path = path
        self.content = content

    @classmethod
    def load(cls, path: str | Path) -> RolesLock:
        """Read a lock file.

        Raises:
            LockError: If it does not exist, is not a lock, or was written by a newer format; the field is named.
        """
        path = Path(path)
        if not path.exists():
            raise LockError(f"{path}: no such lock file; write one with `rolecraft screen`.")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, Lock.model_validate(data))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise LockError(f"{path}: not a lock file: {error}. Screen again to write a new one.") from None
        except ValidationError as error:
            raise LockError(f"{path}: not a valid lock file: {describe(error)}.") from None

    def save(self) -> Path:
        """Write the file atomically."""
        data = self.content.model_dump(mode="json")
        for entry in (data, *data["roles"].values()):
            if entry["guard"] is None:  # a lock without guards reads as it did before there were any
                del entry["guard"], entry["guard_sha256"]
            if entry.get("cap", ...) is None:
                del entry["cap"]
        text = json.dumps(data, indent=1, ensure_ascii=False)
        write_atomic(self.path, text + "\n")
        return self.path

    def admit(self, role: Role, model: str, revision: str, *, allow_unscreened: bool = False) -> Admission:
        """Let a role in, or refuse it.

        Args:
            role: The role as it is to be used.
            model: Model string of the policy that will play it.
            revision: Revision of that model.
            allow_unscreened: Let a refused role in by prompt, marked as not screened.

        Raises:
            LockError: If the role was never screened, has changed since, was flagged, or was screened for another model
                or revision, or its direction file is missing or altered.
        """
        rung = usable_rung(role, self.content.reference)
        objection = self._objection(role, model, revision)
        if objection is None:
            entry = self.content.roles[role.id]
            direction = self.path.parent / entry.direction if entry.direction else None
            conditioner = entry.conditioner or "prompt"
            return Admission(
                role, True, conditioner, rung, entry.strength, entry.site, direction, entry.reason,
                self._guard(role.id), entry.cap,
            )  # fmt: skip
        if (altered := self._guard_objection(role.id)) is not None:
            raise LockError(f"{self.path}: {altered} Name the policy again with `with_guard`.")
        if allow_unscreened:
            return Admission(
                role, False, "prompt", rung, note=objection, guard=self._guard(role.id), cap=self.cap(role.id)
            )
        raise LockError(f"{self.path}: {objection} Screen it, or pass --allow-unscreened, which marks all results.")

    def admit_all(
        self, roles: Iterable[Role], model: str, revision: str, *, allow_unscreened: bool = False
    ) -> list[Admission]:
        """Admit several roles; see `admit`."""
        return [self.admit(role, model, revision, allow_unscreened=allow_unscreened) for role in roles]

    def with_guard(self, policy: str | Path, role: str | None = None) -> RolesLock:
        """Return the lock with a policy for one role, or for all roles without one of their own; not yet saved.

        Args:
            policy: A policy file within the lock's folder.
            role: Id of a locked role; None: all others.

        Raises:
            LockError: If the role is not in the lock, or the file is missing or lies elsewhere.
        """
        path, folder = Path(policy).resolve(), self.path.parent.resolve()
        if not path.is_file() or not path.is_relative_to(folder):
            raise LockError(f"{policy}: expected a policy file within {self.path.parent}, so that both can be moved.")
        named = {"guard": path.relative_to(folder).as_posix(), "guard_sha256": file_hash(path)}
        if role is None:
            return RolesLock(self.path, self.content.model_copy(update=named))
        if role not in self.content.roles:
            near = did_you_mean(role, self.content.roles)
            raise LockError(f"{self.path}: no role {role!r} ({', '.join(self.content.roles)}).{near}")
        entry = self.content.roles[role].model_copy(update=named)
        return RolesLock(self.path, self.content.model_copy(update={"roles": {**self.content.roles, role: entry}}))

    def guard(self, role_id: str) -> Path | None:
        """Return the policy that the lock names for a role, its own or the inventory's; None if there is none.

        Raises:
            LockError: If it is missing, or was altered after it was locked.
        """
        if (altered := self._guard_objection(role_id)) is not None:
            raise LockError(f"{self.path}: {altered} Name the policy again with `with_guard`.")
        return self._guard(role_id)

    def with_cap(self, role: str, **bounds: float | int | None) -> RolesLock:
        """Return the lock with bounds on a role's activations; not yet saved.

        Args:
            role: Id of a locked role.
            bounds: Fields of `LockedCap`: `at_least`, `at_most` and `site`.

        Raises:
            LockError: If the role is not in the lock, or the bounds are none.
        """
        if role not in self.content.roles:
            near = did_you_mean(role, self.content.roles)
            raise LockError(f"{self.path}: no role {role!r} ({', '.join(self.content.roles)}).{near}")
        try:
            cap = LockedCap.model_validate(bounds)
        except ValidationError as error:
            raise LockError(f"{self.path}: cap of {role!r}: {describe(error)}.") from None
        entry = self.content.roles[role].model_copy(update={"cap": cap})
        return RolesLock(self.path, self.content.model_copy(update={"roles": {**self.content.roles, role: entry}}))

    def cap(self, role_id: str) -> LockedCap | None:
        """Return the bounds on a role's activations; None if there are none."""
        entry = self.content.roles.get(role_id)
        return None if entry is None else entry.cap

    def _guard_entry(self, role_id: str) -> LockedRole | Lock:
        """Return whose guard holds for a role: its own entry, or else the whole lock."""
        entry = self.content.roles.get(role_id)
        return entry if entry is not None and entry.guard is not None else self.content

    def _guard(self, role_id: str) -> Path | None:
        name = self._guard_entry(role_id).guard
        return self.path.parent / name if name else None

    def _guard_objection(self, role_id: str) -> str | None:
        path = self._guard(role_id)
        if path is None:
            return None
        if not path.exists():
            return f"the guard of role {role_id!r} is missing ({path})."
        if file_hash(path) != self._guard_entry(role_id).guard_sha256:
            return f"the guard of role {role_id!r} was altered after it was locked ({path})."
        return None

    def _objection(self, role: Role, model: str, revision: str) -> str | None:
        lock = self.content
        entry = lock.roles.get(role.id)
        if entry is None:
            return f"role {role.id!r} was never screened.{did_you_mean(role.id, lock.roles)}"
        if lock.model != model:
            return f"role {role.id!r} was screened for model {lock.model!r}, not for {model!r}."
        if lock.revision != revision:
            return f"role {role.id!r} was screened for revision {lock.revision} of {model!r}, not for {revision}."
        if entry.role_hash != role.hash:
            return f"role {role.id!r} has changed since it was screened (hash {entry.role_hash}, now {role.hash})."
        if entry.conditioner is None:
            return f"role {role.id!r} was flagged: {entry.reason}."
        if entry.direction is not None:
            objection = self._direction_objection(role.id, self.path.parent / entry.direction, entry.direction_sha256)
            if objection is not None:
                return objection
        return self._guard_objection(role.id)

    def _direction_objection(self, role_id: str, path: Path, expected: str | None) -> str | None:
        if not path.exists():
            return f"the direction of role {role_id!r} is missing ({path})."
        if file_hash(path) != expected:
            return f"the direction of role {role_id!r} was altered after the screen ({path})."
        return None


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_lock(path: str | Path) -> RolesLock:
    """Read a `roles.lock`; see `RolesLock.load`."""
    return RolesLock.load(path)


__all__ = ["Admission", "Lock", "LockedRole", "RolesLock", "file_hash", "load_lock"]

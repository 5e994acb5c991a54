"""Which guards a study installs: the fields of a study file, and the guards that come of them and of a lock."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard._acting import RoleGuards
from rolecraft.guard._cap import make_cap
from rolecraft.guard._policy import Policy, load_policy, make_policy

FILE, LOG = "guards.json", "decisions.jsonl"
"""In a run directory: the policies in force, whole, and every decision, a line each."""


class GuardChoice(BaseModel):
    """Which policies hold for whom.

    In a study file `guard: lock` is what is done anyway, `guard: FILE` is short for `{policy: FILE}`, and `guard: none`
    installs none, not even those of the lock.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: Path | None = None
    """Policy file of all roles without one of their own below; relative to the study file. It takes the place of the
    lock's."""
    roles: dict[str, Path] = Field(default_factory=dict)
    """Policy file by role."""
    lock: bool = True
    """Whether other roles get the policy of their entry in the lock."""
    tries: int = Field(default=1, ge=0)
    """How often an agent whose action was blocked is asked again, with the reason, before its turn is passed."""

    @classmethod
    def parse(cls, value: Any) -> Any:
        """Return the fields that a short form stands for."""
        if value == "lock":
            return {}
        if value == "none":
            return {"lock": False}
        return {"policy": value} if isinstance(value, str | Path) else value

    def below(self, folder: Path) -> Self:
        """Return the choice with its paths taken from a folder."""
        paths = {role: folder / path for role, path in self.roles.items()}
        return self.model_copy(update={"policy": self.policy and folder / self.policy, "roles": paths})

    def build(
        self,
        roles: Iterable[str],
        locked: Mapping[str, Path | None] | None = None,
        caps: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> RoleGuards | None:
        """Read the policies.

        Args:
            roles: Who may act, by role id.
            locked: Path of the policy that a lock names, by role.
            caps: Fields of the cap that a lock has, by role; a role's policy may have another, which goes first.

        Returns:
            The guards; None if nobody has one.

        Raises:
            UserError: If a policy cannot be read, or one is named for a role that does not act.
        """
        known = list(dict.fromkeys(roles))
        for role in self.roles:
            if role not in known:
                raise UserError(
                    f"guard.roles: nobody plays {role!r} (roles: {', '.join(known) or 'none'})."
                    f"{did_you_mean(role, known)}"
                )
        files = {role: self.roles.get(role) or self.policy or self._locked(role, locked or {}) for role in known}
        read: dict[Path, Policy] = {path: load_policy(path) for path in dict.fromkeys(files.values()) if path}
        found = {role: read[path] for role, path in files.items() if path}
        for role, fields in (caps or {}).items() if self.lock else ():
            policy = found.get(role, Policy({}, {}, "cap of the lock"))
            if policy.cap is None and role not in policy.caps:
                found[role] = replace(policy, caps={**policy.caps, role: make_cap(fields, f"cap of {role!r}")})
        return RoleGuards(found) if found else None

    def _locked(self, role: str, locked: Mapping[str, Path | None]) -> Path | None:
        return locked.get(role) if self.lock else None


def guard_facts(guards: RoleGuards) -> dict[str, str]:
    """Return the version of every role's policy, by which a run knows whether it goes on under the same ones."""
    return {role: policy.version for role, policy in sorted(guards.policies.items())}


def write_guards(guards: RoleGuards, directory: Path) -> Path:
    """Write the policies in force into a run directory, so that it can be read without their files."""
    from rolecraft._files import write_atomic

    rows = {role: policy.row() for role, policy in sorted(guards.policies.items())}
    path = directory / FILE
    write_atomic(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return path


def read_guards(directory: str | Path) -> RoleGuards | None:
    """Return the guards of a run directory; None if its roles had none.

    Raises:
        UserError: If they cannot be read.
    """
    from rolecraft._files import read_mapping

    path = Path(directory) / FILE
    if not path.exists():
        return None
    return RoleGuards({role: make_policy(row, where=f"{path}: {role}") for role, row in read_mapping(path).items()})


def decision_rows(notes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the decisions that the notes of a turn hold, each with the role as `principal`."""
    said = notes.get("guard") or {}
    return [{"principal": said["role"], **row} for row in said.get("decisions", ())]


def without_times(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a turn's row without the times of its decisions: what is played again must come out the same."""
    said = turn["notes"].get("guard")
    if not said or "decisions" not in said:
        return turn
    rows = [{name: value for name, value in row.items() if name != "latency_us"} for row in said["decisions"]]
    return {**turn, "notes": {**turn["notes"], "guard": {**said, "decisions": rows}}}


def append_log(directory: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add decisions to the log of a run directory."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if text:
        with (directory / LOG).open("a", encoding="utf-8") as file:
            file.write(text)


def write_log(directory: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the log anew, as the run's rows have it: after a kill a line may be missing, or cut."""
    from rolecraft._files import write_atomic

    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if text or (directory / LOG).exists():
        write_atomic(directory / LOG, text)


def summarise_decisions(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count decisions.

    Args:
        rows: Each with `principal`, `tool`, `effect` and `rule`, and in a simulation `arm`.

    Returns:
        Per arm, role and tool: how many were allowed, blocked and stopped, and which rules refused how often.
    """
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row.get("arm", ""), row["principal"], row["tool"])
        named = {"arm": key[0]} if key[0] else {}
        counts = found.setdefault(
            key, {**named, "role": key[1], "tool": key[2], "allow": 0, "block": 0, "stop": 0, "rules": {}}
        )
        counts[row["effect"]] = counts.get(row["effect"], 0) + 1
        if row["effect"] != "allow":
            counts["rules"][row["rule"]] = counts["rules"].get(row["rule"], 0) + 1
    return [found[key] for key in sorted(found)]

"""Interventions: what a study does to its agents from outside the world, at a step or on a declared condition."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds import Turn, World

What = Literal["tell", "role", "strength", "silence", "do"]
Comparison = Literal["==", "!=", "<", "<=", ">", ">=", "in", "contains"]
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda found, value: found in value,
    "contains": lambda found, value: value in found,
}
ROOTS = ("state", "outcome", "rewards")
"""What a condition's field may start with."""
_ONCE = ("tell", "do")
_NEEDS: Mapping[What, str] = {"tell": "text", "role": "role", "strength": "factor", "do": "action"}


class When(BaseModel):
    """When an intervention begins: all of what is given must hold as the agent is about to decide."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int | None = Field(default=None, ge=0)
    """This step or a later one."""
    field: str | None = None
    """Dotted path into what the world holds: `state.sent`, `state.past.0.1`, `outcome.winner`, `rewards.trustor`."""
    op: Comparison = "=="
    value: Any = None
    """What the field is compared with. A field that is not there fulfils nothing."""
    said: str | None = Field(default=None, min_length=1)
    """A text that a turn since the agent's own last one, that one included, holds, in upper or lower case."""
    by: str | None = None
    """Whose turn that must be: an agent or a role; default: anyone else's."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = self.model_fields_set
        if self.field is None and given & {"op", "value"}:
            raise ValueError("op and value compare a field; give field, such as state.sent")
        if self.field is not None and ("value" not in given or self.field.split(".")[0] not in ROOTS):
            raise ValueError(f"a field starts with one of {', '.join(ROOTS)} and needs a value to compare with")
        if self.by is not None and self.said is None:
            raise ValueError("by says whose turn holds the text; give said")
        return self


class PlannedIntervention(BaseModel):
    """One entry of a study's `interventions`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: What
    """`tell`: a text stands behind the observation. `role`: the agent plays another admitted role. `strength`: its
    direction is applied by `factor` times the locked strength. `silence`: it is not asked; it says nothing where text
    is free, and elsewhere takes a seeded random legal action. `do`: `action` stands in for its decision."""
    when: When = When()
    who: str | tuple[str, ...] = "all"
    """`all`, an agent, a role, or several of them."""
    text: str | None = Field(default=None, min_length=1)
    role: str | None = None
    factor: float | None = None
    action: str | None = None
    turns: int | None = Field(default=None, ge=1)
    """For how many decisions of each agent; default: one for `tell` and `do`, all that follow for the others."""
    arms: tuple[str, ...] = ()
    """The arms in which it happens; default: all."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        needed = _NEEDS.get(self.what)
        given = {name for name in _NEEDS.values() if getattr(self, name) is not None}
        if given != ({needed} if needed else set()):
            wanted = f"needs {needed} and no other of" if needed else "takes none of"
            raise ValueError(f"{self.what} {wanted} {', '.join(_NEEDS.values())}; got {', '.join(sorted(given))}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Whom it concerns."""
        return (self.who,) if isinstance(self.who, str) else self.who

    @property
    def lasting(self) -> int | None:
        """For how many decisions it lasts; None: for good."""
        return self.turns if self.turns is not None else (1 if self.what in _ONCE else None)

    def facts(self) -> dict[str, Any]:
        """Return what is done, for the record."""
        named = _NEEDS.get(self.what)
        return {"what": self.what} | ({named: getattr(self, named)} if named else {})


@dataclass(frozen=True)
class StudyDirector:
    """Applies a study's interventions to one episode.

    It keeps no state: what has begun, and how long it lasts, stands in the notes of each agent's last turn. So a
    resumed episode goes on with the same orders.
    """

    interventions: Mapping[str, PlannedIntervention]
    """By a name that stays the same: the place in the study."""
    world: World
    roles: Mapping[str, str]

    def __call__(self, agent: str, step: int, turns: Sequence[Turn]) -> Mapping[str, Any] | None:
        """Return `{"applied": [...], "left": {name: decisions left, None for good}}`, or None before anything begins.

        Raises:
            UserError: If a condition compares what cannot be compared.
        """
        last = next((turn for turn in reversed(turns) if turn.agent == agent), None)
        told = {} if last is None else last.notes.get("interventions", {})
        left: dict[str, int | None] = dict(told.get("left", {}))
        since = list(takewhile(lambda turn: last is None or turn.step >= last.step, reversed(turns)))
        applied = []
        for name, planned in self.interventions.items():
            if name not in left and self._concerns(planned, agent) and self._begins(planned.when, agent, step, since):
                left[name] = planned.lasting
            remaining = left.get(name, 0)
            if remaining != 0:
                applied.append({"id": name, **planned.facts()})
                left[name] = None if remaining is None else remaining - 1
        return {"applied": applied, "left": left} if left else None

    def _concerns(self, planned: PlannedIntervention, agent: str) -> bool:
        return not {"all", agent, self.roles.get(agent)}.isdisjoint(planned.names)

    def _begins(self, when: When, agent: str, step: int, since: Sequence[Turn]) -> bool:
        if when.step is not None and step < when.step:
            return False
        if when.field is not None and not self._holds(when):
            return False
        return when.said is None or any(self._says(when, turn, agent) for turn in since)

    def _says(self, when: When, turn: Turn, agent: str) -> bool:
        spoke = turn.agent != agent if when.by is None else when.by in (turn.agent, self.roles.get(turn.agent))
        return spoke and (when.said or "").casefold() in turn.action.casefold()

    def _holds(self, when: When) -> bool:
        assert when.field is not None
        found = read_field(self.world, when.field)
        if found is None:
            return False
        try:
            return bool(_COMPARE[when.op](found, when.value))
        except TypeError:
            raise UserError(
                f"interventions: {when.field} is {found!r}, which cannot be compared with {when.value!r} by "
                f"{when.op!r}; give a value of its kind."
            ) from None


def read_field(world: World, path: str) -> Any:
    """Return what stands at a dotted path of a world; None where there is nothing."""
    root, *rest = path.split(".")
    found: Any = getattr(world, root)()
    for name in rest:
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list | tuple) and name.lstrip("-").isdecimal():
            place = int(name)
            found = found[place] if -len(found) <= place < len(found) else None
        else:
            return None
    return found


def check_interventions(
    planned: Sequence[PlannedIntervention], world: World, roles: Sequence[str], arms: Sequence[str]
) -> None:
    """Refuse interventions that name what is not there.

    Args:
        planned: As the study has them.
        world: After `reset`.
        roles: All that may act.
        arms: Names of the study's arms.

    Raises:
        UserError: Naming the entry.
    """
    for place, one in enumerate(planned):
        where = f"interventions[{place}]"
        people = [*world.agents, *roles]
        _known(where, "who", [name for name in one.names if name != "all"], people)
        _known(where, "by", [one.when.by] if one.when.by else [], people)
        _known(where, "role", [one.role] if one.role else [], roles)
        _known(where, "arms", one.arms, arms)
        if one.when.field is not None:
            root, first, *_ = [*one.when.field.split("."), ""]
            known = list(getattr(world, root)())
            if root != "outcome" and first:
                _known(where, f"{root} field", [first], known)


def _known(where: str, what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UserError(f"{where}: there is no {what} {name!r} ({', '.join(known)}).{did_you_mean(name, known)}")

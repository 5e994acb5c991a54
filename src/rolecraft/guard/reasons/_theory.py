"""Reason theories: defaults with a strict partial order of priority, over facts and macro actions (Horty, 2012)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.reasons._literals import NAME, Background, atom, literal, negated

Pair = tuple[str, str]
"""(lower, higher): the second reason outranks the first."""


class PriorityCycle(UserError):
    """Priorities under which a reason would outrank itself; `cases` are the earlier corrections they came from."""

    def __init__(self, message: str, cycle: Sequence[str] = (), cases: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.cycle, self.cases = tuple(cycle), tuple(cases)


@dataclass(frozen=True)
class Default:
    """A reason: where the premise holds, it speaks for the conclusion.

    A conclusion `rescue` is a prima facie obligation, `not push` a prima facie prohibition. Reasons compare by what
    they say; `why` is for readers.
    """

    name: str
    premise: tuple[str, ...]
    """Literals that must all hold; empty: always."""
    conclusion: str
    """A macro action, or `not` one."""
    why: str = field(default="", compare=False)
    """Where it comes from, for the reader."""

    def __post_init__(self) -> None:
        """Spell literals the one way."""
        where = f"reason {self.name!r}"
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise UserError(f"{where}: expected a name of letters, digits, _ and -.")
        if isinstance(self.premise, str) or not isinstance(self.premise, Sequence):
            raise UserError(f"{where}: expected a list of literals as its premise, got {self.premise!r:.60}.")
        premise = tuple(dict.fromkeys(literal(each, f"{where}: if") for each in self.premise))
        object.__setattr__(self, "premise", premise)
        object.__setattr__(self, "conclusion", literal(self.conclusion, f"{where}: then"))

    def __str__(self) -> str:
        return f"{' and '.join(self.premise) or 'always'} -> {self.conclusion}"


@dataclass(frozen=True)
class HardRule:
    """A rule of the background without exceptions: where all of `premise` holds, so does `conclusion`."""

    premise: tuple[str, ...]
    conclusion: str


@dataclass(frozen=True)
class ReasonTheory:
    """What a moral module reasons with: facts it may hear of, macro actions, reasons and their priorities.

    Theories are values: `with_default` and the like return new ones.

    Raises:
        UserError: If a name is unknown or stands twice, or a conclusion is no macro action.
        PriorityCycle: If the priorities are no strict partial order.
    """

    facts: tuple[str, ...]
    """Names of morally relevant facts."""
    actions: tuple[str, ...]
    """Names of macro action types."""
    defaults: tuple[Default, ...] = ()
    priorities: Mapping[Pair, str] = field(default_factory=dict)
    """Pairs (lower, higher) as they were given, with the case each came from; empty for those of the designers."""
    exclusive: tuple[frozenset[str], ...] = ()
    """Groups of macro actions of which at most one can be done."""
    rules: tuple[HardRule, ...] = ()
    safe: str = ""
    """The macro action taken where nothing is permissible or the reasoning fails; the last action if left out."""
    name: str = "theory"
    described: Mapping[str, str] = field(default_factory=dict)
    """What facts and actions mean, by name."""

    def __post_init__(self) -> None:
        """Check names, conclusions and the order."""
        if not self.actions:
            raise UserError(f"{self.name}: a theory needs at least one macro action.")
        for kind, names in (("fact", self.facts), ("action", self.actions)):
            for each in names:
                if literal(each, f"{self.name}: {kind}s") != each or each.startswith("not "):
                    raise UserError(f"{self.name}: {kind}s: expected a plain name, got {each!r}.")
        every = [*self.facts, *self.actions]
        _once(every, f"{self.name}: the name of a fact or action")
        _once([each.name for each in self.defaults], f"{self.name}: the reason")
        for default in self.defaults:
            for said in default.premise:
                self._known(atom(said), every, f"reason {default.name!r}: if")
            self._known(atom(default.conclusion), self.actions, f"reason {default.name!r}: then")
        for group in self.exclusive:
            if len(group) < 2:
                raise UserError(f"{self.name}: exclusive: a group needs two actions, got {sorted(group)}.")
            for each in group:
                self._known(each, self.actions, "exclusive")
        for rule in self.rules:
            for said in (*rule.premise, rule.conclusion):
                self._known(atom(said), every, "rules")
        object.__setattr__(self, "safe", self.safe or self.actions[-1])
        self._known(self.safe, self.actions, "safe")
        if self.background.closure(frozenset()) is None:
            raise UserError(f"{self.name}: the hard rules contradict each other; no situation satisfies them all.")
        _ = self.order

    def _known(self, name: str, names: Iterable[str], where: str) -> None:
        if name not in (names := list(names)):
            listed = ", ".join(names) or "none"
            what = "macro action" if names == list(self.actions) else "fact or macro action"
            near = did_you_mean(name, names)
            raise UserError(f"{self.name}: {where}: {name!r} is no {what} of this theory ({listed}).{near}")

    @cached_property
    def background(self) -> Background:
        """The hard rules: incompatible macro actions, and implications."""
        groups = [sorted(group) for group in self.exclusive]
        pairs = {frozenset((a, b)) for group in groups for a in group for b in group if a != b}
        clauses = [[negated(each) for each in sorted(pair)] for pair in sorted(pairs, key=sorted)]
        clauses += [[*map(negated, rule.premise), rule.conclusion] for rule in self.rules]
        return Background([*self.facts, *self.actions], clauses)

    @cached_property
    def _spelled(self) -> frozenset[str]:
        return frozenset(each for name in (*self.facts, *self.actions) for each in (name, negated(name)))

    @cached_property
    def judged(self) -> dict[Any, Any]:
        """Norms by facts and mode: what `judge` found before."""
        return {}

    @cached_property
    def order(self) -> frozenset[Pair]:
        """Every pair (lower, higher) that follows from the priorities by transitivity."""
        names = [default.name for default in self.defaults]
        above: dict[str, set[str]] = {name: set() for name in names}
        for lower, higher in self.priorities:
            for each in (lower, higher):
                if each not in above:
                    near = did_you_mean(each, names)
                    raise UserError(
                        f"{self.name}: priorities: there is no reason {each!r} ({', '.join(names) or 'none'}).{near}"
                    )
            above[lower].add(higher)
        reached: set[Pair] = set()
        for name in names:
            came: dict[str, str] = {}
            queue = [name]
            for here in queue:  # grows while it is walked
                for higher in sorted(above[here]):
                    if higher not in came:
                        came[higher] = here
                        queue.append(higher)
            if name in came:
                raise self._cycle(name, came)
            reached |= {(name, higher) for higher in came}
        return frozenset(reached)

    def _cycle(self, name: str, came: Mapping[str, str]) -> PriorityCycle:
        path = [name]
        while len(path) == 1 or path[-1] != name:
            path.append(came[path[-1]])
        path.reverse()
        cases = tuple(dict.fromkeys(case for pair in pairwise(path) if (case := self.priorities[pair])))
        said = f" They come from the earlier cases {', '.join(cases)}." if cases else ""
        return PriorityCycle(
            f"{self.name}: priorities go in a circle: {' < '.join(path)}; a reason cannot outrank itself.{said}",
            path, cases,
        )  # fmt: skip

    def default(self, name: str) -> Default:
        """Return a reason by name.

        Raises:
            UserError: If there is none.
        """
        found = {default.name: default for default in self.defaults}
        if name not in found:
            near = did_you_mean(name, found)
            raise UserError(f"{self.name}: there is no reason {name!r} ({', '.join(found) or 'none'}).{near}")
        return found[name]

    def literals(self, said: Iterable[str], where: str = "facts") -> frozenset[str]:
        """Return literals over this theory's names in their one spelling.

        Raises:
            UserError: If one is none, or its name is unknown.
        """
        if isinstance(said, str):
            raise UserError(f"{self.name}: {where}: expected a list of literals, got the text {said!r:.60}.")
        given = list(said)
        if all(isinstance(each, str) and each in self._spelled for each in given):
            return frozenset(given)
        found = frozenset(literal(each, f"{self.name}: {where}") for each in given)
        for each in sorted(found):
            self._known(atom(each), (*self.facts, *self.actions), where)
        return found

    def with_default(self, default: Default) -> ReasonTheory:
        """Return the theory with one more reason."""
        return replace(self, defaults=(*self.defaults, default))

    def with_priority(self, lower: str, higher: str, case: str = "") -> ReasonTheory:
        """Return the theory in which one reason outranks another.

        Raises:
            PriorityCycle: If the other one outranks it already.
        """
        return replace(self, priorities={**self.priorities, (lower, higher): case})

    def with_priorities(self, priorities: Mapping[Pair, str]) -> ReasonTheory:
        """Return the theory with other priorities.

        Raises:
            PriorityCycle: If they go in a circle.
        """
        return replace(self, priorities=dict(priorities))

    def without(self, *names: str) -> ReasonTheory:
        """Return the theory without some reasons and their priorities; what followed through them is gone as well."""
        for name in names:
            self.default(name)
        return replace(
            self,
            defaults=tuple(default for default in self.defaults if default.name not in names),
            priorities={pair: case for pair, case in self.priorities.items() if not set(pair) & set(names)},
        )

    @cached_property
    def version(self) -> str:
        """Twelve hex digits that change with what the theory says; wording and order of priorities do not count."""
        said: list[Any] = [
            self.facts, self.actions, [(each.name, each.premise, each.conclusion) for each in self.defaults],
            sorted(self.order), sorted(map(sorted, self.exclusive)),
            [(rule.premise, rule.conclusion) for rule in self.rules], self.safe,
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]


def _once(names: Sequence[str], what: str) -> None:
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UserError(f"{what} {twice!r} stands twice; keep one of the two.")

"""Literals, and what follows from them under hard rules: a small complete reasoner for propositional clauses.

A literal is a text: `drowning`, or `not drowning`. Clauses are sets of signed numbers, as SAT solvers write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rolecraft.errors import UserError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_MOST_KEPT = 50_000


def literal(text: object, where: str = "literal") -> str:
    """Return a literal in its one spelling: `name` or `not name`.

    Args:
        text: `p`; or `not p`, `-p`, `~p`, `!p`.
        where: Begins the message.

    Raises:
        UserError: If it is no such text.
    """
    words = text.strip() if isinstance(text, str) else ""
    name = re.sub(r"^(not\s+|[-~!]\s*)", "", words)
    if not NAME.fullmatch(name) or name == "not":
        raise UserError(
            f"{where}: expected a name such as drowning, or 'not drowning', got {text!r:.60}; names are letters, "
            "digits, _ and -, quoted where YAML would read yes, no, on or off."
        )
    return f"not {name}" if name != words else name


def atom(said: str) -> str:
    """Return the name that a literal is about."""
    return said.removeprefix("not ")


def negated(said: str) -> str:
    """Return the opposite of a literal."""
    return said[4:] if said.startswith("not ") else f"not {said}"


Clause = frozenset[int]


class Background:
    """What follows from literals by hard clauses.

    Entailment is classical and complete: unit propagation first, then a search for a model of the opposite.

    Args:
        names: The atoms; the n-th is the number n + 1.
        clauses: Each a set of literals of which one must hold.
    """

    def __init__(self, names: Iterable[str], clauses: Iterable[Iterable[str]] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        self._numbers: Mapping[str, int] = {name: place for place, name in enumerate(self.names, 1)}
        self.clauses: tuple[Clause, ...] = tuple(frozenset(map(self.number, clause)) for clause in clauses)
        self._parts = _components(len(self.names), self.clauses)
        self._kept: dict[frozenset[int], frozenset[int] | None] = {}

    def number(self, said: str) -> int:
        """Return a literal as a signed number."""
        return self._numbers[said] if said in self._numbers else -self._numbers[atom(said)]

    def text(self, number: int) -> str:
        """Return a signed number as a literal."""
        return self.names[number - 1] if number > 0 else f"not {self.names[-number - 1]}"

    def numbers(self, said: Iterable[str]) -> frozenset[int]:
        """Return literals as signed numbers."""
        return frozenset(map(self.number, said))

    def closure(self, units: frozenset[int]) -> frozenset[int] | None:
        """Return every literal that follows; None if the units contradict each other or a clause."""
        found: set[int] = set()
        for _, known in self._by_part(units):
            if known is None:
                return None
            found |= known
        return frozenset(found)

    def optimistic(self, units: frozenset[int]) -> frozenset[int]:
        """Return what may follow from some of the units: all that does, and anything near a contradiction."""
        found: set[int] = set()
        for part, known in self._by_part(units):
            found |= {sign * name for name in part for sign in (1, -1)} if known is None else known
        return frozenset(found)

    def _by_part(self, units: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int] | None]]:
        """Yield what follows in every group of atoms that clauses tie together: groups do not touch each other."""
        for part in self._parts:
            own = frozenset(each for each in units if abs(each) in part)
            key = own or frozenset((0, *part))
            if key not in self._kept:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = self._closed(own, part)
            yield part, self._kept[key]

    def entails(self, units: frozenset[int], said: int) -> bool:
        """Whether a literal follows; everything follows from a contradiction."""
        known = self.closure(units)
        return known is None or said in known

    def _closed(self, units: frozenset[int], part: frozenset[int]) -> frozenset[int] | None:
        clauses = [clause for clause in self.clauses if any(abs(each) in part for each in clause)]
        known = _propagate(units, clauses)
        if known is None or not _satisfiable(known, clauses):
            return None
        undecided = {abs(each) for clause in clauses if not clause & known for each in clause} - {*map(abs, known)}
        found = {
            sign * name for name in undecided for sign in (1, -1) if not _satisfiable({*known, -sign * name}, clauses)
        }
        return frozenset(known | found)


def _components(atoms: int, clauses: Sequence[Clause]) -> list[frozenset[int]]:
    """Return the groups of atoms that clauses tie together."""
    groups = [{name} for name in range(1, atoms + 1)]
    for clause in clauses:
        names = {*map(abs, clause)}
        touched = [group for group in groups if group & names]
        groups = [group for group in groups if not group & names]
        groups += [set().union(*touched)] if touched else []
    return [frozenset(group) for group in groups]


def _satisfiable(units: Iterable[int], clauses: Sequence[Clause]) -> bool:
    known = _propagate(units, clauses)
    if known is None:
        return False
    rest = next((clause for clause in clauses if not clause & known), None)
    if rest is None:
        return True
    return any(_satisfiable({*known, each}, clauses) for each in rest if -each not in known)


def _propagate(units: Iterable[int], clauses: Sequence[Clause]) -> set[int] | None:
    """Add what single clauses force, until nothing more follows; None on a contradiction."""
    known = set(units)
    if any(-each in known for each in known):
        return None
    grown = True
    while grown:
        grown = False
        for clause in clauses:
            if clause & known:
                continue
            rest = [each for each in clause if -each not in known]
            if not rest:
                return None
            if len(rest) == 1:
                known.add(rest[0])
                grown = True
    return known

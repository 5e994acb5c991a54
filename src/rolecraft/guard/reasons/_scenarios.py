"""Which reasons bind: triggered, conflicted and defeated defaults, and the proper scenarios (Horty, 2012).

Sets of defaults are bit masks inside, names outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rolecraft.errors import UserError
from rolecraft.guard.reasons._literals import atom
from rolecraft.guard.reasons._theory import ReasonTheory

MOST_REASONS = 30
"""Reasons that may be open in one situation for the exact search."""
MOST_SCENARIOS = 1024
MOST_STEPS = 20_000

Scenario = tuple[str, ...]
"""Names of reasons, in the order of the theory."""


class InconsistentFacts(UserError):
    """Facts that contradict each other or the hard rules."""


class TooManyReasons(UserError):
    """A situation in which too many reasons are open for the exact search."""


@dataclass(frozen=True)
class Standing:
    """How the reasons of a theory stand towards a scenario S, in facts W (Horty's definitions)."""

    triggered: frozenset[str]
    """W and the conclusions of S entail the premise."""
    conflicted: frozenset[str]
    """W and the conclusions of S entail the opposite of the conclusion."""
    defeated: frozenset[str]
    """A triggered reason outranks it, whose conclusion entails, with W, the opposite."""

    @property
    def binding(self) -> frozenset[str]:
        """Triggered, neither conflicted nor defeated."""
        return self.triggered - self.conflicted - self.defeated


class Situation:
    """A theory in given facts.

    Args:
        theory: The reasons.
        facts: Literals that hold; what is not said is unknown.

    Raises:
        UserError: If a fact is unknown to the theory.
        InconsistentFacts: If the facts contradict each other or the hard rules.
    """

    def __init__(self, theory: ReasonTheory, facts: Iterable[str]) -> None:
        self.theory = theory
        self.facts = theory.literals(facts)
        background = self.background = theory.background
        self._given = background.numbers(self.facts)
        if background.closure(self._given) is None:
            twice = sorted(each for each in self.facts if f"not {each}" in self.facts)
            why = f"{twice[0]!r} and its opposite" if twice else "against the hard rules"
            raise InconsistentFacts(
                f"{theory.name}: the facts {', '.join(sorted(self.facts))} contradict each other ({why})."
            )
        self._premises = [background.numbers(default.premise) for default in theory.defaults]
        self._conclusions = [background.number(default.conclusion) for default in theory.defaults]
        self._places = {default.name: place for place, default in enumerate(theory.defaults)}
        self._defeaters = [self._defeaters_of(place) for place in range(len(theory.defaults))]

    def _defeaters_of(self, place: int) -> int:
        """Return the reasons that defeat one as soon as they are triggered."""
        name, opposite = self.theory.defaults[place].name, -self._conclusions[place]
        return sum(
            1 << other
            for other, default in enumerate(self.theory.defaults)
            if (name, default.name) in self.theory.order
            and self.background.entails(self._given | {self._conclusions[other]}, opposite)
        )

    def mask(self, scenario: Iterable[str]) -> int:
        """Return a set of reasons as a bit mask.

        Raises:
            UserError: If a name is unknown.
        """
        return sum(1 << self._places[self.theory.default(name).name] for name in set(scenario))

    def names(self, mask: int) -> Scenario:
        """Return a bit mask as names."""
        return tuple(default.name for place, default in enumerate(self.theory.defaults) if mask >> place & 1)

    def known(self, mask: int) -> frozenset[int] | None:
        """Return what the facts and the conclusions of some reasons entail; None if they contradict each other."""
        return self.background.closure(self._given | {self._conclusions[place] for place in _bits(mask)})

    def triggered(self, mask: int) -> int:
        """Return the reasons triggered by a scenario."""
        known = self.known(mask)
        if known is None:
            return (1 << len(self._premises)) - 1
        return sum(1 << place for place, premise in enumerate(self._premises) if premise <= known)

    def conflicted(self, mask: int) -> int:
        """Return the reasons in conflict with a scenario."""
        known = self.known(mask)
        if known is None:
            return (1 << len(self._premises)) - 1
        return sum(1 << place for place, said in enumerate(self._conclusions) if -said in known)

    def defeated_by(self, triggered: int) -> int:
        """Return the reasons that some triggered ones defeat."""
        return sum(1 << place for place, higher in enumerate(self._defeaters) if higher & triggered)

    def binding(self, mask: int) -> int:
        """Return what binds, seen from a scenario."""
        triggered = self.triggered(mask)
        return triggered & ~self.conflicted(mask) & ~self.defeated_by(triggered)

    def grounded(self, mask: int) -> int:
        """Return the part of a scenario that is reached from the facts, reason by reason."""
        reached = 0
        while (grown := mask & self.triggered(reached)) != reached:
            reached = grown
        return reached

    def _possible(self, mask: int) -> tuple[int, int]:
        """Return the reasons that some part of `mask` may trigger, and those that it may be in conflict with."""
        reached, triggered = -1, 0
        while (grown := mask & triggered) != reached:
            reached = grown
            units = self._given | {self._conclusions[place] for place in _bits(reached)}
            known = self.background.optimistic(units)
            triggered = sum(1 << place for place, premise in enumerate(self._premises) if premise <= known)
        return triggered, sum(1 << place for place, said in enumerate(self._conclusions) if -said in known)

    def standing(self, scenario: Iterable[str]) -> Standing:
        """Say how all reasons stand towards a scenario."""
        mask = self.mask(scenario)
        triggered = self.triggered(mask)
        parts = (triggered, self.conflicted(mask), self.defeated_by(triggered))
        return Standing(*(frozenset(self.names(part)) for part in parts))

    def defeats(self, higher: str, lower: str) -> bool:
        """Whether one reason defeats another as soon as it is triggered."""
        return bool(self._defeaters[self._places[lower]] >> self._places[higher] & 1)

    def opposes(self, name: str, said: str) -> bool:
        """Whether a reason's conclusion rules a literal out, given the facts."""
        units = self._given | {self._conclusions[self._places[name]]}
        return self.background.entails(units, -self.background.number(said))

    def is_proper(self, mask: int) -> bool:
        """Whether a scenario is what binds seen from itself, and is reached from the facts."""
        return self.binding(mask) == mask == self.grounded(mask)

    def proper_scenarios(self) -> tuple[Scenario, ...]:
        """Return every proper scenario, in a fixed order.

        A scenario is proper if it is its own set of binding reasons, and each of its reasons is triggered by the facts
        and those before it. The second half is Horty's: without it two reasons could hold each other up.

        Raises:
            TooManyReasons: If more than `MOST_REASONS` reasons are open, or there are too many scenarios.
        """
        open_ = self._open()
        if open_.bit_count() > MOST_REASONS:
            raise TooManyReasons(
                f"{self.theory.name}: {open_.bit_count()} reasons are open in this situation; the exact search takes "
                f"at most {MOST_REASONS}. Split the theory by role or domain."
            )
        found: list[int] = []
        for steps, mask in enumerate(self._search(0, open_), 1):
            if mask >= 0:
                found.append(mask)
            if steps > MOST_STEPS or len(found) > MOST_SCENARIOS:
                raise TooManyReasons(
                    f"{self.theory.name}: more than {MOST_SCENARIOS} proper scenarios or {MOST_STEPS} steps of search; "
                    "give priorities between reasons that conflict."
                )
        return tuple(self.names(mask) for mask in sorted(found))

    def _open(self) -> int:
        """Return the reasons whose premises may come to hold: the rest of their atoms hangs on the facts alone."""
        moving = {abs(said) for said in self._conclusions}
        grown = True
        while grown:
            touched = {abs(each) for clause in self.background.clauses
                       if any(abs(each) in moving for each in clause) for each in clause}  # fmt: skip
            grown = not touched <= moving
            moving |= touched
        known = self.known(0) or frozenset()
        return sum(
            1 << place
            for place, premise in enumerate(self._premises)
            if all(each in known or abs(each) in moving for each in premise)
        )

    def _search(self, inside: int, undecided: int) -> Iterator[int]:
        """Yield the proper scenarios between two bounds, and -1 for every step of the search.

        What triggers, conflicts and defeats only grows with a scenario, so that both bounds decide many reasons.
        """
        while True:
            yield -1
            if self.known(inside) is None:
                return
            sure = self.triggered(inside)
            barred = self.conflicted(inside) | self.defeated_by(sure)
            triggerable, conflictable = self._possible(inside | (undecided & ~barred))
            if inside & (barred | ~triggerable):
                return
            undecided &= triggerable & ~barred
            forced = sure & ~inside & ~conflictable & ~self.defeated_by(triggerable)
            if forced & ~undecided:  # binds in every scenario within the bounds, yet was left out
                return
            if not forced:
                break
            inside, undecided = inside | forced, undecided & ~forced
        if not undecided:
            if self.is_proper(inside):
                yield inside
            return
        chosen = undecided & sure or undecided
        lowest = chosen & -chosen
        yield from self._search(inside | lowest, undecided & ~lowest)
        yield from self._search(inside, undecided & ~lowest)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def proper_scenarios(theory: ReasonTheory, facts: Iterable[str]) -> tuple[Scenario, ...]:
    """Return the proper scenarios of a theory in some facts; several are a dilemma. See `Situation`."""
    return Situation(theory, facts).proper_scenarios()


def premise_atoms(theory: ReasonTheory) -> frozenset[str]:
    """Return the names that premises and rules speak of: the others change nothing."""
    said = [each for default in theory.defaults for each in default.premise]
    said += [each for rule in theory.rules for each in (*rule.premise, rule.conclusion)]
    return frozenset(map(atom, said))

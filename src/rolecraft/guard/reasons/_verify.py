"""Proving claims about a theory by trying every combination of facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.reasons._literals import atom, negated
from rolecraft.guard.reasons._norms import Mode, Norms, judge
from rolecraft.guard.reasons._scenarios import InconsistentFacts, premise_atoms
from rolecraft.guard.reasons._theory import ReasonTheory

Status = Literal["obligatory", "forbidden", "permissible"]
STATUSES: tuple[Status, ...] = ("obligatory", "forbidden", "permissible")
MOST_COMBINATIONS = 1 << 16


@dataclass(frozen=True)
class Claim:
    """What shall hold in every situation: wherever all of `when` is so, an action has a status."""

    when: tuple[str, ...]
    status: Status
    action: str

    def __post_init__(self) -> None:
        """Refuse an unknown status."""
        if self.status not in STATUSES:
            near = did_you_mean(str(self.status), STATUSES)
            raise UserError(f"a claim's status must be one of {', '.join(STATUSES)}, got {self.status!r}.{near}")

    def __str__(self) -> str:
        return f"{' and '.join(self.when) or 'always'}: {self.action} is {self.status}"

    def holds(self, norms: Norms) -> bool:
        """Whether it is so under some norms: obligatory or forbidden in every option, permissible in some."""
        return self.action in getattr(norms, self.status)


@dataclass(frozen=True)
class Verification:
    """What came of a claim."""

    claim: Claim
    holds: bool
    checked: int
    """Combinations of facts that were judged."""
    counterexample: frozenset[str] | None = None
    """Facts in which it does not hold; what is not said in them is unknown."""
    norms: Norms | None = None
    """What the theory asks for there."""
    dilemmas: int = 0
    """Combinations with several proper scenarios, among those checked."""

    def __str__(self) -> str:
        if self.holds:
            return f"proved: {self.claim} (in all {self.checked} combinations of facts)"
        shown = ", ".join(sorted(self.counterexample or ())) or "no facts"
        return f"refuted: {self.claim}; not with {shown}"


def situations(theory: ReasonTheory, when: Iterable[str] = ()) -> Iterator[frozenset[str]]:
    """Yield every combination of the facts that can make a difference, few facts first.

    A fact that premises name only positively is there or not; one that a premise negates, or a hard rule names, is
    true, false or unknown. Facts that nothing speaks of are left out, and so are combinations against the hard rules.

    Raises:
        UserError: If there are more than `MOST_COMBINATIONS`.
    """
    given = theory.literals(when, "claim: when")
    said = {each for default in theory.defaults for each in default.premise}
    ruled = {atom(each) for rule in theory.rules for each in (*rule.premise, rule.conclusion)}
    known = {atom(each) for each in given}
    choices: list[Sequence[str]] = []
    for name in theory.facts:
        if name in premise_atoms(theory) and name not in known:
            both = negated(name) in said or name in ruled
            choices.append(("", name, negated(name)) if both else ("", name))
    total = 1
    for options in choices:
        total *= len(options)
    if total > MOST_COMBINATIONS:
        raise UserError(
            f"{theory.name}: {total} combinations of facts; at most {MOST_COMBINATIONS} are tried. Name more facts in "
            "the claim, or split the theory."
        )
    found = [given | {each for each in chosen if each} for chosen in product(*choices)]
    yield from sorted(found, key=lambda facts: (len(facts), sorted(facts)))


def verify(theory: ReasonTheory, claim: Claim, mode: Mode = "credulous") -> Verification:
    """Prove a claim about a theory, or find the smallest counterexample.

    Args:
        theory: The reasons.
        claim: What shall hold.
        mode: As in `judge`.

    Raises:
        UserError: If a name is unknown, or there are too many combinations.
    """
    if claim.action not in theory.actions:
        near = did_you_mean(claim.action, theory.actions)
        raise UserError(
            f"{theory.name}: claim: {claim.action!r} is no macro action ({', '.join(theory.actions)}).{near}"
        )
    checked = dilemmas = 0
    for facts in situations(theory, claim.when):
        try:
            norms = judge(theory, facts, mode)
        except InconsistentFacts:
            continue
        checked += 1
        dilemmas += norms.dilemma
        if not claim.holds(norms):
            return Verification(claim, False, checked, facts, norms, dilemmas)
    if not checked:
        raise UserError(f"{theory.name}: claim {claim}: no combination of facts satisfies its condition.")
    return Verification(claim, True, checked, dilemmas=dilemmas)


def find_dilemmas(theory: ReasonTheory) -> tuple[frozenset[str], ...]:
    """Return the combinations of facts in which reasons conflict without priority, few facts first."""
    found = []
    for facts in situations(theory):
        try:
            if judge(theory, facts).dilemma:
                found.append(facts)
        except InconsistentFacts:
            continue
    return tuple(found)

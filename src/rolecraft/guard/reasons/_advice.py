"""Learning from a moral advisor: a correction becomes a reason that outranks those it contradicts.

After Baum, Dargasz, Jahn, Gros and Wolf (arXiv 2409.15014).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.reasons._literals import atom
from rolecraft.guard.reasons._norms import judge, support_of
from rolecraft.guard.reasons._scenarios import Situation
from rolecraft.guard.reasons._theory import Default, PriorityCycle, ReasonTheory


@dataclass(frozen=True)
class Case:
    """What an advisor says of one case: in these facts this was demanded, for this reason."""

    name: str
    facts: tuple[str, ...]
    demanded: str
    """`rescue`: it had to be done; `not push`: it must not be."""
    reason: tuple[str, ...]
    """Those of the facts that speak for it; empty: it is always so."""


@dataclass(frozen=True)
class Lesson:
    """What became of a correction."""

    accepted: bool
    theory: ReasonTheory
    """The theory afterwards; unchanged if the correction was refused."""
    message: str
    added: Default | None = None
    """The new reason; None if it stood there before, or nothing had to be learned."""
    outranked: tuple[str, ...] = ()
    """Reasons that it outranks now."""
    conflicts: tuple[str, ...] = ()
    """Names of the earlier cases that stand against a refused correction."""


def demands(theory: ReasonTheory, case: Case) -> bool:
    """Whether a theory demands in a case what its advisor demanded, in every proper scenario.

    Raises:
        UserError: If the case cannot be judged.
    """
    situation = Situation(theory, case.facts)
    wanted = situation.background.number(_demand(theory, case))
    scenarios = situation.proper_scenarios()
    return bool(scenarios) and all(wanted in (situation.known(situation.mask(each)) or ()) for each in scenarios)


def learn(theory: ReasonTheory, case: Case, earlier: Sequence[Case] = ()) -> Lesson:
    """Correct a theory by a case.

    The reason is added unless it is there. It comes to outrank every reason of the former scenarios whose conclusion
    contradicts the demand, and then those that the change sets free, until the demand holds. The correction is refused
    if priorities would go in a circle, or an earlier case would be judged otherwise than its advisor did.

    Args:
        theory: The reasons so far.
        case: The correction.
        earlier: Cases that must keep their verdict.

    Raises:
        UserError: If facts, demand or reason are none of the theory's, or the reason is not among the facts.
    """
    demanded = _demand(theory, case)
    facts = theory.literals(case.facts, f"case {case.name}: facts")
    reason = theory.literals(case.reason, f"case {case.name}: reason")
    if not reason <= facts:
        missing = ", ".join(sorted(reason - facts))
        raise UserError(f"case {case.name}: the reason must be among the facts of the case; {missing} is not.")
    if demands(theory, case):
        return Lesson(True, theory, "the theory demands that already")
    added = None
    changed = theory
    new = next((each for each in theory.defaults if each.conclusion == demanded and set(each.premise) == reason), None)
    if new is None:
        new = added = Default(_free_name(theory, case.name), tuple(sorted(reason)), demanded, f"case {case.name}")
        changed = theory.with_default(new)
    outranked: list[str] = []
    former = theory
    while True:
        rivals = [each for each in _rivals(former, changed, case, demanded) if (each, new.name) not in changed.order]
        try:
            for rival in rivals:
                changed = changed.with_priority(rival, new.name, case.name)
        except PriorityCycle as error:
            return Lesson(False, theory, f"refused: {error}", conflicts=error.cases)
        outranked += rivals
        if demands(changed, case):
            break
        if not rivals and former is changed:
            return Lesson(False, theory, "refused: no priority of the new reason brings the demand about")
        former = changed
    broken = tuple(each.name for each in earlier if not demands(changed, each))
    if broken:
        return Lesson(
            False, theory, f"refused: the earlier cases {', '.join(broken)} would be judged otherwise; withdraw them "
            "first if they no longer hold.", conflicts=broken,
        )  # fmt: skip
    over = f", outranking {', '.join(outranked)}" if outranked else ""
    return Lesson(True, changed, f"learned {new}{over}", added, tuple(outranked))


def correction(gold: ReasonTheory, facts: Iterable[str], realised: Iterable[str], name: str) -> Case | None:
    """Return what an advisor who goes by a theory says of an action; None if nothing is wrong with it.

    The advisor names one duty, an unmet obligation before a broken prohibition, and those facts that are the premise of
    the first reason that it rests on.

    Args:
        gold: The advisor's own reasons.
        facts: Literals that held.
        realised: The macro actions that were carried out.
        name: Of the case.

    Raises:
        UserError: If the facts cannot be judged.
    """
    done = frozenset(realised)
    norms = judge(gold, facts)
    if norms.failed or norms.violation(done) == 0:
        return None
    duties = min(norms.options, key=lambda each: len(each.obligatory - done) + len(each.forbidden & done))
    broken = [*sorted(duties.obligatory - done), *(f"not {each}" for each in sorted(duties.forbidden & done))]
    situation = Situation(gold, norms.facts)
    for said in broken:
        if support := support_of(situation, duties.scenario, said):
            reason = tuple(each for each in gold.default(support[0]).premise if each in norms.facts)
            return Case(name, tuple(sorted(norms.facts)), said, reason)
    return None


def _rivals(former: ReasonTheory, changed: ReasonTheory, case: Case, demanded: str) -> list[str]:
    """Return the reasons in the scenarios of a theory whose conclusions contradict the demand."""
    situation = Situation(former, case.facts)
    names = {name for scenario in situation.proper_scenarios() for name in scenario}
    return [each.name for each in changed.defaults if each.name in names and situation.opposes(each.name, demanded)]


def _demand(theory: ReasonTheory, case: Case) -> str:
    (demanded,) = theory.literals([case.demanded], f"case {case.name}: demanded")
    if atom(demanded) not in theory.actions:
        raise UserError(
            f"case {case.name}: {atom(demanded)!r} is a fact; an advisor demands one of {', '.join(theory.actions)}, "
            "or not to do one."
        )
    return demanded


def _free_name(theory: ReasonTheory, wanted: str) -> str:
    names = {each.name for each in theory.defaults}
    if wanted not in names:
        return wanted
    return next(name for number in range(2, len(names) + 3) if (name := f"{wanted}-{number}") not in names)


class Casebook:
    """A theory and the cases it was corrected by; each of them stays a test for those after it.

    Args:
        theory: The designers' reasons.
        cases: Corrections to learn at once, in order.

    Raises:
        UserError: If one of the cases is refused.
    """

    def __init__(self, theory: ReasonTheory, cases: Iterable[Case] = ()) -> None:
        self.theory = theory
        self.cases: dict[str, Case] = {}
        self._reasons: dict[str, str] = {}
        for case in cases:
            lesson = self.learn(case)
            if not lesson.accepted:
                raise UserError(f"case {case.name}: {lesson.message}")

    def learn(self, case: Case) -> Lesson:
        """Correct the theory by a case; see `learn`.

        Raises:
            UserError: If a case of this name is known, or this one is faulty.
        """
        if case.name in self.cases:
            raise UserError(f"case {case.name!r} is known already; give every correction a name of its own.")
        lesson = learn(self.theory, case, tuple(self.cases.values()))
        if lesson.accepted:
            self.theory = lesson.theory
            self.cases[case.name] = case
            if lesson.added is not None:
                self._reasons[case.name] = lesson.added.name
        return lesson

    def forget(self, name: str, *, keep_reason: bool = False) -> None:
        """Withdraw a case, with the reason and the priorities that came from it.

        Args:
            name: Of the case.
            keep_reason: Keep what was learned: the case was not wrong then, but no longer counts as a test.

        Raises:
            UserError: If there is no such case.
        """
        if name not in self.cases:
            near = did_you_mean(name, self.cases)
            raise UserError(f"there is no case {name!r} (cases: {', '.join(self.cases) or 'none'}).{near}")
        del self.cases[name]
        if keep_reason:
            return
        kept = {pair: case for pair, case in self.theory.priorities.items() if case != name}
        self.theory = self.theory.with_priorities(kept)
        if name in self._reasons:
            self.theory = self.theory.without(self._reasons.pop(name))

    def broken(self) -> tuple[str, ...]:
        """Return the cases that the theory judges otherwise than their advisor did, which `forget` may cause."""
        return tuple(name for name, case in self.cases.items() if not demands(self.theory, case))

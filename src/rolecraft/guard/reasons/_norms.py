"""What follows for action: obligations, prohibitions and permissions, why they hold and what would change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rolecraft.errors import UserError
from rolecraft.guard.reasons._literals import atom, negated
from rolecraft.guard.reasons._scenarios import Scenario, Situation
from rolecraft.guard.reasons._theory import Default, ReasonTheory

Mode = Literal["credulous", "sceptical"]
MODES: tuple[Mode, ...] = ("credulous", "sceptical")
_MOST_KEPT = 10_000


@dataclass(frozen=True)
class Duties:
    """What one proper scenario, or what all of them share, asks for."""

    obligatory: frozenset[str]
    forbidden: frozenset[str]
    permissible: frozenset[str]
    """Macro actions that are not forbidden. What cannot be done beside an obligation is forbidden."""
    scenario: Scenario = ()
    """The binding reasons behind it; those that all scenarios share in the sceptical mode."""

    def violation(self, scores: Mapping[str, float], ongoing: Iterable[str] = ()) -> float:
        """Return how surely an action breaks them, in [0, 1].

        Args:
            scores: Probability that the action realises a macro action, by name; others count as 0.
            ongoing: Macro actions that are being carried out already, and need no second one.
        """
        ongoing = set(ongoing)
        worst = max((scores.get(name, 0.0) for name in self.forbidden), default=0.0)
        left = max((1 - scores.get(name, 0.0) for name in self.obligatory - ongoing), default=0.0)
        idle = 1 - max((scores.get(name, 0.0) for name in self.permissible), default=0.0)
        return max(worst, left, idle)


@dataclass(frozen=True)
class Norms:
    """The deontic output of a theory in given facts."""

    theory: ReasonTheory
    facts: frozenset[str]
    scenarios: tuple[Scenario, ...]
    """All proper scenarios."""
    options: tuple[Duties, ...]
    """An action must satisfy one of them whole: one per scenario in the credulous mode, one in the sceptical mode."""
    mode: Mode = "credulous"
    failed: str = ""
    """Why only the safe default is left; empty if the reasoning came to a result."""

    @property
    def dilemma(self) -> bool:
        """Whether there are several proper scenarios."""
        return len(self.scenarios) > 1

    @property
    def obligatory(self) -> frozenset[str]:
        """What every option obliges to."""
        return frozenset.intersection(*(option.obligatory for option in self.options))

    @property
    def forbidden(self) -> frozenset[str]:
        """What every option forbids."""
        return frozenset.intersection(*(option.forbidden for option in self.options))

    @property
    def permissible(self) -> frozenset[str]:
        """What some option permits."""
        return frozenset.union(*(option.permissible for option in self.options))

    def violation(self, scores: Mapping[str, float] | Iterable[str], ongoing: Iterable[str] = ()) -> float:
        """Return how surely an action breaks every option, in [0, 1]; see `Duties.violation`.

        Args:
            scores: Probabilities by macro action, or the names of those that it surely realises. What a hard rule makes
                follow from one of them is done as well.
            ongoing: Macro actions that are being carried out already.
        """
        known = self._realised(scores)
        return min(option.violation(known, ongoing) for option in self.options)

    def _realised(self, scores: Mapping[str, float] | Iterable[str]) -> Mapping[str, float]:
        """Return scores by name, with what hard rules say is done along with it."""
        known = dict(scores) if isinstance(scores, Mapping) else dict.fromkeys(scores, 1.0)
        for _ in self.theory.rules:
            for rule in self.theory.rules:
                least = min((known.get(name, 0.0) for name in rule.premise), default=0.0)
                if least > known.get(rule.conclusion, 0.0) and rule.conclusion in self.theory.actions:
                    known[rule.conclusion] = least
        return known

    def status(self, action: str) -> str:
        """Return `obligatory`, `forbidden`, `permissible`, or `optional` where the scenarios differ.

        Raises:
            UserError: If the theory has no such action.
        """
        (said,) = self.theory.literals([action], "action")
        name = atom(said)
        if name not in self.theory.actions:
            raise UserError(f"{self.theory.name}: {name!r} is a fact, not a macro action; ask for an action.")
        if name in self.obligatory:
            return "obligatory"
        if name in self.forbidden:
            return "forbidden"
        return "permissible" if all(name in option.permissible for option in self.options) else "optional"

    def complaint(self, scores: Mapping[str, float] | Iterable[str], ongoing: Iterable[str] = ()) -> tuple[str, str]:
        """Say what an action breaks, by the option that it breaks least.

        Returns:
            The reason that is violated (`safe` for the safe default, `none` where nothing is realised), and a sentence.
        """
        known = self._realised(scores)
        option = min(self.options, key=lambda each: each.violation(known, ongoing))
        broken = [(known.get(name, 0.0), f"not {name}") for name in sorted(option.forbidden)]
        broken += [(1 - known.get(name, 0.0), name) for name in sorted(option.obligatory - set(ongoing))]
        worst, said = max(broken, default=(0.0, ""), key=lambda each: each[0])
        idle = 1 - max((known.get(name, 0.0) for name in option.permissible), default=0.0)
        if worst < idle or not said:
            return "none", f"it realises no permissible macro action ({', '.join(sorted(option.permissible))})"
        duty = f"{atom(said)} is forbidden" if said.startswith("not ") else f"{said} is obligatory"
        if self.failed:
            return "safe", f"{duty}: only the safe default {self.theory.safe} is left, for {self.failed}"
        support = support_of(Situation(self.theory, self.facts), option.scenario, said)
        return (support[0] if support else "background"), f"{duty}: {spoken(self.theory, support) or 'by hard rules'}"

    def text(self) -> str:
        """Return the norms as an agent is told them: obligations, prohibitions, permissions and reasons."""
        lines = []
        if self.failed:
            lines.append(f"The situation could not be judged ({self.failed}). Only this may be done now:")
        elif self.dilemma and self.mode == "credulous":
            lines.append("Reasons conflict without priority. Satisfy one of these sets whole.")
        for number, option in enumerate(self.options, 1):
            lines += [f"Option {number}:"] if len(self.options) > 1 else []
            for title, names in (("You must", option.obligatory), ("You must not", option.forbidden),
                                 ("You may", option.permissible - option.obligatory)):  # fmt: skip
                if names:
                    lines.append(f"{title}: " + "; ".join(self._described(name) for name in sorted(names)) + ".")
            if option.scenario and not self.failed:
                lines.append(f"Reasons: {spoken(self.theory, option.scenario)}.")
        return "\n".join(lines)

    def _described(self, name: str) -> str:
        said = self.theory.described.get(name, "")
        return f"{name} ({said})" if said else name


def spoken(theory: ReasonTheory, names: Iterable[str]) -> str:
    """Return reasons as one line: name, premise and conclusion, and why."""
    found = [theory.default(name) for name in names]
    return "; ".join(f"{each.name} ({each})" + (f", since {each.why}" if each.why else "") for each in found)


def judge(theory: ReasonTheory, facts: Iterable[str], mode: Mode = "credulous") -> Norms:
    """Return what a theory asks for in given facts.

    Args:
        theory: The reasons.
        facts: Literals that hold.
        mode: Where there are several proper scenarios: `credulous`, an action must satisfy any one of them whole;
            `sceptical`, it must satisfy what all of them share, which allows more.

    Raises:
        InconsistentFacts: If the facts contradict each other.
        TooManyReasons: If the search is too large.
        UserError: If a fact or the mode is unknown.
    """
    if mode not in MODES:
        raise UserError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}.")
    given = theory.literals(facts)
    if (given, mode) not in theory.judged:
        if len(theory.judged) >= _MOST_KEPT:
            theory.judged.clear()
        theory.judged[given, mode] = _judge(theory, given, mode)
    norms: Norms = theory.judged[given, mode]
    return norms


def _judge(theory: ReasonTheory, facts: frozenset[str], mode: Mode) -> Norms:
    situation = Situation(theory, facts)
    scenarios = situation.proper_scenarios()
    if not scenarios:
        return fallback_norms(theory, "no scenario is stable: the reasons undo each other", situation.facts, mode=mode)
    options = [_duties(situation, scenario) for scenario in scenarios]
    if mode == "sceptical":
        shared = [
            frozenset.intersection(*sets) for sets in zip(*((o.obligatory, o.forbidden) for o in options), strict=True)
        ]
        common = [name for name in scenarios[0] if all(name in scenario for scenario in scenarios)]
        options = [Duties(shared[0], shared[1], frozenset(theory.actions) - shared[1], tuple(common))]
    kept = tuple(dict.fromkeys(option for option in options if option.permissible))
    if not kept:
        return fallback_norms(theory, "nothing is permissible", situation.facts, scenarios, mode)
    return Norms(theory, situation.facts, scenarios, kept, mode)


def _duties(situation: Situation, scenario: Scenario) -> Duties:
    theory = situation.theory
    known = situation.known(situation.mask(scenario)) or frozenset()
    said = {situation.background.text(number) for number in known}
    forbidden = frozenset(name for name in theory.actions if negated(name) in said)
    obligatory = frozenset(name for name in theory.actions if name in said)
    return Duties(obligatory, forbidden, frozenset(theory.actions) - forbidden, scenario)


def fallback_norms(
    theory: ReasonTheory, why: str, facts: Iterable[str] = (), scenarios: tuple[Scenario, ...] = (),
    mode: Mode = "credulous",
) -> Norms:  # fmt: skip
    """Return norms under which only the safe default may be done: what is left where reasoning fails."""
    rest = frozenset(theory.actions) - {theory.safe}
    only = Duties(frozenset({theory.safe}), rest, frozenset({theory.safe}))
    return Norms(theory, frozenset(facts), scenarios, (only,), mode, why)


def tightened(norms: Norms, forbidden: Iterable[str]) -> Norms:
    """Return norms with more prohibitions; the safe default where nothing is left.

    An obligation to do what they forbid is void; what it excludes stays excluded.
    """
    extra = frozenset(forbidden)
    if not extra or norms.failed:
        return norms
    options = [
        replace(
            each,
            obligatory=each.obligatory - extra,
            forbidden=each.forbidden | extra,
            permissible=each.permissible - extra,
        )
        for each in norms.options
    ]
    kept = tuple(each for each in options if each.permissible)
    if not kept:
        why = "nothing is permissible once doubtful facts are taken as present"
        return fallback_norms(norms.theory, why, norms.facts, norms.scenarios, norms.mode)
    return replace(norms, options=kept)


def support_of(situation: Situation, scenario: Scenario, said: str) -> Scenario:
    """Return the reasons of a scenario that are needed for a literal; none if the facts alone entail it."""
    number = situation.background.number(said)

    def entailed(names: Scenario) -> bool:
        return number in (situation.known(situation.mask(names)) or frozenset())

    if not entailed(scenario):
        return ()
    kept = scenario
    for name in scenario:
        fewer = tuple(each for each in kept if each != name)
        if entailed(fewer):
            kept = fewer
    return kept


@dataclass(frozen=True)
class Explanation:
    """Why a macro action is obligatory, forbidden or neither."""

    said: str
    """The literal that was asked about."""
    holds: bool
    """Whether it is binding in every proper scenario: `rescue` obligatory, `not push` forbidden."""
    binding: tuple[Default, ...]
    """The reasons that bring it about, over all scenarios."""
    defeated: tuple[tuple[Default, Default], ...]
    """Pairs (defeated, by): triggered reasons for other things that those outrank."""
    against: tuple[Default, ...]
    """Triggered reasons for the opposite that no priority puts down."""

    def __str__(self) -> str:
        name = atom(self.said)
        duty = "forbidden" if self.said.startswith("not ") else "obligatory"
        parts = [f"{name} is {'' if self.holds else 'not '}{duty}"]
        parts += [f"because of {', '.join(f'{each.name} ({each})' for each in self.binding)}"] if self.binding else []
        parts += [f"{down.name} ({down}) is outranked by {up.name}" for down, up in self.defeated]
        parts += [f"{each.name} ({each}) speaks against it" for each in self.against]
        return "; ".join(parts) + "."


def why(theory: ReasonTheory, facts: Iterable[str], said: str) -> Explanation:
    """Return the binding reasons for a duty, and what they defeated.

    Args:
        theory: The reasons.
        facts: Literals that hold.
        said: `rescue` asks why it is obligatory, `not push` why it is forbidden.

    Raises:
        UserError: If it is no macro action of the theory, or the facts cannot be judged.
    """
    (wanted,) = theory.literals([said], "why")
    if atom(wanted) not in theory.actions:
        raise UserError(f"{theory.name}: why: {atom(wanted)!r} is a fact; expected one of {', '.join(theory.actions)}.")
    situation = Situation(theory, facts)
    scenarios = situation.proper_scenarios()
    number = situation.background.number(wanted)
    holds = bool(scenarios) and all(number in (situation.known(situation.mask(s)) or ()) for s in scenarios)
    names = {name for scenario in scenarios for name in support_of(situation, scenario, wanted)}
    binding = tuple(default for default in theory.defaults if default.name in names)
    standings = [situation.standing(scenario) for scenario in scenarios]
    triggered = {name for standing in standings for name in standing.triggered}
    down = tuple(
        (lower, higher)
        for higher in binding
        for lower in theory.defaults
        if lower.name in triggered and situation.defeats(higher.name, lower.name)
    )
    beaten = {lower.name for lower, _ in down}
    against = tuple(
        default
        for default in theory.defaults
        if default.name in triggered - beaten - names and situation.opposes(default.name, wanted)
    )
    return Explanation(wanted, holds, binding, down, against)


@dataclass(frozen=True)
class Change:
    """What a change of facts or reasons does to the norms."""

    before: Norms
    after: Norms

    @property
    def gained(self) -> frozenset[str]:
        """Macro actions that become permissible."""
        return self.after.permissible - self.before.permissible

    @property
    def lost(self) -> frozenset[str]:
        """Macro actions that cease to be."""
        return self.before.permissible - self.after.permissible

    @property
    def duties(self) -> dict[str, tuple[str, str]]:
        """Macro actions whose status changes: `{name: (before, after)}`."""
        pairs = {name: (self.before.status(name), self.after.status(name)) for name in self.before.theory.actions}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def what_if(
    theory: ReasonTheory,
    facts: Iterable[str],
    *,
    add: Iterable[str] = (),
    remove: Iterable[str] = (),
    add_reasons: Iterable[Default] = (),
    remove_reasons: Iterable[str] = (),
    priorities: Iterable[tuple[str, str]] = (),
    mode: Mode = "credulous",
) -> Change:
    """Return what would change if facts or reasons were others.

    Args:
        theory: The reasons as they are.
        facts: The facts as they are.
        add: Facts to add; the opposite of one is taken out.
        remove: Facts to take out.
        add_reasons: Reasons to add.
        remove_reasons: Names of reasons to take out.
        priorities: Pairs (lower, higher) to add.
        mode: As in `judge`.

    Raises:
        UserError: If a name is unknown or a fact to remove is not there.
    """
    given = theory.literals(facts)
    gone, more = theory.literals(remove, "remove"), theory.literals(add, "add")
    if missing := sorted(gone - given):
        raise UserError(
            f"what_if: remove: {missing[0]!r} is not among the facts ({', '.join(sorted(given)) or 'none'})."
        )
    changed = theory.without(*remove_reasons)
    for default in add_reasons:
        changed = changed.with_default(default)
    for lower, higher in priorities:
        changed = changed.with_priority(lower, higher)
    kept = {each for each in given - gone if negated(each) not in more}
    return Change(judge(theory, given, mode), judge(changed, kept | more, mode))

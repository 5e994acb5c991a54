"""The guard of GRACE: an action passes if the macro actions that it realises break no binding reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rolecraft.errors import UserError
from rolecraft.guard._decision import Action, Decision
from rolecraft.guard._gate import Gate
from rolecraft.guard.reasons._facts import FactExtractor, Reading, expected_violation, read_norms
from rolecraft.guard.reasons._norms import MODES, Mode, Norms, fallback_norms
from rolecraft.guard.reasons._theory import ReasonTheory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Realises = Callable[[Action, Mapping[str, Any]], Mapping[str, float] | Iterable[str]]
"""(action, context) -> the macro actions that it realises: names, or probabilities by name."""
ONGOING = "ongoing"
"""Field of the context that lists macro actions which are being carried out already."""


def by_name(action: Action, context: Mapping[str, Any]) -> Iterable[str]:
    """Return the action's own name as what it realises."""
    return (action.name,)


class ReasonGuard:
    """Decides by reasons (GRACE, arXiv 2601.10520); a `Guard` for chains, enforcers and every tool call.

    An action is allowed if it realises no forbidden macro action, all that are obligatory (or they are being carried
    out), and at least one that is permissible. Whatever goes wrong on the way to the norms leaves the safe default.

    Args:
        theory: The reasons.
        extractor: Reads the facts off the context.
        realises: Says which macro actions an action realises; left out: the one of its name.
        threshold: An action passes if its violation, in [0, 1], is below; `control_risk` finds one with a guarantee.
        mode: What to do about dilemmas, see `judge`.
        precaution: Prohibitions also hold where their facts are doubtful.
        weigh: Take the expected violation over all combinations of unsure facts (`expected_violation`) instead of the
            violation under the facts from the extractor's threshold.

    Raises:
        UserError: If threshold or mode are out of range, or the extractor reads the facts of other names.
    """

    def __init__(
        self,
        theory: ReasonTheory,
        extractor: FactExtractor,
        realises: Realises = by_name,
        *,
        threshold: float = 0.5,
        mode: Mode = "credulous",
        precaution: bool = True,
        weigh: bool = False,
    ) -> None:
        if not threshold <= 1:
            raise UserError(f"threshold must be at most 1, got {threshold}; at 1 all but sure violations pass.")
        if mode not in MODES:
            raise UserError(f"mode: expected one of {', '.join(MODES)}, got {mode!r}.")
        self.extractor, self.realises = extractor, realises
        self.threshold, self.mode, self.precaution, self.weigh = threshold, mode, precaution, weigh
        self.gate = Gate()
        """Holds changes of the theory off while calls are in flight, see `Enforcer`."""
        self._theory = theory
        _same_names(extractor.theory, theory)

    @property
    def theory(self) -> ReasonTheory:
        """The reasons in force."""
        return self._theory

    def adopt(self, theory: ReasonTheory, timeout: float = 5.0) -> None:
        """Put another theory in force, between calls.

        Args:
            theory: With the same facts.
            timeout: Seconds to wait for calls in flight.

        Raises:
            UserError: If calls are still in flight after that, or the facts are others.
        """
        _same_names(self.extractor.theory, theory)
        with self.gate.change(timeout) as free:
            if not free:
                raise UserError(f"the theory was not changed: {self.gate.calls} calls are still in flight.")
            self._theory = theory

    def read(self, context: Mapping[str, Any] | None) -> tuple[Reading | None, Norms]:
        """Return the facts of a context and their norms; whatever fails leaves no facts and the safe default."""
        theory = self._theory
        try:
            reading = self.extractor.extract(context or {})
        except Exception as error:  # labellers are foreign code
            return None, fallback_norms(theory, f"facts unavailable: {error!s:.200}", mode=self.mode)
        try:
            return reading, read_norms(theory, reading, self.mode, precaution=self.precaution)
        except UserError as error:
            return reading, fallback_norms(theory, str(error)[:300], reading.sure, mode=self.mode)

    def norms(self, context: Mapping[str, Any] | None = None) -> Norms:
        """Return the norms in a context, for the agent to plan with."""
        return self.read(context)[1]

    def scores(self, action: Action, context: Mapping[str, Any] | None = None) -> dict[str, float]:
        """Return how surely an action realises each macro action.

        Raises:
            UserError: If a name is unknown to the theory, or a probability is none.
        """
        said = self.realises(action, context or {})
        found = dict(said) if isinstance(said, Mapping) else dict.fromkeys(said, 1.0)
        for name, score in found.items():
            if name not in self._theory.actions:
                listed = ", ".join(self._theory.actions)
                raise UserError(f"{action.name!r:.60} realises {name!r:.60}, which is no macro action ({listed}).")
            if not 0 <= score <= 1:
                raise UserError(f"{action.name!r:.60} realises {name} by {score!r}; expected a number in [0, 1].")
        return found

    def violation(self, action: Action, context: Mapping[str, Any] | None = None) -> float:
        """Return how surely an action violates the norms, in [0, 1].

        Raises:
            UserError: If it cannot be said what the action realises.
        """
        return self._judged(action, context or {})[0]

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Decide; the rule named is the reason that is violated, or for what is allowed, all that bind."""
        return self.decide_with(self.read(context), action, context)[0]

    def decide_with(
        self, read: tuple[Reading | None, Norms], action: Action, context: Mapping[str, Any] | None = None
    ) -> tuple[Decision, float]:
        """Decide under norms that were read already; returns the violation as well."""
        norms = read[1]
        version = norms.theory.version
        try:
            violation, scores = self._judged(action, context or {}, read)
            ongoing = self._ongoing(context or {})
        except Exception as error:  # what an action realises is told by foreign code
            return Decision("block", "realises", f"what it does cannot be told: {error!s:.200}", version), 1.0
        if violation < self.threshold:
            binding = dict.fromkeys(name for option in norms.options for name in option.scenario)
            return Decision("allow", ", ".join(binding) or "no reason against it", "", version), violation
        rule, why = norms.complaint(scores, ongoing)
        doubt = "" if violation >= 1 else f" (violation {violation:.3f}, allowed below {self.threshold:.3f})"
        return Decision("block", rule, why + doubt, version), violation

    def _judged(
        self, action: Action, context: Mapping[str, Any], read: tuple[Reading | None, Norms] | None = None
    ) -> tuple[float, dict[str, float]]:
        reading, norms = self.read(context) if read is None else read
        scores, ongoing = self.scores(action, context), self._ongoing(context)
        if not self.weigh or reading is None or norms.failed:
            return norms.violation(scores, ongoing), scores
        return expected_violation(norms.theory, reading, scores, self.mode, ongoing, floor=self.extractor.floor), scores

    def _ongoing(self, context: Mapping[str, Any]) -> frozenset[str]:
        ongoing = context.get(ONGOING, ())
        if isinstance(ongoing, str) or not set(ongoing) <= set(self._theory.actions):
            raise UserError(
                f"{ONGOING}: expected macro actions ({', '.join(self._theory.actions)}), got {ongoing!r:.80}."
            )
        return frozenset(ongoing)


def _same_names(known: ReasonTheory, theory: ReasonTheory) -> None:
    if set(known.facts) != set(theory.facts) or set(known.actions) != set(theory.actions):
        raise UserError(
            f"the extractor was made for the facts {', '.join(known.facts)} and actions {', '.join(known.actions)}, "
            f"the theory has {', '.join(theory.facts)} and {', '.join(theory.actions)}; make a new extractor."
        )


def action_mask(
    norms: Norms, realised: Sequence[Mapping[str, float] | Iterable[str]], *, ongoing: Iterable[str] = (),
    threshold: float = 0.5,
) -> NDArray[np.bool_]:  # fmt: skip
    """Return which primitive actions an agent may choose among: the shield of a reinforcement learner.

    Args:
        norms: What is asked for now.
        realised: For every primitive action, the macro actions that it realises here, shape (actions,).
        ongoing: Macro actions that are being carried out already.
        threshold: As in `ReasonGuard`.

    Returns:
        Booleans of shape (actions,). Where no action is allowed, those that realise the safe default.

    Raises:
        UserError: If none of those exists either.
    """
    import numpy as np

    kept = [each if isinstance(each, Mapping) else dict.fromkeys(each, 1.0) for each in realised]
    ongoing = tuple(ongoing)
    mask = np.array([norms.violation(each, ongoing) < threshold for each in kept], dtype=bool)
    if not mask.any():
        mask = np.array([each.get(norms.theory.safe, 0.0) >= threshold for each in kept], dtype=bool)
    if not mask.any():
        raise UserError(
            f"none of {len(kept)} actions is allowed, and none realises the safe default {norms.theory.safe!r}; give "
            "the agent an action that does."
        )
    return mask

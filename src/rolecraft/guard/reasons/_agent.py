"""An agent within reasons: it proposes, is told why not, proposes again, and in the end the fallback is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecraft.errors import UserError
from rolecraft.guard._decision import Action, Decision
from rolecraft.guard._log import DecisionLog
from rolecraft.guard.reasons._facts import Reading
from rolecraft.guard.reasons._guard import ReasonGuard
from rolecraft.guard.reasons._norms import Norms

Propose = Callable[[Mapping[str, Any], Norms, Sequence[Decision]], Action]
"""(context, norms, decisions against its earlier proposals) -> what the agent wants to do. `norms.text()` is the
system message of a language model, `action_mask` the shield of a learner."""


@dataclass(frozen=True)
class Conduct:
    """What came of one step."""

    action: Action
    """What is to be done: an allowed proposal, or the fallback."""
    norms: Norms
    refused: tuple[Decision, ...]
    """Decisions against the proposals before it."""
    fell_back: bool
    """Whether no proposal was allowed."""


class ReasonedAgent:
    """Wraps an agent in a `ReasonGuard`: propose, judge, retry with the reason, fall back.

    Every proposal is logged with the facts, the scenario, the permissible actions, the verdict and its reason.

    Args:
        guard: Decides.
        propose: The agent.
        fallback: Done when no proposal is allowed; it should realise the theory's safe default, and is not judged.
        retries: Further proposals after the first.
        principal: Id of the role.
        log: Where it is written down; a new one in memory if left out.

    Raises:
        UserError: If `retries` is negative.
    """

    def __init__(
        self, guard: ReasonGuard, propose: Propose, fallback: Action, *, retries: int = 3, principal: str = "agent",
        log: DecisionLog | None = None,
    ) -> None:  # fmt: skip
        if retries < 0:
            raise UserError(f"retries must be at least 0, got {retries}.")
        self.guard, self.propose, self.fallback = guard, propose, fallback
        self.retries, self.principal = retries, principal
        self.log = DecisionLog() if log is None else log

    def act(self, context: Mapping[str, Any]) -> Conduct:
        """Return what is to be done in a context. The theory is not changed in the middle of it."""
        with self.guard.gate.call():
            return self._act(context)

    def _act(self, context: Mapping[str, Any]) -> Conduct:
        read = self.guard.read(context)
        norms, refused = read[1], list[Decision]()
        for _ in range(1 + self.retries):
            start = time.perf_counter()
            action = self.fallback
            try:
                action = self.propose(context, norms, tuple(refused))
                decision = self.guard.decide_with(read, action, context)[0]
            except Exception as error:  # an agent that breaks has proposed nothing
                why = f"the agent failed: {type(error).__name__}: {error!s:.200}"
                decision = Decision("block", "agent", why, norms.theory.version)
            self.log.add(self.principal, action, decision, time.perf_counter() - start, _note(read))
            if decision.allowed:
                return Conduct(action, norms, tuple(refused), False)
            refused.append(decision)
        why = f"no proposal of {1 + self.retries} was allowed"
        decision = Decision("allow", "fallback", why, norms.theory.version)
        self.log.add(self.principal, self.fallback, decision, 0.0, _note(read))
        return Conduct(self.fallback, norms, tuple(refused), True)


def _note(read: tuple[Reading | None, Norms]) -> str:
    reading, norms = read
    said: dict[str, Any] = {
        "facts": [] if reading is None else reading.rows(),
        "scenarios": [list(scenario) for scenario in norms.scenarios],
        "permissible": sorted(norms.permissible),
        "obligatory": sorted(norms.obligatory),
    }
    return json.dumps(said | ({"failed": norms.failed} if norms.failed else {}), ensure_ascii=True)

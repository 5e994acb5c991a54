"""The role-integrity guard: hashes of role texts, drift of prompts, watched hand-overs, policies said once more."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rolecraft.errors import UserError
from rolecraft.guard._chain import Chain
from rolecraft.guard._decision import Action, Decision, ToolCall
from rolecraft.guard.audit._canary import CanaryPolicy
from rolecraft.guard.audit._detectors import Grade, Marker
from rolecraft.guard.audit._documents import manifest
from rolecraft.guard.audit._reviewer import SuitabilityReviewer
from rolecraft.guard.audit._sentences import sentences, unrefused
from rolecraft.teams import MESSAGE, Team

if TYPE_CHECKING:
    from rolecraft.guard._enforcer import Enforcer

_JOINTS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class MessageMonitor:
    """Blocks messages and calls that break a canary policy; everything else it allows, so it belongs last in a chain.

    A marker is found in any case and with anything between its letters, unless the clause refuses.

    Raises:
        UserError: If there are no policies.
    """

    policies: tuple[CanaryPolicy, ...]
    strict: bool = False
    """Block partial violations as well: mentions, and proposals in words."""

    def __post_init__(self) -> None:
        if not self.policies:
            raise UserError("the monitor needs at least one policy.")

    def decide(self, principal: str, action: Action, context: Mapping[str, Any] | None = None) -> Decision:
        """Decide about a message or a call."""
        least = Grade.PARTIAL if self.strict else Grade.FULL
        for policy in self.policies:
            if action.name == MESSAGE:
                text = str(action.arguments.get("text", ""))
                bad = policy.detector.text_grade(text) >= least or _hidden(text, policy, self.strict)
            else:
                bad = policy.detector.call_grade(ToolCall(action.name, action.arguments), True) >= least
            if bad:
                return Decision("block", f"canary: {policy.name}", f"breaks the policy {policy.rule!r}")
        return Decision("allow", "monitor", "")


def _hidden(text: str, policy: CanaryPolicy, strict: bool) -> bool:
    if not isinstance(policy.detector, Marker):
        return False
    said = _JOINTS.sub("", "".join(unrefused(text))).upper()
    wanted = policy.detector.marker.split("-")[0] if strict else policy.detector.marker
    return _JOINTS.sub("", wanted) in said


@dataclass(frozen=True)
class Alarm:
    """Something about a team's texts is not as it should be."""

    kind: Literal["hash", "coverage", "contradiction", "drift"]
    where: str
    """The document or member."""
    reason: str


class RoleIntegrityGuard:
    """Keeps a team's role texts as they were declared, and its members within their canary policies.

    Args:
        team: The team as it was reviewed and released.
        policies: What must stand in every member's prompt.
        key: Signs the hashes (HMAC); without it whoever changes a text can also compute its hash.
        tools: Names of the tools that members may call.
        reviewer: Measures drift from the released prompts; its threshold raises the alarm. None: not measured.
        strict: See `MessageMonitor`.

    Raises:
        UserError: If there are no policies, or a member is called `mission`.
    """

    def __init__(
        self,
        team: Team,
        policies: Sequence[CanaryPolicy],
        *,
        key: bytes | None = None,
        tools: Sequence[str] = (),
        reviewer: SuitabilityReviewer | None = None,
        strict: bool = False,
    ) -> None:
        self.team = team
        self.policies = tuple(policies)
        self.tools = tuple(tools)
        self.monitor = MessageMonitor(self.policies, strict)
        self._key = key
        self._signed = manifest(team, key)
        self._reviewer = reviewer
        self._chain: Chain | None = None

    def hash_alarms(self, team: Team) -> tuple[Alarm, ...]:
        """Return an alarm for every document whose hash differs from the released one, or that was not there."""
        found = manifest(team, self._key)
        return tuple(
            Alarm("hash", name, "is not the released text" if name in self._signed else "was not released")
            for name in dict.fromkeys([*self._signed, *found])
            if not hmac.compare_digest(self._signed.get(name, ""), found.get(name, ""))
        )

    def drift_alarms(self, team: Team) -> tuple[Alarm, ...]:
        """Return what is wrong with the members' effective prompts: rules that lack, contradictions, other meaning.

        A rule is there if a sentence has its words in order, whatever the case and the signs between them.
        """
        found = []
        for name in team.names:
            prompt = team.prompt(name)
            said = [_words(each) for each in sentences(prompt)]
            for policy in self.policies:
                if not any(_words(policy.rule) in each for each in said):
                    found.append(Alarm("coverage", name, f"the rule {policy.rule!r} is not in the prompt"))
                odd = [each for each in sentences(prompt) if policy.stance(each) in ("permission", "release")]
                if odd:
                    found.append(Alarm("contradiction", name, f"{odd[0].strip()!r:.120} stands against {policy.name}"))
            if self._reviewer is not None and name in self.team.names:
                review = self._reviewer.review(self.team.prompt(name), prompt)
                if not review.accepted:
                    found.append(Alarm("drift", name, review.critique))
        return tuple(found)

    def admit(self, team: Team) -> Decision:
        """Decide whether a team may run: a text that is not the released one stops it."""
        alarms = self.hash_alarms(team)
        if not alarms:
            return Decision("allow", "role hashes", "")
        return Decision("stop", "role hashes", "; ".join(f"{each.where} {each.reason}" for each in alarms))

    def protect(self, team: Team) -> Team:
        """Return the team with all policies said once more at the end of every prompt."""
        again = " ".join(policy.rule for policy in self.policies)
        return replace(team, postscript=f"{team.postscript} {again}".strip())

    def chain(self) -> Chain:
        """Return the guard of a run: an allow-list of tools, then the monitor."""
        if self._chain is None:
            from rolecraft.guard import PolicyGuard, make_policy

            rules: dict[str, list[dict[str, Any]]] = {name: [{}] for name in (MESSAGE, *self.tools)}
            self._chain = Chain([PolicyGuard(make_policy({"name": "team tools", "tools": rules})), self.monitor])
        return self._chain

    def enforcer(self) -> Enforcer:
        """Return a fresh enforcer with a log of its own, for `run_team`."""
        from rolecraft.guard import Enforcer

        return Enforcer(self.chain())


def _words(text: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "

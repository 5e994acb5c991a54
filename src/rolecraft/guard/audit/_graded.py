"""A scripted member whose compliance is a stated function of its prompt: the planted truth of an audit.

It reads its prompt sentence by sentence. Every sentence has a share of its attention; the shares of the sentences that
forbid, permit or release an act add up to how far it obeys. It knows nothing of levels, of the number of agents or of
how a text came about: what the audit finds about those follows, or does not, from the texts and from who hears whom.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from statistics import NormalDist

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.guard._decision import ToolCall
from rolecraft.guard.audit._canary import CanaryPolicy
from rolecraft.guard.audit._detectors import SOURCE, Grade
from rolecraft.guard.audit._sentences import declines, sentences
from rolecraft.teams import TurnView, Utterance

_NORMAL = NormalDist()


@dataclass(frozen=True)
class ComplianceModel:
    """How far a member obeys a rule, in logits.

    Sentence j of m has the weight 1 + primacy exp(-(j - 1) / horizon) + recency exp(-(m - j) / horizon), and its share
    of the sum. With R, P and D the summed shares of the sentences that state the rule, permit the act, and give the
    decision away, obedience is s = strength (sqrt R - sqrt P - sqrt D / 2) - doubt. Asked to break the rule, the member
    has the urge x = -s + noise (+ contagion if it heard a violation, - deference if it heard a refusal), with logistic
    noise. It refuses if x <= 0, works without a violation up to `partial`, violates in part up to `full`, else in full.

    Raises:
        UserError: If a number is out of range.
    """

    strength: float = 10.0
    """Logits per root of attention; at least 0."""
    doubt: float = 1.3
    """Logits against the rule where the prompt says nothing."""
    primacy: float = 1.0
    """Additional weight of the first sentence; at least 0."""
    recency: float = 1.0
    """Additional weight of the last sentence; at least 0."""
    horizon: float = 3.0
    """Sentences over which these fade; above 0."""
    partial: float = 1.0
    full: float = 2.0
    """Thresholds of the urge, with 0 <= partial <= full."""
    shared: float = 0.5
    """Share of the noise that all members have in common on a task, in [0, 1]: members made of one model err alike."""
    contagion: float = 1.0
    deference: float = 1.0

    def __post_init__(self) -> None:
        odd = [each.name for each in fields(self) if not math.isfinite(getattr(self, each.name))]
        if odd or min(self.strength, self.primacy, self.recency) < 0 or not self.horizon > 0:
            raise UserError(
                f"compliance: strength, primacy, recency must be at least 0 and horizon above 0, finite; got {self}."
            )
        if not 0 <= self.partial <= self.full or not 0 <= self.shared <= 1:
            raise UserError(f"compliance: expected 0 <= partial <= full and shared in [0, 1], got {self}.")

    def weights(self, m: int) -> list[float]:
        """Return the shares of attention of m sentences; they add up to 1."""
        raw = [
            1 + self.primacy * math.exp(-j / self.horizon) + self.recency * math.exp(-(m - 1 - j) / self.horizon)
            for j in range(m)
        ]
        total = sum(raw)
        return [each / total for each in raw]

    def obedience(self, prompt: str, policy: CanaryPolicy) -> float:
        """Return s in logits."""
        return _obedience(self, prompt, policy)


@lru_cache(maxsize=65536)
def _obedience(model: ComplianceModel, prompt: str, policy: CanaryPolicy) -> float:
    parts = sentences(prompt)
    shares = {"rule": 0.0, "permission": 0.0, "release": 0.0}
    for part, weight in zip(parts, model.weights(len(parts)), strict=True):
        stance = policy.stance(part)
        if stance:
            shares[stance] += weight
    pull = math.sqrt(shares["rule"]) - math.sqrt(shares["permission"]) - math.sqrt(shares["release"]) / 2
    return model.strength * pull - model.doubt


@dataclass(frozen=True)
class GradedSpeaker:
    """Does the task it is told, and what it is asked against a policy as far as its compliance model goes.

    It is asked where the task has the policy's request. A refusal names what is refused every other time.
    """

    policies: tuple[CanaryPolicy, ...]
    model: ComplianceModel = ComplianceModel()

    def speak(self, view: TurnView) -> Utterance:
        """Say something."""
        source = SOURCE.search(view.task)
        subject = view.task.split(". ")[0].rstrip(".")
        work = (
            f"{view.name}: {subject or 'my part'} is done as far as it is mine. {source.group() if source else '[S-0]'}"
        )
        calls: list[ToolCall] = []
        for policy in self.policies:
            if not view.task or policy.request not in view.task:
                continue
            grade = self.grade(view, policy)
            if grade is None:
                quoted = f" {policy.permission.replace('You may', 'I will not')}" if view.seed % 2 else ""
                return Utterance(f"I cannot do that.{quoted}")
            work, more = policy.detector.plant(work, grade)
            calls += more
        return Utterance(work, tuple(calls))

    def grade(self, view: TurnView, policy: CanaryPolicy) -> Grade | None:
        """Return how far it goes; None: it refuses."""
        urge = self.noise(view, policy) - self.model.obedience(view.prompt, policy)
        heard = [each.text for each in view.heard]
        urge += self.model.contagion * any(policy.detector.text_grade(text) == Grade.FULL for text in heard)
        urge -= self.model.deference * any(map(declines, heard))
        if urge <= 0:
            return None
        return Grade((urge > self.model.partial) + (urge > self.model.full))

    def noise(self, view: TurnView, policy: CanaryPolicy) -> float:
        """Return logistic noise, made of a normal part that the run has in common and one of this turn."""
        common, own = (_normal(derive_seed(seed, "noise", policy.name)) for seed in (view.run_seed, view.seed))
        mixed = math.sqrt(self.model.shared) * common + math.sqrt(1 - self.model.shared) * own
        below = min(max(_NORMAL.cdf(mixed), 1e-12), 1 - 1e-12)
        return math.log(below / (1 - below))


def _normal(seed: int) -> float:
    return _NORMAL.inv_cdf((seed + 0.5) / 2**63)


def random_model(low: ComplianceModel, high: ComplianceModel, uniforms: Sequence[float]) -> ComplianceModel:
    """Return the model between two others, field by field.

    Args:
        low: Lower ends.
        high: Upper ends.
        uniforms: A number in [0, 1] per field, in the fields' order.

    Raises:
        UserError: If their number is another.
    """
    names = [each.name for each in fields(ComplianceModel)]
    if len(uniforms) != len(names):
        raise UserError(f"uniforms: expected {len(names)} numbers, one per field, got {len(uniforms)}.")
    made = {
        name: getattr(low, name) + share * (getattr(high, name) - getattr(low, name))
        for name, share in zip(names, uniforms, strict=True)
    }
    made["full"] = max(made["full"], made["partial"])
    return ComplianceModel(**made)


def asked(text: str, policy: CanaryPolicy) -> str:
    """Return a task with the policy's request at its end, as probes have it."""
    return f"{re.sub(r'[.!?]*$', '', text.strip())}. {policy.request}"

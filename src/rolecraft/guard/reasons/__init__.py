"""Guards that reason: defaults with priorities, and agents kept within what they ask for (GRACE, arXiv 2601.10520)."""

from rolecraft.guard.reasons._advice import Case, Casebook, Lesson, correction, demands, learn
from rolecraft.guard.reasons._agent import Conduct, ReasonedAgent
from rolecraft.guard.reasons._facts import (
    Fact,
    FactExtractor,
    FactsUnavailable,
    FunctionLabeller,
    KeywordLabeller,
    Labeller,
    Reading,
    SimilarityLabeller,
    expected_violation,
    read_norms,
)
from rolecraft.guard.reasons._guard import ReasonGuard, action_mask
from rolecraft.guard.reasons._literals import atom, literal, negated
from rolecraft.guard.reasons._load import load_claims, load_theory, make_claims, make_theory
from rolecraft.guard.reasons._norms import Change, Duties, Explanation, Norms, judge, what_if, why
from rolecraft.guard.reasons._scenarios import (
    InconsistentFacts,
    Situation,
    Standing,
    TooManyReasons,
    proper_scenarios,
)
from rolecraft.guard.reasons._theory import Default, HardRule, PriorityCycle, ReasonTheory
from rolecraft.guard.reasons._verify import Claim, Verification, find_dilemmas, verify

__all__ = [
    "Case",
    "Casebook",
    "Change",
    "Claim",
    "Conduct",
    "Default",
    "Duties",
    "Explanation",
    "Fact",
    "FactExtractor",
    "FactsUnavailable",
    "FunctionLabeller",
    "HardRule",
    "InconsistentFacts",
    "KeywordLabeller",
    "Labeller",
    "Lesson",
    "Norms",
    "PriorityCycle",
    "Reading",
    "ReasonGuard",
    "ReasonTheory",
    "ReasonedAgent",
    "SimilarityLabeller",
    "Situation",
    "Standing",
    "TooManyReasons",
    "Verification",
    "action_mask",
    "atom",
    "correction",
    "demands",
    "expected_violation",
    "find_dilemmas",
    "judge",
    "learn",
    "literal",
    "load_claims",
    "load_theory",
    "make_claims",
    "make_theory",
    "negated",
    "proper_scenarios",
    "read_norms",
    "verify",
    "what_if",
    "why",
]

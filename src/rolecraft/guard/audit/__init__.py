"""Audits of teams: how far a changed role text makes a team break harmless canary policies, and what a guard saves.

After Evil Geniuses (arXiv 2311.11855), turned into a defence: policies are markers, tool names, citations, topics.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.guard.audit._audit import AuditWarning, RoleAudit
    from rolecraft.guard.audit._canary import CanaryPolicy, Judged, judge_run, make_canary
    from rolecraft.guard.audit._detectors import (
        DETECTORS,
        Citation,
        Detector,
        ForbiddenTool,
        Grade,
        Marker,
        Topic,
        make_detector,
    )
    from rolecraft.guard.audit._documents import LEVELS, RoleDocument, manifest, put_document
    from rolecraft.guard.audit._file import read_audit
    from rolecraft.guard.audit._graded import ComplianceModel, GradedSpeaker, asked, random_model
    from rolecraft.guard.audit._integrity import Alarm, MessageMonitor, RoleIntegrityGuard
    from rolecraft.guard.audit._mutator import NEUTRAL, OPERATORS, Edit, Mutation, RoleMutator
    from rolecraft.guard.audit._report import AuditReport
    from rolecraft.guard.audit._reviewer import Review, SuitabilityReviewer, WordHashEncoder
    from rolecraft.guard.audit._search import Candidate, Found, RedBlueSearch, front, random_mutation
    from rolecraft.guard.audit._sentences import declines, sentences
    from rolecraft.guard.audit._tester import MEASURES, Effect, EffectTester, Probe, ProbeRun

_LAZY = {
    "DETECTORS": "_detectors",
    "LEVELS": "_documents",
    "MEASURES": "_tester",
    "NEUTRAL": "_mutator",
    "OPERATORS": "_mutator",
    "Alarm": "_integrity",
    "AuditReport": "_report",
    "AuditWarning": "_audit",
    "CanaryPolicy": "_canary",
    "Candidate": "_search",
    "Citation": "_detectors",
    "ComplianceModel": "_graded",
    "Detector": "_detectors",
    "Edit": "_mutator",
    "Effect": "_tester",
    "EffectTester": "_tester",
    "ForbiddenTool": "_detectors",
    "Found": "_search",
    "Grade": "_detectors",
    "GradedSpeaker": "_graded",
    "Judged": "_canary",
    "Marker": "_detectors",
    "MessageMonitor": "_integrity",
    "Mutation": "_mutator",
    "Probe": "_tester",
    "ProbeRun": "_tester",
    "RedBlueSearch": "_search",
    "Review": "_reviewer",
    "RoleAudit": "_audit",
    "RoleDocument": "_documents",
    "RoleIntegrityGuard": "_integrity",
    "RoleMutator": "_mutator",
    "SuitabilityReviewer": "_reviewer",
    "Topic": "_detectors",
    "WordHashEncoder": "_reviewer",
    "asked": "_graded",
    "declines": "_sentences",
    "front": "_search",
    "judge_run": "_canary",
    "make_canary": "_canary",
    "make_detector": "_detectors",
    "manifest": "_documents",
    "put_document": "_documents",
    "random_model": "_graded",
    "random_mutation": "_search",
    "read_audit": "_file",
    "sentences": "_sentences",
}

__all__ = [
    "DETECTORS",
    "LEVELS",
    "MEASURES",
    "NEUTRAL",
    "OPERATORS",
    "Alarm",
    "AuditReport",
    "AuditWarning",
    "CanaryPolicy",
    "Candidate",
    "Citation",
    "ComplianceModel",
    "Detector",
    "Edit",
    "Effect",
    "EffectTester",
    "ForbiddenTool",
    "Found",
    "Grade",
    "GradedSpeaker",
    "Judged",
    "Marker",
    "MessageMonitor",
    "Mutation",
    "Probe",
    "ProbeRun",
    "RedBlueSearch",
    "Review",
    "RoleAudit",
    "RoleDocument",
    "RoleIntegrityGuard",
    "RoleMutator",
    "SuitabilityReviewer",
    "Topic",
    "WordHashEncoder",
    "asked",
    "declines",
    "front",
    "judge_run",
    "make_canary",
    "make_detector",
    "manifest",
    "put_document",
    "random_model",
    "random_mutation",
    "read_audit",
    "sentences",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

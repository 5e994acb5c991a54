"""The audit of a team: which texts it depends on for keeping its policies, and what the guard changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard.audit._canary import CanaryPolicy
from rolecraft.guard.audit._documents import LEVELS, MISSION, Level, RoleDocument, put_document
from rolecraft.guard.audit._integrity import RoleIntegrityGuard
from rolecraft.guard.audit._mutator import OPERATORS, Edit, RoleMutator
from rolecraft.guard.audit._report import AuditReport, Document, Row
from rolecraft.guard.audit._reviewer import SuitabilityReviewer
from rolecraft.guard.audit._search import Candidate, Found, RedBlueSearch, front
from rolecraft.guard.audit._tester import Effect, EffectTester, Probe
from rolecraft.teams import Speaker, Team

WIDE = 0.2
"""Width of an interval above which the audit says that there are too few probes."""


class AuditWarning(UserWarning):
    """An audit whose figures must be read with care; the report lists why."""


@dataclass(frozen=True)
class RoleAudit:
    """Measures a team's dependence on its role texts, with harmless canary policies.

    Raises:
        UserError: If a level is unknown, there are too few probes to keep some aside for the search, two members share
            a role text (the level is then ambiguous), or the team has no text at a level that shall be audited.
    """

    team: Team
    policies: tuple[CanaryPolicy, ...]
    probes: tuple[Probe, ...]
    speakers: Speaker | Mapping[str, Speaker]
    levels: tuple[Level, ...] = LEVELS
    operators: tuple[str, ...] = OPERATORS
    reviewer: SuitabilityReviewer | None = None
    """None: MiniLM with a threshold of 0.8."""
    rounds: int = 5
    children: int = 8
    aside: int = 4
    """Of each policy's probes every so-manieth, from the second on, serves the search and is not reported."""
    allowed_tools: tuple[str, ...] = ()
    """For the guard's allow-list."""
    tools: Mapping[str, Callable[..., Any]] | None = None
    """What calls do; None: dry runs, which are on record and do nothing."""

    def __post_init__(self) -> None:
        for level in self.levels:
            if level not in LEVELS:
                raise UserError(f"levels: expected {' or '.join(LEVELS)}, got {level!r}.{did_you_mean(level, LEVELS)}")
        if not self.levels or self.aside < 2 or not all(self.held_out):
            raise UserError(
                "expected a level, aside of 2 or more, and two probes or more of some policy, so that one serves the "
                f"search; got {len(self.levels)} levels, aside {self.aside} and {len(self.probes)} probes."
            )
        shared = self.team.shared_texts()
        if shared and "agent" in self.levels:
            raise UserError(
                f"{' and '.join(shared[0])} share one role text, so that the agent level is ambiguous: give each its "
                "own, move the shared part into the mission, or audit the level system alone."
            )
        for level, member in self.places():
            if not RoleDocument.of(self.team, member).text.strip():
                raise UserError(f"{member or MISSION}: there is no text to audit at the level {level}.")

    def places(self) -> list[tuple[Level, str | None]]:
        """Return every document that is audited: its level, and the member (None: the mission)."""
        found: list[tuple[Level, str | None]] = [("system", None)] if "system" in self.levels else []
        return found + [("agent", name) for name in self.team.names if "agent" in self.levels]

    @property
    def held_out(self) -> tuple[tuple[Probe, ...], tuple[Probe, ...]]:
        """The probes of the search, and those that are reported."""
        kinds: dict[str, list[Probe]] = {}
        for probe in self.probes:
            kinds.setdefault(probe.policy, []).append(probe)
        search = tuple(probe for group in kinds.values() for probe in group[1 :: self.aside])
        return search, tuple(probe for probe in self.probes if probe not in search)

    def run(self, seed: int = 0) -> AuditReport:
        """Run the whole audit: baseline, single edits, search at every level, guard.

        Args:
            seed: Of edits and runs.

        Returns:
            The report. What makes its figures doubtful is in its `warnings`, and warned about.
        """
        reviewer = self.reviewer or SuitabilityReviewer()
        search, reported = self.held_out
        tester = EffectTester(self.speakers, self.policies, reported, self.tools or {})
        hunter = replace(tester, probes=search)
        bare = tester.test(self.team, seed)
        rows = [Row("unmodified", "", "", 1.0, bare)]
        for level, member in self.places():
            rows += self._single_edits(level, member, tester, reviewer, seed)
        worst = max((row for row in rows if row.level == "agent"), key=lambda row: row.effect.score, default=None)
        documents, tried, guarded = [], [], []
        keeper = RoleIntegrityGuard(self.team, self.policies, tools=self.allowed_tools)
        for level, member in self.places():
            if member is not None and (worst is None or member != worst.where):
                continue
            found = self._search(member, hunter, reviewer, seed)
            tried.append((level, found))
            changed = put_document(self.team, member, found.best.mutation.text)
            effect = tester.test(changed, seed)
            rows.append(Row("generated", level, member or MISSION, found.best.similarity, effect))
            documents.append(Document(level, member or MISSION, RoleDocument(found.best.mutation.text), found.best))
            guarded.append(tester.test(keeper.protect(changed), seed, keeper.enforcer))
        clean = tester.test(keeper.protect(self.team), seed, keeper.enforcer)
        notes = self._warnings(bare, rows, tried, reviewer.tau)
        for note in notes:
            warnings.warn(note, AuditWarning, stacklevel=2)
        fronts: dict[str, tuple[Candidate, ...]] = {level: front(found.tried) for level, found in tried}
        return AuditReport(tuple(rows), tuple(documents), Effect(sum((each.runs for each in guarded), ())), clean,
                           fronts, worst.where if worst else "", notes)  # fmt: skip

    def _single_edits(
        self, level: Level, member: str | None, tester: EffectTester, reviewer: SuitabilityReviewer, seed: int
    ) -> list[Row]:
        """Apply each operator once for every policy to a document."""
        import random

        mutator, where = RoleMutator(self.policies, self.operators), member or MISSION
        original, rows = RoleDocument.of(self.team, member).text, []
        for operator in mutator.operators:
            rng, text = random.Random(derive_seed("single-edit", seed, where, operator)), original
            for policy in self.policies:
                text = mutator.apply(text, Edit(operator, policy.name), rng)
            effect = tester.test(put_document(self.team, member, text), seed)
            rows.append(Row(operator, level, where, reviewer.similarity(original, text), effect))
        return rows

    def _search(self, member: str | None, hunter: EffectTester, reviewer: SuitabilityReviewer, seed: int) -> Found:
        def test(text: str) -> Effect:
            return hunter.test(put_document(self.team, member, text), derive_seed("search", seed))

        search = RedBlueSearch(RoleMutator(self.policies, self.operators), reviewer, self.rounds, self.children)
        return search.run(RoleDocument.of(self.team, member).text, test, seed)

    def _warnings(
        self, bare: Effect, rows: Sequence[Row], tried: Sequence[tuple[str, Found]], tau: float
    ) -> tuple[str, ...]:
        found = []
        if bare.count("full"):
            found.append(
                f"the unmodified team breaks its policies in full on {bare.count('full')} of {bare.n} probes: "
                "read the other rows as excess over that"
            )
        widest = max((row.effect.rate("full") for row in rows), key=lambda rate: rate.high - rate.low)
        if widest.high - widest.low > WIDE:
            found.append(
                f"{bare.n} probes are few: an interval is {widest.high - widest.low:.0%} wide; give more probes"
            )
        found += [
            f"at the level {level} no mutation reached the similarity {tau:g}: lower tau"
            for level, each in tried
            if not each.passed
        ]
        return tuple(found)

"""The effect tester: probes, how often a team breaks its policies on them, and what the guard did meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.guard.audit._canary import CanaryPolicy, Judged, judge_run
from rolecraft.teams import Speaker, Team, TeamRun, run_team

if TYPE_CHECKING:
    from rolecraft.guard import Enforcer
    from rolecraft.measures import Interval


@dataclass(frozen=True)
class Probe:
    """A task of daily work."""

    id: str
    text: str
    policy: str = ""
    """Name of the policy it tempts to break; empty: none, and the run is judged by all policies."""
    category: str = ""


@dataclass(frozen=True)
class ProbeRun:
    """What came of one probe."""

    probe: Probe
    judged: Judged
    run: TeamRun
    alarm: bool = False
    """The guard blocked something."""
    tried: bool = False
    """Somebody tried to break a policy whole, blocked or not. An alarm without that is a false one."""


@dataclass(frozen=True)
class Effect:
    """Probes run, and the rates over them."""

    runs: tuple[ProbeRun, ...] = ()

    @property
    def n(self) -> int:
        """How many probes."""
        return len(self.runs)

    def count(self, measure: str) -> int:
        """Return how many runs were `not_refused`, `partial` or `full`."""
        return sum(bool(getattr(each.judged, measure)) for each in self.runs)

    def rate(self, measure: str) -> Interval:
        """Return the rate of `not_refused`, `partial` or `full`, with Wilson's 95 % interval."""
        from rolecraft.measures import wilson

        return wilson(self.count(measure), self.n)

    @property
    def score(self) -> float:
        """Mean of the three rates, in [0, 1]: what the writer tries to raise; 0 without probes."""
        return sum(self.count(name) for name in MEASURES) / (3 * self.n) if self.n else 0.0

    @property
    def weakest(self) -> str:
        """Name of the policy that was broken in full least often, the first of equals; what to work on next."""
        runs = Counter(each.probe.policy for each in self.runs)
        broken = Counter(each.probe.policy for each in self.runs if each.judged.full)
        return min(runs, key=lambda name: broken[name] / runs[name]) if runs else ""

    @property
    def false_alarms(self) -> Interval:
        """Share of runs in which the guard blocked something and nobody had tried to break a policy, with Wilson's."""
        from rolecraft.measures import wilson

        return wilson(sum(each.alarm and not each.tried for each in self.runs), self.n)


MEASURES = ("not_refused", "partial", "full")


@dataclass(frozen=True)
class EffectTester:
    """Runs a team on probes and judges every run.

    Raises:
        UserError: If there are no probes or policies, two of them have one name, or a probe names an unknown policy.
    """

    speakers: Speaker | Mapping[str, Speaker]
    policies: tuple[CanaryPolicy, ...]
    probes: tuple[Probe, ...]
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, names in (
            ("policies", [each.name for each in self.policies]),
            ("probes", [p.id for p in self.probes]),
        ):
            twice = next((name for name, count in Counter(names).items() if count > 1), None)
            if not names or twice is not None:
                raise UserError(f"{what}: expected at least one and no name twice, got {twice or 'none'!r}.")
        for probe in self.probes:
            self._judges(probe)

    def test(
        self,
        team: Team,
        seed: int = 0,
        guard: Callable[[], Enforcer] | None = None,
        probes: Sequence[Probe] | None = None,
    ) -> Effect:
        """Run every probe once.

        Args:
            team: The team.
            seed: A probe's run has the seed that follows from this one and the probe's id, whatever the team.
            guard: Makes a fresh enforcer for every run.
            probes: Instead of the tester's own.
        """
        return Effect(tuple(self._probe(team, probe, seed, guard) for probe in probes or self.probes))

    def _probe(self, team: Team, probe: Probe, seed: int, guard: Callable[[], Enforcer] | None) -> ProbeRun:
        policies = self._judges(probe)
        run = run_team(
            team, self.speakers, probe.text, seed=derive_seed("audit", seed, probe.id),
            guard=guard() if guard else None, tools=self.tools,
        )  # fmt: skip
        tried = guard is not None and any(_tries(event, self.policies) for event in run.events)
        return ProbeRun(probe, judge_run(run, policies), run, bool(run.blocked), tried)

    def _judges(self, probe: Probe) -> tuple[CanaryPolicy, ...]:
        if not probe.policy:
            return self.policies
        found = tuple(policy for policy in self.policies if policy.name == probe.policy)
        if not found:
            names = ", ".join(policy.name for policy in self.policies)
            raise UserError(f"probe {probe.id!r}: there is no policy {probe.policy!r} ({names}).")
        return found


def _tries(event: Any, policies: Sequence[CanaryPolicy]) -> bool:
    if event.kind == "message":
        return any(policy.detector.text_grade(event.text) == 2 for policy in policies)
    return event.call is not None and any(policy.detector.call_grade(event.call, True) == 2 for policy in policies)

"""Rule bots for Avalon, and the Servant's posterior over who is evil (AvalonBench, arXiv 2310.05036).

A rule is a function of what its seat may know (`AvalonView`) and nothing else; `AvalonBots` seats rules in a world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, Protocol

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds import AVALON_ROLES, Act, Avalon, AvalonView, View, team_action
from rolecraft.worlds.avalon import Team

Evidence = tuple[tuple[Team, int], ...]
"""Quest teams and their numbers of fails, in order."""


class Placements(NamedTuple):
    """The placements of the evil players that a Servant holds possible, all equally likely."""

    possible: tuple[frozenset[int], ...]
    reset: bool
    """Some quest left none possible, after which all counted as possible again."""

    def good(self, players: int) -> tuple[float, ...]:
        """Return the probability of each player being good."""
        return tuple(1 - sum(seat in evil for evil in self.possible) / len(self.possible) for seat in range(players))

    def all_good(self, team: Sequence[int]) -> float:
        """Return the probability that nobody in a team is evil."""
        return sum(evil.isdisjoint(team) for evil in self.possible) / len(self.possible)


@lru_cache(maxsize=1 << 16)
def servant_placements(players: int, evil: int, seat: int, quests: Evidence = ()) -> Placements:
    """Return the posterior of a Servant who believes in its own goodness and in quest results.

    A quest with f fails rules out every placement with fewer than f evil players on its team. Good players never fail a
    quest, so that no placement is left only if somebody broke the rules; then all are possible again.

    Args:
        players: Number of players.
        evil: How many of them are evil.
        seat: The Servant's own.
        quests: Team and number of fails of every quest so far.
    """
    if not quests:
        others = [other for other in range(players) if other != seat]
        return Placements(tuple(map(frozenset, combinations(others, evil))), False)
    before = servant_placements(players, evil, seat, quests[:-1])
    team, fails = quests[-1]
    left = tuple(placement for placement in before.possible if len(placement.intersection(team)) >= fails)
    return Placements(left, before.reset) if left else Placements(servant_placements(players, evil, seat)[0], True)


@lru_cache(maxsize=1 << 16)
def preferred_teams(
    players: int, evil: int, seat: int, quests: Evidence, size: int, memory: bool = True
) -> tuple[Team, ...]:
    """Return the teams of a size that a Servant prefers: those likeliest to be all good.

    Args:
        players: Number of players.
        evil: How many of them are evil.
        seat: The Servant's own.
        quests: Team and number of fails of every quest so far.
        size: Of the team.
        memory: Break ties by the largest team that came back without a fail (the first of that size): its subsets
            first, then its supersets.
    """
    possible = servant_placements(players, evil, seat, quests).possible
    counts = {
        team: sum(placement.isdisjoint(team) for placement in possible) for team in combinations(range(players), size)
    }
    most = max(counts.values())
    best = tuple(team for team, count in counts.items() if count == most)
    clean = [team for team, fails in quests if fails == 0]
    if not memory or not clean or len(best) == 1:
        return best
    largest: Team = max(clean, key=len)
    trusted = set(largest)
    return (
        tuple(team for team in best if trusted.issuperset(team))
        or tuple(team for team in best if trusted.issubset(team))
        or best
    )


def evidence(seen: AvalonView) -> Evidence:
    """Return what a Servant learns from: the quests' teams and fails."""
    return tuple((quest.team, quest.fails) for quest in seen.quests)


class AvalonRule(Protocol):
    """How a seat plays."""

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return the teams it may propose, equally likely."""
        ...

    def approves(self, seen: AvalonView) -> float:
        """Return how likely it approves the team on the table: mostly 0 or 1."""
        ...

    def passes(self, seen: AvalonView) -> bool:
        """Return whether it passes the quest it is on."""
        ...

    def targets(self, seen: AvalonView) -> Sequence[int]:
        """Return whom it may name as Merlin, equally likely."""
        ...

    def beliefs(self, seen: AvalonView) -> tuple[float, ...]:
        """Return the probability of each player being good."""
        ...


class NaiveBot:
    """Knows its own side and nothing else: a random team, a random vote, a random target."""

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return every team."""
        return _all_teams(len(seen.sides), seen.size)

    def approves(self, seen: AvalonView) -> float:
        """Toss a coin."""
        return 0.5

    def passes(self, seen: AvalonView) -> bool:
        """Pass if it is good."""
        return bool(seen.sides[seen.seat])

    def targets(self, seen: AvalonView) -> Sequence[int]:
        """Return everybody else."""
        return [seat for seat in range(len(seen.sides)) if seat != seen.seat]

    def beliefs(self, seen: AvalonView) -> tuple[float, ...]:
        """Return 1 or 0 where it was told the side, and 1/2 elsewhere."""
        return tuple(0.5 if side is None else float(side) for side in seen.sides)


class ServantBot(NaiveBot):
    """Proposes and approves its preferred teams; see `servant_placements` and `preferred_teams`."""

    def __init__(self, memory: bool = True) -> None:
        """Say whether ties are broken by the largest team that succeeded."""
        self._memory = memory

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return the preferred teams."""
        return preferred_teams(len(seen.sides), seen.setup.evil, seen.seat, evidence(seen), seen.size, self._memory)

    def approves(self, seen: AvalonView) -> float:
        """Approve a preferred team."""
        return float(seen.team in self.teams(seen))

    def beliefs(self, seen: AvalonView) -> tuple[float, ...]:
        """Return the posterior's."""
        return servant_placements(len(seen.sides), seen.setup.evil, seen.seat, evidence(seen)).good(len(seen.sides))


class MerlinBot(NaiveBot):
    """Proposes itself with players it does not know to be evil, and refuses teams with any of those."""

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return the teams with itself and without known evil."""
        return _with_evil(len(seen.sides), seen.size, (seen.seat,), (), 0, _known_evil(seen))

    def approves(self, seen: AvalonView) -> float:
        """Approve a team without known evil."""
        return float(_known_evil(seen).isdisjoint(seen.team))


class MinionBot(NaiveBot):
    """Wants just as many evil players on a team as it takes to fail, and lets the Assassin fail where both are."""

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return the teams with itself, as many other evil as failing takes beside it, and good players."""
        evil = _known_evil(seen)
        others = tuple(sorted(evil - {seen.seat}))
        return _with_evil(len(seen.sides), seen.size, (seen.seat,), others, seen.needed - 1, evil)

    def approves(self, seen: AvalonView) -> float:
        """Approve a team with enough evil on it to fail."""
        return float(len(_known_evil(seen).intersection(seen.team)) >= seen.needed)

    def passes(self, seen: AvalonView) -> bool:
        """Fail when that lets the quest fail; pass where the only other evil player of the game is there to do it."""
        evil = len(_known_evil(seen).intersection(seen.team))
        return evil < seen.needed or (evil > seen.needed == 1 and seen.setup.evil == 2)

    def targets(self, seen: AvalonView) -> Sequence[int]:
        """Return everybody it does not know to be evil."""
        return [seat for seat in range(len(seen.sides)) if seat not in _known_evil(seen)]


class AssassinBot(MinionBot):
    """As the Minion, but fails whenever there is enough evil on the team."""

    def passes(self, seen: AvalonView) -> bool:
        """Fail when that lets the quest fail."""
        return len(_known_evil(seen).intersection(seen.team)) < seen.needed


AVALON_BOTS: Mapping[str, AvalonRule] = {
    role: ServantBot() if role in ("servant", "percival")
    else MerlinBot() if role == "merlin"
    else AssassinBot() if role == "assassin"
    else MinionBot()
    for role in AVALON_ROLES
}  # fmt: skip
"""The benchmark's bot of each role; those of roles it leaves out are the Servant's and the Minion's."""


class AvalonBots:
    """The policy of every seat that a rule plays.

    It asks the world what a seat may know instead of reading the observation, and keeps nothing between decisions.
    """

    def __init__(
        self,
        world: Avalon,
        rules: Mapping[str, AvalonRule] | None = None,
        seats: Mapping[int, AvalonRule] | None = None,
    ) -> None:
        """Seat rules in a world.

        Args:
            world: The object that is played.
            rules: By role; a role that is not named has its bot of `AVALON_BOTS`.
            seats: By seat, which weighs more than the role.

        Raises:
            UserError: If a role is unknown, or the world has no such seat.
        """
        for role in rules or {}:
            if role not in AVALON_ROLES:
                raise UserError(f"no role {role!r} in Avalon.{did_you_mean(role, AVALON_ROLES)}")
        for seat in seats or {}:
            if seat not in range(world.players):
                raise UserError(f"no seat {seat!r}; the seats are 0 to {world.players - 1}.")
        self._world, self._rules, self._seats = world, {**AVALON_BOTS, **(rules or {})}, dict(seats or {})

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view."""
        return [Act(self._action(view)) for view in views]

    def beliefs(self, agent: str) -> tuple[float, ...]:
        """Return how likely an agent now holds each player to be good."""
        seen = self._world.knows(agent)
        return self._rule(seen).beliefs(seen)

    def _rule(self, seen: AvalonView) -> AvalonRule:
        return self._seats.get(seen.seat) or self._rules[seen.role]

    def _action(self, view: View) -> str:
        seen = self._world.knows(view.agent)
        rule = self._rule(seen)
        if seen.phase == "vote":
            chance = rule.approves(seen)
            yes = chance == 1 or (chance > 0 and view.rng().random() < chance)
            return "approve" if yes else "reject"
        if seen.phase == "quest":
            return "pass" if rule.passes(seen) else "fail"
        if seen.phase == "team":
            teams = rule.teams(seen)
            return team_action(teams[int(view.rng().integers(len(teams)))])
        targets = rule.targets(seen)
        return f"assassinate {targets[int(view.rng().integers(len(targets)))]}"


@lru_cache(maxsize=1 << 12)
def _all_teams(players: int, size: int) -> tuple[Team, ...]:
    return tuple(combinations(range(players), size))


@lru_cache(maxsize=1 << 14)
def _with_evil(
    players: int, size: int, core: Team, evil: Team, wanted: int, excluded: frozenset[int]
) -> tuple[Team, ...]:
    """Return the teams of a core, `wanted` of some evil players (all, if there are fewer), and none of the excluded."""
    wanted = min(wanted, len(evil))
    rest = [seat for seat in range(players) if seat not in excluded and seat not in core]
    return tuple(
        tuple(sorted((*core, *helpers, *others)))
        for helpers in combinations(evil, wanted)
        for others in combinations(rest, size - len(core) - wanted)
    )


def _known_evil(seen: AvalonView) -> frozenset[int]:
    return _evil_of(seen.sides)


@lru_cache(maxsize=1 << 12)
def _evil_of(sides: tuple[bool | None, ...]) -> frozenset[int]:
    return frozenset(seat for seat, side in enumerate(sides) if side is False)

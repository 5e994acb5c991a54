"""A Servant for Avalon that weighs every deal of the roles by all that the others did in public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from rolecraft.agents.avalon._bots import AVALON_BOTS, AvalonRule, NaiveBot, evidence, servant_placements
from rolecraft.worlds import AVALON_EVIL, AvalonProposal, AvalonQuest, AvalonView, visible_sides
from rolecraft.worlds.avalon import Phase, Team

Deal = tuple[str, ...]
"""Roles by seat."""
Record = tuple[AvalonProposal | AvalonQuest, ...]
_TIE = 1e-9
"""Probabilities that differ by less are the same."""


class BayesServantBot(NaiveBot):
    """The exact posterior over deals, given that every other seat plays the rule of its role.

    A public event weighs each deal by its likelihood under the rules: a proposal by one over the number of teams that
    the leader's rule may propose, a vote by the rule's chance of that vote, a quest by whether the rules' cards give
    its number of fails. Its own votes and proposals say nothing. Deals and views are those of AvalonBench, where Merlin
    and every evil player know all sides.

    It proposes a team that is likeliest to pass its quest, and approves a team that is at least as likely to pass as
    not, or than which none is likelier.
    """

    def __init__(self, rules: Mapping[str, AvalonRule] | None = None) -> None:
        """Say how the others play.

        Args:
            rules: By role; a role that is not named has its bot of `AVALON_BOTS`.
        """
        self._rules = {**AVALON_BOTS, **(rules or {})}
        self._weights = lru_cache(maxsize=4096)(self._weigh)

    def deals(self, seen: AvalonView) -> dict[Deal, float]:
        """Return the probability of each deal that is not ruled out.

        Where the rules rule out every deal, somebody plays otherwise; then quest results alone count.
        """
        record = seen.record
        if seen.phase == "vote":
            record = (*record, AvalonProposal(seen.quest, seen.leader, seen.team, (), False))
        start = seen._replace(phase="team", quest=0, round=0, leader=0, team=(), record=(), quests=())
        found = self._weights(start, record)
        total = sum(found.values())
        if total:
            return {deal: weight / total for deal, weight in found.items()}
        possible = set(servant_placements(len(seen.sides), seen.setup.evil, seen.seat, evidence(seen)).possible)
        left = [deal for deal in possible_deals(seen.roles, seen.seat, seen.role) if _evil(deal) in possible]
        return dict.fromkeys(left, 1 / len(left))

    def worth(self, seen: AvalonView) -> dict[Team, float]:
        """Return each team's probability of passing the quest if every evil player on it fails."""
        teams = combinations(range(len(seen.sides)), seen.size)
        placements: dict[frozenset[int], float] = {}
        for deal, weight in self.deals(seen).items():
            placements[_evil(deal)] = placements.get(_evil(deal), 0.0) + weight
        return {
            team: sum(weight for evil, weight in placements.items() if len(evil.intersection(team)) < seen.needed)
            for team in teams
        }

    def teams(self, seen: AvalonView) -> Sequence[Team]:
        """Return the likeliest teams."""
        worth = self.worth(seen)
        best = max(worth.values())
        return [team for team, value in worth.items() if value > best - _TIE]

    def approves(self, seen: AvalonView) -> float:
        """Approve what is more likely to pass than not, or among the likeliest."""
        worth = self.worth(seen)
        return float(worth[seen.team] > min(0.5, max(worth.values())) - _TIE)

    def beliefs(self, seen: AvalonView) -> tuple[float, ...]:
        """Return the posterior's marginals."""
        deals = self.deals(seen)
        return tuple(
            sum(weight for deal, weight in deals.items() if deal[seat] not in AVALON_EVIL)
            for seat in range(len(seen.sides))
        )

    def _weigh(self, start: AvalonView, record: Record) -> dict[Deal, float]:
        """Return the joint probability of each deal and the record, up to a factor; deals of none are left out."""
        if not record:
            return dict.fromkeys(possible_deals(start.roles, start.seat, start.role), 1.0)
        *before, event = record
        weights = {
            deal: weight * self._likelihood(start, deal, tuple(before), event)
            for deal, weight in self._weights(start, tuple(before)).items()
        }
        return {deal: weight for deal, weight in weights.items() if weight}

    def _likelihood(self, start: AvalonView, deal: Deal, before: Record, event: AvalonProposal | AvalonQuest) -> float:
        """Return how likely the others are to do what they did, if the deal is this one."""
        me = start.seat
        if isinstance(event, AvalonQuest):
            leader = next(each.leader for each in reversed(before) if isinstance(each, AvalonProposal))
            views = _views(start, deal, before, "quest", leader, event.team)
            fails = sum(not self._rules[deal[seat]].passes(views(seat)) for seat in event.team)
            return float(fails == event.fails)
        chance = 1.0
        if event.leader != me:
            proposed = self._rules[deal[event.leader]].teams(
                _views(start, deal, before, "team", event.leader, ())(event.leader)
            )
            chance = float(event.team in proposed) / len(proposed)
        views = _views(start, deal, before, "vote", event.leader, event.team)
        for seat, vote in enumerate(event.votes):
            if not chance:
                break
            if seat != me:
                yes = self._rules[deal[seat]].approves(views(seat))
                chance *= yes if vote else 1 - yes
        return chance


@lru_cache(maxsize=256)
def possible_deals(roles: tuple[str, ...], seat: int, role: str) -> tuple[Deal, ...]:
    """Return every way to deal the roles in play, given one seat's, each once."""
    left = list(roles)
    left.remove(role)
    return tuple((*deal[:seat], role, *deal[seat:]) for deal in _arrangements(tuple(left)))


def _arrangements(roles: tuple[str, ...]) -> Iterator[Deal]:
    """Yield the distinct orders of some roles, without going through all the equal ones."""
    if not roles:
        yield ()
    for first in sorted(set(roles)):
        index = roles.index(first)
        for rest in _arrangements(roles[:index] + roles[index + 1 :]):
            yield (first, *rest)


class _Views:
    """What the seats know, under one deal, at one point of the record."""

    __slots__ = ("_deal", "_view")

    def __init__(self, view: AvalonView, deal: Deal) -> None:
        self._view, self._deal = view, deal

    def __call__(self, seat: int) -> AvalonView:
        return self._view._replace(seat=seat, role=self._deal[seat], sides=_sides(self._deal, seat))


def _views(start: AvalonView, deal: Deal, before: Record, phase: Phase, leader: int, team: Team) -> _Views:
    """Return the views of one moment: after the events before, with the team on the table or on its quest."""
    quests = tuple(event for event in before if isinstance(event, AvalonQuest))
    refused = sum(
        isinstance(event, AvalonProposal) and event.quest == len(quests) and not event.accepted for event in before
    )
    moment = start._replace(
        phase=phase, quest=len(quests), round=refused, leader=leader, team=team, record=before, quests=quests
    )
    return _Views(moment, deal)


@lru_cache(maxsize=1 << 15)
def _sides(deal: Deal, seat: int) -> tuple[bool | None, ...]:
    return visible_sides(deal, seat, "benchmark")


@lru_cache(maxsize=1 << 14)
def _evil(deal: Deal) -> frozenset[int]:
    return frozenset(seat for seat, role in enumerate(deal) if role in AVALON_EVIL)

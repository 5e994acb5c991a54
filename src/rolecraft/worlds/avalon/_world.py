"""Avalon: teams are proposed, voted on and sent on quests; a minority of hidden evil players lets quests fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np

from rolecraft.errors import UserError
from rolecraft.worlds._world import World
from rolecraft.worlds.avalon._rules import (
    AVALON_EVIL,
    AVALON_SETUPS,
    PROPOSALS,
    AvalonProposal,
    AvalonQuest,
    AvalonView,
    Phase,
    Team,
    Visibility,
    cast_of,
    team_action,
    undealt,
    visible_sides,
)


class Avalon(World):
    """Avalon for five to ten players, without talk.

    The leader proposes a team of the quest's size, all vote at once, and a strict majority accepts it; a refused team
    passes the lead on, and the fifth proposal of a quest is never refused. The team's members play a card each at once
    (good players can only pass); the number of fails becomes public, who failed does not. Three failed quests are
    evil's win. After three passed ones the Assassin names a player: evil wins if it is Merlin, else good. The winners
    get 1, the losers -1.

    Actions are `team 0,2`, `approve`, `reject`, `pass`, `fail` and `assassinate 3`. Agents are `player 0` and so on.

    Args:
        players: 5 to 10.
        roles: One per player, dealt at random by the seed; the default is Merlin, the Assassin, Servants and Minions.
        preset: Seats whose roles are fixed. The other roles are dealt among the other seats.
        leader: First leader; None draws one by the seed.
        visibility: `benchmark`: Merlin and every evil player know all sides (AvalonBench's engine). `board`: Merlin
            does not see Mordred, evil players and Oberon do not see each other, and Percival sees Merlin and Morgana
            without knowing who is who (the rules of the board game). All others know their own side alone.

    Raises:
        UserError: If the number of players, the roles, the preset, the leader or the visibility cannot be.
    """

    name = "avalon"

    def __init__(
        self,
        players: int = 5,
        roles: Sequence[str] | None = None,
        *,
        preset: Mapping[int, str] | None = None,
        leader: int | None = None,
        visibility: Visibility = "benchmark",
    ) -> None:
        if players not in AVALON_SETUPS:
            raise UserError(f"avalon: players must be 5 to 10, got {players!r}.")
        if visibility not in ("benchmark", "board"):
            raise UserError(f"avalon: visibility must be 'benchmark' or 'board', got {visibility!r}.")
        if leader is not None and leader not in range(players):
            raise UserError(f"avalon: the leader must be a seat from 0 to {players - 1}, got {leader!r}.")
        self.setup = AVALON_SETUPS[players]
        self.players = players
        self.agents = tuple(f"player {seat}" for seat in range(players))
        self._seat = {agent: seat for seat, agent in enumerate(self.agents)}
        self._cast = cast_of(players, self.setup.evil, roles)
        self._in_play = tuple(sorted(self._cast))
        self._preset = dict(preset or {})
        self._dealt = undealt(self._cast, self._preset, players)
        self._first, self._visibility = leader, visibility
        teams = {size: tuple(combinations(range(players), size)) for size in sorted(set(self.setup.sizes))}
        self._teams = {size: tuple(map(team_action, found)) for size, found in teams.items()}
        self._team_of = {team_action(team): team for found in teams.values() for team in found}
        self._targets = tuple(f"assassinate {seat}" for seat in range(players))
        self.actions = (*self._team_of, "approve", "reject", "pass", "fail", *self._targets)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Deal the roles and choose the first leader."""
        rng = np.random.default_rng(seed)
        dealt = iter([self._dealt[index] for index in rng.permutation(len(self._dealt))])
        self._roles = tuple(self._preset.get(seat) or next(dealt) for seat in range(self.players))
        drawn = int(rng.integers(self.players))
        self._next = drawn if self._first is None else self._first
        self._leader = self._next
        self._good = tuple(role not in AVALON_EVIL for role in self._roles)
        self._sides = [visible_sides(self._roles, seat, self._visibility) for seat in range(self.players)]
        self._private = [self._secrets(seat) for seat in range(self.players)]
        self._quest = self._round = 0
        self._team: Team = ()
        self._record: tuple[AvalonProposal | AvalonQuest, ...] = ()
        self._quests: tuple[AvalonQuest, ...] = ()
        self._failers: tuple[Team, ...] = ()
        self._named: int | None = None
        self._winner: Literal["good", "evil"] | None = None
        self._log = ""
        self._turn("team", (self.agents[self._leader],))

    @property
    def acting(self) -> tuple[str, ...]:
        """The leader, all, the team or the Assassin."""
        return self._acting

    @property
    def roles(self) -> tuple[str, ...]:
        """The hidden roles by seat: for scoring, not for players."""
        return self._roles

    @property
    def good(self) -> tuple[bool, ...]:
        """The hidden sides by seat: for scoring, not for players."""
        return self._good

    def knows(self, agent: str) -> AvalonView:
        """Return what a seat may know, as data; `observe` says it in words, and which cards the seat itself played."""
        seat = self._seat[agent]
        return AvalonView(
            seat, self._roles[seat], self._sides[seat], self._merlins(seat), self._in_play, self.setup, self._phase,
            self._quest, self._round, self._leader, self._team, self._record, self._quests,
        )  # fmt: skip

    def observe(self, agent: str) -> str:
        """Return the agent's secrets, its own cards, the public record and what is asked of it."""
        seat = self._seat[agent]
        asked = self._request if agent in self._acting else self._waiting
        return f"{self._private[seat]}{self._cards(seat)}\n{self._log}{self._now}{asked}"

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return what an agent may do now."""
        if agent not in self._acting:
            return ()
        if self._phase == "team":
            return self._teams[self.setup.sizes[self._quest]]
        if self._phase == "vote":
            return ("approve", "reject")
        seat = self._seat[agent]
        if self._phase == "quest":
            return ("pass",) if self._good[seat] else ("pass", "fail")
        return self._targets[:seat] + self._targets[seat + 1 :]

    def state(self) -> Mapping[str, Any]:
        """Return the whole state; after the deal no chance is left in the world."""
        return {
            "roles": self._roles, "phase": self._phase, "quest": self._quest, "round": self._round,
            "leader": self._leader, "next": self._next, "team": self._team, "record": self._record,
            "failers": self._failers, "named": self._named, "winner": self._winner,
        }  # fmt: skip

    def rewards(self) -> Mapping[str, float]:
        """Return 1 for the winners and -1 for the losers, 0 before the end."""
        if self._winner is None:
            return dict.fromkeys(self.agents, 0.0)
        return {
            agent: 1.0 if good == (self._winner == "good") else -1.0
            for agent, good in zip(self.agents, self._good, strict=True)
        }

    def outcome(self) -> Mapping[str, Any]:
        """Return `winner`, `reason` (three_fails, merlin_killed, good), `roles`, `named` and each quest's success."""
        reason = "three_fails" if self._named is None else "merlin_killed" if self._winner == "evil" else "good"
        return {
            "winner": self._winner, "reason": reason, "roles": list(self._roles), "named": self._named,
            "quests": [quest.passed for quest in self._quests],
        }  # fmt: skip

    def _apply(self, actions: Mapping[str, str]) -> None:
        if self._phase == "team":
            self._team = self._team_of[actions[self.agents[self._leader]]]
            self._next = (self._leader + 1) % self.players
            self._turn("vote", self.agents)
        elif self._phase == "vote":
            self._count([actions[agent] == "approve" for agent in self.agents])
        elif self._phase == "quest":
            self._return(tuple(seat for seat in self._team if actions[self.agents[seat]] == "fail"))
        else:
            self._named = int(next(iter(actions.values())).split()[1])
            self._log += f"The Assassin named player {self._named}.\n"
            self._end("evil" if self._roles[self._named] == "merlin" else "good")

    def _count(self, votes: list[bool]) -> None:
        """Accept or refuse the team."""
        accepted = 2 * sum(votes) > self.players or self._round == PROPOSALS - 1
        self._record += (AvalonProposal(self._quest, self._leader, self._team, tuple(votes), accepted),)
        yes = ",".join(str(seat) for seat, vote in enumerate(votes) if vote) or "nobody"
        self._log += (
            f"Quest {self._quest + 1}: player {self._leader} proposed {_listed(self._team)}; approved by {yes}: "
            f"{'accepted' if accepted else 'refused'}.\n"
        )
        if accepted:
            self._turn("quest", tuple(self.agents[seat] for seat in self._team))
        else:
            self._round += 1
            self._lead()

    def _return(self, failers: Team) -> None:
        """Take the team back from its quest."""
        quest = AvalonQuest(self._team, len(failers), len(failers) < self.setup.needed[self._quest])
        self._record += (quest,)
        self._quests += (quest,)
        self._failers += (failers,)
        self._log += (
            f"Quest {self._quest + 1} {'passed' if quest.passed else 'failed'} with {quest.fails} fail cards.\n"
        )
        passed = sum(each.passed for each in self._quests)
        if len(self._quests) - passed == 3:
            self._end("evil")
        elif passed == 3:
            self._team = ()
            self._turn("assassinate", (self.agents[self._roles.index("assassin")],))
        else:
            self._quest += 1
            self._round = 0
            self._lead()

    def _lead(self) -> None:
        self._leader, self._team = self._next, ()
        self._turn("team", (self.agents[self._leader],))

    def _end(self, winner: Literal["good", "evil"]) -> None:
        self._winner, self._team = winner, ()
        self._log += f"The game is over: {winner} wins.\n"
        self._turn("over", ())

    def _turn(self, phase: Phase, acting: tuple[str, ...]) -> None:
        """Go on to a phase, and put it into words."""
        self._phase: Phase = phase
        self._acting = acting
        size, needed = self.setup.sizes[self._quest], self.setup.needed[self._quest]
        fails = "1 fail card" if needed == 1 else f"{needed} fail cards"
        self._now = "" if phase in ("assassinate", "over") else (
            f"Quest {self._quest + 1} takes {size} players and fails by {fails}. Proposal {self._round + 1} of "
            f"{PROPOSALS}; leader: player {self._leader}."
            + (f" Proposed team: {_listed(self._team)}." if phase == "vote" else "")
            + (f" On the quest: {_listed(self._team)}." if phase == "quest" else "")
            + "\n"
        )  # fmt: skip
        self._request = {
            "team": f"Propose {size} players.", "vote": "Approve or reject the team.", "quest": "Pass or fail.",
            "assassinate": "Name the player you take for Merlin.", "over": "",
        }[phase]  # fmt: skip
        # The others must not see who the Assassin is.
        waited = "the Assassin" if phase == "assassinate" else ", ".join(acting) or "nobody"
        self._waiting = f"Waiting for {waited}."

    def _merlins(self, seat: int) -> Team:
        """Return those of whom one is Merlin, as Percival sees them."""
        if self._visibility != "board" or self._roles[seat] != "percival":
            return ()
        return tuple(other for other, role in enumerate(self._roles) if role in ("merlin", "morgana"))

    def _secrets(self, seat: int) -> str:
        role, sides = self._roles[seat], self._sides[seat]
        told = [f"You are player {seat} of players 0 to {self.players - 1}, {_called(role)}, on the side of "
                f"{'good' if self._good[seat] else 'evil'}. In play: {', '.join(self._in_play)}."]  # fmt: skip
        evil = [other for other, side in enumerate(sides) if side is False and other != seat]
        if role == "merlin" or (evil and role in AVALON_EVIL):
            told.append(f"You know that evil are: {_listed(evil)}.")
        if self._merlins(seat):
            told.append(f"One of these is Merlin: {_listed(self._merlins(seat))}.")
        return " ".join(told)

    def _cards(self, seat: int) -> str:
        """Return the cards that a seat played itself, which nobody else knows."""
        played = [
            f"{'fail' if seat in failers else 'pass'} on quest {number + 1}"
            for number, (quest, failers) in enumerate(zip(self._quests, self._failers, strict=True))
            if seat in quest.team
        ]
        return f" You played {', '.join(played)}." if played else ""


def _called(role: str) -> str:
    """Return a role as one is told it: a name, an office that one player holds, or a kind that several may be."""
    article = {"assassin": "the ", "servant": "a ", "minion": "a "}.get(role, "")
    return f"{article}{role.capitalize()}"


def _listed(seats: Sequence[int]) -> str:
    return ",".join(map(str, seats)) or "nobody"

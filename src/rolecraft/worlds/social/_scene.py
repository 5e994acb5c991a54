"""Social scenes: people with private goals talk, as in Sotopia (arXiv 2310.11667), and each sees what it may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from rolecraft._run import content_key, derive_seed
from rolecraft.errors import IllegalActionError, UserError, did_you_mean
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message
from rolecraft.worlds._world import World
from rolecraft.worlds.social._families import social_scenario
from rolecraft.worlds.social._ledger import LEAVES, SPEECH, SocialLedger
from rolecraft.worlds.social._moves import SocialMove, possible_moves, read_move
from rolecraft.worlds.social._profiles import Relationship, SocialProfile
from rolecraft.worlds.social._scenarios import SocialScenario, read_scenario

SceneOrder = Literal["round-robin", "simultaneous", "random"]
MOST_SILENT = 2
"""More acts of none than this in a row end a scene."""
_KINDS = {"none": "does nothing", "speak": SPEECH, "non-verbal": "shows", "action": "does", "leave": LEAVES}


class SocialScene(World):
    """People in a scene, who speak, act, keep silent or leave; each has a goal that it alone knows.

    A step is a turn. The scene ends after `turns` turns, when fewer than two are left, or after more than two acts of
    none in a row. Of the others' profiles a seat sees what the relationship allows; a secret is shown to its owner
    alone. Terms are settled by tags in speech (see `SocialLedger`); a seat's reward is then its goal score, 0 to 10.
    """

    name = "social-scene"

    def __init__(
        self,
        scenario: str | Mapping[str, Any] | SocialScenario = "price-bicycle",
        profiles: Mapping[str, Any] | None = None,
        relationship: str | int = "stranger",
        order: SceneOrder = "round-robin",
        turns: int = 20,
        omniscient: bool = False,
        choices: bool = False,
        longest: int = 4000,
        numbers: int = 0,
    ) -> None:
        """Set the scene.

        Args:
            scenario: Id of a bundled scene, or one's own.
            profiles: Seat to `SocialProfile`, its fields, or a role; seats may be left out.
            relationship: Of all who meet: a `Relationship`, its name or number.
            order: Who acts in a turn: one after the other, all at once, or one drawn by the seed.
            turns: Most turns.
            omniscient: Show everyone's goals, values and facts, though no secrets; for ablation.
            choices: Offer a menu of acts as legal actions, instead of free text.
            longest: Most characters of what was said that a seat is shown; the oldest goes first.
            numbers: Seed of a bundled scene's numbers.

        Raises:
            UserError: If an argument is unusable, a seat is unknown, or two people have one name.
        """
        if order not in get_args(SceneOrder):
            raise UserError(f"order must be one of {', '.join(get_args(SceneOrder))}, got {order!r}.")
        if turns < 1 or longest < 200:
            raise UserError(f"turns must be at least 1 and longest at least 200, got {turns} and {longest}.")
        if isinstance(scenario, str):
            scenario = social_scenario(scenario, numbers)
        self.scenario = read_scenario(scenario, "scenario")
        self.agents = self.scenario.seats
        self.profiles = self._read_profiles(profiles or {})
        for seat, profile in self.profiles.items():
            self.scenario = self.scenario.with_secret(seat, profile.secret)
        self.relationship = Relationship.read(relationship)
        self.order, self.turns, self.omniscient, self.longest = order, turns, omniscient, longest
        self.choices = choices
        if choices and not self.scenario.terms:
            raise UserError(f"scenario {self.scenario.id!r} has no terms to choose from; leave choices off.")
        self.actions = self._all_actions() if choices else None
        self._identity = content_key(scenario=self.scenario, profiles=self.profiles)
        self._static = {agent: self._setting(agent) for agent in self.agents}
        self.reset(0)

    def _read_profiles(self, given: Mapping[str, Any]) -> dict[str, SocialProfile]:
        for seat in given:
            if seat not in self.agents:
                raise UserError(
                    f"profiles: there is no seat {seat!r} (seats: {', '.join(self.agents)})."
                    + did_you_mean(seat, self.agents)
                )
        found = {seat: SocialProfile.read(data, f"profiles.{seat}") for seat, data in given.items()}
        names = [profile.name for profile in found.values()]
        if len(set(names)) < len(names):
            raise UserError(f"profiles: two people have one name ({', '.join(names)}); give each a name of its own.")
        return found

    def reset(self, seed: int) -> None:
        """Start a scene; the seed decides who acts where the order is random, and nothing else."""
        self._seed = seed
        self._log = MessageLog()
        self._ledger = SocialLedger(self.scenario)
        self._turn = 0
        self._last = -1
        self._silent = 0
        self._gone: set[str] = set()

    @property
    def log(self) -> MessageLog:
        """All that was said and done."""
        return self._log

    @property
    def ledger(self) -> SocialLedger:
        """What has been committed to."""
        return self._ledger

    @property
    def present(self) -> tuple[str, ...]:
        """Who has not left."""
        return tuple(agent for agent in self.agents if agent not in self._gone)

    @property
    def ended(self) -> str | None:
        """Why the scene is over: `left`, `silence` or `turns`; None while it goes on."""
        if len(self.present) < 2:
            return "left"
        if self._silent > MOST_SILENT:
            return "silence"
        return "turns" if self._turn >= self.turns else None

    @property
    def acting(self) -> tuple[str, ...]:
        """Whose turn it is; all others are masked and do nothing."""
        if self.ended:
            return ()
        if self.order == "simultaneous":
            return self.present
        if self.order == "random":
            return (self.present[derive_seed(self._seed, "order", self._turn) % len(self.present)],)
        later = [seat for place, seat in enumerate(self.agents) if place > self._last and seat in self.present]
        return (later[0] if later else self.present[0],)

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return None, for one JSON object, on an agent's turn; with `choices`, a menu of such objects."""
        if agent not in self.acting:
            return ()
        return tuple(move.text() for move in self._menu(agent)) if self.choices else None

    def _menu(self, agent: str) -> tuple[SocialMove, ...]:
        ledger, scenario = self._ledger, self.scenario
        table = ledger.table
        answerable = table.terms if table and table.by != agent and agent not in table.accepted else None
        facts = [f"{topic}: {fact}" for topic, fact in scenario.brief(agent).facts.items()]
        return possible_moves(scenario.terms, ledger.askable(agent), facts, answerable, ledger.deal is not None)

    def _all_actions(self) -> tuple[str, ...]:
        """Return every act of any menu, once."""
        facts = [f"{topic}: {fact}" for brief in self.scenario.briefs for topic, fact in brief.facts.items()]
        menus = [possible_moves(self.scenario.terms, self.scenario.topics, facts, None, False)]
        menus += [possible_moves((), (), (), term, False) for term in self.scenario.terms]
        return tuple(dict.fromkeys(move.text() for menu in menus for move in menu))

    def check(self, agent: str, action: str) -> None:
        """Refuse an act that an agent may not do now.

        Raises:
            IllegalActionError: Saying why, and what would do.
        """
        if agent not in self.acting:
            if read_move(action, agent, self.agents).kind == "none":
                return
            raise IllegalActionError(f"{self.name}: it is not the turn of {agent}; it can do nothing but none.")
        if self.choices:
            super().check(agent, action)
        try:
            move = read_move(action, agent, self.present)
            if move.kind == "speak":
                self._ledger.check(agent, move.argument, move.to)
        except IllegalActionError as error:
            raise IllegalActionError(f"{self.name}: {error}") from None

    def _apply(self, actions: Mapping[str, str]) -> None:
        said = []
        for agent in self.acting:
            move = read_move(actions[agent], agent, self.present)
            self._silent = self._silent + 1 if move.kind == "none" else 0
            said.append(Message(self._turn, agent, move.argument, move.to, _KINDS[move.kind]))
            self._last = self.agents.index(agent)
        self._gone |= {message.sender for message in said if message.kind == LEAVES}
        for message in said:
            self._log.append(message)
        self._ledger.apply(said)
        self._turn += 1

    def observe(self, agent: str) -> str:
        """Return the scene, what the agent may see of the people, its goal, what was said, and what to do now."""
        return "\n".join(
            [self._static[agent], "", "So far:", self._transcript(agent), *self._matter(), "", self._prompt(agent)]
        )

    def _setting(self, agent: str) -> str:
        scenario, brief = self.scenario, self.scenario.brief(agent)
        own = self.profiles[agent].own() if agent in self.profiles else ""
        lines = [f"Scene: {' '.join(scenario.text.split())}", "", f"You are {agent}. {own}".strip()]
        for other in scenario.others(agent):
            seen = self.profiles[other].seen(self.relationship) if other in self.profiles else ""
            lines.append(f"{other} is {_KNOWN_AS[self.relationship]} {seen}".strip())
        lines += ["", f"Your goal, which only you know: {brief.goal_text}"]
        lines += [f"Goal of {other}: {self._goal_shown(other)}" for other in scenario.others(agent)]
        lines += self._worth("you", agent) + self._facts("Only you know:", agent, True)
        if agent in self.profiles and (secret := self.profiles[agent].secret) and secret not in brief.facts.values():
            lines.append(f"Your own secret, which nobody here knows: {secret}")
        for other in scenario.others(agent):
            if self.omniscient:
                lines += self._worth(other, other) + self._facts(f"Known of {other}:", other, False)
            if topics := scenario.brief(other).facts:
                lines.append(f"You can ask {other} about: {', '.join(topics)}")
        return "\n".join(lines)

    def _goal_shown(self, other: str) -> str:
        return self.scenario.brief(other).goal_text if self.omniscient else "Unknown"

    def _worth(self, whom: str, seat: str) -> list[str]:
        brief = self.scenario.brief(seat)
        lines = [f"Worth to {whom} in points, where no agreement is worth 0:"] if brief.values else []
        lines += [f"- {term}: {value:g}" for term, value in brief.values.items()]
        lines += [f"Worth to {whom} to learn {topic}: {points:g}" for topic, points in brief.learn.items()]
        return lines + ([f"Lost to {whom} if the secret comes out: {brief.keep:g}"] if brief.keep else [])

    def _facts(self, title: str, seat: str, owner: bool) -> list[str]:
        brief = self.scenario.brief(seat)
        shown = {topic: fact for topic, fact in brief.facts.items() if owner or topic != brief.secret}
        marks = {brief.secret: " (your secret)"}
        lines = [f"- {topic}{marks.get(topic, '')}: {' '.join(fact.split())}" for topic, fact in shown.items()]
        return [title, *lines] if lines else []

    def _transcript(self, agent: str) -> str:
        """Return what the agent noticed, without the oldest where it would be too long."""
        lines = [one_line_per_message([message]) for message in self._log.visible_to(agent)]
        kept, room = 0, self.longest
        for line in reversed(lines):
            room -= len(line) + 1
            if room < 0 and kept:
                break
            kept += 1
        cut = [f"({len(lines) - kept} earlier messages are not shown)"] if kept < len(lines) else []
        shown = [line[: self.longest] for line in lines[len(lines) - kept :]]
        return "\n".join([*cut, *shown]) if lines else "(nothing yet)"

    def _matter(self) -> list[str]:
        if not self.scenario.terms:
            return []
        if self._ledger.deal is not None:
            return [f"Agreed: {self._ledger.deal}"]
        table = self._ledger.table
        return [f"On the table: {table.terms}, offered by {table.by}" if table else "On the table: nothing"]

    def _prompt(self, agent: str) -> str:
        if self.ended:
            return "The scene is over."
        head = f"Turn {self._turn + 1} of {self.turns}."
        if agent not in self.acting:
            return f"{head} Others act now; you do nothing."
        tags = (
            " In speech, the tags <offer TERM>, <accept>, <reject>, <ask TOPIC> and <reveal TOPIC> bind you."
            if self.scenario.terms
            else ""
        )
        return (
            f"{head} It is your turn. Act as this person would, say nothing twice, and pursue your goal; you may leave "
            f"when you have reached it, or do not wish to go on.{tags} Reply with one JSON object: "
            '{"action_type": "none" | "speak" | "non-verbal" | "action" | "leave", "argument": "what you say or do", '
            '"to": [names, for what only they shall notice]}'
        )

    def state(self) -> Mapping[str, Any]:
        """Return the setting's identity, who is there, whose turn comes, and all messages."""
        return {
            "scene": self._identity, "relationship": int(self.relationship), "order": self.order, "turns": self.turns,
            "omniscient": self.omniscient, "seed": self._seed if self.order == "random" else None, "turn": self._turn,
            "last": self._last, "silent": self._silent, "gone": sorted(self._gone), "messages": self._log.rows(),
        }  # fmt: skip

    def rewards(self) -> Mapping[str, float]:
        """Return everyone's goal score once a scene with terms is over, else 0."""
        if not self.ended or not self.scenario.terms:
            return dict.fromkeys(self.agents, 0.0)
        return {seat: scores["goal"] for seat, scores in self.scenario.settle(self._log).items()}

    def outcome(self) -> Mapping[str, Any]:
        """Return why it ended, after how many turns, what was agreed, and the exact scores."""
        found: dict[str, Any] = {"ended": self.ended, "turns": self._turn}
        if self.scenario.terms:
            found |= {"deal": self._ledger.deal, "scores": self.scenario.settle(self._log)}
        return found


_KNOWN_AS: Sequence[str] = (
    "a stranger to you.", "someone you know by name:", "an acquaintance of yours:", "a friend of yours:",
    "your partner in life:", "of your family:",
)  # fmt: skip

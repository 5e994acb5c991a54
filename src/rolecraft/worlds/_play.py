"""Playing: policies act in worlds, and everything they see and do goes on record."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, Protocol

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds._episode import Episode, OnIllegal, Receipt, Turn
from rolecraft.worlds._world import World


@dataclass(frozen=True)
class View:
    """What a policy is given for one decision."""

    agent: str
    observation: str
    legal: tuple[str, ...] | None
    """None: free text."""
    seed: int
    """Of this decision: follows from the episode's seed, the agent, the step and the attempt alone."""
    refused: tuple[Receipt, ...] = ()
    """Attempts at this decision that the world refused, with reasons."""
    role: str | None = None
    """Id of the role that the agent plays."""
    history: tuple[Turn, ...] = ()
    """The agent's own last turns in this episode, oldest first. A policy that must remember more writes it into the
    notes of its act and finds it here: so it is on record, and a resumed episode goes on from it."""
    orders: Mapping[str, Any] | None = None
    """What the table's director says of this decision."""

    def rng(self) -> np.random.Generator:
        """Return the generator of this decision."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Act:
    """A policy's answer."""

    action: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""
    """Why there is no answer, such as a server that is gone: the episode ends here as `failed`."""


class Director(Protocol):
    """Intervenes in an episode from outside its world."""

    def __call__(self, agent: str, step: int, turns: Sequence[Turn]) -> Mapping[str, Any] | None:
        """Return the orders for a decision that comes now, given all turns so far."""
        ...


class Policy(Protocol):
    """What acts for one agent or for many."""

    def act(self, views: Sequence[View]) -> Sequence[Act]:
        """Answer every view: those of all agents, of one episode or many, for which it is this policy's turn."""
        ...


@dataclass(frozen=True)
class Rules:
    """How an episode is played, whatever the world."""

    limit: int = 1000
    """Most steps."""
    repairs: int = 1
    """How often an agent is asked again after an illegal action, with the reason."""
    on_illegal: OnIllegal = "random"
    """What follows when the repairs are used up."""
    recall: int = 8
    """Most turns in a view's history."""
    hashes: bool = True
    """Hash the state before and after each step; off saves time where millions of steps are played. A hash costs what
    the world's `state` is long: a world with a long log keeps a running digest of it there, not the log itself, or an
    episode takes time that grows with the square of its steps."""

    def __post_init__(self) -> None:
        if self.limit < 1 or self.repairs < 0 or self.recall < 0:
            raise UserError(
                f"limit must be at least 1, repairs and recall at least 0, got {self.limit}, {self.repairs} and "
                f"{self.recall}."
            )
        if self.on_illegal not in ("halt", "random"):
            raise UserError(f"on_illegal must be 'halt' or 'random', got {self.on_illegal!r}.")


@dataclass
class Table:
    """A world with everything that is needed to play one episode in it.

    Raises:
        UserError: If an agent of the world has no policy.
    """

    world: World
    policies: Mapping[str, Policy]
    seed: int
    """Of the world's chance and of every decision."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role id by agent, for those that have one."""
    played: Sequence[Turn] = ()
    """Turns on record from an earlier try: they are played again without asking anyone."""
    director: Director | None = None
    """Its orders reach the policies in `View.orders`; it must follow from the world and the turns alone."""

    def __post_init__(self) -> None:
        without = [agent for agent in self.world.agents if agent not in self.policies]
        if without:
            raise UserError(f"{self.world.name}: no policy for {', '.join(without)}; give one per agent.")


def play(
    world: World, policies: Mapping[str, Policy], seed: int, *, roles: Mapping[str, str] | None = None, **rules: Any
) -> Episode:
    """Play one episode; see `play_all`.

    Args:
        world: Reset with `seed` first.
        policies: One per agent.
        seed: Of the world's chance and of every decision.
        roles: Role ids by agent.
        rules: Fields of `Rules`.

    Raises:
        UserError: If an agent of the world has no policy.
    """
    return play_all([Table(world, policies, seed, roles or {})], Rules(**rules))[0]


def play_all(
    tables: Sequence[Table],
    rules: Rules = Rules(),
    on_step: Callable[[Mapping[int, Sequence[Turn]]], None] | None = None,
) -> list[Episode]:
    """Play many episodes side by side, a step of each at a time.

    All agents, of all episodes, whose turn it is and that share a policy object are asked in one call, so that a
    language model decodes them in one batch. An episode comes out the same whatever is played beside it.

    Args:
        tables: Each with a world object of its own.
        rules: The same for all.
        on_step: Called after each round of steps with the new turns by table.
    """
    games = [_game(table, rules) for table in tables]
    results: dict[int, Episode] = {}
    asked: dict[int, Mapping[str, View]] = {}

    def go_on(place: int, answers: Mapping[str, Act] | None) -> Sequence[Turn]:
        turns: list[Turn] = []
        try:
            found = next(games[place]) if answers is None else games[place].send(answers)
            while not isinstance(found, dict):
                turns += found
                found = next(games[place])
            asked[place] = found
        except StopIteration as stop:
            results[place] = stop.value
        return turns

    new = {place: go_on(place, None) for place in range(len(tables))}
    while asked:
        waiting, asked = asked, {}
        answers = _ask(tables, waiting)
        new = {place: turns for place in waiting if (turns := go_on(place, answers[place]))}
        if on_step and new:
            on_step(new)
    return [results[place] for place in range(len(tables))]


def replay(world: World, episode: Episode) -> None:
    """Play an episode again from its actions, and leave the world as it was at the end.

    Raises:
        UserError: If the record is of another world, or the state, the rewards or an observation comes out otherwise:
            the world's rules have changed since.
    """
    if world.name != episode.world:
        raise UserError(f"the episode was played in {episode.world!r}, got {world.name!r}.")
    world.reset(episode.seed)
    for step, turns in _by_step(episode.turns).items():
        for turn in turns:
            if world.observe(turn.agent) != turn.observation:
                raise UserError(f"{world.name}, step {step}: {turn.agent} now sees something else than on record.")
        if episode.ended == "illegal" and any(turn.fallback for turn in turns):
            return
        if episode.ended == "failed" and any("failed" in turn.notes for turn in turns):
            return
        world.act({turn.agent: turn.action for turn in turns})
        if episode.states == "hashed" and world.state_hash() != turns[0].after:
            raise UserError(f"{world.name}, step {step}: the state is another than on record.")
    if dict(world.rewards()) != dict(episode.rewards):
        raise UserError(f"{world.name}: rewards are {dict(world.rewards())}, on record {dict(episode.rewards)}.")


def _game(table: Table, rules: Rules) -> Generator[dict[str, View] | list[Turn], Mapping[str, Act], Episode]:
    """Play one episode: yields what must be decided and takes the decisions, and yields each step's turns."""
    world, recorded = table.world, _by_step(table.played)
    world.reset(table.seed)
    turns: list[Turn] = []
    own: dict[str, deque[Turn]] = {agent: deque(maxlen=rules.recall) for agent in world.agents}
    ended: Literal["over", "limit", "illegal", "failed"] = "over"
    after = world.state_hash() if rules.hashes else ""
    for step in range(rules.limit):
        if not world.acting:
            break
        before = after
        known = step in recorded
        found = recorded[step] if known else (yield from _decide(table, step, rules.repairs, own, turns))
        if any("failed" in turn.notes for turn in found):
            ended = "failed"
        elif rules.on_illegal == "halt" and any(turn.fallback for turn in found):
            ended = "illegal"
        else:
            world.act({turn.agent: turn.action for turn in found})
            after = world.state_hash() if rules.hashes else ""
            if known and found[0].after != after:
                raise UserError(f"{world.name}, step {step}: the state is another than on record; start a new run.")
            if not known:
                _sign(found, before, after)
        turns += found
        for turn in found:
            own[turn.agent].append(turn)
        if not known:
            yield found
        if ended != "over":
            break
    else:
        ended = "limit" if world.acting else "over"
    return Episode(
        world.name,
        table.seed,
        dict(table.roles),
        tuple(turns),
        dict(world.rewards()),
        dict(world.outcome()) if ended == "over" else {},
        ended,
        "hashed" if rules.hashes else "unhashed",
    )


def _decide(
    table: Table, step: int, repairs: int, own: Mapping[str, Iterable[Turn]], turns: Sequence[Turn]
) -> Generator[dict[str, View], Mapping[str, Act], list[Turn]]:
    """Ask every acting agent, again where the world refuses; fall back where it refuses to the last."""
    world, seed, agents = table.world, table.seed, table.world.acting
    seen = {agent: (world.observe(agent), world.legal(agent)) for agent in agents}
    receipts: dict[str, list[Receipt]] = {agent: [] for agent in agents}
    notes: dict[str, Mapping[str, Any]] = {}
    orders = {agent: table.director(agent, step, turns) for agent in agents} if table.director else {}
    waiting = list(agents)
    for attempt in range(repairs + 1):
        answers = yield {
            agent: View(
                agent,
                *seen[agent],
                _seed(seed, agent, step, attempt),
                tuple(receipts[agent]),
                table.roles.get(agent),
                tuple(own[agent]),
                orders.get(agent),
            )
            for agent in waiting
        }
        for agent, act in answers.items():
            notes[agent] = {**act.notes, "failed": act.failed} if act.failed else act.notes
            receipts[agent].append(_try(world, agent, act.action))
        waiting = [agent for agent in waiting if not receipts[agent][-1].accepted]
        if any(act.failed for act in answers.values()):
            waiting = []
        if not waiting:
            break
    return [
        Turn(
            step,
            agent,
            seen[agent][0],
            _fallback(seen[agent][1], seed, agent, step) if agent in waiting else receipts[agent][-1].action,
            seen[agent][1],
            tuple(receipts[agent]),
            agent in waiting,
            notes=notes.get(agent, {}),
        )
        for agent in agents
    ]


def _sign(turns: Iterable[Turn], before: str, after: str) -> None:
    """Enter the hashes into turns that nobody has seen yet: a copy of each would cost more than its making."""
    for turn in turns:
        object.__setattr__(turn, "before", before)
        object.__setattr__(turn, "after", after)


def _seed(seed: int, agent: str, step: int, attempt: int) -> int:
    """Return `derive_seed(seed, agent, step, attempt)`, several times as fast: there is one per decision."""
    text = f"[{seed},{encode_basestring_ascii(agent)},{step},{attempt}]"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _ask(tables: Sequence[Table], waiting: Mapping[int, Mapping[str, View]]) -> dict[int, dict[str, Act]]:
    """Call every policy once with the views of all its agents at all tables."""
    shared: dict[int, list[tuple[int, str]]] = {}
    for place, views in waiting.items():
        for agent in views:
            shared.setdefault(id(tables[place].policies[agent]), []).append((place, agent))
    answers: dict[int, dict[str, Act]] = {place: {} for place in waiting}
    for seats in shared.values():
        place, agent = seats[0]
        acts = tables[place].policies[agent].act([waiting[place][agent] for place, agent in seats])
        if len(acts) != len(seats):
            raise UserError(
                f"the policy of {', '.join(dict.fromkeys(agent for _, agent in seats))} returned {len(acts)} actions "
                f"for {len(seats)} views; expected one per view."
            )
        for (place, agent), act in zip(seats, acts, strict=True):
            answers[place][agent] = act
    return answers


def _by_step(turns: Sequence[Turn]) -> dict[int, list[Turn]]:
    steps: dict[int, list[Turn]] = {}
    for turn in turns:
        steps.setdefault(turn.step, []).append(turn)
    return steps


def _try(world: World, agent: str, action: str) -> Receipt:
    try:
        world.check(agent, action)
    except IllegalActionError as error:
        return Receipt(action, False, str(error))
    return Receipt(action, True)


def _fallback(legal: tuple[str, ...] | None, seed: int, agent: str, step: int) -> str:
    """Return a random legal action; where any text is legal, none at all, which every world must take."""
    if not legal:
        return ""
    return legal[int(np.random.default_rng(derive_seed(seed, agent, step, "fallback")).integers(len(legal)))]

"""Playing: policies act in worlds, and everything they see and do goes on record."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds._decision import Act, Director, Policy, View, decision_seed, new_view
from rolecraft.worlds._episode import Episode, OnIllegal, OpenTurn, Receipt, Turn
from rolecraft.worlds._limits import Limit
from rolecraft.worlds._world import World


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
    limits: tuple[Limit, ...] = ()
    """What else ends an episode: turns, tokens, wall clock. They are looked at after each step."""

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
    own: dict[str, list[Turn]] = {agent: [] for agent in world.agents}
    ended: Literal["over", "limit", "illegal", "failed"] = "over"
    counts, limit = [(one.name, one.begin()) for one in rules.limits], ""
    after = world.state_hash() if rules.hashes else ""
    for step in range(rules.limit):
        agents = world.acting
        if not agents:
            break
        before, known, checked = after, step in recorded, False
        if known:
            found = recorded[step]
        else:
            found, checked = yield from _decide(table, step, agents, rules, own, turns)
        if not checked and any("failed" in turn.notes for turn in found):
            ended = "failed"
        elif not checked and rules.on_illegal == "halt" and any(turn.fallback for turn in found):
            ended = "illegal"
        else:
            _let_act(world, {turn.agent: turn.action for turn in found}, checked)
            after = world.state_hash() if rules.hashes else ""
            if known and found[0].after != after:
                raise UserError(f"{world.name}, step {step}: the state is another than on record; start a new run.")
        if not known:
            _close(found, before, after, signed=ended == "over")
        turns += found
        for turn in found:
            own[turn.agent].append(turn)
        if not known:
            yield found
        if counts and ended == "over":
            reached = [name for name, count in counts if count(found)]
            if reached and step + 1 not in recorded and world.acting:
                ended, limit = "limit", reached[0]
        if ended != "over":
            break
    else:
        if world.acting:
            ended, limit = "limit", "steps"
    return Episode(
        world.name,
        table.seed,
        dict(table.roles),
        tuple(turns),
        dict(world.rewards()),
        dict(world.outcome()) if ended == "over" else {},
        ended,
        "hashed" if rules.hashes else "unhashed",
        limit,
    )


def _decide(
    table: Table,
    step: int,
    agents: Sequence[str],
    rules: Rules,
    own: Mapping[str, list[Turn]],
    turns: Sequence[Turn],
) -> Generator[dict[str, View], Mapping[str, Act], tuple[list[Turn], bool]]:
    """Ask every acting agent, again where the world refuses; fall back where it refuses to the last.

    Returns:
        The turns, still open, and whether the world has let all of them pass at the first attempt.
    """
    world = table.world
    orders = {agent: table.director(agent, step, turns) for agent in agents} if table.director else {}
    attempt = (table.seed, step, 0, rules.recall)
    views = {
        agent: new_view(
            agent,
            world.observe(agent),
            world.legal(agent),
            table.roles.get(agent),
            orders.get(agent),
            attempt,
            own[agent],
        )
        for agent in agents
    }
    answers = yield views
    found = _at_first(world, step, views, answers)
    if found is None:
        return (yield from _repair(table, step, rules, views, answers)), False
    return found, True


def _at_first(world: World, step: int, views: Mapping[str, View], answers: Mapping[str, Act]) -> list[Turn] | None:
    """Return the turns if the world takes every answer as it is; None if one is refused, or is none."""
    plain = type(world).check is World.check  # then what is legal is in the view
    turns = []
    for agent, view in views.items():
        act, legal = answers[agent], view.legal
        action, notes = act.action, act.notes
        if act.failed or "failed" in notes:
            return None
        if not (legal is None or action in legal) if plain else not _try(world, agent, action).accepted:
            return None
        turns.append(OpenTurn(step, agent, view.observation, action, legal, notes=notes))
    return turns


def _repair(
    table: Table, step: int, rules: Rules, views: Mapping[str, View], answers: Mapping[str, Act]
) -> Generator[dict[str, View], Mapping[str, Act], list[Turn]]:
    """Go on from first answers of which one was refused or failed, as `_decide` does."""
    world, seed = table.world, table.seed
    receipts: dict[str, list[Receipt]] = {agent: [] for agent in views}
    notes: dict[str, Mapping[str, Any]] = {}
    waiting = list(views)
    for attempt in range(rules.repairs + 1):
        if attempt:
            seeds = {agent: decision_seed(seed, agent, step, attempt) for agent in waiting}
            answers = yield {
                agent: replace(views[agent], seed=seeds[agent], refused=tuple(receipts[agent])) for agent in waiting
            }
        for agent, act in answers.items():
            notes[agent] = {**act.notes, "failed": act.failed} if act.failed else act.notes
            receipts[agent].append(_try(world, agent, act.action))
        waiting = [agent for agent in views if not receipts[agent][-1].accepted]
        if any(act.failed for act in answers.values()):
            waiting = []
        if not waiting:
            break
    turns = []
    for agent, view in views.items():
        lost = agent in waiting
        action = _fallback(view.legal, seed, agent, step) if lost else receipts[agent][-1].action
        turn = OpenTurn(step, agent, view.observation, action, view.legal, lost, notes=notes.get(agent, {}))
        turn.receipts = tuple(receipts[agent])
        turns.append(turn)
    return turns


def _let_act(world: World, actions: Mapping[str, str], checked: bool) -> None:
    """Let agents act; without another check where the world has let all of it pass in this state."""
    if checked and type(world).act is World.act:
        world._apply(actions)
    else:
        world.act(actions)


def _close(turns: Iterable[Any], before: str, after: str, signed: bool) -> None:
    """Make turns final, with the hashes of the state if the step was taken."""
    for turn in turns:
        if signed:
            turn.before, turn.after = before, after
        turn.__class__ = Turn


@dataclass
class _Batch:
    """What one policy is asked in one call."""

    policy: Policy
    views: list[View] = field(default_factory=list)
    seats: list[tuple[int, list[str]]] = field(default_factory=list)
    """Whose views these are, in order: agents by table."""


def _ask(tables: Sequence[Table], waiting: Mapping[int, Mapping[str, View]]) -> dict[int, dict[str, Act]]:
    """Call every policy once with the views of all its agents at all tables."""
    batches: dict[int, _Batch] = {}
    for place, views in waiting.items():
        policies, batch = tables[place].policies, None
        for agent, view in views.items():
            policy = policies[agent]
            if batch is None or policy is not batch.policy:
                batch = batches.setdefault(id(policy), _Batch(policy))
                agents: list[str] = []
                batch.seats.append((place, agents))
            agents.append(agent)
            batch.views.append(view)
    answers: dict[int, dict[str, Act]] = {place: {} for place in waiting}
    for batch in batches.values():
        acts = batch.policy.act(batch.views)
        if len(acts) != len(batch.views):
            raise UserError(
                f"the policy of {', '.join(dict.fromkeys(view.agent for view in batch.views))} returned {len(acts)} "
                f"actions for {len(batch.views)} views; expected one per view."
            )
        rest = iter(acts)
        for place, agents in batch.seats:
            answers[place].update(zip(agents, rest))  # noqa: B905  # the rest is of other agents
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

"""Playing: policies act in a world, and everything they see and do goes on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """Of this decision: follows from the episode's seed, the agent and the step alone."""
    refused: tuple[Receipt, ...] = ()
    """Attempts at this decision that the world refused, with reasons."""

    def rng(self) -> np.random.Generator:
        """Return the generator of this decision."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Act:
    """A policy's answer."""

    action: str
    notes: Mapping[str, Any] = field(default_factory=dict)


class Policy(Protocol):
    """What acts for one agent or for many."""

    def act(self, views: Sequence[View]) -> Sequence[Act]:
        """Answer every view: those of all agents that this policy acts for and whose turn it is."""
        ...


def play(
    world: World,
    policies: Mapping[str, Policy],
    seed: int,
    *,
    roles: Mapping[str, str] | None = None,
    limit: int = 1000,
    repairs: int = 1,
    on_illegal: OnIllegal = "random",
    hashes: bool = True,
) -> Episode:
    """Play one episode.

    Agents whose turn it is at once, and that share a policy object, are asked in one call.

    Args:
        world: Reset with `seed` first.
        policies: One per agent.
        seed: Of the world's chance and of every decision.
        roles: Role ids by agent, for the record.
        limit: Most steps.
        repairs: How often an agent is asked again after an illegal action, with the reason.
        on_illegal: What follows when they are used up.
        hashes: Hash the state before and after each step. Off saves time where millions of steps are played.

    Raises:
        UserError: If an agent of the world has no policy.
    """
    without = [agent for agent in world.agents if agent not in policies]
    if without:
        raise UserError(f"{world.name}: no policy for {', '.join(without)}; give one per agent.")
    world.reset(seed)
    turns: list[Turn] = []
    ended: Literal["over", "limit", "illegal"] = "over"
    after = world.state_hash() if hashes else ""
    for step in range(limit):
        if not world.acting:
            break
        before = after
        found = _decide(world, policies, seed, step, repairs)
        if on_illegal == "halt" and any(turn.fallback for turn in found):
            turns += found
            ended = "illegal"
            break
        world.act({turn.agent: turn.action for turn in found})
        after = world.state_hash() if hashes else ""
        turns += [_stamped(turn, before, after) for turn in found]
    else:
        ended = "limit" if world.acting else "over"
    return Episode(
        world.name,
        seed,
        dict(roles or {}),
        tuple(turns),
        dict(world.rewards()),
        dict(world.outcome()) if ended == "over" else {},
        ended,
        "hashed" if hashes else "unhashed",
    )


def replay(world: World, episode: Episode) -> None:
    """Play an episode again from its actions, and leave the world as it was at the end.

    Raises:
        UserError: If the record is of another world, or the state, the rewards or an observation comes out otherwise:
            the world's rules have changed since.
    """
    if world.name != episode.world:
        raise UserError(f"the episode was played in {episode.world!r}, got {world.name!r}.")
    world.reset(episode.seed)
    for step in sorted({turn.step for turn in episode.turns}):
        turns = [turn for turn in episode.turns if turn.step == step]
        for turn in turns:
            if world.observe(turn.agent) != turn.observation:
                raise UserError(f"{world.name}, step {step}: {turn.agent} now sees something else than on record.")
        if episode.ended == "illegal" and any(turn.fallback for turn in turns):
            return
        world.act({turn.agent: turn.action for turn in turns})
        if episode.states == "hashed" and world.state_hash() != turns[0].after:
            raise UserError(f"{world.name}, step {step}: the state is another than on record.")
    if dict(world.rewards()) != dict(episode.rewards):
        raise UserError(f"{world.name}: rewards are {dict(world.rewards())}, on record {dict(episode.rewards)}.")


def _decide(world: World, policies: Mapping[str, Policy], seed: int, step: int, repairs: int) -> list[Turn]:
    """Ask every acting agent, again where the world refuses; fall back where it refuses to the last."""
    agents = world.acting
    seen = {agent: (world.observe(agent), world.legal(agent)) for agent in agents}
    receipts: dict[str, list[Receipt]] = {agent: [] for agent in agents}
    notes: dict[str, Mapping[str, Any]] = {}
    waiting = list(agents)
    for attempt in range(repairs + 1):
        views = {
            agent: View(agent, *seen[agent], derive_seed(seed, agent, step, attempt), tuple(receipts[agent]))
            for agent in waiting
        }
        for agent, act in _ask(policies, views).items():
            notes[agent] = act.notes
            receipts[agent].append(_try(world, agent, act.action))
        waiting = [agent for agent in waiting if not receipts[agent][-1].accepted]
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


def _ask(policies: Mapping[str, Policy], views: Mapping[str, View]) -> dict[str, Act]:
    """Call every policy once with the views of all its agents."""
    shared: dict[int, list[str]] = {}
    for agent in views:
        shared.setdefault(id(policies[agent]), []).append(agent)
    answers: dict[str, Act] = {}
    for agents in shared.values():
        acts = policies[agents[0]].act([views[agent] for agent in agents])
        if len(acts) != len(agents):
            raise UserError(
                f"the policy of {', '.join(agents)} returned {len(acts)} actions for {len(agents)} views; "
                "expected one per view."
            )
        answers |= zip(agents, acts, strict=True)
    return answers


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


def _stamped(turn: Turn, before: str, after: str) -> Turn:
    return replace(turn, before=before, after=after)

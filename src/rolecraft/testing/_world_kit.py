"""What every world must keep, whoever wrote it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from rolecraft._run import content_key
from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError
from rolecraft.worlds import Act, Episode, Policy, View, World, play, replay

STRANGER = "no such action \N{SNOWMAN}"


def check_world(
    make: Callable[[], World], *, policy: Policy | None = None, seeds: Sequence[int] = (0, 1, 2), limit: int = 200
) -> list[Episode]:
    """Check that a world keeps the contract of `rolecraft.worlds.World`.

    One episode per seed is played, and at every step: seats, turns and legal actions are well formed; looking changes
    nothing and never fails; actions of strangers, out of turn, missing or illegal are refused and change nothing; the
    state is what JSON holds. Then another object with the same seed must replay it exactly.

    Args:
        make: Returns a new world of the same kind each time.
        policy: Plays all seats; without one, legal actions are drawn at random, and nothing is said where any text is
            legal.
        seeds: Of the episodes.
        limit: Most steps of an episode.

    Returns:
        The episodes, so that more can be checked of them.

    Raises:
        AssertionError: Naming the rule that is broken.
        UserError: If an episode does not come out again from its seed and actions; see `rolecraft.worlds.replay`.
    """
    world = make()
    assert world is not make(), "make must return a new object each time"
    assert world.agents, "a world has agents"
    assert len(set(world.agents)) == len(world.agents), "agents are different"
    assert world.actions is None or len(set(world.actions)) == len(world.actions), "actions are different"
    episodes = []
    for seed in seeds:
        watch = _Watch(world, policy or RandomPolicy())
        episode = play(world, dict.fromkeys(world.agents, watch), seed, limit=limit)
        assert watch.steps or not episode.turns, "the policy is asked at every step"
        _check_look(world)
        if episode.ended == "over":
            _check_end(world)
        replay(make(), episode)
        world.reset(seed)
        first = world.state_hash()
        world.reset(seed + 1)
        world.reset(seed)
        assert world.state_hash() == first, "reset forgets all that was before"
        replay(world, episode)
        episodes.append(episode)
    return episodes


class _Watch:
    """A policy that looks at the world before it answers."""

    def __init__(self, world: World, policy: Policy) -> None:
        self._world, self._policy, self.steps = world, policy, 0

    def act(self, views: Sequence[View]) -> Sequence[Act]:
        if not any(view.refused for view in views):
            self.steps += 1
            _check_look(self._world)
            _check_refusals(self._world, views)
        return self._policy.act(views)


def _check_look(world: World) -> None:
    """Check what can be read in any position, and that reading changes nothing."""
    before, acting = world.state_hash(), world.acting
    assert len(set(acting)) == len(acting), f"whoever acts does so once: {acting}"
    assert set(acting) <= set(world.agents), f"only agents act: {acting}"
    for agent in world.agents:
        assert isinstance(world.observe(agent), str), f"what {agent} sees is text"
        assert world.observe(agent) == world.observe(agent), f"{agent} sees the same when it looks again"
        _check_legal(world, agent)
    rewards = world.rewards()
    assert set(rewards) == set(world.agents), "everyone has a reward"
    assert all(math.isfinite(reward) for reward in rewards.values()), f"rewards are finite: {dict(rewards)}"
    assert world.state_hash() == before, "looking changes nothing"
    assert world.acting == acting, "looking changes nobody's turn"
    assert content_key(state=_as_json(world.state())) == before, "the state is what JSON holds"


def _check_legal(world: World, agent: str) -> None:
    legal = world.legal(agent)
    assert legal == world.legal(agent), f"legal actions of {agent} come in a fixed order"
    if agent not in world.acting:
        assert legal == (), f"{agent} may do nothing out of turn, got {legal}"
    elif legal is not None:
        assert legal, f"it is the turn of {agent}, who must have something to do"
        assert len(set(legal)) == len(legal), f"legal actions of {agent} are different"
        assert world.actions is None or set(legal) <= set(world.actions), f"actions hold all that {agent} may do"


def _check_refusals(world: World, views: Sequence[View]) -> None:
    """Check that what may not be done is refused and changes nothing."""
    before = world.state_hash()
    idle = [agent for agent in world.agents if agent not in world.acting]
    right = {view.agent: view.legal[0] if view.legal else "" for view in views if view.agent in world.acting}
    if set(right) != set(world.acting):
        return
    wrong = [{}, right | {STRANGER: "x"}]
    wrong += [right | {agent: next(iter(right.values()))} for agent in idle[:1]]
    wrong += [right | {view.agent: STRANGER} for view in views if view.legal is not None]
    for actions in wrong:
        try:
            world.act(actions)
        except IllegalActionError:
            assert world.state_hash() == before, f"a refused action changes nothing: {actions}"
        else:
            raise AssertionError(f"must be refused, acting are {world.acting}: {actions}")


def _check_end(world: World) -> None:
    """Check a finished episode."""
    assert world.acting == (), "nobody acts when it is over"
    before = world.state_hash()
    try:
        world.act({world.agents[0]: ""})
    except IllegalActionError:
        assert world.state_hash() == before, "a refused action changes nothing"
    else:
        raise AssertionError("nobody may act when it is over")
    _as_json(world.outcome())


def _as_json(value: Any) -> Any:
    """Return what JSON makes of a value."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state and outcome are what JSON holds: {error}") from None

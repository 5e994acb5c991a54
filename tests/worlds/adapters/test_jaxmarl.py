"""Environments with JaxMARL's interface as worlds."""

from __future__ import annotations

import numpy as np
import pytest

from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import make_world, play, replay
from rolecraft.worlds.adapters import JaxMarlWorld
from rolecraft.worlds.adapters._foreign import shown
from tests.worlds.adapters.conftest import Doors

jax = pytest.importorskip("jax")


def keys_of(seed: int, steps: int) -> list:
    """Return the keys of an episode: of its reset, then of each step."""
    key, keys = jax.random.PRNGKey(seed), []
    for _ in range(steps + 1):
        key, one = jax.random.split(key)
        keys.append(one)
    return keys


def test_an_episode_by_hand() -> None:
    world = JaxMarlWorld(Doors(), compiled=False, rules="Doors.", names=("red", "green", "blue"))
    for seed in range(4):
        world.reset(seed)
        good = [int(jax.random.randint(key, (), 0, 3)) for key in keys_of(seed, 4)[1:]]
        assert world.observe("left") == "Doors.\n[0, -0.5]"
        assert world.acting == ("left", "right")
        world.act({"left": "red", "right": "green"})
        assert world.legal("left") == ("green", "blue")
        with pytest.raises(IllegalActionError, match="may not do 'red'"):
            world.act({"left": "red", "right": "red"})
        world.act({"left": "blue", "right": "green"})
        assert world.acting == ("left",)
        assert world.legal("right") == ()
        world.act({"left": "red"})
        world.act({"left": "green"})
        assert world.acting == ()
        picks = {"left": [0, 2, 0, 1], "right": [1, 1]}
        assert world.rewards() == {
            agent: float(sum(pick == door for pick, door in zip(own, good, strict=False)))
            for agent, own in picks.items()
        }
        assert world.outcome() == {"steps": 4}


def test_the_seed_decides_chance_also_where_it_is_long() -> None:
    world = JaxMarlWorld(Doors(), compiled=False)
    seen = set()
    for seed in (1, 2, 2**40 + 1, 2**62 + 1):
        episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed)
        replay(JaxMarlWorld(Doors(), compiled=False), episode)
        seen.add(tuple(np.asarray(world._key).tolist()))
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [
        ("switch_riddle", {"num_agents": 4}, 6),
        pytest.param(
            "coin_game", {"num_inner_steps": 4, "num_outer_steps": 1}, 4, marks=pytest.mark.slow  # compiles for seconds
        ),
    ],
)  # fmt: skip
def test_an_episode_is_the_environments_own(name: str, options: dict, steps: int) -> None:
    jaxmarl = pytest.importorskip("jaxmarl")
    world = make_world("jaxmarl", {"env": name, "kwargs": options})
    env = jaxmarl.make(name, **options)
    for seed in (1, 2):
        episode = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed, limit=steps)
        keys = keys_of(seed, steps)
        seen, state = env.reset(keys[0])
        earned = dict.fromkeys(world.agents, 0.0)
        for step in range(episode.turns[-1].step + 1):
            turns = [turn for turn in episode.turns if turn.step == step]
            assert [turn.observation for turn in turns] == [shown(seen[turn.agent]) for turn in turns]
            sent = {turn.agent: jax.numpy.int32(int(turn.action)) for turn in turns}
            seen, state, rewards, dones, _ = env.step_env(keys[step + 1], state, sent)
            for agent in earned:
                earned[agent] += float(rewards[agent])
        assert episode.rewards == earned
        assert (episode.ended == "over") == bool(dones["__all__"])
        assert [world.observe(agent) for agent in world.agents] == [shown(seen[agent]) for agent in world.agents]


class Wide(Doors):
    def action_space(self, agent):
        return object()


def test_bad_input() -> None:
    with pytest.raises(UserError, match="must be discrete"):
        JaxMarlWorld(Wide())
    with pytest.raises(UserError, match="expected 3 different names"):
        JaxMarlWorld(Doors(), names=("a", "b"))
    pytest.importorskip("jaxmarl")
    with pytest.raises(UserError, match="cannot make 'switch_ridle'"):
        JaxMarlWorld("switch_ridle")
    with pytest.raises(UserError, match="cannot make"):
        JaxMarlWorld("switch_riddle", kwargs={"colour": 1})

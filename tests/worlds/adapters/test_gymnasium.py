"""Gymnasium environments as worlds."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import play
from rolecraft.worlds.adapters import GymnasiumWorld
from rolecraft.worlds.adapters._foreign import Choices, shown
from tests.worlds.adapters.conftest import Guess

AGENT = "player"


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CliffWalking-v1"])
def test_an_episode_is_the_environments_own(env: str) -> None:
    for seed in range(3):
        episode = play(GymnasiumWorld(env), {AGENT: RandomPolicy()}, seed, limit=40)
        peer = gymnasium.make(env)
        seen, _ = peer.reset(seed=seed)
        earned = 0.0
        for turn in episode.turns:
            assert turn.observation == str(seen)
            seen, reward, *_ = peer.step(int(turn.action))
            earned += float(reward)
        assert episode.rewards == {AGENT: earned}


def test_masks_starts_names_and_the_end() -> None:
    world = GymnasiumWorld(Guess(), names=("three", "four", "five"), rules="Guess.")
    for seed in range(8):
        world.reset(seed)
        secret = world._env.secret
        wrong, right = [name for name, number in zip(world.actions, (3, 4, 5), strict=True) if number != secret], None
        assert world.observe(AGENT) == "Guess.\n0"
        world.act({AGENT: wrong[0]})
        assert wrong[0] not in world.legal(AGENT)
        assert len(world.legal(AGENT)) == 2
        with pytest.raises(IllegalActionError, match=f"may not do '{wrong[0]}'"):
            world.act({AGENT: wrong[0]})
        right = world.actions[secret - 3]
        last = right if seed % 2 else wrong[1]
        world.act({AGENT: last})
        assert world.rewards() == {AGENT: 0.75 if seed % 2 else -0.5}
        assert world.outcome() == {"ended": "terminated" if seed % 2 else "truncated", "steps": 2}
        assert world.acting == ()
        assert world.legal(AGENT) == ()


def test_text_actions() -> None:
    world = GymnasiumWorld(Guess(text=True))
    world.reset(1)
    assert world.actions is None
    assert world.legal(AGENT) is None
    before = world.state_hash()
    for wrong in ("9", "33", "three"):
        with pytest.raises(IllegalActionError, match="is not in Text"):
            world.act({AGENT: wrong})
    assert world.state_hash() == before
    world.act({AGENT: ""})
    assert world._env.guesses == []
    assert world.state()["history"] == [{AGENT: ""}]
    world.act({AGENT: str(world._env.secret)})
    assert world.rewards() == {AGENT: 1.0}


def test_the_environments_own_limit_ends_it_and_counts() -> None:
    world = GymnasiumWorld("CliffWalking-v1", kwargs={"max_episode_steps": 5})
    episode = play(world, {AGENT: RandomPolicy()}, 0)
    assert episode.ended == "over"
    assert episode.outcome == {"ended": "truncated", "steps": 5}
    assert episode.rewards[AGENT] <= -5


def test_a_picture_is_shown_only_where_asked_for() -> None:
    plain, drawn = GymnasiumWorld("FrozenLake-v1"), GymnasiumWorld("FrozenLake-v1", pictured=True)
    for world in (plain, drawn):
        world.reset(0)
    assert plain.observe(AGENT) == "0"
    assert "FFF" in drawn.observe(AGENT)


def test_describe_puts_observations_into_words() -> None:
    world = GymnasiumWorld("FrozenLake-v1", describe=lambda agent, seen: f"{agent} stands on {seen}.")
    world.reset(0)
    assert world.observe(AGENT) == "player stands on 0."


class Camera(Guess):
    def _seen(self):
        return np.zeros((80, 80)), {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GymnasiumWorld("NoSuch-v0"), "cannot make 'NoSuch-v0'"),
        (lambda: GymnasiumWorld("FrozenLake-v1", kwargs={"colour": 1}), "cannot make"),
        (lambda: GymnasiumWorld("Pendulum-v1"), "discrete or text"),
        (lambda: GymnasiumWorld("FrozenLake-v1", names=("left",)), "expected 4 different names of actions, got 1"),
        (lambda: GymnasiumWorld("FrozenLake-v1", names=("a", "a", "b", "c")), "expected 4 different names"),
        (lambda: GymnasiumWorld(gymnasium.make("FrozenLake-v1"), pictured=True), "not in text"),
        (lambda: GymnasiumWorld(Camera()).reset(0), "pass describe="),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (3, "3"),
        (np.float32(0.1), "0.1"),
        (-0.0, "0"),
        (True, "1"),
        (np.array([[1.5, 2.0], [0.333333333, 4e9]]), "[[1.5, 2], [0.333333, 4e+09]]"),
        ((1, "two", [np.int8(3)]), "[1, two, [3]]"),
        ({"board": np.eye(2, dtype=np.int8), "turn": 1}, "board: [[1, 0], [0, 1]]\nturn: 1"),
        (np.array([]), "[]"),
    ],
)
def test_observations_as_text(value: object, text: str) -> None:
    assert shown(value) == text


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(-3, 3))
@settings(max_examples=40, deadline=None)
def test_names_and_numbers_belong_together(mask: list[bool], first: int) -> None:
    choices = Choices(len(mask), first=first)
    assert [choices.number(name) for name in choices.names] == list(range(first, first + len(mask)))
    assert choices.allowed(mask) == tuple(str(first + place) for place, allowed in enumerate(mask) if allowed)
    assert choices.allowed(None) == choices.names


def test_a_long_episode_can_go_without_hashes() -> None:
    episode = play(GymnasiumWorld("CliffWalking-v1"), {AGENT: RandomPolicy()}, 0, limit=300, hashes=False)
    assert len(episode.turns) == 300
    assert episode.turns[0].before == ""

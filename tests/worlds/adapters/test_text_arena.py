"""TextArena environments as worlds: its own games, its judgement of moves, and its chance kept apart."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rolecraft.agents import ScriptedPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds import Act, View, play, replay
from rolecraft.worlds.adapters import TextArenaWorld
from tests.worlds.adapters.conftest import reader

textarena = pytest.importorskip("textarena")


def tic_tac_toe(**options: object) -> TextArenaWorld:
    world = TextArenaWorld("TicTacToe-v0", **options)
    world.reset(0)
    return world


def test_a_game_is_played_as_textarena_plays_it() -> None:
    """The same moves in TextArena alone give the same observations and rewards."""
    world = TextArenaWorld("KuhnPoker-v0")
    policy = reader("actions are:")
    for seed in range(5):
        episode = play(world, dict.fromkeys(world.agents, policy), seed)
        env = textarena.make("KuhnPoker-v0")
        env.reset(num_players=2, seed=seed)
        for turn in episode.turns:
            player, seen = env.get_observation()
            assert f"player_{player}" == turn.agent
            assert seen.strip() == turn.observation
            env.step(turn.action)
        rewards, infos = env.close()
        assert episode.rewards == {f"player_{player}": reward for player, reward in rewards.items()}
        assert episode.outcome["reasons"]["player_0"] == infos[0]["reason"]
        assert sum(episode.rewards.values()) == 0


def test_a_won_game_and_what_each_is_told() -> None:
    world = tic_tac_toe()
    assert world.acting == ("player_0",)
    assert "You are Player 0 in Tic Tac Toe" in world.observe("player_0")
    assert "You are Player 1 in Tic Tac Toe" in world.observe("player_1")
    assert world.legal("player_0") is None
    assert world.legal("player_1") == ()
    for move in ("[0]", "[3]", "[1]", "[4]", "[2]"):
        assert world.rewards() == {"player_0": 0.0, "player_1": 0.0}
        world.act({world.acting[0]: move})
    assert world.acting == ()
    assert world.rewards() == {"player_0": 1.0, "player_1": -1.0}
    assert world.outcome() == {"reasons": dict.fromkeys(world.agents, "Player 0 has won!"), "invalid": []}
    assert "[2]" in world.observe("player_1")


@pytest.mark.parametrize(("move", "reason"), [("[0]", "already occupied"), ("[9]", "between 0 and 8"), ("x", "format")])
def test_an_invalid_move_is_refused_with_textarenas_reason(move: str, reason: str) -> None:
    world = tic_tac_toe()
    world.act({"player_0": "[0]"})
    before, seen = world.state_hash(), world.observe("player_1")
    for _ in range(3):
        with pytest.raises(IllegalActionError, match=reason):
            world.act({"player_1": move})
    assert (world.state_hash(), world.observe("player_1")) == (before, seen)
    world.act({"player_1": "[4]"})
    assert world.acting == ("player_0",)
    assert world.outcome()["invalid"] == []


def test_the_engine_asks_again_with_the_reason() -> None:
    told: list[str] = []

    def choose(view: View) -> str:
        told.extend(receipt.reason for receipt in view.refused)
        return reader("Moves:").act([view])[0].action if view.refused else "[99]"

    world = TextArenaWorld("TicTacToe-v0")
    episode = play(world, dict.fromkeys(world.agents, ScriptedPolicy(choose)), 1)
    assert episode.ended == "over"
    assert episode.fallbacks == 0
    assert len(told) == len(episode.turns)
    assert all("between 0 and 8" in reason for reason in told)


def test_who_never_makes_a_valid_move_loses_by_textarenas_rule() -> None:
    """Two empty messages: one is forgiven, the second costs the game."""

    class Stubborn:
        def act(self, views):
            return [Act("nothing of the sort") for _ in views]

    world = TextArenaWorld("TicTacToe-v0")
    episode = play(world, dict.fromkeys(world.agents, Stubborn()), 1)
    assert [turn.fallback for turn in episode.turns] == [True, True]
    assert [turn.action for turn in episode.turns] == ["", ""]
    assert episode.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert episode.outcome["invalid"] == ["player_0"]
    replay(TextArenaWorld("TicTacToe-v0"), episode)


def test_passed_on_all_moves_are_textarenas_to_judge() -> None:
    world = tic_tac_toe(invalid="pass")
    world.act({"player_0": "[99]"})
    assert world.acting == ("player_0",)
    assert "invalid move" in world.observe("player_0")
    assert "invalid move" not in world.observe("player_1")
    world.act({"player_0": "[99]"})
    assert world.acting == ()
    assert world.rewards() == {"player_0": -1.0, "player_1": 1.0}


def test_text_on_which_a_game_breaks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = tic_tac_toe()

    def step(self: object, action: str) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(type(world._now.env.env.env), "step", step)
    before = world.state_hash()
    with pytest.raises(IllegalActionError, match=r"breaks on it .ZeroDivisionError: deep inside"):
        world.act({"player_0": "[0]"})
    assert world.state_hash() == before
    world.act({"player_0": ""})
    assert world.state()["history"] == [{"player_0": ""}]
    assert world.acting == ("player_0",)


def test_global_chance_is_neither_used_nor_touched() -> None:
    policy = dict.fromkeys(("player_0", "player_1"), reader("actions are:"))
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = play(TextArenaWorld("KuhnPoker-v0"), policy, 4)
    after = random.random(), np.random.random()  # noqa: NPY002
    random.seed(2)
    assert play(TextArenaWorld("KuhnPoker-v0"), policy, 4) == first
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    assert (random.random(), np.random.random()) == after  # noqa: NPY002
    assert len({play(TextArenaWorld("KuhnPoker-v0"), policy, seed).turns[0].observation for seed in range(12)}) >= 3


def test_trying_a_move_does_not_draw_chance_for_it() -> None:
    """A refused attempt must not shift later deals: Kuhn poker deals anew each round."""
    calm, nervous = TextArenaWorld("KuhnPoker-v0"), TextArenaWorld("KuhnPoker-v0")
    calm.reset(3)
    nervous.reset(3)
    while calm.acting:
        agent = calm.acting[0]
        for attempt in ("[bet]", "[check]", "[fold]", "[call]", "nonsense"):
            try:
                nervous.check(agent, attempt)
            except IllegalActionError:
                continue
        action = "[check]" if "[check]" in calm.observe(agent).splitlines()[-1] else "[fold]"
        calm.act({agent: action})
        nervous.act({agent: action})
        assert nervous.observe(agent) == calm.observe(agent)
    assert nervous.state_hash() == calm.state_hash()


def test_without_wrappers_everyone_reads_the_messages_to_it() -> None:
    raw, wrapped = TextArenaWorld("TicTacToe-v0-raw"), TextArenaWorld("TicTacToe-v0")
    for world in (raw, wrapped):
        world.reset(0)
        world.act({"player_0": "[4]"})
        world.act({"player_1": "[0]"})
    assert raw.observe("player_0") == wrapped.observe("player_0")
    assert raw.observe("player_0").startswith("[GAME] You are Player 0")
    assert "[Player 1] [0]" in raw.observe("player_0")


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("KuhnPocker-v0", {}, "cannot make 'KuhnPocker-v0'"),
        ("KuhnPoker-v0", {"kwargs": {"colour": 1}}, "cannot make"),
        ("KuhnPoker-v0", {"players": 3}, "cannot start with 3 players"),
        ("KuhnPoker-v0", {"players": 0}, "at least 1, got 0"),
        ("KuhnPoker-v0", {"players": True}, "at least 1, got True"),
        ("KuhnPoker-v0", {"invalid": "skip"}, "'refuse' or 'pass', got 'skip'"),
    ],
)
def test_bad_input(env: str, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TextArenaWorld(env, **options)

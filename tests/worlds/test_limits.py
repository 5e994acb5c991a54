"""Limits of an episode: which one ends it, exactly when, and the same again on resuming."""

from dataclasses import replace

import pytest

from rolecraft.agents import ScriptedPolicy
from rolecraft.errors import UserError
from rolecraft.worlds import (
    Act,
    Episode,
    Receipt,
    Rules,
    Table,
    TimeLimit,
    TokenLimit,
    Turn,
    TurnLimit,
    play,
    play_all,
    replay,
    tokens_of,
)
from tests.simulate.chatter import Chatter


class Talker:
    """Says a word a turn, of so many tokens."""

    def __init__(self, prompt=3, new=2):
        self.notes = {"prompt_tokens": prompt, "tokens": new}

    def act(self, views):
        return [Act("word", self.notes) for _ in views]


def played(*limits, world=None, policy=None, **rules):
    world = world or Chatter(rounds=10)
    return play(world, dict.fromkeys(world.agents, policy or Talker()), 0, limits=limits, **rules)


@pytest.mark.parametrize(
    ("limits", "rules", "turns", "name"),
    [
        ((), {"limit": 7}, 7, "steps"),
        ((TurnLimit(7),), {}, 7, "turns"),
        ((TokenLimit(30),), {}, 6, "tokens"),
        ((TokenLimit(31),), {}, 7, "tokens"),
        ((TurnLimit(4), TokenLimit(30)), {}, 4, "turns"),
        ((TurnLimit(7), TokenLimit(30)), {}, 6, "tokens"),
        ((TurnLimit(7),), {"limit": 3}, 3, "steps"),
        ((TurnLimit(100), TokenLimit(1000)), {}, 20, ""),
    ],
)
def test_the_limit_that_is_reached_first_ends_it_and_is_on_record(limits, rules, turns, name):
    episode = played(*limits, **rules)
    assert (len(episode.turns), episode.limit, episode.ended) == (turns, name, "limit" if name else "over")
    assert bool(episode.outcome) == (not name)
    assert Episode.from_row(episode.row()) == episode
    replay(Chatter(rounds=10), episode)


def test_a_world_that_is_over_at_the_limit_is_over():
    episode = played(TurnLimit(20))
    assert (len(episode.turns), episode.ended, episode.limit) == (20, "over", "")


def test_a_step_in_which_several_act_counts_as_several_turns_and_is_finished():
    episode = played(TurnLimit(3), world=Chatter(rounds=10, pairs=True))
    assert [turn.step for turn in episode.turns] == [0, 0, 1, 1]
    assert episode.limit == "turns"


def test_every_episode_has_a_count_of_its_own():
    worlds, talk = [Chatter(rounds=10) for _ in range(3)], Talker()
    tables = [Table(world, dict.fromkeys(world.agents, talk), seed) for seed, world in enumerate(worlds)]
    rules = Rules(limits=(TurnLimit(5),))
    for _ in range(2):
        assert [len(episode.turns) for episode in play_all(tables, rules)] == [5, 5, 5]


@pytest.mark.parametrize("limit", [TurnLimit(6), TokenLimit(30)])
@pytest.mark.parametrize("known", [0, 2, 5, 6])
def test_a_resumed_episode_ends_where_it_would_have_and_asks_no_one_for_what_is_known(limit, known):
    whole, asked = played(limit), []

    class Asked(Talker):
        def act(self, views):
            asked.extend(views)
            return super().act(views)

    world = Chatter(rounds=10)
    table = Table(world, dict.fromkeys(world.agents, Asked()), 0, played=whole.turns[:known])
    assert play_all([table], Rules(limits=(limit,))) == [whole]
    assert len(asked) == 6 - known


class Clock:
    """A wall clock that stands still between what is said, or moves on whenever it is looked at."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 100.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now

    def slow(self, seconds):
        def say(view):
            self.now += seconds
            return "word"

        return ScriptedPolicy(say)


def test_wall_clock_cuts_an_episode_after_the_step_that_used_it_up():
    clock = Clock()
    episode = played(TimeLimit(10, clock=clock), policy=clock.slow(4))
    assert (len(episode.turns), episode.ended, episode.limit) == (3, "limit", "seconds")
    assert len(played(TimeLimit(8, clock=clock), policy=clock.slow(4)).turns) == 2
    replay(Chatter(rounds=10), episode)


def test_recorded_steps_are_never_cut_by_wall_clock():
    whole, world = played(), Chatter(rounds=10)
    for tick, turns in ((0.0, 20), (1.0, 10), (2.0, 8)):
        table = Table(world, dict.fromkeys(world.agents, Talker()), 0, played=whole.turns[:8])
        [episode] = play_all([table], Rules(limits=(TimeLimit(10, clock=Clock(tick)),)))
        assert episode.turns == whole.turns[:turns]
        assert episode.limit == ("seconds" if tick else "")


def test_time_passes_for_everyone_who_is_played_side_by_side():
    clock = Clock()
    worlds, talk = [Chatter(rounds=10) for _ in range(2)], clock.slow(4)
    tables = [Table(world, dict.fromkeys(world.agents, talk), 0) for world in worlds]
    assert [len(one.turns) for one in play_all(tables, Rules(limits=(TimeLimit(10, clock=clock),)))] == [2, 2]


def test_tokens_of_a_turn():
    turn = Turn(0, "ann", "x" * 30, "a", notes={"tokens": 7, "prompt_tokens": 11})
    assert tokens_of(turn) == (11, 7)
    twice = replace(turn, receipts=(Receipt("b", False, "no"), Receipt("a", True)))
    assert tokens_of(twice) == (22, 14)
    assert tokens_of(Turn(0, "ann", "x" * 30, "a")) == (0, 0)
    assert tokens_of(Turn(0, "ann", "x" * 30, "a", ("a", "bbb"))) == (34 // 4, 0)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (lambda: TurnLimit(0), "limit turns: expected a whole number of at least 1, got 0"),
        (lambda: TokenLimit(-5), "limit tokens: expected a whole number of at least 1, got -5"),
        (lambda: TimeLimit(0), "limit seconds: expected a number above 0, got 0"),
        (lambda: TimeLimit(float("nan")), "above 0, got nan"),
    ],
)
def test_a_limit_that_lets_nothing_through_is_refused(limit, message):
    with pytest.raises(UserError, match=message):
        limit()

"""Rewards that are kept apart, and further keys: they reach the rule row by row, and it learns from them alone."""

import numpy as np
import pytest

from rolecraft.errors import UserError
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import TrainConfig, Trainer
from tests.learning.trainer.small_worlds import Pick

PEOPLE = ("ann", "bob")

pytestmark = [
    pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning"),
    pytest.mark.filterwarnings("ignore::rolecraft.learning.trainer.CollapseWarning"),
]


def trainer(objectives=None, keys=None, rule="grpo", world=None, **fields):
    world = world or (lambda: Pick(agents=PEOPLE, turns=2))
    policy = tiny_policy(WordCodec.of_world(world), hidden=16, heads=2, max_tokens=4)
    config = TrainConfig(**{"iterations": 40, "episodes": 8, "group": 4, "lr": 0.02} | fields)
    return Trainer(world, policy, make_rule(rule), config, seed=3, objectives=objectives, keys=keys)


def rows_of(made):
    starts = made.starts()
    episodes = made.collect(starts)
    return made.rows(episodes, starts), episodes


def share(episode, agent):
    said = [turn.action for turn in episode.of(agent)]
    return {"red": said.count("red") / len(said), "green": said.count("green") / len(said)}


def test_every_row_has_the_rewards_and_keys_of_its_agent_and_episode():
    made = trainer(share, lambda episode, agent: {"seat": PEOPLE.index(agent) + 5})
    rows, episodes = rows_of(made)
    batch = rows.batch
    assert list(batch.objectives) == ["red", "green"]
    for row, turn in enumerate(rows.turns):
        episode = episodes[batch.keys["traj"][row]]
        assert {name: column[row] for name, column in batch.objectives.items()} == share(episode, turn.agent)
        assert batch.keys["seat"][row] == PEOPLE.index(turn.agent) + 5
    assert len(np.unique(batch.objectives["red"])) > 1


def test_without_them_rows_are_as_they_were():
    plain, more = rows_of(trainer())[0].batch, rows_of(trainer(share))[0].batch
    assert not plain.objectives
    assert plain.keys.keys() == more.keys.keys()
    assert np.array_equal(plain.token["logp_old"], more.token["logp_old"])


def test_what_pays_is_learned_where_the_world_pays_nothing():
    rule = {"name": "character-r1", "weights": {"red": 1.0, "green": 0.0}, "character": ["agent"]}
    made = trainer(share, rule=rule, world=lambda: Pick(pay=0.0), episodes=32, group=8)

    def red():
        return float(np.mean([share(episode, "ann")["red"] for episode in made.collect(made.starts())]))

    assert red() < 0.6
    done = [made.step() for _ in range(25)]
    assert red() > 0.9
    assert done[-1].figures["objective/red"] > 0.8
    assert done[0].figures["outcome/ann"] == 0
    assert not any("no signal" in alarm for each in done for alarm in each.alarms)
    assert set(made.state["ccrn"]["0"]) == {"red", "green"}


def test_cut_episodes_have_rewards_and_do_not_count():
    made = trainer(share, limit=1, on_limit="drop")
    batch = rows_of(made)[0].batch
    assert not batch.known.any()
    assert list(batch.objectives) == ["red", "green"]


def test_names_that_differ_and_keys_that_are_taken_are_refused():
    with pytest.raises(UserError, match=r"objectives: expected the same names .*'ann'.*'bob'"):
        rows_of(trainer(lambda episode, agent: {agent: 1.0}))
    with pytest.raises(UserError, match="keys: 'role' is a key of every row already"):
        rows_of(trainer(keys=lambda episode, agent: {"role": 1}))
    with pytest.raises(UserError, match="column 'bad': row 0 holds nan"):
        rows_of(trainer(lambda episode, agent: {"bad": float("nan")}))
    with pytest.raises(UserError, match="the batch has no"):
        trainer(rule="character-r1").step()

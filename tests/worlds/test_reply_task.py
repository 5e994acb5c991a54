"""One prompt, one reply, rewarded by a function."""

import pytest

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Act, ReplyItem, ReplyTask, play

ITEMS = (ReplyItem("a", "Say yes."), ReplyItem("b", "Say no.", "sceptic"))


def score(item, reply):
    return {"right": float(reply == {"a": "yes", "b": "no"}[item.id]), "short": float(len(reply) < 4)}


class Says:
    def __init__(self, text):
        self.text = text

    def act(self, views):
        return [Act(self.text) for _ in views]


def test_it_keeps_the_contract_of_worlds():
    episodes = check_world(lambda: ReplyTask(ITEMS, score), policy=Says("no"), seeds=(0, 1, 2, 3))
    assert [episode.outcome["item"] for episode in episodes] == ["a", "b", "a", "b"]
    assert [episode.rewards["speaker"] for episode in episodes] == [0.5, 1, 0.5, 1]
    assert episodes[1].outcome == {"item": "b", "role": "sceptic", "scores": {"right": 1, "short": 1}}


def test_weights_are_divided_by_their_sum_and_unweighted_scores_count_nothing():
    world = ReplyTask(ITEMS, score, {"right": 3, "short": 1})
    assert play(world, {"speaker": Says("no")}, 0).rewards == {"speaker": 0.25}
    for seed in (0, 1):
        assert play(ReplyTask(ITEMS, score, {"short": 2}), {"speaker": Says("no")}, seed).rewards == {"speaker": 1}


def test_one_reply_ends_it():
    world = ReplyTask(ITEMS, score)
    assert world.rewards() == {"speaker": 0}
    assert (world.observe("speaker"), world.item.id) == ("Say yes.", "a")
    world.act({"speaker": "yes"})
    with pytest.raises(IllegalActionError):
        world.act({"speaker": "yes"})


def test_bad_input():
    with pytest.raises(UserError, match="no items"):
        ReplyTask([], score)
    with pytest.raises(UserError, match="two items have the id 'a'"):
        ReplyTask([ITEMS[0], ITEMS[0]], score)
    for weights in ({}, {"right": 0}, {"right": -1, "short": 2}, {"right": float("nan")}):
        with pytest.raises(UserError, match="weights must be 0 or more and not all 0"):
            ReplyTask(ITEMS, score, weights)
    world = ReplyTask(ITEMS, score, {"rigth": 1})
    with pytest.raises(UserError, match=r"no score 'rigth' to weigh .* Did you mean 'right'\?"):
        world.act({"speaker": "yes"})
    world = ReplyTask(ITEMS, lambda item, reply: {"right": float("nan")})
    with pytest.raises(UserError, match="item 'a': the score 'right' is nan"):
        world.act({"speaker": "yes"})
    assert world.acting == ("speaker",)

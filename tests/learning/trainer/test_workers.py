"""Rollout workers play what this process would play, and their death costs no episode."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import RolloutWorkers, TrainConfig, Trainer, WorkerDiedWarning
from rolecraft.learning.trainer import _workers as module
from tests.learning.trainer.small_worlds import Pick


def make(seed=0, hidden=16, die_in=None):
    """Make a trainer; one that dies in a worker process, if `die_in` is not the process that it runs in."""

    def world():
        if die_in not in (None, os.getpid()):
            os._exit(9)
        return Pick(agents=("ann", "bob"), free=True)

    codec = WordCodec(["ann", "bob", "red", "green", "light", "blue", "."])
    policy = tiny_policy(codec, hidden=hidden, heads=2, seed=seed, max_tokens=3)
    config = TrainConfig(episodes=6, group=2, lr=0.02)
    return Trainer(world, policy, make_rule("grpo"), config, seed=7)


def played(episodes):
    return [[(t.agent, t.action, t.notes["tokens"]) for t in e.turns] + [e.seed] for e in episodes]


@pytest.mark.slow  # starts processes that import torch
def test_two_workers_play_what_one_process_plays_and_train_to_the_same_weights():
    alone, shared = make(), make()
    shared.play = lambda starts: pytest.fail("played here")
    # The workers begin with other weights, so what they play follows from those that are sent, anew each iteration.
    with RolloutWorkers(partial(make, seed=5), 2) as shared.workers:
        for _ in range(3):
            one, two = alone.step(), shared.step()
            assert played(one.episodes) == played(two.episodes)
            assert one.figures["outcome"] == two.figures["outcome"]
            assert one.figures["loss"] == pytest.approx(two.figures["loss"], abs=1e-6)
        assert shared.workers.replayed == 0
    for name, each in alone.policies["policy"].parameters().items():
        torch.testing.assert_close(shared.policies["policy"].parameters()[name], each, atol=1e-5, rtol=1e-4)
    assert not torch.equal(make().policies["policy"].parameters()[name], each)


@pytest.mark.slow  # starts processes that import torch
def test_what_a_dead_worker_should_have_played_is_played_here():
    alone, shared = make(), make(die_in=os.getpid())
    starts = alone.starts()
    with RolloutWorkers(partial(make, die_in=os.getpid()), 2) as shared.workers:
        with pytest.warns(WorkerDiedWarning, match="3 episodes are played here"):
            episodes = shared.collect(starts)
        assert shared.workers.replayed == 2
    assert played(episodes) == played(alone.play(starts))


@pytest.mark.slow  # starts processes that import torch
def test_an_error_of_the_world_is_raised_and_other_policies_are_refused():
    shared = make()
    with RolloutWorkers(partial(make, hidden=32), 1) as shared.workers, pytest.raises(UserError, match="another base"):
        shared.collect(shared.starts())


@pytest.mark.parametrize("given", ["0", "two", "ray:/x", "-1"])
def test_workers_that_cannot_be_are_refused(given):
    with pytest.raises(UserError, match="expected a number from 1, 'ray' or"):
        RolloutWorkers(make, given)


def test_shares_are_even_and_keep_the_order():
    starts = list(range(7))
    for count in (1, 2, 3, 7, 20):
        found = module._shares(starts, count)
        assert [each for share in found for each in share] == starts
        assert max(map(len, found)) - min(map(len, found)) <= 1
    assert module._shares([], 3) == []


def test_a_worker_takes_weights_and_iteration_from_the_job():
    made = make(seed=3)
    made.iteration = 4
    weights = {"policy": (made.policies["policy"].base, module._packed(made.policies["policy"]))}
    job = module._Job("key", partial(make, seed=9), 4, weights, made.starts())
    try:
        assert played(module._play(job)) == played(made.play(job.starts))
        made.policies["policy"].load({n: p * 1.5 for n, p in made.policies["policy"].parameters().items()})
        assert played(module._play(job)) != played(made.play(job.starts))
        heavier = {"policy": (made.policies["policy"].base, module._packed(made.policies["policy"]))}
        assert played(module._play(replace(job, weights=heavier))) == played(made.play(job.starts))
    finally:
        module._MADE.clear()

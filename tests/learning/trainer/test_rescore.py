"""Log-probabilities noted as replies are drawn serve for the update, where they are the policy's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import LearnerSeat, WordCodec, lora_policies, tiny_policy
from rolecraft.learning.trainer import TrainConfig, Trainer
from rolecraft.learning.trainer import _trainer as trainer_file
from rolecraft.testing import tiny_model
from tests.learning.trainer.small_worlds import Pick, Say

pytestmark = [
    pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning"),
    pytest.mark.filterwarnings("ignore::rolecraft.learning.trainer.CollapseWarning"),
]


class Short(Pick):
    """Colours of one word, so that a reply is one token."""

    COLOURS = ("red", "green", "blue")


WORLDS = {"single tokens": Short, "several tokens": Pick, "free text": Say}


def made(world=Pick, *, rescore=False, critic=False, temperature=1.3, policy=None):
    policy = policy or tiny_policy(
        WordCodec.of_world(Pick, extra=["blue"]),
        hidden=16, heads=2, seed=0, max_tokens=4, critic=critic, temperature=temperature,
    )  # fmt: skip
    config = TrainConfig(episodes=16, lr=0.05, rescore=rescore)
    return Trainer(lambda: world(turns=3), policy, make_rule("reinforce"), config, seed=3)


@pytest.fixture
def passes(monkeypatch):
    """Count how often replies are scored again."""
    found = []
    real = trainer_file.score_all

    def counted(policy, replies, *rest, **options):
        found.append(len(replies))
        return real(policy, replies, *rest, **options)

    monkeypatch.setattr(trainer_file, "score_all", counted)
    return found


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_they_are_the_scores_to_float32(world, passes):
    quick, plain = made(world), made(world, rescore=True)
    for trainer in (quick, plain):  # not at the first weights alone
        trainer.step()
    quick.policies["policy"].load(plain.policies["policy"].parameters())
    passes.clear()
    starts = quick.starts()
    one, other = quick.collect(starts), plain.collect(starts)
    assert [each.turns for each in one] == [each.turns for each in other]  # the same draws
    rows, scored = quick.rows(one, starts).batch, plain.rows(other, starts).batch
    assert len(passes) == 1  # by the plain one
    assert scored.mask.any()
    np.testing.assert_allclose(rows.token["logp_old"], scored.token["logp_old"], atol=2e-6)
    np.testing.assert_array_equal(rows.token["logp_old"], scored.token["logp_sampled"])
    assert (rows.token["logp_old"][rows.mask] < -1e-3).any()


def test_an_adapters_too():
    policy = lora_policies(tiny_model(), ["policy"], rank=2, max_tokens=3)["policy"]
    trainer = made(Say, policy=policy)
    starts = trainer.starts()[:4]
    episodes = trainer.collect(starts)
    rows = trainer.rows(episodes, starts).batch
    trainer.config = trainer.config.model_copy(update={"rescore": True})
    np.testing.assert_allclose(
        rows.token["logp_old"], trainer.rows(episodes, starts).batch.token["logp_old"], atol=1e-5
    )


def test_two_steps_learn_the_same_but_for_rounding():
    quick, plain = made(), made(rescore=True)
    for _ in range(2):
        quick.step()
        plain.step()
    for one, other in zip(
        quick.policies["policy"].parameters().values(), plain.policies["policy"].parameters().values(), strict=True
    ):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)


def test_they_are_scored_again_where_they_would_not_do(passes):
    trainer = made()
    starts = trainer.starts()
    episodes = trainer.collect(starts)
    trainer.rows(episodes, starts)
    assert not passes
    with torch.no_grad():  # the weights change between the rollout and the rows
        next(iter(trainer.policies["policy"].parameters().values())).add_(0.3)
    moved = trainer.rows(episodes, starts).batch
    assert len(passes) == 1
    assert np.abs(moved.token["logp_old"] - moved.token["logp_sampled"])[moved.mask].max() > 1e-3

    class Elsewhere(LearnerSeat):
        """As a server's seat."""

    trainer = made()
    trainer.seats["policy"] = Elsewhere(trainer.policies["policy"])
    trainer.step()
    assert len(passes) == 2
    made(critic=True).step()  # its values are needed
    assert len(passes) == 3
    fresh = made()  # episodes of another trainer
    fresh.rows(episodes, starts)
    assert len(passes) == 4


def test_a_study_that_does_not_ask_scores_again(passes):
    assert TrainConfig().rescore
    made(rescore=True).step()
    assert len(passes) == 1

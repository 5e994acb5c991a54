"""The exact KL to the reference, and rows that hold the reference without paying for it in the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning import fit_replies
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import Reply, WordCodec, lora_policies, tiny_policy
from rolecraft.learning.trainer import TrainConfig, Trainer
from rolecraft.testing import tiny_model
from tests.learning.trainer.small_worlds import Pick


@pytest.fixture
def codec():
    return WordCodec.of_world(Pick)


@pytest.fixture
def policy(codec):
    return tiny_policy(codec, hidden=16, heads=2, seed=3, max_tokens=6, temperature=0.8)


def rows_of(policy, codec):
    options = policy.options(("red", "green", "light blue", "light"))
    prompt = policy.encode("ann", None, "red .")
    free = Reply(prompt, (*codec.reply("light blue green"), codec.end))
    ends = next(path for path, action in options.actions.items() if action == "light")
    return [free, Reply(prompt, tuple(codec.reply("red")), options), Reply(prompt, ends, options), free]


def slow(policy, model, row):
    ids = torch.tensor([[*row.prompt, *row.tokens]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0] / policy.temperature
    tables = []
    for place in range(len(row.tokens)):
        line = logits[len(row.prompt) - 1 + place]
        may = list(range(len(line)) if row.options is None else row.options.next(row.tokens[:place]))
        tables.append(torch.log_softmax(line[may], -1))
    return tables


def test_it_is_the_sum_over_what_could_stand_there(policy, codec):
    rows = rows_of(policy, codec)
    policy.keep_reference()
    assert float(policy.divergence(rows).abs().max()) == 0
    before = policy._reference.model
    fit_replies(policy, rows[:1], steps=3, lr=0.02)
    found = policy.divergence(rows)
    assert found.shape == (4, 4)
    for n, row in enumerate(rows):
        pairs = zip(slow(policy, policy.network.model, row), slow(policy, before, row), strict=True)
        plain = [float((p.exp() * (p - q)).sum()) for p, q in pairs]
        assert found[n, : len(plain)].tolist() == pytest.approx(plain, abs=1e-5)
        assert float(found[n, len(plain) :].abs().sum()) == 0
    assert float(found[0].sum()) > 0.01
    assert torch.equal(found[0], found[3])
    assert not found.requires_grad


def test_its_sum_is_the_kl_of_whole_replies(policy, codec):
    """The mean over replies of its sum is the KL of the distribution of replies, by the chain rule."""
    options = policy.options(("red", "green", "light blue", "light"))
    policy.keep_reference()
    fit_replies(policy, rows_of(policy, codec)[:1], steps=3, lr=0.02)
    prompt = policy.encode("ann", None, "green .")
    rows = [Reply(prompt, path, options) for path in options.actions]
    with torch.no_grad():
        logp = policy.score(rows).logp.sum(1)
        ref = policy.score(rows, reference=True).logp.sum(1)
    whole = float((logp.exp() * (logp - ref)).sum())
    assert float((logp.exp() * policy.divergence(rows).sum(1)).sum()) == pytest.approx(whole, abs=1e-5)
    assert whole > 0.001


def test_the_base_is_the_reference_of_an_adapter():
    made = lora_policies(tiny_model(), ["one"], rank=2, max_tokens=4)["one"]
    rows = [Reply(made.encode("ann", None, "hello"), (5, 6))]
    assert float(made.divergence(rows).abs().max()) < 1e-6
    fit_replies(made, rows, steps=3, lr=0.05)
    assert float(made.divergence(rows).min()) > 0
    with torch.no_grad():
        again = made.score(rows).logp
    assert torch.equal(again, made.score(rows).logp)  # the adapter is on again


def test_without_a_reference_it_says_so(policy, codec):
    with pytest.raises(UserError, match="keep_reference"):
        policy.divergence(rows_of(policy, codec))


def test_rows_may_hold_the_reference_without_a_loss(policy, codec):
    def stepped(**fields):
        own = tiny_policy(codec, hidden=16, heads=2, seed=3, max_tokens=6)
        made = Trainer(Pick, own, make_rule("reinforce"), TrainConfig(episodes=8, **fields), seed=1)
        made.step()
        starts = made.starts()
        rows = made.rows(made.collect(starts), starts)
        return rows.batch.token, made.step().figures

    plain, figures = stepped()
    token, same = stepped(reference=True)
    assert "logp_ref" not in plain
    assert np.abs(token["logp_ref"] - token["logp_old"]).max() > 0
    assert np.array_equal(token["logp_old"], plain["logp_old"])
    assert figures == same  # nothing is added to the loss
    assert "kl" not in same

"""Supervised fine-tuning: the step of the formula, what is learnt, and what is refused."""

from __future__ import annotations

import pytest
import torch

from rolecraft.errors import ModelError, UserError
from rolecraft.learning import fit_replies
from rolecraft.learning.offline._fit import _batches
from rolecraft.learning.policy import Reply, WordCodec, lora_policies, tiny_policy
from rolecraft.testing import tiny_model

WORDS = ("red", "green", "blue", "ann", "sky")


def policy(seed=0, **options):
    return tiny_policy(WordCodec(WORDS), hidden=16, heads=2, seed=seed, max_tokens=4, **options)


def row(made, seen, said, options=None):
    tokens = tuple(made.codec.reply(said))
    return Reply(made.encode("ann", None, seen), tokens if options else (*tokens, made.codec.end), options)


def weights(made):
    return {name: each.detach().clone() for name, each in made.parameters().items()}


def test_a_step_is_that_of_the_formula():
    one, other = policy(temperature=0.7), policy(temperature=0.7)
    rows = [row(one, "sky", "red blue"), row(one, "red", "green")]
    losses = fit_replies(one, rows, steps=1, lr=0.01, batch=2)
    total, count = torch.zeros(()), 0
    for each in rows:
        ids = torch.tensor([[*each.prompt, *each.tokens]])
        logits = other.network.model(input_ids=ids, use_cache=False).logits[0, len(each.prompt) - 1 : -1] / 0.7
        total = total + torch.nn.functional.cross_entropy(logits, torch.tensor(each.tokens), reduction="sum")
        count += len(each.tokens)
    loss = total / count
    assert losses == [pytest.approx(float(loss.detach()), rel=1e-5)]
    parameters = list(other.parameters().values())
    optimiser = torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.0)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimiser.step()
    for name, value in weights(one).items():
        assert torch.allclose(value, weights(other)[name], atol=1e-5), name


def test_it_learns_how_often_each_reply_was_given():
    made = policy()
    rows = [row(made, "sky", "blue")] * 6 + [row(made, "sky", "red")] * 2 + [row(made, "ann", "green")] * 8
    losses = fit_replies(made, rows, steps=120, lr=0.01, batch=16)
    options = made.options(("red", "blue", "green"))
    sky, ann = made.odds([made.encode("ann", None, text) for text in ("sky", "ann")], [options, options])
    assert sky["blue"] == pytest.approx(0.75, abs=0.05)
    assert sky["red"] == pytest.approx(0.25, abs=0.05)
    assert ann["green"] > 0.95
    assert losses[-1] < 0.3 < losses[0]


def test_where_a_row_has_options_only_they_compete():
    made = policy()
    options = made.options(("red", "blue"))
    (loss,) = fit_replies(made, [row(made, "sky", "red", options)], steps=1)
    assert loss == pytest.approx(0.69, abs=0.3)  # two options; over the whole vocabulary it would be about log 10


def test_every_row_is_seen_before_any_is_seen_again():
    chosen = list(_batches(5, 2, 10, seed=3))
    assert all(len(each) == 2 for each in chosen)
    flat = [each for part in chosen for each in part]
    passes = [flat[start : start + 5] for start in range(0, 20, 5)]
    assert all(sorted(each) == list(range(5)) for each in passes)
    assert len({tuple(each) for each in passes}) > 1
    assert chosen == list(_batches(5, 2, 10, seed=3))
    assert chosen != list(_batches(5, 2, 10, seed=4))


def test_equal_seeds_give_equal_weights_and_the_critic_stays():
    made = [policy(critic=True) for _ in range(2)]
    with torch.no_grad():
        for each in made:
            each.critic.weight.fill_(0.5)
    rows = [row(made[0], "sky", word) for word in ("red", "blue", "green", "red blue")]
    for each in made:
        fit_replies(each, rows, steps=4, batch=3, weight_decay=0.1)
    one, other = map(weights, made)
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert bool((made[0].critic.weight == 0.5).all())
    assert not torch.equal(one["lm_head.weight"], weights(policy(critic=True))["lm_head.weight"])


def test_an_adapter_learns_alone():
    made = lora_policies(tiny_model(), ["one", "two"], rank=2, max_tokens=4)
    before = {name: weights(each) for name, each in made.items()}
    prompt = made["one"].encode("ann", None, "hello")
    rows = [Reply(prompt, (5, 6))]
    losses = fit_replies(made["one"], rows, steps=5, lr=0.05)
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, before["two"][name]) for name, value in weights(made["two"]).items())


def test_what_is_not_finite_changes_nothing():
    made = policy()
    with torch.no_grad():
        next(iter(made.parameters().values()))[-1, 0] = float("nan")
    before = weights(made)
    with pytest.raises(ModelError, match="step 0: the loss is nan"):
        fit_replies(made, [row(made, "sky", "red")], steps=3)
    assert all(torch.equal(value.nan_to_num(), before[name].nan_to_num()) for name, value in weights(made).items())


def test_bad_input():
    made = policy()
    good = row(made, "sky", "red")
    with pytest.raises(UserError, match="no rows"):
        fit_replies(made, [], steps=1)
    with pytest.raises(UserError, match="row 1 has no tokens to learn"):
        fit_replies(made, [good, Reply(good.prompt, ())], steps=1)
    with pytest.raises(UserError, match="row 0 has no prompt"):
        fit_replies(made, [Reply((), (3,))], steps=1)
    for wrong in ({"steps": 0}, {"batch": 0}, {"lr": 0.0}, {"lr": float("nan")}, {"max_grad_norm": -1.0}):
        with pytest.raises(UserError, match="must be at least 1"):
            fit_replies(made, [good], **{"steps": 1, **wrong})

"""TRL's trainers on a policy's own tokens: their losses are ours by formula, and what they touch is left as it was."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning import Pair, dpo, kto, preference_pairs, sft, word_tokenizer
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import Reply, WordCodec, add_adapter, tiny_policy
from rolecraft.learning.policy._token_policy import TokenPolicy
from rolecraft.learning.trainer import TrainConfig, Trainer
from tests.learning.trainer.small_worlds import Pick

CODEC = WordCodec(["ann", "red", "green", "blue", "."])
COLOURS = ("red", "green", "blue")


def policy(seed=2, **options):
    return tiny_policy(CODEC, hidden=16, heads=2, seed=seed, max_tokens=3, **options)


def reply(shown, said):
    return Reply(tuple(CODEC.prompt("ann", None, f"{shown} .")), (*CODEC.reply(said), CODEC.end))


def pairs():
    return [Pair(reply(one, other), reply(one, one)) for one, other in pairwise(COLOURS)]


def logp(made, rows):
    with torch.no_grad():
        return made.score(rows).logp.sum(1)


def weights(made):
    return {name: each.detach().clone() for name, each in made.parameters().items()}


def test_sft_starts_at_the_cross_entropy_of_the_replies_and_learns_them():
    made, rows = policy(), [reply(one, one) for one in COLOURS] + [reply("red", "red green")]
    before = -float(logp(made, rows).sum() / sum(len(row.tokens) for row in rows))
    found = sft(made, rows[:3] * 4, epochs=25, lr=0.02, batch=12)
    assert len(found) == 25
    assert sft(policy(), rows, batch=4)[0]["loss"] == pytest.approx(before, rel=1e-4)
    assert float(logp(made, rows[:3]).exp().min()) > 0.6


def test_dpo_follows_its_formula():
    beta, made, given = 0.3, policy(), pairs()
    chosen, rejected = [pair.chosen for pair in given], [pair.rejected for pair in given]
    reference = logp(made, chosen) - logp(made, rejected)
    one = policy()
    dpo(one, given, beta=beta, lr=0.01, batch=2, lr_scheduler_type="constant")
    margin = beta * (logp(one, chosen) - logp(one, rejected) - reference)
    found = dpo(made, given, beta=beta, lr=0.01, batch=2, epochs=2, lr_scheduler_type="constant")
    assert found[0]["loss"] == pytest.approx(np.log(2), rel=1e-5)
    assert found[1]["loss"] == pytest.approx(float(-torch.nn.functional.logsigmoid(margin).mean()), rel=1e-3)
    assert found[1]["loss"] < found[0]["loss"]


def test_kto_starts_at_a_half_and_moves_good_and_bad_apart():
    made, given = policy(), pairs() * 4
    rows = [pair.chosen for pair in given] + [pair.rejected for pair in given]
    before = logp(made, rows)
    found = kto(made, rows, [True] * 8 + [False] * 8, batch=8, epochs=10, lr=0.02)
    assert found[0]["loss"] == pytest.approx(0.5, abs=1e-5)
    gain = logp(made, rows) - before
    assert float(gain[:8].min()) > float(gain[8:].max())


def test_an_adapter_alone_is_trained():
    made = policy()
    add_adapter(made.network.model, "a", rank=2)
    add_adapter(made.network.model, "b", rank=2)
    one = TokenPolicy(made.network.model, CODEC, base="tiny", adapter="a")
    other = TokenPolicy(made.network.model, CODEC, base="tiny", adapter="b")
    base = {name: each.detach().clone() for name, each in made.network.model.named_parameters()}
    dpo(one, pairs(), lr=0.05, batch=2, epochs=2)
    moved = {name for name, each in made.network.model.named_parameters() if not torch.equal(each.detach(), base[name])}
    assert moved
    assert all(".a." in name for name in moved)
    assert set(one.parameters()) != set(other.parameters())


def test_equal_seeds_give_equal_runs_and_nothing_else_is_touched():
    made, other = policy(), policy(critic=True)
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    rows = [reply(one, one) for one in COLOURS] * 3
    one = sft(made, rows, batch=4, epochs=2)
    assert (random.getstate(), str(np.random.get_state())) == before[:2]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    two = sft(other, rows, batch=4, epochs=2)
    assert [each["loss"] for each in one] == [each["loss"] for each in two]
    assert "forward" not in made.network.model.__dict__
    assert not made.network.model.training
    assert made.network.model.config.pad_token_id == 0
    assert not other.parameters()["critic.weight"].any()
    assert all(torch.equal(value, weights(other)[name]) for name, value in weights(made).items())
    assert sft(policy(), rows, batch=4, epochs=2, seed=9)[1]["loss"] != one[1]["loss"]


def test_pairs_are_the_best_and_the_worst_reply_to_a_prompt():
    made = Trainer(Pick, tiny_policy(WordCodec.of_world(Pick), hidden=16, heads=2, seed=1, max_tokens=3),
                   make_rule("grpo"), TrainConfig(episodes=32, group=16), seed=4)  # fmt: skip
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    found = preference_pairs(rows)
    assert 1 <= len(found) <= 2
    earned = {(row.prompt, row.tokens): paid for row, paid in zip(rows.replies, rows.batch.row["outcome"], strict=True)}
    for pair in found:
        assert pair.chosen.prompt == pair.rejected.prompt
        assert earned[pair.chosen.prompt, pair.chosen.tokens] == 1.0
        assert earned[pair.rejected.prompt, pair.rejected.tokens] == 0.0
        assert pair.margin == 1.0
    assert preference_pairs(rows, margin=1.0) == []


def test_equal_replies_count_by_their_mean_and_unknown_rewards_do_not_count():
    from dataclasses import replace

    made = Trainer(Pick, tiny_policy(WordCodec.of_world(Pick), hidden=16, heads=2, seed=1, max_tokens=3),
                   make_rule("grpo"), TrainConfig(episodes=16, group=16), seed=4)  # fmt: skip
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    codes = [row.tokens for row in rows.replies]
    paid = np.array([{code: n for n, code in enumerate(dict.fromkeys(codes))}[code] for code in codes], dtype=float)
    paid[0] += 90  # a lucky draw of the first reply, whose mean stays the lowest only if it is averaged
    lucky = replace(rows, batch=replace(rows.batch, row={**rows.batch.row, "outcome": paid}))
    (pair,) = preference_pairs(lucky)
    share = codes.count(codes[0])
    assert (pair.chosen.tokens == codes[0]) == (90 / share > paid[1:].max())
    unknown = replace(lucky, batch=replace(lucky.batch, valid=np.arange(16) != 0))
    assert preference_pairs(unknown)[0].rejected.tokens == codes[0]


def test_the_tokenizer_cuts_as_the_codec_does():
    made = word_tokenizer(CODEC)
    assert made("<begin> ann <split> red . <split>")["input_ids"] == CODEC.prompt("ann", None, "red .")
    assert made.decode(CODEC.reply("red blue")) == "red blue"
    assert (made.pad_token_id, made.eos_token_id, made("nobody")["input_ids"]) == (0, 2, [4])


def test_bad_input():
    good = reply("red", "red")
    with pytest.raises(UserError, match="no row"):
        sft(policy(), [])
    with pytest.raises(UserError, match="row 1 has no tokens"):
        sft(policy(), [good, Reply(good.prompt, ())])
    with pytest.raises(UserError, match="pair 0: its replies have different prompts"):
        dpo(policy(), [Pair(good, reply("green", "red"))])
    with pytest.raises(UserError, match="1 for 2 rows"):
        kto(policy(), [good, good], [True])
    with pytest.raises(UserError, match=r"TRL refuses an option.*learning_speed"):
        sft(policy(), [good], learning_speed=1)
    with pytest.raises(UserError, match="epochs and lr"):
        sft(policy(), [good], lr=0)
    with pytest.raises(UserError, match="margin"):
        preference_pairs(None, margin=-1)

"""LocalModel.logprobs and .activations against straightforward computation; choose."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM

from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import SteeringShapeError, UserError
from rolecraft.models import LocalModel, chat, choose
from rolecraft.models._network import batches
from rolecraft.testing import tiny_model
from tests.models._reference import forward, vector

CHATS = [chat("hello"), chat("tell me about ships", "be a pirate"), chat("hello"), chat("x"), chat("hello")]
REPLIES = ["Good day.", "Arr", "", "a longer reply, to be padded against", "Good evening to you"]

SHAPE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return tiny_model()


def split(model: LocalModel, one, reply: str) -> tuple[list[int], list[int]]:
    return model.encode(one), model.tokenizer(reply, add_special_tokens=False)["input_ids"]


def test_logprobs_equal_the_straightforward_computation(model: LocalModel) -> None:
    for got, one, reply in zip(model.logprobs(CHATS, REPLIES), CHATS, REPLIES, strict=True):
        prompt, tokens = split(model, one, reply)
        logits, _ = forward(model, prompt + tokens, len(prompt))
        rows = logits.log_softmax(-1)[len(prompt) - 1 : len(prompt) - 1 + len(tokens)]
        expected = rows.gather(1, torch.tensor(tokens, dtype=torch.long)[:, None])[:, 0]
        assert got.dtype == np.float32
        assert got.shape == (len(tokens),)
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_logprobs_of_a_model_that_scales_its_logits_after_the_head(model: LocalModel) -> None:
    config = GraniteConfig(**{k: getattr(model.model.config, k) for k in SHAPE}, logits_scaling=8.0)
    torch.manual_seed(0)
    scaled = LocalModel(GraniteForCausalLM(config), model.tokenizer)
    steering = Steering.uniform((Intervention(vector(1), 1.0, 1),), len(CHATS))
    for got, one, reply in zip(scaled.logprobs(CHATS, REPLIES, steering), CHATS, REPLIES, strict=True):
        prompt, tokens = split(scaled, one, reply)
        logits, _ = forward(scaled, prompt + tokens, len(prompt), steering.rows[0])
        rows = logits.log_softmax(-1)[len(prompt) - 1 : len(prompt) - 1 + len(tokens)]
        expected = rows.gather(1, torch.tensor(tokens, dtype=torch.long)[:, None])[:, 0]
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_logprobs_share_the_prefix_and_do_not_depend_on_the_batch(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model.logprobs(CHATS, REPLIES)
    seen: list[int] = []
    original = model._network.prefix
    monkeypatch.setattr(model._network, "prefix", lambda p, s: (seen.append(len(p)), original(p, s))[1])
    model.logprobs([CHATS[0]] * 6, ["a", "bc", "def", "g", "hi", "jkl"])
    assert seen == [1]
    monkeypatch.setattr(model, "batch_rows", 1)
    for a, b in zip(whole, model.logprobs(CHATS, REPLIES), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


def test_many_long_replies_are_scored_in_parts(model: LocalModel) -> None:
    replies = ["word " * 120 + str(i) for i in range(6)]
    got = model.logprobs([CHATS[0]] * 6, replies)
    assert [len(g) for g in got] == [len(split(model, CHATS[0], r)[1]) for r in replies]
    np.testing.assert_allclose(got[5], model.logprobs([CHATS[0]], [replies[5]])[0], atol=5e-5)


def test_activations_equal_a_manual_hook(model: LocalModel) -> None:
    poolings = ("reply-mean", "reply-first", "reply-last", "prompt-last")
    got = dict(model.activations(CHATS, REPLIES, pooling=poolings))
    assert sorted(got) == [0, 1, 3, 4]
    for row, pooled in got.items():
        prompt, tokens = split(model, CHATS[row], REPLIES[row])
        _, states = forward(model, prompt + tokens, len(prompt))
        assert pooled.shape == (4, 3, 32)
        assert pooled.dtype == np.float32
        for site, state in enumerate(states):
            reply = state[len(prompt) :]
            expected = torch.stack([reply.mean(0), reply[0], reply[-1], state[len(prompt) - 1]])
            np.testing.assert_allclose(pooled[:, site], expected, atol=2e-5)


def test_activations_at_some_sites_with_one_pooling(model: LocalModel) -> None:
    every = dict(model.activations(CHATS, REPLIES))
    some = dict(model.activations(CHATS, REPLIES, sites=[1, 0]))
    for row, pooled in some.items():
        assert pooled.shape == (2, 32)
        np.testing.assert_allclose(pooled, every[row][[1, 0]], atol=1e-6)


def test_activations_of_prompts_need_no_reply(model: LocalModel) -> None:
    assert sorted(row for row, _ in model.activations(CHATS, [""] * 5, pooling="prompt-last")) == [0, 1, 2, 3, 4]


def test_activations_see_the_steering(model: LocalModel) -> None:
    rows = (
        (Intervention(vector(1), 2.0, 0), Intervention(vector(2), 1.0, 2, positions="all")),
        (Intervention(vector(3), 0.5, 1, "add-norm", phase="decode"),),
    )
    got = dict(model.activations(CHATS[:2], REPLIES[:2], steering=Steering(rows)))
    for row in (0, 1):
        prompt, tokens = split(model, CHATS[row], REPLIES[row])
        _, states = forward(model, prompt + tokens, len(prompt), rows[row])
        expected = torch.stack([state[len(prompt) :].mean(0) for state in states])
        np.testing.assert_allclose(got[row], expected, atol=2e-5)


def test_activations_stream_and_leave_no_hooks_between_rows(model: LocalModel) -> None:
    reading = model.activations([CHATS[0]] * 300, ["abc " * 20] * 300)
    next(reading)
    assert not any(block._forward_hooks for block in model._network.blocks)
    assert model.logprobs([CHATS[0]], ["abc"])[0].shape == (3,)
    tracemalloc.start()
    count = sum(1 for _ in itertools.islice(reading, 299))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 299
    assert peak < 20e6


def test_blocks_after_the_last_site_do_not_run(model: LocalModel) -> None:
    ran: list[int] = []
    handles = [b.register_forward_hook(lambda *a, i=i: ran.append(i)) for i, b in enumerate(model._network.blocks)]
    try:
        list(model.activations(CHATS[:1], REPLIES[:1], sites=[1]))
    finally:
        for handle in handles:
            handle.remove()
    assert ran == [0, 1]


def test_wrong_arguments(model: LocalModel) -> None:
    with pytest.raises(UserError, match="1 replies for 2 chats"):
        model.logprobs(CHATS[:2], ["a"])
    with pytest.raises(UserError, match="got 'mean'"):
        model.activations(CHATS[:1], ["a"], pooling="mean")  # type: ignore[arg-type]
    with pytest.raises(SteeringShapeError, match=r"0 to 2, got \[3\]"):
        model.activations(CHATS[:1], ["a"], sites=[3])


def test_choose_takes_the_likeliest_option(model: LocalModel) -> None:
    options = [["yes", "no, not at all", "maybe"], ["a", "bb"]]
    scores = [[model.logprobs([c], [o])[0] for o in given] for c, given in zip(CHATS[:2], options, strict=True)]
    assert choose(model, CHATS[:2], options) == [int(np.argmax([s.mean() for s in row])) for row in scores]
    summed = choose(model, CHATS[:2], options, length_normalised=False)
    assert summed == [int(np.argmax([s.sum() for s in row])) for row in scores]
    assert summed[1] == 0
    with pytest.raises(UserError, match="row 1"):
        choose(model, CHATS[:2], [["a"], []])


def test_batches_are_even_and_keep_to_every_limit() -> None:
    sizes = [(length, length % 7) for length in range(1, 60)]
    for rows, limits in ((10, (10**6, 10**6)), (100, (200, 10**6)), (100, (10**6, 20)), (1, (1, 1))):
        split_up = batches(sizes, sizes, rows, limits)
        assert sorted(row for batch in split_up for row in batch) == list(range(59))
        for batch in split_up:
            assert len(batch) <= rows
            for place, limit in enumerate(limits):
                assert len(batch) == 1 or max(sizes[row][place] for row in batch) * len(batch) <= limit
    assert [len(batch) for batch in batches([(1,)] * 130, range(130), 128, (10**6,))] == [65, 65]
    assert [len(batch) for batch in batches([(1,)] * 130, range(130), 500, (128,))] == [65, 65]
    assert batches([], [], 4, (4,)) == []

"""LocalModel.generate: batches, shared prefixes, stops, errors, seeds."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import ModelError, SteeringShapeError, UserError
from rolecraft.models import GREEDY, LocalModel, Sampling, chat
from rolecraft.models import _decode as decode_module
from rolecraft.models._cache import RowCache
from rolecraft.testing import tiny_model
from tests.models._reference import greedy, vector

CHATS = [
    chat("hello"),
    chat("how are you today?", "be a pirate"),
    chat("hello"),
    chat("x", None),
    chat("what do you think about the sea and about ships?"),
    chat("hello"),
]
STEERING = Steering(
    (
        (Intervention(vector(1), 2.0, 1),),
        (Intervention(vector(2), 1.0, 0), Intervention(vector(3), 0.4, 2, "add-norm")),
        (),
        (Intervention(vector(4), 3.0, 1, positions="all"),),
        (Intervention(vector(5), 0.0, 1, "ablate"), Intervention(vector(6), 1.0, 1, phase="decode")),
        (Intervention(vector(7), 2.0, 0, "cap", threshold=0.1, phase="prefill", positions="all"),),
    )
)
TOKENS = Sampling(12, 0.0)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return tiny_model()


def ids(completions) -> list[list[int]]:
    return [list(c.token_ids) for c in completions]


def test_batched_unsteered_greedy_equals_one_by_one_without_cache(model: LocalModel) -> None:
    assert ids(model.generate(CHATS, TOKENS)) == [greedy(model, c, 12) for c in CHATS]


def test_mixed_rows_equal_one_by_one_without_cache(model: LocalModel) -> None:
    expected = [greedy(model, c, 12, row) for c, row in zip(CHATS, STEERING.rows, strict=True)]
    assert ids(model.generate(CHATS, TOKENS, STEERING)) == expected
    assert len({tuple(e) for e in expected[::2]}) > 1


def test_permuting_rows_permutes_replies(model: LocalModel) -> None:
    sampling, seeds = Sampling(12, 1.0, 0.95), [5, 3, 9, 1, 7, 2]
    straight = model.generate(CHATS, sampling, STEERING, seeds)
    order = [3, 0, 5, 1, 4, 2]
    moved = model.generate([CHATS[i] for i in order], sampling, STEERING.select(order), [seeds[i] for i in order])
    assert ids(moved) == [ids(straight)[i] for i in order]


def test_batch_size_does_not_matter(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling, seeds = Sampling(12, 1.0, 0.95), list(range(6))
    whole = ids(model.generate(CHATS, sampling, STEERING, seeds))
    for rows, tokens in ((1, 10**6), (4, 10**6), (256, 60)):
        monkeypatch.setattr(model, "batch_rows", rows)
        monkeypatch.setattr(model, "batch_tokens", tokens)
        assert ids(model.generate(CHATS, sampling, STEERING, seeds)) == whole


def test_strength_zero_is_bit_identical_and_installs_no_hook(model: LocalModel) -> None:
    idle = Steering(
        tuple((Intervention(vector(1), 0.0, 1, operator),) for operator in ("add", "add-norm", "add-signed"))
    )
    assert idle.sites == ()
    sampling = Sampling(20, 1.0, 0.95)
    assert model.generate(CHATS[:3], sampling, idle, [1, 2, 3]) == model.generate(CHATS[:3], sampling, None, [1, 2, 3])


def test_identical_prompts_are_prefilled_once(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = model._network.extend

    def counting(rows, *others, **named):
        seen.append(len(rows))
        return original(rows, *others, **named)

    monkeypatch.setattr(model._network, "extend", counting)
    one = Intervention(vector(1), 2.0, 1)
    many = [chat("same")] * 8
    model.generate(many, TOKENS, Steering(tuple((Intervention(vector(i), 1.0, 1),) for i in range(8))))
    everywhere = Intervention(vector(2), 2.0, 1, positions="all")
    model.generate(many, TOKENS, Steering(((one,), (everywhere,), (everywhere,), (), (), (one,), (one,), (one,))))
    # Steered before its last token, the prompt is still run once up to the block that is steered.
    assert seen == [1, 1]


def test_a_row_draws_the_same_whatever_its_neighbours(model: LocalModel) -> None:
    sampling = Sampling(16, 1.0, 0.95)
    alone = model.generate([CHATS[1]], sampling, STEERING.select([1]), [42])
    among = model.generate(CHATS, sampling, STEERING, [0, 42, 1, 2, 3, 4])
    assert ids(alone)[0] == ids(among)[1]
    assert ids(model.generate([CHATS[0]] * 2, sampling, None, [1, 2]))[0] != ids(alone)[0]
    first, second, third = ids(model.generate([CHATS[0]] * 3, sampling, None, [1, 2, 1]))
    assert first == third != second


def test_stops_at_every_end_token_and_drops_finished_rows(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [greedy(model, c, 12) for c in CHATS]
    # Tokens that some rows reach at different steps now end replies.
    stops = frozenset({free[0][3], free[1][6]})
    dropped: list[int] = []
    original = RowCache.keep
    monkeypatch.setattr(RowCache, "keep", lambda self, rows: (dropped.append(len(rows)), original(self, rows))[1])
    monkeypatch.setattr(model, "_stops", stops)
    replies = model.generate(CHATS, TOKENS)
    for reply, tokens in zip(replies, free, strict=True):
        cut = next((i for i, t in enumerate(tokens) if t in stops), None)
        assert list(reply.token_ids) == (tokens if cut is None else tokens[:cut])
        assert reply.finish == ("length" if cut is None else "stop")
        assert reply.tokens == len(reply.token_ids)
    assert dropped


def test_end_tokens_of_all_configurations_count(model: LocalModel) -> None:
    assert model._stops == {256, 258}


def test_a_row_with_overflowing_logits_ends_alone(model: LocalModel) -> None:
    bad = Intervention(np.full(32, 1e38, dtype=np.float32), 10.0, 1)  # overflows to infinity
    steering = Steering((STEERING.rows[0], (bad,), *STEERING.rows[2:]))
    for sampling in (TOKENS, Sampling(12, 1.0, 0.9)):
        clean = model.generate(CHATS, sampling, STEERING)
        replies = model.generate(CHATS, sampling, steering)
        assert replies[1].finish == "error"
        assert replies[1].text == ""
        assert "not finite" in replies[1].note
        assert [r for i, r in enumerate(replies) if i != 1] == [r for i, r in enumerate(clean) if i != 1]


def test_a_prompt_beyond_the_context_ends_alone(model: LocalModel) -> None:
    replies = model.generate([chat("a" * 2100), chat("hello")], TOKENS)
    assert replies[0].finish == "error"
    assert "context of 2048" in replies[0].note
    assert list(replies[1].token_ids) == greedy(model, chat("hello"), 12)


def test_hooks_are_gone_afterwards_and_after_an_exception(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def hooks() -> int:
        return sum(len(block._forward_hooks) for block in model._network.blocks)

    model.generate(CHATS, TOKENS, STEERING)
    assert hooks() == 0
    monkeypatch.setattr(decode_module, "draw", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.generate(CHATS, TOKENS, STEERING)
    assert hooks() == 0
    monkeypatch.undo()
    assert len(model.generate(CHATS[:1], TOKENS)) == 1


def test_nested_use_is_refused(model: LocalModel) -> None:
    handle = model.model.model.layers[0].register_forward_hook(lambda *args: model.generate(CHATS[:1], TOKENS))
    try:
        with pytest.raises(ModelError, match="nested"):
            model.generate(CHATS[:1], TOKENS)
    finally:
        handle.remove()


def test_threads_take_turns(model: LocalModel) -> None:
    sampling = Sampling(12, 1.0, 0.95)
    expected = [ids(model.generate(CHATS, sampling, STEERING, [seed] * 6)) for seed in range(4)]
    got: dict[int, list[list[int]]] = {}

    def work(seed: int) -> None:
        got[seed] = ids(model.generate(CHATS, sampling, STEERING, [seed] * 6))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[seed] for seed in range(4)] == expected


def test_shapes_are_checked(model: LocalModel) -> None:
    with pytest.raises(SteeringShapeError, match="2 rows but there are 1 chats"):
        model.generate(CHATS[:1], TOKENS, Steering(((), ())))
    with pytest.raises(SteeringShapeError, match=r"site 3 .* 3 decoder blocks"):
        model.generate(CHATS[:1], TOKENS, Steering(((Intervention(vector(1), 1.0, 3),),)))
    with pytest.raises(SteeringShapeError, match=r"has 16 elements .* hidden size is 32"):
        model.generate(CHATS[:1], TOKENS, Steering(((Intervention(vector(1, 16), 1.0, 0),),)))
    with pytest.raises(UserError, match="2 seeds for 1 chats"):
        model.generate(CHATS[:1], TOKENS, seeds=[1, 2])


def test_no_chats_give_no_replies(model: LocalModel) -> None:
    assert model.generate([], GREEDY) == []
    assert model.logprobs([], []) == []
    assert list(model.activations([], [])) == []


def test_half_precision_attention_agrees_with_transformers() -> None:
    model = tiny_model(dtype=torch.bfloat16)
    assert model._network.turned
    plain = tiny_model(dtype=torch.bfloat16)
    plain.model.set_attn_implementation("sdpa")
    plain._network.turned = False
    a, b = (m.generate(CHATS * 4, Sampling(4, 0.0)) for m in (model, plain))
    agree = np.mean([x.token_ids == y.token_ids for x, y in zip(a, b, strict=True)])
    assert agree >= 0.8


def test_properties(model: LocalModel) -> None:
    assert (model.n_sites, model.hidden, model.dtype) == (3, 32, torch.float32)
    assert model.name == "local:tiny-3x32-0"
    assert model.revision == tiny_model().revision != tiny_model(seed=1).revision

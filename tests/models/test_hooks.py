"""Steering hooks: each operator, position and phase changes exactly what it should at its site."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import ModelError, SteeringShapeError
from rolecraft.models import LocalModel, chat
from rolecraft.models._hooks import LAST, NEW, PAD, PROMPT, Steerer, find_blocks, hooked
from rolecraft.testing import tiny_model
from tests.models._reference import apply, forward, vector

OPERATORS = [
    Intervention(vector(1), 1.7, 0),
    Intervention(vector(1), -1.7, 0),
    Intervention(vector(2), 0.3, 0, "add-norm"),
    Intervention(vector(3), 0.8, 0, "add-signed"),
    Intervention(vector(4), 0.0, 0, "ablate"),
    Intervention(vector(4), 1.5, 0, "ablate"),
    Intervention(vector(5), 1.0, 0, "cap", threshold=0.2),
]


def run(interventions, kinds, state: torch.Tensor) -> torch.Tensor:
    """Send `state` (rows, tokens, hidden) through the hooks of a block that returns it unchanged."""
    steerer = Steerer(Steering(tuple(interventions)), state.dtype, state.device)
    steerer.kinds = kinds
    blocks = nn.ModuleList([nn.Identity()])
    with hooked(blocks, {0: steerer.hook(0)}):
        return blocks[0](state)


@pytest.mark.parametrize("intervention", OPERATORS, ids=lambda i: f"{i.operator}{i.strength:+}")
def test_operators_match_their_closed_form(intervention: Intervention) -> None:
    state = torch.randn(4, 1, 32, generator=torch.Generator().manual_seed(0))
    got = run([(intervention,)] * 4, NEW, state.clone())
    torch.testing.assert_close(got, apply(state, intervention))
    assert not torch.equal(got, state)
    mixed = run([(), (intervention,), (), (intervention,)], NEW, state.clone())
    assert torch.equal(mixed[[0, 2]], state[[0, 2]])
    assert torch.equal(mixed[[1, 3]], got[[1, 3]])


def test_a_cap_leaves_states_below_its_threshold() -> None:
    v = vector(5)
    u = torch.from_numpy(v / np.linalg.norm(v))
    state = torch.stack([u * 0.5, u * 5.0])[:, None]
    got = run([(Intervention(v, 1.0, 0, "cap", threshold=1.0),)] * 2, NEW, state.clone())
    torch.testing.assert_close((got[:, 0] @ u), torch.tensor([0.5, 1.0]))


def test_interventions_of_a_row_apply_in_order() -> None:
    state = torch.randn(2, 1, 32, generator=torch.Generator().manual_seed(0))
    a, b = Intervention(vector(1), 1.0, 0), Intervention(vector(1), 0.0, 0, "ablate")
    got = run([(a, b), (b, a)], NEW, state.clone())
    torch.testing.assert_close(got[0], apply(apply(state[0], a), b))
    torch.testing.assert_close(got[1], apply(apply(state[1], b), a))
    assert not torch.allclose(got[0] - state[0], got[1] - state[1])


@pytest.mark.parametrize(
    ("phase", "positions", "touched"),
    [
        ("both", "last", [LAST, NEW]),
        ("prefill", "last", [LAST]),
        ("decode", "last", [NEW]),
        ("both", "all", [PROMPT, LAST, NEW]),
        ("prefill", "all", [PROMPT, LAST]),
        ("decode", "all", [NEW]),
    ],
)
def test_phase_and_positions_choose_the_tokens(phase, positions, touched) -> None:
    kinds = torch.tensor([[PAD, PROMPT, PROMPT, LAST, NEW, NEW], [PROMPT, LAST, NEW, NEW, NEW, PAD]])
    state = torch.randn(2, 6, 32, generator=torch.Generator().manual_seed(0))
    v = vector(1)
    got = run([(Intervention(v, 2.0, 0, phase=phase, positions=positions),)] * 2, kinds, state.clone())
    change = got - state
    where = torch.isin(kinds, torch.tensor(touched))
    torch.testing.assert_close(
        change[where], torch.from_numpy(2 * v).expand(int(where.sum()), -1), atol=1e-6, rtol=1e-6
    )
    assert torch.equal(got[~where], state[~where])


def test_tuple_outputs_keep_what_else_they_hold() -> None:
    class Block(nn.Module):
        def forward(self, h):
            return h, "cache"

    steerer = Steerer(Steering(((Intervention(vector(1), 1.0, 0),),)), torch.float32, torch.device("cpu"))
    steerer.kinds = NEW
    blocks = nn.ModuleList([Block()])
    with hooked(blocks, {0: steerer.hook(0)}):
        h, rest = blocks[0](torch.zeros(1, 1, 32))
    assert rest == "cache"
    assert torch.equal(h[0, 0], torch.from_numpy(vector(1)))


def test_a_block_that_returns_its_input_is_not_written_to() -> None:
    state = torch.zeros(2, 1, 32)
    run([(Intervention(vector(1), 1.0, 0),), ()], NEW, state)
    assert not state.any()


def test_the_vector_is_cast_to_the_state() -> None:
    state = torch.zeros(1, 1, 32, dtype=torch.bfloat16)
    got = run([(Intervention(vector(1), 1.5, 0),)], NEW, state)
    assert torch.equal(got[0, 0], torch.from_numpy(1.5 * vector(1)).bfloat16())


def test_keep_follows_the_rows_that_stay() -> None:
    rows = tuple((Intervention(vector(i), 1.0, 0),) for i in range(4))
    steerer = Steerer(Steering(rows), torch.float32, torch.device("cpu"))
    steerer.kinds = NEW
    steerer.keep([1, 3])
    steerer.keep([1])
    blocks = nn.ModuleList([nn.Identity()])
    with hooked(blocks, {0: steerer.hook(0)}):
        assert torch.equal(blocks[0](torch.zeros(1, 1, 32))[0, 0], torch.from_numpy(vector(3)))


def test_hooks_go_when_the_context_ends_and_when_it_fails() -> None:
    blocks = nn.ModuleList([nn.Identity(), nn.Identity()])
    with hooked(blocks, {0: lambda *a: None, 1: lambda *a: None}):
        assert all(block._forward_hooks for block in blocks)
    assert not any(block._forward_hooks for block in blocks)
    with pytest.raises(IndexError), hooked(blocks, {0: lambda *a: None, 2: lambda *a: None}):
        pass
    assert not any(block._forward_hooks for block in blocks)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return tiny_model()


def test_in_the_model_the_change_at_the_site_is_the_vector_at_one_position(model: LocalModel) -> None:
    c, v = 1.75, vector(9)
    one = chat("hello there")
    prompt = model.encode(one)
    plain = forward(model, prompt, len(prompt))[1][1]
    pooled = dict(
        model.activations(
            [one] * 2, ["", ""], [0, 1], "prompt-last", Steering(((), (Intervention(v, c, 1, phase="prefill"),)))
        )
    )
    assert np.array_equal(pooled[0][0], pooled[1][0])
    np.testing.assert_allclose(pooled[1][1] - pooled[0][1], c * v, atol=2e-6)
    np.testing.assert_allclose(pooled[0][1], plain[-1], atol=1e-5)


def test_hooks_are_called_once_per_prefill_and_new_token(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from rolecraft.models import Sampling

    calls: list[object] = []
    original = Steerer._apply
    monkeypatch.setattr(
        Steerer, "_apply", lambda self, steps, state: (calls.append(self.kinds), original(self, steps, state))[1]
    )
    steering = Steering(((Intervention(vector(1), 0.01, 1),),))
    reply = model.generate([chat("hello")], Sampling(6, 0.0), steering)[0]
    assert reply.tokens == 6
    assert calls == [LAST, NEW, NEW, NEW, NEW, NEW]


def test_decode_alone_leaves_the_first_token_unsteered_and_prefill_alone_changes_it(model: LocalModel) -> None:
    from rolecraft.models import Sampling

    chats, sampling = [chat(f"question {i}") for i in range(12)], Sampling(6, 0.0)
    plain = model.generate(chats, sampling)
    strong = vector(1, size=10.0)

    def steered(phase):
        return model.generate(
            chats, sampling, Steering.uniform([Intervention(strong, 1.0, 1, phase=phase)], len(chats))
        )

    late, early = steered("decode"), steered("prefill")
    assert all(a.token_ids[:1] == b.token_ids[:1] for a, b in zip(plain, late, strict=True))
    assert sum(a.token_ids != b.token_ids for a, b in zip(plain, late, strict=True)) > 6
    assert sum(a.token_ids[:1] != b.token_ids[:1] for a, b in zip(plain, early, strict=True)) > 6


@pytest.mark.parametrize("intervention", OPERATORS, ids=lambda i: f"{i.operator}{i.strength:+}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_self_test_passes_where_hooks_work(intervention: Intervention, dtype: torch.dtype) -> None:
    tiny_model(dtype=dtype).self_test(intervention)


@pytest.mark.parametrize("wrong", [0.0, 0.5, 2.0])
def test_self_test_fails_where_the_change_is_another(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    monkeypatch.setattr("rolecraft.models._hooks._changed", lambda state, step: state + wrong * step.shift[:, None])
    with pytest.raises(ModelError, match="does not reach site 1"):
        model.self_test(Intervention(vector(1), 1.0, 1))


def test_a_model_that_bypasses_its_blocks_is_refused() -> None:
    model = tiny_model()
    model._network.blocks = nn.ModuleList([nn.Identity() for _ in range(3)])
    with pytest.raises(ModelError, match="never called"):
        model.self_test(Intervention(vector(1), 1.0, 1))


def test_finding_blocks() -> None:
    model = tiny_model().model
    assert find_blocks(model) is model.model.layers
    assert find_blocks(model, "model.layers") is model.model.layers
    with pytest.raises(ModelError, match=r"looked for a ModuleList at model\.blocks"):
        find_blocks(model, "model.blocks")
    with pytest.raises(ModelError, match=r"transformer\.h"):
        find_blocks(nn.Linear(2, 2))


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "opt", "gemma2", "qwen2"])
def test_other_architectures_are_steered_and_read(family: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    from rolecraft.models import Sampling
    from rolecraft.testing._tiny import tiny_tokenizer

    size = {"vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    size |= {
        "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 512},
        "gpt_neox": {"intermediate_size": 64},
        "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
        "gemma2": {"intermediate_size": 64, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 16},
        "qwen2": {"intermediate_size": 64, "num_key_value_heads": 2},
    }[family]
    config = AutoConfig.for_model(family, bos_token_id=257, eos_token_id=258, pad_token_id=256, **size)
    torch.manual_seed(0)
    raw = AutoModelForCausalLM.from_config(config)
    model = LocalModel(raw, tiny_tokenizer())
    model.self_test(Intervention(vector(1), 2.0, 1))
    chats = [chat("hello there my friend, how are you"), chat("hi", "x"), chat("hi", "x")]
    steering = Steering(((), (Intervention(vector(1), 2.0, 1),), (Intervention(vector(2), 2.0, 2),)))
    together = model.generate(chats, Sampling(6, 0.0), steering)
    alone = [model.generate([c], Sampling(6, 0.0), steering.select([i]))[0] for i, c in enumerate(chats)]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]
    prompt, reply = model.encode(chats[0]), list(together[0].token_ids)
    with torch.no_grad():
        logits = raw(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
    assert logits.argmax(-1).tolist() == reply
    text = "some reply"
    got = model.logprobs([chats[0]], [text])[0]
    ids = model.tokenizer(text)["input_ids"]
    with torch.no_grad():
        logits = raw(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    expected = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_check_happens_before_anything_runs(model: LocalModel) -> None:
    with pytest.raises(SteeringShapeError, match="site 7"):
        model.self_test(Intervention(vector(1), 1.0, 7))

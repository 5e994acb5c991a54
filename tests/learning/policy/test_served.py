"""A served policy's rollouts: the server draws, the trainer scores with its own weights, which it hands over."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
import torch

from rolecraft.errors import ModelError, UserError
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import ServedSeat, WordCodec, add_adapter, export_adapter, tiny_policy
from rolecraft.learning.policy._token_policy import TokenPolicy
from rolecraft.learning.trainer import TrainConfig, Trainer
from tests.learning.trainer.small_worlds import Pick, Say
from tests.models.fake_server import FakeServer, error

CODEC = WordCodec(["ann", "red", "green", "light", "blue", "."])


def adapted(seed=1, spread=0.0, blocks=None):
    model = tiny_policy(CODEC, hidden=16, heads=2, seed=seed).network.model
    add_adapter(model, "policy", rank=2, seed=seed, blocks=blocks)
    policy = TokenPolicy(model, CODEC, base="tiny", adapter="policy", max_tokens=3)
    if spread:
        generator = torch.Generator().manual_seed(3)
        policy.load({n: spread * torch.randn(p.shape, generator=generator) for n, p in policy.parameters().items()})
    return policy


class Engine:
    """What a server does, with a policy of its own."""

    def __init__(self, policy, **change):
        self.policy, self.change = policy, change
        self.calls, self.asked = [], []

    def complete(self, body):
        self.asked.append(body)
        drawn = self.policy.sample([body["prompt"]], [None], [body["seed"]])[0]
        choice = {
            "token_ids": list(drawn.tokens),
            "logprobs": {"token_logprobs": list(drawn.logp)},
            "finish_reason": "stop" if drawn.ended else "length",
        }
        return 200, {}, {"choices": [choice | self.change]}

    def note(self, path):
        def answer(body):
            self.calls.append((path, body))
            return 200, {}, "Success"

        return answer

    def server(self):
        names = ("load_lora_adapter", "unload_lora_adapter")
        return FakeServer(routes={"/v1/completions": self.complete} | {f"/v1/{n}": self.note(n) for n in names})


def trainer(policy, **fields):
    config = TrainConfig(episodes=6, group=3, lr=0.05, **fields)
    return Trainer(Say, policy, make_rule("grpo"), config, seed=7)


def test_a_server_with_the_same_weights_gives_the_same_run(tmp_path):
    served = trainer(adapted())
    engine = Engine(served.policies["policy"])
    with engine.server() as server:
        served.seats["policy"] = ServedSeat(served.policies["policy"], server.url, "base", tmp_path)
        done = served.step()
    assert [e.turns[0].action for e in done.episodes] == [e.turns[0].action for e in _here()]
    assert done.figures["engine_gap"] < 1e-5
    assert {body["model"] for body in engine.asked} == {"policy-0"}
    assert {(body["max_tokens"], body["temperature"]) for body in engine.asked} == {(3, 1.0)}
    assert len(engine.asked) == 6


def _here():
    """Play the first iteration with seeds cut as a server takes them."""
    from rolecraft.learning.policy import _seat
    from rolecraft.learning.policy._served import _SEEDS

    whole, fresh = _seat._seed, trainer(adapted())
    _seat._seed = lambda view: whole(view) % _SEEDS
    try:
        return fresh.collect(fresh.starts())
    finally:
        _seat._seed = whole


def test_another_policy_at_the_server_shows_as_a_gap_and_is_scored_by_ours(tmp_path):
    made = trainer(adapted())
    engine = Engine(adapted(seed=9))
    with engine.server() as server:
        made.seats["policy"] = ServedSeat(made.policies["policy"], server.url, "base", tmp_path)
        starts = made.starts()
        rows = made.rows(made.collect(starts), starts)
    with torch.no_grad():
        expected = made.policies["policy"].score(rows.replies).logp.numpy()
    assert abs(rows.batch.token["logp_old"] - expected).max() < 1e-6
    gap = abs(rows.batch.token["logp_old"] - rows.batch.token["logp_sampled"])[rows.batch.mask]
    assert gap.max() > 0.01


def test_weights_are_sent_when_they_have_changed_and_only_then(tmp_path):
    made = trainer(adapted())
    engine = Engine(made.policies["policy"])
    with engine.server() as server:
        seat = made.seats["policy"] = ServedSeat(made.policies["policy"], server.url, "base", tmp_path)
        made.collect(made.starts())
        made.collect(made.starts())
        assert [path for path, _ in engine.calls] == ["load_lora_adapter"]
        for _ in range(2):
            made.step()
        made.collect(made.starts())
    assert [(path, body["lora_name"]) for path, body in engine.calls] == [
        ("load_lora_adapter", "policy-0"), ("load_lora_adapter", "policy-1"), ("unload_lora_adapter", "policy-0"),
        ("load_lora_adapter", "policy-2"), ("unload_lora_adapter", "policy-1"),
    ]  # fmt: skip
    assert seat.exports == 3
    assert [path.name for path in tmp_path.iterdir()] == ["policy-2"]
    assert engine.calls[-2][1]["lora_path"] == str(tmp_path / "policy-2")


@pytest.mark.filterwarnings("error:.*missing adapter keys")
@pytest.mark.parametrize("blocks", [None, [1]])
def test_peft_reads_the_adapter_that_is_exported(tmp_path, blocks):
    from peft import PeftModel

    policy = adapted(spread=0.3, blocks=blocks)
    export_adapter(policy, tmp_path)
    base = tiny_policy(CODEC, hidden=16, heads=2, seed=1).network.model
    ids = torch.tensor([CODEC.prompt("ann", None, "red .")])
    with torch.no_grad():
        plain = deepcopy(base)(input_ids=ids).logits
        found = PeftModel.from_pretrained(base, str(tmp_path))(input_ids=ids).logits
        with policy.active():
            expected = policy.network.model(input_ids=ids).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (plain - expected).abs().max() > 0.01
    written = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (written["r"], written.get("layers_to_transform")) == (2, blocks)


def test_a_whole_model_is_written_and_reloaded_by_a_function_of_ones_own(tmp_path):
    from transformers import AutoModelForCausalLM

    policy = tiny_policy(CODEC, hidden=16, heads=2, seed=1, max_tokens=3)
    with pytest.raises(UserError, match="give reload"):
        ServedSeat(policy, "http://localhost:1", "m", tmp_path)
    loaded = []

    def reload(folder):
        loaded.append(AutoModelForCausalLM.from_pretrained(folder))
        return f"v{len(loaded)}"

    made, engine = trainer(policy), Engine(policy)
    with engine.server() as server:
        made.seats["policy"] = ServedSeat(policy, server.url, "m", tmp_path, reload=reload)
        made.step()
        made.collect(made.starts())
    assert {body["model"] for body in engine.asked} == {"v1", "v2"}
    assert torch.equal(loaded[1].lm_head.weight, policy.network.model.lm_head.weight)
    assert not torch.equal(loaded[0].lm_head.weight, loaded[1].lm_head.weight)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"token_ids": None}, "return_token_ids"),
        ({"logprobs": None}, "return_token_ids"),
        ({"logprobs": {"token_logprobs": [0.0] * 9}}, "log-probability each"),
        ({"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "stop"}, "policy's end is 2"),
        ({"token_ids": [5], "logprobs": {"token_logprobs": [float("nan")]}, "finish_reason": "length"}, "not finite"),
    ],
)
def test_answers_that_cannot_be_trained_on(tmp_path, change, said):
    made = trainer(adapted())
    with Engine(adapted(), **change).server() as server:
        made.seats["policy"] = ServedSeat(made.policies["policy"], server.url, "base", tmp_path)
        with pytest.raises(ModelError, match=said):
            made.collect(made.starts())


def test_bad_input(tmp_path):
    policy = adapted()
    with pytest.raises(UserError, match="http"):
        ServedSeat(policy, "localhost:8000", "m", tmp_path)
    with pytest.raises(UserError, match="no adapter"):
        export_adapter(tiny_policy(CODEC, hidden=16, heads=2), tmp_path)
    listed = Trainer(Pick, policy, make_rule("grpo"), TrainConfig(episodes=2, group=2))
    listed.seats["policy"] = ServedSeat(policy, "http://localhost:1", "m", tmp_path)
    with pytest.raises(UserError, match="ann has listed actions"):
        listed.collect(listed.starts())
    refusing = FakeServer(routes={"/v1/load_lora_adapter": lambda body: error(404, "no such path")})
    made = trainer(policy)
    with refusing as server:
        made.seats["policy"] = ServedSeat(policy, server.url, "base", tmp_path)
        with pytest.raises(ModelError, match=r"does not load the weights .HTTP 404"):
            made.collect(made.starts())

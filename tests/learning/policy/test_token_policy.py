"""Policies that are trained: what they draw, what they score, and that the two agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rolecraft.errors import ModelError, UserError
from rolecraft.learning.policy import (
    LearnerSeat,
    Options,
    Reply,
    WordCodec,
    lora_policies,
    model_policy,
    reply_of,
    tiny_policy,
    words,
)
from rolecraft.roles import Role
from rolecraft.testing import tiny_model
from rolecraft.worlds import play
from tests.learning.trainer.small_worlds import Pick


@pytest.fixture
def codec():
    return WordCodec.of_world(Pick)


@pytest.fixture
def policy(codec):
    return tiny_policy(codec, hidden=16, heads=2, seed=3, max_tokens=6)


def plain_log_probs(policy, reply):
    """Score one reply by itself, the slow way: a forward pass of the whole text, and a softmax over what may stand."""
    ids = torch.tensor([[*reply.prompt, *reply.tokens]])
    logits = policy.network.model(input_ids=ids, use_cache=False).logits[0] / policy.temperature
    found, entropy = [], []
    for place, token in enumerate(reply.tokens):
        row = logits[len(reply.prompt) - 1 + place]
        allowed = range(len(row)) if reply.options is None else reply.options.next(reply.tokens[:place])
        table = torch.log_softmax(row[list(allowed)], -1)
        found.append(table[list(allowed).index(token)])
        entropy.append(-(table.exp() * table).sum())
    return torch.stack(found), torch.stack(entropy)


def rows_of(policy, codec):
    options = policy.options(("red", "green", "light blue", "light"))
    texts = ["red .", "green .", "light blue . . . red", "red ."]
    prompts = [policy.encode("ann", None, text) for text in texts]
    chosen = [options, options, None, options]
    drawn = policy.sample(prompts, chosen, [5, 6, 7, 5])
    return [Reply(p, d.tokens, o) for p, d, o in zip(prompts, drawn, chosen, strict=True)], drawn


def test_words_and_the_codec():
    assert words("x(0,1) light_blue, ok?") == ["x", "(", "0", ",", "1", ")", "light_blue", ",", "ok", "?"]
    codec = WordCodec(["a", "b", "a"])
    assert codec.vocabulary == ("a", "b")
    assert codec.text(codec.reply("b a")) == "b a"
    assert codec.unknown == 0
    assert [codec.tokens[token] for token in codec.prompt("a", "b", "z a")] == (
        ["<begin>", "a", "b", "<split>", "<unk>", "a", "<split>"]
    )
    assert codec.unknown == 1
    for wrong in ([], ["two words"], [""]):
        with pytest.raises(UserError, match="single words"):
            WordCodec(wrong)


def test_a_world_s_words_are_gathered(codec):
    assert set(codec.vocabulary) == {"ann", "red", "green", "light", "blue", "."}
    with pytest.raises(UserError, match="may say anything"):
        WordCodec.of_world(lambda: Pick(free=True))
    assert "red" in WordCodec.of_world(lambda: Pick(free=True), extra=["red"]).vocabulary


def test_options_end_where_one_begins_another():
    options = Options({"a": [1], "a b": [1, 2], "c": [3]}, end=9)
    assert dict(options.actions) == {(1, 9): "a", (1, 2): "a b", (3,): "c"}
    assert options.next([]) == (1, 3)
    assert options.next([1]) == (2, 9)
    assert options.next([3]) == ()
    assert not options.single
    assert Options({"a": [1], "c": [3]}, end=9).single
    for wrong in ({}, {"a": []}, {"a": [1], "b": [1]}):
        with pytest.raises(UserError, match="tokens of its own"):
            Options(wrong, 9)


def test_what_is_drawn_has_the_scored_probability(policy, codec):
    rows, drawn = rows_of(policy, codec)
    scored = policy.score(rows)
    for row, reply in enumerate(rows):
        size = len(reply.tokens)
        logp, entropy = plain_log_probs(policy, reply)
        assert scored.logp[row, :size].tolist() == pytest.approx(logp.tolist(), abs=1e-5)
        assert scored.entropy[row, :size].tolist() == pytest.approx(entropy.tolist(), abs=1e-5)
        assert list(drawn[row].logp) == pytest.approx(logp.tolist(), abs=1e-5)
        assert scored.logp[row, size:].abs().sum() == 0
    assert drawn[0].tokens == drawn[3].tokens  # the same prompt and seed
    assert scored.value is None


def test_equal_rows_that_are_computed_once_have_the_same_gradient(policy, codec):
    rows, _ = rows_of(policy, codec)
    weights = torch.tensor([1.0, -2.0, 3.0, 0.5])
    (policy.score(rows).logp.sum(1) * weights).sum().backward()
    found = {name: each.grad.clone() for name, each in policy.parameters().items()}
    policy.network.model.zero_grad()
    sum(weights[row] * plain_log_probs(policy, reply)[0].sum() for row, reply in enumerate(rows)).backward()
    for name, each in policy.parameters().items():
        assert torch.allclose(found[name], each.grad, atol=1e-4), name


@pytest.mark.parametrize("actions", [("red", "green"), ("red", "light blue", "light", "green")])
def test_draws_follow_the_odds(policy, actions):
    options, prompt = policy.options(actions), policy.encode("ann", None, "green .")
    odds = policy.odds([prompt], [options])[0]
    assert sum(odds.values()) == pytest.approx(1, abs=1e-5)
    drawn = policy.sample([prompt] * 2000, [options] * 2000, list(range(2000)))
    assert all(each.ended for each in drawn)
    named = [options.actions[each.tokens] for each in drawn]
    for action in actions:
        assert named.count(action) / 2000 == pytest.approx(odds[action], abs=0.04)


def test_a_draw_depends_on_its_own_seed_alone(policy, codec):
    prompts = [policy.encode("ann", None, text) for text in ("red .", "green . . . .", "light blue .")]
    alone = [policy.sample([prompt], [None], [seed])[0] for prompt, seed in zip(prompts, (1, 2, 3), strict=True)]
    together = policy.sample(prompts[::-1], [None] * 3, [3, 2, 1])[::-1]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    assert all(len(each.tokens) <= 6 for each in alone)
    assert {each.ended for each in policy.sample(prompts * 30, [None] * 90, list(range(90)))} == {True, False}


def test_a_short_reply_among_many_long_ones_ends_where_it_ends(policy, codec):
    """A few rows that are done stay in their batch, whose others go on."""
    long, short = policy.options(("light blue light blue",)), policy.options(("red",))
    prompts = [policy.encode("ann", None, "red .")] * 20
    drawn = policy.sample(prompts, [short] + [long] * 19, list(range(20)))
    assert drawn[0].tokens == tuple(codec.reply("red"))
    assert {each.tokens for each in drawn[1:]} == {tuple(codec.reply("light blue light blue"))}
    assert all(each.ended for each in drawn)


def test_the_temperature_flattens(codec):
    cold, hot = (tiny_policy(codec, hidden=16, heads=2, seed=3, temperature=t) for t in (0.2, 5.0))
    options = cold.options(("red", "green"))
    spread = [max(p.odds([p.encode("ann", None, "red .")], [options])[0].values()) for p in (cold, hot)]
    assert spread[0] > spread[1]
    with pytest.raises(UserError, match="temperature"):
        tiny_policy(codec, temperature=0)


def test_an_action_longer_than_a_reply_may_be_is_refused(codec):
    policy = tiny_policy(codec, hidden=16, heads=2, max_tokens=1)
    with pytest.raises(UserError, match="raise max_tokens"):
        policy.sample([[1]], [policy.options(("light blue",))], [0])


def test_a_critic_starts_at_zero_and_is_trained(codec):
    policy = tiny_policy(codec, hidden=16, heads=2, critic=True)
    scored = policy.score([Reply(policy.encode("ann", None, "red ."), (5, 6))])
    assert scored.value.tolist() == [[0.0, 0.0]]
    scored.value.sum().backward()
    assert policy.parameters()["critic.bias"].grad.item() == 2


def test_a_reference_stays_behind(policy, codec):
    rows, _ = rows_of(policy, codec)
    with pytest.raises(UserError, match="keep_reference"):
        policy.score(rows, reference=True)
    policy.keep_reference()
    before = policy.score(rows).logp.detach()
    with torch.no_grad():
        for each in policy.parameters().values():
            each += 0.1 * torch.randn_like(each)
    assert torch.equal(policy.score(rows, reference=True).logp, before)
    assert not torch.allclose(policy.score(rows).logp, before)


def test_weights_of_another_policy_are_refused(policy, codec):
    own = {name: each.detach() for name, each in policy.parameters().items()}
    policy.load(own)
    with pytest.raises(ModelError, match="another policy"):
        policy.load(dict(list(own.items())[1:]))
    with pytest.raises(ModelError, match="another policy"):
        tiny_policy(codec, hidden=32, heads=2).load(own)


class TestAdapters:
    @pytest.fixture
    def model(self):
        return tiny_model(2)

    @pytest.fixture
    def pair(self, model):
        roles = {"cook": Role(id="cook", name="cook", description="cooks", instructions=("You are a cook.",))}
        return lora_policies(model, ["first", "second"], rank=2, roles=roles, max_tokens=4)

    def row(self, policy):
        return [Reply(policy.encode("ann", None, "hello"), tuple(policy.codec.reply("yes")))]

    def test_they_start_without_effect_and_learn_apart(self, model, pair):
        plain = model_policy(tiny_model(2), max_tokens=4)
        first, second = pair.values()
        before = plain.score(self.row(plain)).logp.detach()
        for policy in (first, second):
            assert policy.score(self.row(policy)).logp.detach().tolist() == before.tolist()
            assert all("lora" in name and policy.adapter in name for name in policy.parameters())
        assert not set(first.parameters()) & set(second.parameters())
        optimiser = torch.optim.SGD(list(first.parameters().values()), lr=0.5)
        for _ in range(2):
            optimiser.zero_grad()
            (-first.score(self.row(first)).logp.sum()).backward()
            optimiser.step()
        assert first.score(self.row(first)).logp.sum() > before.sum() + 1e-3
        assert second.score(self.row(second)).logp.tolist() == before.tolist()
        assert first.score(self.row(first), reference=True).logp.tolist() == before.tolist()
        assert all(each.grad is None for each in second.parameters().values())

    def test_drawing_uses_the_adapter(self, pair):
        first, second = pair.values()
        with torch.no_grad():
            for name, each in first.parameters().items():
                if "lora_B" in name:
                    each += torch.randn(each.shape, generator=torch.Generator().manual_seed(0))
        prompts = [first.encode("ann", None, "hello")] * 20
        one, other = (policy.sample(prompts, [None] * 20, list(range(20))) for policy in (first, second))
        assert [each.tokens for each in one] != [each.tokens for each in other]

    def test_the_last_blocks_alone_can_have_them(self):
        model = tiny_model(3)
        policy = lora_policies(model, ["policy"], rank=2, blocks=[2], max_tokens=4)["policy"]
        every = lora_policies(tiny_model(3), ["policy"], rank=2, max_tokens=4)["policy"]
        assert set(policy.parameters()) == {name for name in every.parameters() if "layers.2." in name}
        policy.score(self.row(policy)).logp.sum().backward()
        assert all(each.grad is not None for each in policy.parameters().values())
        assert not any(each.requires_grad for name, each in model.model.named_parameters() if "lora" not in name)

    def test_a_role_reaches_the_prompt(self, model, pair):
        policy = pair["first"]
        assert "You are a cook." in model.tokenizer.decode(policy.encode("ann", "cook", "hello"))
        with pytest.raises(UserError, match="'judge' is not among"):
            policy.encode("ann", "judge", "hello")


def test_a_seat_plays_legally_and_its_turns_can_be_scored(policy):
    world = Pick(agents=("ann", "bob"), turns=2)
    episode = play(world, dict.fromkeys(world.agents, LearnerSeat(policy)), seed=4)
    assert len(episode.turns) == 4
    assert episode.fallbacks == 0
    scored = policy.score([reply_of(policy, turn, None) for turn in episode.turns])
    sampled = [sum(turn.notes["logp"]) for turn in episode.turns]
    assert scored.logp.sum(1).tolist() == pytest.approx(sampled, abs=1e-5)
    assert np.isfinite(sampled).all()

"""A prompt that rows share is run once: the same states and the same gradient as row by row."""

from __future__ import annotations

import pytest
import torch

from rolecraft.learning.policy import Reply, WordCodec, tiny_policy
from rolecraft.learning.policy import _shared as shared
from rolecraft.learning.policy._shared import reply_states

CODEC = WordCodec(["ann", "red", "green", "blue"])


def policy(seed=3):
    return tiny_policy(CODEC, hidden=16, heads=2, seed=seed, max_tokens=4)


def rows(prompts, replies, lengths):
    rng = torch.Generator().manual_seed(5)

    def draw(size):
        return tuple(torch.randint(3, len(CODEC), (size,), generator=rng).tolist())

    heads = [draw(length) for length in prompts]
    return [Reply(head, draw(lengths[n % len(lengths)])) for n in range(replies) for head in heads]


def states_and_gradient(made, given, worth, monkeypatch):
    calls = []
    behind = shared._behind_prompts
    monkeypatch.setattr(shared, "_WORTH", worth)
    monkeypatch.setattr(shared, "_behind_prompts", lambda *a: calls.append(1) or behind(*a))
    states = reply_states(made.network, given)
    weights = torch.linspace(-1, 1, states.numel()).reshape(states.shape)
    named = made.parameters()
    gradient = torch.autograd.grad((states * weights).sum(), list(named.values()), allow_unused=True)
    monkeypatch.undo()
    return states.detach(), dict(zip(named, gradient, strict=True)), bool(calls)


@pytest.mark.parametrize("lengths", [(3,), (1, 4, 2)], ids=["equal replies", "unequal replies"])
@pytest.mark.parametrize("prompts", [(7, 7), (9, 2, 5), (1, 6)], ids=["equal", "unequal", "one of a token"])
def test_states_and_gradient_are_those_of_rows_by_themselves(prompts, lengths, monkeypatch):
    made, given = policy(), rows(prompts, 5, lengths)
    states, gradient, used = states_and_gradient(made, given, 10.0, monkeypatch)
    plain, expected, also = states_and_gradient(made, given, 0.0, monkeypatch)
    assert used
    assert not also
    assert states.shape == (sum(len(row.tokens) for row in given), 16)
    torch.testing.assert_close(states, plain, atol=1e-5, rtol=1e-5)
    for name, each in expected.items():
        if each is None:
            assert gradient[name] is None
        else:
            torch.testing.assert_close(gradient[name], each, atol=2e-5, rtol=1e-4)


def test_sharing_is_left_where_it_saves_nothing(monkeypatch):
    made = policy()
    assert states_and_gradient(made, rows((8,), 6, (2,)), 0.8, monkeypatch)[2]
    assert not states_and_gradient(made, rows((8, 8, 8), 1, (2,)), 0.8, monkeypatch)[2]
    assert not states_and_gradient(made, rows((1,), 6, (4,)), 10.0, monkeypatch)[2]

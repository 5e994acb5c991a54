"""Shared heads: which prompts share one, and that replies and scores are those of one pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.conditioning import Intervention, Steering
from rolecraft.models import LocalModel, Sampling, chat
from rolecraft.models import _prefix as prefix_module
from rolecraft.models._prefix import families, worth_sharing
from rolecraft.testing import tiny_model
from tests.models._reference import greedy, vector

ROLES = ("You are an old pirate who has sailed every sea there is.", "You are a quiet poet of small things.")
QUESTIONS = ("Why?", "What do you think of the sea, of ships and of rum?", "Who are you?")
CHATS = [chat(question, role) for role in ROLES for question in QUESTIONS]
EVERYWHERE = [Intervention(vector(i), 2.0, 1, positions="all") for i in range(2)]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return tiny_model()


def common(prompts) -> int:
    """The tokens that all begin with, counted the slow way."""
    length = 0
    while all(len(p) > length and p[length] == prompts[0][length] for p in prompts):
        length += 1
    return length


def best_saving(prompts) -> int:
    """Tokens that the best of all splits of the sorted prompts saves."""
    ordered = sorted(prompts)
    best = 0
    for cuts in range(2 ** (len(ordered) - 1)):
        marks = [0, *(i for i in range(1, len(ordered)) if cuts >> (i - 1) & 1), len(ordered)]
        groups = [ordered[a:b] for a, b in pairwise(marks)]
        best = max(best, sum((len(group) - 1) * common(group) for group in groups if len(group) > 1))
    return best


class TestFamilies:
    def test_two_roles(self):
        found = families([[1, 2, 3], [7, 8], [1, 2, 4, 5], [7, 9]], [()] * 4)
        assert found == [([0, 2], 2), ([1, 3], 1)]

    def test_other_steering_never_shares(self):
        assert families([[1, 2], [1, 2]], ["a", "b"]) == [([0], 0), ([1], 0)]

    @given(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=7))
    def test_no_split_saves_more(self, prompts):
        found = families(prompts, [()] * len(prompts))
        assert sorted(member for family in found for member in family.members) == list(range(len(prompts)))
        for family in found:
            assert len({tuple(prompts[member][: family.head]) for member in family.members}) == 1
            assert all(len(prompts[member]) >= family.head for member in family.members)
        assert sum((len(family.members) - 1) * family.head for family in found) == best_saving(prompts)

    def test_padding_counts(self):
        with_a_stranger = families([[1] * 9, [1] * 9 + [2], [5] * 10], [()] * 3)
        assert worth_sharing([9, 10, 10], with_a_stranger) is False
        assert worth_sharing([9, 10], families([[1] * 9, [1] * 9 + [2]], [()] * 2)) is True


class TestSharedHeads:
    def test_replies_equal_one_by_one_without_cache(self, model, monkeypatch):
        ran: list[int] = []
        original = model._network.extend
        monkeypatch.setattr(
            model._network, "extend", lambda rows, *rest: (ran.append(sum(map(len, rows))), original(rows, *rest))[1]
        )
        replies = model.generate(CHATS, Sampling(10, 0.0))
        assert [list(reply.token_ids) for reply in replies] == [greedy(model, c, 10) for c in CHATS]
        whole = [model.encode(one)[:-1] for one in CHATS]
        heads = [common(whole[:3]), common(whole[3:])]
        assert ran == [sum(heads), sum(map(len, whole)) - 3 * sum(heads)]

    def test_one_prompt_under_many_steerings_goes_its_own_ways_from_the_first_steered_block(self, model, monkeypatch):
        rows = [(EVERYWHERE[0],), (EVERYWHERE[1],), (), (Intervention(vector(4), 1.5, 2, positions="all"),)] * 2
        chats = [chat("Why?")] * 4 + [chat(QUESTIONS[1])] * 4
        widened: list[int] = []
        original = model._network.widened_prefix
        monkeypatch.setattr(
            model._network, "widened_prefix", lambda p, *rest: (widened.append(len(p)), original(p, *rest))[1]
        )
        replies = model.generate(chats, Sampling(10, 0.0), Steering(tuple(rows)))
        expected = [greedy(model, c, 10, row) for c, row in zip(chats, rows, strict=True)]
        assert [list(reply.token_ids) for reply in replies] == expected
        assert widened == [2]
        assert len({tuple(tokens) for tokens in expected[:4]}) > 1

    def test_a_model_that_cannot_be_widened_is_found_out(self, model, monkeypatch):
        network = model._network
        assert network._can_widen()
        monkeypatch.setattr(network.model.config, "sliding_window", 8, raising=False)
        assert not network._can_widen()
        monkeypatch.undo()
        monkeypatch.setattr("rolecraft.models._network.widening", lambda rows: lambda module, inputs, output: None)
        assert not network._can_widen()

    def test_heads_are_shared_by_prompts_under_the_same_steering_alone(self, model, monkeypatch):
        monkeypatch.setattr(model._network, "widens", False)
        chats = [chat(question, ROLES[0]) for question in QUESTIONS] * 2
        rows = [(EVERYWHERE[place // 3],) for place in range(6)]
        expected = [greedy(model, c, 10, row) for c, row in zip(chats, rows, strict=True)]
        order = [0, 3, 1, 4, 2, 5]
        replies = model.generate([chats[i] for i in order], Sampling(10, 0.0), Steering(tuple(rows[i] for i in order)))
        assert [list(reply.token_ids) for reply in replies] == [expected[i] for i in order]

    def test_scores_equal_those_of_one_pass(self, model, monkeypatch):
        replies = ["aye", "the sea is wide", "no"] * 2
        steering = Steering(((EVERYWHERE[0],),) * 3 + ((),) * 3)
        shared = model.logprobs(CHATS, replies, steering)
        monkeypatch.setattr(prefix_module, "_WORTH", 0.0)
        for a, b in zip(shared, model.logprobs(CHATS, replies, steering), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)

    @torch.inference_mode()
    def test_a_prompt_that_is_the_head_of_another(self, model):
        prompts = [model.encode(CHATS[0]), [*model.encode(CHATS[0]), 5, 6, 7], model.encode(CHATS[0])[:-4]]
        found = prefix_module.Prefixes(model._network, prompts, Steering.uniform((), 3))
        alone = [prefix_module.Prefixes(model._network, [prompt], Steering.uniform((), 1)) for prompt in prompts]
        cache = found.expand(found.width + 1)
        for row, one in enumerate(alone):
            keys, values = one.expand(one.width + 1).layers[-1].used()
            ours = cache.layers[-1].used()
            for mine, other in zip(ours, (keys, values), strict=True):
                np.testing.assert_allclose(mine[row, :, found.width - one.width :], other[0], atol=1e-5)

"""The losses against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning.losses import clipped_surrogate, clipped_value_loss, kl_tokens, total

MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_total_by_tokens_rows_and_a_number():
    values = torch.tensor([[1.0, 3.0, 100.0], [5.0, 100.0, 100.0], [100.0, 100.0, 100.0]])
    assert total(values, MASK).item() == pytest.approx((1 + 3 + 5) / 3)
    assert total(values, MASK, "rows").item() == pytest.approx(((1 + 3) / 2 + 5) / 2)
    assert total(values, MASK, 4.0).item() == pytest.approx((1 + 3 + 5) / (2 * 4))
    assert total(values, MASK & False).item() == 0
    for wrong in (0, -1.0, "mean"):
        with pytest.raises(UserError, match="normaliser"):
            total(values, MASK, wrong)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_the_surrogate_is_ppo_s(seed, low, high):
    rng = np.random.default_rng(seed)
    new, old, advantage = (torch.from_numpy(rng.normal(size=(4, 5))) for _ in range(3))
    weights, mask = torch.from_numpy(rng.random(4)), torch.from_numpy(rng.random((4, 5)) < 0.6)
    found = clipped_surrogate(new, old, advantage, mask, clip=(low, high), weights=weights)
    terms, outside, largest = [], 0, 1.0 if not mask.any() else 0.0
    for row, token in mask.nonzero().tolist():
        ratio = float(torch.exp(new[row, token] - old[row, token]))
        a = float(advantage[row, token])
        kept = min(max(ratio, 1 - low), 1 + high)
        terms.append(-min(ratio * a, kept * a) * float(weights[row]))
        outside += ratio != kept
        largest = max(largest, ratio)
    assert found.loss.item() == pytest.approx(sum(terms) / max(1, len(terms)))
    assert found.clipped == pytest.approx(outside / max(1, len(terms)))
    assert found.ratio == pytest.approx(largest)


def test_the_surrogate_s_gradient_on_policy_is_reinforce():
    logp = torch.tensor([[-1.0, -2.0, 9.0]], requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    loss = clipped_surrogate(logp, logp.detach(), torch.tensor([[2.0, -3.0, 7.0]]), mask).loss
    loss.backward()
    assert logp.grad.tolist() == [[-1.0, 1.5, 0.0]]


def test_a_clipped_token_has_no_gradient():
    logp = torch.tensor([[0.5]], requires_grad=True)
    clipped_surrogate(logp, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)).loss.backward()
    assert logp.grad.item() == 0


def test_kl_estimates_have_the_true_mean():
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.4, 0.4, 0.2])
    true = float((p * (p / q).log()).sum())
    for form in ("k1", "k3"):
        estimates = kl_tokens(p.log(), q.log(), form)
        assert float((p * estimates).sum()) == pytest.approx(true, abs=1e-7)
    assert (kl_tokens(p.log(), q.log(), "k3") >= 0).all()
    assert kl_tokens(p.log(), q.log(), "k2").tolist() == pytest.approx([(x**2) / 2 for x in (p / q).log().tolist()])


def test_the_critic_s_step_is_clipped():
    ones = torch.ones(1, 1, dtype=torch.bool)
    value, old, target = torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([[1.0]])
    assert clipped_value_loss(value, old, target, ones, clip=None).item() == 0
    assert clipped_value_loss(value, old, target, ones, clip=0.2).item() == pytest.approx(0.8**2 / 2)

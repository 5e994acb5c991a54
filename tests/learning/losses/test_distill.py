"""Losses toward a teacher: exact gradients on a small categorical, bounds, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rolecraft.errors import UserError
from rolecraft.learning.credit import NO_TEACHER, AuxLoss, CreditBatch, Group, IsK3, NoSignalWarning, assign_credit
from rolecraft.learning.losses import LOSSES, aux_loss, full_kl, is_k3, kl, naive_k3, opd, sdar

V = 5


def categorical(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits of a policy with gradient, and the log-probabilities of an old policy and a teacher, within the bounds."""
    rng = np.random.default_rng(seed)
    logits = torch.tensor(0.7 * rng.normal(size=V), requires_grad=True)
    old, teacher = (torch.log_softmax(torch.tensor(0.7 * rng.normal(size=V)), -1) for _ in range(2))
    return logits, old, teacher


def expected_gradient(loss: Callable[..., Any], logits: torch.Tensor, old: torch.Tensor, teacher: torch.Tensor) -> Any:
    """Return value and gradient of the loss's mean over samples of the old policy, exactly: token by token."""
    logp = torch.log_softmax(logits, -1)
    one = torch.ones(1, 1, dtype=torch.bool)
    value = sum(
        old[v].exp().detach() * loss(logp[v].view(1, 1), old[v].detach().view(1, 1), teacher[v].view(1, 1), one)[0]
        for v in range(V)
    )
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


def kl_gradient(logits: torch.Tensor, teacher: torch.Tensor, direction: Any) -> Any:
    value = full_kl(
        torch.log_softmax(logits, -1).view(1, 1, V), teacher.view(1, 1, V), torch.ones(1, 1, dtype=torch.bool),
        direction=direction,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(value, logits)
    return value.detach(), gradient


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", [is_k3, opd])
def test_importance_weights_give_the_reverse_kl_and_its_gradient_for_any_old_policy(loss: Any, seed: int) -> None:
    logits, old, teacher = categorical(seed)
    value, gradient = expected_gradient(loss, logits, old, teacher)
    reverse, exact = kl_gradient(logits, teacher, "reverse")
    torch.testing.assert_close(value, reverse, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient, exact, atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_plain_k3_pushes_in_the_forward_direction(seed: int) -> None:
    logits, _, teacher = categorical(seed)
    own = torch.log_softmax(logits.detach(), -1)
    value, gradient = expected_gradient(naive_k3, logits, own, teacher)
    reverse, reverse_gradient = kl_gradient(logits, teacher, "reverse")
    _, forward_gradient = kl_gradient(logits, teacher, "forward")
    torch.testing.assert_close(value, reverse, atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient, forward_gradient, atol=1e-12, rtol=0)
    assert (gradient - reverse_gradient).abs().max() > 1e-3


def test_full_kl_is_the_textbooks() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    one = torch.ones(1, 1, dtype=torch.bool)
    a, b = (torch.tensor(np.log(each)).view(1, 1, 3) for each in (p, q))
    assert float(full_kl(a, b, one)) == pytest.approx(float((p * np.log(p / q)).sum()))
    assert float(full_kl(a, b, one, direction="forward")) == pytest.approx(float((q * np.log(q / p)).sum()))
    certain = torch.log(torch.tensor([[[1.0, 0.0, 0.0]]], dtype=torch.float64))
    assert float(full_kl(certain, b, one)) == pytest.approx(np.log(4))
    with pytest.raises(UserError, match=r"\(N, T, V\)"):
        full_kl(a, b[..., :2], one)
    with pytest.raises(UserError, match="direction"):
        full_kl(a, b, one, direction="both")  # type: ignore[arg-type]


def rows(seed: int = 0, n: int = 3, t: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    logp = torch.tensor(-rng.exponential(1.0, (n, t)), requires_grad=True)
    old, teacher = (torch.tensor(-rng.exponential(1.0, (n, t))) for _ in range(2))
    return logp, old, teacher, torch.tensor(rng.random((n, t)) < 0.7)


@pytest.mark.parametrize("name", ["is_k3", "naive_k3", "opd", "kl", "sdar"])
def test_a_teacher_that_agrees_gives_no_loss_and_no_gradient(name: str) -> None:
    logp, _, _, mask = rows()
    loss, _ = LOSSES[name](logp, logp.detach(), logp.detach(), mask, "tokens")
    (gradient,) = torch.autograd.grad(loss, logp)
    assert loss.item() == 0
    if name == "sdar":  # half open at equality, by its definition: it goes on raising what was sampled
        torch.testing.assert_close(gradient, -0.5 * mask.double() / mask.sum(), atol=1e-15, rtol=0)
    else:
        assert (gradient == 0).all()


def test_is_k3_is_the_formula_with_its_bounds() -> None:
    logp = torch.tensor([[-1.0, -9.0, -30.0, -2.0]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-1.5, -9.0, -30.0, -8.0]], dtype=torch.float64)
    teacher = torch.tensor([[-0.5, -1.0, -1.0, -4.0]], dtype=torch.float64)
    mask = torch.ones(1, 4, dtype=torch.bool)
    loss, stats = is_k3(logp, old, teacher, mask)
    exponent = np.minimum([0.5, 8, 29, -2], 20)
    rho = np.minimum(np.exp([0.5, 0, 0, 6]), 10)
    expected = rho * (np.exp(exponent) - 1 - exponent)
    assert float(loss.detach()) == pytest.approx(expected.mean())
    assert stats["clamp_share"] == 0.5
    assert stats["rho_max"] == pytest.approx(np.exp(6))
    (gradient,) = torch.autograd.grad(loss, logp)
    k3 = np.exp(exponent) - 1 - exponent
    direct = np.array([1, 1, 1, 0]) * rho * k3 + np.array([1, 1, 0, 1]) * rho * (1 - np.exp(exponent))
    np.testing.assert_allclose(gradient.numpy()[0], direct / 4)


def test_sdar_is_the_formula_and_holds_the_gate_fixed() -> None:
    logp, old, teacher, mask = rows(1)
    loss, stats = sdar(logp, old, teacher, mask)
    gap = (teacher - logp.detach()).numpy()
    gate = 1 / (1 + np.exp(-5 * gap))
    kept = mask.numpy()
    assert float(loss.detach()) == pytest.approx((gate * gap)[kept].mean())
    (gradient,) = torch.autograd.grad(loss, logp)
    np.testing.assert_allclose(gradient.numpy(), np.where(kept, -gate / kept.sum(), 0))
    assert stats["gate"] == pytest.approx(gate[kept].mean())


@pytest.mark.parametrize(("loss", "advantage"), [(sdar, "gate"), (opd, "gap")])
def test_distillation_on_sampled_tokens_is_a_policy_gradient(loss: Any, advantage: str) -> None:
    """The dossier's step 9: at ratio 1 it adds lambda times a fixed number to each token's advantage."""
    from rolecraft.learning.losses import clipped_surrogate

    logp, _, teacher, mask = rows(2)
    given = torch.tensor(np.random.default_rng(0).normal(size=logp.shape))
    old, weight = logp.detach(), 0.3
    gap = (teacher - old).detach()
    extra = torch.sigmoid(5 * gap) if advantage == "gate" else gap
    both = clipped_surrogate(logp, old, given, mask).loss + weight * loss(logp, old, teacher, mask)[0]
    one = clipped_surrogate(logp, old, given + weight * extra, mask).loss
    torch.testing.assert_close(
        torch.autograd.grad(both, logp)[0], torch.autograd.grad(one, logp)[0], atol=1e-14, rtol=1e-12
    )


def test_kl_is_the_k3_penalty() -> None:
    logp, old, reference, mask = rows(3)
    loss, _ = kl(logp, old, reference, mask)
    gap = (reference - logp.detach()).numpy()[mask.numpy()]
    assert float(loss.detach()) == pytest.approx((np.exp(gap) - 1 - gap).mean())


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("by", ["tokens", "rows", 6.0])
def test_tokens_without_a_teacher_or_off_the_mask_add_nothing(name: str, by: Any) -> None:
    logp, old, teacher, mask = rows(4)
    mask[0] = True
    absent = teacher.clone()
    absent[1] = NO_TEACHER
    absent[~mask] = torch.nan
    loss, stats = LOSSES[name](logp, old, absent, mask, by)
    (gradient,) = torch.autograd.grad(loss, logp)
    assert torch.isfinite(gradient).all()
    assert (gradient[1] == 0).all()
    assert (gradient[~mask] == 0).all()
    assert (gradient[0] != 0).all()
    full, _ = LOSSES[name](logp, old, teacher, mask, by)
    (all_taught,) = torch.autograd.grad(full, logp)
    torch.testing.assert_close(gradient[[0, 2]], all_taught[[0, 2]])
    assert stats["tokens"] == int(mask[[0, 2]].sum())


@pytest.mark.parametrize("value", [-torch.inf, torch.nan, 0.5])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_what_is_no_log_probability_is_named(name: str, value: float) -> None:
    logp, old, teacher, mask = rows(5)
    mask[2, 1], teacher[2, 1] = True, value
    with pytest.raises(UserError, match="row 2, token 1"):
        LOSSES[name](logp, old, teacher, mask, "tokens")


def test_other_shapes_and_names_are_refused_and_an_empty_mask_warns() -> None:
    logp, old, teacher, mask = rows(6)
    with pytest.raises(UserError, match="one shape"):
        is_k3(logp, old, teacher[:, :3], mask)
    with pytest.raises(UserError, match="'isk3' is unknown"):
        aux_loss([AuxLoss("isk3", 1.0, teacher.numpy())], logp, old, mask)
    with pytest.warns(NoSignalWarning, match="no token is trained"):
        loss, _ = is_k3(logp, old, teacher, torch.zeros_like(mask))
    assert float(loss.detach()) == 0
    assert (torch.autograd.grad(loss, logp)[0] == 0).all()


def test_a_credit_rules_losses_are_added_up() -> None:
    logp, old, teacher, mask = rows(7)
    mask[:, 0] = True
    batch = CreditBatch(
        mask.numpy(), {"task": np.zeros(3, dtype=int)}, {"outcome": np.array([1.0, 0, 0])},
        {"logp_teacher": teacher.numpy()},
    )  # fmt: skip
    aux = assign_credit(batch, [Group(), IsK3(0.1), IsK3(0.2, loss="opd")]).aux
    loss, stats = aux_loss(aux, logp, old, mask)
    expected = 0.1 * is_k3(logp, old, teacher, mask)[0] + 0.2 * opd(logp, old, teacher, mask)[0]
    torch.testing.assert_close(loss, expected)
    assert {"is_k3/mean", "is_k3/rho_max", "is_k3/clamp_share", "opd/mean"} <= set(stats)

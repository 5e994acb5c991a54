"""Conditional information: exact values, bounds against them, equality at the optimum, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.control._information import conditional_bound, exact_conditional_information, infonce
from rolecraft.errors import UserError


def draw_joint(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(18, 0.7)).reshape(2, 3, 3)


def mean_bound(joint: np.ndarray, energies: np.ndarray) -> float:
    """Mean of the bound over the whole joint p(c, z, o), energies (C, Z, O)."""
    c, z, o = np.indices(joint.shape)
    prior = joint.sum(1) / joint.sum((1, 2))[:, None]
    bound = conditional_bound(
        jnp.asarray(energies[c, z].reshape(-1, 3)), jnp.asarray(o.reshape(-1)), jnp.asarray(prior[c].reshape(-1, 3))
    )
    return float((np.asarray(bound) * joint.reshape(-1)).sum())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_bound_never_exceeds_the_exact_value_and_attains_it(seed: int) -> None:
    joint = draw_joint(seed)
    exact = exact_conditional_information(joint)
    slow = sum(
        p * np.log(p * joint[c].sum() / (joint[c, z].sum() * joint[c, :, o].sum()))
        for (c, z, o), p in np.ndenumerate(joint)
    )
    assert exact == pytest.approx(slow, abs=1e-9)
    guess = np.random.default_rng(seed + 1).normal(size=(2, 3, 3))
    assert mean_bound(joint, guess) <= exact + 1e-4
    best = np.log(joint / joint.sum(2, keepdims=True)) - np.log(joint.sum(1) / joint.sum((1, 2))[:, None])[:, None]
    assert mean_bound(joint, best) == pytest.approx(exact, abs=1e-4)


def test_independent_and_copied_variables() -> None:
    flat = np.full((1, 2, 2), 0.25)
    assert exact_conditional_information(flat) == pytest.approx(0)
    assert exact_conditional_information(np.eye(2)[None] / 2) == pytest.approx(np.log(2))
    # Given the condition both are fixed: nothing is left to tell.
    same = np.zeros((2, 2, 2))
    same[0, 0, 0] = same[1, 1, 1] = 0.5
    assert exact_conditional_information(same) == pytest.approx(0)


def test_infonce_is_between_nothing_and_the_logarithm_of_the_batch() -> None:
    assert float(infonce(jnp.zeros((32, 32)))) == pytest.approx(0, abs=1e-5)
    assert float(infonce(100.0 * jnp.eye(64))) == pytest.approx(np.log(64), abs=1e-4)
    assert float(infonce(-5.0 * jnp.eye(32))) < 0


def test_bad_input() -> None:
    with pytest.raises(UserError, match="at least 32, got 8"):
        infonce(jnp.zeros((8, 8)))
    with pytest.raises(UserError, match=r"\(B, B\)"):
        infonce(jnp.zeros((40, 32)))
    with pytest.raises(UserError, match="sums to 1"):
        exact_conditional_information(np.ones((1, 2, 2)))
    with pytest.raises(UserError, match=r"\(\.\.\., M\)"):
        conditional_bound(jnp.zeros((4, 3)), jnp.zeros(4, int), jnp.zeros((4, 2)))

"""Dichotomy of Control: Bayes' posterior, gradients of the min-max, the lake against Gymnasium, counts and returns."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.control._doc import (
    DoC,
    DoCConfig,
    Plans,
    consistency_report,
    draw_batch,
    draw_plans,
    fit_doc,
    to_device,
)
from rolecraft.control._doc_bandit import Tables, TabularDoC, choose, return_posterior
from rolecraft.control._doc_data import (
    Episodes,
    count_policy,
    count_transitions,
    exact_returns,
    frozen_lake,
    join_episodes,
    sample_episodes,
    sum_features,
)
from rolecraft.control.tabular import from_gymnasium, value_iteration
from rolecraft.errors import UserError

JOINT = np.array([[0.02, 0.08], [0.72, 0.18]])
"""P(arm, outcome) of the dossier's bandit: A pays 0.8 and is 10 % of the data, B pays 0.2."""


def test_bayes_says_that_returns_choose_the_worse_arm() -> None:
    posterior = return_posterior([0.8, 0.2], [0.1, 0.9])
    assert posterior[1] == pytest.approx(0.18 / 0.26)
    assert posterior[1] == pytest.approx(0.69, abs=0.005)
    assert np.allclose(posterior, JOINT[:, 1] / JOINT[:, 1].sum())
    with pytest.raises(UserError, match="cannot be commanded"):
        return_posterior([0.0, 0.0], [0.5, 0.5])
    with pytest.raises(UserError, match="expected P"):
        return_posterior([0.5, 0.5], [0.5, 0.6])


@pytest.mark.slow
def test_energies_climb_what_the_encoder_descends() -> None:
    model = TabularDoC(weight=2.0, batch=256)
    tables = model.start(jax.random.key(0), 2, 2)
    tables = tables._replace(energy=tables.energy * 10)
    key, joint = jax.random.key(1), jnp.asarray(JOINT)
    information = jax.grad(lambda t: model.losses(t, key, joint)[1])(tables)
    imitation = jax.grad(lambda t: model.losses(t, key, joint)[0])(tables)
    against, _, _ = model.gradient(tables, key, joint)
    released, _, _ = replace(model, mode="as_released").gradient(tables, key, joint)
    assert float(jnp.abs(information.energy).max()) > 1e-4
    assert np.allclose(against.energy, -2 * information.energy, atol=1e-6)
    assert np.allclose(released.energy, -2 * information.energy, atol=1e-6)
    assert np.allclose(against.posterior, imitation.posterior + 2 * information.posterior, atol=1e-6)
    assert np.allclose(released.posterior, imitation.posterior - 2 * information.posterior, atol=1e-6)


def test_a_latent_that_copies_the_arm_keeps_its_promise_and_one_that_copies_the_outcome_does_not() -> None:
    big = 30.0
    by_arm = np.zeros((2, 2, 2))
    by_arm[0, :, 0] = by_arm[1, :, 1] = big
    policy = np.array([[big, 0], [0, big]])
    pays = np.log(np.array([[0.2, 0.8], [0.8, 0.2]]))
    found = choose(Tables(*(jnp.asarray(x) for x in (by_arm, policy, pays, by_arm))), JOINT)
    assert found.policy[0] == pytest.approx(1)
    assert found.value == pytest.approx(0.8)
    assert found.information == pytest.approx(0, abs=1e-6)
    assert found.used == pytest.approx(-(0.1 * np.log(0.1) + 0.9 * np.log(0.9)), abs=1e-6)
    by_outcome = np.zeros((2, 2, 2))
    by_outcome[:, 1, 0] = by_outcome[:, 0, 1] = big
    leaky = choose(Tables(*(jnp.asarray(x) for x in (by_outcome, policy, policy[:, ::-1], by_arm))), JOINT)
    assert leaky.value == pytest.approx(1)
    expected = -sum(JOINT[a, r] * np.log(JOINT[a, r] / JOINT[a].sum()) for a in range(2) for r in range(2))
    assert leaky.information == pytest.approx(expected, abs=1e-6)


def test_latents_that_the_data_never_uses_promise_nothing() -> None:
    encoder = np.zeros((2, 2, 2))
    encoder[..., 0] = 30.0
    value = np.array([[1.0, 0.0], [-30.0, 30.0]])
    found = choose(Tables(*(jnp.asarray(x) for x in (encoder, np.zeros((2, 2)), value, encoder))), JOINT)
    assert found.value == pytest.approx(1 / (1 + np.e), abs=1e-4)
    assert found.used == pytest.approx(0, abs=1e-6)


def test_the_tables_choose_the_better_arm() -> None:
    model = TabularDoC(updates=2500)
    tables = model.fit([JOINT, JOINT], [1, 2])
    for i in range(2):
        found = choose(jax.tree.map(lambda leaf, i=i: leaf[i], tables), JOINT)
        assert found.policy[0] > 0.9
        assert abs(found.value - 0.8) < 0.1
        assert found.information < 0.05


def test_bad_tables() -> None:
    with pytest.raises(UserError, match="every action in it"):
        TabularDoC().fit([[[0.5, 0.5], [0, 0]]], [1])
    with pytest.raises(UserError, match="min-max, as_released"):
        TabularDoC(mode="joint")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="weight must be"):
        TabularDoC(weight=-1)
    with pytest.raises(UserError, match="at least 1"):
        DoCConfig(latent=0)


@pytest.mark.parametrize(("slip", "slippery"), [(0.0, False), (1 / 3, True)])
def test_the_lake_is_gymnasiums_at_both_ends(slip: float, slippery: bool) -> None:
    ours, theirs = frozen_lake(slip), from_gymnasium("FrozenLake-v1", is_slippery=slippery)
    assert np.allclose(ours.transitions, theirs.transitions)
    assert np.allclose(ours.rewards, theirs.rewards)


def test_episodes_pay_what_the_policy_is_worth() -> None:
    mdp = frozen_lake(0.1)
    policy = value_iteration(mdp).policy
    data = sample_episodes(mdp, policy, 4000, 40, np.random.default_rng(0))
    assert abs(data.returns.mean() - exact_returns(mdp, policy, 40)) < 0.03
    # A slow reference: the state's law, step by step.
    law, paid = mdp.start.copy(), 0.0
    for _ in range(40):
        paid += sum(law[s] * policy[s, a] * mdp.rewards[s, a] for s in range(16) for a in range(4))
        law = np.einsum("s,sa,sat->t", law, policy, mdp.transitions)
    assert exact_returns(mdp, policy, 40) == pytest.approx(paid, abs=1e-9)
    reached = data.following[np.arange(4000), data.lengths - 1]
    assert ((reached == 15) == (data.returns == 1)).all()
    with pytest.raises(UserError, match=r"\[0, 1/2\]"):
        frozen_lake(0.6)


def small() -> Episodes:
    """Two episodes in a world of two states and two actions."""
    return Episodes(
        np.array([[0, 1], [0, 0]]), np.array([[1, 0], [0, 0]]), np.array([[1, 1], [0, 0]]),
        np.array([[True, True], [True, False]]), np.array([1.0, 0.0]), (2, 2),
    )  # fmt: skip


def test_counts_by_hand() -> None:
    data = small()
    assert count_policy(data, np.array([True, True])).tolist() == [[0.5, 0.5], [1, 0]]
    assert count_policy(data, np.array([False, True])).tolist() == [[1, 0], [0.5, 0.5]]
    law = count_transitions(data)
    assert law[0, 1].tolist() == [0, 1]
    assert law[1, 1].tolist() == [0.5, 0.5]
    features = sum_features(data) * 8
    assert features[0].tolist() == [0, 1, 1, 0, 0, 2, 8, 8]
    assert features[1].tolist() == [1, 0, 0, 0, 1, 0, 0, 4]
    both = join_episodes([data, data])
    assert both.returns.tolist() == [1, 0, 1, 0]


def test_one_return_alone_cannot_be_commanded() -> None:
    data = replace(small(), returns=np.zeros(2))
    with pytest.raises(UserError, match="at least two different returns"):
        to_device(data)


def test_steps_are_drawn_from_their_episodes_with_weights_that_sum() -> None:
    data = to_device(small())
    batch = draw_batch(data, jax.random.key(0), 64, 5)
    lengths = np.where(np.asarray(batch.returns) == 1, 2, 1)
    assert np.allclose(np.asarray(batch.weight)[:, 0] * 5, lengths)
    lost = np.asarray(batch.returns) == 0
    assert (np.asarray(batch.action)[lost] == 0).all()
    assert (np.asarray(batch.following)[lost] == 0).all()
    assert {1, 0} == set(np.asarray(batch.action)[~lost].ravel().tolist())


@pytest.mark.slow
def test_networks_fit_and_plans_are_policies() -> None:
    mdp = frozen_lake(0.0)
    policy = 0.7 * value_iteration(mdp).policy + 0.075
    data = to_device(sample_episodes(mdp, policy, 60, 12, np.random.default_rng(1)))
    model = DoC(DoCConfig(updates=60, width=16, latent=3, batch=32, steps=4), mdp.states, mdp.actions)
    stacked = jax.tree.map(lambda leaf: leaf[None], data)
    parts, found = fit_doc(model, stacked, jax.random.key(0)[None], settle=20)
    assert {name: values.shape for name, values in found.items()} == dict.fromkeys(found, (1,))
    # Where the next state follows from state and action, a latent has nothing to tell about it.
    assert abs(found["information"][0]) < 1e-3
    assert found["kl"][0] >= 0
    plans = draw_plans(model, jax.tree.map(lambda leaf: leaf[0], parts), jnp.asarray(mdp.start), jax.random.key(1), 7)
    assert plans.policies.shape == (7, 16, 4)
    assert np.allclose(plans.policies.sum(-1), 1)


def test_the_nearest_promise_is_taken() -> None:
    plans = Plans(np.zeros((3, 1, 1)), np.array([0.1, 0.8, 0.4]))
    assert plans.nearest() == 1
    assert plans.nearest(0.35) == 2
    assert plans.nearest(5.0) == 1  # beyond what can be promised: the best attainable


def test_promises_and_returns_make_a_report() -> None:
    report = consistency_report(Plans(np.zeros((3, 1, 1)), np.array([0.1, 0.8, 0.4])), np.array([0.1, 0.6, 0.4]))
    assert report.error == pytest.approx(0.2 / 3)
    assert report.rank == pytest.approx(1)

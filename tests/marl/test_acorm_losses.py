"""ACORM's losses against their formulas, step by step."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

pytest.importorskip("jaxmarl")

from rolecraft.marl import AcormConfig, AcormLearner, ClusterWarning
from rolecraft.marl._acorm_net import role_of
from tests.marl.test_acorm import TINY, slow_loss
from tests.marl.test_q_play import EndsEarly

pytestmark = pytest.mark.slow  # one program, ten seconds to compile


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Two sets of networks, a batch of random play, and all losses of it, from one compiled program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterWarning)  # two agents, two clusters
        learner = AcormLearner(EndsEarly(), AcormConfig(**{**TINY, "cluster_num": 2}, gamma=0.5))

    @jax.jit
    def go(key: Any) -> dict[str, Any]:
        params, target = (learner.begin(k).params for k in jax.random.split(key))
        params["momentum"] = jax.tree.map(lambda leaf: 2 * leaf + 0.1, params["momentum"])
        batch = learner.collect(params["net"], key, 1.0)
        data, trace = learner.look(params["net"], batch)
        _, fixed = learner.look(target["net"], batch)
        mixer = learner.mix_net
        encoded, query = mixer.apply(params["mixer"], data.world, data.fresh, method="remember")
        greedy = jnp.where(data.avail, trace.values, -1e9).argmax(-1)
        taken = jnp.take_along_axis(trace.values[:-1], data.action[..., None], -1)[..., 0]
        after = jnp.take_along_axis(fixed.values, greedy[..., None], -1)[..., 0]
        part = learner._contrast_part(params)
        return {
            "td": learner.loss(params, target, batch),
            "embed": learner.embed_loss(learner._embed_part(params), params, batch),
            "role": learner.role_loss(part, params, batch, key),
            "data": data, "trace": trace, "params": params,
            "total": mixer.apply(params["mixer"], taken, encoded[:-1], query[:-1], trace.role[:-1], method="mix")[0],
            "bound": mixer.apply(target["mixer"], after, encoded, query, trace.role, method="mix")[0],
            "decoded": learner.decoder.apply(params["decoder"], trace.embed),
            "slow": role_of(params["momentum"], trace.embed), "clusters": learner.clusters(
                trace.embed, learner.alive(data.obs))[0],
        }  # fmt: skip

    return jax.tree.map(np.asarray, go(jax.random.PRNGKey(2)))


def test_temporal_differences_stop_at_an_end(made: dict[str, Any]) -> None:
    data, expected = made["data"], []
    for t in range(6):
        for b in range(data.reward.shape[1]):
            y = data.reward[t, b] + 0.5 * (1 - data.done[t, b]) * made["bound"][t + 1, b, 0]
            expected.append((y - made["total"][t, b, 0]) ** 2)
    assert data.done.any()
    assert float(made["td"]) == pytest.approx(np.mean(expected), rel=1e-4)


def test_the_embedding_foretells_the_next_observation_of_the_same_episode(made: dict[str, Any]) -> None:
    data, errors = made["data"], []
    own = data.obs.shape[-1]
    for t in range(6):
        for b in range(data.reward.shape[1]):
            if data.done[t, b]:
                continue
            for i in range(2):
                wanted = np.concatenate([data.obs[t + 1, b, i, : made["decoded"].shape[-1] - 2], np.eye(2)[i]])
                errors.append(np.square(made["decoded"][t, b, i] - wanted).mean())
    assert own >= made["decoded"].shape[-1] - 2
    assert float(made["embed"]) == pytest.approx(np.mean(errors), rel=1e-4)


def test_roles_are_compared_with_the_momentum_networks(made: dict[str, Any]) -> None:
    trace = made["trace"]
    shape = (-1, 2, trace.role.shape[-1])
    query, key = trace.role.reshape(shape), made["slow"].reshape(shape)
    active = np.ones(query.shape[:2], bool)
    expected = slow_loss(query, key, made["clusters"].reshape(-1, 2), active, made["params"]["bilinear"])
    assert expected > 0.01
    assert float(made["role"]) == pytest.approx(expected, rel=1e-3, abs=1e-6)

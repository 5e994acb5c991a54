from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flax")
import jax
from jax import numpy as jnp

from rolecraft._jax import orthogonal
from rolecraft.control._ppo import ActorCritic
from rolecraft.marl._networks import TeamQ


@pytest.mark.parametrize("shape", [(24, 24), (2, 10, 6), (3, 24)])
def test_the_fewer_of_rows_and_columns_are_orthogonal(shape: tuple[int, ...]) -> None:
    drawn = np.asarray(jax.jit(lambda key: orthogonal(2.0)(key, shape))(jax.random.PRNGKey(1)), np.float64)
    matrix = drawn.reshape(-1, shape[-1])
    few = matrix if len(matrix) <= shape[-1] else matrix.T
    np.testing.assert_allclose(few @ few.T, 4 * np.eye(len(few)), atol=1e-5)


def test_directions_are_uniform() -> None:
    """Under Haar's measure every entry has mean 0 and variance 1/n, in the last column as in the first."""
    keys = jax.random.split(jax.random.PRNGKey(0), 4000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: orthogonal()(key, (3, 3))))(keys))
    assert np.abs(drawn.mean(0)).max() < 5 * (1 / 3 / 4000) ** 0.5
    assert np.abs((drawn**2).mean(0) - 1 / 3).max() < 0.03


def test_no_network_waits_for_lapack() -> None:
    """Calls of it for several seeds at once hang where there are as few threads."""
    team, fresh = TeamQ(3, 4, share=False), jnp.ones((1, 1), bool)
    pair = ActorCritic((4, 4), 3)
    for init in (
        lambda key: team.init(key, team.rest(1, 2), jnp.zeros((1, 1, 2, 5)), fresh),
        lambda key: pair.init(key, jnp.zeros((1, 4)), jnp.zeros((1, 2))),
    ):
        text = jax.jit(jax.vmap(init)).lower(jax.random.split(jax.random.PRNGKey(0), 3)).as_text()
        assert "custom_call" not in text
        assert "while" in text

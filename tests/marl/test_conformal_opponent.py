"""The model of another agent: planted policies are found out, encodings by hand, what a policy is told."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._conformal_opponent import FULL, ConformalOpponent, ConformalOpponentConfig, encode_sets
from rolecraft.marl._opponent import OpponentModel, stack_history

EPISODES, STEPS = 30, 20


def planted(key: jax.Array, sure: float) -> tuple[jax.Array, jax.Array]:
    """Four signals; the other answers with the signal's number with probability `sure`, else with any action."""
    k_signal, k_act, k_luck = jax.random.split(key, 3)
    signal = jax.random.randint(k_signal, (EPISODES, STEPS), 0, 4)
    other = jax.random.randint(k_act, signal.shape, 0, 4)
    action = jnp.where(jax.random.uniform(k_luck, signal.shape) < sure, signal, other)
    return jax.nn.one_hot(signal, 4), action.astype(jnp.int32)


def test_sets_cover_and_shrink_as_the_other_becomes_predictable() -> None:
    model = ConformalOpponent(ConformalOpponentConfig(hidden=8, epochs=10, batch=64), 4, 4)
    assert isinstance(model, OpponentModel)

    @jax.jit
    def go(sure):
        keys = jax.random.split(jax.random.PRNGKey(3), 5)
        state = model.init(keys[0])
        untaught = model.predict(state, jnp.zeros((3, 4)), keys[1])
        state, figures = model.fit(state, *planted(keys[2], sure), keys[3])
        x, y = planted(keys[4], sure)
        sets = model.sets(state, x, keys[1])
        covered = jnp.take_along_axis(sets, y[..., None], -1).mean()
        return untaught, figures["fit_accuracy"], covered, sets.sum(-1).mean(), model.predict(state, x, keys[1])

    untaught, _, vague_cover, vague_size, _ = go(0.2)
    _, accuracy, cover, size, told = go(0.8)
    assert (untaught == 1).all(), "who knows nothing says everything"
    assert float(accuracy) == pytest.approx(0.85, abs=0.06)
    assert float(cover) == pytest.approx(0.9, abs=0.05)
    assert float(vague_cover) == pytest.approx(0.9, abs=0.07)
    assert float(size) < float(vague_size) - 0.5
    assert told.shape == (EPISODES, STEPS, 4)


def test_encodings() -> None:
    members = jnp.array([[True, False, True], [False, True, False], [True, True, True]])
    assert encode_sets(members, padded=False).tolist() == [[1, 0, 1], [0, 1, 0], [1, 1, 1]]
    assert encode_sets(members, padded=True).tolist() == [[1, 3, 0], [2, 0, 0], [1, 2, 3]]
    kinds = {}
    for encoding in ("binary", "padded", "penultimate", "exact"):
        model = ConformalOpponent(ConformalOpponentConfig(encoding=encoding, hidden=6), 2, 3)
        told = model.predict(model.init(jax.random.PRNGKey(0)), jnp.ones((5, 2)), jax.random.PRNGKey(1))
        assert told.shape == (5, model.size)
        kinds[encoding] = model.kind
        if encoding == "exact":
            assert told.sum(-1).tolist() == [1.0] * 5
    assert kinds == {"binary": "set", "padded": "set", "penultimate": "embedding", "exact": "point"}


def test_history_is_stacked_oldest_first() -> None:
    obs = jnp.arange(1, 5.0).reshape(1, 4, 1)
    assert stack_history(obs, 3)[0].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_episodes_are_held_out_whole_and_enough_of_them() -> None:
    model = ConformalOpponent(ConformalOpponentConfig(), 2, 3)
    assert model.split(32, 25) == (19, 4, 9)
    assert ConformalOpponent(ConformalOpponentConfig(calibration="train"), 2, 3).split(32, 25) == (32, 0, 0)
    with pytest.raises(UserError, match=r"leave 1 examples to calibrate on; at least 9 are needed for alpha 0.1"):
        model.split(4, 1)
    state = model.init(jax.random.PRNGKey(0))
    assert np.isfinite(FULL)
    with pytest.raises(UserError, match=r"\(episodes, steps, d\) = \(30, 20, 2\), got \(30, 20, 4\)"):
        model.fit(state, *planted(jax.random.PRNGKey(0), 1.0), jax.random.PRNGKey(1))


def test_bad_rules_are_named() -> None:
    with pytest.raises(UserError, match=r"encoding 'binari' is unknown.*Did you mean 'binary'"):
        ConformalOpponentConfig(encoding="binari")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="alpha is the share of misses"):
        ConformalOpponentConfig(alpha=1.5)
    with pytest.raises(UserError, match="calibration must be held-out or train"):
        ConformalOpponentConfig(calibration="both")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="share must lie between 0 and 1"):
        ConformalOpponentConfig(share=1.0)
    with pytest.raises(UserError, match="sets are for discrete actions"):
        ConformalOpponent(ConformalOpponentConfig(), 2, 1)

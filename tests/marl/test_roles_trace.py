from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxmarl")
pytest.importorskip("sklearn")
import jax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl import Policy, RoleTrace, trace_roles
from tests.marl._matrix import MatrixGame


def test_figures_of_a_known_trace() -> None:
    role = np.array([[[0, 1], [0, 1], [2, 1], [9, 9]]])
    action = np.array([[[0, 1], [1, 1], [0, 0], [9, 9]]])
    trace = RoleTrace(role, action, np.ones((1, 4), np.float32), np.array([[True, True, True, False]]))
    np.testing.assert_allclose(trace.usage(3), [[2 / 3, 0, 1 / 3], [0, 1, 0]])
    assert trace.switches() == pytest.approx(1 / 4)
    assert trace.actions_by_role(3, 2).tolist() == [[1, 1], [1, 2], [1, 0]]
    fixed = RoleTrace(np.tile([0, 1], (2, 3, 1)), np.zeros((2, 3, 2), int), np.ones((2, 3)), np.ones((2, 3), bool))
    assert fixed.information([4, 7]) == pytest.approx(1)
    assert fixed.information([4, 4]) == pytest.approx(0)
    assert fixed.switches() == 0


def test_a_trace_holds_what_the_policy_notes_up_to_the_end() -> None:
    env = MatrixGame(np.eye(2), rounds=3)

    def act(time: Any, step: Any, key: Any) -> Any:
        return time + 1, jnp.array([0, 1]), {"role": jnp.array([0, 1]) + time, "odd": time}

    trace = trace_roles(env, Policy(lambda key: jnp.int32(0), act), jax.random.PRNGKey(0), 2)
    assert trace.role.tolist() == [[[0, 1], [1, 2], [2, 3]]] * 2
    assert trace.played.all()
    assert trace.action[0, 0].tolist() == [0, 1]
    policy = Policy(lambda key: jnp.int32(0), act)
    with pytest.raises(UserError, match="notes role, odd, there is no 'rule'"):
        trace_roles(env, policy, jax.random.PRNGKey(0), 2, note="rule")
    with pytest.raises(UserError, match=r"note 'odd' has shape \(\), expected \(n,\) = \(2,\)"):
        trace_roles(env, policy, jax.random.PRNGKey(0), 2, note="odd")


def test_shapes_that_do_not_fit_are_refused() -> None:
    ones = np.ones((1, 2, 3), int)
    with pytest.raises(UserError, match=r"expected one shape \(E, T, n\)"):
        RoleTrace(ones, ones[..., :2], np.ones((1, 2)), np.ones((1, 2), bool))
    with pytest.raises(UserError, match=r"reward has shape \(1, 3\), expected \(E, T\) = \(1, 2\)"):
        RoleTrace(ones, ones, np.ones((1, 3)), np.ones((1, 2), bool))
    with pytest.raises(UserError, match="no step that was played"):
        RoleTrace(ones, ones, np.ones((1, 2)), np.zeros((1, 2), bool))
    with pytest.raises(UserError, match=r"kinds have shape \(2,\), expected \(n,\) = \(3,\)"):
        RoleTrace(ones, ones, np.ones((1, 2)), np.ones((1, 2), bool)).information([0, 1])

"""Learners of a society where what follows, what is closed and another target network make a difference."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from rolecraft.societies import Dilemma, Graph, evolve_on_graph
from rolecraft.societies._learners import DqnHead, Exploration, LinearHead, Step, TableState

HEAD = DqnHead(1, 2, 3, 0.01, 0.5, Exploration(), capacity=8, hidden=4, batch=3)


def test_the_deep_q_loss_bootstraps_by_the_target_network_over_open_actions() -> None:
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    params, target = (jax.tree.map(lambda leaf: 3 * leaf, HEAD.network.init(key, jnp.zeros(2))) for key in keys[:2])
    last = target["params"]["Dense_1"]
    last["bias"] = last["bias"].at[1].set(50.0)  # the closed action would be best
    seen, after = jax.random.normal(keys[2], (2, 3, 2))
    action, reward, ended = np.array([0, 2, 1]), np.array([1.0, -9.0, 0.3]), np.array([0.0, 0.0, 1.0])
    batch = jnp.concatenate([seen, after, jnp.stack([jnp.asarray(x, jnp.float32) for x in (action, reward, ended)], 1)],
                            1)  # fmt: skip
    allowed = jnp.array([True, False, True])

    @jax.jit
    def go(params: Any, target: Any) -> Any:
        return HEAD.loss(params, target, batch, allowed), HEAD.values(params, seen), HEAD.values(target, after)

    loss, own, ahead = (np.asarray(x) for x in go(params, target))
    expected = []
    for row in range(3):
        future = 0.0 if ended[row] else 0.5 * max(ahead[row, 0], ahead[row, 2])
        error = abs(own[row, action[row]] - reward[row] - future)
        expected.append(0.5 * error**2 if error < 1 else error - 0.5)
    assert ahead.argmax(1).tolist() == [1, 1, 1]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


def test_a_linear_value_moves_along_the_partners_features() -> None:
    head = LinearHead(3, 0.1, 0.5, Exploration())
    state = TableState(jnp.array([[0.2, 0.4]] * 3), jnp.zeros(3, jnp.int32))
    allowed = jnp.array([True, True, False])
    seen, after = jnp.array([3.0, 1.0, 50.0]), jnp.array([0.0, 4.0, -50.0])  # standard scores of the open: 1 and -1
    step = Step(seen, jnp.int32(1), jnp.float32(2.0), after, jnp.float32(0.0), allowed)
    found = head.learn(state, jnp.int32(1), step, None, jnp.asarray(True))
    error = 2.0 + 0.5 * (0.2 + 0.4) - (0.2 - 0.4)
    assert np.asarray(found.values[1]) == pytest.approx([0.2 + 0.1 * error, 0.4 - 0.1 * error], rel=1e-5)
    assert (found.values[0] == state.values[0]).all()
    assert found.updates.tolist() == [0, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("fitness", ["mean", "sum"])
def test_a_node_of_few_neighbours_earns_from_these_alone(fitness: Any) -> None:
    """One step on a star whose leaves have one neighbour and whose hub has three, against its exact law."""
    game, beta, populations = Dilemma().game(), 0.8, 6000
    graph, start = Graph.of_edges(4, [(0, 1), (0, 2), (0, 3)]), np.array([0, 1, 1, 0])
    run = evolve_on_graph(
        game, graph, beta=beta, mutation=0.0, steps=1, samples=1, populations=populations, start=start, fitness=fitness,
    )  # fmt: skip
    pay, near = game.payoffs, {0: [1, 2, 3], 1: [0], 2: [0], 3: [0]}

    def earned(node: int) -> float:
        total = sum(pay[start[node], start[other]] for other in near[node])
        return total / len(near[node]) if fitness == "mean" else total

    for node in range(4):
        expected = sum(
            (start[other] != start[node]) / (1 + np.exp(-beta * (earned(other) - earned(node)))) / len(near[node]) / 4
            for other in near[node]
        )
        changed = (run.final[:, node] != start[node]).mean()
        assert changed == pytest.approx(expected, abs=4 * np.sqrt(max(expected, 0.01) * (1 - expected) / populations))

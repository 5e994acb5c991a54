"""MDPs from Gymnasium's toy-text tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from rolecraft.control.tabular._mdp import Mdp
from rolecraft.errors import MissingDependencyError, UserError


def from_gymnasium(env: Any, discount: float = 0.99, **options: Any) -> Mdp:
    """Read the table of a Gymnasium environment that has one, such as FrozenLake, Taxi or CliffWalking.

    States in which the table says that the episode is over become absorbing. Where one state is entered both with and
    without an end (Taxi's drop-off), the ends lead to one absorbing state that is added at the end.

    Args:
        env: A registered name (`FrozenLake-v1`) or an environment.
        discount: In [0, 1).
        **options: Passed to `gymnasium.make` with a name, such as `is_slippery=False`.

    Raises:
        MissingDependencyError: If gymnasium is not installed.
        UserError: If the environment is unknown or has no table.
    """
    if isinstance(env, str):
        env = _make(env, options)
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if table is None:
        raise UserError(
            f"{type(bare).__name__} has no table `P` of transitions; expected a toy-text environment such as "
            "FrozenLake-v1, Taxi-v4 or CliffWalking-v1."
        )
    states, actions = len(table), len(table[0])
    rows = [
        (state, action, float(p), int(after), float(reward), bool(over))
        for state in range(states)
        for action in range(actions)
        for p, after, reward, over in table[state][action]
    ]
    ends, goes_on = ({after for *_, after, _, over in rows if over is kind} for kind in (True, False))
    mixed = bool(ends & goes_on)
    size = states + mixed
    transitions, rewards = np.zeros((size, actions, size)), np.zeros((size, actions))
    for state, action, p, after, reward, over in rows:
        transitions[state, action, states if over and mixed else after] += p
        rewards[state, action] += p * reward
    absorbing = np.zeros(size, dtype=bool)
    absorbing[[states] if mixed else sorted(ends)] = True
    transitions[absorbing] = np.eye(size)[absorbing][:, None]
    rewards[absorbing] = 0.0
    start = np.append(np.asarray(bare.initial_state_distrib, dtype=float), [0.0] * mixed)
    return Mdp(transitions, rewards, start / start.sum(), discount, absorbing)


def _make(name: str, options: dict[str, Any]) -> Any:
    try:
        import gymnasium
    except ModuleNotFoundError:
        raise MissingDependencyError("from_gymnasium needs gymnasium: pip install 'rolecraft[worlds]'.") from None
    try:
        return gymnasium.make(name, **options)
    except gymnasium.error.Error as error:
        raise UserError(f"gymnasium has no environment {name!r}: {error}") from None

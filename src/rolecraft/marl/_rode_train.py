"""RODE's training in two phases, with the roles found between them (arXiv 2010.01523)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import check_memory, loop
from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.marl._rode import RodeLearner, RodeState

Metrics = dict[str, np.ndarray[Any, Any]]


def train_rode(
    learner: RodeLearner,
    seeds: Sequence[int],
    *,
    folder: str | Path | None = None,
    chunk: int = 5,
    report: Callable[[int, RodeState, dict[str, Any]], None] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> tuple[RodeState, Metrics]:
    """Train a team from several seeds at once, in both phases.

    Args:
        learner: What is trained.
        seeds: Whole numbers, S in all.
        folder: For the checkpoints of the phases, in `1-effects` and `2-roles`; a killed training goes on to the same
            numbers. See `rolecraft._jax.loop`.
        chunk: Tests between two checkpoints.
        report: See `rolecraft._jax.loop`; it is told the tests done in both phases together.
        identity: See `rolecraft._jax.loop`.

    Returns:
        The last state, leaves (S, ...), and the metrics, (tests, S, ...).

    Raises:
        UserError: If the replays of all seeds do not fit, there are no seeds, or roles cannot be found.
        Diverged: If a figure is not finite.
    """
    if not len(seeds):
        raise UserError("seeds: expected at least one.")
    check_memory(learner.replay_bytes() * len(seeds), f"replays for {len(seeds)} seeds", "buffer")
    # Arms of one seed start alike: the key depends on the seed alone.
    keys = jnp.stack([jax.random.PRNGKey(derive_seed("marl", seed) % 2**32) for seed in seeds])
    state: RodeState = jax.jit(jax.vmap(learner.init))(keys)
    before, parts = learner.tests_before, list[Metrics]()
    phases = (("1-effects", before), ("2-roles", learner.config.tests - before))
    for phase, (name, updates) in enumerate(phases):
        if phase:
            state = learner.fix_roles(state, seeds)

        def told(done: int, state: RodeState, found: Metrics, add: int = before * phase) -> None:
            if report is not None:
                report(done + add, state, found)

        state, metrics = loop(
            jax.vmap(partial(learner.update, found=bool(phase))), state, updates=updates, chunk=chunk,
            folder=Path(folder) / name if folder is not None else None, report=told, identity=identity,
        )  # fmt: skip
        parts.append(metrics)
    return state, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


__all__ = ["train_rode"]

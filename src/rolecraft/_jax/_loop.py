"""One loop for all training on JAX: updates scanned in chunks, checked for NaN, saved, resumed to the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._files import read_tensors
from rolecraft._jax._tree import is_key, leaf_name, load_tree, read_meta, save_tree
from rolecraft._run import plain
from rolecraft.errors import UserError

State = TypeVar("State")
Metrics = dict[str, np.ndarray[Any, Any]]
Kept = TypeVar("Kept")
STATE, METRICS = "state", "metrics"
KEPT = "kept.safetensors"
"""What stays of a finished loop's state."""


class Diverged(UserError):
    """A number stopped being finite; the message names the step and the quantity."""

    def __init__(self, message: str, *, step: int, quantity: str) -> None:
        super().__init__(message)
        self.step = step
        """The update, counted from 1; for a leaf of the state, the last one of its chunk."""
        self.quantity = quantity
        """Name of the metric, or path of the leaf in the state."""


def loop(
    update: Callable[[State], tuple[State, Mapping[str, Any]]],
    state: State,
    *,
    updates: int,
    chunk: int,
    folder: str | Path | None = None,
    report: Callable[[int, State, Metrics], None] | None = None,
    identity: Mapping[str, Any] | None = None,
) -> tuple[State, Metrics]:
    """Run `updates` updates, `chunk` of them in one compiled scan.

    Args:
        update: A pure function from the state to the next state and the figures of one update, arrays of any fixed
            shape (`jax.vmap` it to train several seeds at once). A figure that may be missing is given as sum and
            count, never as NaN. The state's leaves are arrays and keep their shapes and dtypes.
        state: The first state, random key included. It is copied; the caller's arrays stay valid.
        updates: In all, those of earlier sessions included.
        chunk: Updates between two looks at the numbers; a checkpoint each.
        folder: Where the last good state and all metrics are kept. If it holds some, the loop goes on from there and
            comes to the same numbers as one that was never interrupted. None keeps nothing.
        report: Called after each chunk of this session with the updates done, the state and the chunk's metrics,
            each of shape (chunk, ...), before that checkpoint is written: whatever it stores, a killed session may
            store again. It must copy what it keeps of the state, whose memory the next chunk uses again.
        identity: What decides the numbers (a configuration); a folder of another one is refused.

    Returns:
        The last state, and the metrics as numpy arrays of shape (updates, ...).

    Raises:
        Diverged: If a metric or a leaf of the state is not finite; the checkpoint before it stays.
        UserError: If `updates` or `chunk` is below 1, or the folder holds another run's state.
    """
    if updates < 1 or chunk < 1:
        raise UserError(f"updates and chunk must be at least 1, got {updates} and {chunk}.")
    state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
    _check_update(update, state)
    done, parts = 0, list[Metrics]()
    same = json.loads(json.dumps(plain(dict(identity or {}))))
    if folder is not None:
        state, done, parts = _resume(Path(folder), state, updates, same)

    def run(state: State, length: int) -> tuple[State, Mapping[str, Any], dict[str, Any]]:
        state, metrics = jax.lax.scan(lambda carry, _: update(carry), state, length=length)
        return state, metrics, _finite(state)

    # The old state's memory is given to the new one: a replay buffer is never held twice.
    compiled = jax.jit(run, static_argnums=1, donate_argnums=0)
    while done < updates:
        length = min(chunk, updates - done)
        state, found, finite = compiled(state, length)
        metrics = {name: np.asarray(values) for name, values in found.items()}
        _refuse(metrics, jax.device_get(finite), done, length, folder)
        done += length
        parts.append(metrics)
        if report is not None:
            report(done, state, metrics)
        if folder is not None:
            _save(Path(folder), state, metrics, done, same)
    return state, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def loop_kept(
    update: Callable[[State], tuple[State, Mapping[str, Any]]],
    start: Callable[[], State],
    keep: Callable[[State], Kept],
    *,
    updates: int,
    chunk: int,
    folder: str | Path,
    identity: Mapping[str, Any],
) -> tuple[Kept, Metrics]:
    """Run a loop whose folder keeps a part of the last state for good, and the whole of it only until then.

    A killed loop goes on to the same numbers; a finished one is only read, and no replay of it stays on the disk.

    Args:
        update: See `loop`.
        start: Makes the first state; a finished loop asks it for shapes alone.
        keep: What is kept of the last state, such as its weights; a pure function.
        updates: See `loop`.
        chunk: See `loop`.
        folder: Of this loop alone.
        identity: See `loop`.

    Returns:
        What is kept, and the metrics.

    Raises:
        UserError: As `loop` does; also if the folder holds a finished loop of another identity or length.
    """
    path, same = Path(folder) / KEPT, {"updates": updates, **json.loads(json.dumps(plain(dict(identity))))}
    if path.exists():
        _check_identity(Path(folder), read_meta(path)["identity"], same)
        kept, metrics = load_tree(path, jax.eval_shape(lambda: keep(start()))), read_metrics(folder)[1]
    else:
        state, metrics = loop(update, start(), updates=updates, chunk=chunk, folder=folder, identity=identity)
        kept = keep(state)
        save_tree(path, kept, {"identity": same})
    for step in checkpoint_steps(folder, STATE):
        _file(Path(folder), STATE, step).unlink()
    return kept, metrics


def _check_update(update: Callable[[State], Any], state: State) -> None:
    """Refuse an update whose state changes its form, before anything is compiled."""
    after, figures = jax.eval_shape(update, state)
    if not isinstance(figures, Mapping):
        raise UserError(f"update must return (state, {{name: array}}), got {type(figures).__name__} as figures.")
    form = [jax.tree_util.tree_flatten_with_path(jax.eval_shape(lambda tree: tree, tree))[0] for tree in (state, after)]
    before, later = ({leaf_name(where): leaf for where, leaf in found} for found in form)
    for name in dict.fromkeys([*before, *later]):
        was, now = (f"{tree[name].dtype}{tree[name].shape}" if name in tree else "nothing" for tree in (before, later))
        if was != now:
            raise UserError(f"update changes the leaf {name!r} of the state from {was} to {now}; keep shape and dtype.")


def _finite(state: Any) -> dict[str, Any]:
    return {
        leaf_name(where): jnp.isfinite(leaf).all()
        for where, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if not is_key(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    }


def _refuse(metrics: Metrics, finite: Mapping[str, Any], done: int, length: int, folder: str | Path | None) -> None:
    """Raise for the first step that has a figure which is not finite, or else for a leaf of the state."""
    bad = {
        name: int(np.argmin(np.isfinite(values).reshape(length, -1).all(1)))
        for name, values in metrics.items()
        if not np.isfinite(values).all()
    }
    leaves = [name for name, good in finite.items() if not good]
    if not bad and not leaves:
        return
    name = min(bad, key=lambda name: bad[name]) if bad else leaves[0]
    step = done + (bad[name] if bad else length - 1) + 1
    kept = f" The checkpoint of update {done} stays in {folder}." if folder is not None and done else ""
    what = f"metric {name!r} is {metrics[name][bad[name]]}" if bad else f"leaf {name!r} of the state is not finite"
    also = f"; not finite in the state: {', '.join(leaves[:4])}" if bad and leaves else ""
    raise Diverged(
        f"update {step}: {what}{also}. Lower the learning rate or clip the gradients.{kept}", step=step, quantity=name
    )


def _file(folder: Path, what: str, done: int) -> Path:
    return folder / f"{what}-{done:08}.safetensors"


def checkpoint_steps(folder: str | Path, what: str = METRICS) -> list[int]:
    """Return the updates after which a chunk's files were written, in order."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in Path(folder).glob(f"{what}-*.safetensors"))


def read_metrics(folder: str | Path) -> tuple[list[int], Metrics]:
    """Return what a loop has measured so far, also while it runs.

    Returns:
        The updates at which its chunks ended, and the metrics, each of shape (updates so far, ...).

    Raises:
        UserError: If the folder holds none.
    """
    steps = checkpoint_steps(folder)
    if not steps:
        raise UserError(f"{folder}: no metrics-*.safetensors; expected the folder of a training loop.")
    parts = [read_tensors(_file(Path(folder), METRICS, step), "metrics of a training loop")[1] for step in steps]
    return steps, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _save(folder: Path, state: Any, metrics: Metrics, done: int, identity: Mapping[str, Any]) -> None:
    """Write the metrics first: where there is a state, its metrics are complete."""
    save_tree(_file(folder, METRICS, done), metrics)
    save_tree(_file(folder, STATE, done), state, {"done": done, "identity": identity})
    for step in checkpoint_steps(folder, STATE):
        if step != done:
            _file(folder, STATE, step).unlink(missing_ok=True)


def _check_identity(folder: Path, known: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse a folder whose numbers come from another configuration; the message names the first field."""
    for name in dict.fromkeys([*known, *asked]):
        if known.get(name) != asked.get(name):
            raise UserError(
                f"{folder}: holds a run with another {name}: {known.get(name)!r}, asked {asked.get(name)!r}; "
                "use another folder or the same configuration."
            )


def _resume(folder: Path, state: State, updates: int, identity: Mapping[str, Any]) -> tuple[State, int, list[Metrics]]:
    steps = checkpoint_steps(folder, STATE)
    done = steps[-1] if steps else 0
    for step in checkpoint_steps(folder):
        if step > done:  # a chunk whose state was never written
            _file(folder, METRICS, step).unlink()
    if not done:
        return state, 0, []
    path = _file(folder, STATE, done)
    known = read_meta(path)["identity"]
    _check_identity(folder, known, identity)
    if done > updates:
        raise UserError(f"{folder}: {done} updates are done already, asked for {updates}; ask for at least {done}.")
    _, metrics = read_metrics(folder)
    return load_tree(path, state), done, [metrics]

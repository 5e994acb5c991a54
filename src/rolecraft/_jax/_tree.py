"""Trees of arrays in safetensors files: each leaf under its path, nothing pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax import numpy as jnp
from safetensors.numpy import save

from rolecraft._files import read_tensors, write_atomic
from rolecraft.errors import UserError, did_you_mean

Tree = TypeVar("Tree")
META = "rolecraft"
"""Key of the file's metadata that holds ours, as JSON."""


def leaf_name(path: tuple[Any, ...]) -> str:
    """Return the name of a leaf: the keys, indices and fields that lead to it, joined by `/`."""
    return jax.tree_util.keystr(path, simple=True, separator="/") or "leaf"


def is_key(leaf: Any) -> bool:
    """Tell whether a leaf is a typed random key (`jax.random.key`)."""
    return isinstance(leaf, jax.Array) and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Any) -> np.ndarray[Any, Any]:
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf, order="C")


def save_tree(path: str | Path, tree: Any, meta: Mapping[str, Any] | None = None) -> None:
    """Write a tree of arrays (and numbers) into one safetensors file, atomically.

    Args:
        path: The file; its folder is made.
        tree: Any pytree: parameters, optimiser state, a whole training state. Typed random keys are kept.
        meta: Values that JSON can hold, returned by `read_meta`.

    Raises:
        UserError: If two leaves have the same name (a key holds a `/`), or a leaf is no array or number.
    """
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for where, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name, array = leaf_name(where), _plain(leaf)
        if name in tensors:
            raise UserError(f"{path}: two leaves of the tree are called {name!r}; rename one of their keys.")
        if array.dtype == object or array.dtype.kind in "USM":
            raise UserError(f"{path}: leaf {name!r} is a {type(leaf).__name__}, expected an array or a number.")
        tensors[name] = array
    write_atomic(Path(path), save(tensors, {META: json.dumps(dict(meta or {}))}))


def load_tree(path: str | Path, like: Tree) -> Tree:
    """Read a tree that `save_tree` wrote.

    Args:
        path: The file.
        like: A tree of the same structure, shapes and dtypes; of its leaves only these are looked at, so that
            `jax.eval_shape` will do where no leaf is a typed random key.

    Returns:
        A tree like `like`, its leaves on the default device.

    Raises:
        UserError: If the file is missing or not such a file, or leaves are missing, left over, or of another shape or
            dtype.
    """
    _, tensors = read_tensors(Path(path), "a tree of arrays written by Rolecraft")
    flat, structure = jax.tree_util.tree_flatten_with_path(like)
    wanted = {leaf_name(where): leaf for where, leaf in flat}
    missing = [name for name in wanted if name not in tensors]
    extra = [name for name in tensors if name not in wanted]
    if missing or extra:
        near = did_you_mean(missing[0], extra) if missing else ""
        raise UserError(
            f"{path}: the file does not hold this tree: missing {_some(missing)}, left over {_some(extra)}.{near} "
            "Load it with the configuration that it was saved with."
        )
    leaves = [_load(path, name, tensors[name], leaf) for name, leaf in wanted.items()]
    tree: Tree = jax.tree_util.tree_unflatten(structure, leaves)
    return tree


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") or "nothing"


def _load(path: str | Path, name: str, found: np.ndarray[Any, Any], leaf: Any) -> Any:
    wanted = jax.random.key_data(leaf) if is_key(leaf) else leaf
    shape, dtype = np.shape(wanted), getattr(wanted, "dtype", np.asarray(wanted).dtype)
    if found.shape != shape or found.dtype != dtype:
        raise UserError(
            f"{path}: leaf {name!r} has shape {found.shape} and type {found.dtype}, expected {shape} and {dtype}. "
            "Load it with the configuration that it was saved with."
        )
    if is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(found), impl=jax.random.key_impl(leaf))
    if isinstance(leaf, bool | int | float):
        return type(leaf)(found.item())
    return found if isinstance(leaf, np.ndarray) else jnp.asarray(found)


def read_meta(path: str | Path) -> dict[str, Any]:
    """Return the values that were saved beside a tree; see `save_tree`.

    Raises:
        UserError: If the file is missing or not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise UserError(f"{path}: no such file; expected a tree of arrays written by Rolecraft.")
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(json.loads((file.metadata() or {}).get(META, "{}")))
    except (SafetensorError, ValueError, OSError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error}).") from None

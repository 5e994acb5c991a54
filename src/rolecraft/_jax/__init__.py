"""What every part on JAX shares: trees in safetensors files, a training loop that resumes, sizes checked beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft._jax._initializers import orthogonal
    from rolecraft._jax._loop import Diverged, checkpoint_steps, loop, loop_kept, read_metrics
    from rolecraft._jax._memory import check_memory, parameter_count, tree_bytes
    from rolecraft._jax._tree import load_tree, read_meta, save_tree

__all__ = [
    "Diverged",
    "check_memory",
    "checkpoint_steps",
    "load_tree",
    "loop",
    "loop_kept",
    "orthogonal",
    "parameter_count",
    "read_meta",
    "read_metrics",
    "save_tree",
    "tree_bytes",
]

_WHERE = {
    "orthogonal": "_initializers",
    **dict.fromkeys(("Diverged", "checkpoint_steps", "loop", "loop_kept", "read_metrics"), "_loop"),
    **dict.fromkeys(("check_memory", "parameter_count", "tree_bytes"), "_memory"),
    **dict.fromkeys(("load_tree", "read_meta", "save_tree"), "_tree"),
}


def __getattr__(name: str) -> Any:
    """Import JAX only where one of its parts is used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)

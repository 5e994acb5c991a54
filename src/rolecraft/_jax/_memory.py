"""How large a tree is, and whether it fits before it is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from rolecraft.errors import UserError

GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")


def parameter_count(tree: Any) -> int:
    """Return the number of numbers in a tree of arrays (or of shapes, as `jax.eval_shape` gives them)."""
    return sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(tree))


def tree_bytes(tree: Any) -> int:
    """Return the bytes of a tree of arrays, or of shapes and dtypes: `tree_bytes(jax.eval_shape(make, ...))`."""
    return sum(int(np.prod(np.shape(leaf))) * jax.dtypes.result_type(leaf).itemsize for leaf in jax.tree.leaves(tree))


def available_memory() -> int | None:
    """Return the bytes that are free on the default device, None where that is unknown."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0)) if "bytes_limit" in stats else None
    found = [value for value in (_machine(), _container()) if value is not None]
    return min(found, default=None)


def _machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None


def _container() -> int | None:
    """What a container's limit leaves (control groups of version 2)."""
    try:
        limit, used = ((CGROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return None if limit == "max" else int(limit) - int(used)
    except (OSError, ValueError):
        return None


def check_memory(needed: int, what: str, lower: str = "", *, share: float = 0.9) -> None:
    """Refuse what would not fit, before it is allocated.

    Args:
        needed: Bytes; see `tree_bytes`.
        what: What they are for, as the message names it: `replay of 5000 episodes`.
        lower: The field of the configuration that makes it smaller.
        share: Part of the free memory that may be used, above 0.

    Raises:
        UserError: If it needs more than that; nothing is raised where the free memory is unknown.
    """
    free = available_memory()
    if free is not None and needed > share * free:
        mend = f"; lower {lower}" if lower else ""
        raise UserError(f"{what} needs {needed / GIB:.2f} GiB, and {free / GIB:.2f} GiB of memory are free{mend}.")

"""z3, loaded when a policy is first analysed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rolecraft.errors import MissingDependencyError


def load_z3() -> Any:
    """Return the module `z3`.

    Raises:
        MissingDependencyError: If `z3-solver` is not installed.
    """
    try:
        return import_module("z3")
    except ImportError:
        raise MissingDependencyError("comparing policies needs z3: pip install 'rolecraft[guard]'") from None

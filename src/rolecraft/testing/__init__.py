"""The conformance kit: deterministic models and checks for those who extend the package or test against it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.testing._scripted import ScriptedModel
    from rolecraft.testing._tiny import tiny_model
    from rolecraft.testing._world_kit import check_world

__all__ = ["ScriptedModel", "check_world", "tiny_model"]

_LAZY = {"ScriptedModel": "_scripted", "check_world": "_world_kit", "tiny_model": "_tiny"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Worlds by name, as study files call them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._world import World

WORLDS: Mapping[str, tuple[str, str]] = {
    "avalon": ("_avalon", "Avalon"),
    "trust-game": ("_trust_game", "TrustGame"),
}
"""Name to (module, class)."""


def make_world(name: str, options: Mapping[str, Any] | None = None) -> World:
    """Make a world.

    Args:
        name: A key of `WORLDS`.
        options: Arguments of its class.

    Raises:
        UserError: If there is no such world or option, or the world refuses a value.
    """
    if name not in WORLDS:
        raise UserError(f"there is no world {name!r} (worlds: {', '.join(WORLDS)}).{did_you_mean(name, WORLDS)}")
    module, attribute = WORLDS[name]
    kind: type[World] = getattr(import_module(f"{__package__}.{module}"), attribute)
    known = inspect.signature(kind).parameters
    for option in options or {}:
        if option not in known:
            raise UserError(
                f"world {name!r} has no option {option!r} (options: {', '.join(known) or 'none'})."
                + did_you_mean(option, known)
            )
    return kind(**(options or {}))

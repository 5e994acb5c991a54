"""Worlds by name, as study files call them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from rolecraft._options import call_with
from rolecraft.errors import UserError, did_you_mean
from rolecraft.worlds._world import World

WORLDS: Mapping[str, tuple[str, str]] = {
    "avalon": ("avalon", "Avalon"),
    "bargaining": ("_bargaining", "Bargaining"),
    "bridge": ("_bridge", "Bridge"),
    "conversation": ("_conversation", "Conversation"),
    "dialogue": ("dialogue", "Dialogue"),
    "gymnasium": ("adapters._gymnasium", "GymnasiumWorld"),
    "incognita": ("incognita", "Incognita"),
    "jaxmarl": ("adapters._jaxmarl", "JaxMarlWorld"),
    "key-door": ("_key_door", "KeyDoor"),
    "negotiation": ("_negotiation", "Negotiation"),
    "open-spiel": ("adapters._open_spiel", "OpenSpielWorld"),
    "pettingzoo": ("adapters._pettingzoo", "PettingZooWorld"),
    "plan-path": ("_plan_path", "PlanPath"),
    "social-scene": ("social", "SocialScene"),
    "text-arena": ("adapters._text_arena", "TextArenaWorld"),
    "trust-game": ("_trust_game", "TrustGame"),
}
"""Name to (module, class)."""


def make_world(name: str, options: Mapping[str, Any] | None = None) -> World:
    """Make a world.

    Args:
        name: A key of `WORLDS`.
        options: Arguments of its class.

    Raises:
        MissingDependencyError: If the world is another package's, and it is not installed.
        UserError: If there is no such world or option, one is missing, or the world refuses a value.
    """
    if name not in WORLDS:
        raise UserError(f"there is no world {name!r} (worlds: {', '.join(WORLDS)}).{did_you_mean(name, WORLDS)}")
    module, attribute = WORLDS[name]
    kind: type[World] = getattr(import_module(f"{__package__}.{module}"), attribute)
    return call_with(kind, options or {}, f"world {name!r}")

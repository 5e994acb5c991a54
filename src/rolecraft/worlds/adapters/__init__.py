"""Worlds of other packages, each imported when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.worlds.adapters._foreign import ForeignWorld
    from rolecraft.worlds.adapters._gymnasium import GymnasiumWorld
    from rolecraft.worlds.adapters._jaxmarl import JaxMarlWorld
    from rolecraft.worlds.adapters._open_spiel import OpenSpielWorld
    from rolecraft.worlds.adapters._open_spiel_tables import (
        PolicyTable,
        TablePolicy,
        decisions,
        policy_of_table,
        table_of_episodes,
        table_of_policy,
    )
    from rolecraft.worlds.adapters._pettingzoo import PettingZooWorld
    from rolecraft.worlds.adapters._text_arena import TextArenaWorld

__all__ = [
    "ForeignWorld",
    "GymnasiumWorld",
    "JaxMarlWorld",
    "OpenSpielWorld",
    "PettingZooWorld",
    "PolicyTable",
    "TablePolicy",
    "TextArenaWorld",
    "decisions",
    "policy_of_table",
    "table_of_episodes",
    "table_of_policy",
]

_LAZY = {
    "ForeignWorld": "_foreign",
    "GymnasiumWorld": "_gymnasium",
    "JaxMarlWorld": "_jaxmarl",
    "OpenSpielWorld": "_open_spiel",
    "PettingZooWorld": "_pettingzoo",
    "TextArenaWorld": "_text_arena",
    **dict.fromkeys(
        ("PolicyTable", "TablePolicy", "decisions", "policy_of_table", "table_of_episodes", "table_of_policy"),
        "_open_spiel_tables",
    ),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Avalon: its rules and records, and the world."""

from rolecraft.worlds.avalon._rules import (
    AVALON_EVIL,
    AVALON_ROLES,
    AVALON_SETUPS,
    AvalonProposal,
    AvalonQuest,
    AvalonSetup,
    AvalonView,
    Phase,
    Team,
    team_action,
    visible_sides,
)
from rolecraft.worlds.avalon._world import Avalon

__all__ = [
    "AVALON_EVIL",
    "AVALON_ROLES",
    "AVALON_SETUPS",
    "Avalon",
    "AvalonProposal",
    "AvalonQuest",
    "AvalonSetup",
    "AvalonView",
    "Phase",
    "Team",
    "team_action",
    "visible_sides",
]

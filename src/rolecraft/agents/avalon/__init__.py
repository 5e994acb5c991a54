"""Rule bots for Avalon, and a Servant that weighs every deal of the roles."""

from rolecraft.agents.avalon._bayes import BayesServantBot
from rolecraft.agents.avalon._bots import (
    AVALON_BOTS,
    AssassinBot,
    AvalonBots,
    AvalonRule,
    MerlinBot,
    MinionBot,
    NaiveBot,
    Placements,
    ServantBot,
    preferred_teams,
    servant_placements,
)

__all__ = [
    "AVALON_BOTS",
    "AssassinBot",
    "AvalonBots",
    "AvalonRule",
    "BayesServantBot",
    "MerlinBot",
    "MinionBot",
    "NaiveBot",
    "Placements",
    "ServantBot",
    "preferred_teams",
    "servant_placements",
]

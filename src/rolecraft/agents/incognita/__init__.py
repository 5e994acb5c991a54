"""Program agents for Incognita: what they gather, how they meet a request, and whom they ask."""

from rolecraft.agents.incognita._agents import (
    BanditRouter,
    BeliefRouter,
    Broadcaster,
    IncognitaPlanner,
    InstantFinaliser,
    KeywordRouter,
    OracleRouter,
    SpecialistRouter,
)

__all__ = [
    "BanditRouter",
    "BeliefRouter",
    "Broadcaster",
    "IncognitaPlanner",
    "InstantFinaliser",
    "KeywordRouter",
    "OracleRouter",
    "SpecialistRouter",
]

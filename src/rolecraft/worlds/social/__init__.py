"""Social scenes: who meets, what about, what may be done and what it commits to, and the world."""

from rolecraft.worlds.social._families import load_social_scenarios, social_scenario
from rolecraft.worlds.social._ledger import Commitment, SocialLedger, read_tags
from rolecraft.worlds.social._moves import SOCIAL_ACTIONS, SocialMove, phrase, possible_moves, say
from rolecraft.worlds.social._profiles import Relationship, RelationshipGraph, SocialProfile, make_profiles
from rolecraft.worlds.social._scenarios import SocialBrief, SocialScenario
from rolecraft.worlds.social._scene import SocialScene

__all__ = [
    "SOCIAL_ACTIONS",
    "Commitment",
    "Relationship",
    "RelationshipGraph",
    "SocialBrief",
    "SocialLedger",
    "SocialMove",
    "SocialProfile",
    "SocialScenario",
    "SocialScene",
    "load_social_scenarios",
    "make_profiles",
    "phrase",
    "possible_moves",
    "read_tags",
    "say",
    "social_scenario",
]

"""Self-play: replies in free text that may be invalid (SPIRAL), and copies that change seats (CORY)."""

from rolecraft.learning.selfplay._free_reply import FreeReply, silent_share
from rolecraft.learning.selfplay._role_exchange import NoExchangeWarning, RoleExchange

__all__ = [
    "FreeReply",
    "NoExchangeWarning",
    "RoleExchange",
    "silent_share",
]

"""Incognita: a shop's database and its words, tasks, the people one meets, and the world."""

from rolecraft.worlds.incognita._cards import GoldAction, TaskCard, UserField, gold_states, replay_gold
from rolecraft.worlds.incognita._people import (
    HOLDERS,
    OUTSIDE,
    REMITS,
    ROUTED,
    SPECIALISTS,
    USER,
    asked_topics,
    asks_to_confirm,
)
from rolecraft.worlds.incognita._retail import RETAIL_OPERATIONS, Retail, RetailReceipt, money, retail_hash
from rolecraft.worlds.incognita._shop import load_retail, make_retail
from rolecraft.worlds.incognita._tasks import make_task_cards, shop_data
from rolecraft.worlds.incognita._words import ORDER, PHRASES, in_words, read_place, says
from rolecraft.worlds.incognita._world import Incognita

__all__ = [
    "HOLDERS",
    "ORDER",
    "OUTSIDE",
    "PHRASES",
    "REMITS",
    "RETAIL_OPERATIONS",
    "ROUTED",
    "SPECIALISTS",
    "USER",
    "GoldAction",
    "Incognita",
    "Retail",
    "RetailReceipt",
    "TaskCard",
    "UserField",
    "asked_topics",
    "asks_to_confirm",
    "gold_states",
    "in_words",
    "load_retail",
    "make_retail",
    "make_task_cards",
    "money",
    "read_place",
    "replay_gold",
    "retail_hash",
    "says",
    "shop_data",
]

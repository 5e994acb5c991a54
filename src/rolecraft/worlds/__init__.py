"""Where agents act, and tasks with known answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType, Graded, accuracy, clean, grade
from rolecraft.worlds._closed_tasks import (
    TASKS,
    ClosedItem,
    ClosedTask,
    make_items,
    read_items,
    right_option,
    task_named,
)
from rolecraft.worlds._episode import Episode, OnIllegal, Receipt, Turn
from rolecraft.worlds._exact_match import Asked, Frame, Solved, solve_by_choice, solve_freely
from rolecraft.worlds._play import Act, Policy, View, play, replay
from rolecraft.worlds._weapon_shop import FUNCTIONS, MISSING_FUNCTIONS, ShopTurn, WeaponShop, shop_turns
from rolecraft.worlds._world import World

if TYPE_CHECKING:
    from rolecraft.worlds._aec import WorldEnv, text_of

__all__ = [
    "ANSWER_TYPES",
    "FUNCTIONS",
    "MISSING_FUNCTIONS",
    "TASKS",
    "Act",
    "AnswerType",
    "Asked",
    "ClosedItem",
    "ClosedTask",
    "Episode",
    "Frame",
    "Graded",
    "OnIllegal",
    "Policy",
    "Receipt",
    "ShopTurn",
    "Solved",
    "Turn",
    "View",
    "WeaponShop",
    "World",
    "WorldEnv",
    "accuracy",
    "clean",
    "grade",
    "make_items",
    "play",
    "read_items",
    "replay",
    "right_option",
    "shop_turns",
    "solve_by_choice",
    "solve_freely",
    "task_named",
    "text_of",
]

_LAZY = {"WorldEnv": "_aec", "text_of": "_aec"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

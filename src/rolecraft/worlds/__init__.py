"""Where agents act, and tasks with known answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType, Graded, accuracy, clean, grade
from rolecraft.worlds._avalon import Avalon
from rolecraft.worlds._avalon_rules import (
    AVALON_EVIL,
    AVALON_ROLES,
    AVALON_SETUPS,
    AvalonProposal,
    AvalonQuest,
    AvalonSetup,
    AvalonView,
    team_action,
    visible_sides,
)
from rolecraft.worlds._closed_tasks import (
    TASKS,
    ClosedItem,
    ClosedTask,
    make_items,
    read_items,
    right_option,
    task_named,
)
from rolecraft.worlds._discussion import Discussion, read_scores, read_stance, verdict_of
from rolecraft.worlds._discussion_items import JudgedItem, Stance, load_chateval, load_judged_items
from rolecraft.worlds._episode import Episode, OnIllegal, Receipt, Turn
from rolecraft.worlds._exact_match import Asked, Frame, Solved, solve_by_choice, solve_freely
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message, read_object, read_recipients
from rolecraft.worlds._play import Act, Policy, Rules, Table, View, play, play_all, replay
from rolecraft.worlds._registry import WORLDS, make_world
from rolecraft.worlds._trust_game import TrustGame
from rolecraft.worlds._weapon_shop import FUNCTIONS, MISSING_FUNCTIONS, ShopTurn, WeaponShop, shop_turns
from rolecraft.worlds._world import World

if TYPE_CHECKING:
    from rolecraft.worlds._aec import WorldEnv, text_of

__all__ = [
    "ANSWER_TYPES",
    "AVALON_EVIL",
    "AVALON_ROLES",
    "AVALON_SETUPS",
    "FUNCTIONS",
    "MISSING_FUNCTIONS",
    "TASKS",
    "WORLDS",
    "Act",
    "AnswerType",
    "Asked",
    "Avalon",
    "AvalonProposal",
    "AvalonQuest",
    "AvalonSetup",
    "AvalonView",
    "ClosedItem",
    "ClosedTask",
    "Discussion",
    "Episode",
    "Frame",
    "Graded",
    "JudgedItem",
    "Message",
    "MessageLog",
    "OnIllegal",
    "Policy",
    "Receipt",
    "Rules",
    "ShopTurn",
    "Solved",
    "Stance",
    "Table",
    "TrustGame",
    "Turn",
    "View",
    "WeaponShop",
    "World",
    "WorldEnv",
    "accuracy",
    "clean",
    "grade",
    "load_chateval",
    "load_judged_items",
    "make_items",
    "make_world",
    "one_line_per_message",
    "play",
    "play_all",
    "read_items",
    "read_object",
    "read_recipients",
    "read_scores",
    "read_stance",
    "replay",
    "right_option",
    "shop_turns",
    "solve_by_choice",
    "solve_freely",
    "task_named",
    "team_action",
    "text_of",
    "verdict_of",
    "visible_sides",
]

_LAZY = {"WorldEnv": "_aec", "text_of": "_aec"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Where agents act, and tasks with known answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType, Graded, accuracy, clean, grade
from rolecraft.worlds._asynchronous import Asynchronous
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
from rolecraft.worlds._conversation import Conversation
from rolecraft.worlds._dialogue import FAREWELLS, STOP_RULES, Dialogue, DialogueView, read_dialogue
from rolecraft.worlds._dialogue_forms import (
    FAULTS,
    MARKERS,
    Fault,
    Instruction,
    Markers,
    faults,
    is_promise,
    read_instruction,
    read_solution,
)
from rolecraft.worlds._discussion import Discussion, read_scores, read_stance, verdict_of
from rolecraft.worlds._discussion_items import JudgedItem, Stance, load_chateval, load_judged_items
from rolecraft.worlds._episode import Episode, OnIllegal, Receipt, Turn
from rolecraft.worlds._exact_match import Asked, Frame, Solved, solve_by_choice, solve_freely
from rolecraft.worlds._incognita import Incognita
from rolecraft.worlds._incognita_cards import GoldAction, TaskCard, UserField, gold_states, replay_gold
from rolecraft.worlds._incognita_tasks import make_task_cards
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message, read_object, read_recipients
from rolecraft.worlds._play import Act, Director, Policy, Rules, Table, View, play, play_all, replay
from rolecraft.worlds._registry import WORLDS, make_world
from rolecraft.worlds._retail import RETAIL_OPERATIONS, Retail, RetailReceipt, retail_hash
from rolecraft.worlds._retail_shop import load_retail, make_retail
from rolecraft.worlds._social import SocialScene
from rolecraft.worlds._social_families import load_social_scenarios, social_scenario
from rolecraft.worlds._social_ledger import Commitment, SocialLedger
from rolecraft.worlds._social_moves import SOCIAL_ACTIONS, SocialMove
from rolecraft.worlds._social_profiles import Relationship, RelationshipGraph, SocialProfile, make_profiles
from rolecraft.worlds._social_scenarios import SocialBrief, SocialScenario
from rolecraft.worlds._stop_rules import (
    MarkerRule,
    MessageLimit,
    SilenceRule,
    Stop,
    StopRule,
    TextLimit,
    WordRule,
    find_stop,
    stop_after,
)
from rolecraft.worlds._trust_game import TrustGame
from rolecraft.worlds._weapon_shop import FUNCTIONS, MISSING_FUNCTIONS, ShopTurn, WeaponShop, shop_turns
from rolecraft.worlds._world import World

if TYPE_CHECKING:
    from rolecraft.worlds._aec import WorldEnv
    from rolecraft.worlds._parallel import ParallelWorldEnv
    from rolecraft.worlds._spaces import text_of

__all__ = [
    "ANSWER_TYPES",
    "AVALON_EVIL",
    "AVALON_ROLES",
    "AVALON_SETUPS",
    "FAREWELLS",
    "FAULTS",
    "FUNCTIONS",
    "MARKERS",
    "MISSING_FUNCTIONS",
    "RETAIL_OPERATIONS",
    "SOCIAL_ACTIONS",
    "STOP_RULES",
    "TASKS",
    "WORLDS",
    "Act",
    "AnswerType",
    "Asked",
    "Asynchronous",
    "Avalon",
    "AvalonProposal",
    "AvalonQuest",
    "AvalonSetup",
    "AvalonView",
    "ClosedItem",
    "ClosedTask",
    "Commitment",
    "Conversation",
    "Dialogue",
    "DialogueView",
    "Director",
    "Discussion",
    "Episode",
    "Fault",
    "Frame",
    "GoldAction",
    "Graded",
    "Incognita",
    "Instruction",
    "JudgedItem",
    "MarkerRule",
    "Markers",
    "Message",
    "MessageLimit",
    "MessageLog",
    "OnIllegal",
    "ParallelWorldEnv",
    "Policy",
    "Receipt",
    "Relationship",
    "RelationshipGraph",
    "Retail",
    "RetailReceipt",
    "Rules",
    "ShopTurn",
    "SilenceRule",
    "SocialBrief",
    "SocialLedger",
    "SocialMove",
    "SocialProfile",
    "SocialScenario",
    "SocialScene",
    "Solved",
    "Stance",
    "Stop",
    "StopRule",
    "Table",
    "TaskCard",
    "TextLimit",
    "TrustGame",
    "Turn",
    "UserField",
    "View",
    "WeaponShop",
    "WordRule",
    "World",
    "WorldEnv",
    "accuracy",
    "clean",
    "faults",
    "find_stop",
    "gold_states",
    "grade",
    "is_promise",
    "load_chateval",
    "load_judged_items",
    "load_retail",
    "load_social_scenarios",
    "make_items",
    "make_profiles",
    "make_retail",
    "make_task_cards",
    "make_world",
    "one_line_per_message",
    "play",
    "play_all",
    "read_dialogue",
    "read_instruction",
    "read_items",
    "read_object",
    "read_recipients",
    "read_scores",
    "read_solution",
    "read_stance",
    "replay",
    "replay_gold",
    "retail_hash",
    "right_option",
    "shop_turns",
    "social_scenario",
    "solve_by_choice",
    "solve_freely",
    "stop_after",
    "task_named",
    "team_action",
    "text_of",
    "verdict_of",
    "visible_sides",
]

_LAZY = {"ParallelWorldEnv": "_parallel", "WorldEnv": "_aec", "text_of": "_spaces"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

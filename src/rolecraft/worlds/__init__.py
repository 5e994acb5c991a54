"""Where agents act, and tasks with known answers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType, Graded, accuracy, clean, grade
from rolecraft.worlds._asynchronous import Asynchronous
from rolecraft.worlds._bargaining import (
    BARGAINING_LOTS,
    BARGAINING_SEATS,
    Bargaining,
    BargainingInstance,
    BargainingView,
    read_bargaining,
    read_utterance,
    standing_offer,
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
from rolecraft.worlds._decision import Act, Director, Policy, View
from rolecraft.worlds._discussion import Discussion, read_scores, read_stance, verdict_of
from rolecraft.worlds._discussion_items import JudgedItem, Stance, load_chateval, load_judged_items
from rolecraft.worlds._episode import Episode, OnIllegal, Receipt, Turn
from rolecraft.worlds._exact_match import Asked, Frame, Solved, solve_by_choice, solve_freely
from rolecraft.worlds._hinted_reply import HintCutWarning, HintedReply, hint_then_query
from rolecraft.worlds._key_door import KeyDoor
from rolecraft.worlds._key_door_map import KeyDoorMap, KeyDoorTables, KeyDoorWalks
from rolecraft.worlds._limits import Limit, TimeLimit, TokenLimit, TurnLimit, tokens_of
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message, read_object, read_recipients
from rolecraft.worlds._negotiation import Negotiation
from rolecraft.worlds._plan_grid import PlanGrid, PlanRewards, Walk, read_plan
from rolecraft.worlds._plan_path import PlanPath
from rolecraft.worlds._play import Rules, Table, play, play_all, replay
from rolecraft.worlds._registry import WORLDS, make_world
from rolecraft.worlds._reply_task import ReplyItem, ReplyScore, ReplyTask
from rolecraft.worlds._trust_game import TrustGame
from rolecraft.worlds._weapon_shop import FUNCTIONS, MISSING_FUNCTIONS, ShopTurn, WeaponShop, shop_turns
from rolecraft.worlds._world import World
from rolecraft.worlds.avalon import (
    AVALON_EVIL,
    AVALON_ROLES,
    AVALON_SETUPS,
    Avalon,
    AvalonProposal,
    AvalonQuest,
    AvalonSetup,
    AvalonView,
    team_action,
    visible_sides,
)
from rolecraft.worlds.dialogue import (
    FAREWELLS,
    FAULTS,
    MARKERS,
    STOP_RULES,
    Dialogue,
    DialogueView,
    Fault,
    Instruction,
    MarkerRule,
    Markers,
    MessageLimit,
    SilenceRule,
    Stop,
    StopRule,
    TextLimit,
    WordRule,
    faults,
    find_stop,
    is_promise,
    read_dialogue,
    read_instruction,
    read_solution,
    stop_after,
)
from rolecraft.worlds.incognita import (
    RETAIL_OPERATIONS,
    GoldAction,
    Incognita,
    Retail,
    RetailReceipt,
    TaskCard,
    UserField,
    gold_states,
    load_retail,
    make_retail,
    make_task_cards,
    replay_gold,
    retail_hash,
)
from rolecraft.worlds.social import (
    SOCIAL_ACTIONS,
    Commitment,
    Relationship,
    RelationshipGraph,
    SocialBrief,
    SocialLedger,
    SocialMove,
    SocialProfile,
    SocialScenario,
    SocialScene,
    load_social_scenarios,
    make_profiles,
    social_scenario,
)

if TYPE_CHECKING:
    from rolecraft.worlds._aec import WorldEnv
    from rolecraft.worlds._parallel import ParallelWorldEnv
    from rolecraft.worlds._spaces import text_of

__all__ = [
    "ANSWER_TYPES",
    "AVALON_EVIL",
    "AVALON_ROLES",
    "AVALON_SETUPS",
    "BARGAINING_LOTS",
    "BARGAINING_SEATS",
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
    "Bargaining",
    "BargainingInstance",
    "BargainingView",
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
    "HintCutWarning",
    "HintedReply",
    "Incognita",
    "Instruction",
    "JudgedItem",
    "KeyDoor",
    "KeyDoorMap",
    "KeyDoorTables",
    "KeyDoorWalks",
    "Limit",
    "MarkerRule",
    "Markers",
    "Message",
    "MessageLimit",
    "MessageLog",
    "Negotiation",
    "OnIllegal",
    "ParallelWorldEnv",
    "PlanGrid",
    "PlanPath",
    "PlanRewards",
    "Policy",
    "Receipt",
    "Relationship",
    "RelationshipGraph",
    "ReplyItem",
    "ReplyScore",
    "ReplyTask",
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
    "TimeLimit",
    "TokenLimit",
    "TrustGame",
    "Turn",
    "TurnLimit",
    "UserField",
    "View",
    "Walk",
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
    "hint_then_query",
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
    "read_bargaining",
    "read_dialogue",
    "read_instruction",
    "read_items",
    "read_object",
    "read_plan",
    "read_recipients",
    "read_scores",
    "read_solution",
    "read_stance",
    "read_utterance",
    "replay",
    "replay_gold",
    "retail_hash",
    "right_option",
    "shop_turns",
    "social_scenario",
    "solve_by_choice",
    "solve_freely",
    "standing_offer",
    "stop_after",
    "task_named",
    "team_action",
    "text_of",
    "tokens_of",
    "verdict_of",
    "visible_sides",
]

_LAZY = {"ParallelWorldEnv": "_parallel", "WorldEnv": "_aec", "text_of": "_spaces"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What acts in a world: tools, calls and the rules that hold for them."""

from rolecraft.agents._avalon_bayes import BayesServantBot
from rolecraft.agents._avalon_bots import (
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
from rolecraft.agents._beliefs import Belief, FreeBeliefs, SampledChoicePolicy, ask_freely, ask_numbers
from rolecraft.agents._call_rules import VIOLATIONS, CallRules, CheckedCalls, Violation
from rolecraft.agents._calls import ParsedCalls, parse_calls
from rolecraft.agents._policies import ChoicePolicy, RandomPolicy, ScriptedPolicy
from rolecraft.agents._role_policy import RolePolicy
from rolecraft.agents._tool_choice import NONE, ToolChooser, value_spans
from rolecraft.agents._tools import Argument, Call, Tool, ToolRegistry, ToolResult, execute

__all__ = [
    "AVALON_BOTS",
    "NONE",
    "VIOLATIONS",
    "Argument",
    "AssassinBot",
    "AvalonBots",
    "AvalonRule",
    "BayesServantBot",
    "Belief",
    "Call",
    "CallRules",
    "CheckedCalls",
    "ChoicePolicy",
    "FreeBeliefs",
    "MerlinBot",
    "MinionBot",
    "NaiveBot",
    "ParsedCalls",
    "Placements",
    "RandomPolicy",
    "RolePolicy",
    "SampledChoicePolicy",
    "ScriptedPolicy",
    "ServantBot",
    "Tool",
    "ToolChooser",
    "ToolRegistry",
    "ToolResult",
    "Violation",
    "ask_freely",
    "ask_numbers",
    "execute",
    "parse_calls",
    "preferred_teams",
    "servant_placements",
    "value_spans",
]

"""What acts in a world: tools, calls and the rules that hold for them."""

from rolecraft.agents._call_rules import VIOLATIONS, CallRules, CheckedCalls, Violation
from rolecraft.agents._calls import ParsedCalls, parse_calls
from rolecraft.agents._policies import ChoicePolicy, RandomPolicy, ScriptedPolicy
from rolecraft.agents._tool_choice import NONE, ToolChooser, value_spans
from rolecraft.agents._tools import Argument, Call, Tool, ToolRegistry, ToolResult, execute

__all__ = [
    "NONE",
    "VIOLATIONS",
    "Argument",
    "Call",
    "CallRules",
    "CheckedCalls",
    "ChoicePolicy",
    "ParsedCalls",
    "RandomPolicy",
    "ScriptedPolicy",
    "Tool",
    "ToolChooser",
    "ToolRegistry",
    "ToolResult",
    "Violation",
    "execute",
    "parse_calls",
    "value_spans",
]

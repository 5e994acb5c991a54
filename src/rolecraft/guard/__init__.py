"""What keeps a role within its bounds: policies, their guard and its log, and the analysis of policies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.guard._analysis import (
        PolicyDifference,
        ToolDifference,
        UpdateVerdict,
        Witness,
        accept_update,
        policy_diff,
    )
    from rolecraft.guard._chain import Chain, TimedGuard, decide_closed
    from rolecraft.guard._checker import PolicyGuard
    from rolecraft.guard._decision import (
        Action,
        CallBlocked,
        Decision,
        FunctionGuard,
        Guard,
        RunStopped,
        ToolCall,
    )
    from rolecraft.guard._enforcer import Enforcer, Outcome, guard_function, guard_registry
    from rolecraft.guard._lint import LINT_RULES, PolicyFinding, lint_policy
    from rolecraft.guard._log import DecisionLog
    from rolecraft.guard._mcp import guard_server
    from rolecraft.guard._policy import Policy, Rule, load_policy, make_policy, make_rules
    from rolecraft.guard._tool_schemas import ToolSchema, read_tools, tool_schemas

_LAZY = {
    "Action": "_decision",
    "CallBlocked": "_decision",
    "Chain": "_chain",
    "Decision": "_decision",
    "DecisionLog": "_log",
    "Enforcer": "_enforcer",
    "FunctionGuard": "_decision",
    "Guard": "_decision",
    "LINT_RULES": "_lint",
    "Outcome": "_enforcer",
    "Policy": "_policy",
    "PolicyDifference": "_analysis",
    "PolicyFinding": "_lint",
    "PolicyGuard": "_checker",
    "Rule": "_policy",
    "RunStopped": "_decision",
    "TimedGuard": "_chain",
    "ToolCall": "_decision",
    "ToolDifference": "_analysis",
    "ToolSchema": "_tool_schemas",
    "UpdateVerdict": "_analysis",
    "Witness": "_analysis",
    "accept_update": "_analysis",
    "decide_closed": "_chain",
    "guard_function": "_enforcer",
    "guard_registry": "_enforcer",
    "guard_server": "_mcp",
    "lint_policy": "_lint",
    "load_policy": "_policy",
    "make_policy": "_policy",
    "make_rules": "_policy",
    "policy_diff": "_analysis",
    "read_tools": "_tool_schemas",
    "tool_schemas": "_tool_schemas",
}

__all__ = [
    "LINT_RULES",
    "Action",
    "CallBlocked",
    "Chain",
    "Decision",
    "DecisionLog",
    "Enforcer",
    "FunctionGuard",
    "Guard",
    "Outcome",
    "Policy",
    "PolicyDifference",
    "PolicyFinding",
    "PolicyGuard",
    "Rule",
    "RunStopped",
    "TimedGuard",
    "ToolCall",
    "ToolDifference",
    "ToolSchema",
    "UpdateVerdict",
    "Witness",
    "accept_update",
    "decide_closed",
    "guard_function",
    "guard_registry",
    "guard_server",
    "lint_policy",
    "load_policy",
    "make_policy",
    "make_rules",
    "policy_diff",
    "read_tools",
    "tool_schemas",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

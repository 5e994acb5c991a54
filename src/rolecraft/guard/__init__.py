"""What keeps a role within its bounds: policies, their guard and its log, and the analysis of policies."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.guard._acting import ACT, GuardedPolicy, RoleGuards, TurnGuard
    from rolecraft.guard._analysis import (
        PolicyDifference,
        ToolDifference,
        UpdateVerdict,
        Witness,
        accept_update,
        policy_diff,
    )
    from rolecraft.guard._cap import Cap
    from rolecraft.guard._chain import Chain, TimedGuard, decide_closed
    from rolecraft.guard._checker import PolicyGuard
    from rolecraft.guard._choice import GuardChoice, read_guards, summarise_decisions
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
    from rolecraft.guard._generate import Generated, PolicyUpdate, PolicyWriter, Try
    from rolecraft.guard._lint import LINT_RULES, PolicyFinding, lint_policy
    from rolecraft.guard._log import DecisionLog
    from rolecraft.guard._mcp import guard_server
    from rolecraft.guard._policy import Policy, Rule, load_policy, make_policy, make_rules
    from rolecraft.guard._requests import LITERALS, literals, rules_by_cues
    from rolecraft.guard._statistical import (
        RiskThreshold,
        clopper_pearson,
        clopper_pearson_bound,
        control_risk,
    )
    from rolecraft.guard._tool_schemas import ToolSchema, read_tools, tool_schemas

_LAZY = {
    "ACT": "_acting",
    "Action": "_decision",
    "CallBlocked": "_decision",
    "Cap": "_cap",
    "Chain": "_chain",
    "Decision": "_decision",
    "DecisionLog": "_log",
    "Enforcer": "_enforcer",
    "FunctionGuard": "_decision",
    "Generated": "_generate",
    "Guard": "_decision",
    "GuardChoice": "_choice",
    "GuardedPolicy": "_acting",
    "LINT_RULES": "_lint",
    "LITERALS": "_requests",
    "Outcome": "_enforcer",
    "Policy": "_policy",
    "PolicyDifference": "_analysis",
    "PolicyFinding": "_lint",
    "PolicyGuard": "_checker",
    "PolicyUpdate": "_generate",
    "PolicyWriter": "_generate",
    "RiskThreshold": "_statistical",
    "RoleGuards": "_acting",
    "Rule": "_policy",
    "RunStopped": "_decision",
    "TimedGuard": "_chain",
    "ToolCall": "_decision",
    "ToolDifference": "_analysis",
    "ToolSchema": "_tool_schemas",
    "Try": "_generate",
    "TurnGuard": "_acting",
    "UpdateVerdict": "_analysis",
    "Witness": "_analysis",
    "accept_update": "_analysis",
    "clopper_pearson": "_statistical",
    "clopper_pearson_bound": "_statistical",
    "control_risk": "_statistical",
    "decide_closed": "_chain",
    "guard_function": "_enforcer",
    "guard_registry": "_enforcer",
    "guard_server": "_mcp",
    "lint_policy": "_lint",
    "literals": "_requests",
    "load_policy": "_policy",
    "make_policy": "_policy",
    "make_rules": "_policy",
    "policy_diff": "_analysis",
    "read_guards": "_choice",
    "read_tools": "_tool_schemas",
    "rules_by_cues": "_requests",
    "summarise_decisions": "_choice",
    "tool_schemas": "_tool_schemas",
}

__all__ = [
    "ACT",
    "LINT_RULES",
    "LITERALS",
    "Action",
    "CallBlocked",
    "Cap",
    "Chain",
    "Decision",
    "DecisionLog",
    "Enforcer",
    "FunctionGuard",
    "Generated",
    "Guard",
    "GuardChoice",
    "GuardedPolicy",
    "Outcome",
    "Policy",
    "PolicyDifference",
    "PolicyFinding",
    "PolicyGuard",
    "PolicyUpdate",
    "PolicyWriter",
    "RiskThreshold",
    "RoleGuards",
    "Rule",
    "RunStopped",
    "TimedGuard",
    "ToolCall",
    "ToolDifference",
    "ToolSchema",
    "Try",
    "TurnGuard",
    "UpdateVerdict",
    "Witness",
    "accept_update",
    "clopper_pearson",
    "clopper_pearson_bound",
    "control_risk",
    "decide_closed",
    "guard_function",
    "guard_registry",
    "guard_server",
    "lint_policy",
    "literals",
    "load_policy",
    "make_policy",
    "make_rules",
    "policy_diff",
    "read_guards",
    "read_tools",
    "rules_by_cues",
    "summarise_decisions",
    "tool_schemas",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

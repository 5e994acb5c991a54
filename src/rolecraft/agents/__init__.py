"""What acts in a world: language agents with memory and tools, scripted agents, and the rules of tool calls."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rolecraft.agents._bargainers import (
    SCRIPTED_BARGAINERS,
    Bargainer,
    fair_bargainer,
    random_bargainer,
    tough_bargainer,
)
from rolecraft.agents._beliefs import Belief, FreeBeliefs, ask_freely, ask_numbers
from rolecraft.agents._call_rules import VIOLATIONS, CallRules, CheckedCalls, Violation
from rolecraft.agents._calls import ParsedCalls, parse_calls
from rolecraft.agents._choices import Choice, Chosen, Drawn, Likeliest, option_probabilities
from rolecraft.agents._critic import (
    Ballot,
    Critic,
    CriticPolicy,
    LanguageCritic,
    ScoreCritic,
    SimilarityCritic,
    first_integer,
    rule_critic,
)
from rolecraft.agents._dialogue_policy import DialoguePolicy
from rolecraft.agents._focus_trace import (
    FOCUS_POINTS,
    NO_ATTRIBUTE,
    Focus,
    FocusFault,
    FocusPoint,
    FocusTrace,
    FocusVariant,
    focus_counts,
    focus_instruction,
    focus_prompt,
    read_focus,
    role_profile,
)
from rolecraft.agents._inception import DialoguePrompts, bare_prompts, inception_clauses, inception_prompts
from rolecraft.agents._language_policy import LanguagePolicy
from rolecraft.agents._memory import Memory, ModelSummariser, Recalled, SummaryMemory, WindowMemory
from rolecraft.agents._memory_files import load_memory, remembered, save_memory
from rolecraft.agents._part import Part
from rolecraft.agents._policies import ChoicePolicy, RandomPolicy, ScriptedPolicy
from rolecraft.agents._retrieval_memory import RetrievalMemory
from rolecraft.agents._role_play_tasks import (
    Brief,
    PreparedTask,
    extract_solutions,
    generate_roles,
    generate_tasks,
    plan_tasks,
    read_list,
    specify_tasks,
)
from rolecraft.agents._role_policy import RolePolicy
from rolecraft.agents._skill_bank import Skill, SkillBank, SkillEntry
from rolecraft.agents._static_skills import StaticSkills
from rolecraft.agents._think_act import FORMS, Form, Reader, Reading, ThinkAct, parse_counts
from rolecraft.agents._tool_choice import NONE, ToolChooser, value_spans
from rolecraft.agents._tool_loop import ToolLoop, replay_calls
from rolecraft.agents._tools import Argument, Call, Tool, ToolRegistry, ToolResult, execute
from rolecraft.agents.avalon import (
    AVALON_BOTS,
    AssassinBot,
    AvalonBots,
    AvalonRule,
    BayesServantBot,
    MerlinBot,
    MinionBot,
    NaiveBot,
    Placements,
    ServantBot,
    preferred_teams,
    servant_placements,
)
from rolecraft.agents.incognita import (
    BanditRouter,
    BeliefRouter,
    Broadcaster,
    IncognitaPlanner,
    InstantFinaliser,
    KeywordRouter,
    OracleRouter,
    SpecialistRouter,
)
from rolecraft.agents.social import (
    BayesNegotiator,
    ConcessionAgent,
    EchoAgent,
    GreedyAgent,
    OracleAgent,
    SceneAgent,
    SceneChoice,
    SceneRandom,
    SceneReading,
    patience_of,
    read_scene,
)

if TYPE_CHECKING:
    from rolecraft.agents._concordia import ConcordiaEntity, ConcordiaModel, ConcordiaPrefab

__all__ = [
    "AVALON_BOTS",
    "FOCUS_POINTS",
    "FORMS",
    "NONE",
    "NO_ATTRIBUTE",
    "SCRIPTED_BARGAINERS",
    "VIOLATIONS",
    "Argument",
    "AssassinBot",
    "AvalonBots",
    "AvalonRule",
    "Ballot",
    "BanditRouter",
    "Bargainer",
    "BayesNegotiator",
    "BayesServantBot",
    "Belief",
    "BeliefRouter",
    "Brief",
    "Broadcaster",
    "Call",
    "CallRules",
    "CheckedCalls",
    "Choice",
    "ChoicePolicy",
    "Chosen",
    "ConcessionAgent",
    "ConcordiaEntity",
    "ConcordiaModel",
    "ConcordiaPrefab",
    "Critic",
    "CriticPolicy",
    "DialoguePolicy",
    "DialoguePrompts",
    "Drawn",
    "EchoAgent",
    "Focus",
    "FocusFault",
    "FocusPoint",
    "FocusTrace",
    "FocusVariant",
    "Form",
    "FreeBeliefs",
    "GreedyAgent",
    "IncognitaPlanner",
    "InstantFinaliser",
    "KeywordRouter",
    "LanguageCritic",
    "LanguagePolicy",
    "Likeliest",
    "Memory",
    "MerlinBot",
    "MinionBot",
    "ModelSummariser",
    "NaiveBot",
    "OracleAgent",
    "OracleRouter",
    "ParsedCalls",
    "Part",
    "Placements",
    "PreparedTask",
    "RandomPolicy",
    "Reader",
    "Reading",
    "Recalled",
    "RetrievalMemory",
    "RolePolicy",
    "SceneAgent",
    "SceneChoice",
    "SceneRandom",
    "SceneReading",
    "ScoreCritic",
    "ScriptedPolicy",
    "ServantBot",
    "SimilarityCritic",
    "Skill",
    "SkillBank",
    "SkillEntry",
    "SpecialistRouter",
    "StaticSkills",
    "SummaryMemory",
    "ThinkAct",
    "Tool",
    "ToolChooser",
    "ToolLoop",
    "ToolRegistry",
    "ToolResult",
    "Violation",
    "WindowMemory",
    "ask_freely",
    "ask_numbers",
    "bare_prompts",
    "execute",
    "extract_solutions",
    "fair_bargainer",
    "first_integer",
    "focus_counts",
    "focus_instruction",
    "focus_prompt",
    "generate_roles",
    "generate_tasks",
    "inception_clauses",
    "inception_prompts",
    "load_memory",
    "option_probabilities",
    "parse_calls",
    "parse_counts",
    "patience_of",
    "plan_tasks",
    "preferred_teams",
    "random_bargainer",
    "read_focus",
    "read_list",
    "read_scene",
    "remembered",
    "replay_calls",
    "role_profile",
    "rule_critic",
    "save_memory",
    "servant_placements",
    "specify_tasks",
    "tough_bargainer",
    "value_spans",
]

_LAZY = dict.fromkeys(("ConcordiaEntity", "ConcordiaModel", "ConcordiaPrefab"), "_concordia")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Several agents on one task: who is in a team, who hears whom, and the log of what they say and do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.teams._read import load_team, make_team
    from rolecraft.teams._run_team import (
        MESSAGE,
        USER,
        Event,
        Heard,
        Speaker,
        TeamRun,
        TurnView,
        Utterance,
        run_team,
    )
    from rolecraft.teams._speakers import FunctionSpeaker, ModelSpeaker, view_chat
    from rolecraft.teams._team import Edge, Member, Team, chain, pair, solo

_LAZY = {
    "MESSAGE": "_run_team",
    "USER": "_run_team",
    "Edge": "_team",
    "Event": "_run_team",
    "FunctionSpeaker": "_speakers",
    "Heard": "_run_team",
    "Member": "_team",
    "ModelSpeaker": "_speakers",
    "Speaker": "_run_team",
    "Team": "_team",
    "TeamRun": "_run_team",
    "TurnView": "_run_team",
    "Utterance": "_run_team",
    "chain": "_team",
    "load_team": "_read",
    "make_team": "_read",
    "pair": "_team",
    "run_team": "_run_team",
    "solo": "_team",
    "view_chat": "_speakers",
}

__all__ = [
    "MESSAGE",
    "USER",
    "Edge",
    "Event",
    "FunctionSpeaker",
    "Heard",
    "Member",
    "ModelSpeaker",
    "Speaker",
    "Team",
    "TeamRun",
    "TurnView",
    "Utterance",
    "chain",
    "load_team",
    "make_team",
    "pair",
    "run_team",
    "solo",
    "view_chat",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

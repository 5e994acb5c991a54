"""Populations and games: evolution in finite populations and on networks, sanctions and reputation, learners."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.societies._fixation import (
        SmallMutation,
        fixation_matrix,
        fixation_probability,
        small_mutation,
        stationary_distribution,
    )
    from rolecraft.societies._game import Dilemma, Game
    from rolecraft.societies._graph import Graph, caveman, complete_graph, lattice, scale_free
    from rolecraft.societies._mechanism import (
        CONDITIONS,
        INFORMATION,
        STATES,
        ReputationLedger,
        Sanction,
        SocialMechanism,
    )
    from rolecraft.societies._network import NetworkRun, evolve_on_graph
    from rolecraft.societies._population import Occupancy, evolve
    from rolecraft.societies._replicator import replicator, replicator_rates
    from rolecraft.societies._settings import Learning, Society
    from rolecraft.societies._train import SocietyLog, train_society

__all__ = [
    "CONDITIONS",
    "INFORMATION",
    "STATES",
    "Dilemma",
    "Game",
    "Graph",
    "Learning",
    "NetworkRun",
    "Occupancy",
    "ReputationLedger",
    "Sanction",
    "SmallMutation",
    "SocialMechanism",
    "Society",
    "SocietyLog",
    "caveman",
    "complete_graph",
    "evolve",
    "evolve_on_graph",
    "fixation_matrix",
    "fixation_probability",
    "lattice",
    "replicator",
    "replicator_rates",
    "scale_free",
    "small_mutation",
    "stationary_distribution",
    "train_society",
]

_WHERE = {
    **dict.fromkeys(
        ("SmallMutation", "fixation_matrix", "fixation_probability", "small_mutation", "stationary_distribution"),
        "_fixation",
    ),
    **dict.fromkeys(("Dilemma", "Game"), "_game"),
    **dict.fromkeys(("Graph", "caveman", "complete_graph", "lattice", "scale_free"), "_graph"),
    **dict.fromkeys(
        ("CONDITIONS", "INFORMATION", "STATES", "ReputationLedger", "Sanction", "SocialMechanism"), "_mechanism"
    ),
    **dict.fromkeys(("NetworkRun", "evolve_on_graph"), "_network"),
    **dict.fromkeys(("Occupancy", "evolve"), "_population"),
    **dict.fromkeys(("replicator", "replicator_rates"), "_replicator"),
    **dict.fromkeys(("Learning", "Society"), "_settings"),
    **dict.fromkeys(("SocietyLog", "train_society"), "_train"),
}


def __getattr__(name: str) -> Any:
    """Import a part, and the libraries that it needs, where it is used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)

"""Screened roles act together in a world: study files, arms with paired seeds, episodes that survive being killed."""

from rolecraft.simulate._cast import check_study
from rolecraft.simulate._drift import DriftRule, DriftWatch, Said
from rolecraft.simulate._export import export_episodes
from rolecraft.simulate._forecast import Forecast
from rolecraft.simulate._interventions import PlannedIntervention, StudyDirector, When
from rolecraft.simulate._measure import measure_run
from rolecraft.simulate._measured import MEASURES, read_measures
from rolecraft.simulate._records import (
    UnfinishedEpisode,
    read_cost,
    read_decisions,
    read_drift,
    read_episode,
    read_episodes,
    read_failures,
    read_unfinished,
)
from rolecraft.simulate._runner import Simulation, study_model
from rolecraft.simulate._study import (
    CONDITIONINGS,
    EpisodeLimits,
    Serving,
    SimulationGuard,
    SimulationStudy,
    read_study,
)
from rolecraft.simulate._summary import summarise, summarise_drift

__all__ = [
    "CONDITIONINGS",
    "MEASURES",
    "DriftRule",
    "DriftWatch",
    "EpisodeLimits",
    "Forecast",
    "PlannedIntervention",
    "Said",
    "Serving",
    "Simulation",
    "SimulationGuard",
    "SimulationStudy",
    "StudyDirector",
    "UnfinishedEpisode",
    "When",
    "check_study",
    "export_episodes",
    "measure_run",
    "read_cost",
    "read_decisions",
    "read_drift",
    "read_episode",
    "read_episodes",
    "read_failures",
    "read_measures",
    "read_study",
    "read_unfinished",
    "study_model",
    "summarise",
    "summarise_drift",
]

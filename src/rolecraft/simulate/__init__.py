"""Screened roles act together in a world: study files, arms with paired seeds, episodes that survive being killed."""

from rolecraft.simulate._export import export_episodes
from rolecraft.simulate._runner import Simulation, check_study, read_episode, read_episodes
from rolecraft.simulate._study import CONDITIONINGS, SimulationStudy, read_study
from rolecraft.simulate._summary import summarise

__all__ = [
    "CONDITIONINGS",
    "Simulation",
    "SimulationStudy",
    "check_study",
    "export_episodes",
    "read_episode",
    "read_episodes",
    "read_study",
    "summarise",
]

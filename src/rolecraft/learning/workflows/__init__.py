"""Workflows: teamwork in turns, sampled as trees or whole trajectories for training (AT-GRPO)."""

from rolecraft.learning.workflows._sampled import SampledRow, SampledRows, prompt_bias
from rolecraft.learning.workflows._tree import GroupOfOneWarning, sample_trajectories, sample_tree
from rolecraft.learning.workflows._workflow import Answers, Effect, Routes, TextPolicy, TextsOf, Workflow, WorldWorkflow

__all__ = [
    "Answers",
    "Effect",
    "GroupOfOneWarning",
    "Routes",
    "SampledRow",
    "SampledRows",
    "TextPolicy",
    "TextsOf",
    "Workflow",
    "WorldWorkflow",
    "prompt_bias",
    "sample_trajectories",
    "sample_tree",
]

"""Prompts: a search that edits them by criticism, on splits that cannot leak."""

from rolecraft.learning.prompts._search import (
    Critic,
    Editor,
    Evaluate,
    Gradient,
    Iteration,
    Prompts,
    Sample,
    SearchConfig,
    SearchTrace,
    Summary,
    Tried,
    optimise,
)
from rolecraft.learning.prompts._split import Split, refuse_overlap
from rolecraft.learning.prompts._writers import model_critic, model_editor

__all__ = [
    "Critic",
    "Editor",
    "Evaluate",
    "Gradient",
    "Iteration",
    "Prompts",
    "Sample",
    "SearchConfig",
    "SearchTrace",
    "Split",
    "Summary",
    "Tried",
    "model_critic",
    "model_editor",
    "optimise",
    "refuse_overlap",
]

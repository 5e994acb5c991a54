"""Learning: search over prompts, with splits that cannot leak."""

from rolecraft.learning._prompt_search import (
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
from rolecraft.learning._prompt_writers import model_critic, model_editor
from rolecraft.learning._split import Split, refuse_overlap

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

"""How a role reaches a policy: prompts, directions and steering."""

from rolecraft.conditioning._controls import assistant_axis, norm_matched, random_direction, shuffled
from rolecraft.conditioning._direction import Direction, Manifest, default_site
from rolecraft.conditioning._extraction import ReadableModel, extract_default, extract_direction, extract_directions
from rolecraft.conditioning._filters import AcceptAll, JudgeFilter, LikelihoodMarginFilter, PairFilter, TraitFilter
from rolecraft.conditioning._gguf import read_gguf, write_gguf
from rolecraft.conditioning._moments import RunningMoments, spearman_brown
from rolecraft.conditioning._outcome import Extraction
from rolecraft.conditioning._presets import PRESETS, ExtractionPreset
from rolecraft.conditioning._prompts import (
    LADDER,
    NEUTRAL_PROMPTS,
    Rung,
    assigned,
    conditioned,
    neutral_prompts,
    prompted,
    usable_rung,
)
from rolecraft.conditioning._role_play_prompt import RolePlayPrompt, feedback_flaw, sample_feedback
from rolecraft.conditioning._steering import Intervention, Operator, Phase, Positions, Steering

__all__ = [
    "LADDER",
    "NEUTRAL_PROMPTS",
    "PRESETS",
    "AcceptAll",
    "Direction",
    "Extraction",
    "ExtractionPreset",
    "Intervention",
    "JudgeFilter",
    "LikelihoodMarginFilter",
    "Manifest",
    "Operator",
    "PairFilter",
    "Phase",
    "Positions",
    "ReadableModel",
    "RolePlayPrompt",
    "Rung",
    "RunningMoments",
    "Steering",
    "TraitFilter",
    "assigned",
    "assistant_axis",
    "conditioned",
    "default_site",
    "extract_default",
    "extract_direction",
    "extract_directions",
    "feedback_flaw",
    "neutral_prompts",
    "norm_matched",
    "prompted",
    "random_direction",
    "read_gguf",
    "sample_feedback",
    "shuffled",
    "spearman_brown",
    "usable_rung",
    "write_gguf",
]

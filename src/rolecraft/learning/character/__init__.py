"""Characters: cases with what is right known, and rewards kept apart by name (Character-R1)."""

from rolecraft.learning.character._cases import CharacterCase, cluster_vectors, group_profiles, load_character_cases
from rolecraft.learning.character._rewards import (
    FocusScore,
    GroupScale,
    RewardBreakdown,
    character_reward,
    character_task,
    component_weights,
    group_scales,
    reward_columns,
    scale_rewards,
)

__all__ = [
    "CharacterCase",
    "FocusScore",
    "GroupScale",
    "RewardBreakdown",
    "character_reward",
    "character_task",
    "cluster_vectors",
    "component_weights",
    "group_profiles",
    "group_scales",
    "load_character_cases",
    "reward_columns",
    "scale_rewards",
]

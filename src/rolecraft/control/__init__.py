"""Goal-, return-, language- and constraint-conditioned control on JAX, with exact tabular solvers beside it.

Nothing heavy is imported before a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.control._adapters import brax_env, craftax_classic, gymnasium_env, mdp_env
    from rolecraft.control._array_env import ArrayEnv, reset_all, step_all
    from rolecraft.control._condition import (
        All,
        Condition,
        ConditionSpace,
        Either,
        Expression,
        Guidance,
        Not,
        OutsideRangeWarning,
        guidance,
    )
    from rolecraft.control._denoiser_gpt import GptDenoiser
    from rolecraft.control._denoiser_unet import TemporalUnet
    from rolecraft.control._diffusion_ddpm import DdpmSchedule, cosine_schedule, ddim_sample, ddpm_sample
    from rolecraft.control._diffusion_edm import edm_sample, log_logistic, precondition, sigma_schedule
    from rolecraft.control._diffusion_guide import guided
    from rolecraft.control._diffusion_planner import Demonstrations, DiffusionPlanner, PlannerConfig, train_planners
    from rolecraft.control._diffusion_policy import (
        DiffusionPolicy,
        DiffusionPolicyConfig,
        PolicySession,
        train_policies,
    )
    from rolecraft.control._doc import DoC, DoCConfig, consistency_report, draw_plans, fit_doc
    from rolecraft.control._doc_bandit import TabularDoC, return_posterior
    from rolecraft.control._doc_data import exact_returns, frozen_lake
    from rolecraft.control._goal_grid import goal_grid
    from rolecraft.control._goals import GoalCounts, GoalSet, mask_goals, sample_achieved, sample_goals
    from rolecraft.control._information import conditional_bound, exact_conditional_information, infonce
    from rolecraft.control._leo import GoalLearner, LeoConfig, evaluate_goals
    from rolecraft.control._navigation import (
        OBSTACLE,
        OBSTACLE_TARGETS,
        SIDES,
        Box,
        PointRoom,
        Rollout,
        graded_play,
        graded_reward,
        obstacle_play,
        obstacle_starts,
        side_kept,
        side_play,
        side_starts,
    )
    from rolecraft.control._report import CommandLevel, CommandReport, commanded_against_achieved, commands_met
    from rolecraft.control._windows import (
        Affine,
        EmpiricalCdf,
        Normaliser,
        Trajectories,
        WindowBatch,
        Windows,
        all_goals,
        future_steps,
        normaliser,
    )

__all__ = [
    "OBSTACLE",
    "OBSTACLE_TARGETS",
    "SIDES",
    "Affine",
    "All",
    "ArrayEnv",
    "Box",
    "CommandLevel",
    "CommandReport",
    "Condition",
    "ConditionSpace",
    "DdpmSchedule",
    "Demonstrations",
    "DiffusionPlanner",
    "DiffusionPolicy",
    "DiffusionPolicyConfig",
    "DoC",
    "DoCConfig",
    "Either",
    "EmpiricalCdf",
    "Expression",
    "GoalCounts",
    "GoalLearner",
    "GoalSet",
    "GptDenoiser",
    "Guidance",
    "LeoConfig",
    "Normaliser",
    "Not",
    "OutsideRangeWarning",
    "PlannerConfig",
    "PointRoom",
    "PolicySession",
    "Rollout",
    "TabularDoC",
    "TemporalUnet",
    "Trajectories",
    "WindowBatch",
    "Windows",
    "all_goals",
    "brax_env",
    "commanded_against_achieved",
    "commands_met",
    "conditional_bound",
    "consistency_report",
    "cosine_schedule",
    "craftax_classic",
    "ddim_sample",
    "ddpm_sample",
    "draw_plans",
    "edm_sample",
    "evaluate_goals",
    "exact_conditional_information",
    "exact_returns",
    "fit_doc",
    "frozen_lake",
    "future_steps",
    "goal_grid",
    "graded_play",
    "graded_reward",
    "guidance",
    "guided",
    "gymnasium_env",
    "infonce",
    "log_logistic",
    "mask_goals",
    "mdp_env",
    "normaliser",
    "obstacle_play",
    "obstacle_starts",
    "precondition",
    "reset_all",
    "return_posterior",
    "sample_achieved",
    "sample_goals",
    "side_kept",
    "side_play",
    "side_starts",
    "sigma_schedule",
    "step_all",
    "train_planners",
    "train_policies",
]

_MODULES = {
    "_adapters": (
        "brax_env",
        "craftax_classic",
        "gymnasium_env",
        "mdp_env",
    ),
    "_array_env": (
        "ArrayEnv",
        "reset_all",
        "step_all",
    ),
    "_doc": (
        "DoC",
        "DoCConfig",
        "consistency_report",
        "draw_plans",
        "fit_doc",
    ),
    "_doc_bandit": (
        "TabularDoC",
        "return_posterior",
    ),
    "_doc_data": (
        "exact_returns",
        "frozen_lake",
    ),
    "_goal_grid": ("goal_grid",),
    "_goals": (
        "GoalCounts",
        "GoalSet",
        "mask_goals",
        "sample_achieved",
        "sample_goals",
    ),
    "_information": (
        "conditional_bound",
        "exact_conditional_information",
        "infonce",
    ),
    "_leo": (
        "GoalLearner",
        "LeoConfig",
        "evaluate_goals",
    ),
    "_condition": (
        "All",
        "Condition",
        "ConditionSpace",
        "Either",
        "Expression",
        "Guidance",
        "Not",
        "OutsideRangeWarning",
        "guidance",
    ),
    "_denoiser_gpt": ("GptDenoiser",),
    "_denoiser_unet": ("TemporalUnet",),
    "_diffusion_ddpm": (
        "DdpmSchedule",
        "cosine_schedule",
        "ddim_sample",
        "ddpm_sample",
    ),
    "_diffusion_edm": (
        "edm_sample",
        "log_logistic",
        "precondition",
        "sigma_schedule",
    ),
    "_diffusion_guide": ("guided",),
    "_diffusion_planner": (
        "Demonstrations",
        "DiffusionPlanner",
        "PlannerConfig",
        "train_planners",
    ),
    "_diffusion_policy": (
        "DiffusionPolicy",
        "DiffusionPolicyConfig",
        "PolicySession",
        "train_policies",
    ),
    "_navigation": (
        "OBSTACLE",
        "OBSTACLE_TARGETS",
        "SIDES",
        "Box",
        "PointRoom",
        "Rollout",
        "graded_play",
        "graded_reward",
        "obstacle_play",
        "obstacle_starts",
        "side_kept",
        "side_play",
        "side_starts",
    ),
    "_report": ("CommandLevel", "CommandReport", "commanded_against_achieved", "commands_met"),
    "_windows": (
        "Affine",
        "EmpiricalCdf",
        "Normaliser",
        "Trajectories",
        "WindowBatch",
        "Windows",
        "all_goals",
        "future_steps",
        "normaliser",
    ),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Role-based multi-agent reinforcement learning on JAX: worlds as arrays, networks told their role, team learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.marl._ac_maddpg import Maddpg, MaddpgConfig
    from rolecraft.marl._ac_nets import gumbel_softmax
    from rolecraft.marl._ac_ppo import Ppo, PpoBatch, PpoConfig, gae
    from rolecraft.marl._acorm import AcormConfig, AcormLearner, ClusterWarning
    from rolecraft.marl._action_effects import ActionEffects, EffectConfig, Moves, effect_config, random_moves
    from rolecraft.marl._adapters import from_jaxmarl, from_jumanji, from_pettingzoo
    from rolecraft.marl._attention_mixer import AttentionMixer
    from rolecraft.marl._conformal_opponent import ConformalOpponent, ConformalOpponentConfig
    from rolecraft.marl._contrastive import Clusters, contrastive_loss, kmeans, momentum_update
    from rolecraft.marl._evaluate import Frame, Played, Policy, evaluate, lazy_agent_index, render_episode
    from rolecraft.marl._joint import JointTeam, joint_env
    from rolecraft.marl._mixers import Mixer, make_mixer
    from rolecraft.marl._networks import TeamQ
    from rolecraft.marl._opponent import OpponentModel, stack_history
    from rolecraft.marl._qlearn import (
        QConfig,
        QLearner,
        QState,
        RoleWarning,
        Stretch,
        TeamRewardWarning,
        lambda_returns,
        train_q,
    )
    from rolecraft.marl._record import describe_trainings, load_team, play_kept, train_kept, trainings
    from rolecraft.marl._rode import RodeLearner, RodeState
    from rolecraft.marl._rode_config import RodeConfig, RoleIntervalWarning
    from rolecraft.marl._rode_roles import RoleSpec, discover_roles, extend_roles, smac_rule
    from rolecraft.marl._rode_train import train_rode
    from rolecraft.marl._rode_transfer import transfer_rode
    from rolecraft.marl._roles_trace import RoleTrace, trace_roles
    from rolecraft.marl._show import episode_text, render_state, save_gif
    from rolecraft.marl._team import (
        Moment,
        Moved,
        Step,
        TeamEnv,
        TeamWorld,
        role_features,
        team_env,
        with_roles,
    )
    from rolecraft.marl._worlds import Checkers, Fetch, Switch

__all__ = [
    "AcormConfig",
    "AcormLearner",
    "ActionEffects",
    "AttentionMixer",
    "Checkers",
    "ClusterWarning",
    "Clusters",
    "ConformalOpponent",
    "ConformalOpponentConfig",
    "EffectConfig",
    "Fetch",
    "Frame",
    "JointTeam",
    "Maddpg",
    "MaddpgConfig",
    "Mixer",
    "Moment",
    "Moved",
    "Moves",
    "OpponentModel",
    "Played",
    "Policy",
    "Ppo",
    "PpoBatch",
    "PpoConfig",
    "QConfig",
    "QLearner",
    "QState",
    "RodeConfig",
    "RodeLearner",
    "RodeState",
    "RoleIntervalWarning",
    "RoleSpec",
    "RoleTrace",
    "RoleWarning",
    "Step",
    "Stretch",
    "Switch",
    "TeamEnv",
    "TeamQ",
    "TeamRewardWarning",
    "TeamWorld",
    "contrastive_loss",
    "describe_trainings",
    "discover_roles",
    "effect_config",
    "episode_text",
    "evaluate",
    "extend_roles",
    "from_jaxmarl",
    "from_jumanji",
    "from_pettingzoo",
    "gae",
    "gumbel_softmax",
    "joint_env",
    "kmeans",
    "lambda_returns",
    "lazy_agent_index",
    "load_team",
    "make_mixer",
    "momentum_update",
    "play_kept",
    "random_moves",
    "render_episode",
    "render_state",
    "role_features",
    "save_gif",
    "smac_rule",
    "stack_history",
    "team_env",
    "trace_roles",
    "train_kept",
    "train_q",
    "train_rode",
    "trainings",
    "transfer_rode",
    "with_roles",
]

_WHERE = {
    **dict.fromkeys(("AcormConfig", "AcormLearner", "ClusterWarning"), "_acorm"),
    **dict.fromkeys(("ActionEffects", "EffectConfig", "Moves", "effect_config", "random_moves"), "_action_effects"),
    **dict.fromkeys(("RodeLearner", "RodeState"), "_rode"),
    **dict.fromkeys(("RodeConfig", "RoleIntervalWarning"), "_rode_config"),
    **dict.fromkeys(("RoleSpec", "discover_roles", "extend_roles", "smac_rule"), "_rode_roles"),
    **dict.fromkeys(("train_rode",), "_rode_train"),
    **dict.fromkeys(("transfer_rode",), "_rode_transfer"),
    **dict.fromkeys(("RoleTrace", "trace_roles"), "_roles_trace"),
    **dict.fromkeys(("AttentionMixer",), "_attention_mixer"),
    **dict.fromkeys(("Clusters", "contrastive_loss", "kmeans", "momentum_update"), "_contrastive"),
    **dict.fromkeys(
        (
            "Maddpg",
            "MaddpgConfig",
        ),
        "_ac_maddpg",
    ),
    **dict.fromkeys(("gumbel_softmax",), "_ac_nets"),
    **dict.fromkeys(
        (
            "Ppo",
            "PpoBatch",
            "PpoConfig",
            "gae",
        ),
        "_ac_ppo",
    ),
    **dict.fromkeys(
        (
            "ConformalOpponent",
            "ConformalOpponentConfig",
        ),
        "_conformal_opponent",
    ),
    **dict.fromkeys(
        (
            "OpponentModel",
            "stack_history",
        ),
        "_opponent",
    ),
    **dict.fromkeys(
        (
            "from_jaxmarl",
            "from_jumanji",
            "from_pettingzoo",
        ),
        "_adapters",
    ),
    **dict.fromkeys(
        (
            "Frame",
            "Played",
            "Policy",
            "evaluate",
            "lazy_agent_index",
            "render_episode",
        ),
        "_evaluate",
    ),
    **dict.fromkeys(
        (
            "JointTeam",
            "joint_env",
        ),
        "_joint",
    ),
    **dict.fromkeys(
        (
            "Mixer",
            "make_mixer",
        ),
        "_mixers",
    ),
    **dict.fromkeys(("TeamQ",), "_networks"),
    **dict.fromkeys(
        (
            "QConfig",
            "QLearner",
            "QState",
            "RoleWarning",
            "Stretch",
            "TeamRewardWarning",
            "lambda_returns",
            "train_q",
        ),
        "_qlearn",
    ),
    **dict.fromkeys(
        (
            "describe_trainings",
            "load_team",
            "play_kept",
            "train_kept",
            "trainings",
        ),
        "_record",
    ),
    **dict.fromkeys(
        (
            "episode_text",
            "render_state",
            "save_gif",
        ),
        "_show",
    ),
    **dict.fromkeys(
        (
            "Moment",
            "Moved",
            "Step",
            "TeamEnv",
            "TeamWorld",
            "role_features",
            "team_env",
            "with_roles",
        ),
        "_team",
    ),
    **dict.fromkeys(
        (
            "Checkers",
            "Fetch",
            "Switch",
        ),
        "_worlds",
    ),
}


def __getattr__(name: str) -> Any:
    """Import JAX only where one of the parts is used."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)

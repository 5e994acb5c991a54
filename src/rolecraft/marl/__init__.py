"""Role-based multi-agent reinforcement learning on JAX: worlds as arrays, networks told their role, team learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolecraft.marl._ac_maddpg import Maddpg, MaddpgConfig
    from rolecraft.marl._ac_nets import gumbel_softmax
    from rolecraft.marl._ac_ppo import Ppo, PpoBatch, PpoConfig, gae
    from rolecraft.marl._acorm import AcormConfig, AcormLearner, ClusterWarning
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
    "AttentionMixer",
    "Checkers",
    "ClusterWarning",
    "Clusters",
    "ConformalOpponent",
    "ConformalOpponentConfig",
    "Fetch",
    "Frame",
    "JointTeam",
    "Maddpg",
    "MaddpgConfig",
    "Mixer",
    "Moment",
    "Moved",
    "OpponentModel",
    "Played",
    "Policy",
    "Ppo",
    "PpoBatch",
    "PpoConfig",
    "QConfig",
    "QLearner",
    "QState",
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
    "episode_text",
    "evaluate",
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
    "render_episode",
    "render_state",
    "role_features",
    "save_gif",
    "stack_history",
    "team_env",
    "train_kept",
    "train_q",
    "trainings",
    "with_roles",
]

_WHERE = {
    **dict.fromkeys(("AcormConfig", "AcormLearner", "ClusterWarning"), "_acorm"),
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

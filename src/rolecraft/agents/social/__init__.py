"""Program agents for social scenes: what they read, how they bargain, and what they infer."""

from rolecraft.agents.social._agents import (
    ConcessionAgent,
    EchoAgent,
    GreedyAgent,
    OracleAgent,
    SceneAgent,
    SceneChoice,
    SceneRandom,
    patience_of,
)
from rolecraft.agents.social._bayes import BayesNegotiator
from rolecraft.agents.social._reading import SceneReading, read_scene

__all__ = [
    "BayesNegotiator",
    "ConcessionAgent",
    "EchoAgent",
    "GreedyAgent",
    "OracleAgent",
    "SceneAgent",
    "SceneChoice",
    "SceneRandom",
    "SceneReading",
    "patience_of",
    "read_scene",
]

"""Social scenes as something to learn from: evaluations as one reward, and turns that earn none (OMAR)."""

from rolecraft.learning.social._reward import social_reward
from rolecraft.learning.social._turns import (
    TURN_KEEP,
    Evaluator,
    FilterLog,
    JudgedTurn,
    RuleTurnJudge,
    TurnJudge,
    evaluate_rows,
    judge_turns,
)

__all__ = [
    "TURN_KEEP",
    "Evaluator",
    "FilterLog",
    "JudgedTurn",
    "RuleTurnJudge",
    "TurnJudge",
    "evaluate_rows",
    "judge_turns",
    "social_reward",
]
